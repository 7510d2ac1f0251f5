"""What a run of faults found: per fault, per kind, and in all. As data, as JSON and as a table."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from batonpass.scenarios.chaos.plan import KINDS, FaultKind
from batonpass.scenarios.report.statistics import percentile

__all__ = [
    "MIN_WIDTH",
    "ChaosReport",
    "FaultResult",
    "KindSummary",
    "chaos_table",
    "summarise_kinds",
    "write_chaos_json",
]


# What the table needs; a narrower terminal folds lines.
MIN_WIDTH: Final = 110


@dataclass(frozen=True)
class FaultResult:
    """One fault. Times are in ms: from the fault to the next accepted write; from healing until all are together.

    `next_write_ms` is None when no write was accepted in time, `healed_ms` when the members did not come together.
    """

    number: int
    kind: FaultKind
    whom: str
    held_ms: float
    next_write_ms: float | None
    healed_ms: float | None
    problems: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """One line for the screen."""
        next_write = "no write accepted" if self.next_write_ms is None else f"next write {self.next_write_ms:.0f} ms"
        healed = "never together again" if self.healed_ms is None else f"together {self.healed_ms:.0f} ms"
        return f"{self.number:4} {self.kind:19} {next_write:>19}, {healed:>18}  {self.whom}"


@dataclass(frozen=True)
class KindSummary:
    """All faults of one kind."""

    kind: FaultKind
    faults: int
    problems: int
    next_write_p50_ms: float | None
    next_write_p99_ms: float | None
    next_write_max_ms: float | None
    healed_p50_ms: float | None
    healed_max_ms: float | None


@dataclass
class ChaosReport:
    """A whole run, or as much of it as there was."""

    seed: int
    members: int
    planned: int
    skipped: Mapping[FaultKind, str]
    directory: Path | None = None
    """Where everything is, if it was kept."""
    results: list[FaultResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What went wrong outside of any fault, or ended the run."""
    acknowledged_writes: int = 0
    linearizable_reads: int = 0
    retried_attempts: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[FaultKind, ...] = ()

    @property
    def violations(self) -> list[str]:
        """Everything that must not happen and did, with the number of the fault."""
        return [
            f"fault {r.number} ({r.kind}): {problem}" for r in self.results for problem in r.problems
        ] + self.problems

    @property
    def replay(self) -> str:
        """The command that does the same faults again."""
        kinds = ",".join(self.kinds)
        return f"baton chaos tree --faults {self.planned} --members {self.members} --seed {self.seed} --kinds {kinds}"


def summarise_kinds(results: list[FaultResult]) -> list[KindSummary]:
    """One row per kind that happened, in the order of `KINDS`. Percentiles are nearest-rank."""
    rows = []
    for kind in KINDS:
        of_kind = [result for result in results if result.kind is kind]
        if not of_kind:
            continue
        next_write = [result.next_write_ms for result in of_kind if result.next_write_ms is not None]
        healed = [result.healed_ms for result in of_kind if result.healed_ms is not None]
        rows.append(
            KindSummary(
                kind=kind,
                faults=len(of_kind),
                problems=sum(len(result.problems) for result in of_kind),
                next_write_p50_ms=_percentile(next_write, 50),
                next_write_p99_ms=_percentile(next_write, 99),
                next_write_max_ms=_percentile(next_write, 100),
                healed_p50_ms=_percentile(healed, 50),
                healed_max_ms=_percentile(healed, 100),
            )
        )
    return rows


def _percentile(values: list[float], percent: int) -> float | None:
    return percentile(values, percent) if values else None


def chaos_table(report: ChaosReport) -> RenderableType:
    """The table by kind, what was skipped, and the verdict."""
    title = f"Faults on {report.members} member processes, seed {report.seed} (times in ms)"
    table = Table(box=SIMPLE_HEAD, title=title)
    table.add_column("fault", no_wrap=True)
    for heading in ("times", "next write p50", "p99", "max", "together p50", "max", "violations"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in summarise_kinds(report.results):
        figures = (row.next_write_p50_ms, row.next_write_p99_ms, row.next_write_max_ms, row.healed_p50_ms)
        table.add_row(
            row.kind,
            str(row.faults),
            *(_ms(figure) for figure in (*figures, row.healed_max_ms)),
            Text(str(row.problems), style="bold red" if row.problems else ""),
        )
    skipped = [Text(f"skipped {kind}: {reason}", style="yellow") for kind, reason in report.skipped.items()]
    return Group(table, *skipped, *_verdict(report))


def _ms(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:,.0f}"


def _verdict(report: ChaosReport) -> list[Text]:
    lines = [
        Text(
            f"{len(report.results)} of {report.planned} faults in {report.seconds:.0f} s; "
            f"{report.acknowledged_writes:,} acknowledged writes, {report.linearizable_reads:,} linearizable reads, "
            f"{report.retried_attempts:,} attempts that had to be repeated"
        )
    ]
    if report.violations:
        lines += [Text(violation, style="bold red") for violation in report.violations]
        lines.append(Text(f"the same faults again: {report.replay}"))
        if report.directory is not None:
            lines.append(Text(f"journals, logs and histories are kept in {report.directory}"))
    elif report.results:
        lines.append(Text("nothing acknowledged was lost, nothing applied twice, every history is linearizable"))
    return lines


def write_chaos_json(path: Path, report: ChaosReport) -> None:
    """Write the report as JSON; its form is described in docs/reference/faults.md."""
    data = asdict(report)
    data["directory"] = None if report.directory is None else str(report.directory)
    data["violations"] = report.violations
    data["by_kind"] = [asdict(row) for row in summarise_kinds(report.results)]
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
