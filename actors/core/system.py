"""A system (Erlang would say a node): the actors of one process, and what they share.

`async with System.open("alpha.s1", children=[...]) as system:` starts the root supervisor and its children in order.
Leaving the block, by whatever way, ends them in reverse order, with time for `terminate` even if the block was
cancelled. If the root supervisor gives up, the block is cancelled, and the error that comes out of it is that failure
itself, not an exception group around it.
"""

from __future__ import annotations

import inspect
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, final, overload

import trio

from batonpass.actors.base.handles import Handle
from batonpass.actors.base.interrupts import await_interruptibly, protected, that_ends_the_program
from batonpass.actors.base.loop import Loop, get_ident
from batonpass.actors.base.spawn_log import SpawnLog
from batonpass.actors.core.checks import need_seconds
from batonpass.actors.core.debug import Debug
from batonpass.actors.core.exits import Exit, cause_of, is_orderly, reason_of, shown
from batonpass.actors.core.links import LinkSignals
from batonpass.actors.core.named import Named, Names
from batonpass.actors.core.process import Process, logger
from batonpass.actors.core.remembering import Memory
from batonpass.actors.core.restart import AutoShutdown, RestartLog, Strategy
from batonpass.actors.core.scheduler import Scheduler
from batonpass.actors.core.server import Stop
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.shutdown import shut_down
from batonpass.actors.core.supervisor import Supervisor, SupervisorFlags
from batonpass.actors.core.telemetry import MESSAGE_HANDLED, Telemetry
from batonpass.actors.core.timers import SystemTimers
from batonpass.actors.core.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence

    from batonpass.actors.core.children import ChildSpec
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.messages import Starts
    from batonpass.actors.core.node_port import DistributionPort, NodePort
    from batonpass.actors.core.ref import Ref

ArgT = TypeVar("ArgT")

ROOT: Final = "root"
LOOSE_SHUTDOWN_S: Final = 5.0
"""How long actors that no supervisor is responsible for may take to end with the system."""


@final
@dataclass(frozen=True, slots=True)
class Stats:
    """What a system has counted since it was opened."""

    actors: int
    messages_handled: int
    messages_dropped: int
    crashes: int
    slow_callbacks: int
    """Callbacks that took longer than `slow_callback_s`, found out afterwards."""
    blocked: int
    """Blockages of the whole node that the watchdog saw while they lasted."""


@final
class System(Handle):
    """One running system; made by `System.open`."""

    def __init__(
        self,
        name: str,
        nursery: trio.Nursery,
        slow_callback_s: float,
        clock_s: Callable[[], float],
        watchdog: Watchdog | None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.name = name
        self.loop = Loop()
        """Where all of it runs."""
        self.thread = self.loop.thread
        self.registry = Names()
        self.timers = SystemTimers()
        self.telemetry = Telemetry(clock_s) if telemetry is None else telemetry
        self.scheduler = Scheduler(slow_callback_s, clock_s, self.telemetry)
        self.link_signals = LinkSignals()
        self.memory = Memory()
        self.debug = Debug(clock_s, self.telemetry)
        self.dropped = 0
        self.crashes = 0
        self.restarts = RestartLog()
        """What supervisors have started again lately."""
        self._watchdog = watchdog
        self.distribution: DistributionPort | None = None
        """What connects this system to those of other nodes, once there is one (`actors.remote`)."""
        self._nursery = nursery
        self.running: dict[Process, trio.lowlevel.Task] = {}
        """Which task runs a part of which process, of those that need one at present."""
        self._processes: dict[int, Process] = {}
        self._last_pid = 0
        self._births = SpawnLog()
        self._closing = False
        self._starts: dict[Process, trio.CancelScope] = {}
        """Starts that a caller waits for, and what ends that."""
        self._root: Ref | None = None
        self._root_reason: Reason = None
        self._engine: list[trio.CancelScope] = []
        self._broken = trio.CancelScope()
        self.telemetry.on_demand(MESSAGE_HANDLED, self._watch_everybody)

    @classmethod
    @asynccontextmanager
    @protected
    async def open(
        cls,
        name: str,
        children: Sequence[ChildSpec] = (),
        *,
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        max_restarts: int = 3,
        window_s: float = 5.0,
        auto_shutdown: AutoShutdown = AutoShutdown.NEVER,
        slow_callback_s: float = 0.1,
        watchdog_s: float | None = 0.25,
        clock_s: Callable[[], float] = time.perf_counter,
        telemetry: Telemetry | None = None,
    ) -> AsyncIterator[System]:
        """Run a system for the length of an `async with` block.

        `children` and the next four arguments describe the root supervisor. A sync callback that takes longer than
        `slow_callback_s` on `clock_s` is counted and logged. Whatever holds the whole node up for longer than about
        `watchdog_s` real seconds is reported while it does, with its stack (None: no watchdog); see
        `actors.core.watchdog`. `telemetry` is the hub of this system, if a handler is to be attached before anything
        has started.

        Raises `StartError` if a child does not start, and `RestartLimitReached` if the root supervisor gives up.
        """
        need_seconds(f"slow_callback_s of the system {name!r}", slow_callback_s)
        need_seconds(f"watchdog_s of the system {name!r}", watchdog_s, optional=True, positive=True)
        failure: BaseException | None = None
        watchdog = None if watchdog_s is None else Watchdog(watchdog_s)
        try:
            async with trio.open_nursery() as nursery:
                system = cls(name, nursery, slow_callback_s, clock_s, watchdog, telemetry)
                system._start_engine()
                # Caught here and raised below, past the nursery, which would wrap it in a group.
                try:
                    with trio.CancelScope() as block:
                        flags = SupervisorFlags(children, strategy, max_restarts, window_s, auto_shutdown)
                        await await_interruptibly(system._start_root, flags, block)
                        yield system
                except BaseException as error:
                    failure = error
                await system._close()
        except BaseExceptionGroup as group:
            end = that_ends_the_program(group)
            raise end or reason_of(group) from None
        finally:
            if watchdog is not None:
                watchdog.stop()
        root_failure = system._root_failure()
        if root_failure is not None:
            if isinstance(failure, Exception):
                root_failure.add_note(f"the block that opened the system also failed: {failure!r}")
            raise root_failure
        if failure is not None:
            raise failure

    async def _start_root(self, flags: SupervisorFlags, block: trio.CancelScope) -> None:
        self._root = await self.start(Supervisor, flags, name=ROOT)
        root = self._root.process

        def ended(reason: Reason) -> None:
            self._root_reason = reason
            block.cancel()

        if root.alive:
            root.watch(ended)
        else:
            ended(root.reason)

    # Starting actors

    @overload
    async def start(
        self,
        server: Callable[[], Starts[None]],
        *,
        name: Hashable = None,
        timeout_s: float | None = None,
        link: Ref | None = None,
    ) -> Ref: ...

    @overload
    async def start(
        self,
        server: Callable[[], Starts[ArgT]],
        arg: ArgT,
        *,
        name: Hashable = None,
        timeout_s: float | None = None,
        link: Ref | None = None,
    ) -> Ref: ...

    async def start(
        self,
        server: Callable[[], Any],
        arg: Any = None,
        *,
        name: Hashable = None,
        timeout_s: float | None = None,
        link: Ref | None = None,
    ) -> Ref:
        """Start an actor that no supervisor is responsible for; it ends with the system at the latest.

        `server` is a `Server` class, or anything else that makes a fresh `Server` when called. `arg` goes to `init`,
        which has returned when this does; an `async def init` may take `timeout_s`.

        With `link` it is linked to that actor from the first moment, and that actor is its parent, as if it had called
        `Server.start_link`. A trio task is no actor, and so cannot be linked: it waits with `await ref.exited()`.

        Raises `StartError`: `init` raised or returned `Stop`, reason `"timeout"` after `timeout_s`, or `link` has
        ended; `AlreadyStarted`: the name is taken; `Ignored`. When it fails because `init` did, `link` gets an exit
        signal with the reason as well.
        """
        starter = None if link is None else link.process
        process = ServerProcess.start_nowait(self, server, arg, name, None, starter)
        await process.wait_started(timeout_s)
        return process.ref

    @overload
    def start_nowait(
        self, server: Callable[[], Starts[None]], *, name: Hashable = None, link: Ref | None = None
    ) -> Ref: ...

    @overload
    def start_nowait(
        self, server: Callable[[], Starts[ArgT]], arg: ArgT, *, name: Hashable = None, link: Ref | None = None
    ) -> Ref: ...

    @protected
    def start_nowait(
        self,
        server: Callable[[], Any],
        arg: Any = None,
        *,
        name: Hashable = None,
        link: Ref | None = None,
    ) -> Ref:
        """`start` for a server whose `init` is a plain `def`: so that callbacks can start actors too."""
        starter = None if link is None else link.process
        process, result = ServerProcess.begin(self, server, arg, name, None, starter)
        if inspect.iscoroutine(result):
            result.close()
            result = Stop("init is `async def`: start it with `await ... start(...)`")
        process.finish_init(result)
        return process.ref

    async def start_child(self, spec: ChildSpec) -> Ref | None:
        """`Supervisor.start_child` for the root supervisor."""
        return await Supervisor.start_child(self.root, spec)

    # Looking around

    @property
    def root(self) -> Ref:
        """The root supervisor, which is also registered under the name `"root"`."""
        if self._root is None:
            raise RuntimeError(f"the system {self.name!r} is still starting its root supervisor")
        return self._root

    def whereis(self, name: Hashable) -> Ref | None:
        """Who has the name now, if there is one."""
        return self.registry.whereis(name)

    def named(self, name: Hashable) -> Named:
        """A ref by name, which survives restarts; no actor needs to have the name yet."""
        return self.registry.named(name)

    def remote(self, node: str) -> NodePort:
        """Another node: `system.remote("beta.s1").named("counter")` is a ref by name to an actor there.

        Raises RuntimeError without a `Distribution`, ValueError for what is no name of another node.
        """
        if self.distribution is None:
            raise RuntimeError(f"the system {self.name!r} has no connection to other nodes: give it a Distribution")
        return self.distribution.remote(node)

    def process(self, pid: int) -> Process | None:
        """The living actor with this pid, if there is one. For the runtime."""
        return self._processes.get(pid)

    def actors(self) -> list[Ref]:
        """Everything that is alive, in the order in which it was started."""
        return [process.ref for process in self._processes.values()]

    def actors_after(self, pid: int, limit: int) -> list[Ref]:
        """At most `limit` of those alive with a higher pid, in the order in which they were started."""
        later = (process.ref for process in self._processes.values() if process.pid > pid)
        return list(islice(later, limit))

    def with_pid(self, pid: int) -> Ref | None:
        """The actor with this pid, if it is alive."""
        process = self._processes.get(pid)
        return None if process is None else process.ref

    def __repr__(self) -> str:
        return f"<the system {self.name!r}>"

    @property
    def count(self) -> int:
        """How many actors are alive."""
        return len(self._processes)

    def started_s(self, pid: int) -> float:
        """When the actor with this pid was started, on `clock_s`; as precise as `SpawnLog` is."""
        return self._births.of(pid)

    @property
    def stats(self) -> Stats:
        """The counters, now."""
        return Stats(
            actors=len(self._processes),
            messages_handled=self.scheduler.handled,
            messages_dropped=self.dropped,
            crashes=self.crashes,
            slow_callbacks=self.scheduler.slow_callbacks,
            blocked=0 if self._watchdog is None else self._watchdog.blocked,
        )

    async def round_over(self) -> None:
        """Wait until every actor that has something to do now has had a turn.

        Actors that were told just one thing before this is called have handled it then: however many they are, and
        however long that takes. Of who has more to do, the rest may follow after it. A turn is at most that many
        messages, and ends with the slice that it is in. Other actors get their turns, and sockets are served. It is
        over, too, when the system has ended, however that came about.
        """
        await self.scheduler.round_over()

    # For processes

    @property
    def closing(self) -> bool:
        """Whether nothing can be started any more."""
        return self._closing

    @contextmanager
    def start_in_progress(self, process: Process, limit: trio.CancelScope) -> Iterator[None]:
        """A caller waits for the start of `process`, unless `limit` is cancelled, as it is when the system closes."""
        self._starts[process] = limit
        if self._closing:
            self._give_up_starts()
        try:
            yield
        finally:
            del self._starts[process]

    def _give_up_starts(self) -> None:
        """Wait for no start any more: the innermost are given up, and who waits for one ends its own in order."""
        for process, limit in self._starts.items():
            if not any(child.starting for child in process.children or ()):
                limit.cancel()

    def enroll(self, process: Process) -> int:
        """Enter a new process into the table; its pid."""
        pid = self._last_pid = self._last_pid + 1
        self._processes[pid] = process
        self._births.note(pid, self.scheduler.clock_s())
        return pid

    def dismiss(self, process: Process) -> None:
        """Take a process that has ended out of the table."""
        self._processes.pop(process.pid, None)

    def _watch_everybody(self, on: bool) -> None:
        if get_ident() != self.thread:
            self.loop.soon(self._watch_everybody, on)
            return
        self.debug.watches_everybody = on
        for process in self._processes.values():
            if isinstance(process, ServerProcess):
                self.debug.watch_for_telemetry(process, on=on)

    def spawn(self, process: Process, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a part of `process` in a trio task of its own. `function` must turn every `Exception` into an exit."""
        self._nursery.start_soon(self._guard, process, function, *args)

    @protected
    async def _guard(self, process: Process, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        task = self.running[process] = trio.lowlevel.current_task()
        try:
            await await_interruptibly(function, *args)
        except BaseException:
            # Ctrl-C, or a fault of the runtime: it ends the system, and must not leave callers waiting meanwhile.
            if process.alive:
                process.abandon()
            raise
        finally:
            if self.running[process] is task:
                del self.running[process]

    # The engine: the scheduler and the timers

    def _start_engine(self) -> None:
        # Shielded, because ending in order takes a running engine, also when everything around it is cancelled.
        for run in (self.scheduler.run, self.timers.run):
            scope = trio.CancelScope(shield=True)
            self._engine.append(scope)
            self._nursery.start_soon(self._run_engine, scope, run)
        if self._watchdog is not None:
            self._watchdog.start(self.telemetry)

    async def _run_engine(self, scope: trio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
        with scope:
            try:
                await run()
            except trio.Cancelled:
                raise
            except BaseException:
                self._broken.cancel()
                raise

    @protected
    async def _close(self) -> None:
        """End everything, in order: the tree from its root, then loose actors, then the engine.

        Whatever interrupts that (Ctrl-C comes to a main task that waits here) ends everything at once instead.
        """
        self._closing = True
        self._give_up_starts()
        self._broken.shield = True
        try:
            with self._broken:
                if self._root is not None:
                    await shut_down([(self._root.process, None)])
                await self._end_loose()
        except BaseException:
            self._broken.cancel()
            raise
        finally:
            if self._broken.cancel_called:
                self._abandon_everybody()
            # Nothing else ends these: they are shielded, and the nursery waits for them.
            for scope in self._engine:
                scope.cancel()

    def _abandon_everybody(self) -> None:
        for process in list(self._processes.values()):
            # Only logged: what broke the system is on its way to the caller already.
            try:
                process.abandon()
            except BaseException as error:
                logger.error("%s was abandoned, and that failed: %s", process.ref, shown(error))

    async def _end_loose(self) -> None:
        """End what no supervisor is responsible for, all at the same time; then what that has made loose."""
        asked: set[Process] = set()
        while loose := [p for p in self._processes.values() if not p.owned and p not in asked]:
            asked.update(loose)
            await shut_down([(process, LOOSE_SHUTDOWN_S) for process in loose])

    def _root_failure(self) -> BaseException | None:
        if self._root is None:
            return None
        reason, self._root_reason = self._root_reason, None
        cause = cause_of(reason)
        return cause if cause is not None or is_orderly(reason) else Exit(reason, str(self._root))
