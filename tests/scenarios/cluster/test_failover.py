"""Simulation servers that die, hang or come back, as real processes, while players give inputs.

What must hold however slow the machine is: no input that was acknowledged as durable is lost, none is applied twice,
epochs rise, and no two servers ever simulate an entity at the same time.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import httpx
import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.authority.machines.replica_choice import backup_replicas_of
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from batonpass.scenarios.players.input_stream import InputStream, Players
from batonpass.scenarios.players.rest_client import RestClient
from tests.scenarios.cluster.test_leases import answer

# Such a test takes 10 to 25 s on a quiet machine; three at a time beside other work (a load of 16) take more than 110.
LIMIT_S = 220
pytestmark = pytest.mark.timeout(240)

TERM_S = 3.0
# After that long two servers have said to each other all that they had to say, and it is acknowledged. What is not has
# them notice sooner that one of them is gone. Nothing fails when it is too short; less is tried then.
QUIET_S = 8.0
PLAYER = "alpha.ada"
Entity = dict[str, Any]


@dataclass
class World:
    """A running cluster, with a player who gives inputs to every entity all the time."""

    cluster: LocalCluster
    client: RestClient
    players: Players
    streams: dict[str, InputStream]
    custody: list[dict[str, Any]]

    async def spawn(self, which: int | Sequence[int], server: str, **fields: Any) -> None:
        """So many, or those of these numbers."""
        for number in range(which) if isinstance(which, int) else which:
            entity = f"alpha.ball-{number}"
            params = {"p": [1000 * number, 0, 0], "v": [1, 2, 3]}
            body = {"id": entity, "kind": "ball", "spawner": PLAYER, "server": server, "params": params, **fields}
            await self.client.call("alpha", "POST", "/v1/entities", body)
            self.streams[entity] = await self.players.follow(entity, server)

    async def push(self, times: int) -> None:
        """Everybody gives so many inputs, in turn; who has too many under way waits."""
        for _ in range(times):
            for stream in self.streams.values():
                await self.players.push_in_turn(stream, b"\0" * 12)
            await trio.sleep(0.02)

    async def entity(self, entity: str) -> Entity:
        record: Entity = await self.client.call("alpha", "GET", f"/v1/entities/{entity}", consistency="local")
        return record

    async def until(self, fits: Callable[[Entity], object]) -> dict[str, Entity]:
        """The records of all entities, once they are like that."""
        while True:
            records = {name: await self.entity(name) for name in self.streams}
            if all(fits(record) for record in records.values()):
                return records
            await trio.sleep(0.1)

    async def everything_durable(self) -> None:
        """Wait until copies have all that was given: what dies with its server before that may be lost."""
        assert await self.players.drained(30.0)
        await self.until(lambda record: not self.streams[record["id"]].kept)

    async def has_left(self, server: str) -> None:
        """Wait until nothing lives on a server, and its disk has what it is to have."""
        url = f"{self.cluster.server(server).rest_url}/v1/local/stats"
        while True:
            stats = await answer(url)
            if not (stats["entities"] or stats["leaving"] or stats["unwritten"]):
                return
            await trio.sleep(0.05)

    async def hand_over(self, to: str) -> None:
        """Ask for the transfer of all entities, and wait until it is decided.

        A busy machine may let the other home be silent so long that one is refused: it is asked for again.
        """
        asked = {name: await self._asked(name, to) for name in self.streams}
        while not all([(await self.entity(name))["authority"] == to for name in asked]):
            for name, transfer in asked.items():
                view = await self.client.call("alpha", "GET", f"/v1/transfers/{transfer}", consistency="local")
                if view["result"] == "refused":
                    asked[name] = await self._asked(name, to)
            await trio.sleep(0.1)

    async def _asked(self, entity: str, to: str) -> str:
        view = await self.client.call("alpha", "POST", f"/v1/entities/{entity}/transfers", {"to": to})
        return str(view["transfer_id"])

    async def lose_power(self, *servers: str) -> None:
        """Kill all of these, and start them again."""
        for name in servers:
            await self.cluster.kill(name)
        for name in servers:
            await self.cluster.restart(name, same_code=True)

    def move_link(self, server: str) -> None:
        """Have a server that does not run listen on another port when it is started: any that is free then."""
        config = self.cluster.directory / server / "config.toml"
        text, changed = re.subn(r"(\[link\][^\[]*?\bport = )\d+", r"\g<1>0", config.read_text())
        assert changed == 1, text
        config.write_text(text)

    async def keep_custody(self, server: str) -> None:
        """Remember the custody log of a server that is about to be killed."""
        self.custody += (await answer(f"{self.cluster.server(server).rest_url}/v1/local/custody"))["stints"]

    async def exactly_once(self) -> None:
        """Everything that was given to these is applied, once, in order, wherever the entities are now."""
        # While a homeserver counts again who is alive, an entity may be without an authority for a moment.
        where = await self.until(lambda record: record["authority"] and not self.streams[record["id"]].waiting)
        for name, stream in self.streams.items():
            authority = where[name]["authority"]
            here = await answer(f"{self.cluster.server(authority).rest_url}/v1/local/entities/{name}")
            applied = here["sources"][PLAYER]
            assert (applied["applied"], applied["digest"]) == (stream.sent, stream.digest.hex()), name

    async def nobody_overlaps(self, *servers: str) -> None:
        """No two stints of one entity overlap, and each is under a higher epoch than the one before."""
        for server in servers:
            await self.keep_custody(server)
        for name in self.streams:
            unique = {(one["epoch"], one["sub"], one["server"]): one for one in self.custody if one["entity"] == name}
            for before, after in pairwise(unique[key] for key in sorted(unique)):
                assert before["epoch"] < after["epoch"], (before, after)
                assert before["last_tick_ns"] < after["started_ns"], (before, after)


@asynccontextmanager
async def world(*, environment: Mapping[str, str] | None = None, **options: Any) -> AsyncIterator[World]:
    usual: dict[str, Any] = {"instances": {"alpha": 1}, "simservers": 3, "lease_term_s": TERM_S, "log_level": "WARNING"}
    spec = ClusterSpec(**usual | options)
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(spec, environment=environment) as cluster:
            homes = [server for server in cluster.servers if server.role == "homeserver"]
            urls = {one: [home.rest_url for home in homes if home.instance == one] for one in spec.instances}
            client = RestClient(urls, {one: cluster.client_token(one) for one in spec.instances})
            players = Players(PLAYER, client)
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(players.serve)
                    yield World(cluster, client, players, {}, [])
                    nursery.cancel_scope.cancel()
            finally:
                # A socket that is left open fails whichever test runs when it is collected.
                with trio.CancelScope(shield=True):
                    await client.aclose()


async def test_failures_row_8_entities_of_a_killed_server_go_on_elsewhere() -> None:
    async with world() as running:
        await running.spawn(8, "alpha.s1")
        await running.push(40)
        await running.everything_durable()
        before = await running.until(lambda record: record["authority"] == "alpha.s1")
        durable = {name: stream.durable for name, stream in running.streams.items()}
        await running.keep_custody("alpha.s1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.push, 60)
            await running.cluster.kill("alpha.s1")
        after = await running.until(lambda record: record["authority"] not in ("", "alpha.s1"))
        assert all(after[name]["epoch"] == before[name]["epoch"] + 2 for name in before)
        assert all(record["standing"] == "simulated" for record in after.values())
        await running.exactly_once()
        assert all(stream.durable >= durable[name] for name, stream in running.streams.items())
        assert any(durable.values()), "no input was durable, so nothing was shown about those that are"
        await running.nobody_overlaps("alpha.s2", "alpha.s3")


async def test_failures_row_8_what_was_said_to_live_goes_on_though_its_server_is_killed_at_once() -> None:
    """Nobody has given it an input, and no interval of copies or checkpoints has passed."""
    async with world() as running:
        await running.spawn(1, "alpha.s2")
        for numbers in ([1], [2, 3, 4]):
            await running.spawn(numbers, "alpha.s1")
            await running.cluster.kill("alpha.s1")
            await running.until(lambda record: record["authority"] not in ("", "alpha.s1"))
            await running.cluster.restart("alpha.s1", same_code=True)
        await running.push(10)
        await running.exactly_once()


async def test_failures_row_42_what_was_said_to_live_goes_on_though_all_servers_lose_power_at_once() -> None:
    async with world() as running:
        await running.spawn(4, "alpha.s1")
        await running.lose_power("alpha.s1", "alpha.s2", "alpha.s3")
        await running.until(lambda record: record["standing"] == "simulated" and record["epoch"] > 1)
        await running.push(10)
        await running.exactly_once()


async def test_a_server_that_was_drained_and_stopped_takes_no_copy_along_that_others_have_not() -> None:
    """As in a rolling upgrade, while another server dies before anything else could have been written or copied."""
    first, second, third = servers = ("alpha.s1", "alpha.s2", "alpha.s3")
    async with world() as running:
        await running.spawn(8, second)
        followed = [name for name in running.streams if backup_replicas_of(name, second, servers, 1) == (first,)]
        assert followed, "somebody is followed by the first one"
        await running.push(20)
        await running.everything_durable()
        durable = {name: stream.durable for name, stream in running.streams.items()}
        token = running.cluster.operator_token_file("alpha").read_text().strip()
        base = next(one.rest_url for one in running.cluster.servers if one.role == "homeserver")
        async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=30.0) as operator:
            url, headers = f"{base}/v1/servers/{first}/drain", {"authorization": f"Bearer {token}"}
            view = (await operator.post(url, headers=headers)).json()
            while not view["empty"]:
                await trio.sleep(0.05)
                view = (await operator.get(url)).json()
        assert (view["sole_replicas"], view["followed"]) == (0, 0)
        await running.cluster.stop(first)
        await running.cluster.kill(second)
        await running.until(lambda record: record["authority"] == third)
        await running.exactly_once()
        assert all(stream.durable >= durable[name] for name, stream in running.streams.items())
        assert not any(stream.lost for stream in running.streams.values())


async def test_failures_row_24_a_server_that_was_paused_does_not_go_on_with_what_others_have() -> None:
    async with world() as running:
        await running.spawn(4, "alpha.s1")
        await running.push(20)
        await running.everything_durable()
        await running.cluster.pause("alpha.s1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.push, 20)
            await running.until(lambda record: record["authority"] not in ("", "alpha.s1"))
            running.cluster.resume("alpha.s1")
        await running.exactly_once()
        await running.nobody_overlaps("alpha.s1", "alpha.s2", "alpha.s3")
        assert await answer(f"{running.cluster.server('alpha.s1').rest_url}/v1/local/entities") == []


async def test_failures_row_24_nobody_goes_on_from_an_earlier_stay_while_those_of_the_last_one_stand_still() -> None:
    """What an entity was before it moved is left on the third server; all since is with two that are paused."""
    first, second, third = servers = ("alpha.s1", "alpha.s2", "alpha.s3")
    async with world() as running:
        await running.spawn(8, first)
        left = {
            name
            for name in running.streams
            if backup_replicas_of(name, first, servers, 1) == (third,)
            and backup_replicas_of(name, second, servers, 1) == (first,)
        }
        assert left, "all are followed by the third one now"
        await running.push(10)
        await running.everything_durable()
        for name in running.streams:
            await running.client.call("alpha", "POST", f"/v1/entities/{name}/transfers", {"to": second})
        await running.until(lambda record: record["authority"] == second)
        await running.push(20)
        await running.everything_durable()
        durable = {name: stream.durable for name, stream in running.streams.items()}
        for server in (first, second):
            await running.cluster.pause(server)
        waits_for: dict[str, list[str]] = {}
        while not left <= {name for name, some in waits_for.items() if some}:
            view = await running.client.call("alpha", "GET", "/v1/recoveries")
            waits_for = {row["entity"]: row["waits_for"] for row in view["waiting"]}
            for name in left:
                assert (await running.entity(name))["authority"] != third, "it has gone on from before the move"
            await trio.sleep(0.1)
        assert all(waits_for[name] == [first, second] for name in left)
        for server in (first, second):
            running.cluster.resume(server)
        await running.until(lambda record: record["authority"] != "")
        await running.push(10)
        await running.exactly_once()
        assert not any(stream.lost for stream in running.streams.values()), "all that was durable is there still"
        assert all(stream.durable >= durable[name] for name, stream in running.streams.items())
        await running.nobody_overlaps(*servers)


async def test_failures_row_42_a_killed_server_that_is_restarted_goes_on_with_what_it_had() -> None:
    async with world(simservers=1) as running:
        await running.spawn(4, "alpha.s1")
        await running.push(20)
        await running.everything_durable()
        before = await running.until(lambda record: record["authority"] == "alpha.s1")
        await running.keep_custody("alpha.s1")
        await running.cluster.kill("alpha.s1")
        await running.cluster.restart("alpha.s1", same_code=True)
        after = await running.until(lambda record: record["authority"] == "alpha.s1" and record["epoch"] > 1)
        assert all(after[name]["epoch"] == before[name]["epoch"] + 2 for name in before)
        await running.push(20)
        await running.exactly_once()
        await running.nobody_overlaps("alpha.s1")


async def test_a_player_finds_a_server_that_was_started_again_on_another_port() -> None:
    async with world(simservers=1) as running:
        await running.spawn(4, "alpha.s1")
        await running.push(20)
        await running.everything_durable()
        await running.keep_custody("alpha.s1")
        await running.cluster.kill("alpha.s1")
        running.move_link("alpha.s1")
        await running.cluster.restart("alpha.s1", same_code=True)
        await running.until(lambda record: record["authority"] == "alpha.s1" and record["epoch"] > 1)
        await running.push(20)
        await running.exactly_once()
        await running.nobody_overlaps("alpha.s1")


@pytest.mark.parametrize("follower", ["alpha.s2", "alpha.s3"])
async def test_a_server_that_came_back_on_another_port_is_handed_entities_though_it_has_nothing_to_say(
    follower: str,
) -> None:
    """At the first time of asking, whether copies flow to it or nothing else does."""
    async with world() as running:
        servers = ("alpha.s1", "alpha.s2", "alpha.s3")
        fitting = [n for n in range(99) if backup_replicas_of(f"alpha.ball-{n}", "alpha.s1", servers, 1) == (follower,)]
        await running.spawn(fitting[:2], "alpha.s1")
        await running.hand_over("alpha.s2")  # so that each knows where the other is
        await running.hand_over("alpha.s1")
        await running.push(10)
        await running.everything_durable()
        await running.has_left("alpha.s2")
        await running.keep_custody("alpha.s2")
        await trio.sleep(QUIET_S)
        await running.cluster.kill("alpha.s2")
        running.move_link("alpha.s2")
        await running.cluster.restart("alpha.s2", same_code=True)
        await running.hand_over("alpha.s2")
        await running.push(10)
        await running.exactly_once()
        await running.nobody_overlaps("alpha.s1", "alpha.s2")


async def test_failures_row_21_an_entity_goes_on_where_it_is_when_the_home_of_its_target_is_dead() -> None:
    """The target itself is alive and would take it, for as long as it has its lease."""
    async with world(instances={"alpha": 1, "beta": 1}, simservers=1, lease_term_s=60.0) as running:
        await running.spawn(2, "alpha.s1")
        await running.hand_over("beta.s1")  # so that everybody in alpha knows who that is
        await running.hand_over("alpha.s1")
        await running.push(10)
        # The state that alpha.s1 continues comes through that homeserver: once decided, it may still be on its way.
        await running.has_left("beta.s1")
        before = await running.until(lambda record: record["authority"] == "alpha.s1")
        await running.cluster.kill("beta.h1")
        for name in running.streams:
            await running.client.call("alpha", "POST", f"/v1/entities/{name}/transfers", {"to": "beta.s1"})
        await running.push(10)
        after = await running.until(lambda record: record["epoch"] > before[record["id"]]["epoch"])
        assert {record["authority"] for record in after.values()} == {"alpha.s1"}
        await running.push(10)
        await running.exactly_once()
        await running.cluster.restart("beta.h1", same_code=True)
        await running.hand_over("beta.s1")
        await running.push(10)
        await running.exactly_once()


async def eventually(client: httpx.AsyncClient, url: str, fits: Callable[[dict[str, Any]], Any]) -> None:
    """Ask until the answer is like that."""
    while True:
        if fits((await client.get(url)).json()):
            return
        await trio.sleep(0.1)


def has_gone_on(entity: dict[str, Any], since: int) -> bool:
    return bool(entity["tick"] >= since + 5)


async def test_what_cannot_be_moved_off_a_drained_server_because_its_home_is_dead_goes_on_there_meanwhile() -> None:
    async with world(instances={"alpha": 1, "beta": 1}, simservers=2, lease_term_s=60.0) as running:
        await running.spawn(4, "alpha.s1")
        await running.hand_over("beta.s1")
        await running.has_left("alpha.s1")  # once decided, they may still be on their way through alpha.h1
        await running.push(10)
        token = running.cluster.operator_token_file("beta").read_text().strip()
        base, here = (running.cluster.server(name).rest_url for name in ("beta.h1", "beta.s1"))
        await running.cluster.kill("alpha.h1")
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(
            trust_env=False, verify=trusted_authorities(), timeout=30.0, headers=headers
        ) as operator:
            # What is ordered before beta knows that alpha is silent would stand still: so it knows first.
            asked = {"name": "alpha.h1", "fresh": "true", "nonce": "0" * 22}
            assert (await operator.get(f"{base}/v1/directory", params=asked)).status_code == 502
            url = f"{base}/v1/servers/beta.s1/drain"
            await operator.post(url)
            await eventually(operator, f"{base}/v1/servers/load", lambda view: view["counts"].get("home_silent"))
            before = {name: (await answer(f"{here}/v1/local/entities/{name}"))["tick"] for name in running.streams}
            for name, tick in before.items():
                await eventually(operator, f"{here}/v1/local/entities/{name}", partial(has_gone_on, since=tick))
            await running.cluster.restart("alpha.h1", same_code=True)
            await eventually(operator, url, lambda view: view["empty"])
        await running.push(10)
        await running.exactly_once()


async def test_what_waits_for_its_killed_server_loses_nothing_durable_and_is_there_again_in_the_end() -> None:
    """Its own checkpoint is of the beginning; what was told to be durable since is with the followers alone."""
    async with world() as running:
        await running.spawn(4, "alpha.s1", orphans="freeze")
        await running.push(60)
        await running.everything_durable()
        await running.keep_custody("alpha.s1")
        await running.cluster.kill("alpha.s1")
        await running.until(lambda record: record["authority"] == "")
        await running.cluster.restart("alpha.s1", same_code=True)
        await running.until(lambda record: record["authority"] == "alpha.s1")
        await running.push(10)
        await running.exactly_once()
        assert not any(stream.lost for stream in running.streams.values()), "all that was durable is there still"
        await running.nobody_overlaps("alpha.s1", "alpha.s2", "alpha.s3")


async def test_failures_row_42_what_was_handed_over_a_moment_before_all_servers_lost_power_goes_on() -> None:
    """Its new authority has no checkpoint of it yet: it goes on from what its old one had when it left."""
    async with world() as running:
        await running.spawn(4, "alpha.s1")
        await running.push(20)
        assert await running.players.drained(30.0)
        for name in running.streams:
            await running.client.call("alpha", "POST", f"/v1/entities/{name}/transfers", {"to": "alpha.s2"})
        await running.until(lambda record: record["authority"] == "alpha.s2")
        await running.has_left("alpha.s1")
        await running.lose_power("alpha.s1", "alpha.s2", "alpha.s3")
        await running.until(lambda record: record["standing"] == "simulated" and record["epoch"] > 2)
        await running.push(10)
        await running.exactly_once()
