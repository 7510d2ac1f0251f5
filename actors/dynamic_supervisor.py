"""A supervisor for children that come and go: thousands of entities, one connection each.

As OTP's DynamicSupervisor: one_for_one only, ids are ignored, children are known by their refs, order means nothing,
and all end at the same time. For the rest see `actors.supervisor`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from actors.exits import SHUTDOWN, Ignored, StartError
from actors.messages import Down
from actors.process import Process, logger, shut_down
from actors.ref import Ref
from actors.restart import RestartWindow, should_restart
from actors.server import Reply, Result, Server, Stop

if TYPE_CHECKING:
    from actors.ref import From
    from actors.system import System


class TooManyChildren(SupervisorError):
    """The supervisor has `max_children` already."""


@dataclass(frozen=True)
class DynamicSupervisorFlags:
    """What a dynamic supervisor is started with. `max_children` None means no bound."""

    max_children: int | None = None
    max_restarts: int = 3
    window_s: float = 5.0


@dataclass(frozen=True)
class DynamicSupervisorSpec(ChildSpec):
    """A dynamic supervisor as a child of another supervisor."""

    max_children: int | None = field(default=None, kw_only=True)
    max_restarts: int = field(default=3, kw_only=True)
    window_s: float = field(default=5.0, kw_only=True)
    shutdown_s: float | None = field(default=None, kw_only=True)

    async def start(self, system: System, parent: Process) -> Process:
        """Start the supervisor, without children."""
        flags = DynamicSupervisorFlags(self.max_children, self.max_restarts, self.window_s)
        return await system.start_process(DynamicSupervisor, flags, self.name, parent, self.start_timeout_s)


@dataclass(frozen=True, slots=True)
class _StartChild:
    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class _TerminateChild:
    ref: Ref


@dataclass(frozen=True, slots=True)
class _WhichChildren:
    pass


@dataclass(frozen=True, slots=True)
class _CountChildren:
    pass


@dataclass(frozen=True, slots=True)
class _TryAgain:
    child: Child


class DynamicSupervisor(Server[None]):
    """See the head of the module. Start one with a `DynamicSupervisorSpec`; talk to it with the functions below."""

    trap_exit = True

    # Client functions

    @staticmethod
    async def start_child(supervisor: SupervisorAddress, spec: ChildSpec) -> Ref | None:
        """Start a child; None if it chose not to run (`IGNORE`).

        Raises `StartError` if it does not start, `TooManyChildren`, and what `Ref.call` raises.
        """
        ref: Ref | None = await ask(supervisor, _StartChild(spec))
        return ref

    @staticmethod
    async def terminate_child(supervisor: SupervisorAddress, ref: Ref) -> None:
        """End a child for good. Raises `SupervisorError` if it is not (or no longer) a child."""
        await ask(supervisor, _TerminateChild(ref))

    @staticmethod
    async def which_children(supervisor: SupervisorAddress) -> list[ChildInfo]:
        """All children, those that wait for their restart included."""
        children: list[ChildInfo] = await ask(supervisor, _WhichChildren())
        return children

    @staticmethod
    async def count_children(supervisor: SupervisorAddress) -> int:
        """How many children there are, those that wait for their restart included."""
        count: int = await ask(supervisor, _CountChildren())
        return count

    # Callbacks

    def init(self, arg: DynamicSupervisorFlags | None) -> None:
        """Begin without children."""
        flags = arg or DynamicSupervisorFlags()
        self._max_children = flags.max_children
        self._window = RestartWindow(flags.max_restarts, flags.window_s)
        self._running: dict[Ref, Child] = {}
        self._restarting: dict[Child, None] = {}

    async def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
        """Serve the client functions; an error of the caller goes back to the caller."""
        match request:
            case _StartChild(spec):
                try:
                    return Reply(await self._add(spec))
                except (StartError, SupervisorError) as error:
                    return Reply(error)
            case _TerminateChild(ref):
                child = self._running.pop(ref, None)
                if child is None:
                    return Reply(SupervisorError(f"{ref} is not a child of {self.ref} (any more)"))
                await self._stop([child])
                return Reply(None)
            case _WhichChildren():
                return Reply([child.info for child in (*self._running.values(), *self._restarting)])
            case _CountChildren():
                return Reply(len(self._running) + len(self._restarting))
            case _:
                return Reply(SupervisorError(f"{self.ref} does not know the request {request!r}"))

    async def handle_info(self, message: Any, state: None) -> Result[None]:
        """A child has ended, or a restart has to be tried again."""
        match message:
            case Down(_, ref, reason):
                child = self._running.pop(ref, None)
                if child is None:
                    return None
                child.release(self)
                if not should_restart(child.spec.restart, reason):
                    return None
                child.failure = reason
                return await self._restart(child)
            case _TryAgain(child):
                return await self._restart(child) if child in self._restarting else None
            case _:
                logger.warning("%s got a message it does not understand: %r", self.ref, message)
                return None

    async def terminate(self, reason: object, state: None) -> None:
        """End all children at the same time."""
        self._restarting.clear()
        children = list(self._running.values())
        self._running.clear()
        await self._stop(children)

    # Inside

    async def _add(self, spec: ChildSpec) -> Ref | None:
        count = len(self._running) + len(self._restarting)
        if self._max_children is not None and count >= self._max_children:
            raise TooManyChildren(f"{self.ref} has {count} children, its max_children: end one, or raise the bound")
        child = Child(spec)
        await self._start(child)
        return child.ref

    async def _start(self, child: Child) -> None:
        self._restarting.pop(child, None)
        try:
            process = await child.spec.start(self.system, self.ref.process)
        except Ignored:
            child.restarting = False
            return
        self._running[process.ref] = child
        child.begin(process, self)

    async def _stop(self, children: list[Child]) -> None:
        released = [(child.release(self), child.spec.shutdown_s) for child in children]
        await shut_down([(process, shutdown_s) for process, shutdown_s in released if process is not None])

    async def _restart(self, child: Child) -> Result[None]:
        if not self._window.allows_restart(trio.current_time()):
            return Stop((SHUTDOWN, RestartLimitReached(str(self.ref), self._window, child)))
        logger.warning("%s restarts %r, which ended: %r", self.ref, child.spec.id, child.failure)
        try:
            await self._start(child)
        except StartError as error:
            logger.error("%s could not restart %r: %r", self.ref, child.spec.id, error.reason)
            child.restarting = True
            child.failure = error.reason
            self._restarting[child] = None
            self.ref.process.deliver_info(_TryAgain(child))
        return None
