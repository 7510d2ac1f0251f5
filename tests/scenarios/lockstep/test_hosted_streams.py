"""Event streams of real servers: handed over while clients play, and taken over when their server is killed."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
import trio

from batonpass.simserver.sync.browser.fireflies import Boat, Fireflies
from batonpass.simserver.sync.hosting.world import EVENT_STREAMS
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from batonpass.simserver.sync.play.session import follow_stream
from tests.scenarios.asked import LIMIT_S, answered, come, limited
from tests.scenarios.cluster.test_failover import World, world

pytestmark = limited

GAME = "alpha.stream-game"
# More ticks than the test may take, and longer than it may take.
KEPT_TICKS = 10_000
PATIENCE_MS = round(LIMIT_S * 1000)


def way(number: int) -> str:
    return f"{number % 17 - 8} {number % 7 - 3}"


class Player(Fireflies):
    """A game that keeps its events, follows the stream by itself, and steers its boat about."""

    def __init__(self, name: str) -> None:
        super().__init__(kept_ticks=KEPT_TICKS)
        self.follower = StreamFollower(self, "game", name, fault_window_ms=PATIENCE_MS)
        self.steered = 0
        self.steers = True
        self.early: list[str] = []

    async def play(self, doors: list[str], *, push: bool) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(follow_stream, self.follower, doors, push=push, on_early=self.hear))
            while self.steers:
                self.send_event("steer", way(self.steered))
                self.steered += 1
                await trio.sleep(0.3)

    def hear(self, type: str, origin: str, body: str) -> None:
        if type == "steer":
            self.early.append(f"{origin} {body}")

    @property
    def hashes(self) -> dict[int, str]:
        return {record.tick: record.hash for record in self.records()}

    def has_steered(self) -> list[str]:
        """What came back of what it posted."""
        events = [event for record in self.records() for event in record.events]
        return [event.body for event in events if event.origin == self.follower.public_id]


async def in_play(*games: Player) -> None:
    """All of them have come, and have a boat."""

    async def boats() -> list[int]:
        return [len(game.entities(Boat)) for game in games]

    await come(boats, lambda seen: min(seen) == len(games), what="a boat of each, in each game")


async def all_games_are_equal(*games: Player) -> None:
    """At every tick that all have computed, after all that was posted has come back."""
    for game in games:
        game.steers = False

        async def steered(game: Player = game) -> tuple[int, int]:
            return len(game.has_steered()), game.steered

        await come(steered, lambda seen: seen[0] >= seen[1], what="all that was posted, in the game of who posted it")
    last = min(game.tick for game in games)
    first, *others = [game.hashes for game in games]
    for other in others:
        common = first.keys() & other.keys()
        assert common >= set(range(1, last + 1)), "neither began anew, nor jumped"
        assert {tick: first[tick] for tick in common} == {tick: other[tick] for tick in common}
    for game in games:
        assert game.has_steered() == [way(at) for at in range(game.steered)], "none lost, none twice, in order"
        assert game.follower.desync is None
    came_back = {f"{game.follower.public_id} {body}" for game in games for body in game.has_steered()}
    assert {body for game in games for body in game.early} <= came_back, (
        "what was told early came, for it was sent again"
    )


class Client:
    """A client that polls, follows redirections, and keeps its events until they are acknowledged."""

    def __init__(self, name: str, doors: list[str], http: httpx.AsyncClient) -> None:
        self.name = name
        self.doors = doors
        self._http = http
        self.known = 0
        self.incarnation: str | None = None
        self.log: list[tuple[int, str, str, str]] = []
        self.sent = 0
        self.acked = 0
        self.went_back = 0
        self.servers: list[str] = []

    async def sync(self, *, say: bool = False) -> None:
        """Ask once, of whichever door answers."""
        self.sent += say
        events = [{"Type": "say", "Body": f"{self.name} {at}", "Id": at} for at in range(self.acked + 1, self.sent + 1)]
        body: dict[str, Any] = {"Events": events[:20]}
        if self.incarnation is not None:
            body["Incarnation"] = self.incarnation
        for door in list(self.doors):
            try:
                got = await self._http.post(f"{door}/game/{self.name}/{self.known}", json=body, follow_redirects=True)
            except httpx.TransportError:
                continue
            if got.status_code == 200:
                self.take(got.json(), str(got.url))
                return

    def take(self, reply: dict[str, Any], url: str) -> None:
        if reply.get("Reset"):
            pytest.fail(f"{self.name} was told to begin anew")
        self.went_back += reply["T"] < self.known
        self.incarnation, self.acked = reply["Incarnation"], max(self.acked, reply["Acked"])
        self.log += [
            (one["T"], one["Type"], one["Origin"], one["Body"]) for one in reply["Events"] if one["T"] > self.known
        ]
        self.known = max(self.known, reply["T"])
        base = "/".join(url.split("/")[:3])
        if self.servers[-1:] != [base]:
            self.servers.append(base)


async def door_of(running: World, server: str) -> str:
    streams = f"{running.cluster.server(server).rest_url}/v1/local/streams"
    return str((await answered(streams, lambda found: found.get("url")))["url"])


@asynccontextmanager
async def playing(running: World, *clients: Client) -> AsyncIterator[None]:
    """Each of them says something five times a second."""
    stopped = trio.Event()

    async def play(client: Client) -> None:
        while not stopped.is_set():
            await client.sync(say=True)
            await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(play, client)
        yield
        stopped.set()


async def both_ask(door: str, *clients: Client) -> None:
    """Until all of them have their answers from there."""

    async def servers() -> list[list[str]]:
        return [client.servers[-1:] for client in clients]

    await come(servers, lambda seen: all(one == [door] for one in seen), what=f"answers from {door}")


async def all_have_all(*clients: Client) -> None:
    """Everything that was said is acknowledged, and all have the same log."""
    while any(client.acked < client.sent for client in clients):
        for client in clients:
            await client.sync()
    last = max(client.known for client in clients)
    while any(client.known < last for client in clients):
        for client in clients:
            await client.sync()
    logs = [[row for row in client.log if row[0] <= last] for client in clients]
    assert all(log == logs[0] for log in logs)
    said = [row[3] for row in logs[0] if row[1] == "say"]
    for client in clients:
        mine = [text for text in said if text.startswith(f"{client.name} ")]
        assert mine == [f"{client.name} {at}" for at in range(1, client.sent + 1)], "none lost, none twice, in order"
        assert client.went_back == 0


async def test_a_stream_is_handed_over_and_taken_over_while_clients_play_and_no_event_is_lost() -> None:
    async with world(simservers=2, world=EVENT_STREAMS) as running, httpx.AsyncClient(trust_env=False) as http:
        doors = [await door_of(running, server) for server in ("alpha.s1", "alpha.s2")]
        params = {"incarnation": secrets.token_hex(16)}
        stream = {"id": GAME, "kind": "stream", "spawner": "alpha.ada", "server": "alpha.s1", "params": params}
        await running.create(stream)
        ada, bob = Client("ada", doors, http), Client("bob", doors[::-1], http)
        cy, dan = Player("cy"), Player("dan")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(cy.play, doors, push=False))
            nursery.start_soon(partial(dan.play, doors[::-1], push=True))
            await in_play(cy, dan)
            async with playing(running, ada, bob):
                await trio.sleep(1.0)
                await running.hand_over("alpha.s2", GAME)
                await both_ask(doors[1], ada, bob)
                await running.copied("alpha.s2", GAME)
                await running.cluster.kill("alpha.s2")
                await both_ask(doors[0], ada, bob)
            await all_have_all(ada, bob)
            await all_games_are_equal(cy, dan)
            assert (bool(dan.early), cy.early) == (True, [])
            nursery.cancel_scope.cancel()
        assert ada.servers == [doors[0], doors[1], doors[0]]
