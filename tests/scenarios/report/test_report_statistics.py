"""Percentiles are nearest-rank: always a measured value, checked against a twin that counts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.report.model import HopRange, Percentiles, PhaseMedians, TickGap
from batonpass.scenarios.report.statistics import (
    hop_range,
    median,
    messages_per_transfer,
    percentile,
    phase_medians,
    summarise,
    tick_gap,
)

VALUES = st.lists(st.floats(min_value=0, max_value=1e9), min_size=1, max_size=200)


def percentile_by_counting(values: list[float], percent: int) -> float:
    """The definition, word for word: the smallest value such that percent of all values are not greater."""
    return min(v for v in values if sum(w <= v for w in values) * 100 >= percent * len(values))


@given(VALUES, st.integers(1, 100))
def test_percentile_is_the_smallest_value_that_enough_values_do_not_exceed(values: list[float], percent: int) -> None:
    assert percentile(values, percent) == percentile_by_counting(values, percent)


@given(VALUES)
def test_the_summary_rises_from_median_to_maximum_and_holds_measured_values_only(values: list[float]) -> None:
    found = summarise(values)
    assert found.p50 is not None
    assert found.p95 is not None
    assert found.p99 is not None
    assert found.max == max(values)
    assert found.p50 <= found.p95 <= found.p99 <= found.max
    assert {found.p50, found.p95, found.p99, found.max} <= set(values)


@given(VALUES.flatmap(lambda values: st.tuples(st.just(values), st.permutations(values))))
def test_the_order_of_measurements_does_not_matter(both: tuple[list[float], list[float]]) -> None:
    values, shuffled = both
    assert summarise(shuffled) == summarise(values)


def test_the_p99_of_ten_samples_is_the_largest_of_them() -> None:
    assert percentile([float(n) for n in range(1, 11)], 99) == 10
    assert percentile([float(n) for n in range(1, 101)], 99) == 99


def test_nothing_measured_gives_nothing() -> None:
    assert summarise([]) == Percentiles()
    assert median([]) is None
    assert hop_range([]) == HopRange()
    assert tick_gap([]) == TickGap()
    assert phase_medians([]) == PhaseMedians()
    assert messages_per_transfer([]) == {}


@pytest.mark.parametrize("percent", [0, 101, -5])
def test_a_percentile_outside_one_to_a_hundred_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match=str(percent)):
        percentile([1.0], percent)


def test_nan_and_emptiness_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        summarise([1.0, math.nan])
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_hops_gaps_and_phases_are_summarised_per_case() -> None:
    assert hop_range([5, 7, 5]) == HopRange(min=5, max=7)
    assert tick_gap([0, 3, 1]) == TickGap(p50=1, max=3)
    assert phase_medians([{"request": 1.0, "commit": 4.0}, {"request": 3.0}, {"request": 2.0}]) == PhaseMedians(
        request=2.0, commit=4.0
    )


def test_a_phase_the_design_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match=r"'teleport'.*request, rule"):
        phase_medians([{"teleport": 1.0}])


def test_messages_are_averaged_over_all_transfers_also_those_without_the_kind() -> None:
    assert messages_per_transfer([{"state": 3, "retire": 1}, {"state": 1}]) == {"retire": 0.5, "state": 2.0}
