"""How thousands of callers wait for their answers, each until its own deadline, at the price of a switch of tasks.

A cancel scope and an `Event` for each would cost three times as much; `tree.member.deadlines` wakes those whose time is
over.
"""

from functools import partial
from typing import Any, Final

import trio

from batonpass.tree.member.deadlines import WakeTimes
from batonpass.tree.raft.submissions import Submission

__all__ = ["MAX_TIMEOUT_S", "answered_by", "bounded_s", "taken_by"]

MAX_TIMEOUT_S: Final = 30 * 86_400.0


def bounded_s(timeout_s: float) -> float:
    """A time that deadlines can be kept for: a month is for ever. Raises `ValueError` for what is not a number."""
    if timeout_s != timeout_s:  # noqa: PLR0124  # only NaN is not equal to itself
        raise ValueError("timeout_s is not a number; use seconds, or math.inf to wait for ever")
    return min(timeout_s, MAX_TIMEOUT_S)


async def taken_by(slots: trio.Semaphore, deadline_s: float) -> bool:
    """Take one of a bounded number of places; False if none became free in time."""
    try:
        slots.acquire_nowait()
    except trio.WouldBlock:
        with trio.move_on_at(deadline_s):
            await slots.acquire()
            return True
        return False
    return True


async def answered_by(submission: Submission, deadlines: WakeTimes, deadline_s: float) -> None:
    """Wait for an answer until the time is over, or the submission is given up."""
    if submission.answer is not None:
        await trio.lowlevel.checkpoint()
        return
    wake = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
    step = deadlines.add(submission, wake, deadline_s)

    def abort(_: Any) -> trio.lowlevel.Abort:
        submission.waiting.remove(wake)
        return trio.lowlevel.Abort.SUCCEEDED

    submission.waiting.append(wake)
    try:
        await trio.lowlevel.wait_task_rescheduled(abort)
    finally:
        deadlines.remove(submission, wake, step)
