"""What you write: events, and what an event may do, which is what its accessor has."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, TypeVar

from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from batonpass.simserver.sync.timeline.data import CounterTimeline, DataTimeline
from batonpass.simserver.sync.timeline.times import MAX_PRIORITY, ExtendedTime

__all__ = ["Accessor", "SameEventAgain", "TimelineAbsent", "TimelineEvent", "TimelinePrediction", "WrongUse"]

_Timeline = TypeVar("_Timeline", bound=DataTimeline)


class WrongUse(ValueError):
    """An event does what none may; the sentence names it and the remedy."""


class TimelineAbsent(WrongUse):
    """An event reads or writes a timeline that is not made yet, or is destroyed."""


class SameEventAgain(WrongUse):
    """An event predicts its equal for its own time: that would be without end."""


class TimelineEvent(ABC):
    """Something that happens at one moment. Make yours frozen dataclasses with slots; the fields are values.

    `execute` depends on the fields and on what the accessor gives, and on nothing else. There is no clock, no dice but
    the accessor's, no float, no set that is iterated over, no variable outside. It may be executed again, or undone.
    """

    __slots__ = ()

    type_id: ClassVar[int] = 0
    """Persistent: a number of 64 bits that stands for the class in what is saved, for ever."""
    priority: ClassVar[int] = 0
    """Among simultaneous events the lower comes first; -1,000 to 1,000."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        priority: Any = cls.priority
        if isinstance(priority, int) and not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
            raise WrongUse(f"{cls.__name__} has the priority {priority}: give -{MAX_PRIORITY} to {MAX_PRIORITY}")

    @abstractmethod
    def execute(self, now: "Accessor") -> None:
        """Do it."""


class TimelinePrediction(NamedTuple):
    """An event that will happen unless it is cancelled."""

    time: ExtendedTime
    """Also the handle by which it is cancelled."""
    event: TimelineEvent


class Accessor(ABC):
    """All that an event may know and do. What it does is done when `execute` has returned, and not if it raises."""

    __slots__ = ()

    time: ExtendedTime
    """When the event happens, in the order of all events."""
    now: int
    """When it happens, in the unit of the simulation."""

    @property
    @abstractmethod
    def globals(self) -> Any:
        """What the simulation was made with: the way to its timelines."""

    @property
    @abstractmethod
    def generator(self) -> Xoshiro128:
        """The dice of this event, which follow from its identity."""

    @abstractmethod
    def read(self, timeline: DataTimeline) -> Any:
        """Return the value of a timeline; the event is executed again when it has become another one.

        Raises:
            TimelineAbsent: it is not there at this time.
        """

    @abstractmethod
    def peek(self, timeline: DataTimeline) -> Any:
        """Return the value of a timeline without a record of it, for a dependency that you record by `depend`.

        An event that depends on a change and is not told of it is a fault that only the auditor finds.
        """

    @abstractmethod
    def depend(self, timeline: DataTimeline) -> None:
        """Have the event executed again when the value of a timeline, or of one whose dependents it has, is another."""

    @abstractmethod
    def write(self, timeline: DataTimeline, operation: Any) -> None:
        """Put an operation of this event on a timeline in place of a former one of this event; mostly, the new value.

        Raises:
            TimelineAbsent: it is not there at this time.
        """

    @abstractmethod
    def create(self, kind: type[_Timeline], initial: Any) -> _Timeline:
        """Make a timeline with a first operation. Its identity follows from this event, and so is the same again."""

    @abstractmethod
    def destroy(self, timeline: DataTimeline) -> None:
        """End a timeline: an event that reads it later gets `TimelineAbsent`."""

    @abstractmethod
    def predict(self, base: int, event: TimelineEvent) -> ExtendedTime:
        """Have an event happen at a time, this one's own or a later one. Returns the handle to cancel it.

        Raises:
            PastPredicted, EndlessEvents: see `times.following`.
            SameEventAgain: it is equal to this event, and for its own time.
        """

    @abstractmethod
    def cancel(self, prediction: ExtendedTime) -> None:
        """Have a predicted event not happen; nothing, if it has happened, or is cancelled already.

        Raises:
            WrongUse: it is an input.
        """

    @abstractmethod
    def effect(self, what: Any) -> None:
        """Tell the world outside: a sound, a score. It is told again as retracted if this turns out not to be."""

    def add(self, counter: CounterTimeline, amount: int) -> None:
        """Add to a sum without depending on it."""
        self.write(counter, amount)
