"""Messages later, and ticks that do not drift.

`Cadence` is the arithmetic, and pure: tick `n` is due at `start_s + n * period_s`, whatever happened to tick `n - 1`.
`SystemTimers` is the shell: one trio task per system sleeps until the earliest deadline of a heap. An actor that falls
behind finds *one* tick in its mailbox, not a pile. The tick says how late it is and how many it stands for.

`every` gives the same ticks to an async function, as an async iterator.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import trio

from batonpass.actors.base.handles import Handle
from batonpass.actors.base.loop import WrongThread, get_ident
from batonpass.actors.core.checks import need_delay, need_timeout
from batonpass.actors.core.named import Named

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from batonpass.actors.core.process import Process
    from batonpass.actors.core.ref import Ref

MIN_PERIOD_S: Final = 1e-6
"""Shorter periods are of no use, and would meet the limits of floating point within a day."""

_COMPACT_ABOVE: Final = 512
"""Cancelled timers stay in the heap until they outnumber the live ones, and this many."""


@final
@dataclass(slots=True)
class Tick:
    """One beat of an interval, made when it is handled, so that its lateness is the lateness of the work.

    `number` counts from 0 at the start of the interval; `skipped` ticks before this one were never delivered because
    the actor was late. A simulation that must take every step takes `1 + skipped` of them.
    """

    name: Hashable
    number: int
    due_s: float
    late_s: float
    skipped: int


@final
class Cadence:
    """When ticks are due: `start_s + number * period_s`. Pure; seconds on any monotonic clock.

    Raises `ValueError` unless both are finite and the period is `MIN_PERIOD_S` or more.
    """

    __slots__ = ("name", "next_number", "period_s", "start_s")

    def __init__(self, period_s: float, start_s: float, name: Hashable = None) -> None:
        if not MIN_PERIOD_S <= period_s < math.inf:
            raise ValueError(f"period_s must be a finite number of seconds, {MIN_PERIOD_S} or more, not {period_s}")
        if not math.isfinite(start_s):
            raise ValueError(f"start_s must be a finite number of seconds, not {start_s}")
        self.period_s = period_s
        self.start_s = start_s
        self.name = name
        self.next_number = 0

    def due_s(self, number: int) -> float:
        """When tick `number` is due. One multiplication, not a sum of periods: rounding errors do not add up."""
        return self.start_s + number * self.period_s

    def latest(self, now_s: float) -> int:
        """The number of the last tick due by `now_s`; -1 before the first."""
        number = math.floor((now_s - self.start_s) / self.period_s)
        # The quotient is rounded: correct it so that it agrees with `due_s`, which is the definition.
        while self.due_s(number) > now_s:
            number -= 1
        while self.due_s(number + 1) <= now_s:
            number += 1
        return max(number, -1)

    def take(self, now_s: float) -> Tick | None:
        """The tick to handle now, standing for all that are due and not taken yet; None if none is."""
        number = self.latest(now_s)
        if number < self.next_number:
            return None
        skipped = number - self.next_number
        self.next_number = number + 1
        due_s = self.due_s(number)
        return Tick(self.name, number, due_s, now_s - due_s, skipped)


@final
class Timer(Handle):
    """One deadline. Cancel it with `cancel`; a timer that has fired or been cancelled cannot fire again."""

    __slots__ = ("_action", "_owner", "_timers", "deadline_s")

    def __init__(
        self, timers: SystemTimers, deadline_s: float, action: Callable[[], object], owner: Process | None
    ) -> None:
        self._timers = timers
        self._action: Callable[[], object] | None = action
        self._owner = owner
        self.deadline_s = deadline_s

    @property
    def active(self) -> bool:
        """Whether it is still going to fire."""
        return self._action is not None

    @property
    def left_s(self) -> float | None:
        """How many seconds it has still to run; None if it has fired or been cancelled."""
        return max(0.0, self.deadline_s - trio.current_time()) if self.active else None

    def cancel(self) -> float | None:
        """Do not fire. How many seconds it had still to run, which may be 0; None if it had fired or been cancelled."""
        self._timers.require_loop()
        left_s = self.left_s
        return left_s if self.disarm() else None

    def disarm(self) -> bool:
        """As `cancel`, but says only whether that was in time: for the runtime, which cancels one with each answer."""
        self._timers.require_loop()
        if self._action is None:
            return False
        self._action = None
        self._disown()
        self._timers._note_cancelled()
        return True

    def _fire(self) -> None:
        action = self._action
        if action is not None:
            self._action = None
            self._disown()
            action()

    def _defuse(self) -> None:
        """Made for an actor that has ended already: it never gets into the heap."""
        self._action = None
        self._owner = None

    def _disown(self) -> None:
        if self._owner is not None:
            self._owner.disown(self)
            self._owner = None


@final
class Interval(Handle):
    """A running series of ticks to one actor; `cancel` ends it. It also ends with the actor.

    One to a name continues until it is cancelled: each tick is for the actor that has the name then.
    """

    __slots__ = ("_cadence", "_name", "_process", "_timer", "_timers", "_waiting")

    def __init__(self, timers: SystemTimers, cadence: Cadence, address: Ref | Named) -> None:
        self._timers = timers
        self._cadence = cadence
        self._name: Named | None = None
        self._process: Process | None = None
        if isinstance(address, Named):
            self._name = address
        else:
            self._process = address.process
        self._waiting = False
        self._timer: Timer | None = None
        self._arm(cadence.due_s(0))

    @property
    def active(self) -> bool:
        """Whether more ticks will come."""
        return self._timer is not None and self._timer.active

    def cancel(self) -> bool:
        """Send no more ticks; one that waits in the mailbox is not delivered either. True the first time."""
        if self._timer is None:
            return False
        self._timer.disarm()  # which may be refused
        self._timer = None
        return True

    def take(self) -> Tick | None:
        """The tick that the actor should handle now. For the runtime, which calls it when the actor gets to it."""
        self._waiting = False
        return self._cadence.take(trio.current_time()) if self._timer is not None else None

    def _arm(self, deadline_s: float) -> None:
        owner = self._process if self._name is None else None
        self._timer = self._timers.at(deadline_s, self._beat, owner)

    def _beat(self) -> None:
        if self._name is not None:
            self._look_up(self._name)
        if self._process is not None and not self._waiting:
            self._waiting = True
            self._process.deliver_late(self)
        cadence = self._cadence
        self._arm(cadence.due_s(cadence.latest(trio.current_time()) + 1))

    def _look_up(self, name: Named) -> None:
        """Who has the name now gets this tick; one that has ended has taken the tick that it waited for with it."""
        ref = name.ref
        process = None if ref is None else ref.process
        if process is not self._process:
            self._process = process
            self._waiting = False


@final
class SystemTimers:
    """All deadlines of one system: a heap, and one task that sleeps until the earliest.

    In another thread than the one that made this, its methods and those of its timers raise `WrongThread`.
    """

    __slots__ = ("_cancelled", "_heap", "_sequence", "_sleep", "_thread", "_wake_s")

    def __init__(self) -> None:
        self._thread = get_ident()
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._cancelled = 0
        self._wake_s = math.inf
        self._sleep: trio.CancelScope | None = None

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, deadline_s: float, action: Callable[[], object], owner: Process | None = None) -> Timer:
        """Call `action` once the clock (`trio.current_time`) reaches `deadline_s`.

        `action` must neither block nor raise. With an `owner`, the timer is cancelled when that actor ends.
        Timers with the same deadline fire in the order in which they were made. Raises `ValueError` for NaN.
        """
        if math.isnan(deadline_s):
            raise ValueError("a deadline or delay must be a number of seconds, not NaN")
        self.require_loop()
        timer = Timer(self, deadline_s, action, owner)
        if owner is not None and not owner.own(timer):
            timer._defuse()
            return timer
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_s, self._sequence, timer))
        if deadline_s < self._wake_s:
            self._wake_s = deadline_s
            if self._sleep is not None:
                self._sleep.deadline = deadline_s
        return timer

    def send_after(self, delay_s: float, ref: Ref | Named, message: Any) -> Timer:
        """Send `message` to `ref` (its `handle_info`) in `delay_s` seconds, unless cancelled or `ref` ends before.

        To a name: to the actor that has it then, if any does. Raises `TypeError`, `ValueError` for no number.
        """
        self.require_loop()
        if not (type(delay_s) is float or type(delay_s) is int):
            need_delay("delay_s of send_after", delay_s)
        if isinstance(ref, Named):
            return self.at(trio.current_time() + delay_s, lambda: _deliver_to(ref, message))
        process = ref.process
        return self.at(trio.current_time() + delay_s, lambda: process.deliver_info(message), process)

    def send_interval(
        self, period_s: float, ref: Ref | Named, name: Hashable = None, *, start_s: float | None = None
    ) -> Interval:
        """Send `ref` a `Tick` (to `handle_info`) every `period_s` seconds, until cancelled or `ref` ends.

        To a name: each tick to the actor that has it then, if any does, until cancelled.

        The first is due at `start_s` (on `trio.current_time`; by default one period from now). Deadlines are counted
        from there, so ticks do not drift. While one waits in the mailbox no other is added. `name` is handed on in
        the tick. Raises `ValueError` as `Cadence` does, `TypeError` for no number.
        """
        self.require_loop()
        need_delay("period_s of send_interval", period_s)
        need_timeout("start_s of send_interval", start_s)
        first_s = trio.current_time() + period_s if start_s is None else start_s
        return Interval(self, Cadence(period_s, first_s, name), ref)

    def require_loop(self) -> None:
        """For timers. Raises `WrongThread`."""
        if get_ident() != self._thread:
            raise WrongThread("a timer")

    async def run(self) -> None:
        """Fire timers as they come due, for ever. The system runs this in its own task."""
        while True:
            self._fire_due()
            with trio.CancelScope(deadline=self._wake_s) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None

    def _fire_due(self) -> None:
        heap = self._heap
        now_s = trio.current_time()
        # Until the loop ends, deadlines that are added need not wake it: the loop, or the line after, sees them.
        self._wake_s = -math.inf
        while heap and heap[0][0] <= now_s:
            timer = heapq.heappop(heap)[2]
            if timer.active:
                timer._fire()
            else:
                self._cancelled -= 1
        self._wake_s = heap[0][0] if heap else math.inf

    def _note_cancelled(self) -> None:
        # A call that is answered cancels its deadline, so most timers are cancelled long before they are due. Dropping
        # them once they are the majority keeps the heap within twice its live size, at amortised constant cost.
        self._cancelled += 1
        if self._cancelled > _COMPACT_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap[:] = [entry for entry in self._heap if entry[2].active]
            heapq.heapify(self._heap)
            self._cancelled = 0


def _deliver_to(name: Named, message: object) -> None:
    ref = name.ref
    if ref is not None:
        ref.process.deliver_info(message)


@final
class every:  # noqa: N801 - reads as a word at its only place of use: `async for tick in every(0.05)`
    """Drift-free ticks for an async function: `async for tick in every(0.05): ...` waits for each.

    The first tick is due at `start_s` (by default now). A body that takes longer than a period finds the next tick
    late or standing for several, as `Tick` describes.
    """

    __slots__ = ("_cadence",)

    def __init__(self, period_s: float, *, start_s: float | None = None) -> None:
        self._cadence = Cadence(period_s, trio.current_time() if start_s is None else start_s)

    def __aiter__(self) -> every:
        return self

    async def __anext__(self) -> Tick:
        # Also a checkpoint when the tick is already due, so a late loop cannot starve the rest of the node.
        while True:
            await trio.sleep_until(self._cadence.due_s(self._cadence.next_number))
            tick = self._cadence.take(trio.current_time())
            if tick is not None:
                return tick
