"""Clients that know one URL and have an invitation, while the homeserver that they are connected to is killed."""

import json
import os
from functools import partial
from typing import Any

import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.authority.wire.home_door import QuestionNews
from batonpass.client.client import PlayerClient, connect
from batonpass.client.home import HomeFailure
from batonpass.client.player_key import PlayerKey
from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from batonpass.scenarios.cluster.processes import BATON
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, come, limited

pytestmark = limited

BALL = "alpha.guest-1-ball"
HOMES = ("alpha.h1", "alpha.h2", "alpha.h3")


async def baton(cluster: LocalCluster, url: str, *arguments: str) -> Any:
    """The JSON that `baton invite` prints, of a cluster by its folder alone."""
    where = {"BATON_CLUSTER": str(cluster.directory), "BATON_URL": url}
    done = await trio.run_process([*BATON, "invite", *arguments, "--json"], capture_stdout=True, env=os.environ | where)
    return json.loads(done.stdout)


async def test_a_client_of_one_url_with_an_invitation_plays_on_while_its_homeserver_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it by TLS: between servers, from the command line, and of the client with every door."""
    spec = ClusterSpec(instances={"alpha": 3}, simservers=2, lease_term_s=6.0, log_level="WARNING", tls=True)
    # Of this process: it believes the authority of this cluster until the test is over.
    monkeypatch.setattr("batonpass.actors.http.client._Believed.context", None)
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(spec, grace_s=PATIENCE_S) as cluster:
            rest_urls = [cluster.server(name).rest_url for name in HOMES]
            made = await baton(cluster, rest_urls[0], "make", "alpha.guest-*", "--kind", "ball", "--uses", "2")
            one, two = (PlayerKey(f"alpha.guest-{number}", Identity.generate()) for number in (1, 2))
            urls = [url.replace("https", "wss", 1) for url in rest_urls]
            trusted = trusted_authorities()
            async with (
                connect(urls[0], one, invitation=made["invitation"], context=trusted) as master,
                connect(urls[1], two, invitation=made["invitation"], context=trusted) as other,
            ):
                await come(
                    partial(master.home.spawn, BALL, "ball", "alpha.s1", params={"p": [0, 0, 0]}), what="the ball"
                )
                steering = await master.steer(BALL)
                await steering.applied(await steering.give(bytes(12)))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_answer_as_master, master)
                    # Over the door by which it steers: it has no other connection.
                    await come(partial(_way_of, master), lambda way: way is not None, what="the way over a door")
                    killed = master.home.link.server
                    await cluster.kill(killed)
                    wish = await other.home.own(BALL, transfer_id="wish-0001")
                    assert wish["phase"] in ("asked", "done")
                    # The question comes while the master has no connection: it is told when there is one again.
                    await come(
                        partial(other.home.transfer, "wish-0001"),
                        lambda view: view["phase"] == "done",
                        what="the answer",
                    )
                    nursery.cancel_scope.cancel()
                record = await other.home.entity(BALL)
                assert (record["owner"], record["master"]) == ("alpha.guest-2", "alpha.guest-1")
                steering = await other.steer(BALL)
                await steering.applied(await steering.give(bytes(12)))
                assert master.home.link.reconnections == 1
            alive = next(cluster.server(name).rest_url for name in HOMES if name != killed)
            (listed,) = await baton(cluster, alive, "ls")
            assert listed["uses"] == 0


async def _way_of(client: PlayerClient) -> object:
    return client.home.link.way


async def _answer_as_master(client: PlayerClient) -> None:
    async for news in client.home.news():
        if isinstance(news, QuestionNews):
            await client.home.answer(news.question, allow=True)


async def test_no_more_players_come_by_an_invitation_than_it_says_while_homeservers_are_killed() -> None:
    spec = ClusterSpec(instances={"alpha": 3}, simservers=0, lease_term_s=6.0, log_level="WARNING")
    came: dict[str, str] = {}
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(spec, grace_s=PATIENCE_S) as cluster:
            urls = [cluster.server(name).rest_url for name in HOMES]
            made = await baton(cluster, urls[0], "make", "alpha.guest-*", "--uses", "3")
            keys = [PlayerKey(f"alpha.guest-{number}", Identity.generate()) for number in range(8)]

            async def come_in(number: int) -> None:
                key = keys[number]
                try:
                    # Those whose homeserver is killed under them know one URL, and it is that of a dead one.
                    async with connect(urls[1 + number % 2], key, invitation=made["invitation"]) as client:
                        await client.home.simservers()
                        came[key.name] = "in"
                except* HomeFailure as failures:
                    came[key.name] = failures.exceptions[0].code  # type: ignore[union-attr] # it is one failure

            async with trio.open_nursery() as nursery:
                for number in range(len(keys)):
                    nursery.start_soon(come_in, number)
                await cluster.kill("alpha.h1")
            assert sorted(came.values()) == ["bad_invitation"] * 5 + ["in"] * 3
            # Those that are in come again, by the same invitation, and take no other use.
            for key in keys:
                if came[key.name] == "in":
                    async with connect(urls[1], key, invitation=made["invitation"]) as client:
                        assert client.home.link.welcome is not None
                        assert client.home.link.welcome.player == key.name
