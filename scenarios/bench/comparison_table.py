"""The table of a `Comparison`: one line for each row and subject, ours first."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from batonpass.scenarios.bench.comparison import OURS, ComparedRow, Comparison, Figure
from batonpass.scenarios.bench.judgement import VERDICT_STYLES, DemandVerdict
from batonpass.scenarios.bench.rows import RowUnit, bare, number

__all__ = ["render_comparison"]


def render_comparison(report: Comparison) -> RenderableType:
    """The whole report."""
    table = Table(title=Text(report.title), box=None)
    for heading in ("work", "who", "median [min-max]", "ours : theirs", "demand", ""):
        is_number = heading.startswith(("median", "ours"))
        # On a narrow screen the words fold, and no figure or verdict is cut.
        folds = heading in {"work", "demand"}
        table.add_column(heading, no_wrap=not folds, justify="right" if is_number else "left")
    for row in report.rows:
        _add_row(table, row)
    return Group(table, *_notes(report))


def _add_row(table: Table, row: ComparedRow) -> None:
    demands = "; ".join(limit.text for limit in row.limits)
    verdict = "" if row.verdict is None else Text(row.verdict, style=VERDICT_STYLES[row.verdict])
    ours = row.figures.get(OURS)
    table.add_row(row.title, OURS, "not measured" if ours is None else _spread(ours, row.unit), "", demands, verdict)
    for name, figure in row.figures.items():
        if figure is not ours:
            ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}x"
            table.add_row("", Text(name, style="dim"), _spread(figure, row.unit), ratio, "", "")


def _spread(figure: Figure, unit: RowUnit) -> Text:
    spread = "" if len(figure.rounds) == 1 else f" [{bare(figure.min, unit)}-{bare(figure.max, unit)}]"
    return Text(number(figure.median, unit) + spread)


def _notes(report: Comparison) -> list[Text]:
    host = report.host
    versions = ", ".join(f"{name} {version}" for name, version in (host.versions | report.peers).items())
    lines = [
        f"{host.cores} cores ({host.processor}), load average {host.load_average_1m:.2f}"
        f"{'' if report.quiet else ', so not quiet'}; {report.rounds} rounds; {versions}",
        *(f"{name}: not measured: {why}" for name, why in report.not_measured.items()),
        *report.remarks,
        *(f"{row.title}: {row.note}" for row in report.rows if row.note),
    ]
    missed = [row.title for row in report.rows if row.verdict is DemandVerdict.MISSED]
    judged = any(row.verdict is not None for row in report.rows)
    if missed:
        lines.append(f"MISSED: {'; '.join(missed)}")
    elif judged:
        lines.append("PASSED: every demand that could be judged is met")
    return [Text(line) for line in lines]
