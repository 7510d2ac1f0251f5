"""What is known of one event: whether it should be in the history, whether it is, and what it did there.

    state      should be there   is there   with the inputs that it would find now
    UNUSED     no                no
    SCHEDULED  yes               no
    VALID      yes               yes        yes
    INVALID    yes               yes        no: something that it read has changed
    ORPHANED   no                yes

What can happen to it is a mapping from each state in which it can; there are no other ways.
Source: the states of TimeSteward's amortized steward.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from batonpass.simserver.sync.timeline.times import BASE_SHIFT, ExtendedTime, parts_of

if TYPE_CHECKING:
    from batonpass.simserver.sync.timeline.data import DataTimeline
    from batonpass.simserver.sync.timeline.events import TimelineEvent

__all__ = [
    "EXECUTE",
    "INVALID",
    "INVALIDATE",
    "LINK",
    "ORPHANED",
    "SCHEDULED",
    "UNDO",
    "UNLINK",
    "UNTOUCHED",
    "UNUSED",
    "VALID",
    "EventRecord",
    "Footprint",
    "is_gone",
    "new_record",
]


# Plain texts: the hash of a member of an Enum is computed in Python, several times for each event.
UNUSED: Final = "unused"
SCHEDULED: Final = "scheduled"
VALID: Final = "valid"
INVALID: Final = "invalid"
ORPHANED: Final = "orphaned"

LINK: Final[Mapping[str, str]] = {
    UNUSED: SCHEDULED,
    # What it did may be out of date, and it may be another event at the same place.
    ORPHANED: INVALID,
}
"""A fiat or a prediction asks for it."""
UNLINK: Final[Mapping[str, str]] = {SCHEDULED: UNUSED, VALID: ORPHANED, INVALID: ORPHANED}
"""Nothing asks for it any more."""
EXECUTE: Final[Mapping[str, str]] = {SCHEDULED: VALID, INVALID: VALID}
INVALIDATE: Final[Mapping[str, str]] = {VALID: INVALID, INVALID: INVALID, ORPHANED: ORPHANED}
"""Something that it read has changed."""
UNDO: Final[Mapping[str, str]] = {ORPHANED: UNUSED}


Footprint = tuple[Any, ...]
"""What an event touches: how often it asks a timeline, each of these timelines, and those that it writes."""
UNTOUCHED: Final[Footprint] = (0,)


class _SeldomNotes:
    """What few events have.

    Attributes:
        cancels: the times of the events that cancel it.
        cancelled: the records of the predictions that it cancelled.
        effects: what it told the world outside.
    """

    __slots__ = ("cancelled", "cancels", "effects")

    def __init__(self) -> None:
        self.cancels: tuple[ExtendedTime, ...] = ()
        self.cancelled: tuple[EventRecord, ...] = ()
        self.effects: tuple[Any, ...] = ()


class EventRecord:
    """One event of the history. There may be a million, so it has few slots, and what few events have is apart.

    It has no `__init__`, which would take as long as all that is written there: `new_record` fills it in, and so does
    `EventAccessor.predict`.

    Attributes:
        time: its place; no two records have the same.
        base: the base of that time.
        number: how many things the event that predicted it had made before; which of them it is.
        event: what is executed.
        state: see the module.
        made_at: when the event was that predicted it; None for a fiat event.
        asked: whether a fiat, or the event that predicted it, asks for it.
        touched: once it is there, what it touched; before, what the event touched that predicted it: mostly the same.
        made: the records of the events that it predicted: None, the only one, or a tuple.
        seldom: the rest; None if there is none.
    """

    __slots__ = ("asked", "base", "event", "made", "made_at", "number", "seldom", "state", "time", "touched")

    time: ExtendedTime
    base: int
    number: int
    event: "TimelineEvent"
    state: str
    made_at: ExtendedTime | None
    asked: bool
    touched: Footprint
    made: "EventRecord | tuple[EventRecord, ...] | None"
    seldom: _SeldomNotes | None

    def __repr__(self) -> str:
        base, iteration, priority, id = parts_of(self.time)
        return f"{self.event!r} at {base} (iteration {iteration}, priority {priority}, id {id:032x}), {self.state}"

    @property
    def is_there(self) -> bool:
        """Whether the history has what it did."""
        return self.state is not UNUSED and self.state is not SCHEDULED

    @property
    def reads(self) -> "tuple[DataTimeline, ...]":
        """The timelines that it read."""
        touched = self.touched
        return tuple(dict.fromkeys(touched[1 : touched[0] + 1])) if self.is_there else ()

    @property
    def writes(self) -> "tuple[DataTimeline, ...]":
        """The timelines of which it has an operation."""
        return self.touched[self.touched[0] + 1 :] if self.is_there else ()

    @property
    def predicted(self) -> "tuple[EventRecord, ...]":
        """The records of the events that it predicted."""
        made = self.made
        return () if made is None else made if isinstance(made, tuple) else (made,)

    @property
    def predictions(self) -> tuple[ExtendedTime, ...]:
        """The times of the events that it predicted."""
        return tuple([one.time for one in self.predicted])

    @property
    def cancels(self) -> tuple[ExtendedTime, ...]:
        """The times of the events that cancel it."""
        return () if self.seldom is None else self.seldom.cancels

    @cancels.setter
    def cancels(self, times: tuple[ExtendedTime, ...]) -> None:
        self._with_seldom().cancels = times

    @property
    def cancelled(self) -> "tuple[EventRecord, ...]":
        """The records of the predictions that it cancelled."""
        return () if self.seldom is None else self.seldom.cancelled

    @cancelled.setter
    def cancelled(self, records: "tuple[EventRecord, ...]") -> None:
        self._with_seldom().cancelled = records

    @property
    def effects(self) -> tuple[Any, ...]:
        """What it told the world outside."""
        return () if self.seldom is None else self.seldom.effects

    @effects.setter
    def effects(self, effects: tuple[Any, ...]) -> None:
        self._with_seldom().effects = effects

    def _with_seldom(self) -> _SeldomNotes:
        if self.seldom is None:
            self.seldom = _SeldomNotes()
        return self.seldom


def new_record(time: ExtendedTime, event: "TimelineEvent", made_at: ExtendedTime | None) -> EventRecord:
    """Return the record of an event that is not asked for yet."""
    record = EventRecord()
    record.time = time
    record.base = time >> BASE_SHIFT
    record.number = -1
    record.event = event
    record.state = UNUSED
    record.made_at = made_at
    record.asked = False
    record.touched = UNTOUCHED
    record.made = record.seldom = None
    return record


def is_gone(record: EventRecord, time: ExtendedTime) -> bool:
    """Whether an event that is not there never will be: what predicted and what cancelled it is before a time."""
    made_at = record.made_at
    return made_at is not None and made_at < time and any(cancelled_at < time for cancelled_at in record.cancels)
