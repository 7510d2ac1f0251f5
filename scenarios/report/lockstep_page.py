"""The report of `baton run lockstep` as one HTML page that opens offline; `html` has the frame of all pages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from batonpass.scenarios.report.charts import MEDIAN_COLOUR, ON_PATH_COLOUR, Figure, plain
from batonpass.scenarios.report.files import write_atomically
from batonpass.scenarios.report.html import render_page
from batonpass.scenarios.report.model import LockstepMove, LockstepReport
from batonpass.scenarios.report.table import noticed_rows
from batonpass.scenarios.report.verdict import lockstep_problems

__all__ = ["lockstep_page", "write_lockstep_page"]

_CHARTS: Final = {
    "syncs": "Answered syncs per second",
    "tick": "Highest tick that was told",
    "lead": "Known ticks that were not computed yet, median",
    "interval": "Longest wait for a new tick",
}
# What stands beside the axis, which is shorter than a title.
_UNITS: Final = {"syncs": "syncs/s", "tick": "tick", "lead": "ticks", "interval": "ms"}


def lockstep_page(report: LockstepReport) -> str:
    """The whole page, as HTML text."""
    rows = report.timeline
    values: dict[str, Sequence[float]] = {
        "syncs": [row.syncs for row in rows],
        "tick": [row.tick for row in rows],
        "lead": [row.lead_ticks for row in rows],
        "interval": [row.interval_ms for row in rows],
    }
    at_s = [row.at_s for row in rows]
    return render_page(
        "lockstep.html.jinja",
        report=report,
        problems=lockstep_problems(report),
        violations=report.violations.model_dump(),
        noticed=noticed_rows(report),
        charts=_CHARTS,
        figures={name: _by_second(at_s, values[name], _UNITS[name], report.moves) for name in _CHARTS},
    )


def write_lockstep_page(path: Path, report: LockstepReport) -> None:
    """Write the page to `path`, atomically. Raises OSError."""
    write_atomically(path, lockstep_page(report))


def _by_second(at_s: Sequence[int], values: Sequence[float], unit: str, moves: Sequence[LockstepMove]) -> Figure:
    lines: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    for move in moves:
        place = {"x0": move.at_s, "x1": move.at_s, "y0": 0, "y1": 1}
        style = {"color": MEDIAN_COLOUR, "width": 1.5, "dash": "dot"}
        lines.append({"type": "line", "xref": "x", "yref": "paper", "line": style, **place})
        text = plain(f"{move.kind} to {move.target}")
        labels.append({"x": move.at_s, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "text": text})
    line = {"color": ON_PATH_COLOUR}
    return {
        "data": [{"type": "scatter", "mode": "lines+markers", "x": list(at_s), "y": list(values), "line": line}],
        "layout": {
            "height": 240,
            "margin": {"l": 70, "r": 24, "t": 28, "b": 48},
            "showlegend": False,
            "xaxis": {"title": {"text": "since the run began (s)"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": plain(unit)}, "rangemode": "tozero"},
            "shapes": lines,
            "annotations": labels,
        },
    }
