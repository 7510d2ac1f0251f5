"""From samples to the table: what is judged, how, and in which order it was measured."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from batonpass.scenarios.bench.judgement import DemandVerdict, judge, judge_all, spread_of
from batonpass.scenarios.bench.machine import MachineFacts, is_quiet
from batonpass.scenarios.bench.rows import Reference, RowDemand, RowUnit, rows_of
from batonpass.scenarios.bench.subject import LeaderFault, LeaderMoved, Subject
from batonpass.scenarios.bench.tree.report import BenchReport, DemandResult, Figures, RowResult, row_result
from batonpass.scenarios.bench.tree.run import TreeBenchPlan, measure_all
from batonpass.scenarios.bench.tree.table import render
from batonpass.scenarios.bench.workloads import (
    KEY_COUNT,
    BenchWorkload,
    OperationKind,
    Place,
    Sample,
    key_path,
    node_path,
    value_text,
)
from tests.collected import ROOT

ROWS = rows_of((1_000, 100_000, 1_000_000))
figures = st.floats(min_value=1e-3, max_value=1e9)


def sample(per_second: float, p50_ms: float | None = 1.0) -> Sample:
    return Sample(round(per_second * 2), 2.0, p50_ms, p50_ms, 10.0, 5.0)


# --- judging ----------------------------------------------------------------------------------------------------------


@given(st.lists(figures, min_size=1))
def test_the_median_of_the_rounds_is_one_of_them_and_within_their_range(values: list[float]) -> None:
    spread = spread_of(values)
    assert spread is not None
    assert spread.median in values
    assert spread.min <= spread.median <= spread.max
    assert sum(value <= spread.median for value in values) * 2 >= len(values)
    assert spread.rounds == len(values)


def test_nothing_measured_is_no_spread() -> None:
    assert spread_of([]) is None


@given(figures, figures, figures)
def test_a_demand_against_etcd_compares_with_its_figure(ours: float, etcd: float, limit: float) -> None:
    demand = RowDemand(limit, Reference.ETCD)
    at_most = judge(demand, RowUnit.MS, ours, etcd, quiet=False)
    at_least = judge(demand, RowUnit.PER_SECOND, ours, etcd, quiet=False)
    assert at_most is (DemandVerdict.MET if ours <= limit * etcd else DemandVerdict.MISSED)
    assert at_least is (DemandVerdict.MET if ours >= limit * etcd else DemandVerdict.MISSED)


@given(figures, st.none() | figures, st.sampled_from(RowUnit))
def test_what_was_not_measured_is_not_judged(figure: float, etcd: float | None, unit: RowUnit) -> None:
    assert judge(RowDemand(1.0), unit, None, etcd, quiet=True) is DemandVerdict.NOT_JUDGED
    assert judge(RowDemand(1.0, Reference.ETCD), unit, figure, None, quiet=True) is DemandVerdict.NOT_JUDGED
    assert judge(RowDemand(1.0), unit, figure, None, quiet=True) is not DemandVerdict.NOT_JUDGED


@given(figures)
def test_a_demand_for_a_quiet_machine_is_judged_on_one_only(ours: float) -> None:
    demand = RowDemand(26_000, quiet_only=True)
    assert judge(demand, RowUnit.PER_SECOND, ours, None, quiet=False) is DemandVerdict.NOT_JUDGED
    assert judge(demand, RowUnit.PER_SECOND, ours, None, quiet=True) is not DemandVerdict.NOT_JUDGED


@given(st.lists(st.sampled_from(DemandVerdict)))
def test_one_missed_demand_makes_a_row_missed(verdicts: list[DemandVerdict]) -> None:
    verdict = judge_all(verdicts)
    assert (verdict is None) == (not verdicts)
    assert (verdict is DemandVerdict.MISSED) == (DemandVerdict.MISSED in verdicts)
    if verdict is DemandVerdict.MET:
        assert DemandVerdict.MET in verdicts


# --- rows and keys ----------------------------------------------------------------------------------------------------


def test_every_row_has_a_name_of_its_own() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)


def test_the_demands_are_these() -> None:
    demanded = {row.name: [(demand.limit, demand.reference) for demand in row.demands] for row in ROWS if row.demands}
    assert demanded == {
        "write-leader-1": [(0.8, Reference.ETCD)],
        "write-leader-64": [(2.0, Reference.ETCD)],
        "write-leader-256": [(3.0, Reference.ETCD), (26_000, Reference.ABSOLUTE)],
        "grouped-write-leader-64": [(60_000, Reference.ABSOLUTE)],
        "linearizable-read-leader-1": [(0.7, Reference.ETCD)],
        "linearizable-read-follower-1": [(0.7, Reference.ETCD)],
        "local-read-leader-64": [(300_000, Reference.ABSOLUTE)],
        "outage-sigkill": [(400, Reference.ABSOLUTE)],
        "outage-sigstop": [(1_500, Reference.ABSOLUTE)],
        "nodes-write-growth": [(1.3, Reference.ABSOLUTE)],
    }


def test_keys_are_ten_thousand_paths_of_three_names_and_come_again() -> None:
    paths = {key_path(number) for number in range(KEY_COUNT)}
    assert len(paths) == KEY_COUNT
    assert {len(path) for path in paths} == {3}
    assert key_path(KEY_COUNT + 7) == key_path(7)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_different_numbers_make_different_nodes_and_values_of_the_same_size(one: int, other: int) -> None:
    assert (node_path(one) == node_path(other)) == (one == other) == (value_text(one) == value_text(other))
    assert len(value_text(one)) == 100


# --- reports ----------------------------------------------------------------------------------------------------------

FACTS = MachineFacts(
    cores=2,
    processor="a processor",
    load_average_1m=0.1,
    fdatasync_p50_ms=0.2,
    fdatasync_p99_ms=0.4,
    file_system="ext4",
    kernel="6.0",
    versions={"etcd": "3.4.23"},
)


def report_of(ours: Sequence[float], etcd: Sequence[float]) -> BenchReport:
    (spec,) = (row for row in ROWS if row.name == "write-leader-64")
    measured = {"batonpass": [sample(value) for value in ours], "etcd": [sample(value) for value in etcd]}
    row = row_result(spec, measured, quiet=True)
    return BenchReport(machine=FACTS, rounds=len(ours), seconds_per_sample=2.0, quiet=True, rows=(row,))


def test_a_row_has_medians_their_ratio_and_every_round() -> None:
    report = report_of([16_000, 20_000, 30_000], [9_000, 8_000, 1_000])
    (row,) = report.rows
    assert row.batonpass is not None
    assert row.batonpass.rounds == (16_000.0, 20_000.0, 30_000.0)
    assert [row.batonpass.median, row.batonpass.min, row.batonpass.max] == [20_000, 16_000, 30_000]
    assert row.ratio == 20_000 / 8_000
    assert row.khepri_measured_elsewhere == 10_600
    assert row.verdict is DemandVerdict.MET
    assert report.passed


def test_a_missed_demand_fails_the_run() -> None:
    report = report_of([15_000], [8_000])
    assert [row.verdict for row in report.rows] == [DemandVerdict.MISSED]
    assert not report.passed


def test_without_etcd_a_demand_against_it_does_not_fail_the_run() -> None:
    report = report_of([15_000], [])
    assert report.rows[0].etcd is None
    assert report.rows[0].verdict is DemandVerdict.NOT_JUDGED
    assert report.passed


def test_a_report_is_the_same_after_it_was_written_and_read() -> None:
    report = report_of([15_000, 16_000], [8_000, 9_000])
    text = report.model_dump_json()
    assert BenchReport.model_validate_json(text) == report
    assert json.loads(text)["schema_version"] == 1


def test_a_latency_row_of_operations_that_were_not_timed_is_an_error() -> None:
    (spec,) = (row for row in ROWS if row.name == "write-leader-1")
    with pytest.raises(ValueError, match="not timed one by one"):
        row_result(spec, {"batonpass": [sample(100, None)]}, quiet=True)


def test_the_table_names_what_was_missed_and_shows_brackets_as_they_are() -> None:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(render(report_of([15_000, 14_000, 13_000], [8_000, 8_000, 9_000])))
    text = console.export_text()
    assert "14,000/s [13,000-15,000]" in text
    assert "1.75x" in text
    assert "MISSED: writes, leader, 64 outstanding" in text
    assert "fdatasync p50 0.20 ms" in text


def test_a_machine_is_quiet_when_hardly_anything_ran_before() -> None:
    assert is_quiet(FACTS)
    assert not is_quiet(FACTS.model_copy(update={"load_average_1m": 1.0}))


# --- the course of a run ----------------------------------------------------------------------------------------------


@dataclass
class FakeSubject:
    """Measures nothing, and writes down who was asked for what."""

    name: str
    diary: list[str]
    moves: int = 0
    answers: list[Sample] = field(default_factory=list)

    async def measure(self, workload: BenchWorkload, seconds: float) -> Sample:
        self.diary.append(f"{self.name} {workload.name}")
        if self.moves:
            self.moves -= 1
            raise LeaderMoved("somebody else leads")
        return sample(1_000 / seconds)

    async def outage_ms(self, fault: LeaderFault) -> float:
        self.diary.append(f"{self.name} {fault}")
        return 100.0


def plan_of(*names: str, rounds: int = 2, faults: int = 2) -> TreeBenchPlan:
    rows = tuple(row for row in ROWS if row.name in names)
    return TreeBenchPlan(rows, rounds, 1.0, faults, (1_000, 100_000, 1_000_000))


async def test_samples_of_both_subjects_alternate_and_take_turns_in_beginning() -> None:
    diary: list[str] = []
    subjects: list[Subject] = [FakeSubject("ours", diary), FakeSubject("etcd", diary)]
    plan = plan_of("write-leader-1", "outage-sigkill")
    measured = await measure_all(plan, subjects, lambda _: None)
    assert diary == [
        "ours write-leader-1",
        "etcd write-leader-1",
        "etcd write-leader-1",
        "ours write-leader-1",
        "ours SIGKILL",
        "etcd SIGKILL",
        "etcd SIGKILL",
        "ours SIGKILL",
    ]
    assert {name: len(samples) for name, samples in measured["write-leader-1"].items()} == {"ours": 2, "etcd": 2}
    assert measured["outage-sigkill"]["ours"] == [100.0, 100.0]


async def test_a_sample_during_which_the_leader_moved_is_taken_again() -> None:
    diary: list[str] = []
    measured = await measure_all(
        plan_of("write-leader-1", rounds=1), [FakeSubject("ours", diary, moves=2)], lambda _: None
    )
    assert len(diary) == 3
    assert len(measured["write-leader-1"]["ours"]) == 1


async def test_a_leader_that_moves_all_the_time_ends_the_run() -> None:
    with pytest.raises(LeaderMoved):
        await measure_all(plan_of("write-leader-1", rounds=1), [FakeSubject("ours", [], moves=3)], lambda _: None)


def test_a_group_counts_as_its_commands() -> None:
    group = BenchWorkload(OperationKind.GROUPED_WRITE, Place.LEADER, 64)
    assert group.commands_per_operation == 16
    assert group.name == "grouped-write-leader-64"


# --- the documentation ------------------------------------------------------------------------------------------------


def test_the_documentation_names_every_key_of_the_report_and_every_row() -> None:
    text = (ROOT / "docs" / "history" / "bench.md").read_text(encoding="utf-8")
    for model in (BenchReport, RowResult, Figures, DemandResult, MachineFacts):
        for key in model.model_fields:
            assert f"`{key}`" in text, f"docs/history/bench.md does not explain the key {key} of {model.__name__}"
    for row in ROWS:
        # A family of rows shares the beginning of its name: `write-leader-1`, `-16`, ...
        family, _, last = row.name.rpartition("-")
        assert f"`{row.name}`" in text or (f"`{family}-1`" in text and f"`-{last}`" in text), row.name
