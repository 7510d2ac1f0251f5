"""How fast a campaign goes: what it has done per second of wall time, and how long it takes to its end."""

from collections.abc import Callable
from time import monotonic
from typing import Final

from batonpass.scenarios.simulation.kernel.campaign import Campaign, MixResult

__all__ = ["Pace"]

SAY_EVERY_S: Final = 60.0
"""Between two lines where there is no terminal, but a file."""


class Pace:
    """Counts runs, and the figure of them that their kind counts, since it was made.

    The estimate takes runs to come in evenly: a campaign runs each seed of every mix before the next seed.
    """

    def __init__(self, campaign: Campaign, clock: Callable[[], float] = monotonic) -> None:
        self.total: Final = campaign.seeds * len(campaign.mixes)
        self.counted: Final = campaign.kind.counted
        self.title: Final = campaign.kind.title
        self._workers: Final = campaign.shares
        self._clock: Final = clock
        self._began_s: Final = clock()
        self._said_s = self._began_s

    def is_due(self) -> bool:
        """Whether it is time for another line: this asks once."""
        is_due = self._clock() - self._said_s >= SAY_EVERY_S
        if is_due:
            self._said_s = self._clock()
        return is_due

    def line(self, results: dict[str, MixResult]) -> str:
        """How far it is, how fast, and how long it still takes."""
        runs, passed_s = self._runs(results), self._passed_s()
        left_s = passed_s / runs * (self.total - runs) if runs else 0.0
        return f"{runs:,} of {self.total:,} runs, {self.rate(results):,.0f} {self.title}/s, {_minutes(left_s)} left"

    def summary(self, results: dict[str, MixResult]) -> str:
        """What was done, and how fast, in the end."""
        runs, passed_s = self._runs(results), self._passed_s()
        rate = f"{self.rate(results):,.0f} {self.title} per second of wall time"
        return f"{runs:,} runs in {_minutes(passed_s)} with {self._workers} workers, {rate}"

    def rate(self, results: dict[str, MixResult]) -> float:
        """The figure per second of wall time, of all workers together."""
        return sum(one.figures.get(self.counted, 0) for one in results.values()) / max(self._passed_s(), 1e-9)

    def _runs(self, results: dict[str, MixResult]) -> int:
        return sum(one.runs for one in results.values())

    def _passed_s(self) -> float:
        return self._clock() - self._began_s


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
