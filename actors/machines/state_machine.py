"""What you subclass to write a state machine, and the actor that runs it (OTP's gen_statem).

A machine has a *state*, which decides what an event means, and *data*, which is what it has to remember besides. It is
told each event by one callback, which returns where to go and what to do (`results`):

    class Door(StateMachine[str, int]):
        def init(self, arg: int) -> FirstState[str, int]:
            return FirstState("locked", arg)

        def handle_event(self, event: MachineEvent, state: str, data: int) -> Transition[str, int]:
            match state, event:
                case "locked", CastEvent(code) if code == data:
                    return NextState("open", actions=[StartTimeout(10.0, StateTimeout())])
                case "open", StateTimeout():
                    return NextState("locked")
                case _, CallEvent("state?", from_):
                    return KeepState(actions=[ReplyTo(from_, state)])
            return None

With `callback_mode = CallbackMode.STATE_FUNCTIONS` states are names, and each has a method of its name, which is given
`(event, data)`. With `state_enter = True` a state is told `EnterEvent` when it begins, the first one included. Every
callback may be `async def`. A machine is a `Server` to all others. It is started, supervised, looked into and called
like one, here and from other nodes. What is said there about waiting, exits and restarts holds here. Its state, to
`sys` and to `terminate`, is the pair of state and data.

`StateMachineServer` calls the callbacks and does the actions; in which order events come is decided by `engine`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, final

import trio

from batonpass.actors.base.unrun_coroutine import UnrunCoroutine
from batonpass.actors.core.exits import BadReturnValue, shown
from batonpass.actors.core.server import HIBERNATE, IGNORE, KEEP, NO_REPLY, Continue, NoReply, Ok, Server, Stop
from batonpass.actors.machines.engine import Engine, MachineStep, MachineTimer, is_same
from batonpass.actors.machines.events import CallEvent, CastEvent, EnterEvent, InfoEvent, MachineEvent
from batonpass.actors.machines.results import (
    POSTPONE,
    Action,
    CancelTimeout,
    FirstResult,
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

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.ref import From
    from batonpass.actors.core.status_report import ServerStatus
    from batonpass.actors.core.timers import Timer

__all__ = ["CallbackMode", "StateMachine", "StateMachineServer"]

MachineStateT = TypeVar("MachineStateT")
DataT = TypeVar("DataT")


class CallbackMode(Enum):
    """Which callback is told an event."""

    HANDLE_EVENT = "handle_event"
    """`handle_event(event, state, data)`; a state is any value."""
    STATE_FUNCTIONS = "state_functions"
    """The method that has the name of the state, with `(event, data)`."""


class StateMachine(Server[tuple[MachineStateT, DataT]]):
    """See the head of the module."""

    callback_mode: ClassVar[CallbackMode] = CallbackMode.HANDLE_EVENT
    state_enter: ClassVar[bool] = False
    """Whether a state that begins is told `EnterEvent`, before any other event. The answer may have actions, but not
    postpone, insert events or go on to another state."""

    @final
    def behaviour(self) -> Server[Any]:
        """What the runtime talks to: the server that keeps the events in order, and calls this one's callbacks."""
        return StateMachineServer(self)

    def init(self, arg: Any) -> FirstResult[MachineStateT, DataT] | Awaitable[FirstResult[MachineStateT, DataT]]:
        """Return where to begin: `FirstState(state, data, actions)`, or `IGNORE`, or `Stop`. Raising fails the start.

        The start is over then: actions and the first `EnterEvent` come after it, and before any message.
        """
        raise NotImplementedError(f"{type(self).__name__} has no init, which says in which state it begins")

    def handle_event(
        self, event: MachineEvent, state: MachineStateT, data: DataT
    ) -> Transition[MachineStateT, DataT] | Awaitable[Transition[MachineStateT, DataT]]:
        """Say what `event` does in this state. For `CallbackMode.HANDLE_EVENT`."""
        raise NotImplementedError(f"{type(self).__name__} got {event!r} but has no handle_event")


# --- the actor that runs a machine ------------------------------------------------------------------------------------


class _Go(Enum):
    """From the server to itself: there are events that come before the mailbox."""

    ON = "on"


@final
class _First:
    """From the server to itself: the start is over, and these actions are to be done."""

    __slots__ = ("actions",)

    def __init__(self, actions: Sequence[Action]) -> None:
        self.actions = actions


@final
class _Due:
    """From the clock: the time of a timeout is over."""

    __slots__ = ("timer",)

    def __init__(self, timer: MachineTimer) -> None:
        self.timer = timer


_GO_ON: Final = Continue(_Go.ON)


@final
class StateMachineServer(Server[Any]):
    """One life of one machine; see the head of the module. The state of the actor is the pair of state and data."""

    def __init__(self, machine: StateMachine[Any, Any]) -> None:
        self._machine = machine
        # The runtime reads these off a server; what the class of the machine says counts.
        self.__dict__["mailbox_limit"] = machine.mailbox_limit
        self.__dict__["hibernate_after_s"] = machine.hibernate_after_s
        self._engine = Engine()
        self._timers: dict[MachineTimer, Timer] = {}
        self._functions: dict[str, Callable[[MachineEvent, Any], Any]] = {}

    @property
    def trap_exit(self) -> bool:  # type: ignore[override]  # only the machine sets it, at any time
        """What the machine says."""
        return self._machine.trap_exit

    @property
    def callback_class(self) -> type:
        """The class of the machine."""
        return type(self._machine)

    # Starting

    def init(self, arg: Any) -> Any:
        """Start the machine."""
        self._machine.ref = self.ref
        self._machine.system = self.system
        result = self._machine.init(arg)
        return self._begin_later(UnrunCoroutine(result)) if inspect.iscoroutine(result) else self._begin(result)

    async def _begin_later(self, unfinished: UnrunCoroutine) -> Any:
        return self._begin(await unfinished.coroutine)

    def _begin(self, result: Any) -> Any:
        if result is IGNORE or isinstance(result, Stop):
            return result
        if not isinstance(result, FirstState):
            raise BadReturnValue(str(self.ref), "init", result)
        return Ok(result.state, then=Continue(_First(result.actions)))

    # What the runtime calls

    def handle_call(self, request: Any, from_: From, state: Any) -> Any:
        """An event: a call."""
        return self._handle(CallEvent(request, from_), state)

    def handle_cast(self, message: Any, state: Any) -> Any:
        """An event: a cast."""
        return self._handle(CastEvent(message), state)

    def handle_info(self, message: Any, state: Any) -> Any:
        """An event: a message, or a timeout."""
        if type(message) is not _Due:
            return self._handle(InfoEvent(message), state)
        self._timers.pop(message.timer, None)
        event = self._engine.fire(message.timer)
        return None if event is None else self._handle(event, state)

    def handle_continue(self, value: Any, state: Any) -> Any:
        """An event that comes before the mailbox; or the beginning."""
        if type(value) is not _First:
            return self._handle(self._engine.take_next(), state)
        step = MachineStep(None, *state)
        if bad := self._act(step, value.actions, is_enter=False):
            return bad
        return self._enter(step) if self._machine.state_enter else self._commit(step)

    def handle_hibernate(self, state: Any) -> Any:
        """The machine's own business."""
        return self._machine.handle_hibernate(state)

    def format_status(self, status: ServerStatus) -> ServerStatus:
        """The machine's own business, who is told also what is `pending`."""
        return self._machine.format_status(replace(status, pending=self._engine.pending))

    def terminate(self, reason: Reason, state: Any) -> object:
        """The machine's own business."""
        return self._machine.terminate(reason, state)

    # One event

    def _handle(self, event: MachineEvent, pair: Any) -> Any:
        state, data = pair
        return self._settle(MachineStep(event, state, data), self._call(event, state, data), is_enter=False)

    def _call(self, event: MachineEvent, state: Any, data: Any) -> Any:
        machine = self._machine
        if machine.callback_mode is CallbackMode.HANDLE_EVENT:
            return machine.handle_event(event, state, data)
        function = self._functions.get(state) if type(state) is str else None
        return (function or self._function_of(state))(event, data)

    def _function_of(self, state: Any) -> Callable[[MachineEvent, Any], Any]:
        """The method of a state. Raises `TypeError` for what is no name of one."""
        kind = type(self._machine).__name__
        if not isinstance(state, str):
            raise TypeError(f"{kind} has a method for each state, so a state must be the name of one, not {state!r}")
        function: Any = getattr(self._machine, state, None)
        if not callable(function) or hasattr(StateMachine, state):
            raise TypeError(f"{kind} has no method for its state {state!r}")
        self._functions[state] = function
        return function  # type: ignore[no-any-return]  # whatever the class has under that name

    def _settle(self, step: MachineStep, result: Any, *, is_enter: bool) -> Any:
        """Do what a callback returned, and make of it what the runtime understands."""
        if inspect.iscoroutine(result):
            return self._settle_later(step, UnrunCoroutine(result), is_enter=is_enter)
        enters = False
        if result is not None:
            kind = type(result)
            if kind is NextState:
                if not is_same(result.state, step.state):
                    if is_enter:
                        return self._refuse(step, result, is_enter=True)
                    step.state = result.state
                    enters = True
            elif kind is RepeatState:
                enters = True
            elif kind is Stop:
                return self._stop(step, result)
            elif kind is not KeepState:
                return self._refuse(step, result, is_enter=is_enter)
            if result.data is not KEEP:
                step.data = result.data
            if result.actions and (bad := self._act(step, result.actions, is_enter=is_enter)):
                return bad
        return self._enter(step) if enters and self._machine.state_enter else self._commit(step)

    async def _settle_later(self, step: MachineStep, unfinished: UnrunCoroutine, *, is_enter: bool) -> Any:
        result = self._settle(step, await unfinished.coroutine, is_enter=is_enter)
        return await result if inspect.iscoroutine(result) else result

    def _enter(self, step: MachineStep) -> Any:
        return self._settle(step, self._call(EnterEvent(step.old_state), step.state, step.data), is_enter=True)

    def _refuse(self, step: MachineStep, value: object, *, is_enter: bool) -> Stop[Any]:
        """End, because a callback returned what has no meaning there; as in gen_statem, where the step has come to."""
        callback = f"{shown(step.state)}, being entered," if is_enter else f"{shown(step.old_state)}"
        error = BadReturnValue(str(self.ref), f"its state {callback}", value)
        return Stop(error, (step.state, step.data))

    def _act(self, step: MachineStep, actions: Sequence[Action], *, is_enter: bool) -> Stop[Any] | None:
        """Do what can be done now, and note the rest; a `Stop` if there is something that cannot be done."""
        for action in actions:
            if isinstance(action, ReplyTo):
                action.from_.reply(action.value)
            elif isinstance(action, StartTimeout | UpdateTimeout | CancelTimeout):
                step.timeouts.append(action)
            elif action is HIBERNATE:
                step.hibernate = True
            elif is_enter or not (action is POSTPONE or isinstance(action, NextEvent)):
                return self._refuse(step, action, is_enter=is_enter)
            elif isinstance(action, NextEvent):
                step.inserted.append(action.event)
            else:
                step.postpone = True
        return None

    def _stop(self, step: MachineStep, stop: Stop[Any]) -> Stop[Any]:
        if stop.reply is not NO_REPLY and isinstance(step.event, CallEvent):
            step.event.from_.reply(stop.reply)
        return Stop(stop.reason, (step.state, step.data if stop.state is KEEP else stop.state))

    def _commit(self, step: MachineStep) -> Any:
        engine = self._engine
        stopped, started = engine.commit(step, trio.current_time() if step.timeouts else 0.0)
        for timer in stopped:
            self._timers.pop(timer).disarm()
        for timer in started:
            self._start(timer)
        then: Any = None
        if engine.has_next:
            then = _GO_ON
        elif step.hibernate:
            then = HIBERNATE
        return NoReply((step.state, step.data), then)

    def _start(self, timer: MachineTimer) -> None:
        process = self.ref.process
        due_s = 0.0 if timer.due_s is None else timer.due_s
        self._timers[timer] = self.system.timers.at(due_s, partial(process.deliver_info, _Due(timer)), process)
