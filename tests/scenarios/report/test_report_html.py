"""The page and its figures, without a browser: structure, escaping, and that plotly accepts every figure."""

import base64
import gzip
import re

import plotly.graph_objects as go
import pytest

from batonpass.scenarios.report import charts, timeline
from batonpass.scenarios.report.html import cases_page
from batonpass.scenarios.report.model import (
    CaseResult,
    HopRange,
    Percentiles,
    ReportedHop,
    ReportedMark,
    SampleTransfer,
)
from tests.scenarios.factories import make_case, make_report, make_sample

CASES = make_report().cases
NOTHING = make_case(
    "2", None, transfers=0, latency_ms=Percentiles(), measured_hops=HopRange(), sample=None, latencies_ms=()
)


def body(page: str) -> str:
    """The page without plotly.js, the inline styles and the figures: what a reader reads."""
    return re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("case", [*CASES, NOTHING, make_case("3", None, latencies_ms=())])
def test_plotly_accepts_the_figures_of_every_case(case: CaseResult) -> None:
    go.Figure(charts.latency_distribution(case)).to_json()
    if case.sample is not None:
        go.Figure(timeline.sequence_diagram(case.sample)).to_json()


def test_plotly_accepts_the_figures_over_all_cases_also_when_there_are_none() -> None:
    for cases in (CASES, (NOTHING,), ()):
        go.Figure(charts.hops_by_kind(cases)).to_json()
        go.Figure(charts.phases(cases)).to_json()


def test_every_axis_that_shows_a_quantity_names_its_unit() -> None:
    for case in CASES:
        assert "(ms)" in charts.latency_distribution(case)["layout"]["xaxis"]["title"]["text"]
        assert case.sample is not None
        assert re.search(r"\((ms|µs)\)", timeline.sequence_diagram(case.sample)["layout"]["xaxis"]["title"]["text"])
    assert "(ms)" in charts.phases(CASES)["layout"]["xaxis"]["title"]["text"]
    assert "messages per transfer" in charts.hops_by_kind(CASES)["layout"]["xaxis"]["title"]["text"]


def test_on_path_bars_add_up_to_the_measured_hops_and_off_path_ones_are_hatched() -> None:
    figure = charts.hops_by_kind(CASES)
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    for position, case in enumerate(CASES):
        on_path = [bar["x"][2 * position] for bar in bars if bar["legendgroup"] == "on"]
        assert sum(count or 0 for count in on_path) == case.expected_hops
    assert all(bar["marker"]["pattern"] for bar in bars if bar["legendgroup"] == "off")


def test_cases_of_the_same_name_keep_bars_of_their_own() -> None:
    twice = (make_case("3", None), make_case("3", None), make_case("3", None, mode="staged"))
    titles = charts.phases(twice)["data"][0]["y"]
    assert titles == ["Case 3, link, eager (1)", "Case 3, link, eager (2)", "Case 3, link, staged"]


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
    go.Figure(timeline.sequence_diagram(empty)).to_json()


def test_the_band_of_nobody_simulating_runs_from_frozen_to_activated() -> None:
    sample = make_sample("3", None)
    axis = timeline.time_axis(sample)
    at = {mark.label: axis.at(mark.at_ns) for mark in sample.marks}
    (band,) = timeline.sequence_diagram(sample)["layout"]["shapes"]
    assert (band["x0"], band["x1"]) == (at["frozen"], at["activated"])


def test_labels_of_close_marks_on_one_lifeline_stand_on_different_sides() -> None:
    marks = (
        ReportedMark(server="a", label="frozen", at_ns=0),
        ReportedMark(server="a", label="committed", at_ns=990_000),
        ReportedMark(server="a", label="retired", at_ns=1_000_000),
    )
    hop = ReportedHop(number=1, kind="k", src="a", dst="b", sent_ns=0, received_ns=10, on_path=True)
    traces = timeline.sequence_diagram(SampleTransfer(transfer_id="t", hops=(hop,), marks=marks))["data"]
    places = {
        trace["name"]: trace["textposition"][0] for trace in traces if trace.get("name") in ("committed", "retired")
    }
    assert places == {"committed": "top center", "retired": "bottom center"}


def test_the_page_loads_nothing_and_forbids_itself_to() -> None:
    page = cases_page(make_report())
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert not re.search(r"<(script|img|link|iframe)[^>]+(src|href)=[\"'](?!data:)", page)


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
    # Plotly reads HTML in labels: there the brackets are entities.
    labels = timeline.sequence_diagram(case.sample or make_sample())["layout"]["yaxis"]["ticktext"]
    assert labels[0] == "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;b&gt;"


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb as WCAG 2.2 defines it."""
    parts = [int(colour[position : position + 2], 16) / 255 for position in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#ffffff", "#1a2029"])
def test_every_colour_of_the_charts_stands_out_from_the_light_and_the_dark_page(background: str) -> None:
    assert f"--card: {background}" in cases_page(make_report(cases=()))
    marks = [colour for _, colour in timeline._MARK_SYMBOLS.values()]
    for colour in (*charts.KIND_COLOURS, charts.ON_PATH_COLOUR, charts.OFF_PATH_COLOUR, charts.MEDIAN_COLOUR, *marks):
        lighter, darker = sorted((luminance(colour), luminance(background)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3, colour


def test_a_page_has_plotly_packed() -> None:
    page = cases_page(make_report())
    (packed,) = re.findall(r'<script id="plotly" type="text/plain">([A-Za-z0-9+/=]+)</script>', page)
    source = gzip.decompress(base64.b64decode(packed))
    assert b"plotly.js v" in source[:100]
    assert len(page) < len(source) / 2
