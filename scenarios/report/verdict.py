"""What is wrong with a report, in sentences a user reads. A report with no problems passed. Pure."""

from batonpass.scenarios.report.model import (
    CaseResult,
    CasesReport,
    HopRange,
    Invariants,
    LockstepReport,
    SectorsReport,
)
from batonpass.scenarios.report.words import case_title, counted, hop_range_text

_BROKEN = {
    "two_authorities": "two servers had authority over the same entity {times}",
    "no_authority": "{entities} ended without an authority",
    "state_regressions": "an entity's state went back to an earlier tick {times}",
    "inputs_lost": "{inputs} lost",
    "inputs_duplicated": "{inputs} applied more than once",
}


def hops_as_expected(expected_hops: int, measured: HopRange) -> bool:
    """Whether every measured transfer took exactly the expected number of hops (and at least one did)."""
    return measured.min == measured.max == expected_hops


def measured_text(expected_hops: int, measured: HopRange) -> str:
    """The measured hops, and when they are not the expected ones, the sign that says so: `5`, `5–7 ≠ 5`, `none`."""
    if hops_as_expected(expected_hops, measured):
        return hop_range_text(measured)
    return f"{hop_range_text(measured)} ≠ {expected_hops}" if measured.min is not None else "none"


def case_problems(case: CaseResult) -> tuple[str, ...]:
    """What is wrong with one case, without its name; empty when nothing is."""
    problems = []
    if case.transfers == 0:
        problems.append(f"no transfer was completed, so there is nothing to compare with {case.formula}")
    elif case.transfers == case.repeated:
        problems.append(
            f"all of {counted(case.transfers, 'transfer')} took a repetition, so there is nothing to compare with "
            f"{case.formula}: run it again with more --transfers, or while the machine does less"
        )
    elif not hops_as_expected(case.expected_hops, case.measured_hops):
        problems.append(
            f"{case.formula} expects {counted(case.expected_hops, 'hop')}, "
            f"measured {hop_range_text(case.measured_hops)}"
        )
    if case.failed:
        asked = case.transfers + case.failed
        problems.append(f"{case.failed} of {counted(asked, 'transfer')} failed{_reasons(case.failures)}")
    return tuple(problems)


def invariant_problems(invariants: Invariants) -> tuple[str, ...]:
    """One sentence for each invariant that was broken."""
    return tuple(
        _BROKEN[name].format(
            times=counted(count, "time"), entities=counted(count, "entity", "entities"), inputs=_were(count)
        )
        for name, count in invariants.broken().items()
    )


def report_problems(report: CasesReport) -> tuple[str, ...]:
    """What is wrong with a run of the transfer cases; empty when it passed."""
    nothing = () if report.cases else ("no case was run",)
    cases = tuple(
        f"{case_title(case.case, case.h, case.transport)}: {problem}"
        for case in report.cases
        for problem in case_problems(case)
    )
    return nothing + cases + invariant_problems(report.invariants)


def sectors_problems(report: SectorsReport) -> tuple[str, ...]:
    """What is wrong with a run over sectors; empty when it passed."""
    problems = []
    if report.aircraft_finished < report.aircraft_total:
        lost = report.aircraft_total - report.aircraft_finished
        problems.append(f"{lost} of {report.aircraft_total} aircraft did not reach the end of their flight")
    if report.failed:
        asked = report.transfers + report.failed
        problems.append(f"{report.failed} of {counted(asked, 'transfer')} failed{_reasons(report.failures)}")
    for count in report.cases:
        if count.transfers > count.repeated and not hops_as_expected(count.expected_hops, count.measured_hops):
            problems.append(
                f"{case_title(count.case, count.h)}: expected {counted(count.expected_hops, 'hop')}, "
                f"measured {hop_range_text(count.measured_hops)}"
            )
    if report.custody_overlaps:
        problems.append(f"two sectors held the same aircraft {counted(report.custody_overlaps, 'time')}")
    if report.custody_holes:
        problems.append(f"no sector held a flying aircraft {counted(report.custody_holes, 'time')}")
    if report.inputs_applied != report.inputs_sent:
        problems.append(f"{counted(report.inputs_sent, 'input')} sent, {report.inputs_applied:,} applied")
    return tuple(problems) + invariant_problems(report.invariants)


_UNLIKE: dict[str, tuple[str, str, str]] = {
    "divergences": ("tick", "ticks", "differed between clients"),
    "lost": ("event", "events", "never applied"),
    "doubled": ("event", "events", "applied more than once"),
    "reordered": ("client", "clients", "had events applied in another order than that of posting"),
    "refused": ("request", "requests", "refused"),
    "went_back": ("time", "times", "a client was told an earlier tick than before"),
    "unfinished": ("client", "clients", "did not come to the last tick with all events acknowledged"),
}


def lockstep_problems(report: LockstepReport) -> tuple[str, ...]:
    """What is wrong with a run of clients in lockstep; empty when it passed."""
    counts: dict[str, int] = report.violations.model_dump()
    problems = [f"{counted(count, *_UNLIKE[name][:2])}: {_UNLIKE[name][2]}" for name, count in counts.items() if count]
    if not report.compared_ticks:
        problems.append("no tick was computed by two clients, so nothing was compared")
    return tuple(problems) + report.findings


def _reasons(failures: dict[str, int]) -> str:
    if not failures:
        return ""
    by_frequency = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return " (" + ", ".join(f"{reason} {count}" for reason, count in by_frequency) + ")"


def _were(count: int) -> str:
    return f"{counted(count, 'input')} {'was' if count == 1 else 'were'}"
