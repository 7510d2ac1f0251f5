"""`baton play` in the arena, whose servers are real processes: a robot is driven over a border from a script."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.crypto.key_store import KeyStore
from batonpass.scenarios.arena.start import arena_spec
from batonpass.scenarios.arena.world import WIDTH_MM
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from batonpass.scenarios.cluster.processes import BATON
from batonpass.simserver.entity.inputs import MAX_PENDING
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, come, limited
from tests.scenarios.commands import baton_command

pytestmark = limited

ADA, BOB = "alpha.ada", "alpha.bob"
ROBOT, WANDERING = "alpha.robot-ada", "alpha.robot-own"
SCRIPT = "right\nwait 1\nright  # on\nwait 1\n7f00\nwait 0.5\nspace\n"


async def test_a_robot_is_driven_over_a_border(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    baton = baton_command(capsys, "play")
    spec = arena_spec(ClusterSpec(instances={"alpha": 1}, simservers=2, log_level="WARNING"))
    script = tmp_path / "script"
    script.write_text(SCRIPT)
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(spec, grace_s=PATIENCE_S) as cluster:
            url, rest = cluster.server("alpha.h1").rest_url, cluster.rest_client(PATIENCE_S)
            try:
                for player in (ADA, BOB):
                    # As `baton keys new` makes them.
                    keys = KeyStore(tmp_path / player / "keys").load_or_create().public.to_jwks()["keys"]
                    await rest.call("alpha", "PUT", f"/v1/players/{player}/keys", {"keys": keys})
                body: dict[str, Any] = {"id": ROBOT, "kind": "robot", "spawner": ADA, "server": "alpha.s1"}
                body["params"] = {"driver": ADA, "p": [WIDTH_MM // 2 - 3000, 3000]}
                await come(partial(rest.call, "alpha", "POST", "/v1/entities", body), what="the robot")

                def play(player: str, *arguments: str, of: str = ROBOT) -> Any:
                    keys = str(tmp_path / player)
                    return baton("--url", url, of, "--player", player, "--keys", keys, *arguments)

                run = partial(trio.to_thread.run_sync)
                status, out, err = await run(partial(play, ADA, "--script", str(script), "--json"))
                assert (status, err) == (0, "")
                rows = [json.loads(line) for line in out.splitlines()]
                applied = [row for row in rows if row["event"] == "applied"]
                assert [row["data"] for row in applied] == ["7f00", "7f00", "7f00", "0000"]
                numbers = [row["number"] for row in applied]
                assert numbers == list(range(numbers[0], numbers[0] + 4))
                assert all(one["tick"] <= two["tick"] for one, two in pairwise(applied))
                seen = [row for row in rows if row["event"] == "seen"]
                assert list(dict.fromkeys(row["server"] for row in seen)) == ["alpha.s1", "alpha.s2"]
                state = await rest.get(f"{cluster.server('alpha.s2').rest_url}/v1/local/entities/{ROBOT}")
                assert state["sources"][ADA]["applied"] == numbers[-1]
                # A program that plays again begins behind all that was given before; no input is one of those.
                script.write_text("left\nspace\n")
                status, out, _ = await run(partial(play, ADA, "--script", str(script)))
                assert status == 0
                assert [line.split()[3] for line in out.splitlines() if " input " in line] == ["(8100)", "(0000)"]
                found = await rest.get(f"{cluster.server('alpha.s2').rest_url}/v1/local/entities/{ROBOT}")
                assert found["sources"][ADA]["applied"] >= numbers[-1] + 2
                assert (await run(partial(play, BOB, "--script", str(script))))[0] == 1
                status, _, err = await run(partial(play, ADA, "--script", str(script), of="alpha.robot-none"))
                assert status == 1
                assert "not_found" in err
                await run(partial(_with_keys, url, tmp_path / ADA))
                after = await rest.get(f"{cluster.server('alpha.s2').rest_url}/v1/local/entities/{ROBOT}")
                # A program that plays anew begins behind all numbers that may still be under way.
                more = after["sources"][ADA]["applied"] - found["sources"][ADA]["applied"]
                assert more >= MAX_PENDING + 3
                wandering = body | {"id": WANDERING, "params": {}}
                await come(partial(rest.call, "alpha", "POST", "/v1/entities", wandering), what="another robot")
                await run(partial(_read_a_line_of, "watch", WANDERING, "--rate", "20", "--json", "--url", url))
                script.write_text("sideways\n")
                status, _, err = await run(partial(play, ADA, "--script", str(script)))
                assert status == 2
                assert "sideways" in err
            finally:
                with trio.CancelScope(shield=True):
                    await rest.aclose()


def _read_a_line_of(*command: str) -> None:
    """As `head -1` does: it ends, and complains of nothing."""
    whole = [*BATON, *command]
    with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["entity"] == WANDERING
            process.stdout.close()
            assert process.wait(PATIENCE_S) == 1
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()


def _with_keys(url: str, keys: Path) -> None:
    """Drive on a terminal: two arrows and the space bar, each once the one before is applied, and the key that ends."""
    ours, theirs = pty.openpty()
    command = [*BATON, "play", ROBOT, "--url", url, "--player", ADA, "--keys", str(keys)]
    # Wide enough for the table, which would be folded.
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        shown = ""

        def see(text: str) -> None:
            nonlocal shown
            until_s = time.monotonic() + PATIENCE_S
            while text not in shown:
                assert time.monotonic() < until_s, shown
                if select.select([ours], [], [], 1.0)[0]:
                    shown += os.read(ours, 65536).decode()

        try:
            for number, key in enumerate((b"\x1b[D", b"\x1b[C", b" ")):
                see(f"{number} applied, 0 waiting")
                os.write(ours, key)
            see("3 applied, 0 waiting")
            assert "arrows drive, space stops" in shown
            os.write(ours, b"q")
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    # The terminal is as it was: what is typed is shown again.
    assert termios.tcgetattr(theirs)[3] == before[3]
    os.close(ours)
    os.close(theirs)


def test_what_is_used_wrongly_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    baton, keys = baton_command(capsys, "play"), str(tmp_path / "keys")
    usual = ("--url", "http://127.0.0.1:9", ROBOT, "--player", ADA, "--keys", keys)
    status, _, err = baton(*usual)
    assert status == 2
    assert "holds no keys" in err
    KeyStore(tmp_path / "keys").load_or_create()
    for wrong in ("up", "up=x", "q=00", "=00"):
        status, _, err = baton(*usual, "--key", wrong)
        assert status == 2
        assert "no KEY=HEX" in err
    script = tmp_path / "script"
    script.write_text("up\n")
    assert baton(*usual, "--script", str(script))[0] == 3
