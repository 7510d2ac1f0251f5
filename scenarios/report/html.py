"""The report as one HTML page that opens from disk, offline: everything it needs is inside it.

The page forbids itself any network access (Content-Security-Policy `default-src 'none'`), so that "offline" is a
property the browser enforces rather than a habit.
"""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from batonpass.scenarios.report import charts, timeline
from batonpass.scenarios.report.files import write_atomically
from batonpass.scenarios.report.model import CaseResult, CasesReport
from batonpass.scenarios.report.svg import KIND_COLOURS
from batonpass.scenarios.report.verdict import case_problems, hops_as_expected, measured_text, report_problems
from batonpass.scenarios.report.words import (
    AGAIN_MEANS,
    HOP_SENTENCE,
    case_title,
    counted,
    hop_range_text,
    number_text,
    whole_text,
)


def cases_page(report: CasesReport) -> str:
    """The whole page for a report of the transfer cases, as HTML text."""
    sections = [_case_section(position, case) for position, case in enumerate(report.cases)]
    return render_page(
        "page.html.jinja",
        report=report,
        problems=report_problems(report),
        hop_sentence=HOP_SENTENCE,
        again_means=AGAIN_MEANS,
        sections=sections,
        hops_described=charts.describe_hops(report.cases),
        invariants=report.invariants.model_dump(),
        transfers=sum(case.transfers for case in report.cases),
        hops_by_kind=charts.hops_by_kind(report.cases),
        phases=charts.phases(report.cases),
    )


def render_page(template: str, **values: Any) -> str:
    """A page of this room, as HTML text. All have the frame `frame.html.jinja`, which says what it needs."""
    return _environment().get_template(template).render(kind_colours=KIND_COLOURS, **values)


def write_cases_page(path: Path, report: CasesReport) -> None:
    """Write the page to `path`, atomically. Raises OSError."""
    write_atomically(path, cases_page(report))


def _case_section(position: int, case: CaseResult) -> dict[str, Any]:
    """What the page shows of one case. Element ids end in the position, because titles may repeat."""
    sample = case.sample
    return {
        "position": position,
        "case": case,
        "title": case_title(case.case, case.h, case.transport),
        "problems": case_problems(case),
        "as_expected": hops_as_expected(case.expected_hops, case.measured_hops),
        "measured": measured_text(case.expected_hops, case.measured_hops),
        "latency_described": charts.describe_latency(case),
        "sample": sample,
        "sample_described": timeline.describe_sample(sample) if sample else "",
        "hop_rows": timeline.hop_rows(sample) if sample else (),
        "unit": timeline.time_axis(sample).unit if sample else "",
        "latency": charts.latency_distribution(case),
        "timeline": timeline.sequence_diagram(sample) if sample else "",
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("batonpass.scenarios.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number_text,
        "whole": whole_text,
        "hop_range": hop_range_text,
        "counted": counted,
    }
    return environment
