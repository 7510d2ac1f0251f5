"""Runs one `Server`: takes its messages one at a time and does what its callbacks return.

A plain `def` callback runs on the scheduler's task, so an idle server costs no trio task and a busy one no task switch.
When a callback turns out to be `async def`, its coroutine gets a trio task, and the server takes no message until that
task is done. `_settle` is the one place where results get their meaning.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, final

import trio

from batonpass.actors.core.debug import SUSPENDED, SystemRequest
from batonpass.actors.core.exits import (
    BadReturnValue,
    Exit,
    Ignored,
    MailboxFull,
    NoProc,
    Reason,
    StartError,
    is_orderly,
    reason_of,
)
from batonpass.actors.core.hibernation import HibernationTimer
from batonpass.actors.core.messages import TIMEOUT, ExitSignal
from batonpass.actors.core.process import ALIVE_STILL, NO_MAIL, Process, Status, logger
from batonpass.actors.core.ref import (
    CALL,
    CAST,
    CONTINUE,
    HIBERNATION,
    INFO,
    LATE,
    STOP,
    SYSTEM,
    From,
    Ref,
    current_process,
)
from batonpass.actors.core.server import HIBERNATE, IGNORE, KEEP, NO_REPLY, Continue, NoReply, Ok, Reply, Server, Stop
from batonpass.actors.core.starting import StartingProcess
from batonpass.actors.core.status_report import NO_MESSAGE, ServerStatus, crash_report
from batonpass.actors.core.system_messages import stop_reason

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from batonpass.actors.core.messages import Late, Timeout
    from batonpass.actors.core.system import System
    from batonpass.actors.core.timers import Timer


_NOBODY: Server[Any] = Server()
_CALLBACKS = {
    CALL: "handle_call",
    CAST: "handle_cast",
    INFO: "handle_info",
    STOP: "terminate",
    LATE: "handle_info",
    SYSTEM: "a system request",
    CONTINUE: "handle_continue",
    HIBERNATION: "handle_hibernate",
}


@final
class ServerProcess(StartingProcess):
    """One life of one server; see the head of the module."""

    __slots__ = (
        "_current",
        "_deferred",
        "_dropped",
        "_farewell",
        "_idle_timer",
        "_server",
        "_state",
    )

    def __init__(self, system: System, server: Server[Any], label: str, parent: Process | None) -> None:
        super().__init__(system, server, label, parent)
        self.accepts = server.mailbox_limit
        server.ref = self.ref
        server.system = system
        self._server = server
        self._state: Any = None
        self._current: From | None = None
        self._deferred: dict[From, None] | None = None
        self._farewell: tuple[From, Any] | None = None
        self._idle_timer: Timer | HibernationTimer | None = None
        self._dropped = 0
        self.mailbox = system.scheduler.take_mailbox()
        self.enter()
        if system.debug.watches_everybody:
            system.debug.watch_for_telemetry(self, on=True)

    # Starting

    def settle_init(self, result: Any) -> None:
        """Do what `init` returned. Raises `StartError`, `Ignored`."""
        if self.pending_exit is not ALIVE_STILL:
            result = Stop(self.pending_exit)
        if type(result) is Stop:
            self._fail_start(result.reason)
            raise StartError(self.label, result.reason)
        if result is IGNORE:
            self._fail_start("normal")
            raise Ignored(self.label)
        if isinstance(result, Reply | NoReply):
            error = BadReturnValue(self.label, "init", result)
            self._fail_start(error)
            raise StartError(self.label, error)
        self.status = Status.RUNNING
        self.tell_started()
        if self._server.hibernate_after_s is not None:
            HibernationTimer(self, self._server.hibernate_after_s)
        if type(result) is not Ok:
            self._state = result
            self._resume()
        elif self._settle(NoReply(result.state, result.then, result.timeout_s), None, "init"):
            self._resume()

    @property
    def traps_exits(self) -> bool:
        """Whether exit signals become messages."""
        return self._server.trap_exit

    # The mailbox

    def submit_call(self, request: Any, from_: From) -> None:
        """Queue a call, or raise `NoProc`, `Exit` or `MailboxFull` at once."""
        if not self.scheduled:
            self.wake()
        elif len(self.mailbox) >= self.accepts:
            if self.status is Status.DEAD:
                raise NoProc(str(self.ref))
            if self.status is Status.EXITING:
                raise Exit(self.reason, str(self.ref))
            if self.pending_exit is not ALIVE_STILL:
                raise Exit(self.pending_exit, str(self.ref))
            self.tell_overflow("call")
            raise MailboxFull(str(self.ref), self.accepts)
        self.mailbox.append((CALL, request, from_))

    def open_mailbox(self) -> None:
        """End of idleness: there is a mailbox, and the caller sees to it that what is put there is handled."""
        self.scheduled = True
        self.mailbox = self.system.scheduler.take_mailbox()

    def wake(self) -> None:
        """`open_mailbox`, and a place in the run queue."""
        self.open_mailbox()
        self.system.scheduler.enqueue(self)

    def refuse(self, kind: int, message: Any) -> None:
        """Drop a cast or send: silently when there is no such actor, else counted and (at each power of two) logged."""
        if self.status < Status.EXITING and self.pending_exit is ALIVE_STILL:
            self._dropped += 1
            self.system.dropped += 1
            self.tell_overflow("message")
            if self._dropped & (self._dropped - 1) == 0:
                logger.warning(
                    "%s is full (%d messages wait): %d dropped so far, lastly a %s; send less, or raise mailbox_limit",
                    self.ref,
                    self.accepts,
                    self._dropped,
                    type(message).__name__,
                )

    def deliver_info(self, message: Any) -> None:
        """Queue a message of the runtime, beyond the bound of the mailbox if need be."""
        self._deliver(INFO, message)

    def deliver_late(self, late: Late) -> None:
        """Queue something that makes its message when it is handled: a tick, the outcome of a task."""
        self._deliver(LATE, late)

    def _deliver(self, kind: int, message: Any) -> None:
        if self.status < Status.EXITING:
            if not self.scheduled:
                self.wake()
            self.mailbox.append((kind, message, None))

    def forget_caller(self, from_: From) -> None:
        """The caller has gone away: do not keep it."""
        if self._deferred is not None:
            self._deferred.pop(from_, None)

    # A turn

    def take_turn(self, budget: int, slice_end_s: float) -> tuple[int, float]:
        """Handle up to `budget` messages, fewer once the clock passes `slice_end_s`; how many, and the time then."""
        scheduler = self.system.scheduler
        if self.status is Status.DEAD:
            return 0, scheduler.clock_s()
        clock_s, slow_s = scheduler.clock_s, scheduler.slow_callback_s
        mailbox, server = self.mailbox, self._server
        handled = 0
        now_s = clock_s()
        self._handling = True
        while mailbox and handled < budget:
            kind, payload, from_ = mailbox.popleft()
            handled += 1
            if self._idle_timer is not None and kind < SYSTEM:
                self._idle_timer.cancel()
                self._idle_timer = None
            try:
                if kind == CAST:
                    result: Any = server.handle_cast(payload, self._state)
                elif from_ is not None:
                    result = server.handle_call(payload, from_, self._state)
                else:
                    result = self._handle_other(kind, payload)
            except Exception as error:
                self._crash(error, from_, payload if kind <= SYSTEM else NO_MESSAGE)
                return handled, clock_s()
            except BaseException:
                self._current = from_  # Ctrl-C: the system ends, and `abandon` must find this caller too
                raise
            if self.pending_exit is not ALIVE_STILL:
                self._drop_result(result, from_)
                return handled, clock_s()
            # Nothing said, no caller waits: by far the most frequent result of a cast or a tick.
            if (result is not None or from_ is not None) and not self._settle(result, from_, _CALLBACKS[kind]):
                return handled, clock_s()
            started_s, now_s = now_s, clock_s()
            if now_s - started_s > slow_s:
                scheduler.report_slow(self.label, _CALLBACKS[kind], now_s - started_s)
            if now_s >= slice_end_s:
                break
        self._resume()
        return handled, now_s

    def _handle_other(self, kind: int, payload: Any) -> Any:
        if kind == INFO:
            return self._server.handle_info(payload, self._state)
        if kind == STOP:
            return Stop(stop_reason(payload))
        if kind == SYSTEM:
            return payload.serve(self)
        if kind == CONTINUE:
            return self._server.handle_continue(payload, self._state)
        if kind == HIBERNATION:
            return self._hibernate()
        message = payload.take()
        return None if message is None else self._server.handle_info(message, self._state)

    def _resume(self) -> None:
        """Back to the run queue if there is more to do, else idle."""
        self._handling = False
        scheduler = self.system.scheduler
        if self.mailbox:
            scheduler.enqueue(self)
        else:
            scheduler.give_back(self.mailbox)
            self.mailbox = NO_MAIL
            self.scheduled = False

    # What results mean

    def _settle(self, result: Any, from_: From | None, callback: str) -> bool:
        """Do what a callback returned. False if the server does not continue now: it ends, or waits for a coroutine."""
        kind = type(result)
        if kind is Reply and from_ is not None:
            from_.reply(result.value)
        elif kind is NoReply:
            if from_ is not None and from_.waiting:
                self._defer(from_)
        elif result is None and from_ is None:
            return True
        else:
            self._settle_rare(result, from_, callback)
            return False
        if result.state is not KEEP:
            self._state = result.state
        if result.timeout_s is not None and not self._arm_idle_timer(result, callback):
            return False
        then = result.then
        # Not done here: work in many steps has turns of a bounded length like any other, and others have theirs.
        if type(then) is Continue:
            self.mailbox.appendleft((CONTINUE, then.value, None))
        elif then is HIBERNATE:
            if not self.mailbox and callback != "handle_hibernate":
                self.mailbox.append((HIBERNATION, None, None))
        elif then is not None:
            self._crash(BadReturnValue(self.label, callback, result), None)
            return False
        return True

    def _hibernate(self) -> Any:
        self.give_back_room()
        self._deferred = dict(self._deferred) if self._deferred else None
        return self._server.handle_hibernate(self._state)

    def left_alone(self, hibernation_timer: HibernationTimer) -> bool:
        """Whether no message has come since the last time this was asked."""
        if self._idle_timer is None and not self.scheduled:
            self._idle_timer = hibernation_timer
            return False
        return self._idle_timer is hibernation_timer

    def request_hibernation(self, hibernation_timer: HibernationTimer) -> None:
        """Have `hibernation_timer` served, unless the actor ends."""
        self._deliver(SYSTEM, hibernation_timer)

    def _settle_rare(self, result: Any, from_: From | None, callback: str) -> None:
        """The results after which the server does not simply continue."""
        if inspect.iscoroutine(result):
            self._current = from_
            self.system.spawn(self, self._run_callback, result, from_, callback)
        elif type(result) is Stop:
            if result.state is not KEEP:
                self._state = result.state
            if from_ is not None and result.reply is not NO_REPLY:
                self._farewell = (from_, result.reply)
                from_ = None
            self._terminate(result.reason, from_)
        elif result is SUSPENDED:
            self._handling = False
            self._rest()
        else:
            self._crash(BadReturnValue(self.label, callback, result), from_)

    def _defer(self, from_: From) -> None:
        # Kept only so that the caller can be told if the actor ends; a reply needs no table.
        if self._deferred is None:
            self._deferred = {}
        self._deferred[from_] = None
        from_.deferred = True

    def _arm_idle_timer(self, result: Any, callback: str) -> bool:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        try:
            self._idle_timer = self.system.timers.at(trio.current_time() + result.timeout_s, self._idle, self)
        except (TypeError, ValueError):
            self._crash(BadReturnValue(self.label, callback, result), None)
            return False
        return True

    def _idle(self) -> None:
        self._idle_timer = None
        if not self.scheduled or all(entry[0] >= SYSTEM for entry in self.mailbox):
            timeout: Timeout = TIMEOUT
            self.deliver_info(timeout)

    # Requests to the runtime; see `actors.observe.sys`

    @property
    def state(self) -> Any:
        """The state, as the last callback left it."""
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state

    @property
    def server(self) -> Server[Any]:
        """Whose callbacks are called."""
        return self._server

    def replace_server(self, server: Server[Any]) -> None:
        """Call the callbacks of this one, from the next turn on."""
        self._server = server

    @property
    def at_work(self) -> bool:
        """Whether a callback is on the stack, or waits in its task."""
        return self._handling

    async def _run_callback(self, coroutine: Coroutine[Any, Any, Any], from_: From | None, callback: str) -> None:
        """Run one async callback in its own task, then let the server continue."""
        current_process.set(self)
        self.system.debug.began(self, callback, coroutine)
        result: Any = None
        failure: BaseException | None = None
        try:
            # Shielded: only `exit` and `kill` may end it, so that a cancelled system still shuts down in order.
            with trio.CancelScope(shield=True) as self.scope:
                if self.pending_exit is ALIVE_STILL:
                    result = await coroutine
                else:
                    coroutine.close()
        except Exception as error:
            failure = reason_of(error)
        if not self.alive:
            return  # abandoned meanwhile
        self.keep_context()
        self.scope = None
        self._current = None
        self.system.debug.running.pop(self, None)
        if self.pending_exit is not ALIVE_STILL:
            self._die_pending(from_)
        elif failure is not None:
            self._crash(failure, from_)
            failure = None  # its traceback has this frame
        elif self._settle(result, from_, callback):
            self._resume()

    # The end

    def exit(self, reason: Reason, sender: Ref | None = None) -> None:
        """Take an exit signal, from `Ref.exit` or along a link; with `trap_exit` the parent's calls `terminate`."""
        if not self._server.trap_exit:
            super().exit(reason, sender)
        elif sender is not None and sender.process is self.parent:
            self._deliver_control(STOP, ExitSignal(reason, sender))
        else:
            self.deliver_info(ExitSignal(reason, sender))

    def exit_from_parent(self, reason: Reason) -> None:
        """End because the supervisor says so, or has ended: with `trap_exit` there is time for `terminate`."""
        if self._server.trap_exit and self.status is not Status.STARTING:
            self._deliver_control(STOP, reason)
        else:
            self._end(reason)

    def request_stop(self, reason: Reason) -> None:
        """End with `reason`, with `terminate`, after the messages that wait already; at once if suspended."""
        self._deliver_control(STOP, reason)

    def _end(self, reason: Reason, *, brutal: bool = False) -> None:
        """End without `terminate`: now, or as soon as the callback that is on the stack or in a task is out of the way.

        Callers are told now in any case.
        """
        if self.status is Status.DEAD or (self.status is Status.EXITING and not brutal):
            return
        if self.pending_exit is ALIVE_STILL or brutal:
            self.pending_exit = reason
        self.accepts = 0
        self._fail_callers(reason)
        if not self._handling:
            self._die(reason, quiet=True)
        elif self.scope is not None:
            self.scope.cancel()

    def _crash(self, error: BaseException, from_: From | None, message: Any = NO_MESSAGE) -> None:
        if self.pending_exit is ALIVE_STILL:
            self._terminate(error, from_, message)
        else:
            self._die_pending(from_)

    def _terminate(self, reason: Reason, from_: From | None, message: Any = NO_MESSAGE) -> None:
        """Take no more messages, call `terminate`, then die."""
        self.status = Status.EXITING
        self.reason = reason
        self.accepts = 0
        self._handling = True
        if from_ is not None:
            from_.fail(Exit(reason, str(self.ref)))
        self._fail_queued(reason)
        try:
            result = self._server.terminate(reason, self._state)
        except Exception as error:
            reason, result = error, None
        if inspect.iscoroutine(result):
            self.system.spawn(self, self._run_terminate, result, reason, message)
        else:
            self._die_after_terminate(reason, message)

    async def _run_terminate(self, coroutine: Coroutine[Any, Any, Any], reason: Reason, message: Any) -> None:
        """Run an `async def terminate` in its own task, then die."""
        current_process.set(self)
        self.system.debug.began(self, "terminate", coroutine)
        try:
            with trio.CancelScope(shield=True) as self.scope:
                if self.pending_exit is ALIVE_STILL:
                    await coroutine
                else:
                    coroutine.close()
        except Exception as error:
            reason = reason_of(error)
        self._die_after_terminate(reason, message)

    def _die_after_terminate(self, reason: Reason, message: Any) -> None:
        if self.pending_exit is not ALIVE_STILL:
            self._die_pending(None)
        elif is_orderly(reason):
            self._die(reason)
        else:
            self._die(reason, report=crash_report(self._server, ServerStatus(self._state, message, reason)))

    def _drop_result(self, result: Any, from_: From | None) -> None:
        """The callback ended its own actor: what it returned does not count any more, as `exit(self(), ...)` in OTP."""
        if inspect.iscoroutine(result):
            result.close()
        self._die_pending(from_)

    def _die_pending(self, from_: From | None) -> None:
        """Die of the exit signal that came while a callback was at work; no crash of this actor."""
        if from_ is not None:
            from_.fail(Exit(self.pending_exit, str(self.ref)))
        self._die(self.pending_exit, quiet=True)

    def _let_go(self, reason: Reason) -> None:
        if self._farewell is not None:
            from_, value = self._farewell
            self._farewell = None
            from_.reply(value)
        self._fail_callers(reason)
        super()._let_go(reason)
        # The ref may outlive the actor by far; the state must not.
        self._server = _NOBODY
        self._state = None
        self._idle_timer = None
        self.mailbox = NO_MAIL

    def _fail_callers(self, reason: Reason) -> None:
        """Tell all that wait for this actor that no answer will come."""
        self._fail_queued(reason)
        if self._current is not None:
            self._current.fail(Exit(reason, str(self.ref)))
            self._current = None
        deferred, self._deferred = self._deferred, None
        for from_ in list(deferred or ()):
            from_.fail(Exit(reason, str(self.ref)))

    def _fail_queued(self, reason: Reason) -> None:
        for _, payload, from_ in self.mailbox:
            if from_ is not None:
                from_.fail(Exit(reason, str(self.ref)))
            elif type(payload) is SystemRequest:
                payload.caller.fail(Exit(reason, str(self.ref)))
        self.mailbox.clear()
