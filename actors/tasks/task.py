"""Tasks: one async function, run beside its owner, whose value the owner asks for (Elixir's Task).

An actor that must not wait starts the work and continues; the outcome arrives in `handle_info`, as one message:

    def handle_call(self, request, from_, state):
        self.pending[Task.async_(self, fetch, request.url)] = from_
        return NoReply()

    def handle_info(self, message, state):
        match message:
            case TaskResult(task, value):
                self.pending.pop(task).reply(value)

A trio task, or an `async def` callback, may wait instead:

    async with open_tasks(system) as tasks:
        both = [Task.async_(tasks, fetch, url) for url in urls]
        here, there = await await_many(both)

Such a task is linked: it never outlives its owner, and its crash is its owner's (`actors.tasks.task_owner` says how).
To be told of a crash instead (`Down`, or an `Exited` outcome), start it under a task supervisor with
`TaskSupervisor.async_nolink`. To do the same for many inputs, a bounded number at a time, use `async_stream`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, assert_never, final

import trio

from batonpass.actors.base.handles import Handle
from batonpass.actors.core.checks import need_count, need_seconds, need_timeout
from batonpass.actors.core.exits import KILLED, SHUTDOWN, TIMED_OUT, Exit, Reason, is_normal
from batonpass.actors.core.messages import Down, Monitor
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S, Ref
from batonpass.actors.core.server import Server
from batonpass.actors.core.shutdown import shut_down
from batonpass.actors.core.system import System
from batonpass.actors.tasks.task_owner import Owner, TaskError, TaskOwner, owner_of
from batonpass.actors.tasks.task_process import ArgsT, Exited, Outcome, ResultT, Returned, TaskProcess


class TaskTimeout(Exit):
    """A task took longer than its owner was willing to wait. A linked one has been told to end; its value is lost."""

    def __init__(self, task: str, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        super().__init__(TIMED_OUT, task)

    def _sentence(self) -> str:
        return (
            f"{self.actor} did not finish within {self.timeout_s} s; allow more, or use yield_, which gives up nothing"
        )


@final
@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task of this actor has finished, with this value. There is no `Down` after it: one task, one message."""

    task: Task[Any]
    value: Any


@final
class Task(Handle, Generic[ResultT]):
    """A piece of work that has an owner; see the head of the module. Its outcome is told once, and to the owner only.

    `ref` is the actor that does the work (a `completed` task has none), `monitor` the one in a `Down` about it.
    """

    __slots__ = ("_adopted", "_linked", "_listener", "_monitor", "_outcome", "_owner", "_process", "_told")

    def __init__(self, owner: Owner, process: TaskProcess | None, *, linked: bool, adopted: bool) -> None:
        self._owner = owner
        self._process = process
        self._linked = linked
        self._adopted = adopted
        self._outcome: Outcome[ResultT] | None = None
        self._told = False
        self._listener: Callable[[Task[ResultT]], object] | None = None
        self._monitor = None if process is None else Monitor(process.ref, process)
        if process is not None:
            process.work_for(owner.process)
            if adopted:
                owner.adopt(self, process)
            if linked:
                owner.link(process)
            process.watch(partial(self._ended, process))

    @classmethod
    def async_(cls, owner: TaskOwner, function: Callable[[*ArgsT], Awaitable[ResultT]], *args: *ArgsT) -> Task[ResultT]:
        """Run `function(*args)` in a task that is linked to `owner`: `self` in a server, or what `open_tasks` gives.

        Does not wait, so any callback may do it. Raises `StartError` if the system is closing or the owner has ended,
        `TaskError` if the block of `owner` has ended.
        """
        own = owner_of(owner)
        process = TaskProcess.start(own.system, function, args, parent=own.process)
        return cls(own, process, linked=True, adopted=True)

    @staticmethod
    def start(system: System, function: Callable[[*ArgsT], Awaitable[object]], *args: *ArgsT) -> Ref:
        """Run `function(*args)` for its effect: it has no owner, and ends with the system at the latest.

        Raises `StartError` if the system is closing.
        """
        return TaskProcess.start(system, function, args, parent=None).ref

    @staticmethod
    def start_link(server: Server[Any], function: Callable[[*ArgsT], Awaitable[object]], *args: *ArgsT) -> Ref:
        """The same, linked to an actor, which says `Task.start_link(self, function, ...)` in any callback.

        The two share their fate like any that are linked. No message says how it ended but the exit signal of a crash,
        or of any end if the actor traps exits.
        """
        process = server.ref.process
        task = TaskProcess.start(process.system, function, args, parent=None)
        task.work_for(process)
        process.link(task.ref)
        return task.ref

    @classmethod
    def completed(cls, owner: TaskOwner, value: ResultT) -> Task[ResultT]:
        """A task that is done before it began, for code that expects a task where the value is known already."""
        task = cls(owner_of(owner), None, linked=False, adopted=False)
        task._outcome = Returned(value)
        task._owner.post(task)
        return task

    def __repr__(self) -> str:
        return "<completed task>" if self._monitor is None else repr(self._monitor.ref)

    @property
    def ref(self) -> Ref:
        """The actor that does the work. Raises `TaskError` for a completed task, which never had one."""
        ref = self.monitor.ref
        assert isinstance(ref, Ref)  # noqa: S101 — a task monitors no name
        return ref

    @property
    def monitor(self) -> Monitor:
        """What a `Down` about this task carries. Raises `TaskError` for a completed task."""
        if self._monitor is None:
            raise TaskError("a completed task has no actor: nothing ever ran")
        return self._monitor

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._process is None

    # For the owner

    async def await_(self, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> ResultT:
        """Wait for the value; None waits as long as it takes.

        Raises `Exit` with the reason if the task ended without one (an exception is also its `__cause__`), and
        `TaskTimeout`. Raises `TaskError` if another than the owner asks, or the outcome has been told already. To be
        cancelled while waiting changes nothing: the owner may ask again.
        """
        await _wait_for([self], timeout_s, 1)
        outcome = self.take_outcome()
        if outcome is None:
            _end([self])
            raise TaskTimeout(str(self), timeout_s or 0.0)
        if isinstance(outcome, Exited):
            raise Exit(outcome.reason, str(self))
        return outcome.value

    async def yield_(self, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Outcome[ResultT] | None:
        """Wait for the outcome; None if it takes longer, and the task runs on. Raises `TaskError` as `await_` does."""
        await _wait_for([self], timeout_s, 1)
        return self.take_outcome()

    async def shutdown(self, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Outcome[ResultT] | None:
        """End the task: with exit signal `"shutdown"`, killed after `timeout_s`; 0 kills at once, None waits.

        None if it ended for that reason, now or before. Its outcome if it came first (a value, a crash), or it had to
        be killed after its time (`Exited("killed")`). Its owner hears nothing else of it. Raises `TaskError` as
        `await_` does.
        """
        need_seconds("timeout_s of Task.shutdown", timeout_s, optional=True)
        self.check()
        process = self._process
        asked = KILLED if timeout_s == 0 else SHUTDOWN
        if process is None:
            await trio.lowlevel.checkpoint()
            return _unless_asked(self.take_outcome(), asked)
        self.listen(_say_nothing)
        self._unlink()
        try:
            await shut_down([(process, timeout_s)])
        except BaseException:
            self.stop_listening()
            raise
        # Nothing yet: it ignores its cancellation, which has been logged.
        outcome = self.take_outcome() or Exited(KILLED)
        self.abandon()
        return _unless_asked(outcome, asked)

    def ignore(self) -> Outcome[ResultT] | None:
        """Let it run on, unheard and no longer linked: neither its value nor its crash reaches the owner any more.

        Its outcome, if it has ended already. It still ends with its owner at the latest. Plain callbacks cancel a task
        with this and `task.ref.kill()`. Raises `TaskError` if the outcome has been told already.
        """
        if self._told:
            raise TaskError(f"{self}: its outcome has been told already")
        outcome = self.take_outcome()
        self.abandon()
        return outcome

    # For the runtime

    def check(self) -> None:
        """Raises `TaskError` unless its owner runs now, and has not been told the outcome yet."""
        self._owner.check(self)
        if self._told:
            raise TaskError(f"{self}: its outcome has been told already; a task is awaited once")

    def take(self) -> TaskResult | Down | None:
        """The message to the owner that this task has ended; None if the owner has learnt it otherwise by now."""
        outcome = self._outcome
        self._outcome = None
        self._told = self._told or outcome is not None
        match outcome:
            case None:
                return None
            case Returned(value):
                return TaskResult(self, value)
            case Exited(reason):
                return Down(self.monitor, self.ref, reason)
            case _:
                assert_never(outcome)

    def take_outcome(self) -> Outcome[ResultT] | None:
        """The outcome, told with this; None if it has not ended."""
        outcome = self._outcome
        if outcome is not None:
            self._outcome = None
            self._told = True
            self._owner.retract(self)
        return outcome

    @property
    def failed(self) -> bool:
        """Whether it has ended without a value, and that has not been told yet."""
        return isinstance(self._outcome, Exited)

    def listen(self, listener: Callable[[Task[ResultT]], object]) -> None:
        """Call `listener` when it ends, and send the owner no message. It must not have ended."""
        if self._listener is not None:
            raise TaskError(f"{self} is being waited for already")
        self._listener = listener

    def stop_listening(self) -> None:
        """From now on the owner is sent a message again; at once, if it has ended and was not told."""
        self._listener = None
        if self._outcome is not None:
            self._owner.post(self)

    def abandon(self) -> TaskProcess | None:
        """The owner will not be told any more, and a crash means nothing to it. What still runs, if it does."""
        self._unlink()
        self._told = True
        return self._process

    # Inside

    def _ended(self, process: TaskProcess, reason: Reason) -> None:
        self._process = None
        if self._adopted:
            self._owner.release(self, process)
        outcome = process.take_outcome()
        if self._told:
            return
        self._outcome = outcome
        if self._listener is not None:
            self._listener(self)
        else:
            self._owner.post(self)
        if self._linked and not is_normal(reason):
            self._owner.keep_crash(self, reason)

    def _unlink(self) -> None:
        if self._linked and self._process is not None:
            self._owner.unlink(self._process)
        self._linked = False


OnTimeout: TypeAlias = Literal["nothing", "ignore", "kill_task"]


async def await_many(tasks: Sequence[Task[ResultT]], timeout_s: float | None = DEFAULT_TIMEOUT_S) -> list[ResultT]:
    """Wait for the values of all, which may take `timeout_s` together.

    Raises `Exit` as soon as one has ended without a value, `TaskTimeout`, `TaskError` as `Task.await_` does. Linked
    tasks that still run then are told to end.
    """
    await _wait_for(tasks, timeout_s, len(tasks), or_failure=True)
    outcomes = [task.take_outcome() for task in tasks]
    late = [task for task, outcome in zip(tasks, outcomes, strict=True) if outcome is None]
    _end(late)
    for task, outcome in zip(tasks, outcomes, strict=True):
        if isinstance(outcome, Exited):
            raise Exit(outcome.reason, str(task))
    if late:
        raise TaskTimeout(f"{late[0]} (and {len(late) - 1} of {len(tasks)} more)", timeout_s or 0.0)
    return [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]


async def yield_many(
    tasks: Sequence[Task[ResultT]],
    timeout_s: float | None = DEFAULT_TIMEOUT_S,
    *,
    limit: int | None = None,
    on_timeout: OnTimeout = "nothing",
) -> list[tuple[Task[ResultT], Outcome[ResultT] | None]]:
    """Wait until all, or `limit` of them, have ended, but no longer than `timeout_s`; each task with its outcome.

    Those without outcome have None and continue; unless the time is over, and `on_timeout` says to `"ignore"` them
    then, or `"kill_task"`. That enough have ended is no timeout. Raises `TaskError` as `Task.await_` does, `TypeError`
    and `ValueError` for arguments that mean nothing.
    """
    need_count("limit of yield_many", limit, optional=True)
    if on_timeout not in ("nothing", "ignore", "kill_task"):
        raise ValueError(f'on_timeout must be "nothing", "ignore" or "kill_task", not {on_timeout!r}')
    in_time = await _wait_for(tasks, timeout_s, len(tasks) if limit is None else min(limit, len(tasks)))
    outcomes = [(task, task.take_outcome()) for task in tasks]
    if on_timeout != "nothing" and not in_time:
        running = [task.abandon() for task, outcome in outcomes if outcome is None]
        if on_timeout == "kill_task":
            await shut_down([(process, 0) for process in running if process is not None])
    return outcomes


async def _wait_for(
    tasks: Sequence[Task[Any]], timeout_s: float | None, enough: int, *, or_failure: bool = False
) -> bool:
    """Wait until `enough` have ended, or one has failed, or the time is over (False).

    Take the outcomes without delay then.
    """
    need_timeout("timeout_s of a task", timeout_s)
    if len(set(tasks)) != len(tasks):
        raise TaskError("a task is in the list twice; its outcome is told only once")
    for task in tasks:
        task.check()
    happened = trio.Event()
    left = enough

    def note(task: Task[Any]) -> None:
        nonlocal left
        left -= 1
        if left <= 0 or (or_failure and task.failed):
            happened.set()

    if enough <= 0:
        happened.set()
    waiting: list[Task[Any]] = []
    try:
        for task in tasks:
            if task.done:
                note(task)
            else:
                task.listen(note)
                waiting.append(task)
        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
            await happened.wait()
    except BaseException:
        for task in waiting:
            task.stop_listening()
        raise
    for task in waiting:
        task._listener = None
    return happened.is_set()


def _end(tasks: Sequence[Task[Any]]) -> None:
    """The owner has given up waiting: linked tasks are told to end, the others run on, unheard of."""
    for task in tasks:
        linked = task._linked
        process = task.abandon()
        if linked and process is not None:
            process.exit_from_parent(SHUTDOWN)


def _unless_asked(outcome: Outcome[ResultT] | None, asked: Reason) -> Outcome[ResultT] | None:
    """The outcome; None if it is the end that was asked for, whether it came a moment before or after."""
    if isinstance(outcome, Exited) and isinstance(outcome.reason, str) and outcome.reason == asked:
        return None
    return outcome


def _say_nothing(_task: object) -> None:
    """In place of a message."""
