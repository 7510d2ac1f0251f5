"""Axes and marks of charts, for every value."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.scenarios.report.svg import ChartAxis, ChartCloud, ChartDot, ChartLine, draw
from tests.budget import examples
from tests.scenarios.report.drawn import drawn, words

SIZES = st.floats(min_value=1e-6, max_value=1e9)


@settings(max_examples=examples(100))
@given(values=st.lists(SIZES, max_size=5))
def test_an_axis_from_zero_has_room_for_every_value_and_a_few_round_ticks(values: list[float]) -> None:
    axis = ChartAxis.from_zero("x", values)
    assert all(0 < axis.at(value) <= 100 for value in values)
    ticks = axis.ticks()
    assert 3 <= len(ticks) <= 7
    assert ticks[0] == 0
    assert all(0 <= axis.at(tick) <= 100 + 1e-9 for tick in ticks)
    step = ticks[1]
    assert step / 10 ** math.floor(math.log10(step) + 1e-9) == pytest.approx(
        round(step / 10 ** math.floor(math.log10(step) + 1e-9))
    )


@settings(max_examples=examples(50))
@given(low=SIZES, factor=st.floats(min_value=1.1, max_value=1e6))
def test_a_logarithmic_axis_has_its_ends_at_its_ends(low: float, factor: float) -> None:
    axis = ChartAxis("x", low, low * factor, is_log=True)
    assert (axis.at(low), axis.at(low * factor)) == pytest.approx((0, 100))
    assert all(low <= tick <= low * factor for tick in axis.ticks())


def test_the_first_row_is_at_the_top() -> None:
    rows = ChartAxis.of_rows(4)
    assert [rows.at(row) for row in (0, 1, 4)] == [100, 75, 0]


@settings(max_examples=examples(50))
@given(text=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    axis = ChartAxis("ms", 0, 1)
    chart = drawn(
        draw(axis, ChartAxis.of_rows(1), [ChartDot(0.5, 0.5, "red", label=text, says=text)], height_px=50, rows=[text])
    )
    assert (words(chart, "label"), words(chart, "row")) == ([text], [text])
    assert [title.text for title in chart.iter("title")] == [text]


def test_points_are_where_they_belong() -> None:
    axis = ChartAxis("", 0, 10)
    points = [(0, 0), (5, 10), (10, 5)]
    chart = drawn(draw(axis, axis, [ChartLine(points, "red"), ChartCloud(points, "blue")], height_px=50))
    assert [line.get("points") for line in chart.iter("polyline")] == ["0,1000 500,0 1000,500"]
    assert [path.get("d") for path in chart.iter("path")] == ["M0 1000h0 M500 0h0 M1000 500h0"]
