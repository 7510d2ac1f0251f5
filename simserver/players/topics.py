"""Frames: what is told of some entities to all that watch them. No I/O.

A *topic* is some entities that are watched together. They are one entity, those of an owner, those whose names match a
pattern, or those in a cell of the grid. They are told at every n-th tick, as one viewer sees them. All its watchers are
told the same bytes, which are made once. A watcher that has not taken the last frame is told later what it missed, as
full states and once. One that comes again after its connection was lost is told what has changed since a frame that it
has, if the topic still knows what it showed then (`bases`).

A frame is an array (docs/reference/players-door.md):

    [1, topic, base, frame, round, deltas, fulls, gone]

`base` is the frame that the watcher has to have; with 0 it forgets what it knows of the topic. `deltas` has three
members for all entities that have changed alike. They are ticks since they were told last, the shape of their patches,
and a flat list. It has the number of each and the values of its patch (`authority.wire.patches`). `fulls` has an array
for
each: number, name, kind, epoch, sub, tick, owner, state. `gone` has the numbers of those that are not shown any more.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from fnmatch import translate
from re import compile as compile_pattern
from typing import Any, Final, NamedTuple

import cbor2

from batonpass.authority.fence import Fence
from batonpass.authority.wire.door import BASE_EVERY
from batonpass.authority.wire.patches import change_of
from batonpass.simserver.players.bases import Bases
from batonpass.simserver.players.cells import Cell
from batonpass.simserver.players.shown import ToldEntity, changed_since, full_row
from batonpass.simserver.players.sights import Sight, Sights, Unseen

__all__ = ["FRAME", "KEPT_S", "MAX_PATTERNS", "MAX_TOPICS", "Topic", "TopicKey", "TopicWatcher", "Topics"]

MAX_TOPICS: Final = 65_536
MAX_PATTERNS: Final = 256
"""Each of them is tried on every entity that comes."""

MAX_RESTING: Final = 1024
KEPT_S: Final = 20.0
"""For so long what a topic showed is kept for clients that come again, and a topic itself that none watches now."""

FRAME: Final = 1
"""The first member of a frame."""
_HEAD: Final = cbor2.dumps([FRAME, 0, 0, 0, 0, 0, 0, 0])[:2]
_NOTHING: Final = cbor2.dumps([])
# Of what type the shapes are of members that are replaced.
_FLAT: Final = frozenset({int})
# Of entities that were shown and are not: a watcher that has missed more is told everything.
_MAX_GONE: Final = 1024


class TopicKey(NamedTuple):
    """Which entities a topic shows, to whom and how often.

    `kind` is `entity`, `owner`, `pattern` or `cell`; `of` the name, the pattern, or the cell. Every `every`-th round is
    told. `viewer` is empty if all see the same.
    """

    kind: str
    of: Any
    every: int
    viewer: str


class TopicWatcher:
    """One that is told frames of a topic. `frame` is the last one that it was told; 0: none."""

    __slots__ = ("frame", "held", "tell", "who")

    def __init__(self, tell: Callable[[bytes], bool], who: object = None) -> None:
        self.who: Final = who
        self.frame = 0
        self.held = 0, 0
        """Frames of the topic that it has by an earlier connection: the last one, and the last base. 0: none."""
        self.tell: Final = tell
        """Takes a frame, unless it has not taken the last one yet; whether it did."""


def _array(count: int) -> bytes:
    """The head of an array (RFC 8949, section 3)."""
    if count < 24:
        return bytes([0x80 | count])
    for code, size in ((24, 1), (25, 2), (26, 4)):
        if count < 1 << 8 * size:
            return bytes([0x80 | code]) + count.to_bytes(size, "big")
    raise OverflowError("an array of more than 2^32 members")


class EntityDelta(NamedTuple):
    """What has changed of an entity: alike for all of the same `shape`, and `values` are those of its patch."""

    shape: Hashable
    values: list[Any]


class Encodings:
    """What several topics say of an entity in one round is encoded once."""

    def __init__(self, sights: Sights) -> None:
        self._sights: Final = sights
        self._deltas: Final[dict[tuple[int, int, int, str], tuple[Any, EntityDelta | None]]] = {}
        self._shapes: Final[dict[Hashable, bytes]] = {}
        self._fulls: Final[dict[tuple[int, int, str], tuple[Any, bytes]]] = {}
        self._has_failed = False
        self.made = 0
        """How many were made; the others were there already."""

    def clear(self) -> None:
        """A round has begun: what was seen in the last one is of the past."""
        self._deltas.clear()
        self._fulls.clear()
        self._shapes.clear()

    def full(self, sight: Sight, viewer: str) -> tuple[Any, bytes]:
        """All that there is to see of it, and that encoded as a member of `fulls`. Raises Unseen."""
        key = sight.number, sight.version, viewer
        found = self._fulls.get(key)
        if found is None:
            self.made += 1
            state = self._sights.view(sight, viewer)
            found = self._fulls[key] = (
                state,
                self._encoded(sight, full_row(sight, sight.tick, sight.fence, sight.owner, state)),
            )
        return found

    def delta(self, shown: ToldEntity, viewer: str) -> tuple[Any, EntityDelta | None]:
        """What there is to see of it, and what has changed; None if nothing has.

        Raises:
            Unseen: the world does not say.
        """
        sight = shown.sight
        key = sight.number, shown.version, sight.version, viewer
        found = self._deltas.get(key)
        if found is None:
            self.made += 1
            state = self._sights.view(sight, viewer)
            values: list[Any] = [sight.number]
            shape = change_of(shown.state, state, values)
            found = self._deltas[key] = state, None if shape is None else self._delta(sight, shape, values)
        return found

    def _delta(self, sight: Sight, shape: Any, values: list[Any]) -> EntityDelta:
        if self._sights.has_views or self._has_failed:
            # A state of the world was encoded before it was committed; a view may be anything.
            self._encoded(sight, values)
        is_flat = type(shape) is dict and _FLAT.issuperset(map(type, shape.values()))
        key: Hashable = tuple(shape) if is_flat else cbor2.dumps(shape)
        if key not in self._shapes:
            self._shapes[key] = cbor2.dumps(shape)
        return EntityDelta(key, values)

    def alike(self, ticks: int, shape: Hashable, deltas: Iterable[EntityDelta]) -> bytes:
        """The three members of `deltas` for entities that have changed alike.

        Raises:
            Unseen: one of them cannot be encoded; which one is looked for from now on.
        """
        try:
            rows = cbor2.dumps([value for delta in deltas for value in delta.values])
        except Exception as error:
            self._has_failed = True
            raise Unseen from error
        return b"".join((cbor2.dumps(ticks), self._shapes[shape], rows))

    def _encoded(self, sight: Sight, row: list[Any]) -> bytes:
        try:
            return cbor2.dumps(row)
        except Exception as error:
            raise self._sights.unseen(sight, error) from error


class Topic:
    """Some entities that are watched together; `Topics` has them."""

    def __init__(self, number: int, key: TopicKey, bases: Bases) -> None:
        self._bases: Final = bases
        # What those are told that come again, by the frame that they have: of frame `_again[0]`, without its head.
        self._again: tuple[int, dict[int, bytes]] = 0, {}
        self.rests = False
        """Nobody watches it, and it is kept for those that come again."""
        self.number: Final = number
        self.key: Final = key
        self.frame = 1
        """The last one that was told; each has its number, also if no watcher took it."""
        self.due = 0
        """The round with which it is told next."""
        self.watchers: Final[dict[TopicWatcher, None]] = {}
        self.members: Final[dict[int, Sight]] = {}
        """What it shows, by number."""
        self._shown: Final[dict[int, ToldEntity]] = {}
        self._changed: Final[dict[int, Sight]] = {}
        self._gone: Final[deque[tuple[int, int]]] = deque(maxlen=_MAX_GONE)
        self._oldest = 1
        # All of it as it was told last, for those that have nothing.
        self._whole: tuple[int, bytes] = 0, b""

    @property
    def is_new(self) -> bool:
        """Nothing was ever told of it."""
        return self.frame == 1 and self._whole[0] == 0

    def saw(self, sight: Sight) -> None:
        """What there is to see of one of its entities has changed."""
        self._changed[sight.number] = sight

    def add(self, sight: Sight) -> None:
        """An entity is one of its own now."""
        self.members[sight.number] = sight
        sight.topics += (self,)
        self.saw(sight)

    def drop(self, sight: Sight) -> None:
        """An entity is one of its own no more."""
        del self.members[sight.number]
        sight.topics = tuple([other for other in sight.topics if other is not self])
        if sight.number in self._shown:
            self.saw(sight)
        else:
            self._changed.pop(sight.number, None)

    def tell(self, round_number: int, encodings: Encodings) -> None:
        """Tell its watchers what has changed."""
        self.due = round_number + self.key.every
        base = self.frame
        told = self._advance(round_number, encodings)
        if told and self.frame % BASE_EVERY == 0:
            self._keep_base(round_number)
        for watcher in tuple(self.watchers):
            if watcher.frame != base:
                self.catch_up(watcher, round_number)
            elif told and watcher.tell(told):
                watcher.frame = self.frame

    def catch_up(self, watcher: TopicWatcher, round_number: int) -> None:
        """Tell a watcher what it missed, as far as others were told; it has nothing of the topic yet, or was slow."""
        if watcher.frame == self.frame:
            return
        frame = self._missed(watcher.frame, round_number) if watcher.frame else self._first(watcher.held, round_number)
        if watcher.tell(frame):
            watcher.frame = self.frame

    def rest(self, round_number: int) -> None:
        """Nobody watches it now. Who comes again has most likely all that was told."""
        self.rests = True
        self._keep_base(round_number)

    def _keep_base(self, round_number: int) -> None:
        shown = self._shown
        rows = {number: (one.tick, one.fence, one.owner, one.state) for number, one in shown.items()}
        size_bytes = sum([one.size_bytes for one in shown.values()])
        self._bases.keep(self.number, self.frame, rows, size_bytes, round_number)

    def _advance(self, round_number: int, encodings: Encodings) -> bytes:
        """The next frame, for those that have the last one; nothing if nothing has changed."""
        if not self._changed:
            return b""
        changed = list(self._changed.values())
        self._changed.clear()
        deltas: defaultdict[tuple[int, Hashable], list[EntityDelta]] = defaultdict(list)
        fulls: list[bytes] = []
        gone: list[int] = []
        for sight in changed:
            row = b""
            try:
                if sight.number not in self.members:
                    raise Unseen
                shown = self._shown.get(sight.number)
                if shown is None or shown.fence != sight.fence or shown.owner != sight.owner:
                    state, row = encodings.full(sight, self.key.viewer)
                    fulls.append(row)
                else:
                    state, delta = encodings.delta(shown, self.key.viewer)
                    if delta is None:
                        continue
                    deltas[sight.tick - shown.tick, delta.shape].append(delta)
            except Unseen:
                if self._shown.pop(sight.number, None) is not None:
                    gone.append(sight.number)
                continue
            if shown is None:
                self._shown[sight.number] = ToldEntity(sight, state, self.frame + 1, len(row))
            else:
                shown.becomes(state, self.frame + 1)
        groups = self._groups(deltas, encodings, gone)
        if not (groups or fulls or gone):
            return b""
        self.frame += 1
        self._note_gone(gone)
        head = self._head(self.frame - 1, round_number)
        return b"".join(
            (
                head,
                _array(3 * len(groups)),
                *groups,
                _array(len(fulls)),
                *fulls,
                cbor2.dumps(gone) if gone else _NOTHING,
            )
        )

    def _groups(
        self, deltas: Mapping[tuple[int, Hashable], list[EntityDelta]], encodings: Encodings, gone: list[int]
    ) -> list[bytes]:
        """What has changed alike, together; what cannot be encoded is gone, until it changes again."""
        groups: list[bytes] = []
        for alike, group in deltas.items():
            try:
                groups.append(encodings.alike(*alike, group))
            except Unseen:
                gone += (delta.values[0] for delta in group if self._shown.pop(delta.values[0], None) is not None)
        return groups

    def _note_gone(self, gone: list[int]) -> None:
        for number in gone:
            if len(self._gone) == _MAX_GONE:
                self._oldest = self._gone[0][0]
            self._gone.append((self.frame, number))

    def _head(self, base: int, round_number: int) -> bytes:
        return b"".join((_HEAD, *map(cbor2.dumps, (self.number, base, self.frame, round_number))))

    def _first(self, held: tuple[int, int], round_number: int) -> bytes:
        """What a watcher is told first that has these frames by an earlier connection."""
        for known in held:
            rows = self._bases.find(self.number, known)
            if rows is not None and known <= self.frame:
                if self._again[0] != self.frame:
                    self._again = self.frame, {}
                body = self._again[1].get(known)
                if body is None:
                    body = self._again[1][known] = changed_since(known, rows, self._shown)
                return self._head(known, round_number) + body
        return self._missed(held[0] if held[0] <= self.frame else 0, round_number)

    def _missed(self, known: int, round_number: int) -> bytes:
        """What a watcher needs that has the frame `known`: all that changed since, in full."""
        if known < self._oldest:
            known = 0
        if known == 0 and self._whole[0] == self.frame:
            return self._whole[1]
        rows = [cbor2.dumps(shown.row()) for shown in self._shown.values() if shown.frame > known]
        gone = {number for frame, number in self._gone if frame > known and number not in self._shown} if known else ()
        frame = b"".join(
            (self._head(known, round_number), _NOTHING, _array(len(rows)), *rows, cbor2.dumps(sorted(gone)))
        )
        if known == 0:
            self._whole = self.frame, frame
        return frame


class Topics:
    """All topics of one server: which shows which entity, and who watches it.

    Args:
        sights: what there is to see.
        kept_rounds: for so long is kept what those need that come again (`KEPT_S`).
    """

    def __init__(self, sights: Sights, kept_rounds: int = 400) -> None:
        self.sights: Final = sights
        self.bases: Final = Bases(kept_rounds)
        self._kept_rounds: Final = kept_rounds
        self._resting: Final[dict[Topic, int]] = {}
        self.encodings: Final = Encodings(sights)
        self._by_key: Final[dict[TopicKey, Topic]] = {}
        self._by_name: Final[dict[str, list[Topic]]] = {}
        self._by_owner: Final[dict[str, list[Topic]]] = {}
        self._by_cell: Final[dict[Cell, list[Topic]]] = {}
        self._by_pattern: Final[dict[Topic, Callable[[str], object]]] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._by_key) - len(self._resting)

    @property
    def resting(self) -> int:
        """How many nobody watches, which are kept for those that come again."""
        return len(self._resting)

    # --- who watches what ------------------------------------------------------------------------------------------

    def watch(self, key: TopicKey, watcher: TopicWatcher) -> Topic:
        """Have a watcher told of a topic, from `begin` on.

        Raises:
            ValueError: there is no room for another topic.
        """
        topic = self._by_key.get(key) or self._made(key)
        topic.watchers[watcher] = None
        self._resting.pop(topic, None)
        return topic

    def begin(self, topic: Topic, watcher: TopicWatcher, round_number: int) -> None:
        """Tell a watcher what there is now."""
        if topic.is_new or topic.rests:
            topic.rests = False
            topic.tell(round_number, self.encodings)
        else:
            topic.catch_up(watcher, round_number)

    def unwatch(self, topic: Topic, watcher: TopicWatcher) -> None:
        """A watcher is told nothing more; a topic without a watcher ends."""
        topic.watchers.pop(watcher, None)
        if not topic.watchers and self._by_key.get(topic.key) is topic:
            self._end(topic)

    def lose(self, topic: Topic, watcher: TopicWatcher, round_number: int) -> None:
        """The connection of a watcher has ended; it may come again, so its topic rests if it has no other one."""
        if topic.watchers.pop(watcher, self) is self or topic.watchers:
            return
        topic.rest(round_number)
        self._resting[topic] = round_number
        if len(self._resting) > MAX_RESTING:
            self._end(next(iter(self._resting)))

    def _end(self, topic: Topic) -> None:
        self._resting.pop(topic, None)
        del self._by_key[topic.key]
        self._unlist(topic)
        for sight in list(topic.members.values()):
            topic.drop(sight)

    def _end_resting(self, until_round: int | None = None) -> None:
        """End the topics that rest since this round or longer; all that rest."""
        for topic, since in list(self._resting.items()):
            if until_round is not None and since > until_round:
                return
            self._end(topic)

    def by_name(self, entity: str) -> Iterable[Topic]:
        """The topics of one entity."""
        return self._by_name.get(entity, ())

    def _made(self, key: TopicKey) -> Topic:
        if not self._has_room(key):
            self._end_resting()
        if not self._has_room(key):
            raise ValueError("too many different things are watched on this server: there is no room for another")
        topic = Topic(self._next, key, self.bases)
        self._next += 1
        self._by_key[key] = topic
        for sight in self._listed(topic):
            topic.add(sight)
        return topic

    def _has_room(self, key: TopicKey) -> bool:
        return len(self._by_key) < MAX_TOPICS and (key.kind != "pattern" or len(self._by_pattern) < MAX_PATTERNS)

    def _listed(self, topic: Topic) -> list[Sight]:
        """Have a topic found by what it shows; what it shows now."""
        match topic.key.kind:
            case "pattern":
                # `translate` makes an expression without choices, in which nothing has to be tried again.
                matches = self._by_pattern[topic] = compile_pattern(translate(topic.key.of)).match
                return [sight for sight in self.sights if matches(sight.name)]
            case kind:
                self._index(kind).setdefault(topic.key.of, []).append(topic)
        match kind:
            case "owner":
                return list(self.sights.of_owner(topic.key.of))
            case "cell":
                self.sights.need_cells()
                return list(self.sights.in_cell(topic.key.of))
            case _:
                sight = self.sights.get(topic.key.of)
                return [] if sight is None else [sight]

    def _index(self, kind: str) -> dict[Any, list[Topic]]:
        indices: dict[str, dict[Any, list[Topic]]] = {
            "entity": self._by_name,
            "owner": self._by_owner,
            "cell": self._by_cell,
        }
        return indices[kind]

    def _unlist(self, topic: Topic) -> None:
        if topic.key.kind == "pattern":
            del self._by_pattern[topic]
            return
        index = self._index(topic.key.kind)
        index[topic.key.of].remove(topic)
        if not index[topic.key.of]:
            del index[topic.key.of]

    # --- what there is to see --------------------------------------------------------------------------------------

    def show(
        self,
        name: str,
        kind: str,
        owner: str,
        fence: Fence,
        tick: int,
        state: Any,
        look: Callable[[], Any] | None = None,
    ) -> None:
        """An entity is here, and is so: new, or changed in any way. As `Sights.show`."""
        known = self.sights.get(name)
        before = None if known is None else (known.owner, known.cell)
        sight = self.sights.show(name, kind, owner, fence, tick, state, look)
        if before != (sight.owner, sight.cell):
            self._rematch(sight)
        for topic in sight.topics:
            topic.saw(sight)

    def stepped(self, name: str, tick: int, state: Any) -> None:
        """An entity has ticked; nothing if it is not shown."""
        sight = self.sights.get(name)
        if sight is None:
            return
        cell = sight.cell
        self.sights.stepped(sight, tick, state)
        if sight.cell != cell:
            self._rematch(sight)
        for topic in sight.topics:
            topic.saw(sight)

    def remove(self, name: str) -> None:
        """An entity is not here any more."""
        sight = self.sights.remove(name)
        if sight is not None:
            for topic in sight.topics:
                topic.drop(sight)

    def _rematch(self, sight: Sight) -> None:
        """Find the topics that show it."""
        found = [*self._by_name.get(sight.name, ()), *self._by_owner.get(sight.owner, ())]
        if sight.cell is not None:
            found += self._by_cell.get(sight.cell, ())
        found += [topic for topic, matches in self._by_pattern.items() if matches(sight.name)]
        before = sight.topics
        for topic in before:
            if topic not in found:
                topic.drop(sight)
        for topic in found:
            if topic not in before:
                topic.add(sight)

    def forget(self) -> None:
        """There is no watcher: nothing is kept of what there is to see."""
        self._end_resting()
        self.bases.clear()
        self.sights.clear()
        self.encodings.clear()

    def tell(self, round_number: int) -> None:
        """A round is over: tell the watchers of all topics that are due."""
        self.encodings.clear()
        self.bases.expire(round_number)
        self._end_resting(round_number - self._kept_rounds)
        for topic in self._by_key.values():
            if round_number >= topic.due and not topic.rests:
                topic.tell(round_number, self.encodings)
