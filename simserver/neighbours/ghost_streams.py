"""What one server sends another of its entities near that one: the sender's side of ghosts. No I/O.

Each ghost has a number within a stream. It is told of in full once, then by its number whenever its state has changed,
and once more when it is to be shown no longer. A stream whose message could not be sent is over. Nothing more is said
in it, and the receiver, which finds a gap or hears nothing, asks for another one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from batonpass.authority.fence import Fence
from batonpass.authority.wire.neighbours import MAX_GHOSTS_TOLD, GhostNews, Ghosts

__all__ = ["MAX_GHOSTS_OF_STREAM", "GhostStream", "ShownEntity"]

MAX_GHOSTS_OF_STREAM: Final = 8192
"""Entities that one peer is shown at a time; what is beyond has to wait until another one is gone."""
_MESSAGE_BYTES: Final = 64 * 1024
_IDLE_EVERY: Final = 10
"""After this number of rounds a peer hears that there is nothing to show it."""


class ShownEntity(NamedTuple):
    """An entity as its ghost is to be: `state` is encoded."""

    entity: str
    kind: str
    schema_version: int
    fence: Fence
    tick: int
    state: bytes
    rank: int = 0
    priority: int = 0


@dataclass(slots=True)
class _Told:
    number: int
    last: ShownEntity


class GhostStream:
    """One stream to one peer, which has chosen its number `stream`; `life` is another one each time it begins."""

    def __init__(self, stream: int, life: int) -> None:
        self.stream: Final = stream
        self._life: Final = life
        self.is_over = False
        self._seq = 0
        self._numbers = 0
        self._told: Final[dict[str, _Told]] = {}
        self._idle = 0
        self.without_room = 0
        """How often an entity could not be shown, because as many were as may be."""

    def __len__(self) -> int:
        return len(self._told)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._told))

    def __contains__(self, entity: object) -> bool:
        return entity in self._told

    def messages(self, shown: Iterable[ShownEntity], gone: Iterable[str], at_ms: int) -> list[Ghosts]:
        """What is to be said after a round: these have changed, or are new to the peer; and those are gone.

        Nothing, if all is as it was and the peer has heard that a moment ago. All that is given has to be sent, in
        this order, or the stream is over.
        """
        changes = [told for told in map(self._change, shown) if told is not None]
        numbers = [told.number for entity in gone if (told := self._told.pop(entity, None)) is not None]
        self._idle += 1
        if not (changes or numbers or self._told or self._idle >= _IDLE_EVERY or not self._seq):
            return []
        self._idle = 0
        # First of all what is gone: an entity may be new under another number.
        parts = [numbers[first : first + MAX_GHOSTS_TOLD] for first in range(0, len(numbers), MAX_GHOSTS_TOLD)]
        found = [self._message(at_ms, [], part) for part in parts[:-1]]
        last_gone = parts[-1] if parts else []
        for together in _in_messages(changes):
            found.append(self._message(at_ms, together, last_gone))
            last_gone = []
        return found

    def _message(self, at_ms: int, changes: list["_Change"], gone: list[int]) -> Ghosts:
        self._seq += 1
        with_state = [one for one in changes if one.has_state]
        return Ghosts(
            stream=self.stream,
            life=self._life,
            seq=self._seq,
            at_ms=at_ms,
            news=[one.news() for one in changes if one.is_news],
            numbers=[one.number for one in with_state],
            ticks=[one.shown.tick for one in with_state],
            states=[one.shown.state for one in with_state],
            gone=gone,
        )

    def _change(self, shown: ShownEntity) -> "_Change | None":
        told = self._told.get(shown.entity)
        if told is None:
            if len(self._told) >= MAX_GHOSTS_OF_STREAM:
                self.without_room += 1
                return None
            self._numbers += 1
            self._told[shown.entity] = _Told(self._numbers, shown)
            return _Change(self._numbers, shown, is_news=True, has_state=True)
        before, told.last = told.last, shown
        is_refenced = before.fence != shown.fence
        is_news = is_refenced or (before.rank, before.priority) != (shown.rank, shown.priority)
        has_state = is_refenced or before.state != shown.state
        return _Change(told.number, shown, is_news, has_state) if is_news or has_state else None


class _Change(NamedTuple):
    number: int
    shown: ShownEntity
    is_news: bool
    has_state: bool

    def news(self) -> GhostNews:
        shown = self.shown
        return GhostNews(
            entity=shown.entity,
            epoch=shown.fence.epoch,
            sub=shown.fence.sub,
            number=self.number,
            kind=shown.kind,
            schema_version=shown.schema_version,
            rank=shown.rank,
            priority=shown.priority,
        )


def _in_messages(changes: list[_Change]) -> Iterator[list[_Change]]:
    """Parts that fit a message each; one that is empty if there are no changes."""
    together: list[_Change] = []
    size_bytes = 0
    for change in changes:
        if together and (len(together) >= MAX_GHOSTS_TOLD or size_bytes + len(change.shown.state) > _MESSAGE_BYTES):
            yield together
            together, size_bytes = [], 0
        together.append(change)
        size_bytes += len(change.shown.state)
    yield together
