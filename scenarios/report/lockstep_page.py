"""The report of `baton run lockstep` as one HTML page that opens offline; `html` has the frame of all pages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from markupsafe import Markup

from batonpass.scenarios.report.charts import MEDIAN_COLOUR, ON_PATH_COLOUR
from batonpass.scenarios.report.files import write_atomically
from batonpass.scenarios.report.html import render_page
from batonpass.scenarios.report.model import LockstepMove, LockstepReport
from batonpass.scenarios.report.svg import ChartAxis, ChartLine, ChartNote, draw
from batonpass.scenarios.report.table import noticed_rows
from batonpass.scenarios.report.verdict import lockstep_problems

__all__ = ["lockstep_page", "write_lockstep_page"]

_CHARTS: Final = {
    "syncs": "Answered syncs per second",
    "tick": "Highest tick that was told",
    "lead": "Known ticks that were not computed yet, median",
    "interval": "Longest wait for a new tick",
}
_NOTE_ROWS: Final = 3
# What stands at the axis, which is shorter than a title.
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
        charts={
            name: (title, _by_second(at_s, values[name], _UNITS[name], report.moves)) for name, title in _CHARTS.items()
        },
    )


def write_lockstep_page(path: Path, report: LockstepReport) -> None:
    """Write the page to `path`, atomically. Raises OSError."""
    write_atomically(path, lockstep_page(report))


def _by_second(at_s: Sequence[int], values: Sequence[float], unit: str, moves: Sequence[LockstepMove]) -> Markup:
    across = ChartAxis.from_zero("since the run began (s)", [*at_s, *(move.at_s for move in moves)])
    up = ChartAxis.from_zero(unit, values)
    lines = [
        ChartLine([(move.at_s, 0), (move.at_s, up.high)], MEDIAN_COLOUR, width_px=1.5, is_dashed=True) for move in moves
    ]
    notes = [
        ChartNote(move.at_s, f"{move.kind} to {move.target}", place % _NOTE_ROWS) for place, move in enumerate(moves)
    ]
    course = ChartLine(list(zip(at_s, values, strict=True)), ON_PATH_COLOUR)
    return draw(across, up, [course, *lines, *notes], height_px=180)
