"""The ghosts that one server has of others' entities: the receiver's side. No I/O.

What is shown of an entity never goes back: neither in its fence, whichever servers tell of it, nor in its tick under
one fence. A ghost is there for as long as its server says so. It is gone when

- its server says that it is, or begins anew;
- another server shows the entity under a higher fence, or this one has it under the same or a higher one;
- nothing was heard of its server for `max_age_ns`, or what was heard has a gap.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.wire.neighbours import GhostNews, Ghosts
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.neighbours.spatial_index import SpatialIndex, ordered
from batonpass.simserver.world.neighbourhood import Neighbour

__all__ = ["MAX_GHOSTS", "BadGhost", "Ghost", "GhostTable"]

MAX_GHOSTS: Final = 16_384
"""The ghosts of all peers together."""
_MAX_FENCES: Final = 65_536


class BadGhost(Exception):
    """What a peer says of a ghost makes no sense here; the text says why."""


@dataclass(frozen=True, slots=True)
class Ghost:
    """What is known of a ghost beside where it is."""

    neighbour: Neighbour
    kind: str
    rank: int
    priority: int


@dataclass(slots=True)
class _Incoming:
    """The stream of one peer."""

    stream: int
    heard_ns: int
    life: int = 0
    seq: int = 0
    at_ms: int = 0
    news: dict[int, GhostNews] = field(default_factory=dict)


class GhostTable:
    """Ghosts by the ids of their entities.

    Args:
        cell_edge: of the grid in which they are looked for.
        place: gives the position of a state that came from a peer (`None`: nowhere), and what is to be kept of it.
            Raises `BadGhost`.
        is_past: whether this server has the entity, or had it later, than under a fence.
        schema_version: of the states that can be read here.
        max_age_ns: for how long a peer may be silent.
    """

    def __init__(
        self,
        cell_edge: float,
        place: Callable[[bytes], tuple[tuple[float, ...] | None, Any]],
        is_past: Callable[[str, Fence], bool],
        schema_version: int,
        max_age_ns: int,
    ) -> None:
        self._place: Final = place
        self._is_past: Final = is_past
        self._schema_version: Final = schema_version
        self._max_age_ns: Final = max_age_ns
        self._index: Final = SpatialIndex(cell_edge)
        self._ghosts: Final[dict[str, GhostNews]] = {}
        self._incoming: Final[dict[str, _Incoming]] = {}
        self._newest: Final[LruTable[str, tuple[Fence, int]]] = LruTable(_MAX_FENCES)
        self.without_room = 0
        """How often a ghost could not be kept, because as many were as may be."""

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[Ghost]:
        return (self._ghost(neighbour) for neighbour in self._index)

    def get(self, entity: str) -> Ghost | None:
        """The ghost of an entity."""
        neighbour = self._index.get(entity)
        return None if neighbour is None else self._ghost(neighbour)

    def _ghost(self, neighbour: Neighbour) -> Ghost:
        news = self._ghosts[neighbour.entity]
        return Ghost(neighbour, news.kind, news.rank, news.priority)

    def at_ms(self, server: str) -> int:
        """As of when what is shown of a server's entities is what they are, in instance time."""
        incoming = self._incoming.get(server)
        return 0 if incoming is None else incoming.at_ms

    def near(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        """As `NeighbourLookup.ghosts`, each with an age of 0. Raises `ValueError`."""
        return ordered(self._index.near(position, radius))

    # --- what peers say --------------------------------------------------------------------------------------------

    def expect(self, peer: str, stream: int, now_ns: int) -> None:
        """A peer has been asked to tell of its entities in a new stream: nothing is shown of what it said before."""
        self.forget(peer)
        self._incoming[peer] = _Incoming(stream, now_ns)

    def forget(self, peer: str) -> None:
        """Show nothing of a peer's."""
        if self._incoming.pop(peer, None) is not None:
            for one in [one for one in self._index if one.server == peer]:
                self._remove(one.entity)

    def expire(self, now_ns: int) -> list[str]:
        """Show nothing of peers that were silent for too long; which these are."""
        silent = [peer for peer, one in self._incoming.items() if now_ns - one.heard_ns > self._max_age_ns]
        for peer in silent:
            self.forget(peer)
        return silent

    def take(self, peer: str, said: Ghosts, now_ns: int) -> bool:
        """What a peer says. False if something is missing before it: nothing of the peer is shown any more then.

        What was said in another stream than the one asked for is passed over, and what came before.

        Raises:
            BadGhost: it makes no sense; nothing of the peer is shown any more.
        """
        incoming = self._incoming.get(peer)
        if incoming is None or incoming.stream != said.stream:
            return True
        is_other_life = incoming.seq > 0 and said.life != incoming.life
        if said.seq <= incoming.seq and not is_other_life:
            return True
        if is_other_life or said.seq != incoming.seq + 1:
            self.forget(peer)
            return False
        incoming.life, incoming.seq, incoming.heard_ns = said.life, said.seq, now_ns
        incoming.at_ms = max(incoming.at_ms, said.at_ms)
        try:
            self._apply(peer, incoming, said)
        except BadGhost:
            self.forget(peer)
            raise
        return True

    def _apply(self, peer: str, incoming: _Incoming, said: Ghosts) -> None:
        if not len(said.numbers) == len(said.ticks) == len(said.states):
            raise BadGhost("numbers, ticks and states are not as many")
        for number in said.gone:
            news = incoming.news.pop(number, None)
            if news is not None and self._is_shown(peer, news):
                self._remove(news.entity)
        for news in said.news:
            self._learn(peer, incoming, news)
        for number, tick, state in zip(said.numbers, said.ticks, said.states, strict=True):
            if number not in incoming.news:
                raise BadGhost(f"ghost {number} was never told of")
            self._show(peer, incoming.news[number], tick, state)

    def _learn(self, peer: str, incoming: _Incoming, news: GhostNews) -> None:
        before = incoming.news.get(news.number)
        if before is not None and (before.entity != news.entity or news.fence < before.fence):
            raise BadGhost(f"ghost {news.number} was {before.entity} under {before.fence}")
        if before is None and len(incoming.news) >= MAX_GHOSTS:
            raise BadGhost(f"more than {MAX_GHOSTS} ghosts of one server")
        incoming.news[news.number] = news
        if before is not None and self._is_shown(peer, before):
            if news.fence > before.fence:
                # Its state comes with it.
                self._remove(news.entity)
            else:
                self._ghosts[news.entity] = news

    def _is_shown(self, peer: str, news: GhostNews) -> bool:
        """Whether the ghost of this entity is the one that this peer tells of."""
        shown = self._index.get(news.entity)
        return shown is not None and (shown.server, shown.fence) == (peer, news.fence)

    def _show(self, peer: str, news: GhostNews, tick: int, state: bytes) -> None:
        entity, fence = news.entity, news.fence
        shown, newest = self._index.get(entity), self._newest.get(entity)
        if news.schema_version != self._schema_version or self._is_past(entity, fence):
            return
        if newest is not None and (fence, tick) < newest:
            return
        if shown is not None and shown.fence == fence and shown.server != peer:
            # Only one server has authority under a fence: what another one says of it is not believed.
            return
        if shown is None and len(self._index) >= MAX_GHOSTS:
            self.without_room += 1
            return
        position, value = self._place(state)
        self._newest[entity] = fence, tick
        if position is None:
            self._remove(entity)
            return
        self._ghosts[entity] = news
        self._index.put(Neighbour(entity, position, value, fence, tick, peer))

    # --- what is known here ----------------------------------------------------------------------------------------

    def lives_here(self, entity: str, fence: Fence) -> None:
        """This server simulates an entity under a fence: no ghost of an earlier one, nor of this, is shown."""
        newest = self._newest.get(entity)
        self._newest[entity] = (fence, 0) if newest is None else max((fence, 0), newest)
        shown = self._index.get(entity)
        if shown is not None and shown.fence <= fence:
            self._remove(entity)

    def _remove(self, entity: str) -> None:
        self._index.remove(entity)
        self._ghosts.pop(entity, None)
