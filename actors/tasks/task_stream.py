"""The same work for many inputs, a bounded number of tasks at a time (Elixir's Task.async_stream).

    async with async_stream(self, fetch, urls, max_concurrency=8) as pages:
        async for page in pages:
            ...  # Returned(value), or Exited(reason)

Nothing runs ahead of the reader. Inputs are taken from their iterable as there is room, and a task counts as long as
its outcome has not been read. So a stream holds at most `max_concurrency` tasks and outcomes, however slow the reader,
and however long the first task takes. (Elixir lets later tasks finish meanwhile, and keeps what they return without
bound.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar, final

import trio

from batonpass.actors.core.checks import need_count, need_timeout
from batonpass.actors.core.exits import TIMED_OUT, Exit
from batonpass.actors.core.process import KILL_GRACE_S
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S
from batonpass.actors.core.shutdown import shut_down
from batonpass.actors.tasks.task import Task, TaskTimeout
from batonpass.actors.tasks.task_owner import TaskError, TaskOwner, owner_of
from batonpass.actors.tasks.task_process import Exited, Outcome, ResultT, TaskProcess

if TYPE_CHECKING:
    from types import TracebackType

    from batonpass.actors.core.timers import Timer

InputT = TypeVar("InputT")

DEFAULT_MAX_CONCURRENCY: Final = 16
"""Elixir takes the number of processors. Tasks here wait for others rather than compute, so that number means nothing.
This one keeps a few requests in flight without being noticed by the server that answers them.
"""

STREAM_SHUTDOWN_S: Final = 5.0
"""How long the tasks that still run when a stream is left may take to clean up."""

OnTaskTimeout: TypeAlias = Literal["exit", "kill_task"]


class StreamOptions(TypedDict, total=False):
    """The keyword arguments of `async_stream`, which says what they mean, for those who hand them on."""

    max_concurrency: int
    ordered: bool
    timeout_s: float | None
    on_timeout: OnTaskTimeout
    zip_input_on_exit: bool


@final
class _InputSlot(Generic[InputT, ResultT]):
    """One input on its way to become an outcome."""

    __slots__ = ("input", "outcome", "overdue", "task", "timer")

    def __init__(self, input_: InputT, task: Task[ResultT]) -> None:
        self.input = input_
        self.task = task
        self.timer: Timer | None = None
        self.overdue = False
        self.outcome: Outcome[ResultT] | None = None


@final
class TaskStream(Generic[InputT, ResultT]):
    """Outcomes as they come; made by `async_stream`. Only its owner may iterate, inside of an `async with`."""

    def __init__(
        self,
        owner: TaskOwner,
        start: Callable[[InputT], TaskProcess],
        inputs: Iterable[InputT],
        *,
        linked: bool,
        max_concurrency: int = DEFAULT_MAX_CONCURRENCY,
        ordered: bool = True,
        timeout_s: float | None = DEFAULT_TIMEOUT_S,
        on_timeout: OnTaskTimeout = "exit",
        zip_input_on_exit: bool = False,
    ) -> None:
        need_count("max_concurrency", max_concurrency, least=1)
        need_timeout("timeout_s of a stream of tasks", timeout_s)
        if on_timeout not in {"exit", "kill_task"}:
            raise ValueError(f'on_timeout must be "exit" or "kill_task", not {on_timeout!r}')
        self._task_owner = owner
        self._owner = owner_of(owner)
        self._start = start
        self._inputs = iter(inputs)
        self._linked = linked
        self._max_concurrency = max_concurrency
        self._ordered = ordered
        self._timeout_s = timeout_s
        self._on_timeout = on_timeout
        self._zip_input_on_exit = zip_input_on_exit
        self._held: dict[_InputSlot[InputT, ResultT], None] = {}
        self._ready: deque[_InputSlot[InputT, ResultT]] = deque()
        self._exhausted = False
        self._failure: Exit | None = None
        self._news = trio.Event()
        self._open = False

    def __repr__(self) -> str:
        return "<stream of tasks>"

    async def __aenter__(self) -> TaskStream[InputT, ResultT]:
        self._owner.check(self)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        running = [self._let_go(slot) for slot in self._held]
        self._held.clear()
        self._ready.clear()
        with trio.CancelScope(shield=True):
            await shut_down([(process, STREAM_SHUTDOWN_S) for process in running if process is not None])

    def __aiter__(self) -> TaskStream[InputT, ResultT]:
        return self

    async def __anext__(self) -> Outcome[ResultT]:
        self._owner.check(self)
        if not self._open:
            raise TaskError("a stream of tasks is read inside of `async with async_stream(...) as outcomes:`")
        await trio.lowlevel.checkpoint()
        while True:
            if self._failure is not None:
                raise self._failure
            self._start_more()
            slot = self._next_ready()
            if slot is not None and slot.outcome is not None:
                del self._held[slot]
                return slot.outcome
            if not self._held:
                raise StopAsyncIteration
            self._news = trio.Event()
            await self._news.wait()

    def _start_more(self) -> None:
        while len(self._held) < self._max_concurrency and not self._exhausted:
            try:
                input_ = next(self._inputs)
            except StopIteration:
                self._exhausted = True
                return
            slot = _InputSlot(input_, self._start_task(input_))
            self._held[slot] = None
            slot.task.listen(partial(self._ended, slot))
            if self._timeout_s is not None:
                self._set_timer(slot, self._timeout_s, self._expire)

    def _start_task(self, input_: InputT) -> Task[ResultT]:
        # Not linked as far as `Task` is concerned: what a crash means is said below. It still ends with its owner.
        owner = owner_of(self._task_owner)
        owner.require_alive()
        return Task(owner, self._start(input_), linked=False, adopted=self._linked)

    def _set_timer(
        self, slot: _InputSlot[InputT, ResultT], delay_s: float, action: Callable[[_InputSlot[InputT, ResultT]], None]
    ) -> None:
        deadline_s = trio.current_time() + delay_s
        slot.timer = self._owner.system.timers.at(deadline_s, lambda: action(slot))

    def _next_ready(self) -> _InputSlot[InputT, ResultT] | None:
        if self._ordered:
            return next(iter(self._held), None)
        return self._ready.popleft() if self._ready else None

    def _ended(self, slot: _InputSlot[InputT, ResultT], task: Task[ResultT]) -> None:
        """The task of `slot` has ended, by itself or not."""
        outcome = task.take_outcome()
        if slot.timer is not None:
            slot.timer.disarm()
        if slot.overdue:
            outcome = Exited(TIMED_OUT)
        elif isinstance(outcome, Exited) and self._linked and not self._owner.traps:
            self._failure = self._failure or Exit(outcome.reason, str(task))
            self._owner.end(task, outcome.reason)
        if isinstance(outcome, Exited) and self._zip_input_on_exit:
            outcome = Exited(outcome.reason, slot.input)
        slot.outcome = outcome
        if not self._ordered:
            self._ready.append(slot)
        self._news.set()

    def _expire(self, slot: _InputSlot[InputT, ResultT]) -> None:
        """The task of `slot` has taken too long."""
        slot.overdue = True
        if self._on_timeout == "exit":
            self._failure = self._failure or TaskTimeout(str(slot.task), self._timeout_s or 0.0)
            self._news.set()
        # It counts until it is really over; but one that ignores its cancellation must not hold up the reader for ever.
        self._set_timer(slot, KILL_GRACE_S, self._leave_behind)
        slot.task.ref.kill()

    def _leave_behind(self, slot: _InputSlot[InputT, ResultT]) -> None:
        slot.task.abandon()
        self._ended(slot, slot.task)

    def _let_go(self, slot: _InputSlot[InputT, ResultT]) -> TaskProcess | None:
        if slot.timer is not None:
            slot.timer.disarm()
        return slot.task.abandon()


def async_stream(
    owner: TaskOwner,
    function: Callable[[InputT], Awaitable[ResultT]],
    inputs: Iterable[InputT],
    *,
    max_concurrency: int = DEFAULT_MAX_CONCURRENCY,
    ordered: bool = True,
    timeout_s: float | None = DEFAULT_TIMEOUT_S,
    on_timeout: OnTaskTimeout = "exit",
    zip_input_on_exit: bool = False,
) -> TaskStream[InputT, ResultT]:
    """Run `function(input)` for each of `inputs`, at most `max_concurrency` at a time; see the head of the module.

    Outcomes come in the order of the inputs, or as they are there if not `ordered`. The tasks are linked to `owner`. A
    crash ends an owning actor (one that traps exits reads `Exited(reason)` instead), and is raised as `Exit` to an
    owning trio task. A task that takes longer than `timeout_s` (None: as long as it takes) makes the stream raise
    `TaskTimeout`. With `on_timeout="kill_task"` it is killed and read as `Exited("timeout")`. With `zip_input_on_exit`
    every `Exited` says what its input was. Leaving the block ends the tasks that still run.

    Raises `ValueError` for a `max_concurrency` below 1; while iterating also `TaskError`, `StartError`, and what
    `inputs` raises.
    """
    own = owner_of(owner)
    return TaskStream(
        owner,
        lambda input_: TaskProcess.start(own.system, function, (input_,), parent=own.process),
        inputs,
        linked=True,
        max_concurrency=max_concurrency,
        ordered=ordered,
        timeout_s=timeout_s,
        on_timeout=on_timeout,
        zip_input_on_exit=zip_input_on_exit,
    )
