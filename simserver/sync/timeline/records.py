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

from batonpass.simserver.sync.timeline.times import ExtendedTime, parts_of

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
    "UNUSED",
    "VALID",
    "EventRecord",
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
UNDO: Final[Mapping[str, str]] = {ORPHANED: UNUSED}


class EventRecord:
    """One event of the history.

    Attributes:
        time: its place; no two records have the same.
        event: what is executed.
        state: see the module.
        made_at: when the event was that predicted it; None for a fiat event.
        asked: whether a fiat, or the event that predicted it, asks for it.
        cancels: the times of the events that cancel it.
        queued: whether the steward's queue has it.
        reads: the timelines that it read.
        writes: those of which it has an operation.
        predictions: the times of the events that it predicted.
        cancelled: the records of the predictions that it cancelled.
        effects: what it told the world outside.
    """

    __slots__ = (
        "asked",
        "cancelled",
        "cancels",
        "effects",
        "event",
        "made_at",
        "predictions",
        "queued",
        "reads",
        "state",
        "time",
        "writes",
    )

    def __init__(self, time: ExtendedTime, event: "TimelineEvent", made_at: ExtendedTime | None) -> None:
        self.time: Final = time
        self.event = event
        self.made_at: Final = made_at
        self.state = UNUSED
        self.asked = False
        self.queued = False
        self.cancels: tuple[ExtendedTime, ...] = ()
        self.reads: tuple[DataTimeline, ...] = ()
        self.writes: tuple[DataTimeline, ...] = ()
        self.predictions: tuple[ExtendedTime, ...] = ()
        self.cancelled: tuple[EventRecord, ...] = ()
        self.effects: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        base, iteration, priority, id = parts_of(self.time)
        return f"{self.event!r} at {base} (iteration {iteration}, priority {priority}, id {id:032x}), {self.state}"
