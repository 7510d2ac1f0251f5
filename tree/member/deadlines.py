"""Deadlines of thousands of short waits, nearly all of which end long before: kept in coarse steps. Pure."""

from typing import Final

from batonpass.tree.raft.submissions import Submission, Wake

__all__ = ["WakeTimes"]

# Looked at in steps of this size, so that keeping a deadline costs no more than an entry in a dictionary.
_STEP_S: Final = 0.02


class WakeTimes:
    """Who is to be woken when, in steps of 20 ms: cheap for the many who are answered long before."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[tuple[int, int], tuple[Submission, Wake]]] = {}
        self._done_up_to = 0

    def add(self, submission: Submission, wake: Wake, at_s: float) -> int:
        """Wake this caller at that time or one step later; returns what `remove` wants."""
        step = max(int(at_s / _STEP_S) + 1, self._done_up_to + 1)
        self._steps.setdefault(step, {})[(id(submission), id(wake))] = (submission, wake)
        return step

    def remove(self, submission: Submission, wake: Wake, step: int) -> None:
        """The caller waits no more."""
        callers = self._steps.get(step)
        if callers is not None:
            callers.pop((id(submission), id(wake)), None)
            if not callers:
                del self._steps[step]

    def next_s(self) -> float | None:
        """When `wake_due` has something to do at the earliest; None for never."""
        # A hair into the step, so that rounding cannot make it the one before.
        return (min(self._steps) + 0.01) * _STEP_S if self._steps else None

    def wake_due(self, now_s: float) -> None:
        """Wake those whose time is over."""
        now_step = int(now_s / _STEP_S)
        if now_step <= self._done_up_to:
            return
        self._done_up_to = now_step
        for step in sorted(step for step in self._steps if step <= now_step):
            for submission, wake in self._steps.pop(step).values():
                submission.wake_one(wake)
