"""From samples to figures, ratios and verdicts. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from batonpass.scenarios.bench.rows import Reference, RowDemand, RowUnit
from batonpass.scenarios.report.statistics import percentile

__all__ = ["VERDICT_STYLES", "DemandVerdict", "Spread", "judge", "judge_all", "judge_limit", "spread_of"]


class DemandVerdict(StrEnum):
    """What became of a demand."""

    MET = "met"
    MISSED = "missed"
    NOT_JUDGED = "not judged"
    """What it compares with was not measured, or the machine was not quiet."""


VERDICT_STYLES = {DemandVerdict.MET: "green", DemandVerdict.MISSED: "bold red", DemandVerdict.NOT_JUDGED: "dim"}
"""How a table shows them."""


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of the rounds."""

    median: float
    min: float
    max: float
    rounds: int


def spread_of(values: Sequence[float]) -> Spread | None:
    """The spread of the rounds' figures; None if there are none. Raises ValueError on NaN."""
    if not values:
        return None
    return Spread(percentile(values, 50), min(values), max(values), len(values))


def judge(demand: RowDemand, unit: RowUnit, ours: float | None, etcd: float | None, *, quiet: bool) -> DemandVerdict:
    """Whether a demand is met by these two medians."""
    reference = etcd if demand.reference is Reference.ETCD else 1.0
    if ours is None or reference is None or (demand.quiet_only and not quiet):
        return DemandVerdict.NOT_JUDGED
    return judge_limit(demand.limit * reference, unit, ours)


def judge_limit(limit: float, unit: RowUnit, ours: float) -> DemandVerdict:
    """Whether a figure keeps to a limit in its own unit."""
    met = ours <= limit if unit.lower_is_better else ours >= limit
    return DemandVerdict.MET if met else DemandVerdict.MISSED


def judge_all(verdicts: Sequence[DemandVerdict]) -> DemandVerdict | None:
    """The verdict on a row: missed if one is missed, met if all that were judged are; None without demands."""
    if not verdicts:
        return None
    if DemandVerdict.MISSED in verdicts:
        return DemandVerdict.MISSED
    return DemandVerdict.MET if DemandVerdict.MET in verdicts else DemandVerdict.NOT_JUDGED
