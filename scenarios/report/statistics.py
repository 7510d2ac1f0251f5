"""Percentiles and summaries. Pure arithmetic: values in, values out.

Percentiles here are *nearest-rank*: the smallest measured value such that at least p percent of all values are not
greater than it. Such a percentile is always a value that was really measured, never one between two measurements,
and p100 is the maximum. (Linear interpolation would invent a p99 for ten samples; nearest-rank says the maximum.)
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from batonpass.scenarios.report.model import HopRange, Percentiles, PhaseMedians, TickGap


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile of `values`, which need not be sorted.

    Raises ValueError when there are no values, when one of them is NaN, or when `percent` is not from 1 to 100.
    """
    return _percentile_of_sorted(_sorted_without_nan(values), percent)


def summarise(values: Sequence[float]) -> Percentiles:
    """p50, p95, p99 and maximum of `values`; all None when there are none. Raises ValueError on NaN."""
    if not values:
        return Percentiles()
    ordered = _sorted_without_nan(values)
    return Percentiles(
        p50=_percentile_of_sorted(ordered, 50),
        p95=_percentile_of_sorted(ordered, 95),
        p99=_percentile_of_sorted(ordered, 99),
        max=ordered[-1],
    )


def median(values: Sequence[float]) -> float | None:
    """The nearest-rank median, or None when there are no values. Raises ValueError on NaN."""
    return percentile(values, 50) if values else None


def hop_range(hops: Sequence[int]) -> HopRange:
    """Fewest and most hops of the transfers given."""
    return HopRange(min=min(hops), max=max(hops)) if hops else HopRange()


def tick_gap(gaps_ticks: Sequence[int]) -> TickGap:
    """Median and largest gap of the transfers given, in ticks."""
    return TickGap(p50=median(gaps_ticks), max=max(gaps_ticks)) if gaps_ticks else TickGap()


def phase_medians(transfers: Iterable[Mapping[str, float]]) -> PhaseMedians:
    """Median milliseconds of each phase over transfers that each give `{phase: milliseconds}`.

    Phases that no transfer had stay None. Raises ValueError for a phase that the design does not know.
    """
    by_phase: dict[str, list[float]] = {name: [] for name in PhaseMedians.model_fields}
    for phases_ms in transfers:
        for phase, duration_ms in phases_ms.items():
            if phase not in by_phase:
                raise ValueError(f"unknown phase {phase!r}: the phases are {', '.join(by_phase)}")
            by_phase[phase].append(duration_ms)
    return PhaseMedians(**{phase: median(durations_ms) for phase, durations_ms in by_phase.items()})


def messages_per_transfer(transfers: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Mean number of messages of each kind over transfers that each give `{kind: messages}`, sorted by kind."""
    totals: dict[str, int] = {}
    for kinds in transfers:
        for kind, messages in kinds.items():
            totals[kind] = totals.get(kind, 0) + messages
    return {kind: totals[kind] / len(transfers) for kind in sorted(totals)}


def _sorted_without_nan(values: Sequence[float]) -> list[float]:
    for value in values:
        if math.isnan(value):
            raise ValueError("a percentile of NaN has no meaning: drop the measurement or find its cause")
    return sorted(values)


def _percentile_of_sorted(ordered: Sequence[float], percent: int) -> float:
    if not ordered:
        raise ValueError("a percentile of no values has no meaning")
    if not 1 <= percent <= 100:
        raise ValueError(f"percent must be from 1 to 100, not {percent}")
    # Whole percents keep the rank exact: 0.07 * 100 is 7.000000000000001 in binary floating point.
    rank = (percent * len(ordered) + 99) // 100
    return ordered[rank - 1]
