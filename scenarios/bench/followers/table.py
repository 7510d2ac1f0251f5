"""The table: one line for each show and subject, ours first, with the ratio in parentheses. Pure."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from batonpass.scenarios.bench.comparison import OURS, ComparedRow, Comparison, Figure
from batonpass.scenarios.bench.followers.course import FIGURES, TREE, UDP
from batonpass.scenarios.bench.rows import RowUnit, bare

__all__ = ["render_followers"]

_WHO = {OURS: "batonpass, straight", TREE: "batonpass, tree", UDP: "bare UDP"}


def render_followers(report: Comparison) -> RenderableType:
    """The whole report."""
    table = Table(title=Text(report.title), box=None)
    table.add_column("state, followers")
    table.add_column("who", no_wrap=True)
    for heading, unit in FIGURES.values():
        table.add_column(
            f"{heading}\n{unit.lstrip('/') if unit is not RowUnit.PER_SECOND else 'a second'}", justify="right"
        )
    shows: dict[str, dict[str, ComparedRow]] = {}
    for row in report.rows:
        show, _, figure = row.name.partition(":")
        shows.setdefault(show, {})[figure] = row
    for rows in shows.values():
        title = next(iter(rows.values())).title.partition(":")[0]
        for subject, who in _WHO.items():
            if not any(subject in row.figures for row in rows.values()):
                continue
            cells = (_cell(rows[figure].figures.get(subject), unit) for figure, (_, unit) in FIGURES.items())
            table.add_row(title, who, *cells)
            title = ""
    return Group(table, *_notes(report))


def _cell(figure: Figure | None, unit: RowUnit) -> str:
    if figure is None:
        return "-"
    value = f"{figure.median:,.0f}" if unit in {RowUnit.FRAMES, RowUnit.MICROSECONDS} else bare(figure.median, unit)
    return value if figure.ratio is None else f"{value} ({figure.ratio:.2g}x)"


def _notes(report: Comparison) -> list[Text]:
    host = report.host
    lines = [
        f"{host.cores} cores, load average {host.load_average_1m:.2f} before the run"
        f"{'' if report.quiet else ', so not quiet: delays say little'}; rounds: {report.rounds}",
        *(f"{name}: not measured: {why}" for name, why in report.not_measured.items()),
        *report.remarks,
        "Straight, a controller sends to each follower; in a tree, to a few, who pass on.",
        "All processes share these cores: with more followers than cores, a delay is that of their queue.",
    ]
    return [Text(line) for line in lines]
