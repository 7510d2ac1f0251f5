"""One async function run as an actor of its own: the runtime's half of a task. Users start at `actors.tasks.task`.

It has a ref, can be watched, ended and supervised, and takes no messages. As with a service, to end it is to cancel it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, TypeVarTuple, final

import trio

from batonpass.actors.base.interrupts import protected
from batonpass.actors.core.children import ChildSpec
from batonpass.actors.core.exits import NORMAL, SHUTDOWN, Reason, StartError, reason_of
from batonpass.actors.core.process import ALIVE_STILL, Process, Status
from batonpass.actors.core.ref import current_process
from batonpass.actors.core.restart import Restart

if TYPE_CHECKING:
    from batonpass.actors.core.system import System

ResultT = TypeVar("ResultT")
ArgsT = TypeVarTuple("ArgsT")


@final
@dataclass(frozen=True, slots=True)
class Returned(Generic[ResultT]):
    """A task finished, with this value (Elixir's `{:ok, value}`)."""

    value: ResultT


@final
@dataclass(frozen=True, slots=True)
class Exited:
    """A task ended without a value (Elixir's `{:exit, reason}`): it raised, was ended, or took too long.

    `input` is what a stream's task was given, if the stream was made with `zip_input_on_exit`.
    """

    reason: Reason
    input: Any = None


Outcome: TypeAlias = Returned[ResultT] | Exited
"""How a task ended."""

_NOTHING: Any = object()


@final
class TaskProcess(Process):
    """One life of one task; see the head of the module."""

    __slots__ = ("_value", "callers")

    def __init__(self, system: System, label: str, parent: Process | None) -> None:
        super().__init__(system, label, parent)
        self._value: Any = _NOTHING
        self.callers = ()
        self.enter()

    def work_for(self, owner: Process | None) -> None:
        """Whom a report names beside it."""
        if owner is not None:
            self.callers = (owner.ref, *owner.callers)

    @classmethod
    @protected
    def start(
        cls,
        system: System,
        function: Callable[[*ArgsT], Awaitable[Any]],
        args: tuple[*ArgsT],
        *,
        parent: Process | None,
        label: str | None = None,
        name: Hashable = None,
    ) -> TaskProcess:
        """Run `function(*args)` from the next turn of trio's loop on; it ends with its `parent`.

        Raises `StartError` if the system is closing or the parent has ended, `AlreadyStarted` if the name is taken.
        """
        system.loop.require(system)
        given: Any = function
        if not callable(given):
            raise TypeError(f"a task runs an `async def` function: give that, and its arguments, not {given!r}")
        label = label or f"task {getattr(function, '__qualname__', type(function).__name__)}"
        if system.closing:
            raise StartError(label, SHUTDOWN)
        if parent is not None and not parent.alive:
            raise StartError(label, f"{parent.ref}, with which it would end, has ended already")
        process = cls(system, label, parent)
        try:
            if name is not None:
                system.registry.claim(name, process.ref)
        except Exception as error:
            process._die(error, quiet=True)
            raise
        process.status = Status.RUNNING
        system.spawn(process, process._run, function, args)
        process.tell_started()
        return process

    def take_outcome(self) -> Outcome[Any]:
        """How it ended, once it has. The value is handed over, so that a ref that is kept does not keep it."""
        value, self._value = self._value, _NOTHING
        return Exited(self.reason) if value is _NOTHING else Returned(value)

    async def _run(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        current_process.set(self)
        reason: Reason = NORMAL
        failed = False
        try:
            # Shielded: only `exit` and `kill` may end it, so that a cancelled system still shuts down in order.
            with trio.CancelScope(shield=True) as self.scope:
                if self.pending_exit is ALIVE_STILL:
                    running = function(*args)
                    if inspect.iscoroutine(running):
                        self.system.debug.began(self, "run", running)
                    self._value = await running
        except Exception as error:
            reason, failed = reason_of(error), True
        else:
            if self._value is _NOTHING:
                reason = self.pending_exit
        if self.alive:
            self._die(reason, quiet=not failed)
        reason = None  # its traceback has this frame


@dataclass(frozen=True)
class TaskSpec(ChildSpec):
    """An async function as a child of any supervisor (Elixir's `{Task, fun}`): it does something, and is done.

    Temporary unless said otherwise. A service, by contrast, says when it is ready, and continues until it is ended.
    """

    function: Callable[..., Awaitable[object]] = field(kw_only=False)
    args: tuple[Any, ...] = ()
    restart: Restart = field(default=Restart.TEMPORARY, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise TypeError(f"function of the child {self.id!r} must be an `async def` function, not {self.function!r}")

    def start_nowait(self, system: System, parent: Process) -> TaskProcess:
        """Start the task, and do not wait for it."""
        return TaskProcess.start(
            system, self.function, self.args, parent=parent, label=f"task {self.id!r}", name=self.name
        )

    def with_extra_arguments(self, extra: tuple[Any, ...]) -> Self:
        """The same task, whose function gets `*extra` as its first arguments."""
        return replace(self, args=(*extra, *self.args))
