"""What a client knows of the entities that it watches at one door: frames in, states and changes out. No I/O.

An entity may be shown by several topics, as by name and as one in an area. The mirror has it once, as the topic says it
that was told last; it is gone when no topic shows it any more.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.door import BASE_EVERY, MAX_HELD_TOPICS
from batonpass.authority.wire.patches import filled_untrusted, leaves_untrusted, patched_untrusted

__all__ = ["FRAME", "DoorMirror", "WatchedEntity"]

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


class _HeldTopic(NamedTuple):
    """What a topic showed by an earlier connection: with the last frame, and with the last base (`BASE_EVERY`)."""

    frame: int
    here: dict[int, WatchedEntity]
    base: int
    at_base: dict[int, WatchedEntity]


class DoorMirror:
    """All that one door shows to one client by one connection; `successor` is that of the next connection.

    What is held of topics by an earlier connection is shown only once a frame continues it.
    """

    def __init__(self, held: Mapping[int, _HeldTopic] | None = None) -> None:
        self._held: Final = dict(held or {})
        self._bases: Final[dict[int, tuple[int, dict[int, WatchedEntity]]]] = {}
        self._topics: Final[dict[int, dict[int, WatchedEntity]]] = {}
        self._frames: Final[dict[int, int]] = {}
        self._entities: Final[dict[str, WatchedEntity]] = {}
        self._shown_by: Final[dict[str, set[int]]] = {}

    @property
    def entities(self) -> Mapping[str, WatchedEntity]:
        """By name, what is shown now."""
        return self._entities

    def is_shown(self, name: str, topics: Collection[int]) -> bool:
        """Whether one of these topics shows an entity."""
        return not self._shown_by.get(name, frozenset()).isdisjoint(topics)

    def __iter__(self) -> Iterator[WatchedEntity]:
        return iter(self._entities.values())

    def successor(self) -> "DoorMirror":
        """The mirror of the next connection to the same run of the same server."""
        if not self._topics:
            return DoorMirror(self._held)
        held = {
            topic: _HeldTopic(self._frames[topic], here, *self._bases.get(topic, (0, {})))
            for topic, here in list(self._topics.items())[:MAX_HELD_TOPICS]
        }
        return DoorMirror(held)

    @property
    def held(self) -> list[list[int]]:
        """What is held, as `DoorHave` says it: topic, last frame, last base."""
        return [[topic, held.frame, held.base] for topic, held in self._held.items()]

    def take_untrusted(self, frame: Sequence[Any]) -> tuple[list[WatchedEntity], list[str]]:
        """Take a frame: the entities that changed, and the names of those that its topic shows no more.

        Raises:
            MessageError: it is no frame, or does not fit what was told before.
        """
        if len(frame) < _MEMBERS or frame[0] != FRAME or any(type(each) is not int for each in frame[1:5]):
            raise MessageError("this is no frame of states")
        topic, base, number, round_number, deltas, fulls, gone = frame[1:_MEMBERS]
        if not (isinstance(deltas, list) and isinstance(fulls, list) and isinstance(gone, list)):
            raise MessageError("this is no frame of states")
        before, known = self._topics.get(topic, {}), self._frames.get(topic, 0)
        held = self._held.pop(topic, None)
        if base == 0:
            here: dict[int, WatchedEntity] = {}
        elif held is not None:
            here = _continued(held, base)
        elif number <= known:
            # Two subscriptions that share a topic are each told.
            return [], []
        elif base == known or (base < known and not deltas):
            # Of what one of them missed, which comes in full, the other may have a part.
            here = before
        else:
            raise MessageError("a frame that follows another one than is known")
        changed = [self._updated(here, *each, round_number) for row in _in_threes(deltas) for each in _alike(*row)]
        changed += [self._full(here, row, round_number) for row in fulls]
        left = [entity.name for each, entity in before.items() if each not in here] if base == 0 else []
        left += [here.pop(each).name for each in gone if type(each) is int and each in here]
        if held is not None and base:
            # All of it is shown again.
            here = {each: replace(entity, round=round_number) for each, entity in here.items()}
            changed = list(here.values())
        self._topics[topic], self._frames[topic] = here, number
        if number % BASE_EVERY == 0:
            self._bases[topic] = number, dict(here)
        # It may have left and come again, which is one frame.
        self._leave(topic, left)
        for entity in changed:
            self._entities[entity.name] = entity
            self._shown_by.setdefault(entity.name, set()).add(topic)
        self._forget(left)
        return changed, left

    def close(self, topic: int) -> list[str]:
        """A topic is not watched any more: the names of the entities that it showed."""
        self._frames.pop(topic, None)
        self._bases.pop(topic, None)
        self._held.pop(topic, None)
        left = [entity.name for entity in self._topics.pop(topic, {}).values()]
        self._leave(topic, left)
        self._forget(left)
        return left

    def _leave(self, topic: int, names: list[str]) -> None:
        for name in names:
            self._shown_by.get(name, set()).discard(topic)

    def _forget(self, left: list[str]) -> None:
        """Of those that a topic shows no more, those that none shows."""
        for name in left:
            if not self._shown_by.get(name):
                self._entities.pop(name, None)
                self._shown_by.pop(name, None)

    def _updated(
        self, here: dict[int, WatchedEntity], number: Any, ticks: Any, patch: Any, round_number: int
    ) -> WatchedEntity:
        known = here.get(number) if type(number) is int else None
        if known is None or type(ticks) is not int or ticks < 0:
            raise MessageError("a change of an entity that was not shown")
        state = patched_untrusted(known.state, patch)
        here[number] = replace(known, tick=known.tick + ticks, round=round_number, state=state)
        return here[number]

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


def _continued(held: _HeldTopic, base: int) -> dict[int, WatchedEntity]:
    """What was shown with the frame that is continued."""
    if base == held.frame:
        return dict(held.here)
    if base == held.base:
        return dict(held.at_base)
    raise MessageError("a frame that follows another one than is known")


def _in_threes(row: list[Any]) -> Iterator[tuple[Any, Any, Any]]:
    if len(row) % 3:
        raise MessageError("changes have three members each")
    return zip(row[::3], row[1::3], row[2::3], strict=True)


def _alike(ticks: Any, shape: Any, row: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Number, ticks and patch of each entity that has changed in this way."""
    members = 1 + leaves_untrusted(shape)
    if not isinstance(row, list) or len(row) % members:
        raise MessageError("changes of a shape have as many values each")
    for at in range(0, len(row), members):
        yield row[at], ticks, filled_untrusted(shape, row[at + 1 : at + members])
