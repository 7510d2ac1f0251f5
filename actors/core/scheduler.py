"""The run queue: which actors have something to do, and whose turn it is.

An idle actor is a few Python objects and no trio task. When a message comes, the actor joins the queue. One task per
system gives each actor in it a turn of at most `TURN_MESSAGES`, round robin. It lets the rest of trio (sockets, timers,
async callbacks) run at least every `SLICE_MESSAGES` messages or `SLICE_S` seconds. There is no preemption. A callback
that computes for long holds up the whole node, so one that takes longer than `slow_callback_s` is reported by name.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any, final

import trio

from batonpass.actors.base.gc import CollectorPauses
from batonpass.actors.core.ref import CALL
from batonpass.actors.core.telemetry import CALLBACK_SLOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from batonpass.actors.core.process import Entry, Process
    from batonpass.actors.core.ref import From
    from batonpass.actors.core.telemetry import Telemetry

logger = logging.getLogger("batonpass.actors")

TURN_MESSAGES = 64
"""Long enough to make changing actors cheap, short enough that a flooded neighbour costs microseconds, not a frame."""
SLICE_MESSAGES = 1024
SPARE_MAILBOXES = 64
"""Kept for the next actors that get a message."""
AT_ONCE_CALLS = 16
"""In a row handled in their callers' tasks; the next one goes through the queue, which gives all others a turn."""
AT_ONCE_S = 0.000_1
"""A call that took longer ends the row: 16 of these are about a slice."""
SLICE_S = 0.002
"""An I/O latency that is not noticed beside a 50 ms tick; a pass through trio's loop costs about 1 % of it."""


@final
class _EndOfRound:
    """Stands in the run queue behind all that have something to do now; its turn is when all have had theirs."""

    __slots__ = ("context", "reached")

    def __init__(self) -> None:
        self.reached = trio.Event()
        self.context = Context()

    def take_turn(self, budget: int, slice_end_s: float) -> tuple[int, float]:
        """Have what waits continue at once: by ending the slice, which others may have most of."""
        self.reached.set()
        return 0, slice_end_s


@final
class Scheduler:
    """Drains mailboxes. `clock_s` measures callbacks only; it decides nothing but when to yield and what to report."""

    __slots__ = (
        "_at_once_left",
        "_fault",
        "_has_ended",
        "_is_running",
        "_parked",
        "_ready",
        "_spare_mailboxes",
        "_telemetry",
        "clock_s",
        "handled",
        "pauses",
        "slow_callback_s",
        "slow_callbacks",
    )

    def __init__(self, slow_callback_s: float, clock_s: Callable[[], float], telemetry: Telemetry) -> None:
        self._ready: deque[Process | _EndOfRound] = deque()
        self._parked: trio.lowlevel.Task | None = None
        self.slow_callback_s = slow_callback_s
        self.clock_s = clock_s
        self._telemetry = telemetry
        self.handled = 0
        self.slow_callbacks = 0
        self.pauses = CollectorPauses(clock_s)
        self._at_once_left = AT_ONCE_CALLS
        self._is_running = False
        self._fault: BaseException | None = None
        self._has_ended = False
        self._spare_mailboxes: list[deque[Entry]] = []

    def take_mailbox(self) -> deque[Entry]:
        """An empty mailbox for an actor that gets its first message. Give it back when it is empty again.

        An empty deque has room for 64 messages, 760 bytes, which a hundred thousand idle actors do not need.
        """
        return self._spare_mailboxes.pop() if self._spare_mailboxes else deque()

    def give_back(self, mailbox: deque[Entry]) -> None:
        """Take an empty mailbox back, to be used again."""
        if len(self._spare_mailboxes) < SPARE_MAILBOXES:
            self._spare_mailboxes.append(mailbox)

    def handle_at_once(self, process: Process, request: Any, from_: From) -> bool:
        """Have an idle actor handle a call before this returns. False, and nothing done, if it is others' turn.

        The actor must not notice whose stack it is on. So it runs in its own context, as it does when it is busy. It
        waits its turn when the caller is handling an exception, which Python would chain to its own.
        """
        if self._at_once_left == 0 or not self._is_running or sys.exception() is not None:
            return False
        self._at_once_left -= 1
        started_s = self.clock_s()
        process.open_mailbox()
        process.mailbox.append((CALL, request, from_))
        try:
            handled, now_s = process.context.run(process.take_turn, 1, started_s)
        except BaseException as error:
            # Ctrl-C or the like: it ends the system, as it does out of a busy actor, and leaves no caller waiting.
            process.abandon()
            self._fault = error
            self._unpark()
            return True
        self.handled += handled
        if now_s - started_s > AT_ONCE_S:
            self._at_once_left = 0
        return True

    def enqueue(self, process: Process) -> None:
        """Give `process` a turn, after those who are waiting for one already."""
        self._ready.append(process)
        if self._parked is not None:
            self._unpark()

    async def round_over(self) -> None:
        """Wait until all that have something to do now has had a turn, of `TURN_MESSAGES` at most.

        A turn that was cut short by the end of a slice counts. When the system has ended no actor gets one any more, so
        no caller waits for that. A checkpoint.
        """
        if self._has_ended or self._parked is not None:  # nobody has anything to do
            await trio.lowlevel.checkpoint()
            return
        end = _EndOfRound()
        self._ready.append(end)
        self._unpark()
        await end.reached.wait()

    def _unpark(self) -> None:
        task, self._parked = self._parked, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def report_slow(self, label: str, callback: str, took_s: float) -> None:
        """Count and log a callback that held up the node, and has just ended."""
        self.slow_callbacks += 1
        collecting_s = self.pauses.since(self.clock_s() - took_s)
        if took_s - collecting_s > self.slow_callback_s:
            logger.warning(
                "%s: %s held up the whole node for %.0f ms; make it shorter, or `async def` with checkpoints",
                label,
                callback,
                (took_s - collecting_s) * 1000,
            )
        else:
            logger.warning(
                "garbage collection held up the whole node for %.0f ms, while %s was in %s; see `gc.freeze`",
                collecting_s * 1000,
                label,
                callback,
            )
        self._telemetry.execute(
            CALLBACK_SLOW,
            {"duration_s": took_s, "collecting_s": collecting_s},
            {"actor": label, "callback": callback},
        )

    async def run(self) -> None:
        """Give turns, for ever. The system runs this in its own task."""
        task = trio.lowlevel.current_task()
        self._is_running = True
        self.pauses.start()
        try:
            while True:
                if not self._ready and self._fault is None:
                    self._parked = task
                    await trio.lowlevel.wait_task_rescheduled(self._abort)
                if self._fault is not None:
                    raise self._fault
                self._run_slice()
                self._at_once_left = AT_ONCE_CALLS
                if self._ready:
                    await trio.lowlevel.checkpoint()
        finally:
            self._is_running = False
            self._has_ended = True
            for waiting in self._ready:
                if isinstance(waiting, _EndOfRound):
                    waiting.reached.set()
            self.pauses.stop()

    def _run_slice(self) -> None:
        ready = self._ready
        left = SLICE_MESSAGES
        slice_end_s = self.clock_s() + SLICE_S
        while ready and left > 0:
            turn = ready.popleft()
            handled, now_s = turn.context.run(turn.take_turn, TURN_MESSAGES, slice_end_s)
            left -= handled
            if now_s >= slice_end_s:
                break
        self.handled += SLICE_MESSAGES - left

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._parked = None
        return trio.lowlevel.Abort.SUCCEEDED
