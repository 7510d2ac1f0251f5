"""What a client knows of the entities that it watches at one door: frames in, states and changes out. No I/O.

An entity may be shown by several topics, as by name and as one in an area. The mirror has it once, as the topic says it
that was told last; it is gone when no topic shows it any more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.patches import patched_untrusted

__all__ = ["FRAME", "Mirror", "WatchedEntity"]

FRAME: Final = 1
"""The first member of a frame of states."""
_MEMBERS: Final = 8
_ROW: Final = 8


@dataclass(frozen=True, slots=True)
class WatchedEntity:
    """An entity as it was shown last.

    `round` is the server's round of ticks in which it was so: rounds follow each other at the tick rate, whichever
    ticks the entity had. `fence` and `tick` never decrease, wherever the entity goes.
    """

    name: str
    kind: str
    owner: str
    fence: tuple[int, int]
    tick: int
    round: int
    state: Any


class Mirror:
    """All that one door shows to one client."""

    def __init__(self) -> None:
        self._topics: Final[dict[int, dict[int, WatchedEntity]]] = {}
        self._frames: Final[dict[int, int]] = {}
        self._entities: Final[dict[str, WatchedEntity]] = {}
        self._shown_by: Final[dict[str, set[int]]] = {}

    @property
    def entities(self) -> Mapping[str, WatchedEntity]:
        """By name, what is shown now."""
        return self._entities

    def __iter__(self) -> Iterator[WatchedEntity]:
        return iter(self._entities.values())

    def take_untrusted(self, frame: Sequence[Any]) -> tuple[list[WatchedEntity], list[str]]:
        """Take a frame: the entities that changed, and the names of those that are shown no more.

        Raises:
            MessageError: it is no frame, or does not fit what was told before.
        """
        if len(frame) < _MEMBERS or frame[0] != FRAME or any(type(each) is not int for each in frame[1:5]):
            raise MessageError("this is no frame of states")
        topic, base, number, round_number, deltas, fulls, gone = frame[1:_MEMBERS]
        if not (isinstance(deltas, list) and isinstance(fulls, list) and isinstance(gone, list)):
            raise MessageError("this is no frame of states")
        before = self._topics.get(topic, {})
        if base == 0:
            here: dict[int, WatchedEntity] = {}
        elif self._frames.get(topic) == base:
            here = before
        else:
            raise MessageError(f"a frame after number {base} of a topic of which number {self._frames.get(topic)} is known")
        changed = [self._updated(here, *row, round_number) for row in _in_threes(deltas)]
        changed += [self._full(here, row, round_number) for row in fulls]
        left = [before[each].name for each in (before if base == 0 else gone) if each in before and (base or each not in here)]
        for each in gone:
            here.pop(each, None)
        self._topics[topic], self._frames[topic] = here, number
        for entity in changed:
            self._entities[entity.name] = entity
            self._shown_by.setdefault(entity.name, set()).add(topic)
        return changed, self._no_longer(topic, left)

    def close(self, topic: int) -> list[str]:
        """A topic is not watched any more: the names of entities that no other one shows."""
        self._frames.pop(topic, None)
        return self._no_longer(topic, [entity.name for entity in self._topics.pop(topic, {}).values()])

    def _no_longer(self, topic: int, names: list[str]) -> list[str]:
        lost = []
        for name in names:
            topics = self._shown_by.get(name, set())
            topics.discard(topic)
            if not topics and self._entities.pop(name, None) is not None:
                self._shown_by.pop(name, None)
                lost.append(name)
        return lost

    def _updated(self, here: dict[int, WatchedEntity], number: Any, ticks: Any, patch: Any, round_number: int) -> WatchedEntity:
        known = here.get(number) if type(number) is int else None
        if known is None or type(ticks) is not int or ticks < 0:
            raise MessageError("a change of an entity that was not shown")
        state = patched_untrusted(known.state, patch)
        entity = WatchedEntity(known.name, known.kind, known.owner, known.fence, known.tick + ticks, round_number, state)
        here[number] = entity
        return entity

    def _full(self, here: dict[int, WatchedEntity], row: Any, round_number: int) -> WatchedEntity:
        if not isinstance(row, list) or len(row) < _ROW:
            raise MessageError("this is no entity")
        number, name, kind, epoch, sub, tick, owner, state = row[:_ROW]
        texts, numbers = (name, kind, owner), (number, epoch, sub, tick)
        if any(type(each) is not str for each in texts) or any(type(each) is not int for each in numbers):
            raise MessageError("this is no entity")
        entity = WatchedEntity(name, kind, owner, (epoch, sub), tick, round_number, state)
        here[number] = entity
        return entity


def _in_threes(row: list[Any]) -> Iterator[tuple[Any, Any, Any]]:
    if len(row) % 3:
        raise MessageError("changes have three members each")
    return zip(row[::3], row[1::3], row[2::3], strict=True)
