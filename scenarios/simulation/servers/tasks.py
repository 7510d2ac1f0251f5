"""Coroutines on virtual time, and processes that crash and are paused.

What a server's coroutine awaits is either a while (`pause`) or an answer (`AwaitedAnswer.wait`). Both are plain
generators, so that a heap of events can drive real code without trio, whose scheduler draws lots on purpose.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from types import TracebackType, coroutine
from typing import Any, Final, Self

from batonpass.actors.base.clock import Bell, Clock, InstanceClock
from batonpass.scenarios.simulation.kernel.schedule import Schedule

__all__ = ["AwaitedAnswer", "ProcessClock", "SimulatedProcess", "VirtualClock", "pause"]

_BEGINNING_OF_TIME_S: Final = 1_700_000_000.0
"""Unix time at virtual second 0; any would do."""
_WRONG_S: Final = 0.5
"""By how much the times of day of two machines may differ, where seconds since their starts have nothing in common."""


@coroutine
def pause(seconds: float) -> Generator[float, None, None]:
    """Wait for this time, by virtual time."""
    yield seconds


class AwaitedAnswer:
    """What a coroutine waits for. The first answer counts; later ones are forgotten."""

    def __init__(self) -> None:
        self._come: tuple[Any, Exception | None] | None = None
        self._wake: Callable[[], None] | None = None

    def give(self, value: Any) -> None:
        """It has come."""
        self._settle(value, None)

    def fail(self, error: Exception) -> None:
        """It will not come: the one that waits gets this error."""
        self._settle(None, error)

    def _settle(self, value: Any, error: Exception | None) -> None:
        if self._come is None:
            self._come = (value, error)
            if self._wake is not None:
                self._wake()

    def call_when_here(self, wake: Callable[[], None]) -> None:
        """Have this called once, when the answer has come."""
        self._wake = wake
        if self._come is not None:
            wake()

    @coroutine
    def wait(self) -> "Generator[AwaitedAnswer, None, Any]":
        """The answer, once it is here."""
        while self._come is None:
            yield self
        value, error = self._come
        if error is not None:
            raise error
        return value


class SimulatedProcess:
    """A process on a machine of its own: what it does, it does in turn, and not while it is paused.

    As under trio, a task that is started or woken runs when the step that did so is over, and never within it. A task
    has context variables of its own, a copy of those where it was started. What arrives from elsewhere has those with
    which the process was made.
    `start_soon` is a nursery's, for shells that keep one.
    """

    def __init__(self, name: str, schedule: Schedule) -> None:
        self.name: Final = name
        self._schedule: Final = schedule
        self._context: Final = copy_context()
        self._life = 0
        self._is_paused = False
        self._held: list[tuple[int, Callable[[], None]]] = []
        # What the step under way has brought about, and whether there is one.
        self._next: Final[deque[tuple[int, Callable[[], None]]]] = deque()
        self._is_at_work = False
        self.is_running = True

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do this later, if it has not ended until then."""
        self._schedule.after(delay_s, partial(self._do, self._life, action))

    def do(self, action: Callable[[], None]) -> None:
        """Do this now, after the step that is under way, or when it continues."""
        self._do(self._life, action)

    def _do(self, life: int, action: Callable[[], None]) -> None:
        self._next.append((life, action))
        if self._is_at_work:
            return
        self._is_at_work = True
        try:
            while self._next:
                life, action = self._next.popleft()
                if life != self._life or not self.is_running:
                    continue
                if self._is_paused:
                    self._held.append((life, action))
                else:
                    self._context.copy().run(action)
        finally:
            self._is_at_work = False

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, object]], *args: Any) -> None:
        """Run a coroutine beside the others, as soon as the step under way is over."""
        context = copy_context()
        self.do(lambda: self._go_on(context.run(function, *args), context))

    def _go_on(self, task: Coroutine[Any, Any, object], context: Context) -> None:
        try:
            awaited = context.run(task.send, None)
        except StopIteration:
            return
        again = partial(self._do, self._life, partial(self._go_on, task, context))
        if isinstance(awaited, float):
            self._schedule.after(awaited, again)
        elif isinstance(awaited, AwaitedAnswer):
            awaited.call_when_here(again)
        else:
            task.throw(TypeError(f"{awaited!r} is awaited, which only trio knows; here is virtual time"))

    def end(self) -> None:
        """It is killed: nothing that it began is ever finished."""
        self.is_running, self._is_paused = False, False
        self._life += 1
        self._held.clear()

    def begin(self) -> None:
        """It is started again, with an empty memory."""
        self.is_running = True

    def stand_still(self) -> None:
        """As after SIGSTOP."""
        self._is_paused = self.is_running

    def go_on(self) -> None:
        """As after SIGCONT: what came meanwhile happens now, in order."""
        self._is_paused = False
        held, self._held = self._held, []
        for life, action in held:
            self._do(life, action)


class VirtualBell(Bell):
    """A bell on virtual time."""

    def __init__(self, clock: "VirtualClock") -> None:
        self._clock: Final = clock
        self._has_rung = False
        self._waiting: AwaitedAnswer | None = None

    def ring(self) -> None:
        """Wake the task that waits, or the next one that does."""
        self._has_rung = True
        if self._waiting is not None:
            self._waiting.give(None)

    async def wait(self, at_most_s: float = math.inf) -> bool:
        """As `Bell.wait`."""
        if not self._has_rung:
            self._waiting = answer = AwaitedAnswer()
            if at_most_s < math.inf:
                self._clock.after(at_most_s, partial(answer.give, None))
            await answer.wait()
            self._waiting = None
        has_rung, self._has_rung = self._has_rung, False
        return has_rung


class VirtualClock(Clock):
    """The clock of one machine: by the schedule's time, from where it began, a little faster or slower than true."""

    def __init__(self, schedule: Schedule, rate: float = 1.0, ahead_s: float = 0.0) -> None:
        self._schedule: Final = schedule
        self._rate: Final = rate
        self._ahead_s: Final = ahead_s

    def monotonic_ns(self) -> int:
        """Nanoseconds by this clock."""
        return round((self._schedule.now_s * self._rate + self._ahead_s) * 1e9)

    def unix_s(self) -> float:
        """Seconds since 1970 by this clock."""
        return _BEGINNING_OF_TIME_S + self._schedule.now_s * self._rate + self._ahead_s % _WRONG_S

    def true_s(self, seconds: float) -> float:
        """How long it takes until this time has passed by this clock."""
        return max(seconds, 0.0) / self._rate

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Have this happen after this time by this clock."""
        self._schedule.after(self.true_s(seconds), action)

    async def sleep_s(self, seconds: float) -> None:
        """Let virtual time pass."""
        await pause(self.true_s(seconds))

    def bell(self) -> VirtualBell:
        """A bell on virtual time."""
        return VirtualBell(self)


class VirtualTasks:
    """As a nursery of trio's, for the coroutines of one process; what goes wrong in one ends the run."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process: Final = process
        self._running = 0
        self._all_over = AwaitedAnswer()

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *args: Any) -> None:
        """Run this beside the others."""
        self._running += 1
        self._process.start_soon(self._run, function, *args)

    async def _run(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        await function(*args)
        self._running -= 1
        if not self._running:
            self._all_over.give(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        while kind is None and self._running:
            self._all_over = AwaitedAnswer()
            await self._all_over.wait()


class ProcessClock(InstanceClock):
    """The clocks of one server, whose tasks end with its process."""

    def __init__(self, clock: VirtualClock, process: SimulatedProcess) -> None:
        super().__init__(clock, process.name)
        self._process: Final = process
        # What waits for one of these is held by nothing else, and would be collected as garbage.
        self._never: Final[list[AwaitedAnswer]] = []

    async def sleep_forever(self) -> None:
        """As `Clock.sleep_forever`."""
        self._never.append(never := AwaitedAnswer())
        await never.wait()

    def tasks(self) -> VirtualTasks:
        """As `Clock.tasks`."""
        return VirtualTasks(self._process)
