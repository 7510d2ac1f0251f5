"""The report as one HTML page that opens from disk, offline: everything it needs is inside it.

The page forbids itself any network access (Content-Security-Policy `default-src 'none'`), so that "offline" is a
property the browser enforces rather than a habit.
"""

import base64
import gzip
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from batonpass.scenarios.report import charts, timeline
from batonpass.scenarios.report.files import write_atomically
from batonpass.scenarios.report.model import CaseResult, CasesReport
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
    """The whole page for a report of the transfer cases, as HTML text (about 2 MB, nearly all of it plotly.js)."""
    sections = [_case_section(position, case) for position, case in enumerate(report.cases)]
    figures: dict[str, Any] = {
        "hops-by-kind": charts.hops_by_kind(report.cases),
        "phases": charts.phases(report.cases),
    }
    for section in sections:
        figures |= section["figures"]
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
        figures=figures,
    )


def render_page(template: str, **values: Any) -> str:
    """A page of this room, as HTML text. All have the frame `frame.html.jinja`, which says what it needs."""
    return _environment().get_template(template).render(plotly_gzip=_plotly_gzip(), **values)


def write_cases_page(path: Path, report: CasesReport) -> None:
    """Write the page to `path`, atomically. Raises OSError."""
    write_atomically(path, cases_page(report))


def _case_section(position: int, case: CaseResult) -> dict[str, Any]:
    """What the page shows of one case. Element ids end in the position, because titles may repeat."""
    figures: dict[str, Any] = {f"latency-{position}": charts.latency_distribution(case)}
    sample = case.sample
    if sample is not None:
        figures[f"timeline-{position}"] = timeline.sequence_diagram(sample)
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
        "figures": figures,
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


@cache
def _plotly_gzip() -> str:
    """The plotly.js that the plotly package carries, packed: gzip in base64."""
    source = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(source, mtime=0)).decode("ascii")
