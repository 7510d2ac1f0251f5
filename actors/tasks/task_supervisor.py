"""A supervisor for tasks: who may run how many of them, apart from those who wait for them (Elixir's Task.Supervisor).

`async_nolink` starts a task whose crash does not touch its owner: an owning actor gets a `Down`, a trio task reads
`Exited`. `start_child` starts one that no task waits for. Both belong to the supervisor and end with it at the latest.

Starting a task never waits, so plain callbacks can do it: the supervisor is an actor like any other, but the functions
that start and count tasks act on it directly, without a message. So they work within one system only: functions do not
travel.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, final

import trio

from batonpass.actors.core.children import (
    ChildSpec,
    ChildType,
    RestartLimitReached,
    SupervisorAddress,
    SupervisorError,
    ask,
)
from batonpass.actors.core.exits import SHUTDOWN, NoProc, Reason, StartError, shown
from batonpass.actors.core.process import Process, logger
from batonpass.actors.core.ref import Ref
from batonpass.actors.core.restart import Restart, RestartWindow, should_restart
from batonpass.actors.core.server import Reply, Server
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.shutdown import shut_down
from batonpass.actors.supervision.dynamic_supervisor import TooManyChildren, check_dynamic
from batonpass.actors.tasks.task import Task
from batonpass.actors.tasks.task_owner import TaskOwner, owner_of
from batonpass.actors.tasks.task_process import ArgsT, ResultT, TaskProcess, TaskSpec
from batonpass.actors.tasks.task_stream import InputT, StreamOptions, TaskStream

if TYPE_CHECKING:
    from batonpass.actors.core.ref import From
    from batonpass.actors.core.system import System


@dataclass(frozen=True)
class TaskSupervisorFlags:
    """What a task supervisor is started with. `max_children` None means no bound."""

    max_children: int | None = None
    max_restarts: int = 3
    window_s: float = 5.0


@dataclass(frozen=True)
class TaskSupervisorSpec(ChildSpec):
    """A task supervisor as a child of another supervisor."""

    type: ClassVar[ChildType] = "supervisor"

    max_children: int | None = field(default=None, kw_only=True)
    max_restarts: int = field(default=3, kw_only=True)
    window_s: float = field(default=5.0, kw_only=True)
    shutdown_s: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dynamic(f"the supervisor {self.id!r}", self.max_children, self.max_restarts, self.window_s)

    def start_nowait(self, system: System, parent: Process) -> Process:
        """Start the supervisor, without tasks."""
        flags = TaskSupervisorFlags(self.max_children, self.max_restarts, self.window_s)
        return ServerProcess.start_nowait(system, TaskSupervisor, flags, self.name, parent)


@final
@dataclass(frozen=True, slots=True)
class _TerminateTask:
    ref: object


class TaskSupervisor(Server[None]):
    """See the head of the module. Start one with a `TaskSupervisorSpec`; talk to it with the functions below.

    All of them raise `NoProc` if there is no such supervisor. Those that start a task raise `TooManyChildren`, and
    `StartError` if the system is closing or an actor has ended with which the task would end.
    """

    trap_exit = True

    # Client functions

    @staticmethod
    def async_(
        supervisor: SupervisorAddress,
        owner: TaskOwner,
        function: Callable[[*ArgsT], Awaitable[ResultT]],
        *args: *ArgsT,
        shutdown_s: float | None = 5.0,
    ) -> Task[ResultT]:
        """As `Task.async_`: linked to `owner`, and ended with the supervisor as well, which waits `shutdown_s` for it.

        0 kills it at once, None waits as long as it takes.
        """
        server = _server_of(supervisor)
        own = owner_of(owner)
        own.require_alive()
        return Task(own, server._run(function, args, shutdown_s), linked=True, adopted=True)

    @staticmethod
    def async_nolink(
        supervisor: SupervisorAddress,
        owner: TaskOwner,
        function: Callable[[*ArgsT], Awaitable[ResultT]],
        *args: *ArgsT,
        shutdown_s: float | None = 5.0,
    ) -> Task[ResultT]:
        """As `Task.async_`, but not linked: neither does its crash touch `owner`, nor does it end with `owner`."""
        server = _server_of(supervisor)
        return Task(owner_of(owner), server._run(function, args, shutdown_s), linked=False, adopted=False)

    @staticmethod
    def async_stream(
        supervisor: SupervisorAddress,
        owner: TaskOwner,
        function: Callable[[InputT], Awaitable[ResultT]],
        inputs: Iterable[InputT],
        **options: Unpack[StreamOptions],
    ) -> TaskStream[InputT, ResultT]:
        """As `actors.tasks.task_stream.async_stream`, with the tasks under the supervisor as well."""
        start = partial(_start_streamed, supervisor, function)
        return TaskStream(owner, start, inputs, linked=True, **options)

    @staticmethod
    def async_stream_nolink(
        supervisor: SupervisorAddress,
        owner: TaskOwner,
        function: Callable[[InputT], Awaitable[ResultT]],
        inputs: Iterable[InputT],
        **options: Unpack[StreamOptions],
    ) -> TaskStream[InputT, ResultT]:
        """As `actors.tasks.task_stream.async_stream`, but a crash is always read as `Exited(reason)`."""
        start = partial(_start_streamed, supervisor, function)
        return TaskStream(owner, start, inputs, linked=False, **options)

    @staticmethod
    def start_child(
        supervisor: SupervisorAddress,
        function: Callable[[*ArgsT], Awaitable[object]],
        *args: *ArgsT,
        restart: Restart = Restart.TEMPORARY,
        shutdown_s: float | None = 5.0,
    ) -> Ref:
        """Run `function(*args)`, for its effect. `restart` says whether it is started again when it ends."""
        spec = TaskSpec(_name_of(function), function, args, restart=restart, shutdown_s=shutdown_s)
        return _server_of(supervisor)._add(spec).ref

    @staticmethod
    def children(supervisor: SupervisorAddress) -> list[Ref]:
        """All tasks that run now, in the order in which they were started."""
        return list(_server_of(supervisor)._running)

    @staticmethod
    async def terminate_child(supervisor: SupervisorAddress, ref: Ref) -> None:
        """End a task for good, and wait for that. Raises `SupervisorError` if it is not (or no longer) a child."""
        await ask(supervisor, _TerminateTask(ref))

    # Callbacks

    def init(self, arg: TaskSupervisorFlags | None) -> None:
        """Begin without tasks."""
        flags = arg or TaskSupervisorFlags()
        self._max_children = flags.max_children
        self._window = RestartWindow(flags.max_restarts, flags.window_s)
        self._running: dict[Ref, TaskSpec] = {}
        self._ending = False

    async def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
        """End a task; an error of the caller goes back to the caller."""
        match request:
            case _TerminateTask(ref) if not isinstance(ref, Ref):
                return Reply(SupervisorError(f"{shown(ref)} is no ref, by which {self.ref} knows its tasks"))
            case _TerminateTask(ref) if ref in self._running:
                spec = self._running.pop(ref)
                await shut_down([(ref.process, spec.shutdown_s)])
                return Reply(None)
            case _TerminateTask(ref):
                return Reply(SupervisorError(f"{ref} is not a child of {self.ref} (any more)"))
            case _:
                return Reply(SupervisorError(f"{self.ref} does not know the request {request!r}"))

    def handle_cast(self, message: Any, state: None) -> None:
        """It takes no messages; a stray one must not end the tasks."""
        logger.warning("%s got a message it does not understand: %r", self.ref, message)

    async def terminate(self, reason: Reason, state: None) -> None:
        """End all tasks at the same time."""
        self._ending = True
        await shut_down([(ref.process, spec.shutdown_s) for ref, spec in self._running.items()])

    # Inside

    def _run(
        self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], shutdown_s: float | None = 5.0
    ) -> TaskProcess:
        return self._add(TaskSpec(_name_of(function), function, args, shutdown_s=shutdown_s))

    def _add(self, spec: TaskSpec) -> TaskProcess:
        if self._ending:
            raise StartError(f"task {spec.id!r}", SHUTDOWN)
        if self._max_children is not None and len(self._running) >= self._max_children:
            raise TooManyChildren(
                f"{self.ref} has {len(self._running)} tasks, its max_children: wait for one, or raise the bound"
            )
        return self._start(spec)

    def _start(self, spec: TaskSpec) -> TaskProcess:
        process = spec.start_nowait(self.system, self.ref.process)
        self._running[process.ref] = spec
        process.watch(partial(self._ended, process.ref))
        return process

    def _ended(self, ref: Ref, reason: Reason) -> None:
        """In the same step as the end itself, so that `children` and `max_children` never count the dead."""
        spec = self._running.pop(ref, None)
        if spec is None or self._ending or not self.ref.alive or not should_restart(spec.restart, reason):
            return
        if not self._window.allows_restart(trio.current_time()):
            self._ending = True
            limit = RestartLimitReached(str(self.ref), self._window, spec.id, reason)
            self.ref.process.request_stop((SHUTDOWN, limit))
            return
        logger.warning("%s restarts %r, which ended: %r", self.ref, spec.id, reason)
        try:
            self._start(spec)
        except StartError as error:
            # Only because the system is closing.
            logger.warning("%s does not restart %r: %r", self.ref, spec.id, error.reason)


def _server_of(supervisor: SupervisorAddress) -> TaskSupervisor:
    ref = supervisor if isinstance(supervisor, Ref) else supervisor.ref
    process = None if ref is None else ref.process
    server = process.server if isinstance(process, ServerProcess) else None
    if isinstance(server, TaskSupervisor):
        return server
    if process is None or not process.alive:
        raise NoProc(str(supervisor))
    raise SupervisorError(f"{supervisor} is not a task supervisor of this system; start one with a TaskSupervisorSpec")


def _start_streamed(
    supervisor: SupervisorAddress, function: Callable[[InputT], Awaitable[object]], input_: InputT
) -> TaskProcess:
    return _server_of(supervisor)._run(function, (input_,))


def _name_of(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
