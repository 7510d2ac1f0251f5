"""Servers in a row, each with a stretch of a line, that show each other what is near their borders.

What ticks, follows, encodes, seals, sends, reads and indexes is the real thing. What a datagram would carry is handed
over between two rounds. Each server has a core of its own: what is measured is the processor time of its part of a
round, of the server that needs most. So it does not matter on how many cores this runs, or what else does.
"""

from time import process_time
from types import SimpleNamespace
from typing import Any, Final

from batonpass.authority.wire.neighbours import GhostInterest, Ghosts
from batonpass.authority.wire.transfer import decode_link_untrusted
from batonpass.scenarios.bench.loops import expect
from batonpass.scenarios.bench.worlds.server import PERIOD_S, BenchServer
from batonpass.scenarios.bench.worlds.strip import REACH, Strip
from batonpass.simserver.neighbours.host import HostedNeighbours
from batonpass.simserver.neighbours.surroundings import Surroundings

__all__ = ["ServersInARow"]

_PERIOD_NS: Final = round(PERIOD_S * 1e9)
_STRETCH: Final = 100.0
"""Of each server. Entities far from its borders are in its middle."""
_WARM_UP: Final = 12


class _ServerInARow(BenchServer):
    """A server whose entities are shown to its neighbours, and what has come for it."""

    def __init__(self, row: "ServersInARow", name: str) -> None:
        world: Any = Strip()
        surroundings = Surroundings(world, lambda: self.holdings, _PERIOD_NS, self._count)
        super().__init__(world, name, surroundings)
        self._row: Final = row
        self._came: list[tuple[str, Any]] = []
        self.busy_s = 0.0
        clock = SimpleNamespace(
            monotonic_ns=row.now_ns, unix_s=row.unix_s, bell=lambda: SimpleNamespace(ring=row.now_ns)
        )
        ports: Any = SimpleNamespace(
            name=name,
            home=SimpleNamespace(row=self._row_of),
            link=self.link,
            outbox=SimpleNamespace(send=self._send),
            clock=clock,
            counts=self.counts,
        )
        lease: Any = SimpleNamespace(peers=row.names, may_act=lambda now_ns: True)
        departures: Any = SimpleNamespace(is_under_way=lambda entity: False, wants_to_go=lambda entity, to: None)
        self.neighbours: Final = HostedNeighbours(
            ports, lease, self.holdings, self.environment, surroundings, departures, 1 / PERIOD_S
        )

    async def _row_of(self, server: str) -> Any:
        return SimpleNamespace(link_host="127.0.0.1", link_port=9)

    def _send(self, message: Any, _trace: Any, to: str, **_: Any) -> None:
        self._row.servers[to]._came.append((self.name, message))

    def post_all(self) -> None:
        """What was sent is there."""
        posted, self.link.posted = self.link.posted, []
        for to, data in posted:
            self._row.servers[to]._came.append((self.name, data))

    async def round(self) -> None:
        """Read what came, tick, and tell."""
        began_s = process_time()
        came, self._came = self._came, []
        for sender, message in came:
            said = decode_link_untrusted(message) if isinstance(message, bytes) else message
            if isinstance(said, GhostInterest):
                self.neighbours.interest_came(said, sender)
            elif isinstance(said, Ghosts):
                self.neighbours.ghosts_came(said, sender)
        environment = self.environment
        environment.rounds.count += 1
        environment.feed.round_begins(environment.rounds.count)
        self.neighbours.round_begins()
        if self.holdings.batch is not None:
            self.holdings.batch.tick()
        environment.feed.round_is_over()
        await self.neighbours._look_up()
        self.neighbours._between_rounds()
        self.busy_s += process_time() - began_s


class ServersInARow:
    """This number of servers with this number of entities each.

    `share` of those of a server are within reach of each of its borders, which are one, or two of a server that has
    neighbours on either side.
    """

    def __init__(self, servers: int, entities: int, share: float) -> None:
        self._now_ns = 10**12
        self.names: Final = tuple(f"alpha.s{number}" for number in range(1, servers + 1))
        self.servers: Final[dict[str, _ServerInARow]] = {}
        near = round(entities * share)
        self.ghosts: Final = near * 2 * (servers - 1)
        for name in self.names:
            self.servers[name] = _ServerInARow(self, name)
        for number, server in enumerate(self.servers.values()):
            low, high = number * _STRETCH, (number + 1) * _STRETCH
            places: list[float] = []
            if number > 0:
                places += [low + REACH * (0.1 + 0.8 * one / near) for one in range(near)]
            if number < servers - 1:
                places += [high - REACH * (0.1 + 0.8 * one / near) for one in range(near)]
            rest = entities - len(places)
            places += [low + 10 * REACH + (_STRETCH - 20 * REACH) * one / rest for one in range(rest)]
            for one, at in enumerate(places):
                server.spawn(f"alpha.p{number}-{one}", "point", {"at": at})

    def now_ns(self) -> int:
        """Of all of them."""
        return self._now_ns

    def unix_s(self) -> float:
        """Of all of them."""
        return self._now_ns / 1e9

    async def _round(self) -> None:
        self._now_ns += _PERIOD_NS
        for server in self.servers.values():
            await server.round()
        for server in self.servers.values():
            server.post_all()

    async def measured(self, seconds: float) -> dict[str, float]:
        """Processor time of a round of the busiest server, in milliseconds; bytes for each ghost in a second."""
        for _ in range(_WARM_UP):
            await self._round()
        sent = sum(server.counts["ghost_bytes_sent"] for server in self.servers.values())
        for server in self.servers.values():
            server.busy_s = 0.0
        done, began_s = 0, process_time()
        while process_time() - began_s < seconds:
            await self._round()
            done += 1
        seen = [one for server in self.servers.values() for one in server.neighbours.ghosts()]
        expect(len(seen), self.ghosts)
        expect(sum(server.counts["ghosts_missed"] for server in self.servers.values()), 0)
        sent = sum(server.counts["ghost_bytes_sent"] for server in self.servers.values()) - sent
        return {
            "tick": max(server.busy_s for server in self.servers.values()) / done * 1e3,
            "bytes": sent / len(seen) / (done * PERIOD_S) if seen else 0.0,
        }
