"""A supervisor for children that come and go: thousands of entities, one connection each.

As OTP's DynamicSupervisor: one_for_one only, ids are ignored, children are known by their refs, order means nothing,
and all end at the same time. For the rest see `actors.core.supervisor`.

It keeps one entry of one dict for each child, its specification, and nothing else. A hundred thousand children that are
started from the same specification cost little more than themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import trio

from batonpass.actors.base.steps import Steps, at_once, in_slices
from batonpass.actors.core.checks import need_count, need_seconds
from batonpass.actors.core.children import (
    ChildCounts,
    ChildInfo,
    ChildSpec,
    ChildType,
    RestartLimitReached,
    SupervisorAddress,
    SupervisorError,
    ask,
    begin_life,
    need_spec,
    supervisor_status,
    tell_not_restarted,
    tell_restart,
)
from batonpass.actors.core.exits import SHUTDOWN, Reason, StartError, shown
from batonpass.actors.core.messages import ChildEnded
from batonpass.actors.core.process import Process, logger
from batonpass.actors.core.ref import Ref
from batonpass.actors.core.restart import RestartWindow, should_restart
from batonpass.actors.core.server import Reply, Result, Server, Stop
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.shutdown import ending, remains_ending

if TYPE_CHECKING:
    from batonpass.actors.core.ref import From
    from batonpass.actors.core.status_report import ServerStatus
    from batonpass.actors.core.system import System


class TooManyChildren(SupervisorError):
    """The supervisor has `max_children` already."""


@dataclass(frozen=True)
class DynamicSupervisorFlags:
    """What a dynamic supervisor is started with. `max_children` None means no bound."""

    max_children: int | None = None
    max_restarts: int = 3
    window_s: float = 5.0
    extra_arguments: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        _check_flags(self, "a dynamic supervisor")


@dataclass(frozen=True)
class DynamicSupervisorSpec(ChildSpec):
    """A dynamic supervisor as a child of another supervisor.

    With `extra_arguments`, every child gets them before its own. The `init` of an `ActorSpec` is given the tuple
    `(*extra_arguments, arg)`, the function of a `ServiceSpec` is called with them.
    """

    type: ClassVar[ChildType] = "supervisor"

    max_children: int | None = field(default=None, kw_only=True)
    max_restarts: int = field(default=3, kw_only=True)
    window_s: float = field(default=5.0, kw_only=True)
    extra_arguments: tuple[Any, ...] = field(default=(), kw_only=True)
    shutdown_s: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_flags(self, f"the supervisor {self.id!r}")

    def start_nowait(self, system: System, parent: Process) -> Process:
        """Start the supervisor, without children."""
        flags = DynamicSupervisorFlags(self.max_children, self.max_restarts, self.window_s, self.extra_arguments)
        return ServerProcess.start_nowait(system, DynamicSupervisor, flags, self.name, parent)


def _check_flags(flags: DynamicSupervisorFlags | DynamicSupervisorSpec, who: str) -> None:
    check_dynamic(who, flags.max_children, flags.max_restarts, flags.window_s)
    if not isinstance(flags.extra_arguments, tuple):
        raise TypeError(f"extra_arguments of {who} must be a tuple, not {flags.extra_arguments!r}")


def check_dynamic(who: str, max_children: object, max_restarts: object, window_s: object) -> None:
    """What supervisors are given that have no fixed children. Raises `TypeError`, `ValueError`."""
    need_count(f"max_children of {who}", max_children, optional=True)
    need_count(f"max_restarts of {who}", max_restarts)
    need_seconds(f"window_s of {who}", window_s, positive=True)


class _StartDynamicChild:
    __slots__ = ("spec",)

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec


@dataclass(frozen=True, slots=True)
class _TerminateDynamicChild:
    ref: object


@dataclass(frozen=True, slots=True)
class _WhichDynamicChildren:
    pass


@dataclass(frozen=True, slots=True)
class _CountDynamicChildren:
    pass


class _Restarting:
    """In place of the specification of a child that waits for its restart, under the process of its last life."""

    __slots__ = ("failure", "spec")

    def __init__(self, spec: ChildSpec, failure: Reason) -> None:
        self.spec = spec
        self.failure = failure


_Entry: TypeAlias = tuple[Process, ChildSpec | _Restarting]


@dataclass(frozen=True, slots=True)
class _TryDynamicChildAgain:
    last_life: Process


class DynamicSupervisor(Server[None]):
    """See the head of the module. Start one with a `DynamicSupervisorSpec`; talk to it with the functions below."""

    trap_exit = True

    # Client functions

    @staticmethod
    async def start_child(supervisor: SupervisorAddress, spec: ChildSpec) -> Ref | None:
        """Start a child; None if it chose not to run (`IGNORE`).

        Raises `StartError` if it does not start, `TooManyChildren`, and what `Ref.call` raises. Raises
        `SupervisorError` for what is no specification, a significant child or one that cannot take `extra_arguments`.
        """
        ref: Ref | None = await ask(supervisor, _StartDynamicChild(spec))
        return ref

    @staticmethod
    async def terminate_child(supervisor: SupervisorAddress, ref: Ref) -> None:
        """End a child for good, or its restart, if `ref` is its last life.

        Raises `SupervisorError` if it is not (or no longer) a child.
        """
        await ask(supervisor, _TerminateDynamicChild(ref))

    @staticmethod
    async def which_children(supervisor: SupervisorAddress) -> list[ChildInfo]:
        """All children, those that wait for their restart included."""
        children: list[ChildInfo] = await ask(supervisor, _WhichDynamicChildren())
        return children

    @staticmethod
    async def count_children(supervisor: SupervisorAddress) -> ChildCounts:
        """How many children there are, those that wait for their restart included, and how many of them run."""
        counts: ChildCounts = await ask(supervisor, _CountDynamicChildren())
        return counts

    # Callbacks

    def init(self, arg: DynamicSupervisorFlags | None) -> None:
        """Begin without children."""
        flags = arg or DynamicSupervisorFlags()
        self._max_children = flags.max_children
        self._extra_arguments = flags.extra_arguments
        self._window = RestartWindow(flags.max_restarts, flags.window_s)
        process = self.ref.process
        if process.children is None:
            process.children = {}
        # The one table there is: each child, or its last life, and its specification or `_Restarting`.
        self._children: dict[Process, ChildSpec | _Restarting | None] = process.children

    def handle_call(self, request: Any, from_: From, state: None) -> Reply[None] | Awaitable[Reply[None]]:
        """Serve the client functions; an error of the caller goes back to the caller."""
        return at_once(self._serve(request))

    def handle_info(self, message: Any, state: None) -> Result[None] | Awaitable[Result[None]]:
        """A child has ended, or a restart has to be tried again."""
        match message:
            case ChildEnded():
                spec: ChildSpec = message.child
                # Not so if it was terminated meanwhile.
                if self._children.pop(message.process, None) is not None and should_restart(
                    spec.restart, message.reason
                ):
                    return at_once(self._restart(message.process, spec, message.reason))
            case _TryDynamicChildAgain(last_life):
                waiting = self._children.pop(last_life, None)
                if isinstance(waiting, _Restarting):
                    return at_once(self._restart(last_life, waiting.spec, waiting.failure))
            case _:
                logger.warning("%s got a message it does not understand: %r", self.ref, message)
        return None

    def format_status(self, status: ServerStatus) -> ServerStatus:
        """Show how many children there are instead of the state, of which a supervisor has none."""
        shown = supervisor_status(self._window, count=len(self._children), max_children=self._max_children)
        return replace(status, state=shown)

    def terminate(self, reason: object, state: None) -> object:
        """End all children at the same time."""
        return at_once(self._stop(list(self._children)))

    # Inside

    def _serve(self, request: Any) -> Steps[Reply[None]]:
        match request:
            case _StartDynamicChild():
                try:
                    process = yield from self._add(request.spec)
                except (StartError, SupervisorError) as error:
                    return Reply(error)
                return Reply(None if process is None else process.ref)
            case _TerminateDynamicChild(ref):
                if not isinstance(ref, Ref):
                    return Reply(SupervisorError(f"{shown(ref)} is no ref, by which {self.ref} knows its children"))
                if ref.process not in self._children:
                    return Reply(SupervisorError(f"{ref} is not a child of {self.ref} (any more)"))
                yield from self._stop([ref.process])
                return Reply(None)
            case _WhichDynamicChildren():
                return Reply((yield from in_slices(self._entries(), _info)))
            case _CountDynamicChildren():
                return Reply(ChildCounts.of(_counted(entry) for entry in self._entries()))
            case _:
                return Reply(SupervisorError(f"{self.ref} does not know the request {request!r}"))

    def _entries(self) -> list[_Entry]:
        # None is what is left of a start that was given up, and does not notice.
        return [(process, known) for process, known in self._children.items() if known is not None]

    def _add(self, spec: ChildSpec) -> Steps[Process | None]:
        need_spec(spec)
        count = len(self._children)
        if self._max_children is not None and count >= self._max_children:
            raise TooManyChildren(f"{self.ref} has {count} children, its max_children: end one, or raise the bound")
        if spec.significant:
            raise SupervisorError(f"the child {spec.id!r} is significant, but {self.ref} has no auto_shutdown")
        return (yield from self._start(spec))

    def _start(self, spec: ChildSpec) -> Steps[Process | None]:
        me = self.ref.process
        full = spec.with_extra_arguments(self._extra_arguments) if self._extra_arguments else spec
        process = yield from begin_life(full, self.system, me)
        if process is not None:
            me.follow(process, spec)
        return process

    def _stop(self, processes: list[Process]) -> Steps[None]:
        group: list[tuple[Process, float | None]] = []
        for process in processes:
            known = self._children[process]
            self.ref.process.unfollow(process)
            if isinstance(known, ChildSpec):
                group.append((process, known.shutdown_s))
        yield from ending(group)

    def _restart(self, last_life: Process, spec: ChildSpec, failure: Reason) -> Steps[Result[None]]:
        if self.system.closing:
            # Nothing can be started any more, and in a moment this is told to end, too.
            return None
        allowed = self._window.allows_restart(trio.current_time())
        tell_restart(self, self._window, spec.id, failure, gave_up=not allowed)
        if not allowed:
            return Stop((SHUTDOWN, RestartLimitReached(str(self.ref), self._window, spec.id, failure)))
        logger.warning("%s restarts %r, which ended: %s", self.ref, spec.id, shown(failure))
        yield from remains_ending(last_life)
        try:
            yield from self._start(spec)
        except StartError as error:
            tell_not_restarted(self, spec.id, error)
            self._children[last_life] = _Restarting(spec, error.reason)
            self.ref.process.deliver_info(_TryDynamicChildAgain(last_life))
        return None


def _info(entry: _Entry) -> ChildInfo:
    process, known = entry
    if isinstance(known, _Restarting):
        return ChildInfo(known.spec.id, None, "restarting", known.spec.type, known.spec)
    return ChildInfo(known.id, process.ref, "running", known.type, known)


def _counted(entry: _Entry) -> tuple[ChildSpec, Process]:
    process, known = entry
    return (known.spec if isinstance(known, _Restarting) else known), process
