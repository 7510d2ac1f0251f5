"""What a state machine is told: one value for each event, to be taken apart by `match`. Pure.

====================  ============================================================================  ====================
event                 comes from                                                                    in gen_statem
====================  ============================================================================  ====================
`CallEvent`           `await ref.call(request)`; answer with `ReplyTo`, now or later                `{call, From}`
`CastEvent`           `ref.cast(message)`                                                           `cast`
`InfoEvent`           `ref.send`, `Down`, `Tick`, and whatever else the runtime sends               `info`
`InternalEvent`       the machine itself, with `NextEvent`                                          `internal`
`EnterEvent`          the state has just become this one (only with `state_enter`)                  `enter`
`StateTimeout`        `StartTimeout`, unless the state has changed before                           `state_timeout`
`EventTimeout`        `StartTimeout`, unless any event has come before                              `timeout`
`NamedTimeout`        `StartTimeout`; several can run, each by its name                             `{timeout, Name}`
====================  ============================================================================  ====================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

from batonpass.actors.base.exact_keys import exact

if TYPE_CHECKING:
    from collections.abc import Hashable

    from batonpass.actors.core.ref import From

__all__ = [
    "CallEvent",
    "CastEvent",
    "EnterEvent",
    "EventTimeout",
    "InfoEvent",
    "InternalEvent",
    "MachineEvent",
    "NamedTimeout",
    "StateTimeout",
    "TimeoutEvent",
    "timeout_key",
]


@final
@dataclass(slots=True)
class CallEvent:
    """A caller waits for an answer to `request`."""

    request: Any
    from_: From


@final
@dataclass(slots=True)
class CastEvent:
    """A sender says `message`, and waits for nothing."""

    message: Any


@final
@dataclass(slots=True)
class InfoEvent:
    """A message of the runtime, or of `ref.send`."""

    message: Any


@final
@dataclass(slots=True)
class InternalEvent:
    """What the machine has put before everything that waits, with `NextEvent`."""

    content: Any = None


@final
@dataclass(slots=True)
class EnterEvent:
    """The machine has come here from `old_state`; the first one, and `RepeatState`, come from the state itself."""

    old_state: Any


@final
@dataclass(slots=True)
class StateTimeout:
    """The machine has been in this state for as long as it said."""

    content: Any = None


@final
@dataclass(slots=True)
class EventTimeout:
    """No event of any kind has come for as long as the machine said."""

    content: Any = None


@final
@dataclass(slots=True)
class NamedTimeout:
    """The time of the timeout called `name` is over, whatever has happened meanwhile."""

    name: Hashable
    content: Any = None


TimeoutEvent: TypeAlias = StateTimeout | EventTimeout | NamedTimeout
MachineEvent: TypeAlias = CallEvent | CastEvent | InfoEvent | InternalEvent | EnterEvent | TimeoutEvent


def timeout_key(event: TimeoutEvent | type[StateTimeout] | type[EventTimeout]) -> Any:
    """Which timeout is meant: there is one for the state, one for events, and one for each name."""
    if isinstance(event, NamedTimeout):
        return (NamedTimeout, exact(event.name))
    kind: Any = event if isinstance(event, type) else type(event)
    return kind
