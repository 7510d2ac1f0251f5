"""`Ref`: the only thing others hold of an actor, and `From`: the only thing an actor holds of its caller.

No actor can hang its caller: a call ends with an answer, or raises `Exit` the moment the actor ends, `NoProc` at once
if it already has, `CallTimeout` after `timeout_s`. A cast costs a queue append; it neither waits nor fails.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, final

import trio

from actors.exits import NORMAL, CallingSelf, CallTimeout, Exit, NoProc, Reason

if TYPE_CHECKING:
    from actors.process import Process

DEFAULT_TIMEOUT_S: Final = 5.0
"""OTP's: long enough never to matter in normal operation, short enough to end a deadlock."""

current_process: ContextVar[Process | None] = ContextVar("actors.current_process", default=None)
"""The actor whose async callback this task runs (inherited by tasks that the callback starts)."""


@final
class From:
    """The caller of one call. Answer it with `reply`: from the callback, from any other actor or task, or never."""

    __slots__ = ("_error", "_process", "_task", "_value", "deferred")

    def __init__(self, process: Process, task: trio.lowlevel.Task) -> None:
        self._process = process
        self._task: trio.lowlevel.Task | None = task
        self._value: Any = None
        self._error: Exit | None = None
        self.deferred = False

    @property
    def waiting(self) -> bool:
        """Whether the caller is still there. If not (timeout, cancelled, already answered) a reply vanishes."""
        return self._task is not None

    def reply(self, value: Any) -> None:
        """Answer the caller. Only the first answer counts; one that comes too late vanishes."""
        task = self._task
        if task is not None:
            self._task = None
            self._value = value
            if self.deferred:
                self._process.forget_caller(self)
            trio.lowlevel.reschedule(task)

    def fail(self, error: Exit) -> None:
        """Make the call raise `error`. For the runtime; only the first answer or failure counts."""
        self._error = error if self._task is not None else self._error
        self.reply(None)

    async def wait(self, timeout_s: float | None) -> Any:
        """Wait for the answer. For `Ref.call`, in the caller's task."""
        timer = None
        if timeout_s is not None:
            deadline_s = trio.current_time() + timeout_s
            timer = self._process.system.timers.at(deadline_s, lambda: self._expire(timeout_s))
        try:
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        finally:
            if timer is not None:
                timer.cancel()
        if self._error is not None:
            raise self._error
        return self._value

    def _expire(self, timeout_s: float) -> None:
        self.fail(CallTimeout(str(self._process.ref), timeout_s))

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._task = None
        self._process.forget_caller(self)
        return trio.lowlevel.Abort.SUCCEEDED


@final
class Ref:
    """One life of one actor. It never comes to mean another: after a restart, look the actor up by name.

    Refs are equal only to themselves, and may be sent in messages, kept and used as keys after the actor ended.
    """

    __slots__ = ("process",)

    def __init__(self, process: Process) -> None:
        self.process = process

    def __repr__(self) -> str:
        return f"<{self.process.label}>"

    @property
    def pid(self) -> int:
        """A number that no other actor of this system has had."""
        return self.process.pid

    @property
    def node(self) -> str:
        """The name of the system it runs in."""
        return self.process.system.name

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet. An actor that is cleaning up is alive, but takes no more messages."""
        return self.process.alive

    @property
    def started_value(self) -> Any:
        """What a service said with `task_status.started(value)`: its bound address, say. None for servers."""
        return self.process.started_value

    async def call(self, request: Any, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Any:
        """Send `request` to `handle_call` and wait for the answer.

        `timeout_s` None waits as long as the actor lives. Raises `Exit` with the reason if it ends before it answers,
        `NoProc` if it has ended before, `CallTimeout`, `CallingSelf`, `MailboxFull`.
        """
        process = self.process
        if current_process.get() is process:
            raise CallingSelf(str(self))
        from_ = From(process, trio.lowlevel.current_task())
        process.submit_call(request, from_)
        return await from_.wait(timeout_s)

    def cast(self, message: Any) -> None:
        """Send `message` to `handle_cast`. Never waits, never fails: to an actor that ended or is full, it vanishes."""
        process = self.process
        if len(process.mailbox) >= process.accepts:
            process.refuse(message)
            return
        process.mailbox.append((CAST, message, None))
        if not process.scheduled:
            process.schedule()

    def send(self, message: Any) -> None:
        """Send `message` to `handle_info`, on the same terms as a cast."""
        process = self.process
        if len(process.mailbox) >= process.accepts:
            process.refuse(message)
            return
        process.deliver_info(message)

    async def stop(self, reason: Reason = NORMAL, timeout_s: float | None = None) -> None:
        """Ask it to end with `reason`, after the messages it already has, and wait until it has.

        `terminate` is called. A service is cancelled. Raises `NoProc` if it had ended before, `CallTimeout` if it has
        not ended in time (it still will), `CallingSelf` from its own callback (return `Stop` there).
        """
        if current_process.get() is self.process:
            raise CallingSelf(str(self))
        if not self.alive:
            raise NoProc(str(self))
        self.process.request_stop(reason)
        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
            await self.process.wait_dead()
            return
        raise CallTimeout(str(self), timeout_s or 0.0)

    def exit(self, reason: Reason, sender: Ref | None = None) -> None:
        """Send an exit signal, as OTP's `exit(pid, reason)`.

        Without `trap_exit` it ends the actor at once, without `terminate`, except for `"normal"`, which is ignored.
        With `trap_exit` it becomes an `ExitSignal` in `handle_info`.
        """
        self.process.exit(reason, sender)

    def kill(self) -> None:
        """End it at once, reason `"killed"`; neither `trap_exit` nor `terminate` matter."""
        self.process.kill()

    async def exited(self) -> Reason:
        """Wait until it has ended; the exit reason. For tasks; an actor uses `Server.monitor`, which does not wait."""
        await self.process.wait_dead()
        return self.process.reason


CALL: Final = 0
CAST: Final = 1
INFO: Final = 2
STOP: Final = 3
TICK: Final = 4
