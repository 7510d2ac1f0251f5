"""Instances whose servers are of one IP version each: homes reach each other, and links do not reach the other one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batonpass.authority.node.config import Address
from batonpass.homeserver.config import MemberConfig, PeerConfig
from batonpass.simserver.server.dispatch import SimserverNode as SimNode
from tests.homeserver.served import Home, Player, homeserver_config, new_ports, served, until

BALL = "alpha.ball-1"


@pytest.fixture
async def versions(tmp_path: Path) -> AsyncIterator[tuple[Home, Home]]:
    """`alpha`, all of whose servers are on 127.0.0.1, and `beta`, all of whose servers are on ::1."""
    with new_ports() as ports:
        one, other = homeserver_config(tmp_path, ports), homeserver_config(tmp_path, ports, "beta.h1")
        rest = Address(host="::1", port=other.rest.port)
        (member,) = other.members
        on_six: dict[str, Any] = {
            "rest": rest,
            "link": Address(host="::1"),
            "members": (MemberConfig(name=member.name, raft_port=member.raft_port, rest_url=rest.url),),
            "peers": (PeerConfig(instance="alpha", urls=(one.rest.url,)),),
        }
        one = one.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(rest.url,)),)})
        async with served(one) as alpha, served(other.model_copy(update=on_six)) as beta:
            for name in ("alpha.s1", "alpha.s2"):
                await alpha.simserver(name)
            for name in ("beta.s1", "beta.s2"):
                await beta.simserver(name, rest=Address(host="::1"), link=Address(host="::1"))
            yield alpha, beta


async def moved(home: Home, entity: str, to: str) -> dict[str, Any]:
    begun = await home.api.do("POST", f"/v1/entities/{entity}/transfers", {"to": to})
    return await home.finished(begun["transfer_id"])


async def ticks(node: SimNode, entity: str) -> None:
    """It is simulated there."""
    holding = node.holdings.get(entity)
    assert holding is not None
    tick = holding.life.tick
    await until(lambda: holding.life.tick > tick + 1)


async def test_what_cannot_be_handed_to_the_other_ip_version_is_refused_and_stays_and_nobody_else_is_concerned(
    versions: tuple[Home, Home], caplog: pytest.LogCaptureFixture
) -> None:
    alpha, beta = versions
    ada, bob = await alpha.player("alpha.ada"), Player("beta.bob")
    await beta.api.do("PUT", f"/v1/players/{bob.name}/keys", {"keys": bob.keys})
    await alpha.entity(BALL, ada, "alpha.s1")
    await beta.entity("beta.ball-1", bob, "beta.s1")
    for home, entity, to in ((alpha, BALL, "beta.s1"), (beta, "beta.ball-1", "alpha.s1")):
        refused = await moved(home, entity, to)
        assert (refused["result"], refused["reason"]) == ("refused", "target_failed")
    for home, entity, name in ((alpha, BALL, "alpha.s1"), (beta, "beta.ball-1", "beta.s1")):
        assert (await home.api.get(f"/v1/entities/{entity}"))["authority"] == name
        await ticks(home.simservers[name], entity)
    for home, entity, to in ((alpha, BALL, "alpha.s2"), (beta, "beta.ball-1", "beta.s2")):
        assert (await moved(home, entity, to))["result"] == "done", "within its instance it goes"
        await ticks(home.simservers[to], entity)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
