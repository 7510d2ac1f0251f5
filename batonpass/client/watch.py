"""What a program watches: its entities, as all doors that show them say, and changes as they come. No I/O.

An entity that goes to another server is shown by two doors for a while, or by none. What is known of it never goes
back: a word under a lower fence, or of an earlier tick under the same, is of the past. One that no door shows any more
is given `GRACE_S` to appear at another one. Then its home is asked: a server that dies is replaced in its own time, and
what it had is not gone for that. What left an area is, then.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from batonpass.authority.wire.door import DoorRefusal, DoorSubscribe
from batonpass.client.mirror import WatchedEntity
from batonpass.client.smoothing import JitterBuffer, blended
from batonpass.client.tick_clock import TickClock

__all__ = ["GRACE_S", "EntityUpdate", "EntityWatch", "WatchRefused"]

GRACE_S: Final = 2.0


class WatchRefused(Exception):
    """A door does not show what is asked for; `code` is stable (docs/reference/codes.md)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code: Final = code


@dataclass(frozen=True, slots=True)
class EntityUpdate:
    """What has become of an entity since the last time that it was looked at.

    `ticks` is how many it has had since; across a hand-over or a failover it is the gap. After a failover it may be
    negative: ticks of the server that died that no other has.
    """

    entity: WatchedEntity
    ticks: int
    is_gone: bool = False
    server: str = ""
    """Which shows it."""


class EntityWatch:
    """Entities that are watched; `async for change in watch` gives what changes, each entity with its latest state.

    A reader that is slow is told less often, and never less than what is so now.
    """

    def __init__(self, asked: DoorSubscribe, now_s: Callable[[], float], end: Callable[["EntityWatch"], None]) -> None:
        self.asked: Final = asked
        self._now_s: Final = now_s
        self._end: Final = end
        self._known: Final[dict[str, tuple[WatchedEntity, str]]] = {}
        self._read: Final[dict[str, WatchedEntity]] = {}
        self._lost: Final[dict[str, float]] = {}
        self._changed: Final[dict[str, None]] = {}
        self._gone: Final[dict[str, EntityUpdate]] = {}
        self._news = anyio.Event()
        self._is_closed = False
        self._refusal: WatchRefused | None = None
        self._smooth: JitterBuffer | None = None

    @property
    def entities(self) -> Mapping[str, WatchedEntity]:
        """By name, what is known now."""
        return {name: entity for name, (entity, _) in self._known.items()}

    def server_of(self, name: str) -> str:
        """Which server showed an entity last; empty if none did."""
        return self._known[name][1] if name in self._known else ""

    @property
    def refused(self) -> WatchRefused | None:
        """With what a door refused to show it, once it was asked; None: none did. The loop over changes raises it."""
        return self._refusal

    def smooth(self, delay_s: float | None = None, blend: Callable[[Any, Any, float], Any] = blended) -> None:
        """Have `now` show states between those that were told, a moment later than they come.

        Args:
            delay_s: by how much later; None: as short as what comes late permits.
            blend: makes the state that is a share of the way from one to another; numbers are in between, if not said.
        """
        self._smooth = JitterBuffer(delay_s, blend)

    def now(self) -> Mapping[str, Any]:
        """The states as they are to be shown at this moment, by name; those told last, without `smooth`."""
        if self._smooth is None:
            return {name: entity.state for name, (entity, _) in self._known.items()}
        return self._smooth.at(self._now_s())

    def close(self) -> None:
        """Watch no longer; the loop over changes ends."""
        if not self._is_closed:
            self._is_closed = True
            self._end(self)
            self._wake()

    def __aiter__(self) -> "EntityWatch":
        return self

    async def __anext__(self) -> EntityUpdate:
        while not (self._changed or self._gone or self._is_closed or self._refusal):
            await self._news.wait()
        if self._is_closed:
            # What has come meanwhile is not read any more.
            raise StopAsyncIteration
        if self._gone:
            return self._gone.pop(next(iter(self._gone)))
        if not self._changed and self._refusal is not None:
            raise self._refusal
        name = next(iter(self._changed))
        del self._changed[name]
        entity, server = self._known[name]
        before, self._read[name] = self._read.get(name), entity
        return EntityUpdate(entity, 0 if before is None else entity.tick - before.tick, server=server)

    # --- for the client --------------------------------------------------------------------------------------------

    def show(self, server: str, entities: Iterable[WatchedEntity], clock: TickClock) -> None:
        """A door shows these; the clock is its server's."""
        for entity in entities:
            known = self._known.get(entity.name)
            if known is not None and (known[0].fence, known[0].tick) > (entity.fence, entity.tick):
                continue
            self._known[entity.name] = entity, server
            self._lost.pop(entity.name, None)
            self._gone.pop(entity.name, None)
            self._changed[entity.name] = None
            if self._smooth is not None:
                self._smooth.take(entity.name, entity.round, entity.state, clock)
        self._wake()

    def no_longer(self, server: str, names: Iterable[str]) -> None:
        """A door shows these no more."""
        for name in names:
            if name in self._known and self._known[name][1] == server:
                self._lost.setdefault(name, self._now_s())

    def lose_all(self, server: str) -> None:
        """A door is closed."""
        self.no_longer(server, list(self._known))

    def refuse(self, server: str, refusal: DoorRefusal) -> None:
        """A door does not show what is asked for: the loop over changes raises that."""
        self._refusal = WatchRefused(refusal.code, f"{server}: {refusal.message}")
        self._wake()

    def is_lost(self, name: str) -> bool:
        """Whether no door shows an entity at this moment that is known."""
        return name in self._lost

    def deleted(self, name: str) -> None:
        """Its home says that there is no such entity."""
        self._remove(name)

    def look(self, *, is_complete: bool) -> list[str]:
        """Those that no door has shown for too long, though all doors that could are open; named again after as long.

        An area is left by entities all the time: what is not shown in it is given up.
        """
        overdue = [name for name, since_s in self._lost.items() if is_complete and self._now_s() - since_s > GRACE_S]
        for name in overdue:
            self._lost[name] = self._now_s()
            if self.asked.area is not None:
                self._remove(name)
        return [] if self.asked.area is not None else overdue

    def _wake(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    def _remove(self, name: str) -> None:
        self._lost.pop(name, None)
        self._changed.pop(name, None)
        self._read.pop(name, None)
        if self._smooth is not None:
            self._smooth.forget(name)
        known = self._known.pop(name, None)
        if known is not None:
            self._gone[name] = EntityUpdate(known[0], 0, is_gone=True, server=known[1])
            self._wake()
