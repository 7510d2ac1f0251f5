"""Simulation servers that die, hang or come back, as real processes, while players give inputs.

What must hold however slow the machine is: no input that was acknowledged as durable is lost, none is applied twice,
epochs rise, and no two servers ever simulate an entity at the same time.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from typing import Any

import httpx
import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.authority.machines.replica_choice import backup_replicas_of
from batonpass.client.input_stream import InputStream
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from batonpass.scenarios.players.link_players import Players
from batonpass.scenarios.players.rest_client import RestClient
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, answered, come, limited, refused

pytestmark = limited

TERM_S = 6.0
"""As servers have it if nothing is said. With less, a busy machine ends leases of servers that live."""
LONG_S = 60.0
"""Where no test waits for the end of a lease: servers that are started again do not, either."""
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
            await self.create(body)
            self.streams[entity] = await self.players.follow(entity, server)

    async def create(self, body: dict[str, Any]) -> None:
        """Create an entity. Its server may have no lease for a moment; however often it is asked for, it is one."""
        create = partial(self.client.call, "alpha", "POST", "/v1/entities", body)
        await come(create, what=f"the creation of {body['id']} on {body['server']}")

    async def push(self, times: int) -> None:
        """Everybody gives so many inputs, in turn; who has too many under way waits."""
        for _ in range(times):
            for stream in self.streams.values():
                await self.players.push_in_turn(stream, b"\0" * 12)
            await trio.sleep(0.02)

    async def record(self, entity: str, fits: Callable[[Entity], object] = bool) -> Entity:
        """The record of an entity, once it is like that."""
        return await come(partial(self._record, entity), fits, what=f"the record of {entity} that is waited for")

    async def _record(self, entity: str) -> Entity:
        record: Entity = await self.client.call("alpha", "GET", f"/v1/entities/{entity}", consistency="local")
        return record

    async def until(self, fits: Callable[[Entity], object]) -> dict[str, Entity]:
        """The records of all entities, once they are like that at the same time."""

        async def records() -> dict[str, Entity]:
            return {name: await self._record(name) for name in self.streams}

        def all_fit(seen: dict[str, Entity]) -> bool:
            return all(fits(record) for record in seen.values())

        return await come(records, all_fit, what="the records of all entities that are waited for")

    async def here(self, server: str, entity: str, fits: Callable[[Entity], object] = bool) -> Entity:
        """The entity as a server has it, once it has it, and like that."""
        found: Entity = await answered(self._local(server, f"entities/{entity}"), fits)
        return found

    async def is_not_here(self, server: str, entity: str) -> None:
        """Wait until a server says that it does not have the entity."""
        await refused(self._local(server, f"entities/{entity}"), "not_here")

    async def stats(self, server: str, fits: Callable[[dict[str, Any]], object] = bool) -> dict[str, Any]:
        """What a simulation server counts, once it is like that."""
        found: dict[str, Any] = await answered(self._local(server, "stats"), fits)
        return found

    def _local(self, server: str, of: str) -> str:
        return f"{self.cluster.server(server).rest_url}/v1/local/{of}"

    async def everything_durable(self) -> None:
        """Wait until copies have all that was given: what dies with its server before that may be lost."""
        assert await self.players.drained(PATIENCE_S)
        await self.until(lambda record: not self.streams[record["id"]].kept)

    async def copied(self, server: str, entity: str) -> None:
        """Wait until copies have what this server has of an entity that came to it: else it waits for the server."""
        await self.here(server, entity)
        await self.stats(server, lambda stats: not stats["without_copy"])

    async def has_left(self, server: str) -> None:
        """Wait until nothing lives on a server, and its disk has what it is to have."""
        await self.stats(server, lambda stats: not (stats["entities"] or stats["leaving"] or stats["unwritten"]))

    async def hand_over(self, to: str, *entities: str) -> dict[str, Entity]:
        """Ask for the transfer of these, or all, and wait until `to` simulates them; their records."""
        went = await self.asked_for(to, lambda record: record["authority"] == to, *entities)
        for name in went:
            await self.here(to, name)
        return went

    async def asked_for(self, to: str, fits: Callable[[Entity], object], *entities: str) -> dict[str, Entity]:
        """Ask for the transfer of these, or all, and wait until their records are like that.

        A busy machine may let a home or a target be silent so long that one is refused: it is asked for again.
        """
        asked = {name: await self._ask_for(name, to) for name in entities or self.streams}

        async def records() -> dict[str, Entity]:
            seen = {name: await self._record(name) for name in asked}
            for name, transfer in asked.items():
                if not fits(seen[name]) and await self._result(transfer) == "refused":
                    asked[name] = await self._ask_for(name, to)
            return seen

        def all_fit(seen: dict[str, Entity]) -> bool:
            return all(fits(record) for record in seen.values())

        return await come(records, all_fit, what=f"what is waited for of entities that are to go to {to}")

    async def _ask_for(self, entity: str, to: str) -> str:
        ask = partial(self.client.call, "alpha", "POST", f"/v1/entities/{entity}/transfers", {"to": to})
        return str((await come(ask, what=f"that a transfer of {entity} to {to} is begun"))["transfer_id"])

    async def _result(self, transfer: str) -> str:
        return str((await self.client.call("alpha", "GET", f"/v1/transfers/{transfer}"))["result"])

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
        self.custody += (await answered(self._local(server, "custody")))["stints"]

    async def exactly_once(self) -> None:
        """Everything that was given to these is applied, once, in order, wherever the entities are now."""
        for name, stream in self.streams.items():
            await come(
                partial(self._applied, stream),
                lambda seen, of=stream: seen == (of.sent, of.digest.hex(), 0),  # type: ignore[misc]
                what=f"the {stream.sent} inputs of {name}, with the digest {stream.digest.hex()} and none to come",
            )

    async def _applied(self, stream: InputStream) -> tuple[int, str, int]:
        """What its authority has applied, the digest of that, and how many wait. None may have been applied twice."""
        server = (await self.record(stream.entity, lambda record: record["authority"]))["authority"]
        # It may have gone on from there meanwhile: then it is asked again where it is.
        here = await self.client.get(self._local(server, f"entities/{stream.entity}"))
        source = here["sources"].get(PLAYER, {"applied": 0, "digest": ""})
        assert source["applied"] <= stream.sent, (stream.entity, source)
        return source["applied"], source["digest"], len(stream.waiting)

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
        # What is stopped ends in order, however long that takes.
        async with LocalCluster.start(spec, environment=environment, grace_s=PATIENCE_S) as cluster:
            homes = [server for server in cluster.servers if server.role == "homeserver"]
            urls = {one: [home.rest_url for home in homes if home.instance == one] for one in spec.instances}
            client = RestClient(urls, {one: cluster.client_token(one) for one in spec.instances}, PATIENCE_S)
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
        after = await running.until(
            lambda record: record["authority"] not in ("", "alpha.s1") and record["standing"] == "simulated"
        )
        # By two for each takeover: there are more where a server that lives gets no processor for a lease's length.
        assert all(after[name]["epoch"] >= before[name]["epoch"] + 2 for name in before)
        await running.exactly_once()
        assert all(stream.durable >= durable[name] for name, stream in running.streams.items())
        assert any(durable.values()), "no input was durable, so nothing was shown about those that are"
        await running.nobody_overlaps("alpha.s2", "alpha.s3")


async def test_failures_row_8_what_was_said_to_live_goes_on_though_its_server_is_killed_at_once() -> None:
    """Nobody has given it an input, and no interval of copies or checkpoints has passed."""
    async with world() as running:
        await running.spawn(1, "alpha.s2")
        for many, begin in ((1, 10), (3, 100)):
            for first in count(begin, many):
                await running.spawn(range(first, first + many), "alpha.s1")
                # A backup replica that does not answer within a second is not waited for: what was born then is on the
                # disk of its server only, which says nothing here.
                if not (await running.stats("alpha.s1"))["counts"].get("born_without_copy", 0):
                    break
                await running.everything_durable()
                await running.hand_over("alpha.s2", *(f"alpha.ball-{number}" for number in range(first, first + many)))
                await running.cluster.kill("alpha.s1")
                await running.cluster.restart("alpha.s1", same_code=True)
            await running.cluster.kill("alpha.s1")
            await running.until(lambda record: record["authority"] not in ("", "alpha.s1"))
            await running.cluster.restart("alpha.s1", same_code=True)
        await running.push(10)
        await running.exactly_once()


async def test_failures_row_42_what_was_said_to_live_goes_on_though_all_servers_lose_power_at_once() -> None:
    async with world(lease_term_s=LONG_S) as running:
        await running.spawn(4, "alpha.s1")
        await running.lose_power("alpha.s1", "alpha.s2", "alpha.s3")
        await running.until(lambda record: record["standing"] == "simulated" and record["epoch"] > 1)
        await running.push(10)
        await running.exactly_once()


async def operated(running: World, instance: str, method: str, path: str) -> dict[str, Any]:
    """What the only homeserver of an instance answers to its operator."""
    token = running.cluster.operator_token_file(instance).read_text().strip()
    url, headers = running.cluster.server(f"{instance}.h1").rest_url + path, {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=PATIENCE_S) as operator:
        found: dict[str, Any] = (await operator.request(method, url, headers=headers)).raise_for_status().json()
    return found


async def drained(running: World, server: str) -> dict[str, Any]:
    """Drain a server of an instance; what is said of it when it is empty."""
    drain = partial(operated, running, server.partition(".")[0], path=f"/v1/servers/{server}/drain")
    await come(partial(drain, "POST"), what=f"the drain of {server}")
    return await come(partial(drain, "GET"), lambda view: view["empty"], what=f"the end of the drain of {server}")


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
        view = await drained(running, first)
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
        await running.stats("alpha.s1", lambda stats: stats["entities"] == 0)


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
        await running.hand_over(second)
        await running.push(20)
        await running.everything_durable()
        durable = {name: stream.durable for name, stream in running.streams.items()}
        for server in (first, second):
            await running.cluster.pause(server)

        async def waiting() -> dict[str, dict[str, Any]]:
            for name in left:
                assert (await running.record(name))["authority"] != third, "it has gone on from before the move"
            view = await running.client.call("alpha", "GET", "/v1/recoveries")
            return {row["entity"]: row for row in view["waiting"]}

        def waits(row: dict[str, Any]) -> bool:
            # A server whose backup replica had no lease for a moment has what it has on its own disk: that is waited
            # for then.
            return bool(row["waits_for"] == [first, second] or row["disk"] or row["held"])

        await come(
            waiting,
            lambda rows: all(name in rows and waits(rows[name]) for name in left),
            what=f"that all wait for {first} and {second}",
        )
        for server in (first, second):
            running.cluster.resume(server)
        await running.until(lambda record: record["authority"] != "")
        await running.push(10)
        await running.exactly_once()
        assert not any(stream.lost for stream in running.streams.values()), "all that was durable is there still"
        assert all(stream.durable >= durable[name] for name, stream in running.streams.items())
        await running.nobody_overlaps(*servers)


async def test_failures_row_42_a_killed_server_that_is_restarted_goes_on_with_what_it_had() -> None:
    async with world(simservers=1, lease_term_s=LONG_S) as running:
        await running.spawn(4, "alpha.s1")
        await running.push(20)
        await running.everything_durable()
        before = await running.until(lambda record: record["authority"] == "alpha.s1")
        await running.keep_custody("alpha.s1")
        await running.cluster.kill("alpha.s1")
        await running.cluster.restart("alpha.s1", same_code=True)
        after = await running.until(
            lambda record: record["authority"] == "alpha.s1" and record["epoch"] > before[record["id"]]["epoch"]
        )
        # By two for each takeover: there are more where a server that lives gets no processor for a lease's length.
        assert all(after[name]["epoch"] >= before[name]["epoch"] + 2 for name in before)
        await running.push(20)
        await running.exactly_once()
        await running.nobody_overlaps("alpha.s1")


async def test_a_player_finds_a_server_that_was_started_again_on_another_port() -> None:
    async with world(simservers=1, lease_term_s=LONG_S) as running:
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
    async with world(lease_term_s=LONG_S) as running:
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
    async with world(instances={"alpha": 1, "beta": 1}, simservers=1, lease_term_s=LONG_S) as running:
        await running.spawn(2, "alpha.s1")
        await running.hand_over("beta.s1")  # so that everybody in alpha knows who that is
        await running.hand_over("alpha.s1")
        await running.push(10)
        # The state that alpha.s1 continues comes through that homeserver: once decided, it may still be on its way.
        await running.has_left("beta.s1")
        before = await running.until(lambda record: record["authority"] == "alpha.s1")
        await running.cluster.kill("beta.h1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.push, 10)
            after = await running.asked_for("beta.s1", lambda record: record["epoch"] > before[record["id"]]["epoch"])
        assert {record["authority"] for record in after.values()} == {"alpha.s1"}
        await running.push(10)
        await running.exactly_once()
        await running.cluster.restart("beta.h1", same_code=True)
        await running.hand_over("beta.s1")
        await running.push(10)
        await running.exactly_once()


async def test_what_cannot_be_moved_off_a_drained_server_because_its_home_is_dead_goes_on_there_meanwhile() -> None:
    async with world(instances={"alpha": 1, "beta": 1}, simservers=2, lease_term_s=LONG_S) as running:
        await running.spawn(4, "alpha.s1")
        await running.hand_over("beta.s1")
        await running.has_left("alpha.s1")  # once decided, they may still be on their way through alpha.h1
        await running.push(10)
        await running.cluster.kill("alpha.h1")
        # A transfer that is ordered before beta knows that alpha is silent would wait: so it knows first.
        fresh = f"{running.cluster.server('beta.h1').rest_url}/v1/directory?name=alpha.h1&fresh=true&nonce={'0' * 22}"
        await refused(fresh, "peer_unreachable")
        drain = partial(operated, running, "beta", path="/v1/servers/beta.s1/drain")
        await come(partial(drain, "POST"), what="the drain of beta.s1")
        await come(
            partial(operated, running, "beta", "GET", "/v1/servers/load"),
            lambda view: view["counts"].get("home_silent"),
            what="that some are left where they are, since their home is silent",
        )
        before = {name: (await running.here("beta.s1", name))["tick"] for name in running.streams}
        for name, tick in before.items():
            await running.here("beta.s1", name, partial(has_gone_on, since=tick))
        await running.cluster.restart("alpha.h1", same_code=True)
        await come(partial(drain, "GET"), lambda view: view["empty"], what="the end of the drain")
        await running.push(10)
        await running.exactly_once()


def has_gone_on(entity: Entity, since: int) -> bool:
    return bool(entity["tick"] >= since + 5)


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
    async with world(lease_term_s=LONG_S) as running:
        await running.spawn(4, "alpha.s1")
        await running.push(20)
        assert await running.players.drained(PATIENCE_S)
        await running.hand_over("alpha.s2")
        await running.has_left("alpha.s1")
        await running.lose_power("alpha.s1", "alpha.s2", "alpha.s3")
        await running.until(lambda record: record["standing"] == "simulated" and record["epoch"] > 2)
        await running.push(10)
        await running.exactly_once()
