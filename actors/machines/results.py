"""What the callbacks of a state machine may return: where it goes, and actions, which are done in their order. Pure.

====================================  ==================================================================================
result                                the machine
====================================  ==================================================================================
`NextState(state, data, actions)`     goes to `state`. If that is another one: what was postponed comes again, and the
                                      state timeout is over
`KeepState(data, actions)`            stays; None means `KeepState()`
`RepeatState(data, actions)`          stays, and with `state_enter` enters its state once more
`Stop(reason, data)`                  ends
====================================  ==================================================================================

Data that is left out stays as it is. Of an action on the same timeout the last one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, final

from batonpass.actors.core.checks import need_delay
from batonpass.actors.core.server import KEEP, Hibernate, Ignore, Ok, Stop
from batonpass.actors.machines.events import (
    CallEvent,
    CastEvent,
    EventTimeout,
    InfoEvent,
    InternalEvent,
    NamedTimeout,
    StateTimeout,
)

if TYPE_CHECKING:
    from batonpass.actors.core.ref import From
    from batonpass.actors.machines.events import MachineEvent, TimeoutEvent

__all__ = [
    "POSTPONE",
    "Action",
    "CancelTimeout",
    "FirstResult",
    "FirstState",
    "KeepState",
    "NextEvent",
    "NextState",
    "Postpone",
    "RepeatState",
    "ReplyTo",
    "StartTimeout",
    "Transition",
    "UpdateTimeout",
]

MachineStateT = TypeVar("MachineStateT")
DataT = TypeVar("DataT")

_TIMEOUTS: Final = (StateTimeout, EventTimeout, NamedTimeout)
_INSERTABLE: Final = (CallEvent, CastEvent, InfoEvent, InternalEvent, *_TIMEOUTS)


class Postpone(Enum):
    """The type of `POSTPONE`."""

    POSTPONE = "postpone"


POSTPONE: Final = Postpone.POSTPONE
"""Keep this event, and bring it again when the state has changed, before events that came later."""


@final
@dataclass(slots=True)
class NextEvent:
    """Have `event` handled next, before everything that waits. Several come in their order.

    It may be of any kind but `EnterEvent`: an `InternalEvent` is one that nobody else can send. Raises `TypeError`.
    """

    event: MachineEvent

    def __post_init__(self) -> None:
        if not isinstance(self.event, _INSERTABLE):
            raise TypeError(f"an event that is inserted is one of a machine's, and no EnterEvent, not {self.event!r}")


@final
@dataclass(slots=True)
class ReplyTo:
    """Answer a caller: `from_` of a `CallEvent`, this one or an earlier one."""

    from_: From
    value: Any


@final
@dataclass(slots=True)
class StartTimeout:
    """Bring `event` in `delay_s` seconds; with `absolute`, at `delay_s` on `trio.current_time`.

    One that runs already, of the same kind and name, starts anew. With 0 it comes before any message that has not been
    taken out of the mailbox yet. With None it never comes, so that one that runs is stopped. Raises `TypeError`,
    `ValueError` for what is no number or no timeout.
    """

    delay_s: float | None
    event: TimeoutEvent
    absolute: bool = False

    def __post_init__(self) -> None:
        if self.delay_s is not None:
            need_delay("delay_s of a timeout", self.delay_s)
        _need_timeout(self.event)


@final
@dataclass(slots=True)
class UpdateTimeout:
    """Have the timeout that runs bring `event` instead, when its time is over. If none runs: at once, as with 0."""

    event: TimeoutEvent

    def __post_init__(self) -> None:
        _need_timeout(self.event)


@final
@dataclass(slots=True)
class CancelTimeout:
    """Stop the timeout of this kind: `StateTimeout`, `EventTimeout`, or `NamedTimeout(name)`."""

    timeout: type[StateTimeout] | type[EventTimeout] | NamedTimeout

    def __post_init__(self) -> None:
        if self.timeout not in (StateTimeout, EventTimeout):
            _need_timeout(self.timeout)


def _need_timeout(event: object) -> None:
    if not isinstance(event, _TIMEOUTS):
        raise TypeError(f"a timeout is a StateTimeout, an EventTimeout or a NamedTimeout, not {event!r}")


Action: TypeAlias = Postpone | Hibernate | NextEvent | ReplyTo | StartTimeout | UpdateTimeout | CancelTimeout


@final
class FirstState(Ok[tuple[MachineStateT, DataT]]):
    """From `init`: the first state, the data, and actions, which are done when the start has succeeded."""

    __slots__ = ("actions",)

    def __init__(self, state: MachineStateT, data: DataT, actions: Sequence[Action] = ()) -> None:
        super().__init__((state, data))
        self.actions = actions


@final
@dataclass(slots=True)
class NextState(Generic[MachineStateT, DataT]):
    """Go to `state`, which may be the present one."""

    state: MachineStateT
    data: DataT = KEEP
    actions: Sequence[Action] = ()


@final
@dataclass(slots=True)
class KeepState(Generic[DataT]):
    """Stay in this state."""

    data: DataT = KEEP
    actions: Sequence[Action] = ()


@final
@dataclass(slots=True)
class RepeatState(Generic[DataT]):
    """Stay in this state, and enter it once more."""

    data: DataT = KEEP
    actions: Sequence[Action] = ()


FirstResult: TypeAlias = FirstState[MachineStateT, DataT] | Ignore | Stop[Any]
Transition: TypeAlias = NextState[MachineStateT, DataT] | KeepState[DataT] | RepeatState[DataT] | Stop[DataT] | None
