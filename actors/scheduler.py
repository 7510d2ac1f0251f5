"""The run queue: which actors have something to do, and whose turn it is.

An idle actor is a few Python objects and no trio task. When a message comes, the actor joins the queue; one task per
system gives everybody in it a turn of at most `TURN_MESSAGES`, round robin, and lets the rest of trio (sockets, timers,
async callbacks) run at least every `SLICE_MESSAGES` messages or `SLICE_S` seconds. There is no preemption: a callback
that computes for long holds up the whole node, so one that takes longer than `slow_callback_s` is reported by name.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.server_process import ServerProcess

logger = logging.getLogger("actors")

TURN_MESSAGES = 64
"""Long enough to make changing actors cheap, short enough that a flooded neighbour costs microseconds, not a frame."""
SLICE_MESSAGES = 1024
SLICE_S = 0.002
"""An I/O latency nobody notices beside a 50 ms tick; a pass through trio's loop costs about 1 % of it."""


@final
class Scheduler:
    """Drains mailboxes. `clock_s` measures callbacks only; it decides nothing but when to yield and what to report."""

    __slots__ = ("_parked", "_ready", "clock_s", "handled", "slow_callback_s", "slow_callbacks")

    def __init__(self, slow_callback_s: float, clock_s: Callable[[], float]) -> None:
        self._ready: deque[ServerProcess] = deque()
        self._parked: trio.lowlevel.Task | None = None
        self.slow_callback_s = slow_callback_s
        self.clock_s = clock_s
        self.handled = 0
        self.slow_callbacks = 0

    def enqueue(self, process: ServerProcess) -> None:
        """Give `process` a turn, after those who are waiting for one already."""
        self._ready.append(process)
        task = self._parked
        if task is not None:
            self._parked = None
            trio.lowlevel.reschedule(task)

    def report_slow(self, label: str, callback: str, took_s: float) -> None:
        """Count and log a callback that held up the node."""
        self.slow_callbacks += 1
        logger.warning(
            "%s: %s held up the whole node for %.0f ms; make it shorter, or `async def` with checkpoints",
            label,
            callback,
            took_s * 1000,
        )

    async def run(self) -> None:
        """Give turns, for ever. The system runs this in its own task."""
        while True:
            if not self._ready:
                self._parked = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)
            self._run_slice()
            if self._ready:
                await trio.lowlevel.checkpoint()

    def _run_slice(self) -> None:
        ready = self._ready
        left = SLICE_MESSAGES
        slice_end_s = self.clock_s() + SLICE_S
        while ready and left > 0:
            handled, now_s = ready.popleft().take_turn(TURN_MESSAGES, slice_end_s)
            left -= handled
            if now_s >= slice_end_s:
                break
        self.handled += SLICE_MESSAGES - left

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._parked = None
        return trio.lowlevel.Abort.SUCCEEDED
