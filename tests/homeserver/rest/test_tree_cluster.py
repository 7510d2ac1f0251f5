"""The members of an instance over HTTP: who they are, and that only an operator changes them."""

from pathlib import Path
from typing import Any

import httpx
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.crypto.keys import Identity
from batonpass.homeserver.config import HomeserverConfig, MemberConfig
from batonpass.homeserver.rest.cluster import CHANGE_STATUS
from batonpass.homeserver.server.main import run as run_homeserver
from batonpass.tree.net import membership
from tests.homeserver.served import DEADLINE_S, Home, homeserver_config, new_ports, served, until


def operator(home: Home) -> dict[str, str]:
    return {"authorization": f"Bearer {(home.directory / 'operator').read_text()}"}


async def test_every_reason_against_a_change_has_a_status() -> None:
    words = str(membership.ChangeRefused.__doc__)
    codes = {word for word in words.replace("`", " ").split() if "_" in word}
    assert codes <= set(CHANGE_STATUS)


async def test_the_cluster_tells_roles_progress_and_latency(alpha: Home) -> None:
    view = await alpha.api.get("/v1/cluster")
    assert (view["ready"], view["configuration_index"]) == (True, 0)
    assert view["revision"] == alpha.node.replica.store.revision
    (member,) = view["members"]
    assert (member["role"], member["leads"], member["connected"], member["replaces"]) == ("voter", True, True, None)
    assert view["latency"]["count"] >= 1
    assert 0 < view["latency"]["p50_ms"] <= view["latency"]["max_ms"]


async def test_only_an_operator_changes_members(alpha: Home) -> None:
    new = {"name": "alpha.h2", "host": "127.0.0.1", "raft_port": 1}
    for method, path, body in (
        ("POST", "/v1/cluster/members", new),
        ("DELETE", "/v1/cluster/members/alpha.h1", None),
        ("POST", "/v1/cluster/leader", {}),
    ):
        await alpha.api.refused(401, "no_token", method, path, body, token=False)
        await alpha.api.refused(403, "missing_right", method, path, body)
    headers = operator(alpha)
    await alpha.player("alpha.ada")
    for status, code, method, path, change in (
        (409, "last_voter", "DELETE", "/v1/cluster/members/alpha.h1", None),
        (404, "unknown_member", "DELETE", "/v1/cluster/members/alpha.h9", None),
        (404, "unknown_member", "POST", "/v1/cluster/members", new | {"replaces": "alpha.h9"}),
        (422, "invalid_field", "POST", "/v1/cluster/members", new | {"raft_port": 0}),
        (422, "bad_member", "POST", "/v1/cluster/members", new | {"name": "beta.h2"}),
        (422, "bad_member", "POST", "/v1/cluster/members", new | {"name": "alpha.ada"}),
        (404, "unknown_member", "DELETE", "/v1/cluster/members/alpha.ada", None),
    ):
        await alpha.api.refused(status, code, method, path, change, headers=headers)


async def test_a_member_that_is_removed_again_is_gone(alpha: Home) -> None:
    row = DirectoryRow(name="alpha.h7", role=Role.HOMESERVER, keys=Identity.generate().public.to_jwks())
    await alpha.node.store.submit("directory.register", row=row.to_data(), follows=None)
    view = await alpha.api.do("DELETE", "/v1/cluster/members/alpha.h7", headers=operator(alpha))
    assert [member["name"] for member in view["members"]] == ["alpha.h1"]


async def test_without_an_operator_token_nobody_changes_members(tmp_path: Path) -> None:
    with new_ports() as ports:
        nobody = {"operator_token_file": None, "token_issuer_file": None}
        config = homeserver_config(tmp_path, ports).model_copy(update=nobody)
        async with served(config) as home:
            await home.api.refused(403, "no_operator", "POST", "/v1/cluster/leader", {})


async def test_a_member_joins_leads_and_lets_the_first_one_go(alpha: Home, nursery: trio.Nursery) -> None:
    first = alpha.node.config
    with new_ports() as ports:
        second = joining(alpha.directory, ports, first.members[0])
        await nursery.start(run_homeserver, second)
        body = {"name": "alpha.h2", "host": "127.0.0.1", "raft_port": second.members[0].raft_port}
        member = await alpha.api.do("POST", "/v1/cluster/members", body, headers=operator(alpha))
        assert (member["name"], member["role"], member["connected"]) == ("alpha.h2", "voter", True)

        await alpha.api.do("PUT", "/v1/tree/jobs/7", {"data": 1})
        answer = await alpha.api.do("POST", "/v1/cluster/leader", {"name": "alpha.h2"}, headers=operator(alpha))
        assert answer == {"leader": "alpha.h2"}
        async with httpx.AsyncClient(
            base_url=second.rest.url, trust_env=False, verify=trusted_authorities(), timeout=DEADLINE_S
        ) as client:
            token = {"authorization": f"Bearer {(alpha.directory / 'client').read_text()}"}
            assert (await client.get("/v1/tree/jobs/7", headers=token)).json()["data"] == 1

            async def leader() -> Any:
                return (await client.get("/v1/cluster")).json()["leader"]

            assert await leader() == "alpha.h2"
        view = await alpha.api.get("/v1/cluster")
        rest_urls = {member["name"]: member["rest_url"] for member in view["members"]}
        assert set(rest_urls) == {"alpha.h1", "alpha.h2"}
        await until(lambda: alpha.node.store.row("alpha.h2"))
        nursery.cancel_scope.cancel()


def joining(directory: Path, ports: Any, known: MemberConfig) -> HomeserverConfig:
    config = homeserver_config(directory, ports, "alpha.h2")
    return config.model_copy(update={"join": True, "members": (*config.members, known)})
