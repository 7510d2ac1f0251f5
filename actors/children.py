"""What every supervisor knows about a child: how to start it again and again, and the life it has now.

A specification is a value. `ActorSpec` starts a `Server`, `ServiceSpec` a long-running async function, and
`SupervisorSpec` and `DynamicSupervisorSpec` (beside their supervisors) a supervisor, which makes a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from actors.exits import Reason, cause_of
from actors.messages import Down, Monitor
from actors.names import Named
from actors.ref import Ref
from actors.restart import Restart, RestartWindow
from actors.service import AsyncService, ServiceProcess

if TYPE_CHECKING:
    from actors.process import Process
    from actors.server import Server
    from actors.system import System


@dataclass(frozen=True)
class ChildSpec:
    """The part that every child has.

    `id` tells the children of one supervisor apart. `name`, if given, is registered for each life of the child.
    `shutdown_s` is how long it may take to end when asked: 0 kills it at once, None waits as long as it takes.
    `start_timeout_s` is how long an async start may take, None meaning for ever.
    """

    id: Hashable
    restart: Restart = field(default=Restart.PERMANENT, kw_only=True)
    shutdown_s: float | None = field(default=5.0, kw_only=True)
    start_timeout_s: float | None = field(default=30.0, kw_only=True)
    name: Hashable = field(default=None, kw_only=True)

    async def start(self, system: System, parent: Process) -> Process:
        """Start one life of the child. Raises `StartError`, or `Ignored`."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to start a child")


@dataclass(frozen=True)
class ActorSpec(ChildSpec):
    """An actor: `server` makes a fresh `Server` when called (the class itself does), `arg` is for its `init`."""

    server: Callable[[], Server[Any]] = field(kw_only=False)
    arg: Any = None

    async def start(self, system: System, parent: Process) -> Process:
        """Start the actor and wait for its `init`."""
        return await system.start_process(self.server, self.arg, self.name, parent, self.start_timeout_s)


@dataclass(frozen=True)
class ServiceSpec(ChildSpec):
    """A long-running async function: a socket, an HTTP server; see `actors.service.AsyncService`."""

    serve: AsyncService = field(kw_only=False)

    async def start(self, system: System, parent: Process) -> Process:
        """Start the service and wait until it says that it is ready."""
        return await ServiceProcess.start(
            system,
            self.serve,
            f"service {self.id!r}",
            name=self.name,
            parent=parent,
            timeout_s=self.start_timeout_s,
        )


# What supervisors share

ChildStatus: TypeAlias = Literal["running", "restarting", "stopped"]
SupervisorAddress: TypeAlias = Ref | Named


class SupervisorError(Exception):
    """A supervisor could not do what it was asked: the sentence says why, and nothing has changed."""


class RestartLimitReached(Exception):
    """A supervisor gave up. `child_id` and `reason` are those of the last straw; an exception is also `__cause__`."""

    def __init__(self, supervisor: str, window: RestartWindow, child: Child) -> None:
        self.child_id = child.spec.id
        self.reason = child.failure
        super().__init__(
            f"{supervisor} gave up: more than {window.max_restarts} restarts within {window.window_s} s;"
            f" the last child to fail was {child.spec.id!r}: {child.failure!r}"
        )
        self.__cause__ = cause_of(child.failure)


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One row of `which_children`. `ref` is None unless the child is running."""

    id: Hashable
    ref: Ref | None
    status: ChildStatus
    spec: ChildSpec


class Child:
    """One child of one supervisor: its specification, its present life if it has one, and the watch on that."""

    __slots__ = ("_monitor", "failure", "process", "restarting", "spec")

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.process: Process | None = None
        self.restarting = False
        self.failure: Reason = None
        self._monitor: Monitor | None = None

    @property
    def ref(self) -> Ref | None:
        """The ref of the present life."""
        return None if self.process is None else self.process.ref

    @property
    def status(self) -> ChildStatus:
        """Whether it runs, is to be started again soon, or neither."""
        return "running" if self.process is not None else "restarting" if self.restarting else "stopped"

    @property
    def info(self) -> ChildInfo:
        """What `which_children` shows."""
        return ChildInfo(self.spec.id, self.ref, self.status, self.spec)

    def begin(self, process: Process, supervisor: Server[Any]) -> None:
        """`process` is the present life from now on; its end becomes a `Down` for the supervisor."""
        self.process = process
        self.restarting = False
        if process.alive:
            self._monitor = supervisor.monitor(process.ref)
        else:
            # It ended between its start and now: its own reason decides about the restart, not "noproc".
            down = Down(Monitor(process.ref, 0), process.ref, process.reason)
            supervisor.ref.process.deliver_info(down)

    def release(self, supervisor: Server[Any]) -> Process | None:
        """The present life, which the supervisor stops caring about: no `Down` comes, not even one on its way."""
        process, self.process = self.process, None
        monitor, self._monitor = self._monitor, None
        self.restarting = False
        if monitor is not None:
            supervisor.demonitor(monitor)
        return process


async def ask(supervisor: SupervisorAddress, request: object) -> Any:
    """Call a supervisor, which answers an error of the caller with the exception to raise in the caller."""
    answer = await supervisor.call(request, None)
    if isinstance(answer, Exception):
        raise answer
    return answer
