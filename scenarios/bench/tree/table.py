"""The table that `baton bench tree` prints."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from batonpass.scenarios.bench.judgement import VERDICT_STYLES, DemandVerdict
from batonpass.scenarios.bench.rows import bare, number
from batonpass.scenarios.bench.tree.report import BenchReport, Figures, RowResult

__all__ = ["render"]


def render(report: BenchReport) -> RenderableType:
    """The whole report."""
    costs = _costs(report)
    return Group(_table(report), *([costs] if costs.row_count else []), *_notes(report))


def _table(report: BenchReport) -> Table:
    title = "3 members on loopback, fdatasync, mutual TLS: median [min-max] of the rounds"
    table = Table(title=Text(title), box=None)
    for heading in ("work", "batonpass", "etcd", "ratio", "Khepri (elsewhere)", "demand", ""):
        left, folds = heading in {"work", "demand", ""}, heading == "demand"
        table.add_column(heading, no_wrap=not folds, min_width=14 * folds, justify="left" if left else "right")
    for row in report.rows:
        table.add_row(
            row.title,
            _spread(row, row.batonpass),
            _spread(row, row.etcd),
            "" if row.ratio is None else f"{row.ratio:.2f}x",
            "" if row.khepri_measured_elsewhere is None else number(row.khepri_measured_elsewhere, row.unit),
            "; ".join(demand.text for demand in row.demands),
            "" if row.verdict is None else Text(row.verdict, style=VERDICT_STYLES[row.verdict]),
        )
    return table


def _costs(report: BenchReport) -> Table:
    table = Table(title="processor time per command, µs, and latency p50 / p99, ms", box=None)
    for heading in ("work", "ours: leader", "follower", "p50 / p99", "etcd: leader", "follower", "client", "p50 / p99"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "work" else "right")
    for row in report.rows:
        if row.batonpass is not None and row.batonpass.leader_cpu_us_per_command is not None:
            leader, follower, _in_a_member, latency = _cost(row.batonpass)
            table.add_row(row.title, leader, follower, latency, *_cost(row.etcd))
    return table


def _cost(figures: Figures | None) -> tuple[str, str, str, str]:
    """Leader, follower, clients; latencies."""
    if figures is None:
        return "", "", "", ""
    costs = (
        figures.leader_cpu_us_per_command,
        figures.follower_cpu_us_per_command,
        figures.client_cpu_us_per_command,
    )
    leader, follower, client = ("" if cost is None else f"{cost:.1f}" for cost in costs)
    return leader, follower, client, "" if figures.p50_ms is None else f"{figures.p50_ms:.2f} / {figures.p99_ms:.2f}"


def _notes(report: BenchReport) -> list[Text]:
    machine = report.machine
    quiet = "" if report.quiet else ", so not quiet"
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    lines = [
        f"{machine.cores} cores ({machine.processor}), load average {machine.load_average_1m:.2f}{quiet}; "
        f"fdatasync p50 {machine.fdatasync_p50_ms:.2f} ms, p99 {machine.fdatasync_p99_ms:.2f} ms "
        f"on {machine.file_system}",
        f"{report.rounds} rounds, {report.seconds_per_sample:g} s a sample; {versions}",
        "our clients run inside a member, as Khepri's; etcd's are h2load, which repeats one key",
    ]
    missed = [row.title for row in report.rows if row.verdict is DemandVerdict.MISSED]
    if missed:
        lines.append(f"MISSED: {'; '.join(missed)}")
    else:
        lines.append("PASSED: every demand that could be judged is met")
    return [Text(line) for line in lines]


def _spread(row: RowResult, figures: Figures | None) -> Text:
    if figures is None:
        return Text()
    median = number(figures.median, row.unit)
    if len(figures.rounds) == 1:
        return Text(median)
    # Text, because a string in brackets is markup to rich.
    return Text(f"{median} [{bare(figures.min, row.unit)}-{bare(figures.max, row.unit)}]")
