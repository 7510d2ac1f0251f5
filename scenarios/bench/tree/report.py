"""The report of a run: what `--json` writes, and what the table shows. Pure."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from batonpass.scenarios.bench.judgement import DemandVerdict, judge, judge_all, spread_of
from batonpass.scenarios.bench.machine import MachineFacts
from batonpass.scenarios.bench.rows import Reference, RowDemand, RowSpec, RowUnit
from batonpass.scenarios.bench.workloads import Sample

__all__ = ["BenchReport", "DemandResult", "Figures", "RowResult", "row_result"]

SCHEMA_VERSION = 1


class _FrozenReport(BaseModel):
    model_config = ConfigDict(frozen=True)


class Figures(_FrozenReport):
    """What was measured of one subject in one row: the rounds' figures, and, for workloads, more about them.

    `rounds` are in the unit of the row, in the order in which they were measured.
    """

    median: float
    min: float
    max: float
    rounds: tuple[float, ...]
    p50_ms: float | None = None
    p99_ms: float | None = None
    per_second: float | None = None
    leader_cpu_us_per_command: float | None = None
    follower_cpu_us_per_command: float | None = None
    client_cpu_us_per_command: float | None = None


class DemandResult(_FrozenReport):
    """A demand, in words, and what became of it."""

    text: str
    verdict: DemandVerdict


class RowResult(_FrozenReport):
    """One row of the table. `ratio` is ours divided by etcd's, medians of the same run."""

    name: str
    title: str
    unit: RowUnit
    lower_is_better: bool
    batonpass: Figures | None
    etcd: Figures | None
    ratio: float | None
    khepri_measured_elsewhere: float | None
    demands: tuple[DemandResult, ...]
    verdict: DemandVerdict | None


class BenchReport(_FrozenReport):
    """A whole run."""

    schema_version: int = SCHEMA_VERSION
    machine: MachineFacts
    rounds: int
    seconds_per_sample: float
    quiet: bool
    rows: tuple[RowResult, ...]

    @property
    def passed(self) -> bool:
        """Whether no demand was missed."""
        return all(row.verdict is not DemandVerdict.MISSED for row in self.rows)


def row_result(spec: RowSpec, measured: Mapping[str, Sequence[Sample | float]], *, quiet: bool) -> RowResult:
    """A row from what was measured of each subject: samples of workloads, or milliseconds of outages."""
    ours, etcd = (_figures(spec.unit, measured.get(name, ())) for name in ("batonpass", "etcd"))
    medians = (None if ours is None else ours.median, None if etcd is None else etcd.median)
    demands = tuple(
        DemandResult(text=_text(demand, spec.unit), verdict=judge(demand, spec.unit, *medians, quiet=quiet))
        for demand in spec.demands
    )
    return RowResult(
        name=spec.name,
        title=spec.title,
        unit=spec.unit,
        lower_is_better=spec.unit.lower_is_better,
        batonpass=ours,
        etcd=etcd,
        ratio=ours.median / etcd.median if ours and etcd else None,
        khepri_measured_elsewhere=spec.khepri,
        demands=demands,
        verdict=judge_all([demand.verdict for demand in demands]),
    )


def _figures(unit: RowUnit, measured: Sequence[Sample | float]) -> Figures | None:
    rounds = [_figure_of(unit, one) if isinstance(one, Sample) else one for one in measured]
    spread = spread_of(rounds)
    if spread is None:
        return None
    samples = [one for one in measured if isinstance(one, Sample)]
    return Figures(
        median=spread.median,
        min=spread.min,
        max=spread.max,
        rounds=tuple(rounds),
        p50_ms=_median([sample.p50_ms for sample in samples]),
        p99_ms=_median([sample.p99_ms for sample in samples]),
        per_second=_median([sample.per_second for sample in samples]),
        leader_cpu_us_per_command=_median([sample.leader_cpu_us for sample in samples]),
        follower_cpu_us_per_command=_median([sample.follower_cpu_us for sample in samples]),
        client_cpu_us_per_command=_median([sample.client_cpu_us for sample in samples]),
    )


def _figure_of(unit: RowUnit, sample: Sample) -> float:
    if unit is RowUnit.PER_SECOND:
        return sample.per_second
    if sample.p50_ms is None:
        raise ValueError("a row shows the latency of a workload whose operations are not timed one by one")
    return sample.p50_ms


def _median(values: Sequence[float | None]) -> float | None:
    spread = spread_of([value for value in values if value is not None])
    return None if spread is None else spread.median


def _text(demand: RowDemand, unit: RowUnit) -> str:
    sign = "<=" if unit.lower_is_better else ">="
    if demand.reference is Reference.ETCD:
        return f"{sign} {demand.limit:g}x etcd"
    suffix = "" if unit is RowUnit.PER_SECOND else unit if unit is RowUnit.TIMES else f" {unit}"
    return f"{sign} {demand.limit:,g}{suffix}{' if quiet' if demand.quiet_only else ''}"
