"""What every supervisor knows about a child: how to start it again and again, and the life it has now.

A specification is a value. `ActorSpec` starts a `Server`, `ServiceSpec` a long-running async function, and
`SupervisorSpec`, `DynamicSupervisorSpec` and `PartitionSupervisorSpec` (beside their supervisors) a supervisor, which
makes a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar, overload

import trio

from batonpass.actors.core.checks import member_of, need_hashable, need_seconds
from batonpass.actors.core.exits import (
    SHOWN_CHARS,
    ChildFailure,
    Ignored,
    Reason,
    StartError,
    cause_of,
    is_orderly,
    shown,
)
from batonpass.actors.core.named import Named
from batonpass.actors.core.process import Process, Status, logger
from batonpass.actors.core.ref import Ref, current_process
from batonpass.actors.core.restart import Restart, RestartWindow
from batonpass.actors.core.server import Server
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.service import AsyncService, ServiceProcess
from batonpass.actors.core.telemetry import SUPERVISOR_GAVE_UP, SUPERVISOR_RESTART

if TYPE_CHECKING:
    from batonpass.actors.base.steps import Steps
    from batonpass.actors.core.messages import Starts
    from batonpass.actors.core.system import System

ArgT = TypeVar("ArgT")

ChildType: TypeAlias = Literal["worker", "supervisor"]
ChildStatus: TypeAlias = Literal["running", "restarting", "stopped"]
SupervisorAddress: TypeAlias = Ref | Named


class SupervisorError(Exception):
    """A supervisor could not do what it was asked: the sentence says why, and nothing has changed."""


@dataclass(frozen=True)
class ChildSpec:
    """The part that every child has.

    `id` tells the children of one supervisor apart. `name`, if given, is registered for each life of the child.
    `shutdown_s` is how long it may take to end when asked. 0 kills it at once (OTP's `brutal_kill`), None waits as long
    as it takes (OTP's `infinity`). `start_timeout_s` is how long a start that has to wait may take, None meaning for
    ever. `significant` matters to a supervisor with `auto_shutdown`, and is for transient and temporary children only.

    Raises `TypeError` and `ValueError` for what no child can have; `restart` may also be given by its value, a string.
    """

    type: ClassVar[ChildType] = "worker"

    id: Hashable
    restart: Restart = field(default=Restart.PERMANENT, kw_only=True)
    shutdown_s: float | None = field(default=5.0, kw_only=True)
    start_timeout_s: float | None = field(default=30.0, kw_only=True)
    name: Hashable = field(default=None, kw_only=True)
    significant: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        # Children that come and go are specified one by one, so what is right, mostly, is not looked at for long.
        it: Any = self
        if (
            type(it.restart) is not Restart
            or type(it.significant) is not bool
            or type(it.id) is not str
            or (it.name is not None and type(it.name) is not str)
            or not (it.shutdown_s is None or (type(it.shutdown_s) is float and it.shutdown_s >= 0))
            or not (it.start_timeout_s is None or (type(it.start_timeout_s) is float and it.start_timeout_s >= 0))
        ):
            self._check()

    def _check(self) -> None:
        need_hashable("the id of a child", self.id)
        whose = f"of the child {self.id!r}"
        object.__setattr__(self, "restart", member_of(Restart, f"restart {whose}", self.restart))
        if self.significant is not True and self.significant is not False:
            raise TypeError(f"significant {whose} must be True or False, not {self.significant!r}")
        need_hashable(f"the name {whose}", self.name)
        need_seconds(f"shutdown_s {whose}", self.shutdown_s, optional=True)
        need_seconds(f"start_timeout_s {whose}", self.start_timeout_s, optional=True)

    def start_nowait(self, system: System, parent: Process) -> Process:
        """Start one life of the child, as far as that goes without waiting.

        If its status is still `STARTING` then, the rest takes `await process.wait_started(self.start_timeout_s)`. Both
        raise `StartError`, and `Ignored`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how to start a child")

    def with_extra_arguments(self, extra: tuple[Any, ...]) -> Self:
        """The same child with `extra` before its own arguments. Raises `SupervisorError` if it takes none."""
        raise SupervisorError(f"the child {self.id!r}, a {type(self).__name__}, takes no extra_arguments")


@dataclass(frozen=True)
class ActorSpec(ChildSpec):
    """An actor: `server` makes a fresh `Server` when called (the class itself does), `arg` is for its `init`."""

    server: Callable[[], Any] = field(kw_only=False)
    arg: Any = None

    if TYPE_CHECKING:
        # For type checkers alone: `arg` is what the server's `init` takes, as in `System.start`.

        @overload
        def __init__(
            self,
            id: Hashable,
            server: Callable[[], Starts[None]],
            *,
            restart: Restart = ...,
            shutdown_s: float | None = ...,
            start_timeout_s: float | None = ...,
            name: Hashable = ...,
            significant: bool = ...,
        ) -> None: ...

        @overload
        def __init__(
            self,
            id: Hashable,
            server: Callable[[], Starts[ArgT]],
            arg: ArgT,
            *,
            restart: Restart = ...,
            shutdown_s: float | None = ...,
            start_timeout_s: float | None = ...,
            name: Hashable = ...,
            significant: bool = ...,
        ) -> None: ...

        def __init__(self, id: Hashable, server: Callable[[], Any], arg: Any = None, **options: Any) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        server: Any = self.server
        if isinstance(server, type) and not issubclass(server, Server):
            raise TypeError(f"server of the child {self.id!r} must be a Server class, not {server!r}")
        if not callable(server):
            hint = f"; write {type(server).__name__}, the class itself" if isinstance(server, Server) else ""
            raise TypeError(
                f"server of the child {self.id!r} must be what makes a Server for each life, not {shown(server)}{hint}"
            )

    def start_nowait(self, system: System, parent: Process) -> Process:
        """Start the actor; an `async def init` takes `wait_started`."""
        return ServerProcess.start_nowait(system, self.server, self.arg, self.name, parent)

    def with_extra_arguments(self, extra: tuple[Any, ...]) -> Self:
        """The same actor, whose `init` gets `(*extra, arg)`."""
        return replace(self, arg=(*extra, self.arg))


@dataclass(frozen=True)
class ServiceSpec(ChildSpec):
    """A long-running async function: a socket, an HTTP server; see `actors.core.service.AsyncService`."""

    serve: AsyncService = field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.serve):
            raise TypeError(f"serve of the child {self.id!r} must be an `async def` function, not {self.serve!r}")

    def start_nowait(self, system: System, parent: Process) -> Process:
        """Begin to start the service; `wait_started` waits until it says that it is ready."""
        return ServiceProcess.start_nowait(system, self.serve, f"service {self.id!r}", name=self.name, parent=parent)

    def with_extra_arguments(self, extra: tuple[Any, ...]) -> Self:
        """The same service, whose function gets `*extra` as its first arguments."""
        return replace(self, serve=partial(self.serve, *extra))


# What supervisors share


class RestartLimitReached(ChildFailure):
    """A supervisor gave up. `child_id` and `reason` are those of the last straw; an exception is also `__cause__`."""

    def __init__(self, supervisor: str, window: RestartWindow, child_id: Hashable, reason: Reason) -> None:
        limit = f"more than {window.max_restarts} restarts within {window.window_s} s"
        super().__init__(f"{supervisor} gave up: {limit}; the last child to fail was ", child_id, "", reason)
        self.__cause__ = cause_of(reason)


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One row of `which_children`. `ref` is None unless the child is running."""

    id: Hashable
    ref: Ref | None
    status: ChildStatus
    type: ChildType
    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """What `count_children` answers: all children, those that run, and all again by type."""

    specs: int
    active: int
    supervisors: int
    workers: int

    @classmethod
    def of(cls, children: Iterable[tuple[ChildSpec, Process | None]]) -> ChildCounts:
        """Count children, each given with its present life, if it has one, or its last."""
        specs = active = supervisors = 0
        for spec, process in children:
            specs += 1
            active += process is not None and process.alive
            supervisors += spec.type == "supervisor"
        return cls(specs, active, supervisors, specs - supervisors)


NESTED_STARTS: Final = 24
"""Supervisors that may start their children inside one another on one stack; each takes some ten calls of Python's."""


def is_deep(process: Process) -> bool:
    """Whether a supervisor that starts needs a task of its own, because of all that wait for it on the stack.

    A tree may be as deep as it likes: a hundred levels on one stack would be its end.
    """
    depth = 0
    parent = process.parent
    while parent is not None and parent.starting:
        depth += 1
        parent = parent.parent
    return depth % NESTED_STARTS == NESTED_STARTS - 1


def begin_life(spec: ChildSpec, system: System, parent: Process) -> Steps[Process | None]:
    """Start one life of a child; None if it ignores its start. Raises `StartError`, also for a broken specification."""
    try:
        process = spec.start_nowait(system, parent)
        if process.status is Status.STARTING:
            yield partial(process.wait_started, spec.start_timeout_s)
    except Ignored:
        return None
    except StartError:
        raise
    except Exception as error:
        raise StartError(f"the child {spec.id!r}", error) from error
    return process


def need_spec(spec: object) -> ChildSpec:
    """What a supervisor was given to start. Raises `SupervisorError` (OTP's `invalid_child_spec`)."""
    if isinstance(spec, ChildSpec):
        return spec
    raise SupervisorError(f"{shown(spec)} is no child specification: give an ActorSpec, a ServiceSpec, ...")


def supervises(server: Any) -> bool:
    """Whether this is a supervisor, one of whatever kind: those can be told to end a child."""
    kind = server if isinstance(server, Server) else server.server  # in place of one that is traced, say
    return callable(getattr(kind, "terminate_child", None))


async def ask(supervisor: SupervisorAddress, request: object) -> Any:
    """Call a supervisor, which answers an error of the caller with the exception to raise in the caller.

    There is no time limit, because starting and ending children takes what their specifications allow. So it must not
    be asked by a child that it waits for. Raises `SupervisorError` in an `init` under that supervisor, and in a service
    that is not ready. (In a `terminate`, the child's `shutdown_s` ends the wait.)
    """
    ref = supervisor if isinstance(supervisor, Ref) else supervisor.ref
    if ref is not None and isinstance(ref.process, ServerProcess) and ref.alive and not supervises(ref.process.server):
        raise SupervisorError(f"{ref} is no supervisor: it has no children to start, end or list")
    waited_for = current_process.get()
    while waited_for is not None and waited_for.starting and ref is not None:
        if waited_for.parent is ref.process:
            raise SupervisorError(f"{ref} waits for the start of {waited_for.ref}, which cannot ask it anything yet")
        waited_for = waited_for.parent
    answer = await supervisor.call(request, None)
    if isinstance(answer, Exception):
        raise answer
    return answer


def spec_of(known_as: object) -> ChildSpec | None:
    """The specification of a child, by what its supervisor has it as in its table `children`; None without one."""
    spec = getattr(known_as, "spec", known_as)
    return spec if isinstance(spec, ChildSpec) else None


def path_of(process: Process) -> tuple[Hashable, ...]:
    """The ids of an actor and of those above it, from below the root down; of one without an id, its label."""
    path: list[Hashable] = []
    while process.parent is not None:
        spec = spec_of((process.parent.children or {}).get(process))
        path.append(process.label if spec is None else spec.id)
        process = process.parent
    return tuple(reversed(path))


def tell_restart(
    supervisor: Server[Any], window: RestartWindow, child_id: Hashable, reason: Reason, *, gave_up: bool
) -> None:
    """Note and tell telemetry that a child is restarted, or that this was one restart too many."""
    system = supervisor.system
    text = reason[:SHOWN_CHARS] if isinstance(reason, str) else shown(reason)
    system.restarts.note(trio.current_time(), (*path_of(supervisor.ref.process), child_id), text)
    system.telemetry.execute(
        SUPERVISOR_GAVE_UP if gave_up else SUPERVISOR_RESTART,
        {"restarts": len(window)},
        {"supervisor": supervisor.ref, "child_id": child_id, "reason": reason},
    )


def tell_not_restarted(supervisor: Server[Any], child_id: Hashable, error: StartError) -> None:
    """Log that a restart failed; not if it is only that the system is closing, so that nothing starts any more."""
    if not (supervisor.system.closing and is_orderly(error.reason)):
        logger.error("%s could not restart %r: %s", supervisor.ref, child_id, shown(error.reason))


def supervisor_status(window: RestartWindow, **more: Any) -> dict[str, Any]:
    """What supervisors show as their state."""
    return more | {"restarts": len(window), "max_restarts": window.max_restarts, "window_s": window.window_s}
