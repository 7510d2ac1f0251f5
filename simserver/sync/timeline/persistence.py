"""The whole network of timelines, values and predictions as bytes, and back; handles may point in circles.

What is saved has no class names in it, which change when modules do, but persistent type ids: one random number of 64
bits for each class. The bytes are canonical (`lockstep.canonical`): equal states have equal bytes on all machines.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple, Protocol

from batonpass.simserver.sync.lockstep.canonical import (
    MAX_INTEGER,
    MAX_LEVELS,
    NotCanonical,
    decode_untrusted_state,
    encode,
    encode_frozen,
    freeze,
)
from batonpass.simserver.sync.timeline.composites import GridTimeline, OrderedSetTimeline, order_of
from batonpass.simserver.sync.timeline.data import ConstantTimeline, CounterTimeline, DataTimeline, ValueTimeline
from batonpass.simserver.sync.timeline.events import TimelineEvent, TimelinePrediction
from batonpass.simserver.sync.timeline.sameness import ABSENT
from batonpass.simserver.sync.timeline.snapshot import STEP_ITEMS, Steps
from batonpass.simserver.sync.timeline.steward import SavedTimeline, TimeSteward
from batonpass.simserver.sync.timeline.times import BASE_SHIFT, ExtendedTime
from batonpass.simserver.sync.timeline.trajectory import Trajectory, TrajectoryTimeline

__all__ = ["NotPersistent", "PersistentTypes", "StateView", "dump", "dump_in_pieces", "load_untrusted"]

_OWN: Final = (
    ConstantTimeline,
    CounterTimeline,
    GridTimeline,
    OrderedSetTimeline,
    Trajectory,
    TrajectoryTimeline,
    ValueTimeline,
)
_FORM: Final = 1
_LEVELS: Final = MAX_LEVELS - 2
"""Two are those of the pieces in the whole."""


class NotPersistent(ValueError):
    """A value, or a class, cannot be saved, or bytes are nothing that was; the sentence says why."""


class StateView(Protocol):
    """What can be dumped: a snapshot, or the state of a replay."""

    @property
    def time(self) -> ExtendedTime:
        """Before which events it is the state."""

    @property
    def globals(self) -> Any:
        """As of the steward."""

    def timelines_in_steps(self) -> Steps[list[DataTimeline]]:
        """The timelines that are there, by their identities."""

    def places_in_steps(self, timeline: DataTimeline) -> Steps[Mapping[Any, Any]]:
        """The places of a timeline, None for itself, with their values; those with the default may be missing."""

    def predictions_in_steps(self) -> Steps[list[TimelinePrediction]]:
        """What will happen, in order."""


class PersistentTypes:
    """The classes of a simulation that may be saved: kinds of events, frozen dataclasses, kinds of timelines.

    Args:
        kinds: yours; those of this room are known.

    Raises:
        NotPersistent: one has no type id of 64 bits, or that of another, or is no class that can be saved.
    """

    def __init__(self, kinds: Iterable[type]) -> None:
        self._kinds: Final[dict[int, type]] = {}
        for kind in (*_OWN, *kinds):
            id = getattr(kind, "type_id", 0)
            if type(id) is not int or not 0 < id < 1 << 64:
                raise NotPersistent(f"{kind.__name__} has no type_id: give it a random number of 64 bits")
            if self._kinds.setdefault(id, kind) is not kind:
                raise NotPersistent(f"{kind.__name__} has the type_id of {self._kinds[id].__name__}: give it its own")
            if not issubclass(kind, DataTimeline) and not is_dataclass(kind):
                raise NotPersistent(f"{kind.__name__} is neither a timeline nor a dataclass")

    def kind(self, id: Any) -> type:
        """Return the class of a type id. Raises `NotPersistent` if it is unknown."""
        kind = self._kinds.get(int(id, 16)) if isinstance(id, str) else None
        if kind is None:
            raise NotPersistent(f"the type id {id!r} is unknown: this was saved by another simulation, or a newer one")
        return kind

    def plain(self, value: Any) -> Any:
        """Return a value as plain data. Raises `NotPersistent` if it has none."""
        if value is None or isinstance(value, bool | str | bytes):
            return value
        if type(value) is int:
            return value if -MAX_INTEGER <= value <= MAX_INTEGER else ["int", f"{value:x}"]
        if type(value) is tuple:
            return ["tuple", *map(self.plain, value)]
        if type(value) is Fraction:
            return ["ratio", self.plain(value.numerator), self.plain(value.denominator)]
        kind = type(value)
        if self._kinds.get(getattr(kind, "type_id", 0)) is not kind:
            raise NotPersistent(f"{value!r} of {kind.__name__} cannot be saved: {_remedy(kind)}")
        if isinstance(value, DataTimeline):
            return ["timeline", f"{kind.type_id:x}", f"{value.id:x}"]
        return ["object", f"{kind.type_id:x}", *[self.plain(getattr(value, field.name)) for field in fields(value)]]

    def event_untrusted(self, plain: Any) -> TimelineEvent:
        """Return the event of plain data that any peer may have sent. Raises `NotPersistent` if it is none.

        Its fields may have any values that can be saved, but no handles: what those point at would depend on who reads.
        """
        try:
            return _event(self.value(plain, None))
        except NotPersistent:
            raise
        except (ValueError, TypeError, KeyError, ZeroDivisionError) as error:
            raise NotPersistent(f"{plain!r:.200} is no event: {error}") from error

    def value(self, plain: Any, timelines: "_Timelines | None") -> Any:
        """Return the value of plain data that may come from any peer; without `timelines`, handles are refused.

        Raises:
            NotPersistent: it is none.
        """
        match plain:
            case None | bool() | int() | str() | bytes():
                return plain
            case ("int", str(digits)):
                return int(digits, 16)
            case ("tuple", *members):
                return tuple([self.value(member, timelines) for member in members])
            case ("ratio", numerator, denominator):
                return Fraction(self.value(numerator, timelines), self.value(denominator, timelines))
            case ("timeline", kind, str(id)) if timelines is not None:
                return timelines.get(self.timeline_kind(kind), int(id, 16))
            case ("object", id, *parts):
                kind = self.kind(id)
                if not is_dataclass(kind) or len(fields(kind)) != len(parts):
                    raise NotPersistent(f"{kind.__name__} has not {len(parts)} fields: it was saved by another release")
                values = [self.value(part, timelines) for part in parts]
                return kind(**{field.name: value for field, value in zip(fields(kind), values, strict=True)})
            case _:
                raise NotPersistent(f"{plain!r:.200} is no value that was saved")

    def timeline_kind(self, id: Any) -> type[DataTimeline]:
        """Return the kind of timeline of a type id. Raises `NotPersistent` if it is none."""
        kind = self.kind(id)
        if not issubclass(kind, DataTimeline):
            raise NotPersistent(f"{kind.__name__} is no timeline")
        return kind


class _Timelines(NamedTuple):
    """The timelines of what is loaded: made when they are named first, so that handles may point in circles."""

    known: dict[int, DataTimeline]

    def get(self, kind: type[DataTimeline], id: int) -> DataTimeline:
        timeline = self.known.get(id)
        if timeline is None:
            timeline = self.known[id] = kind(id)
        if type(timeline) is not kind:
            raise NotPersistent(f"{id:032x} is named as {kind.__name__} and as {type(timeline).__name__}")
        return timeline


def dump(view: StateView, types: PersistentTypes) -> bytes:
    """Return a state as canonical bytes. Raises `NotPersistent`: a value in it cannot be saved; it is named."""
    return b"".join(dump_in_pieces(view, types))


def dump_in_pieces(view: StateView, types: PersistentTypes) -> Iterator[bytes]:
    """Give what `dump` returns piece by piece, some of which are empty.

    A piece takes what one value, one timeline or one prediction takes; what has many members or places is several. The
    simulation may continue between two pieces, and be changed in its past, if `view` is a snapshot: so an autosave
    takes it no longer than it pleases.
    """
    yield _array_head(5) + _written(_FORM, "form") + _written(f"{view.time:x}", "time")
    yield from _value_in_pieces(view.globals, types, "globals")
    timelines = yield from view.timelines_in_steps()
    yield _array_head(len(timelines))
    for timeline in timelines:
        yield from _timeline_in_pieces(view, timeline, types)
    predictions = yield from view.predictions_in_steps()
    yield _array_head(len(predictions))
    for time, event in predictions:
        yield _written([f"{time:x}", types.plain(event)], repr(event))


def _value_in_pieces(value: Any, types: PersistentTypes, path: str) -> Iterator[bytes]:
    """A long tuple, some members at a time; any other value at once."""
    if type(value) is not tuple or len(value) <= STEP_ITEMS:
        yield _written(types.plain(value), path)
        return
    yield _array_head(len(value) + 1) + _written("tuple", path)
    for first in range(0, len(value), STEP_ITEMS):
        members = value[first : first + STEP_ITEMS]
        # One level is that of the tuple.
        yield b"".join([_written(types.plain(member), path, _LEVELS - 1) for member in members])


def _timeline_in_pieces(view: StateView, timeline: DataTimeline, types: PersistentTypes) -> Iterator[bytes]:
    """A timeline, some places at a time."""
    found = yield from view.places_in_steps(timeline)
    there = [row for row in found.items() if row[1] is not ABSENT]
    places = sorted(there, key=lambda row: (row[0] is not None, _order(row[0])))
    path = repr(timeline)
    names = _written(f"{type(timeline).type_id:x}", path) + _written(f"{timeline.id:x}", path)
    piece = _array_head(3) + names + _array_head(len(places))
    for first in range(0, len(places), STEP_ITEMS):
        rows = places[first : first + STEP_ITEMS]
        # Two levels are those of the timeline and of its places.
        yield piece + b"".join(
            [_written([types.plain(key), types.plain(value)], path, _LEVELS - 2) for key, value in rows]
        )
        piece = b""
    if piece:
        yield piece


def load_untrusted(data: bytes, types: PersistentTypes) -> TimeSteward:
    """Return a steward that continues from what `dump` gave; its later dumps are those of the first one.

    Fiat events of later times are not in it: insert them again. Before its time nothing is to be had.

    Raises:
        NotPersistent: the bytes are no dump, or have a type id that `types` does not know.
    """
    try:
        form, time, plain_globals, rows, predicted = decode_untrusted_state(data)
        if form != _FORM:
            raise NotPersistent(f"this was saved in form {form!r}; this release reads form {_FORM}")
        timelines = _Timelines({})
        saved = [
            SavedTimeline(
                timelines.get(types.timeline_kind(kind), int(id, 16)),
                [(types.value(key, timelines), types.value(value, timelines)) for key, value in places],
            )
            for kind, id, places in rows
        ]
        predictions = [
            TimelinePrediction(ExtendedTime(int(at, 16)), _event(types.value(event, timelines)))
            for at, event in predicted
        ]
        globals = types.value(plain_globals, timelines)
        return TimeSteward.restored(int(time, 16) >> BASE_SHIFT, globals, saved, timelines.known, predictions)
    except NotPersistent:
        raise
    except (NotCanonical, ValueError, TypeError, KeyError, ZeroDivisionError) as error:
        raise NotPersistent(f"these {len(data)} bytes are no saved timeline: {error}") from error


def _array_head(length: int) -> bytes:
    """The canonical head of an array: that of an integer, but for its major type."""
    head = bytearray(encode(length))
    head[0] |= 0x80
    return bytes(head)


def _written(value: Any, path: str, levels: int = _LEVELS) -> bytes:
    try:
        return encode_frozen(freeze(value, path, levels))
    except NotCanonical as error:
        raise NotPersistent(f"this state cannot be saved: {error}") from error


def _event(value: Any) -> TimelineEvent:
    if not isinstance(value, TimelineEvent):
        raise NotPersistent(f"{value!r} is no event")
    return value


def _order(key: Any) -> tuple[Any, ...]:
    return () if key is None else order_of(key)


def _remedy(kind: type) -> str:
    if kind is float:
        return "machines write floats alike but simulations drift by them; give integers, or a Fraction"
    if kind in (list, dict, set):
        return "it can be changed behind the timeline's back; give a tuple, or a timeline"
    if issubclass(kind, DataTimeline):
        return "name it in PersistentTypes, with a type_id; if it is a place in a timeline, save timeline and place"
    return "make it a frozen dataclass with a type_id, and name it in PersistentTypes"
