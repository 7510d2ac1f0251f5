"""`baton watch` against servers that are real processes."""

import json
from functools import partial

import pytest
import trio

from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from batonpass.scenarios.remote import watch
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, come, limited
from tests.scenarios.commands import baton_command

pytestmark = limited

ADA = "alpha.ada"


async def test_entities_of_all_servers_are_shown_and_what_is_wrong_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    baton = baton_command(capsys, "watch")
    spec = ClusterSpec(instances={"alpha": 1}, simservers=2, log_level="WARNING")
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(spec, grace_s=PATIENCE_S) as cluster:
            url, rest = cluster.server("alpha.h1").rest_url, cluster.rest_client(PATIENCE_S)
            run = partial(trio.to_thread.run_sync, baton, "--url", url)
            try:
                body = {"keys": Identity.generate().public.to_jwks()["keys"]}
                await rest.call("alpha", "PUT", f"/v1/players/{ADA}/keys", body)
                for number in (1, 2):
                    ball = {"id": f"alpha.ball-{number}", "kind": "ball", "spawner": ADA, "server": f"alpha.s{number}"}
                    await come(partial(rest.call, "alpha", "POST", "/v1/entities", ball), what="a ball")
            finally:
                with trio.CancelScope(shield=True):
                    await rest.aclose()
            status, out, _ = await run("--pattern", "alpha.ball-?", "--seconds", "8", "--json")
            rows = [json.loads(line) for line in out.splitlines()]
            assert status == 0
            shown = {(row["entity"], row["server"], row["owner"], row["gone"]) for row in rows}
            assert shown == {("alpha.ball-1", "alpha.s1", ADA, False), ("alpha.ball-2", "alpha.s2", ADA, False)}
            assert all(row["state"].keys() == {"p", "v", "pushes", "pushed", "ballast"} for row in rows)
            status, out, _ = await run("alpha.ball-1", "--seconds", "4")
            assert status == 0
            assert all(line.startswith("alpha.ball-1  alpha.s1  epoch 1 tick ") for line in out.splitlines())
            assert out
            status, out, _ = await run("--area", "5000000,5000000,5000000,5000000", "--seconds", "4", "--json")
            assert {json.loads(line)["entity"] for line in out.splitlines()} == {"alpha.ball-1", "alpha.ball-2"}
            status, out, err = await run("alpha.ball-3")
            assert (status, out) == (1, "")
            assert "not_found" in err
            status, out, err = await run("--around", "alpha.ball-3", "--radius", "9")
            assert (status, out) == (1, "")
            assert err.count("not_found") == 1
            with monkeypatch.context() as patched:
                patched.setattr(watch, "_PATIENCE_S", 0.5)
                status, out, err = await run("--pattern", "alpha.none-*", "--seconds", "0.5")
            assert (status, out) == (3, "")
            assert "nothing was shown" in err
            status, out, err = await run("--area", "0,0,0,99000000")
            assert status == 1
            assert "area_too_large" in err
            for wrong, word in (((), "say what to watch"), (("--area", "x"), "no area"), (("no name",), "no name")):
                status, out, err = await run(*wrong)
                assert (status, out) == (2, "")
                assert word in err
    status, out, err = await trio.to_thread.run_sync(baton, "--url", "http://127.0.0.1:9", "alpha.ball-1")
    assert (status, out) == (3, "")
    assert "no homeserver" in err or "9" in err
