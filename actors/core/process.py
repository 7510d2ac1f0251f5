"""What every actor is to the runtime, whatever runs inside: an identity, a life, and those who watch it end.

`Process` is the common half; `actors.core.server_process` runs a `Server` in it, `actors.core.service` an async
function.

A life goes STARTING, RUNNING, EXITING (no more messages; `terminate` runs), DEAD, and never back. Death happens in one
synchronous step, so none sees half of it: callers fail, names and timers go, children are told, watchers are told.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from batonpass.actors.base.loop import WrongThread, get_ident
from batonpass.actors.core.exits import (
    KILLED,
    NOPROC,
    SHUTDOWN,
    TIMED_OUT,
    Exit,
    NoProc,
    Reason,
    cause_of,
    is_normal,
    is_orderly,
    shown,
)
from batonpass.actors.core.log_metadata import log_metadata
from batonpass.actors.core.messages import ChildEnded, Down, ExitSignal, Late, Monitor
from batonpass.actors.core.ref import From, Ref, current_process
from batonpass.actors.core.status_report import origin_report
from batonpass.actors.core.telemetry import ACTOR_CRASH, ACTOR_EXIT, ACTOR_START, MAILBOX_OVERFLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextvars import Context

    from batonpass.actors.core.debug import SystemRequest
    from batonpass.actors.core.named import Named
    from batonpass.actors.core.system import System
    from batonpass.actors.core.timers import Timer

logger = logging.getLogger("batonpass.actors")

Entry = tuple[int, Any, From | None]
"""What lies in a mailbox: which callback (`CALL`, `CAST`, ... of `actors.core.ref`), with what, for which caller."""

NO_MAIL: Final[deque[Entry]] = deque(maxlen=0)
"""The mailbox of all that have none at present: an actor that is idle, or dead, or takes no messages."""

KILL_GRACE_S: Final = 1.0
"""How long something that was killed may take to notice; only a task that shields itself can take any time at all."""

ALIVE_STILL: Final = object()
"""In place of an exit reason."""


class Status(IntEnum):
    """The four parts of a life, in order."""

    STARTING = 0
    RUNNING = 1
    EXITING = 2
    DEAD = 3


class Process:
    """The common half of every actor; see the head of the module. Others hold its `ref`, never the process."""

    __slots__ = (
        "_kind",
        "_label",
        "_monitors",
        "_token",
        "_watchers",
        "accepts",
        "children",
        "context",
        "mailbox",
        "names",
        "parent",
        "pending_exit",
        "pid",
        "reason",
        "ref",
        "scheduled",
        "scope",
        "started_value",
        "status",
        "system",
        "timers",
    )

    context: Context
    """Of the callbacks of a server, which others neither see nor change; only what takes turns has one."""
    callers: tuple[Ref, ...] = ()
    """For whom it works, and for whom those do: of a task its owner, and so on (Elixir's `$callers`)."""

    def __init__(self, system: System, label: str, parent: Process | None) -> None:
        self.system = system
        self._kind = label
        self._label = ""
        self.parent = parent
        self.ref = Ref(self)
        self.status = Status.STARTING
        self.reason: Reason = ALIVE_STILL
        self.pending_exit: Reason = ALIVE_STILL
        self.scope: trio.CancelScope | None = None
        self.started_value: Any = None
        self.mailbox = NO_MAIL
        self.accepts = 0
        # False only for an actor that runs, is idle, and so has no mailbox. Everything else has to look twice.
        self.scheduled = True
        # Most actors have none of these, and there may be a hundred thousand actors.
        self.names: dict[Any, Any] | None = None
        self.timers: dict[Timer, None] | None = None
        # To each child what `ChildEnded` is to say when it ends, or None if it was not asked for.
        self.children: dict[Process, Any] | None = None
        # Under a number: a watch. Under a process: one half of a link to it.
        self._watchers: dict[int | Process, Callable[[Reason], object]] | None = None
        self._monitors: dict[Monitor, None] | None = None
        self._token = 0

    def enter(self) -> None:
        """Be an actor from now on: in the table of the system, and among the children of the parent.

        The last step of making one, so that one in the making is never found.
        """
        self.pid = self.system.enroll(self)
        parent = self.parent
        if parent is not None:
            if parent.children is None:
                parent.children = {}
            parent.children[self] = None

    # Messages: what differs between servers and services

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self.status is not Status.DEAD

    @property
    def starting(self) -> bool:
        """Whether its starter waits for it still."""
        return self.status is Status.STARTING

    @property
    def owned(self) -> bool:
        """Whether it ends with its parent. What `start_link` started does not: its link decides."""
        parent = self.parent
        return parent is not None and parent.alive and parent.children is not None and self in parent.children

    @property
    def traps_exits(self) -> bool:
        """Whether exit signals become messages."""
        return False

    @property
    def node(self) -> str:
        """The name of the system it runs in."""
        return self.system.name

    @property
    def label(self) -> str:
        """What it is, its name if it was started with one, what it says of itself, and its pid; for people."""
        return f"{self._kind}{self._label} #{self.pid}"

    def set_label(self, text: str) -> None:
        """What it says of itself; "" is nothing."""
        self._label = f" ({text})" if text else ""

    @property
    def ancestors(self) -> tuple[Ref, ...]:
        """Who started it, and who started that, up to the first that has ended (OTP's `$ancestors`)."""
        found: list[Ref] = []
        process = self
        # A task that is nobody's child was started by its first caller.
        while above := process.parent or next((caller.process for caller in process.callers), None):
            found.append(above.ref)
            process = above
        return tuple(found)

    def log_metadata(self) -> Mapping[str, Any]:
        """What it has set for its log lines; asked where it ends."""
        return log_metadata()

    def submit_call(self, request: Any, from_: From) -> None:
        """Queue a call, or raise `NoProc`, `Exit` or `MailboxFull` at once."""
        if self.status is Status.DEAD:
            raise NoProc(str(self.ref))
        raise Exit("not_a_server", str(self.ref))

    def open_mailbox(self) -> None:
        """End of idleness: there is a mailbox, and the caller sees to it that what is put there is handled."""

    def wake(self) -> None:
        """`open_mailbox`, and a place in the run queue."""

    def take_turn(self, budget: int, slice_end_s: float) -> tuple[int, float]:
        """Handle up to `budget` messages; how many it were, and the time then. Never called unless `scheduled`."""
        raise NotImplementedError

    def refuse(self, kind: int, message: Any) -> None:
        """Drop a message (`CAST` or `INFO`) that came to a full mailbox or to an actor that takes none.

        An actor that has no room on purpose gets all its messages here.
        """

    def deliver_info(self, message: Any) -> None:
        """Queue a message of the runtime, beyond the bound of the mailbox if need be."""

    def deliver_late(self, late: Late) -> None:
        """Queue something that makes its message when it is handled: a tick, the outcome of a task."""

    def withdraw_late(self, late: Late) -> None:
        """Take it out of the mailbox again, if it is there."""
        self._take_out(lambda message: message is late)

    def submit_system(self, request: SystemRequest) -> None:
        """Queue a request to the runtime part of a server, or raise `NoProc` or `Exit` at once."""
        if self.status is Status.DEAD:
            raise NoProc(str(self.ref))
        raise Exit("not_a_server", str(self.ref))

    def forget_caller(self, from_: From) -> None:
        """The caller has gone away."""

    # What telemetry is told

    def tell_started(self) -> None:
        """It runs: `init` has returned, or the service is ready."""
        system = self.system
        if system.telemetry.has_handlers(ACTOR_START):
            parent = None if self.parent is None else self.parent.ref
            system.telemetry.execute(ACTOR_START, {"actors": system.count}, {"ref": self.ref, "parent": parent})

    def tell_overflow(self, kind: str) -> None:
        """A message (`kind` is "call" or "message") was refused because the mailbox is full."""
        self.system.telemetry.execute(MAILBOX_OVERFLOW, {"waiting": len(self.mailbox)}, {"ref": self.ref, "kind": kind})

    def _tell_ended(self, reason: Reason, *, crashed: bool, report: str) -> None:
        system = self.system
        if system.telemetry.has_handlers(ACTOR_EXIT):
            system.telemetry.execute(ACTOR_EXIT, {"actors": system.count}, {"ref": self.ref, "reason": reason})
        if crashed:
            system.crashes += 1
            whose = {"ref": self.ref, "ancestors": self.ancestors, "callers": self.callers}
            system.telemetry.execute(ACTOR_CRASH, {"crashes": system.crashes}, {**whose, "reason": reason})
            metadata = self.log_metadata()
            logger.error(
                "%s ended: %s%s%s",
                self.ref,
                shown(reason),
                report,
                origin_report(self.ancestors, self.callers, metadata),
                exc_info=cause_of(reason),
                extra={"actor": self.ref, "metadata": metadata},
            )

    def require_loop(self) -> None:
        """Raises `WrongThread` in another thread than that of the system."""
        if get_ident() != self.system.thread:
            raise WrongThread(self.ref)

    def waits_for_this_task(self) -> bool:
        """Whether a callback of this cannot end before the present task has: the task runs it, or belongs to it.

        A task belongs to the callback in whose nursery it is. One that a callback has started elsewhere continues by
        itself, and may wait for the actor like any other.
        """
        if current_process.get() is not self:
            return False
        runner = self.system.running.get(self)
        task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        while task is not None and task is not runner:
            task = None if task.parent_nursery is None else task.parent_nursery.parent_task
        return task is not None

    # The start

    async def wait_started(self, timeout_s: float | None) -> None:
        """Wait until a start that could not be finished at once is over. Raises `StartError`, and `Ignored`.

        After `timeout_s`, if the waiting task is cancelled or the system closes, the start is given up and this ends.
        """

    async def start_over(self, over: trio.Event, timeout_s: float | None) -> Reason | None:
        """Wait for the end of a start in progress; None, or why it is to be given up."""
        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s) as limit:
            with self.system.start_in_progress(self, limit):
                await over.wait()
        if not limit.cancelled_caught:
            return None
        return SHUTDOWN if self.system.closing else TIMED_OUT

    # The end

    def exit(self, reason: Reason, sender: Ref | None = None) -> None:
        """Take an exit signal, from `Ref.exit` or along a link; `"normal"` only counts from itself."""
        if not is_normal(reason) or sender is self.ref:
            self._end(reason)

    def exit_from_parent(self, reason: Reason) -> None:
        """End because the supervisor says so, or has ended."""
        self._end(reason)

    def request_stop(self, reason: Reason) -> None:
        """End with `reason`, in an orderly way."""
        self._end(reason)

    def kill(self) -> None:
        """End at once."""
        self._end(KILLED, brutal=True)

    def abandon(self) -> None:
        """The system is broken: be dead now, and cancel whatever still runs."""
        scope = self.scope
        # For a task that has not begun yet, and looks here when it does.
        self.pending_exit = KILLED
        try:
            if self.alive:
                self._die(KILLED, quiet=True)
        finally:
            if scope is not None:
                scope.cancel()

    def _end(self, reason: Reason, *, brutal: bool = False) -> None:
        """End because of a signal: cancel what runs. A `brutal` one overrides any that is being obeyed."""
        if not self.alive:
            return
        if self.pending_exit is ALIVE_STILL or brutal:
            self.pending_exit = reason
        self.status = Status.EXITING
        if self.scope is not None:
            self.scope.cancel()

    def _die(self, reason: Reason, *, quiet: bool = False, report: str = "") -> None:
        """The one step from alive to dead. `reason` is what all are told; `quiet`: no crash, do not log it.

        `report` is what the log line says about a crash beside the reason. Nothing if it is dead: `abandon` came first.
        """
        if self.status is Status.DEAD:
            return
        with self.system.memory as memory:
            self._end_life(reason, quiet=quiet, report=report)
            # All that are to be told the reason itself have been told.
            self.reason = self.pending_exit = memory.of(reason)

    def _end_life(self, reason: Reason, *, quiet: bool, report: str) -> None:
        self.status = Status.DEAD
        self.reason = reason
        self.accepts = 0
        self.scheduled = True
        self.scope = None
        self._let_go(reason)
        self.system.dismiss(self)
        if self.parent is not None:
            self.parent.child_ended(self, reason)
        children, self.children = self.children, None
        for child in reversed(list(children or ())):
            child.exit_from_parent(reason)
        if children:
            # Who takes a moment to end, or left one behind that does; see `remains`.
            self.children = dict.fromkeys(child for child in children if child.alive or child.children) or None
        watchers, self._watchers = self._watchers, None
        for tell in (watchers or {}).values():
            tell(reason)
        self._tell_ended(reason, crashed=not quiet and not is_orderly(reason), report=report)
        self.parent = None
        if self.system.link_signals.pending:
            self.system.link_signals.deliver()

    def _let_go(self, reason: Reason) -> None:
        """Release what the actor holds: timers, names, monitors. Servers also fail their callers here."""
        self.system.debug.forget(self, reason)
        timers, self.timers = self.timers, None
        for timer in list(timers or ()):
            timer.disarm()
        names, self.names = self.names, None
        for name, registry in (names or {}).items():
            registry.vacate(name, self.ref)
        monitors, self._monitors = self._monitors, None
        for monitor in monitors or ():
            if monitor.process is not None:
                monitor.process.unwatch(monitor.token)

    async def stop(self, reason: Reason) -> Reason:
        """`request_stop`, and wait until it has ended; with which reason."""
        self.request_stop(reason)
        return await self.wait_dead()

    async def wait_dead(self) -> Reason:
        """Wait until the actor has ended; its exit reason, or a likeness of that if it has ended already."""
        if not self.alive:
            return self.reason
        reasons: list[Reason] = []
        ended = trio.Event()

        def tell(reason: Reason) -> None:
            reasons.append(reason)
            ended.set()

        token = self.watch(tell)
        try:
            await ended.wait()
        finally:
            self.unwatch(token)
        return reasons[0]

    def remains(self) -> Iterator[Process]:
        """Of what ended together with this: those below it that have not quite, because they clean up."""
        left = list(self.children or ())
        while left:
            child = left.pop()
            if child.alive:
                yield child
            left.extend(child.children or ())

    # Children: an actor that ends, ends them, and a supervisor also follows what becomes of them

    def follow(self, child: Process, known_as: Any) -> None:
        """Have `ChildEnded(known_as, ...)` delivered to this when `child` ends; at once if it has.

        This costs nothing but the entry in `children` that is there in any case. An entry that is followed stays when
        the child ends; the handler of the message takes it out.
        """
        if self.children is not None:
            self.children[child] = known_as
            if not child.alive:
                self.deliver_info(ChildEnded(known_as, child, child.reason))

    def unfollow(self, child: Process) -> None:
        """Take back `follow`. A message that is on its way already is to be known by its missing entry."""
        if self.children is not None:
            if child.alive:
                self.children[child] = None
            else:
                self.children.pop(child, None)

    def child_ended(self, child: Process, reason: Reason) -> None:
        """A child has ended."""
        if self.children is not None:
            known_as = self.children.get(child)
            if known_as is None:
                self.children.pop(child, None)
            else:
                self.deliver_info(ChildEnded(known_as, child, reason))

    # Watching, and owning

    def give_back_room(self) -> None:
        """Give back the room that the tables have had and do not need now: a dict never shrinks by itself."""
        self.names = dict(self.names) if self.names else None
        self.timers = dict(self.timers) if self.timers else None
        self._watchers = dict(self._watchers) if self._watchers else None
        self._monitors = dict(self._monitors) if self._monitors else None

    def watch(self, tell: Callable[[Reason], object]) -> int:
        """Call `tell(reason)` when this ends; the token is for `unwatch`. It must be alive."""
        if self._watchers is None:
            self._watchers = {}
        self._token += 1
        self._watchers[self._token] = tell
        return self._token

    def unwatch(self, token: int) -> None:
        """Take back a `watch`; harmless if that is too late."""
        if self._watchers is not None:
            self._watchers.pop(token, None)

    def monitor(self, address: Ref | Named) -> Monitor:
        """Have a `Down` delivered to this when the actor that is meant now ends; at once if it has, or there is
        none.
        """
        self.require_loop()
        ref = address.ref
        target = None if ref is None else ref.process
        monitor = Monitor(address, target)
        if target is None or not target.alive:
            self.deliver_info(Down(monitor, address, NOPROC))
            return monitor
        if self._monitors is None:
            self._monitors = {}
        self._monitors[monitor] = None
        monitor.token = target.watch(lambda reason: self._tell_down(monitor, reason))
        return monitor

    def _tell_down(self, monitor: Monitor, reason: Reason) -> None:
        if self._monitors is not None:
            self._monitors.pop(monitor, None)
        self.deliver_info(Down(monitor, monitor.ref, reason))

    def demonitor(self, monitor: Monitor) -> None:
        """Take back a `monitor`, and its `Down` if that is in the mailbox."""
        self.require_loop()
        if self._monitors is not None and self._monitors.pop(monitor, ALIVE_STILL) is None:
            if monitor.process is not None:
                monitor.process.unwatch(monitor.token)
        else:
            self._take_out(lambda message: type(message) is Down and message.monitor is monitor)

    def take_out_all(self, matches: Callable[[Any], bool]) -> None:
        """Remove every message that `matches` from the mailbox."""
        for index in range(len(self.mailbox) - 1, -1, -1):
            if matches(self.mailbox[index][1]):
                del self.mailbox[index]

    def _take_out(self, matches: Callable[[Any], bool]) -> None:
        """Remove the last message that `matches` from the mailbox, if there is one."""
        for index in range(len(self.mailbox) - 1, -1, -1):
            if matches(self.mailbox[index][1]):
                del self.mailbox[index]
                return

    # Links; see `actors.core.links`

    @property
    def links(self) -> list[Ref]:
        """Whom it is linked to."""
        return [peer.ref for peer in self._watchers or () if isinstance(peer, Process)]

    def link(self, address: Ref | Named) -> None:
        """Link this and who is meant by `address` now. Nothing for itself, or a second time.

        Raises `NoProc` if this has ended, or if the other has and this does not trap exits. If it does, it gets the
        exit signal `"noproc"`.
        """
        self.require_loop()
        ref = address.ref
        peer = None if ref is None else ref.process
        if not self.alive:
            raise NoProc(str(self.ref))
        if peer is not None and peer.alive:
            if peer is not self:
                self.tie(peer)
                peer.tie(self)
        elif self.traps_exits:
            self.exit(NOPROC, ref)
        else:
            raise NoProc(str(address))

    def tie(self, peer: Process) -> None:
        """Keep this half of a link: when this ends, `peer` gets an exit signal."""
        if self._watchers is None:
            self._watchers = {}
        self._watchers.setdefault(peer, partial(self._tell_linked, peer))

    def _tell_linked(self, peer: Process, reason: Reason) -> None:
        peer.untie(self)
        self.system.link_signals.send(peer, reason, self)

    def untie(self, peer: Process) -> bool:
        """Forget this half of a link; whether there was one."""
        return self._watchers is not None and self._watchers.pop(peer, None) is not None

    def unlink(self, address: Ref | Named) -> None:
        """Take back a `link`, and the exit signal of the other if that has ended and its signal is in the mailbox."""
        self.require_loop()
        ref = address.ref
        if ref is None:
            return
        peer = ref.process
        if self.untie(peer):
            peer.untie(self)
        elif not peer.alive:
            self._take_out(lambda message: type(message) is ExitSignal and message.sender is ref)

    def own(self, timer: Timer) -> bool:
        """Cancel `timer` when this ends. False if it has ended already."""
        if not self.alive:
            return False
        if self.timers is None:
            self.timers = {}
        self.timers[timer] = None
        return True

    def disown(self, timer: Timer) -> None:
        """`timer` has fired or been cancelled."""
        if self.timers is not None:
            self.timers.pop(timer, None)
