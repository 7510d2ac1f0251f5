"""A comparison of several subjects in one run: rows of figures, the ratios between them, and what is demanded. Pure.

The first subject of every row is batonpass; a ratio is ours divided by theirs, medians of the same run. (The tree's
benchmark has a report of its own, with one peer and more about each sample.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from batonpass.scenarios.bench.judgement import DemandVerdict, judge_all, judge_limit, spread_of
from batonpass.scenarios.bench.machine import HostFacts
from batonpass.scenarios.bench.rows import RowUnit

__all__ = ["OURS", "ComparedRow", "Comparison", "ComparisonRow", "Figure", "Limit", "LimitResult", "compare"]

OURS = "batonpass"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Limit:
    """At most, or at least, `times` the figure of the subject `than`; without one, `times` is the figure itself."""

    times: float
    than: str | None = None


@dataclass(frozen=True)
class ComparisonRow:
    """One row. `subjects` are those that can do this work, ours not named; `note` explains what is compared.

    One that takes long is measured in the first `rounds` only.
    """

    name: str
    title: str
    unit: RowUnit
    subjects: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    note: str = ""
    rounds: int | None = None


class _FrozenComparison(BaseModel):
    model_config = ConfigDict(frozen=True)


class Figure(_FrozenComparison):
    """What was measured of one subject in one row. `ratio` is ours divided by this; None for ourselves and for 0."""

    median: float
    min: float
    max: float
    rounds: tuple[float, ...]
    ratio: float | None


class LimitResult(_FrozenComparison):
    """A demand, in words, and what became of it."""

    text: str
    verdict: DemandVerdict


class ComparedRow(_FrozenComparison):
    """One row of the report. Subjects that could not be measured are missing from `figures`."""

    name: str
    title: str
    unit: RowUnit
    lower_is_better: bool
    figures: dict[str, Figure]
    limits: tuple[LimitResult, ...]
    verdict: DemandVerdict | None
    note: str


class Comparison(_FrozenComparison):
    """A whole run: `--json` writes this."""

    schema_version: int = SCHEMA_VERSION
    title: str
    host: HostFacts
    rounds: int
    quiet: bool
    peers: dict[str, str]
    """Names and versions of the others, as they say themselves."""
    not_measured: dict[str, str]
    """Why a subject is missing."""
    remarks: tuple[str, ...] = ()
    """What this machine lacks, where figures depend on it."""
    rows: tuple[ComparedRow, ...]

    @property
    def passed(self) -> bool:
        """Whether no demand was missed."""
        return all(row.verdict is not DemandVerdict.MISSED for row in self.rows)


def compare(row: ComparisonRow, measured: Mapping[str, Sequence[float]]) -> ComparedRow:
    """A row of the report from the rounds' figures of each subject, in the unit of the row."""
    spreads = {name: spread for name in (OURS, *row.subjects) if (spread := spread_of(measured.get(name, ())))}
    ours = spreads.get(OURS)
    figures = {
        name: Figure(
            median=spread.median,
            min=spread.min,
            max=spread.max,
            rounds=tuple(measured[name]),
            ratio=None if name == OURS or ours is None or not spread.median else ours.median / spread.median,
        )
        for name, spread in spreads.items()
    }
    limits = tuple(
        LimitResult(text=_text(limit, row.unit), verdict=_judge(limit, row.unit, figures)) for limit in row.limits
    )
    return ComparedRow(
        name=row.name,
        title=row.title,
        unit=row.unit,
        lower_is_better=row.unit.lower_is_better,
        figures=figures,
        limits=limits,
        verdict=judge_all([limit.verdict for limit in limits]),
        note=row.note,
    )


def _judge(limit: Limit, unit: RowUnit, figures: Mapping[str, Figure]) -> DemandVerdict:
    ours = figures.get(OURS)
    reference = 1.0 if limit.than is None else figures[limit.than].median if limit.than in figures else None
    if ours is None or reference is None:
        return DemandVerdict.NOT_JUDGED
    return judge_limit(limit.times * reference, unit, ours.median)


def _text(limit: Limit, unit: RowUnit) -> str:
    sign = "<=" if unit.lower_is_better else ">="
    if limit.than is not None:
        return f"{sign} {limit.times:g}x {limit.than}"
    suffix = "" if unit is RowUnit.PER_SECOND else unit if unit is RowUnit.TIMES else f" {unit}"
    return f"{sign} {limit.times:,.10g}{suffix}"
