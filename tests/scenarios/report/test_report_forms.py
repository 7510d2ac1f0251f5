"""The report as a table and as a JSON file."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rich.cells import cell_len
from rich.console import Console, RenderableType

from batonpass.scenarios.report.files import write_atomically
from batonpass.scenarios.report.json_file import (
    ReportFileError,
    cases_data,
    read_cases,
    read_sectors,
    write_cases,
    write_sectors,
)
from batonpass.scenarios.report.model import (
    CaseResult,
    CasesReport,
    HopRange,
    Invariants,
    Percentiles,
    PhaseMedians,
    ReportedHop,
    ReportedMark,
    ReportModel,
    SampleTransfer,
    SectorsReport,
)
from batonpass.scenarios.report.table import TABLE_WIDTH, cases_table, sectors_table
from batonpass.scenarios.report.words import number_text, whole_text
from tests.collected import ROOT
from tests.scenarios.factories import make_case, make_report, make_sectors_report

CASE_KEYS = [
    "case", "h", "mode", "transport", "formula", "expected_hops", "measured_hops", "transfers", "repeated",
    "failed", "latency_ms", "phases_ms", "gap_ticks",
]  # fmt: skip
EXTRA_KEYS = ["on_path", "off_path", "retransmissions", "raft_rounds", "bytes_p50", "failures", "sample"]


def printed(table: RenderableType, *, colours: bool = False) -> str:
    console = Console(width=TABLE_WIDTH, force_terminal=colours, color_system="standard" if colours else None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


# --- JSON ---


def test_every_case_has_exactly_the_documented_keys_in_their_order() -> None:
    for case in cases_data(make_report())["cases"]:
        assert list(case) == CASE_KEYS + EXTRA_KEYS
        assert list(case["measured_hops"]) == ["min", "max"]
        assert list(case["latency_ms"]) == ["p50", "p95", "p99", "max"]
        assert list(case["phases_ms"]) == ["request", "rule", "commit", "state", "activation"]
        assert list(case["gap_ticks"]) == ["p50", "max"]


def test_beside_the_cases_stand_invariants_versions_seed_and_machine() -> None:
    data = cases_data(make_report())
    assert {"cases", "invariants", "versions", "seed", "machine", "started_at", "cluster"} <= set(data)
    assert data["passed"] is True
    assert data["problems"] == []


def test_single_latencies_are_in_the_file_only_when_asked_for() -> None:
    assert "samples" not in cases_data(make_report())["cases"][0]
    assert len(cases_data(make_report(), with_samples=True)["cases"][0]["samples"]) == 200


def test_keys_of_a_case_without_any_completed_transfer_are_there_with_null() -> None:
    failed = make_case("2", None, transfers=0, latency_ms=Percentiles(), measured_hops=HopRange())
    (case,) = cases_data(make_report(cases=(failed,)))["cases"]
    assert case["latency_ms"] == {"p50": None, "p95": None, "p99": None, "max": None}
    assert case["measured_hops"] == {"min": None, "max": None}


def test_what_was_written_with_samples_is_read_back_equal(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases.json", make_report(), with_samples=True)
    assert read_cases(tmp_path / "cases.json") == make_report()


def test_what_was_written_without_samples_is_read_back_without_them(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases.json", make_report())
    assert all(case.latencies_ms == () for case in read_cases(tmp_path / "cases.json").cases)


def test_a_sectors_report_is_read_back_equal(tmp_path: Path) -> None:
    write_sectors(tmp_path / "sectors.json", make_sectors_report())
    assert read_sectors(tmp_path / "sectors.json") == make_sectors_report()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "recipe"}, "'recipe'"),
        ({"seed": "soon"}, "seed"),
        ({"surprise": 1}, "surprise"),
        ({"cases": 3}, "cases"),
        ({"cases": [3]}, r"cases\.0"),
    ],
)
def test_a_file_that_is_not_a_report_is_refused_with_the_reason(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(cases_data(make_report()) | change))
    with pytest.raises(ReportFileError, match=named) as caught:
        read_cases(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "batonpass.cases"'])
def test_a_file_that_is_not_json_or_not_an_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(ReportFileError, match=r"broken\.json"):
        read_sectors(tmp_path / "broken.json")


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "a lone surrogate \ud800 cannot be written")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_nan_and_infinity_never_enter_a_report() -> None:
    for value in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValidationError):
            Percentiles(p50=value)


DOCUMENT = (ROOT / "docs" / "reference" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "model",
    [CasesReport, SectorsReport, CaseResult, Invariants, ReportedHop, ReportedMark, SampleTransfer, PhaseMedians],
)
def test_every_key_of_the_files_is_explained_in_the_document(model: type[ReportModel]) -> None:
    # Latencies are called samples in the file.
    unexplained = [name for name in model.model_fields if f"`{name}`" not in DOCUMENT and name != "latencies_ms"]
    assert unexplained == []


def test_the_document_names_the_case_keys_in_the_order_of_the_file() -> None:
    places = [DOCUMENT.index(f"`{key}`", DOCUMENT.index("## The numbers of a case")) for key in CASE_KEYS + EXTRA_KEYS]
    assert places == sorted(places)


# --- tables ---


@pytest.mark.parametrize("table", [cases_table(make_report()), sectors_table(make_sectors_report())])
def test_tables_fit_a_terminal_of_a_hundred_columns_without_cutting_anything(table: RenderableType) -> None:
    text = printed(table)
    assert max(cell_len(line) for line in text.splitlines()) <= TABLE_WIDTH
    assert "…" not in text


def test_a_table_shows_every_case_with_formula_expectation_and_measurement() -> None:
    lines = printed(cases_table(make_report())).splitlines()
    (row,) = [line for line in lines if line.strip().startswith("1 H=3") and "3 + 2H" in line]
    assert row.split()[:9] == ["1", "H=3", "rest", "eager", "3", "+", "2H", "9", "9"]


def test_a_passed_run_says_so_and_shows_the_invariants() -> None:
    text = printed(cases_table(make_report()))
    assert "PASSED" in text
    assert "two_authorities 0, no_authority 0, state_regressions 0, inputs_lost 0, inputs_duplicated 0" in text


def test_a_wrong_hop_count_is_red_and_its_reason_stands_below() -> None:
    wrong = make_case("1", 2, measured_hops=HopRange(min=7, max=9))
    coloured = printed(cases_table(make_report(cases=(wrong,))), colours=True)
    assert re.search(r"\x1b\[1;37;41m *7–9 ≠ 7", coloured)
    text = printed(cases_table(make_report(cases=(wrong,))))
    assert "7–9 ≠ 7" in text
    assert "FAILED: 1 problem\n  - Case 1, H = 2, rest: 3 + 2H expects 7 hops, measured 7–9" in text


def test_transfers_that_took_a_repetition_have_a_column_of_their_own() -> None:
    lines = printed(cases_table(make_report(cases=(make_case("2", None, repeated=17, failed=1),)))).splitlines()
    (row,) = [line for line in lines if line.strip().startswith("2 ") and "eager" in line]
    assert row.split()[6:9] == ["200", "17", "1"]
    assert any(line.strip().startswith("again: done by a repetition, as messages were late or lost") for line in lines)


def test_a_broken_invariant_is_red() -> None:
    text = printed(cases_table(make_report(invariants=Invariants(inputs_lost=2))), colours=True)
    assert "\x1b[1;31minputs_lost 2" in text
    assert "2 inputs were lost" in text


def test_numbers_larger_than_planned_are_folded_never_cut() -> None:
    slow = make_case("1", 3, latency_ms=Percentiles(p50=123_456.0, p95=123_456.0, p99=123_456.0, max=123_456.0))
    assert "…" not in printed(cases_table(make_report(cases=(slow, make_case("2", None)))))


def test_the_sector_table_has_a_row_for_every_sector() -> None:
    text = printed(sectors_table(make_sectors_report()))
    for number in range(4):
        assert f"alpha.s{number + 1}" in text
    assert "43,000/43,000" in text
    assert "0 overlaps, 0 holes" in text


# --- words and model ---


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (0.0421, "0.042"), (3.14159, "3.14"), (42.04, "42.0"), (1234.5, "1,234"), (0.5, "0.50")],
)
def test_numbers_are_written_with_about_three_digits(value: float | None, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (3.0, "3"), (2.5, "2.50"), (4812.0, "4,812")])
def test_whole_numbers_are_written_without_decimals(value: float | None, text: str) -> None:
    assert whole_text(value) == text


def test_hops_by_kind_come_from_the_sample_when_no_means_were_collected() -> None:
    case = make_case("1", 2)
    assert case.hops_per_transfer_by_kind() == {
        "request": 1, "home_request": 2, "home_response": 2, "response": 1, "handoff": 1,
    }  # fmt: skip
    assert case.model_copy(update={"on_path": {"request": 1.5}}).hops_per_transfer_by_kind() == {"request": 1.5}
    assert case.model_copy(update={"sample": None}).hops_per_transfer_by_kind() == {}


def test_models_refuse_keys_they_do_not_know() -> None:
    with pytest.raises(ValidationError, match="colour"):
        SampleTransfer.model_validate({"transfer_id": "t", "hops": [], "colour": "red"})
    with pytest.raises(ValidationError, match="case"):
        CaseResult.model_validate(make_case().model_dump() | {"case": "4"})
