"""The page and its charts, without a browser: structure, escaping, and what each chart shows."""

import re
from xml.etree.ElementTree import Element

import pytest

from batonpass.scenarios.report import charts, timeline
from batonpass.scenarios.report.charts import MEDIAN_COLOUR
from batonpass.scenarios.report.html import cases_page
from batonpass.scenarios.report.model import (
    CaseResult,
    HopRange,
    Percentiles,
    ReportedHop,
    ReportedMark,
    SampleTransfer,
)
from batonpass.scenarios.report.svg import KIND_COLOURS
from tests.scenarios.factories import make_case, make_report, make_sample
from tests.scenarios.report.drawn import drawn, edges_percent, words

CASES = make_report().cases
NOTHING = make_case(
    "2", None, transfers=0, latency_ms=Percentiles(), measured_hops=HopRange(), sample=None, latencies_ms=()
)


LARGEST_PAGE_BYTES = 1_000_000


def body(page: str) -> str:
    """The page without styles: what a reader reads."""
    return re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def blocks(chart: Element) -> list[Element]:
    return [rect for rect in chart.iter("rect") if rect.get("class") == "block"]


@pytest.mark.parametrize("case", [*CASES, NOTHING, make_case("3", None, latencies_ms=())])
def test_the_charts_of_every_case_name_what_they_measure(case: CaseResult) -> None:
    assert words(drawn(charts.latency_distribution(case)), "axis")[-1] == "latency of a transfer (ms)"
    if case.sample is not None:
        (title,) = words(drawn(timeline.sequence_diagram(case.sample)), "axis")
        assert re.search(r"\((ms|µs)\)", title)


@pytest.mark.parametrize("cases", [CASES, (NOTHING,), ()])
def test_the_charts_over_all_cases_name_what_they_measure_also_when_there_are_none(
    cases: tuple[CaseResult, ...],
) -> None:
    assert words(drawn(charts.hops_by_kind(cases)), "axis") == ["messages per transfer"]
    assert words(drawn(charts.phases(cases)), "axis") == ["median time in the phase (ms)"]


def test_the_bars_of_a_histogram_have_every_transfer_once() -> None:
    for case in CASES:
        chart = drawn(charts.latency_distribution(case))
        counts = [int((block.findtext("title") or "").split()[-2]) for block in blocks(chart)]
        assert sum(counts) == case.transfers
        assert [text.split()[0] for text in words(chart, "label")] == ["p50", "p95", "p99"]
        assert all(0 <= edge <= 100 for block in blocks(chart) for edge in edges_percent(block))


def test_percentiles_without_latencies_are_dots() -> None:
    chart = drawn(charts.latency_distribution(make_case("3", None, latencies_ms=())))
    assert len(list(chart.iter("circle"))) == 4
    assert [text.split()[0] for text in words(chart, "label")] == ["p50", "p95", "p99", "max"]


def test_on_path_bars_end_at_the_expected_hops_and_off_path_ones_are_hatched() -> None:
    chart = drawn(charts.hops_by_kind(CASES))
    bars = blocks(chart)
    assert len(bars) == sum(len(case.hops_per_transfer_by_kind()) + len(case.off_path) for case in CASES)
    solid = [bar for bar in bars if bar.get("fill") in KIND_COLOURS]
    assert [bar.get("fill", "")[:9] for bar in bars if bar not in solid] == ["url(#hatc"] * sum(
        len(case.off_path) for case in CASES
    )
    ends: dict[float, float] = {}
    for bar in solid:
        _, right, top, _ = edges_percent(bar)
        ends[top] = right
    strokes = [line for line in chart.iter("line") if line.get("stroke") == MEDIAN_COLOUR]
    expected = [float(line.get("x1", "").rstrip("%")) for line in strokes]
    assert [ends[top] for top in sorted(ends)] == pytest.approx(expected, abs=0.02)


def test_cases_of_the_same_name_keep_bars_of_their_own() -> None:
    twice = (make_case("3", None), make_case("3", None), make_case("3", None, mode="staged"))
    chart = drawn(charts.phases(twice))
    assert words(chart, "row") == ["Case 3, link, eager (1)", "Case 3, link, eager (2)", "Case 3, link, staged"]


def test_lifelines_run_along_the_path_from_the_old_authority_to_the_new() -> None:
    assert timeline.lifelines(make_sample("1", 2)) == ("alpha.s1", "alpha.h1", "relay.r1", "beta.h1", "beta.s1")


def test_time_starts_at_the_first_moment_and_short_transfers_are_in_microseconds() -> None:
    def one_hop(duration_ns: int) -> SampleTransfer:
        hop = ReportedHop(
            number=1, kind="k", src="a", dst="b", sent_ns=500, received_ns=500 + duration_ns, on_path=True
        )
        return SampleTransfer(
            transfer_id="t", hops=(hop,), marks=(ReportedMark(server="a", label="frozen", at_ns=400),)
        )

    short, long = timeline.time_axis(one_hop(1_500_000)), timeline.time_axis(one_hop(2_500_000))
    assert (short.unit, short.at(400), short.at(2_400)) == ("µs", 0, 2)
    assert (long.unit, long.at(400), long.at(1_000_400)) == ("ms", 0, 1)


def test_a_sample_without_any_moment_still_draws() -> None:
    empty = SampleTransfer(transfer_id="t", hops=())
    assert timeline.describe_sample(empty) == "Transfer t: no hop on its path."
    assert words(drawn(timeline.sequence_diagram(empty)), "row") == []


def test_the_band_of_nobody_simulating_runs_from_frozen_to_activated() -> None:
    sample = make_sample("3", None)
    chart = drawn(timeline.sequence_diagram(sample))
    dots = {dot.findtext("title", "none").split()[0]: dot for dot in chart.iter("circle")}
    at = {label: float(dot.get("cx", "").rstrip("%")) for label, dot in dots.items()}
    (band,) = blocks(chart)
    assert edges_percent(band)[:2] == pytest.approx((at["frozen"], at["activated"]), abs=0.02)


def test_labels_of_close_marks_on_one_lifeline_stand_on_different_sides() -> None:
    marks = (
        ReportedMark(server="a", label="frozen", at_ns=0),
        ReportedMark(server="a", label="committed", at_ns=990_000),
        ReportedMark(server="a", label="retired", at_ns=1_000_000),
    )
    hop = ReportedHop(number=1, kind="k", src="a", dst="b", sent_ns=0, received_ns=10, on_path=True)
    chart = drawn(timeline.sequence_diagram(SampleTransfer(transfer_id="t", hops=(hop,), marks=marks)))
    places = {text.text: int(text.get("dy", "")) < 0 for text in chart.iter("text") if text.get("class") == "label"}
    assert (places["committed"], places["retired"]) == (True, False)


def test_the_page_loads_nothing_and_forbids_itself_to() -> None:
    page = cases_page(make_report())
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert not re.search(r"<(script|img|link|iframe)[^>]+(src|href)=[\"'](?!data:)", page)
    assert "<script" not in page
    assert "script-src" not in page


def test_the_page_says_what_a_hop_is_and_whether_the_run_passed() -> None:
    passed = body(cases_page(make_report()))
    assert "A hop is one message that crosses from one server process to another" in passed
    assert "<title>Passed" in passed
    failed = body(cases_page(make_report(cases=(make_case("1", 1, measured_hops=HopRange(min=5, max=6)),))))
    assert "Failed: 1 problem" in failed
    assert "3 + 2H expects 5 hops, measured 5–6" in failed


def test_a_page_can_be_made_of_a_run_in_which_nothing_worked() -> None:
    assert "No transfer of this case was recorded" in body(cases_page(make_report(cases=(NOTHING,))))


def test_names_from_the_run_cannot_become_markup_or_script() -> None:
    evil = "</script><script>alert(1)</script><b>"
    hop = ReportedHop(number=1, kind=evil, src=evil, dst="b", sent_ns=1, received_ns=2, on_path=True)
    case = make_case("3", None, sample=SampleTransfer(transfer_id=evil, hops=(hop,)), off_path={evil: 1.0})
    page = cases_page(make_report(cases=(case,), versions={evil: evil}, machine={evil: evil}))
    assert "<script>alert" not in page
    assert "<b>" not in body(page)
    assert words(drawn(timeline.sequence_diagram(case.sample or make_sample())), "row")[0] == evil


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb as WCAG 2.2 defines it."""
    parts = [int(colour[position : position + 2], 16) / 255 for position in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#ffffff", "#1a2029"])
def test_every_colour_of_the_charts_stands_out_from_the_light_and_the_dark_page(background: str) -> None:
    assert f"--card: {background}" in cases_page(make_report(cases=()))
    marks = timeline.MARK_COLOURS.values()
    for colour in (*KIND_COLOURS, charts.ON_PATH_COLOUR, charts.OFF_PATH_COLOUR, charts.MEDIAN_COLOUR, *marks):
        lighter, darker = sorted((luminance(colour), luminance(background)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3, colour


def test_a_page_is_small() -> None:
    largest = make_report(cases=tuple(make_case("1", 3, transfers=2_000) for _ in range(12)))
    assert len(cases_page(largest).encode()) < LARGEST_PAGE_BYTES
