"""Supervisors: actors whose whole work is to start other actors and services, and to start them again.

A `Supervisor` has a fixed idea of its children, in order. `actors.supervision.dynamic_supervisor` has one for children
that come and go, and `actors.supervision.partition_supervisor` one for many copies of one child. Who is restarted, and
when it is hopeless, is decided by the pure `actors.core.restart`; this file carries it out. A supervisor is a `Server`
like any other, so supervisors supervise supervisors. An idle one costs no task, nor does a busy one whose children
start and end without waiting (see `actors.base.steps`). What one child costs it does not depend on how many others
there are.

Restarting may not help (`max_restarts` within `window_s`, all children of one supervisor together). Then a supervisor
ends its children and itself, and leaves the rest to its own supervisor. Its exit reason is
`("shutdown", RestartLimitReached(...))`, where OTP has a bare `shutdown`. Every rule treats the two alike, and the
first cause is not lost on the way up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import trio

from batonpass.actors.base.exact_keys import exact
from batonpass.actors.base.steps import Steps, at_once, in_slices
from batonpass.actors.core.checks import member_of, need_count, need_seconds, several
from batonpass.actors.core.children import (
    ChildCounts,
    ChildInfo,
    ChildSpec,
    ChildStatus,
    ChildType,
    RestartLimitReached,
    SupervisorAddress,
    SupervisorError,
    ask,
    begin_life,
    is_deep,
    need_spec,
    supervisor_status,
    tell_not_restarted,
    tell_restart,
)
from batonpass.actors.core.exits import SHUTDOWN, ChildFailure, Reason, StartError, shown
from batonpass.actors.core.messages import ChildEnded
from batonpass.actors.core.process import Process, logger
from batonpass.actors.core.ref import Ref
from batonpass.actors.core.restart import AutoShutdown, Restart, RestartWindow, Strategy, plan, should_restart
from batonpass.actors.core.server import Reply, Result, Server, Stop
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.shutdown import BREATHER, ending, remains_ending

if TYPE_CHECKING:
    from batonpass.actors.core.ref import From
    from batonpass.actors.core.status_report import ServerStatus
    from batonpass.actors.core.system import System

IDS_SHOWN = 10
"""In an error sentence: enough to see a slip of the pen, and bounded."""

CHILDREN_SHOWN = 100
"""As the state, for people who look into a supervisor."""


class ChildStartFailed(ChildFailure):
    """A supervisor did not start because this child did not."""

    def __init__(self, child_id: Hashable, error: StartError) -> None:
        super().__init__("the child ", child_id, " did not start", error.reason)
        self.__cause__ = error


@dataclass(frozen=True)
class SupervisorFlags:
    """What a supervisor is started with: its first children, in order, and what to do when one ends."""

    children: Sequence[ChildSpec] = ()
    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_restarts: int = 3
    window_s: float = 5.0
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER

    def __post_init__(self) -> None:
        _check_flags(self, "a supervisor")


@dataclass(frozen=True)
class SupervisorSpec(ChildSpec):
    """A supervisor as a child. It may take all the time it needs to end: its children have limits of their own."""

    type: ClassVar[ChildType] = "supervisor"

    children: Sequence[ChildSpec] = ()
    strategy: Strategy = field(default=Strategy.ONE_FOR_ONE, kw_only=True)
    max_restarts: int = field(default=3, kw_only=True)
    window_s: float = field(default=5.0, kw_only=True)
    auto_shutdown: AutoShutdown = field(default=AutoShutdown.NEVER, kw_only=True)
    shutdown_s: float | None = field(default=None, kw_only=True)
    start_timeout_s: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_flags(self, f"the supervisor {self.id!r}")

    def start_nowait(self, system: System, parent: Process) -> Process:
        """Start the supervisor and, in order, its children, waiting for those whose start takes that."""
        flags = SupervisorFlags(self.children, self.strategy, self.max_restarts, self.window_s, self.auto_shutdown)
        return ServerProcess.start_nowait(system, Supervisor, flags, self.name, parent)


def _check_flags(flags: SupervisorFlags | SupervisorSpec, who: str) -> None:
    """Raises `TypeError`, `ValueError`; what was given in another form is put into its own."""
    object.__setattr__(flags, "children", several(ChildSpec, f"children of {who}", flags.children))
    object.__setattr__(flags, "strategy", member_of(Strategy, f"strategy of {who}", flags.strategy))
    need_count(f"max_restarts of {who}", flags.max_restarts)
    need_seconds(f"window_s of {who}", flags.window_s, positive=True)
    auto_shutdown = member_of(AutoShutdown, f"auto_shutdown of {who}", flags.auto_shutdown)
    object.__setattr__(flags, "auto_shutdown", auto_shutdown)


class Child:
    """One child of one supervisor: its specification, and its present life if it has one."""

    __slots__ = ("failure", "process", "restarting", "spec")

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.process: Process | None = None
        self.restarting = False
        self.failure: Reason = None

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
        return ChildInfo(self.spec.id, self.ref, self.status, self.spec.type, self.spec)


# The messages between the client functions below and the callbacks.


@dataclass(frozen=True, slots=True)
class _StartChild:
    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class _ChildCommand:
    verb: Literal["terminate", "restart", "delete", "get_childspec"]
    child_id: Hashable


@dataclass(frozen=True, slots=True)
class _WhichChildren:
    pass


@dataclass(frozen=True, slots=True)
class _CountChildren:
    pass


@dataclass(frozen=True, slots=True)
class _TryAgain:
    """A restart failed; the supervisor tells itself to continue, so that other messages get a turn in between."""

    child: Child


class Supervisor(Server[None]):
    """See the head of the module. Start one with a `SupervisorSpec`; talk to it with the functions below."""

    trap_exit = True

    # Client functions

    @staticmethod
    async def start_child(supervisor: SupervisorAddress, spec: ChildSpec) -> Ref | None:
        """Add a child, last in order, and start it; None if it chose not to run (`IGNORE`).

        Raises `StartError` if it does not start (it is not kept then). Raises `SupervisorError` if the id is taken,
        `significant` does not fit or `spec` is none, and what `Ref.call` raises.
        """
        ref: Ref | None = await ask(supervisor, _StartChild(spec))
        return ref

    @staticmethod
    async def terminate_child(supervisor: SupervisorAddress, child_id: Hashable) -> None:
        """End a child, or its restart; keep its specification for `restart_child`, unless temporary.

        Raises `SupervisorError`: no such id.
        """
        await ask(supervisor, _ChildCommand("terminate", child_id))

    @staticmethod
    async def restart_child(supervisor: SupervisorAddress, child_id: Hashable) -> Ref | None:
        """Start a child that was stopped; None if it chose not to run.

        Raises `StartError`; `SupervisorError`: no such id, or it is running or restarting.
        """
        ref: Ref | None = await ask(supervisor, _ChildCommand("restart", child_id))
        return ref

    @staticmethod
    async def delete_child(supervisor: SupervisorAddress, child_id: Hashable) -> None:
        """Forget a child that was stopped. Raises `SupervisorError`: no such id, or it is running or restarting."""
        await ask(supervisor, _ChildCommand("delete", child_id))

    @staticmethod
    async def get_childspec(supervisor: SupervisorAddress, child_id: Hashable) -> ChildSpec:
        """The specification of a child. Raises `SupervisorError`: no such id."""
        spec: ChildSpec = await ask(supervisor, _ChildCommand("get_childspec", child_id))
        return spec

    @staticmethod
    async def which_children(supervisor: SupervisorAddress) -> list[ChildInfo]:
        """All children, in start order."""
        children: list[ChildInfo] = await ask(supervisor, _WhichChildren())
        return children

    @staticmethod
    async def count_children(supervisor: SupervisorAddress) -> ChildCounts:
        """How many children there are, how many of them run, and of which type they are."""
        counts: ChildCounts = await ask(supervisor, _CountChildren())
        return counts

    # Looked at by `actors.observe`, also while it waits for a child

    @property
    def family(self) -> Collection[Child]:
        """Its children in the order of starting, those that do not run included; none before its `init`."""
        children: dict[Hashable, Child] = vars(self).get("_children", {})
        return children.values()

    # Callbacks

    def init(self, arg: SupervisorFlags) -> Stop[None] | Awaitable[Stop[None] | None] | None:
        """Start the children in order; if one does not start, end the others and do not start either."""
        self._strategy = arg.strategy
        self._auto_shutdown = arg.auto_shutdown
        self._window = RestartWindow(arg.max_restarts, arg.window_s)
        self._children: dict[Hashable, Child] = {}
        for spec in arg.children:
            if exact(spec.id) in self._children:
                raise SupervisorError(f"two children have the id {spec.id!r}; ids are unique within a supervisor")
            self._check(spec)
            self._children[exact(spec.id)] = Child(spec)
        return at_once(self._start_family())

    def handle_call(self, request: Any, from_: From, state: None) -> Reply[None] | Awaitable[Reply[None]]:
        """Serve the client functions; an error of the caller goes back to the caller."""
        return at_once(self._serve(request))

    def handle_info(self, message: Any, state: None) -> Result[None] | Awaitable[Result[None]]:
        """A child has ended, or a restart has to be tried again."""
        match message:
            case ChildEnded():
                child: Child = message.child
                self.ref.process.unfollow(message.process)
                # Not so if it was terminated meanwhile, and perhaps started again.
                if child.process is message.process:
                    child.process = None
                    return at_once(self._child_ended(child, message.process, message.reason))
            case _TryAgain(child):
                if child.restarting and self._children.get(exact(child.spec.id)) is child:
                    return at_once(self._restart(child))
            case _:
                logger.warning("%s got a message it does not understand: %r", self.ref, message)
        return None

    def format_status(self, status: ServerStatus) -> ServerStatus:
        """Show the first children instead of the state, of which a supervisor has none."""
        children = [
            {"id": child.spec.id, "status": child.status, "restart": child.spec.restart}
            for child in islice(self._children.values(), CHILDREN_SHOWN)
        ]
        state = supervisor_status(self._window, strategy=self._strategy, count=len(self._children), children=children)
        return replace(status, state=state)

    def terminate(self, reason: Reason, state: None) -> object:
        """End all children, last one first."""
        return at_once(self._stop(reversed(self._children.values())))

    # Inside: the client functions

    def _serve(self, request: Any) -> Steps[Reply[None]]:
        answer: Any = None
        try:
            match request:
                case _StartChild(spec):
                    answer = yield from self._add(spec)
                case _ChildCommand("terminate", child_id):
                    child = self._find(child_id)
                    yield from self._stop([child])
                    self._forget_if_temporary(child)
                case _ChildCommand("restart", child_id):
                    child = self._find_stopped(child_id)
                    yield from self._start(child)
                    answer = child.ref
                case _ChildCommand("delete", child_id):
                    self._delete(child_id)
                case _ChildCommand("get_childspec", child_id):
                    answer = self._find(child_id).spec
                case _WhichChildren():
                    answer = yield from in_slices(self._children.values(), lambda child: child.info)
                case _CountChildren():
                    answer = ChildCounts.of((child.spec, child.process) for child in self._children.values())
                case _:
                    answer = SupervisorError(f"{self.ref} does not know the request {request!r}")
        except (StartError, SupervisorError) as error:
            answer = error
        return Reply(answer)

    def _find(self, child_id: Hashable) -> Child:
        try:
            child = self._children.get(exact(child_id))
        except TypeError:
            raise SupervisorError(f"{shown(child_id)} is no id of a child: ids are hashable, such as strings") from None
        if child is None:
            some = ", ".join(map(repr, islice(self._children, IDS_SHOWN)))
            more = f" and {len(self._children) - IDS_SHOWN} more" if len(self._children) > IDS_SHOWN else ""
            raise SupervisorError(f"{self.ref} has no child {child_id!r}; it has {some or 'none at all'}{more}")
        return child

    def _find_stopped(self, child_id: Hashable) -> Child:
        child = self._find(child_id)
        if child.status != "stopped":
            raise SupervisorError(f"the child {child_id!r} of {self.ref} is {child.status}: terminate it first")
        return child

    def _check(self, spec: ChildSpec) -> None:
        if spec.significant and self._auto_shutdown is AutoShutdown.NEVER:
            raise SupervisorError(f"the child {spec.id!r} is significant, but auto_shutdown is NEVER: change either")
        if spec.significant and spec.restart is Restart.PERMANENT:
            raise SupervisorError(
                f"the child {spec.id!r} is significant and permanent, so it never ends: change either"
            )

    def _add(self, spec: ChildSpec) -> Steps[Ref | None]:
        self._check(need_spec(spec))
        key = exact(spec.id)
        present = self._children.get(key)
        if present is not None:
            raise SupervisorError(
                f"{self.ref} already has a child {spec.id!r} ({present.status}): choose another id,"
                " restart_child it, or terminate and delete it first"
            )
        child = self._children[key] = Child(spec)
        try:
            yield from self._start(child)
        except StartError:
            del self._children[key]
            raise
        return child.ref

    def _delete(self, child_id: Hashable) -> None:
        del self._children[exact(self._find_stopped(child_id).spec.id)]

    # Inside: starting and stopping

    def _start_family(self) -> Steps[Stop[None] | None]:
        if is_deep(self.ref.process):
            yield trio.lowlevel.checkpoint
        for number, child in enumerate(list(self._children.values()), 1):
            try:
                yield from self._start(child)
            except StartError as error:
                yield from self._stop(reversed(self._children.values()))
                return Stop((SHUTDOWN, ChildStartFailed(child.spec.id, error)))
            if number % BREATHER == 0:
                yield trio.lowlevel.checkpoint
        return None

    def _start(self, child: Child) -> Steps[None]:
        """Begin a life of the child. Raises `StartError`; a child that ignores its start is simply not running."""
        me = self.ref.process
        child.process = yield from begin_life(child.spec, self.system, me)
        child.restarting = False
        child.failure = None
        if child.process is None:
            self._forget_if_temporary(child)
        else:
            me.follow(child.process, child)

    def _stop(self, children: Iterable[Child]) -> Steps[None]:
        """End the present lives of the children one by one, and forget about their ends."""
        for number, child in enumerate(list(children), 1):
            process, child.process = child.process, None
            child.restarting = False
            if process is not None:
                self.ref.process.unfollow(process)
                yield from ending([(process, child.spec.shutdown_s)])
            if number % BREATHER == 0:
                yield trio.lowlevel.checkpoint

    def _forget_if_temporary(self, child: Child) -> None:
        if child.spec.restart is Restart.TEMPORARY:
            self._children.pop(exact(child.spec.id), None)

    # Inside: the ends of children

    def _child_ended(self, child: Child, process: Process, reason: Reason) -> Steps[Result[None]]:
        if should_restart(child.spec.restart, reason):
            child.failure = reason
            child.restarting = True
            yield from remains_ending(process)
            return (yield from self._restart(child))
        self._forget_if_temporary(child)
        if child.spec.significant and self._auto_shutdown.ends(self._significant_left()):
            return Stop(SHUTDOWN)
        return None

    def _significant_left(self) -> Iterable[Child]:
        return (child for child in self._children.values() if child.spec.significant and child.status != "stopped")

    def _restart(self, victim: Child) -> Steps[Result[None]]:
        """Carry out the plan for a child that has ended, or whose restart failed before."""
        if self.system.closing:
            # Nothing can be started any more, and in a moment this is told to end, too.
            victim.restarting = False
            return None
        victim.restarting = True
        allowed = self._window.allows_restart(trio.current_time())
        tell_restart(self, self._window, victim.spec.id, victim.failure, gave_up=not allowed)
        if not allowed:
            gave_up = RestartLimitReached(str(self.ref), self._window, victim.spec.id, victim.failure)
            return Stop((SHUTDOWN, gave_up))
        logger.warning("%s restarts %r, which ended: %s", self.ref, victim.spec.id, shown(victim.failure))
        family = [victim] if self._strategy is Strategy.ONE_FOR_ONE else self._children.values()
        restarts = [(exact(child.spec.id), child.spec.restart) for child in family]
        todo = plan(self._strategy, restarts, exact(victim.spec.id))
        stopped = [self._children[child_id] for child_id in todo.stop]
        yield from self._stop(stopped)
        for child in stopped:
            self._forget_if_temporary(child)
        for number, child_id in enumerate(todo.start, 1):
            child = self._children[child_id]
            try:
                yield from self._start(child)
            except StartError as error:
                tell_not_restarted(self, child.spec.id, error)
                child.restarting = True
                child.failure = error.reason
                # Not a loop: between two attempts the supervisor serves others, and can be told to end.
                self.ref.process.deliver_info(_TryAgain(child))
                break
            if number % BREATHER == 0:
                yield trio.lowlevel.checkpoint
        return None
