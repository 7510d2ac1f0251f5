"""The report in a terminal: rich tables that fit in 100 columns, and what is wrong, in red, with the reason."""

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from batonpass.scenarios.report.model import (
    CaseResult,
    CasesReport,
    HopRange,
    Invariants,
    LockstepReport,
    LockstepViolations,
    Percentiles,
    RunFacts,
    SectorsReport,
)
from batonpass.scenarios.report.verdict import (
    hops_as_expected,
    lockstep_problems,
    measured_text,
    report_problems,
    sectors_problems,
)
from batonpass.scenarios.report.words import AGAIN_MEANS, case_title, counted, number_text, whole_text

_AS_EXPECTED = "every hop count is as expected, and no invariant was broken"

TABLE_WIDTH = 100
"""The tables fit a terminal this many columns wide."""


def cases_table(report: CasesReport) -> RenderableType:
    """Everything `baton run cases` shows when it is done; print it with a rich Console."""
    return Group(
        _hops_table(report),
        _phases_table(report),
        _broken_line(report.invariants),
        _verdict_lines(report_problems(report)),
        _facts_line(report),
    )


def sectors_table(report: SectorsReport) -> RenderableType:
    """Everything `baton run sectors` shows when it is done; print it with a rich Console."""
    return Group(
        _traffic_table(report),
        _crossings_table(report),
        _sector_rows_table(report),
        _broken_line(report.invariants),
        _verdict_lines(sectors_problems(report)),
        _facts_line(report),
    )


def lockstep_table(report: LockstepReport) -> RenderableType:
    """Everything `baton run lockstep` shows when it is done; print it with a rich Console."""
    return Group(
        _lockstep_run_table(report),
        _lockstep_times_table(report),
        _broken_line(report.violations),
        _verdict_lines(lockstep_problems(report), "all clients computed the same states, and no event was lost"),
        _facts_line(report),
    )


def _lockstep_run_table(report: LockstepReport) -> Table:
    table = _table(
        f"Lockstep: one stream for {report.seconds:g} s, {report.loss:.0%} lost, {report.jitter_ms:g} ms late"
    )
    for name in ("clients", "late", "ticks", "compared", "events posted/applied", "syncs/s", "syncs lost", "jumps"):
        table.add_column(name, justify="right")
    table.add_row(
        f"{report.clients:,}",
        f"{report.late_joiners:,}",
        f"{report.ticks:,}",
        f"{report.compared_ticks:,}",
        f"{report.events_posted:,}/{report.events_applied:,}",
        number_text(report.syncs_per_s),
        f"{report.syncs_lost:,}",
        f"{report.jumps:,}",
    )
    table.caption = (
        f"{counted(report.joined_by_snapshot, 'client')} joined by a snapshot, "
        f"{counted(report.joined_by_replay, 'late one')} by a replay; "
        f"state at the last tick: {report.last_hash[:16]}"
    )
    return table


def noticed_rows(report: LockstepReport) -> list[tuple[str, Percentiles]]:
    """What clients noticed, with its titles: the rows of a table."""
    rows: list[tuple[str, Percentiles]] = [
        ("known and not computed yet, ticks", report.lead_ticks),
        ("between answers with new ticks, ms", report.interval_ms),
        (f"catching up ({counted(report.catch_ups, 'time')}), ms", report.catch_up_ms),
    ]
    rows += [
        (
            f"gap of the {move.kind} {move.source} to {move.target} (log: {number_text(move.took_ms)} ms), ms",
            move.gap_ms,
        )
        for move in report.moves
    ]
    return rows


def _lockstep_times_table(report: LockstepReport) -> Table:
    table = _table("What clients noticed")
    table.add_column("")
    for name in ("p50", "p95", "p99", "max"):
        table.add_column(name, justify="right")
    for title, times in noticed_rows(report):
        table.add_row(title, *(number_text(value) for value in (times.p50, times.p95, times.p99, times.max)))
    return table


def _hops_table(report: CasesReport) -> Table:
    table = _table("Transfer cases: hops and latency")
    for name in ("case", "via", "mode"):
        table.add_column(name)
    for name in ("formula", "hops", "measured", "done", "again", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("p50 ms", "p95", "p99", "max", "gap"):
        # Folding is ugly; cutting digits off with an ellipsis would be a lie.
        table.add_column(name, justify="right", overflow="fold")
    for case in report.cases:
        latency = case.latency_ms
        table.add_row(
            _case_cell(case),
            case.transport,
            case.mode,
            case.formula,
            str(case.expected_hops),
            _measured_cell(case.expected_hops, case.measured_hops),
            f"{case.transfers:,}",
            f"{case.repeated:,}",
            Text(f"{case.failed:,}", style="bold red" if case.failed else ""),
            *(number_text(value) for value in (latency.p50, latency.p95, latency.p99, latency.max)),
            f"{whole_text(case.gap_ticks.p50)}/{whole_text(case.gap_ticks.max)}",
        )
    table.caption = f"gap: median/largest number of ticks in which no server simulated the entity\nagain: {AGAIN_MEANS}"
    return table


def _phases_table(report: CasesReport) -> Table:
    table = _table("Where the time goes: median ms per phase, and messages beside the path")
    table.add_column("case")
    for name in ("request", "rule", "commit", "state", "activation", "bytes", "resent"):
        table.add_column(name, justify="right")
    table.add_column("off path, per transfer")
    for case in report.cases:
        phases = case.phases_ms
        table.add_row(
            f"{_case_cell(case)} {case.transport}",
            *(
                number_text(value)
                for value in (phases.request, phases.rule, phases.commit, phases.state, phases.activation)
            ),
            whole_text(case.bytes_p50),
            f"{case.retransmissions:,}",
            ", ".join(f"{kind} {whole_text(count)}" for kind, count in sorted(case.off_path.items())),
        )
    return table


def _traffic_table(report: SectorsReport) -> Table:
    table = _table(f"Sectors: {report.grid} over {report.source}")
    for name in ("aircraft", "finished", "transfers", "failed", "p50 ms", "p95", "p99", "max", "gap ticks"):
        table.add_column(name, justify="right")
    table.add_column("inputs sent/applied", justify="right")
    latency = report.latency_ms
    table.add_row(
        f"{report.aircraft_total:,}",
        f"{report.aircraft_finished:,}",
        f"{report.transfers:,}",
        Text(f"{report.failed:,}", style="bold red" if report.failed else ""),
        *(number_text(value) for value in (latency.p50, latency.p95, latency.p99, latency.max)),
        f"{whole_text(report.gap_ticks.p50)}/{whole_text(report.gap_ticks.max)}",
        f"{report.inputs_sent:,}/{report.inputs_applied:,}",
    )
    table.caption = (
        f"custody: {counted(report.custody_overlaps, 'overlap')}, {counted(report.custody_holes, 'hole')} "
        "(two sectors or no sector holding a flying aircraft)"
    )
    if report.flights_from is not None and report.flights_s is not None:
        late = report.lateness_ms
        table.caption += (
            f"\n{report.flights_s / 60:.0f} minutes from {report.flights_from:%Y-%m-%d %H:%M} UTC, "
            f"{report.speedup:g} times as fast; positions applied {number_text(late.p50)} ms (p50), "
            f"{number_text(late.p99)} ms (p99), {number_text(late.max)} ms (max) after they were due"
        )
    return table


def _crossings_table(report: SectorsReport) -> Table:
    table = _table("Border crossings by transfer case")
    table.add_column("case")
    for name in ("crossings", "again", "failed", "hops expected", "hops measured"):
        table.add_column(name, justify="right")
    for count in report.cases:
        is_measured = count.transfers > count.repeated
        measured: Text = _measured_cell(count.expected_hops, count.measured_hops) if is_measured else Text("–")
        table.add_row(
            case_title(count.case, count.h),
            f"{count.transfers:,}",
            f"{count.repeated:,}",
            f"{count.failed:,}",
            str(count.expected_hops),
            measured,
        )
    return table


def _sector_rows_table(report: SectorsReport) -> Table:
    table = _table("Per sector")
    table.add_column("sector", justify="right")
    table.add_column("server")
    for name in ("peak aircraft", "handed in", "handed out", "inputs applied"):
        table.add_column(name, justify="right")
    for row in report.sectors:
        table.add_row(
            str(row.sector),
            row.server,
            *(f"{count:,}" for count in (row.aircraft_peak, row.handed_in, row.handed_out, row.inputs_applied)),
        )
    return table


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_style="bold",
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def _case_cell(case: CaseResult) -> str:
    return case.case if case.h is None else f"{case.case} H={case.h}"


def _measured_cell(expected_hops: int, measured: HopRange) -> Text:
    # The sign in the text repeats what the colour says, for those who do not see it and for logs without colours.
    style = "green" if hops_as_expected(expected_hops, measured) else "bold white on red"
    return Text(measured_text(expected_hops, measured), style=style)


def _broken_line(rules: Invariants | LockstepViolations) -> Text:
    line = Text("\ninvariants, times broken:\n  ")
    for position, (name, count) in enumerate(rules.model_dump().items()):
        if position:
            line.append(", ")
        line.append(f"{name} {count}", style="bold red" if count else "green")
    return line


def _verdict_lines(problems: tuple[str, ...], passed: str = _AS_EXPECTED) -> Text:
    if not problems:
        return Text(f"PASSED: {passed}", style="bold green")
    lines = Text(f"FAILED: {counted(len(problems), 'problem')}", style="bold red")
    for problem in problems:
        lines.append(f"\n  - {problem}", style="red")
    return lines


def _facts_line(facts: RunFacts) -> Text:
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return Text(f"seed {facts.seed}; started {facts.started_at.isoformat(timespec='seconds')}; {versions}", style="dim")
