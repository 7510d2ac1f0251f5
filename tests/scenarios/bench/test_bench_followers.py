"""`baton bench followers`: its arithmetic, its table, and one small show of real processes."""

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from batonpass.scenarios.bench.comparison import OURS, Comparison, compare
from batonpass.scenarios.bench.followers.command import command
from batonpass.scenarios.bench.followers.course import (
    FAN_OUT,
    FIGURES,
    TREE,
    UDP,
    ShowShape,
    course_of,
    shape_of,
    size_text,
)
from batonpass.scenarios.bench.followers.figures import FrameNote, NodeNotes, SampleWindow, show_figures
from batonpass.scenarios.bench.followers.table import render_followers
from batonpass.scenarios.bench.followers.workers import on_batonpass
from batonpass.scenarios.bench.followers.workers.processes import measure_show
from batonpass.scenarios.bench.machine import HostFacts

MS = 1_000_000
WINDOW = SampleWindow(begin_ns=100 * MS, end_ns=1_100 * MS, period_ns=10 * MS)
COURSE = course_of((1, FAN_OUT + 1), (1024,), 60)


def noted(frames: dict[int, float], peak_bytes: int = 0, used_ns: int = 2_000) -> NodeNotes:
    """A process that noted these frames at these milliseconds, and used so much of a processor for each number."""
    return NodeNotes(tuple(FrameNote(frame, int(ms * MS), frame * used_ns) for frame, ms in frames.items()), peak_bytes)


def test_a_frame_is_applied_when_its_last_follower_has_applied_it() -> None:
    figures = show_figures(WINDOW, noted({1: 100.0}), [noted({1: 103.0}), noted({1: 107.0}), noted({1: 101.0})])
    assert (figures["p50"], figures["p99"], figures["lost"], figures["late"]) == (7.0, 7.0, 0.0, 0.0)


def test_a_frame_that_one_follower_lacks_is_lost_and_one_after_a_period_is_late() -> None:
    sent, first, second = noted({1: 100, 2: 110, 3: 120}), noted({1: 111, 2: 112, 3: 121}), noted({1: 101, 3: 130})
    figures = show_figures(WINDOW, sent, [first, second])
    assert (figures["sent"], figures["frames"], figures["lost"], figures["late"]) == (3.0, 2.0, 1.0, 1.0)


def test_frames_count_that_were_sent_in_the_window_whenever_they_were_applied() -> None:
    sent = noted({1: 99.9, 2: 100, 3: 1_099.9, 4: 1_100})
    figures = show_figures(WINDOW, sent, [noted({1: 101, 2: 101, 3: 1_500, 4: 1_101})])
    assert figures["frames"] == 2.0
    assert figures["p99"] == pytest.approx(400.1)


def test_processor_time_is_that_between_two_notes_for_each_frame_that_was_sent_meanwhile() -> None:
    sent = noted({1: 100, 2: 110, 4: 120, 5: 130}, used_ns=3_000)
    figures = show_figures(WINDOW, sent, [noted({1: 101, 5: 131}), noted({2: 101, 4: 131}, used_ns=4_000)])
    assert figures["controller"] == 3 * 4 / 3
    assert figures["follower"] == (2 * 4 / 3 + 4 * 2 / 1) / 2


def test_figures_of_nothing_are_missing_and_memory_is_that_of_the_largest_follower() -> None:
    figures = show_figures(WINDOW, noted({1: 100}, 5_000_000), [noted({}, 7_000_000), noted({}, 9_000_000)])
    assert figures == {
        "sent": 1.0, "frames": 0.0, "late": 0.0, "lost": 1.0, "controller-memory": 5.0, "follower-memory": 9.0,
    }  # fmt: skip


@given(st.builds(ShowShape, *[st.integers(1, 2**26)] * 3, st.integers(0, 64)))
def test_what_is_said_of_a_show_is_read_as_the_same_show(shape: ShowShape) -> None:
    assert shape_of(str(shape)) == shape


def test_what_is_no_show_is_refused() -> None:
    with pytest.raises(ValueError, match="'1024x4' is no show: write BYTESxFOLLOWERS@RATE"):
        shape_of("1024x4")


def test_sizes_are_told_in_the_largest_whole_unit() -> None:
    assert [size_text(size) for size in (1000, 1024, 65536, 2**24)] == ["1000 bytes", "1 KiB", "64 KiB", "16 MiB"]


def test_every_row_is_a_figure_of_a_show_and_a_tree_is_measured_where_it_has_two_levels() -> None:
    assert len(COURSE.rows) == 2 * len(FIGURES)
    for row in COURSE.rows:
        shape = shape_of(row.name.partition(":")[0])
        assert row.subjects == ((UDP, TREE) if shape.followers > FAN_OUT else (UDP,))
        for subject in (OURS, *row.subjects):
            work, _, figure = COURSE.work[subject, row.name].partition(":")
            assert figure in FIGURES
            assert shape_of(work).fan_out == (FAN_OUT if subject == TREE else 0)


def test_the_table_has_a_line_for_each_show_and_subject_with_ratios_and_without_what_was_not_measured() -> None:
    measured = {OURS: [6.0], UDP: [3.0]}
    rows = [compare(row, measured if row.name.endswith(":p99") else {UDP: [0.0], OURS: [2.0]}) for row in COURSE.rows]
    host = HostFacts(cores=2, processor="", load_average_1m=9.0, kernel="", versions={})
    report = Comparison(title="", host=host, rounds=1, quiet=False, peers={}, not_measured={}, rows=tuple(rows))
    console = Console(width=220)
    with console.capture() as captured:
        console.print(render_followers(report))
    lines = [line for line in captured.get().splitlines() if "batonpass, straight" in line or "bare UDP" in line]
    assert ["straight" in line for line in lines] == [True, False, True, False], "ours first"
    assert "1 KiB to 1" in lines[0]
    assert "6.00" in lines[0]
    assert "3.00 (2x)" in lines[1]
    assert "0 " in lines[1], "what is none has no ratio"
    assert "load average 9.00" in captured.get()


def test_lists_are_read_and_what_is_out_of_range_is_refused() -> None:
    refused = CliRunner().invoke(command, ["--followers", "1,33"])
    assert refused.exit_code == 2
    assert "33 is not in the range 1<=x<=32" in refused.output
    assert CliRunner().invoke(command, ["--state", "1KiB,65MiB"]).exit_code == 2


def test_a_show_of_real_processes_has_figures() -> None:
    figures = measure_show(on_batonpass.MODULE, ShowShape(1024, 1, 60), 0.2)
    assert figures["sent"] > 0.0
    assert set(figures) <= set(FIGURES)
