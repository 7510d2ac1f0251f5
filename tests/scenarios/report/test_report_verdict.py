"""What fails a report, and the sentence that says so."""

import pytest

from batonpass.scenarios.report.model import HopRange, Invariants
from batonpass.scenarios.report.verdict import report_problems, sectors_problems
from tests.scenarios.factories import make_case, make_report, make_sectors_report


def test_a_run_in_which_everything_is_as_expected_has_no_problems() -> None:
    assert report_problems(make_report()) == ()
    assert sectors_problems(make_sectors_report()) == ()


@pytest.mark.parametrize(
    ("measured", "text"),
    [(HopRange(min=7, max=9), "7–9"), (HopRange(min=6, max=6), "6"), (HopRange(min=5, max=7), "5–7")],
)
def test_hops_that_differ_from_the_formula_are_a_problem_even_if_some_transfers_match(
    measured: HopRange, text: str
) -> None:
    report = make_report(cases=(make_case("1", 2, measured_hops=measured),))
    assert report_problems(report) == (f"Case 1, H = 2, rest: 3 + 2H expects 7 hops, measured {text}",)


def test_repeated_transfers_are_no_problem_while_others_were_measured() -> None:
    busy = make_case("1", 2, repeated=150)
    assert report_problems(make_report(cases=(busy,))) == ()
    wrong = busy.model_copy(update={"measured_hops": HopRange(min=3, max=7)})
    (problem,) = report_problems(make_report(cases=(wrong,)))
    assert problem == "Case 1, H = 2, rest: 3 + 2H expects 7 hops, measured 3–7"


def test_a_case_without_a_completed_transfer_is_a_problem_not_a_success() -> None:
    (problem,) = report_problems(make_report(cases=(make_case("3", None, transfers=0, measured_hops=HopRange()),)))
    assert problem == "Case 3, link: no transfer was completed, so there is nothing to compare with 2"


def test_failed_transfers_are_a_problem_with_their_reasons_most_frequent_first() -> None:
    case = make_case("2", None, failed=3, failures={"Timeout": 1, "TargetFailed": 2})
    assert report_problems(make_report(cases=(case,))) == (
        "Case 2, rest: 3 of 203 transfers failed (TargetFailed 2, Timeout 1)",
    )


def test_a_report_without_cases_did_not_pass() -> None:
    assert report_problems(make_report(cases=())) == ("no case was run",)


@pytest.mark.parametrize("name", list(Invariants.model_fields))
def test_every_broken_invariant_fails_both_kinds_of_report(name: str) -> None:
    broken = Invariants(**{name: 1})
    assert len(report_problems(make_report(invariants=broken))) == 1
    assert len(sectors_problems(make_sectors_report(invariants=broken))) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"aircraft_finished": 119}, "1 of 120 aircraft did not reach the end of their flight"),
        ({"failed": 3, "failures": {"Denied": 3}}, "3 of 100 transfers failed (Denied 3)"),
        ({"custody_overlaps": 1}, "two sectors held the same aircraft 1 time"),
        ({"custody_holes": 2}, "no sector held a flying aircraft 2 times"),
        ({"inputs_applied": 42_999}, "43,000 inputs sent, 42,999 applied"),
    ],
)
def test_what_fails_a_run_over_sectors(changes: dict[str, object], sentence: str) -> None:
    assert sectors_problems(make_sectors_report(**changes)) == (sentence,)


def test_a_sector_run_with_wrong_hops_in_a_case_fails_but_an_unused_case_does_not() -> None:
    first, *others = make_sectors_report().cases
    wrong = first.model_copy(update={"measured_hops": HopRange(min=5, max=6)})
    assert sectors_problems(make_sectors_report(cases=(wrong, *others))) == (
        "Case 1, H = 1: expected 5 hops, measured 5–6",
    )
