"""Supervisors: actors whose whole work is to start other actors and services, and to start them again.

A `Supervisor` has a fixed idea of its children, in order; `actors.dynamic_supervisor` has one for children that come
and go. Who is restarted, and when it is hopeless, is decided by the pure `actors.restart`; this file carries it out. A
supervisor is a `Server` like any other, so supervisors supervise supervisors. An idle one costs no task.

When restarting does not help (`max_restarts` within `window_s`, all children of one supervisor together) a supervisor
ends its children and itself, and leaves the rest to its own supervisor. Its exit reason is
`("shutdown", RestartLimitReached(...))`, where OTP has a bare `shutdown`: every rule treats the two alike, and the
first cause is not lost on the way up.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import trio

from actors.children import (
    Child,
    ChildInfo,
    ChildSpec,
    RestartLimitReached,
    SupervisorAddress,
    SupervisorError,
    ask,
)
from actors.exits import SHUTDOWN, Ignored, Reason, StartError
from actors.messages import Down
from actors.process import Process, logger, shut_down
from actors.ref import Ref
from actors.restart import Restart, RestartWindow, Strategy, plan, should_restart
from actors.server import Reply, Result, Server, Stop

if TYPE_CHECKING:
    from actors.ref import From
    from actors.system import System


class ChildStartFailed(Exception):
    """A supervisor did not start because this child did not."""

    def __init__(self, child_id: Hashable, error: StartError) -> None:
        self.child_id = child_id
        self.reason = error.reason
        super().__init__(f"the child {child_id!r} did not start: {error.reason!r}")
        self.__cause__ = error


@dataclass(frozen=True)
class SupervisorFlags:
    """What a supervisor is started with: its first children, in order, and what to do when one ends."""

    children: tuple[ChildSpec, ...] = ()
    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_restarts: int = 3
    window_s: float = 5.0


@dataclass(frozen=True)
class SupervisorSpec(ChildSpec):
    """A supervisor as a child. It may take all the time it needs to end: its children have limits of their own."""

    children: tuple[ChildSpec, ...] = ()
    strategy: Strategy = field(default=Strategy.ONE_FOR_ONE, kw_only=True)
    max_restarts: int = field(default=3, kw_only=True)
    window_s: float = field(default=5.0, kw_only=True)
    shutdown_s: float | None = field(default=None, kw_only=True)
    start_timeout_s: float | None = field(default=None, kw_only=True)

    async def start(self, system: System, parent: Process) -> Process:
        """Start the supervisor and, in order, its children."""
        flags = SupervisorFlags(tuple(self.children), self.strategy, self.max_restarts, self.window_s)
        return await system.start_process(Supervisor, flags, self.name, parent, self.start_timeout_s)


# The messages between the client functions below and the callbacks.


@dataclass(frozen=True, slots=True)
class _StartChild:
    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class _ChildCommand:
    verb: Literal["terminate", "restart", "delete"]
    child_id: Hashable


@dataclass(frozen=True, slots=True)
class _WhichChildren:
    pass


@dataclass(frozen=True, slots=True)
class _TryAgain:
    """A restart failed; the supervisor tells itself to go on, so that other messages get a turn in between."""

    child_id: Hashable


class Supervisor(Server[None]):
    """See the head of the module. Start one with a `SupervisorSpec`; talk to it with the functions below."""

    trap_exit = True

    # Client functions

    @staticmethod
    async def start_child(supervisor: SupervisorAddress, spec: ChildSpec) -> Ref | None:
        """Add a child, last in order, and start it; None if it chose not to run (`IGNORE`).

        Raises `StartError` if it does not start (it is not kept then), `SupervisorError` if the id is taken, and what
        `Ref.call` raises.
        """
        ref: Ref | None = await ask(supervisor, _StartChild(spec))
        return ref

    @staticmethod
    async def terminate_child(supervisor: SupervisorAddress, child_id: Hashable) -> None:
        """End a child; keep its specification for `restart_child`, unless temporary.

        Raises `SupervisorError`: no such id.
        """
        await ask(supervisor, _ChildCommand("terminate", child_id))

    @staticmethod
    async def restart_child(supervisor: SupervisorAddress, child_id: Hashable) -> Ref | None:
        """Start a child that is not running. Raises `StartError`; `SupervisorError`: no such id, or it is running."""
        ref: Ref | None = await ask(supervisor, _ChildCommand("restart", child_id))
        return ref

    @staticmethod
    async def delete_child(supervisor: SupervisorAddress, child_id: Hashable) -> None:
        """Forget a child that is not running. Raises `SupervisorError`: no such id, or it is running."""
        await ask(supervisor, _ChildCommand("delete", child_id))

    @staticmethod
    async def which_children(supervisor: SupervisorAddress) -> list[ChildInfo]:
        """All children, in start order."""
        children: list[ChildInfo] = await supervisor.call(_WhichChildren(), None)
        return children

    # Callbacks

    async def init(self, arg: SupervisorFlags) -> Stop[None] | None:
        """Start the children in order; if one does not start, end the others and do not start either."""
        self._strategy = arg.strategy
        self._window = RestartWindow(arg.max_restarts, arg.window_s)
        self._children: dict[Hashable, Child] = {}
        for spec in arg.children:
            if spec.id in self._children:
                raise SupervisorError(f"two children have the id {spec.id!r}; ids are unique within a supervisor")
            child = self._children[spec.id] = Child(spec)
            try:
                await self._start(child)
            except StartError as error:
                await self._stop_all()
                return Stop((SHUTDOWN, ChildStartFailed(spec.id, error)))
        return None

    async def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
        """Serve the client functions; an error of the caller goes back to the caller."""
        try:
            match request:
                case _StartChild(spec):
                    return Reply(await self._add(spec))
                case _ChildCommand("terminate", child_id):
                    await self._terminate_child(self._find(child_id))
                    return Reply(None)
                case _ChildCommand("restart", child_id):
                    child = self._find_idle(child_id)
                    await self._start(child)
                    return Reply(child.process.ref if child.process else None)
                case _ChildCommand("delete", child_id):
                    del self._children[self._find_idle(child_id).spec.id]
                    return Reply(None)
                case _WhichChildren():
                    return Reply([child.info for child in self._children.values()])
                case _:
                    return Reply(SupervisorError(f"{self.ref} does not know the request {request!r}"))
        except (StartError, SupervisorError) as error:
            return Reply(error)

    async def handle_info(self, message: Any, state: None) -> Result[None]:
        """A child has ended, or a restart has to be tried again."""
        match message:
            case Down(_, ref, reason):
                child = self._child_of(ref)
                return None if child is None else await self._child_ended(child, reason)
            case _TryAgain(child_id):
                child = self._children.get(child_id)
                if child is not None and child.restarting:
                    return await self._restart(child)
                return None
            case _:
                logger.warning("%s got a message it does not understand: %r", self.ref, message)
                return None

    async def terminate(self, reason: Reason, state: None) -> None:
        """End all children, last one first."""
        await self._stop_all()

    # Inside

    def _child_of(self, ref: Ref) -> Child | None:
        """Whose life this is; None for a life that is over and done with."""
        for child in self._children.values():
            if child.process is not None and child.process.ref is ref:
                return child
        return None

    def _find(self, child_id: Hashable) -> Child:
        child = self._children.get(child_id)
        if child is None:
            raise SupervisorError(f"{self.ref} has no child {child_id!r}; it has {list(self._children)!r}")
        return child

    def _find_idle(self, child_id: Hashable) -> Child:
        child = self._find(child_id)
        if child.process is not None or child.restarting:
            raise SupervisorError(f"the child {child_id!r} of {self.ref} is {child.status}: terminate it first")
        return child

    async def _add(self, spec: ChildSpec) -> Ref | None:
        present = self._children.get(spec.id)
        if present is not None:
            raise SupervisorError(
                f"{self.ref} already has a child {spec.id!r} ({present.status}): choose another id,"
                " restart_child it, or terminate and delete it first"
            )
        child = self._children[spec.id] = Child(spec)
        try:
            await self._start(child)
        except StartError:
            del self._children[spec.id]
            raise
        return child.ref

    async def _start(self, child: Child) -> None:
        """Begin a life of the child. Raises `StartError`; a child that ignores its start is simply not running."""
        try:
            child.begin(await child.spec.start(self.system, self.ref.process), self)
        except Ignored:
            child.restarting = False
            self._forget_if_temporary(child)

    async def _stop(self, child: Child) -> None:
        """End the present life of the child, and forget about its `Down`."""
        process = child.release(self)
        if process is not None:
            await shut_down([(process, child.spec.shutdown_s)])

    async def _stop_all(self) -> None:
        for child in reversed(list(self._children.values())):
            await self._stop(child)

    async def _terminate_child(self, child: Child) -> None:
        await self._stop(child)
        self._forget_if_temporary(child)

    def _forget_if_temporary(self, child: Child) -> None:
        if child.spec.restart is Restart.TEMPORARY:
            self._children.pop(child.spec.id, None)

    async def _child_ended(self, child: Child, reason: Reason) -> Result[None]:
        child.release(self)
        if should_restart(child.spec.restart, reason):
            child.failure = reason
            return await self._restart(child)
        self._forget_if_temporary(child)
        return None

    async def _restart(self, victim: Child) -> Result[None]:
        """Carry out the plan for a child that has ended, or whose restart failed before."""
        victim.restarting = True
        if not self._window.allows_restart(trio.current_time()):
            return Stop((SHUTDOWN, RestartLimitReached(str(self.ref), self._window, victim)))
        logger.warning("%s restarts %r, which ended: %r", self.ref, victim.spec.id, victim.failure)
        todo = plan(
            self._strategy,
            [(child.spec.id, child.spec.restart) for child in self._children.values()],
            victim.spec.id,
        )
        for child_id in todo.stop:
            await self._terminate_child(self._children[child_id])
        for child_id in todo.start:
            child = self._children[child_id]
            try:
                await self._start(child)
            except StartError as error:
                logger.error("%s could not restart %r: %r", self.ref, child_id, error.reason)
                child.restarting = True
                child.failure = error.reason
                # Not a loop: between two attempts the supervisor serves others, and can be told to end.
                self.ref.process.deliver_info(_TryAgain(child_id))
                break
        return None
