"""State machines: actors whose answer to an event depends on the state they are in. The contract is OTP's gen_statem.

Start reading with `state_machine` (what you write) and `docs/explanation/actors.md` (an example). The rest:

=================  ================================================================================================
`events`           what a state machine is told, and what a timeout of it is (pure)
`results`          what its callbacks may return: the next state, and actions (pure)
`engine`           which event comes next: postponed, inserted, timed out (pure)
=================  ================================================================================================

Not here: `change_callback_module` and its like, because a machine is an object and not a module.
"""

from batonpass.actors.machines.engine import PendingEvents
from batonpass.actors.machines.events import (
    CallEvent,
    CastEvent,
    EnterEvent,
    EventTimeout,
    InfoEvent,
    InternalEvent,
    MachineEvent,
    NamedTimeout,
    StateTimeout,
)
from batonpass.actors.machines.results import (
    POSTPONE,
    Action,
    CancelTimeout,
    FirstState,
    KeepState,
    NextEvent,
    NextState,
    RepeatState,
    ReplyTo,
    StartTimeout,
    Transition,
    UpdateTimeout,
)
from batonpass.actors.machines.state_machine import CallbackMode, StateMachine

__all__ = [
    "POSTPONE",
    "Action",
    "CallEvent",
    "CallbackMode",
    "CancelTimeout",
    "CastEvent",
    "EnterEvent",
    "EventTimeout",
    "FirstState",
    "InfoEvent",
    "InternalEvent",
    "KeepState",
    "MachineEvent",
    "NamedTimeout",
    "NextEvent",
    "NextState",
    "PendingEvents",
    "RepeatState",
    "ReplyTo",
    "StartTimeout",
    "StateMachine",
    "StateTimeout",
    "Transition",
    "UpdateTimeout",
]
