"""`Ref`: the only thing others hold of an actor, and `From`: the only thing an actor holds of its caller.

No actor can hang its caller. A call ends with an answer, or raises `Exit` the moment the actor ends, `NoProc` at once
if it already has, `CallTimeout` after `timeout_s`. A cast costs a queue append; it neither waits nor fails.
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from math import isnan
from typing import TYPE_CHECKING, Any, Final, TypeVar, final, overload

import trio

from batonpass.actors.base.handles import Handle
from batonpass.actors.base.loop import WrongThread, get_ident
from batonpass.actors.core.checks import need_timeout
from batonpass.actors.core.exits import NORMAL, CallingSelf, CallTimeout, Exit, NoProc, Reason, is_kill

if TYPE_CHECKING:
    from collections.abc import Callable

    from batonpass.actors.core.messages import Request
    from batonpass.actors.core.named import Named
    from batonpass.actors.core.process import Process

ReplyT = TypeVar("ReplyT")

DEFAULT_TIMEOUT_S: Final = 5.0
"""OTP's: long enough never to matter in normal operation, short enough to end a deadlock."""

_NUMBERS: Final = (float, int)

current_process: ContextVar[Process | None] = ContextVar("actors.current_process", default=None)
"""The actor whose async callback this task runs (inherited by tasks that the callback starts)."""


class _Pending(Enum):
    """The type of `PENDING`."""

    PENDING = "pending"


PENDING: Final = _Pending.PENDING
"""In place of an answer: there is none yet."""


@final
class _Failure:
    """In place of an answer: the call raises this."""

    __slots__ = ("error",)

    def __init__(self, error: Exit) -> None:
        self.error = error


class From(Handle):
    """The caller of one call. Answer it with `reply`: from the callback, from any other actor or task, or never."""

    __slots__ = ("_answer", "_process", "_task", "deferred", "waiting")

    def __init__(self, process: Process) -> None:
        self._process = process
        self._task: trio.lowlevel.Task | None = None
        self._answer: Any = PENDING
        self.deferred = False
        self.waiting = True
        """Whether the caller is still there. If not (timeout, cancelled, already answered) a reply vanishes."""

    @property
    def node(self) -> str:
        """The name of the node from which the call came."""
        return self._process.system.name

    def reply(self, value: Any) -> None:
        """Answer the caller, from any thread. Only the first answer counts; one that comes too late vanishes."""
        if self.is_here(self.reply, value) and self.waiting:
            self.waiting = False
            self._answer = value
            if self.deferred:
                self._process.forget_caller(self)
            # No task: the caller is below us on the stack, having its call handled at once.
            if self._task is not None:
                trio.lowlevel.reschedule(self._task)

    def is_here(self, function: Callable[[Any], object], value: Any) -> bool:
        """Whether this is the thread of the actor's loop; if not, `function(value)` is called there, soon."""
        system = self._process.system
        if get_ident() == system.thread:
            return True
        system.loop.soon(function, value)
        return False

    def fail(self, error: Exit) -> None:
        """Make the call raise `error`. For the runtime; only the first answer or failure counts."""
        self.reply(_Failure(error))

    async def wait(self, timeout_s: float | None) -> Any:
        """Wait for the answer, if it is not there yet. For `Ref.call`, in the caller's task."""
        if self._answer is PENDING:
            timer = None
            if timeout_s is not None:
                # The actor has the call already when it was handled at once, or if this is no `Ref.call`.
                if not (type(timeout_s) in _NUMBERS and not isnan(timeout_s)):
                    self._need_timeout(timeout_s)
                deadline_s = trio.current_time() + timeout_s
                timer = self._process.system.timers.at(deadline_s, lambda: self._expire(timeout_s))
            self._task = trio.lowlevel.current_task()
            try:
                await trio.lowlevel.wait_task_rescheduled(self._abort)
            finally:
                if timer is not None:
                    timer.disarm()
        answer = self._answer
        if type(answer) is _Failure:
            raise answer.error
        return answer

    def _need_timeout(self, timeout_s: float) -> None:
        try:
            need_timeout("timeout_s", timeout_s)
        except BaseException:
            self._abort(None)
            raise

    def _expire(self, timeout_s: float) -> None:
        self.fail(CallTimeout(str(self._process.ref), timeout_s))

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self.waiting = False
        self._process.forget_caller(self)
        return trio.lowlevel.Abort.SUCCEEDED


@final
class Ref(Handle):
    """One life of one actor. It never comes to mean another: after a restart, look the actor up by name.

    Refs are equal only to themselves, and may be sent in messages, kept and used as keys after the actor ended.
    """

    __slots__ = ("process",)

    def __init__(self, process: Process) -> None:
        self.process = process

    def __repr__(self) -> str:
        return f"<{self.process.label}>"

    @property
    def ref(self) -> Ref:
        """Itself: so that a ref and a name (`actors.core.named.Named`) can be asked the same."""
        return self

    @property
    def pid(self) -> int:
        """A number that no other actor of this system has had."""
        return self.process.pid

    @property
    def node(self) -> str:
        """The name of the system it runs in."""
        return self.process.node

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet. An actor that is cleaning up is alive, but takes no more messages.

        One on another node counts as alive until this node has heard that it has ended.
        """
        return self.process.alive

    @property
    def started_value(self) -> Any:
        """What a service said with `task_status.started(value)`: its bound address, say. None for most servers."""
        return self.process.started_value

    @overload
    async def call(self, request: Request[ReplyT], timeout_s: float | None = DEFAULT_TIMEOUT_S) -> ReplyT: ...

    @overload
    async def call(self, request: Any, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Any: ...

    async def call(self, request: Any, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Any:
        """Send `request` to `handle_call` and wait for the answer.

        A `Request` says which type the answer has. `timeout_s` None waits as long as the actor lives. Raises `Exit`
        with the reason if it ends before it answers, and `NoProc` if it has ended before. Raises `CallTimeout`,
        `CallingSelf`, `MailboxFull`, and `WrongThread` in another loop. `TypeError` and `ValueError` are for a
        `timeout_s` that is no time.
        """
        process = self.process
        if get_ident() != process.system.thread:
            raise WrongThread(self)
        # Here, because the actor may have the call before its caller waits for it; and mostly it is the default.
        if (
            timeout_s is not DEFAULT_TIMEOUT_S
            and timeout_s is not None
            and not (type(timeout_s) in _NUMBERS and not isnan(timeout_s))
        ):
            need_timeout(f"timeout_s of a call of {self}", timeout_s)
        # A cancelled caller sends nothing, and every call is a checkpoint as far as cancellation is concerned.
        await trio.lowlevel.checkpoint_if_cancelled()
        from_ = From(process)
        # An idle actor handles the call here and now, in the caller's task. That saves two changes of task, which cost
        # five times as much as the rest of a call. Nobody is overtaken, for its mailbox is empty, and nothing is
        # entered twice, for no callback of it is at work. The scheduler says how often that is fair to others.
        if process.scheduled or not process.system.scheduler.handle_at_once(process, request, from_):
            if process.waits_for_this_task():
                raise CallingSelf(str(self))
            try:
                process.submit_call(request, from_)
            except Exit:
                # A caller that tries again in a loop waits for a restart, which needs a turn.
                await trio.lowlevel.checkpoint()
                raise
        return await from_.wait(timeout_s)

    def cast(self, message: Any) -> None:
        """Send `message` to `handle_cast`. Never waits, never fails: to an actor that ended or is full, it vanishes.

        From any thread; from another than the system's own it comes after what its loop has to do now.
        """
        process = self.process
        if get_ident() != process.system.thread:
            process.system.loop.soon(self.cast, message)
            return
        if not process.scheduled:
            process.wake()
        elif len(process.mailbox) >= process.accepts:
            process.refuse(CAST, message)
            return
        process.mailbox.append((CAST, message, None))

    def send(self, message: Any) -> None:
        """Send `message` to `handle_info`, on the same terms as a cast."""
        process = self.process
        if get_ident() != process.system.thread:
            process.system.loop.soon(self.send, message)
            return
        if process.scheduled and len(process.mailbox) >= process.accepts:
            process.refuse(INFO, message)
        else:
            process.deliver_info(message)

    async def stop(self, reason: Reason = NORMAL, timeout_s: float | None = None) -> None:
        """Ask it to end with `reason`, after the messages it already has, and wait until it has.

        `terminate` is called. A service is cancelled. Raises `NoProc` if it had ended before, and `Exit` if it ended
        for another reason than this. Raises `CallTimeout` if it has not ended in time (it still will), and
        `CallingSelf` from its own callback (return `Stop` there).
        """
        self.process.require_loop()
        need_timeout(f"timeout_s of the stop of {self}", timeout_s)
        if self.process.waits_for_this_task():
            raise CallingSelf(str(self))
        if not self.alive:
            await trio.lowlevel.checkpoint()
            raise NoProc(str(self))
        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
            ended = await self.process.stop(reason)
            if ended is not reason and ended != reason:
                raise Exit(ended, str(self))
            return
        raise CallTimeout(str(self), timeout_s or 0.0)

    def exit(self, reason: Reason, sender: Ref | None = None) -> None:
        """Send an exit signal, as OTP's `exit(pid, reason)`; from a callback, `Server.exit` says who sent it.

        Without `trap_exit` it ends the actor at once, without `terminate`, except for `"normal"`, which is ignored
        unless the actor sent it to itself. With `trap_exit` it becomes an `ExitSignal` in `handle_info`, or, from the
        parent, calls `terminate`. The reason `"kill"` is `kill()`. Raises `WrongThread` outside of the system's thread.
        """
        self.process.require_loop()
        if is_kill(reason):
            self.process.kill()
        else:
            self.process.exit(reason, sender)

    def link(self, other: Ref | Named) -> None:
        """Link this actor and `other`, as if its callback had called `Server.link`: for services, which have no `self`.

        Raises `NoProc` as that does, and if this actor has ended.
        """
        self.process.link(other)

    def unlink(self, other: Ref | Named) -> None:
        """Take back a `link`, as `Server.unlink` does."""
        self.process.unlink(other)

    def kill(self) -> None:
        """End it at once, reason `"killed"`; neither `trap_exit` nor `terminate` matter. Raises `WrongThread`."""
        self.process.require_loop()
        self.process.kill()

    async def exited(self) -> Reason:
        """Wait until it has ended; the exit reason. For tasks; an actor uses `Server.monitor`, which does not wait.

        Raises `CallingSelf` in its own callback, which would wait for itself.
        """
        self.process.require_loop()
        if self.process.waits_for_this_task():
            raise CallingSelf(str(self))
        return await self.process.wait_dead()


CALL: Final = 0
CAST: Final = 1
INFO: Final = 2
STOP: Final = 3
LATE: Final = 4
"""Something that makes its message when it is handled (`actors.core.messages.Late`)."""
SYSTEM: Final = 5
CONTINUE: Final = 6
"""What a callback has said with `then=Continue(...)`. It stands before all messages, so none comes in between."""
HIBERNATION: Final = 7
"""The same for `then=HIBERNATE`."""
