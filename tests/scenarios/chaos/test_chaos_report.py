"""The report of a run: figures by kind, violations with the way to see them again."""

import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from batonpass.scenarios.chaos.plan import FaultKind
from batonpass.scenarios.chaos.report import ChaosReport, FaultResult, chaos_table, summarise_kinds, write_chaos_json


def result(number: int, kind: FaultKind, next_write_ms: float | None, *problems: str) -> FaultResult:
    return FaultResult(number, kind, "m1", 100.0, next_write_ms, None if problems else 50.0, problems)


def shown(report: ChaosReport) -> str:
    out = StringIO()
    Console(file=out, width=120).print(chaos_table(report))
    return out.getvalue()


def test_figures_are_summed_up_by_kind_in_the_order_of_kinds() -> None:
    results = [result(number, FaultKind.STOP_LEADER, float(number)) for number in range(1, 101)]
    results.append(result(101, FaultKind.KILL_LEADER, None, "no write was accepted"))

    killed, stopped = summarise_kinds(results)
    assert (killed.kind, killed.faults, killed.problems, killed.next_write_p50_ms) == (
        FaultKind.KILL_LEADER,
        1,
        1,
        None,
    )
    assert (stopped.kind, stopped.next_write_p50_ms, stopped.next_write_p99_ms) == (FaultKind.STOP_LEADER, 50.0, 99.0)
    assert (stopped.next_write_max_ms, stopped.healed_p50_ms, stopped.healed_max_ms) == (100.0, 50.0, 50.0)


def test_a_clean_run_says_what_was_judged_and_what_was_skipped() -> None:
    report = ChaosReport(
        5, 3, 1, {FaultKind.SPLIT: "needs network namespaces: EPERM"}, kinds=(FaultKind.KILL_ALL, FaultKind.SPLIT)
    )
    report.results.append(result(1, FaultKind.KILL_ALL, 900.0))

    text = shown(report)
    assert "seed 5" in text
    assert "skipped split: needs network namespaces: EPERM" in text
    assert "nothing acknowledged was lost" in text


def test_a_violation_comes_with_its_fault_the_files_and_the_command_for_the_same_faults() -> None:
    report = ChaosReport(5, 3, 9, {}, directory=Path("/kept"), kinds=(FaultKind.KILL_ALL,))
    report.results.append(result(1, FaultKind.KILL_ALL, 900.0, "a write was lost"))
    report.problems.append("m2 ended by itself")

    assert report.violations == ["fault 1 (kill-all): a write was lost", "m2 ended by itself"]
    text = shown(report)
    assert "nothing acknowledged was lost" not in text
    assert "baton chaos tree --faults 9 --members 3 --seed 5 --kinds kill-all" in text
    assert "/kept" in text


def test_a_run_that_was_interrupted_before_anything_claims_nothing() -> None:
    assert "nothing acknowledged was lost" not in shown(ChaosReport(5, 3, 9, {}, interrupted=True))


def test_the_json_report_has_everything(tmp_path: Path) -> None:
    report = ChaosReport(
        5, 3, 1, {FaultKind.SPLIT: "reason"}, directory=tmp_path, kinds=(FaultKind.KILL_ALL, FaultKind.SPLIT)
    )
    report.results.append(result(1, FaultKind.KILL_ALL, 900.0, "lost"))
    write_chaos_json(tmp_path / "report.json", report)

    data = json.loads((tmp_path / "report.json").read_text())
    assert data["violations"] == ["fault 1 (kill-all): lost"]
    assert data["skipped"] == {"split": "reason"}
    assert data["results"][0]["next_write_ms"] == 900.0
    assert data["by_kind"][0]["problems"] == 1
    assert data["directory"] == str(tmp_path)
