"""A comparison of several subjects: ratios, demands, what is missing; and that every worker of ours really works."""

import io
import json
import re
import tomllib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from batonpass.scenarios.bench import side_by_side
from batonpass.scenarios.bench.actors.course import COURSE as ACTORS
from batonpass.scenarios.bench.actors.workers import on_batonpass
from batonpass.scenarios.bench.actors.workers.remote import measure_remote
from batonpass.scenarios.bench.comparison import OURS, Comparison, ComparisonRow, Limit, compare
from batonpass.scenarios.bench.comparison_table import render_comparison
from batonpass.scenarios.bench.events.course import COURSE as EVENTS
from batonpass.scenarios.bench.followers.course import FIGURES, UDP, course_of
from batonpass.scenarios.bench.followers.table import render_followers
from batonpass.scenarios.bench.judgement import DemandVerdict
from batonpass.scenarios.bench.link.course import COURSE as LINK
from batonpass.scenarios.bench.machine import HostFacts
from batonpass.scenarios.bench.peers import NpmLibrary, PeerLibrary, PeerMissing, install, install_npm
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import ComparisonPlan, Course, run_course
from batonpass.scenarios.bench.worlds.course import COURSE as WORLDS
from batonpass.scenarios.common.errors import EnvironmentFailed
from tests.collected import ROOT

HOST = HostFacts(cores=2, processor="one", load_average_1m=0.0, kernel="6", versions={"python": "3.11"})
RATE = ComparisonRow("rate", "things", RowUnit.PER_SECOND, ("other",), (Limit(100), Limit(2, "other")))
figures = st.floats(min_value=1e-3, max_value=1e9)


@given(ours=figures, other=figures, times=figures)
def test_a_demand_is_a_ratio_of_medians_and_more_is_better_for_rates_only(
    ours: float, other: float, times: float
) -> None:
    for unit in (RowUnit.PER_SECOND, RowUnit.SECONDS):
        row = ComparisonRow("row", "row", unit, ("other",), (Limit(times, "other"),))
        compared = compare(row, {OURS: [ours] * 3, "other": [other] * 3})
        met = ours >= times * other if unit is RowUnit.PER_SECOND else ours <= times * other
        assert compared.verdict is (DemandVerdict.MET if met else DemandVerdict.MISSED)
        assert compared.figures["other"].ratio == ours / other
        assert compared.figures[OURS].ratio is None


def test_who_was_not_measured_is_not_compared_with() -> None:
    compared = compare(RATE, {OURS: [150.0]})
    assert [limit.verdict for limit in compared.limits] == [DemandVerdict.MET, DemandVerdict.NOT_JUDGED]
    assert compared.verdict is DemandVerdict.MET
    assert list(compared.figures) == [OURS]
    nothing = compare(RATE, {})
    assert nothing.verdict is DemandVerdict.NOT_JUDGED


def test_the_table_shows_everybody_the_demands_and_why_somebody_is_missing() -> None:
    report = Comparison(
        title="things",
        host=HOST,
        rounds=2,
        quiet=True,
        peers={"other": "1.2"},
        not_measured={"third": "cannot be installed: no network"},
        remarks=("nobody goes first here",),
        rows=(compare(RATE, {OURS: [150.0, 170.0], "other": [80.0, 90.0]}),),
    )
    screen = Console(width=140, file=io.StringIO())
    screen.print(render_comparison(report))
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    for part in (
        "batonpass",
        "other",
        "1.88x",
        ">= 100; >= 2x other",
        "missed",
        "third: not measured",
        "nobody goes first here",
        "MISSED: things",
    ):
        assert part in shown
    assert not report.passed
    assert Comparison.model_validate_json(report.model_dump_json()) == report


def test_on_a_narrow_screen_titles_fold_and_no_figure_or_verdict_is_cut() -> None:
    row = ComparisonRow(
        "rate", "what is measured here has a very long name " * 3, RowUnit.PER_SECOND, ("other",), RATE.limits
    )
    report = Comparison(
        title="a comparison",
        host=HOST,
        quiet=True,
        rounds=2,
        peers={},
        not_measured={},
        rows=(compare(row, {OURS: [1500.0, 1700.0], "other": [80.0, 90.0]}),),
    )
    screen = Console(width=100, file=io.StringIO())
    screen.print(render_comparison(report))
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "1,500/s [1,500-1,700]" in shown
    assert " met" in shown
    assert "18.75x" in shown


@pytest.mark.parametrize("course", [ACTORS, LINK], ids=["actors", "link"])
def test_every_subject_of_a_row_is_somebody_who_can_be_measured(course: Course) -> None:
    known = {peer.name for peer in course.peers} | course.workers.keys()
    assert {subject for row in course.rows for subject in row.subjects} <= known
    assert {limit.than for row in course.rows for limit in row.limits if limit.than} <= known
    assert {row for _, row in course.work} <= {row.name for row in course.rows}
    for worker in (*course.workers.values(), *(f"on_{peer.name}" for peer in course.peers)):
        assert find_spec(f"{course.package}.{worker}") is not None


async def test_what_is_counted_of_many_actors_is_counted_of_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_batonpass, "MANY", 100)
    for work in ("spawn", "idle", "teardown"):
        assert await on_batonpass.measure_many(work) >= 0


@pytest.mark.parametrize("work", ["udp", "trio-udp", "link", "remote-call", "remote-cast"])
def test_what_is_measured_between_two_processes_is_measured(work: str) -> None:
    assert measure_remote(work, 0.02) > 0


@pytest.mark.parametrize(
    ("course", "names"),
    [
        (ACTORS, {"call", "call-queued", "cast", "cast-state"}),
        (LINK, {"rtt", "goodput-network", "envelope"}),
    ],
    ids=["actors", "link"],
)
async def test_whoever_runs_here_is_measured_in_processes_of_their_own(
    course: Course, names: set[str], tmp_path: Path
) -> None:
    told: list[str] = []
    rows = tuple(row for row in course.rows if row.name in names)
    plan = ComparisonPlan(course, rows, rounds=1, seconds=0.02, peers=False, directory=tmp_path)
    report = await run_course(plan, told.append)
    assert not report.not_measured
    assert [row.name for row in report.rows] == [row.name for row in rows]
    for spec, row in zip(rows, report.rows, strict=True):
        assert set(row.figures) == {OURS, *spec.subjects} & course.workers.keys()
        assert all(figure.median > 0 for figure in row.figures.values())
    assert len(told) == len(rows)
    assert json.loads(report.model_dump_json())["schema_version"] == 1


@pytest.mark.parametrize("bears_failures", [True, False])
async def test_a_sample_that_fails_ends_the_course_or_has_no_figures_and_is_named(
    bears_failures: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def ask(_command: Any, work: str, *_: Any) -> dict[str, Any]:
        asked.append(work)
        if work.startswith("1024x32"):
            raise EnvironmentFailed(f"{work} did not end within 122 s")
        return {"figures": dict.fromkeys(FIGURES, 1.0)}

    monkeypatch.setattr(side_by_side, "_ask", ask)
    course = replace(course_of((1, 32), (1024,), 60), bears_failures=bears_failures)
    plan = ComparisonPlan(course, course.rows, rounds=1, seconds=1.0, peers=False, directory=tmp_path)
    if not bears_failures:
        with pytest.raises(EnvironmentFailed, match="1024x32@60 did not end"):
            await run_course(plan, lambda _: None)
        return
    report = await run_course(plan, lambda _: None)
    few, many = (report.rows[: len(FIGURES)], report.rows[len(FIGURES) :])
    assert all(set(row.figures) == {OURS, UDP} for row in few)
    assert not any(row.figures for row in many)
    assert report.remarks == (
        "no figures: 1024x32@60 did not end within 122 s",
        "no figures: 1024x32@60/4 did not end within 122 s",
    )
    assert len(asked) == len(set(asked)) + 2, "ours and bare UDP have the same works, and none was done again"
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(render_followers(report))
    assert "1024x32@60/4 did not end" in console.export_text()


def test_the_extra_names_all_peers_but_the_one_that_asks_for_an_older_trio() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {re.split(r"[<>=]", requirement)[0] for requirement in project["optional-dependencies"]["bench"]}
    courses = (ACTORS, EVENTS, LINK, WORLDS)
    peers = {
        re.split(r"[<>=]", requirement)[0]
        for course in courses
        for peer in course.peers
        for requirement in peer.requirements
    }
    # Our own servers need FastAPI, too.
    assert named == peers - {"triotp", "fastapi"}


def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(tmp_path: Path) -> None:
    peer = PeerLibrary("nobody", ("./there-is-no-such-directory",))
    with pytest.raises(PeerMissing, match=r"nobody cannot be installed: .*there-is-no-such-directory"):
        install(peer, tmp_path, lambda _: None)
    assert issubclass(PeerMissing, EnvironmentFailed)


def test_a_peer_that_runs_on_node_is_named_as_missing_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerMissing, match="nobody runs on node: no node is installed"):
        install_npm(NpmLibrary("nobody", ("nothing@1",)), tmp_path, lambda _: None)
