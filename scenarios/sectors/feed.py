"""Flying the aircraft of a plan: each is spawned when its flight begins, and sends its position reports when due.

The flights' time runs by this process's clock, `speedup` times as fast. It waits for no server. What a server cannot
take now is kept and repeated by its stream (see `players`), so a slow machine makes reports late, and loses none.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from batonpass.authority.names import instance_of
from batonpass.client.input_stream import InputStream
from batonpass.scenarios.players.link_players import Players
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient
from batonpass.scenarios.sectors.plan import Aircraft, SectorsPlan

__all__ = ["Feed", "FeedProgress", "Flown"]

# A spawn takes a round through the log of its home. So far ahead of its first report an aircraft is put in its place.
SPAWN_LEAD_S: Final = 1.0
MAX_SPAWNS_AT_ONCE: Final = 8
PROGRESS_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class FeedProgress:
    """How far a run is."""

    at_ms: int
    """Of the flights' time, milliseconds since 1970."""
    flying: int
    finished: int
    applied: int
    """Position reports that servers have applied."""


@dataclass
class Flown:
    """What the feed saw of the flights."""

    lateness_ms: list[float] = field(default_factory=list)
    """For each report, from when it was due to the word that it was applied."""
    applied_by: Counter[str] = field(default_factory=Counter)
    """Reports by the server that said it had applied them."""
    finished_ns: dict[str, int] = field(default_factory=dict)
    """When (monotonic) the last report of an aircraft had been applied."""
    not_spawned: dict[str, str] = field(default_factory=dict)
    """Aircraft that no server would take, and why."""


class Feed:
    """The position reports of all aircraft of a plan, on their way to the servers.

    Args:
        player: the name of the player to whom the aircraft belong.
    """

    def __init__(self, plan: SectorsPlan, client: RestClient, player: str) -> None:
        self.flown = Flown()
        self.players = Players(player, client, self._applied)
        self._plan = plan
        self._client = client
        self._aircraft = {aircraft.entity: aircraft for aircraft in plan.aircraft}
        self._spawned: set[str] = set()
        self._spawning = trio.CapacityLimiter(MAX_SPAWNS_AT_ONCE)
        self._began_s = 0.0

    async def fly_all(self, progress: Callable[[FeedProgress], None]) -> None:
        """Fly every aircraft to the end of its flight; returns when the last report has been sent.

        Aircraft that are in the air from the beginning are put there before the flights' time begins to run.
        """
        soon_ms = self._plan.start_ms + round(SPAWN_LEAD_S * 1000 * self._plan.speedup)
        async with trio.open_nursery() as nursery:
            for aircraft in self._plan.aircraft:
                if aircraft.flight.first_ms <= soon_ms:
                    nursery.start_soon(self._spawn, aircraft)
        self._began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell, progress)
            async with trio.open_nursery() as flights:
                for aircraft in self._plan.aircraft:
                    flights.start_soon(self._fly, aircraft)
            nursery.cancel_scope.cancel()
        progress(self._progress())

    async def _fly(self, aircraft: Aircraft) -> None:
        points = aircraft.flight.points
        await trio.sleep_until(self._due_s(points[0].timestamp_ms) - SPAWN_LEAD_S)
        if aircraft.entity not in self._spawned and aircraft.entity not in self.flown.not_spawned:
            await self._spawn(aircraft)
        stream = self.players.streams.get(aircraft.entity)
        if stream is None:
            return
        for number, point in enumerate(points):
            await trio.sleep_until(self._due_s(point.timestamp_ms))
            await self.players.push_in_turn(stream, aircraft.report(number).encode())

    async def _spawn(self, aircraft: Aircraft) -> None:
        async with self._spawning:
            try:
                body = aircraft.creation(self.players.name)
                await self._client.call(instance_of(aircraft.entity), "POST", "/v1/entities", body)
                await self.players.follow(aircraft.entity, aircraft.server)
            except ApiFailure as failure:
                self.flown.not_spawned[aircraft.entity] = str(failure)
            else:
                self._spawned.add(aircraft.entity)

    def _applied(self, stream: InputStream, more: int, server: str) -> None:
        """A server says that it has applied the next `more` reports of an aircraft."""
        points = self._aircraft[stream.entity].flight.points
        now_s = trio.current_time()
        for point in points[stream.acknowledged - more : stream.acknowledged]:
            self.flown.lateness_ms.append((now_s - self._due_s(point.timestamp_ms)) * 1000)
        self.flown.applied_by[server] += more
        if stream.acknowledged == len(points):
            self.flown.finished_ns[stream.entity] = time.monotonic_ns()

    def _due_s(self, at_ms: int) -> float:
        """When a moment of the flights' time comes, by trio's clock."""
        return self._began_s + (at_ms - self._plan.start_ms) / 1000 / self._plan.speedup

    async def _tell(self, progress: Callable[[FeedProgress], None]) -> None:
        while True:
            progress(self._progress())
            await trio.sleep(PROGRESS_S)

    def _progress(self) -> FeedProgress:
        passed_ms = round((trio.current_time() - self._began_s) * 1000 * self._plan.speedup)
        finished = len(self.flown.finished_ns)
        return FeedProgress(
            at_ms=min(self._plan.start_ms + passed_ms, self._plan.end_ms),
            flying=len(self._spawned) - finished,
            finished=finished,
            applied=sum(self.flown.applied_by.values()),
        )
