"""Running a campaign in a terminal: a bar while it lasts, a table, what was violated and how to see it again."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import click
import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from batonpass.scenarios.common.ending import status_of_the_end
from batonpass.scenarios.common.options import json_file_option
from batonpass.scenarios.report.files import write_atomically
from batonpass.scenarios.simulation.kernel.campaign import Campaign, CampaignKind, Found, MixResult, run_campaign
from batonpass.scenarios.simulation.kernel.pace import Pace

__all__ = ["campaign_options", "run_and_show", "run_from_command"]

_MIN_WIDTH: Final = 176
_SHOWN: Final = 10


def campaign_options(mixes: Iterable[str]) -> Callable[[Any], Any]:
    """The flags of every campaign, as a decorator of its command."""
    options = (
        click.option("--seeds", type=click.IntRange(1), default=100, help="How many of each mix. [default: 100]"),
        click.option(
            "--from", "first", type=click.IntRange(0), default=0, metavar="SEED", help="The first one. [default: 0]"
        ),
        click.option(
            "--mix",
            "mixes",
            multiple=True,
            type=click.Choice(list(mixes)),
            help="Only this fault mix; can be repeated. [default: all]",
        ),
        click.option("--jobs", type=click.IntRange(1), help="Worker processes. [default: one per core]"),
        click.option("--trace", is_flag=True, help="Print the end of what happened before each violation."),
        json_file_option(),
    )

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def run_from_command(kind: CampaignKind, flags: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> int:
    """Run what the flags of `campaign_options` say, and print what came of it. The exit status."""
    campaign = Campaign(
        kind,
        flags["mixes"] or kind.mixes,
        flags["seeds"],
        flags["first"],
        options or {},
        workers=flags["jobs"] or os.cpu_count() or 1,
    )
    return run_and_show(campaign, trace=flags["trace"], json_file=flags["json_file"])


def run_and_show(campaign: Campaign, *, trace: bool = False, json_file: Path | None = None) -> int:
    """Run it and print what came of it. The exit status.

    1 if anything was violated, 130 if Ctrl-C, 143 if SIGTERM ended it (then of what was done so far), else 0.
    """
    pace = Pace(campaign)
    results: dict[str, MixResult] = {}
    interrupted = _run(campaign, results, pace, lines=trace)
    found = [one for result in results.values() for one in result.found]
    screen = Console()
    if screen.width < _MIN_WIDTH:
        screen = Console(width=_MIN_WIDTH)
    screen.print(_table(results, campaign.kind))
    screen.print(pace.summary(results), highlight=False)
    _show(found, screen)
    if json_file is not None:
        mixes = [one.to_data() | {f"{pace.title}_per_s": round(one.per_s(pace.counted))} for one in results.values()]
        data = {"interrupted": interrupted, f"{pace.title}_per_s": round(pace.rate(results)), "mixes": mixes}
        write_atomically(json_file, json.dumps(data, indent=2) + "\n")
    sys.stdout.flush()
    if found:
        return 1
    return status_of_the_end() if interrupted else 0


def _run(campaign: Campaign, results: dict[str, MixResult], pace: Pace, *, lines: bool) -> bool:
    """Run it with a bar on stderr, or a line now and then where that is a file; whether Ctrl-C or SIGTERM ended it."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    progress_bar = Progress(*columns, console=console, disable=not console.is_terminal)
    with progress_bar as bar:
        task = bar.add_task("seeds", total=pace.total)
        told = 0

        def progress(result: MixResult) -> None:
            nonlocal told
            bar.update(task, advance=1, description=pace.line(results))
            if not console.is_terminal and pace.is_due():
                console.print(pace.line(results), markup=False, highlight=False, soft_wrap=True)
            found = sum(len(result.found) for result in results.values())
            if found > told:
                told = found
                console.print(f"violated: {result.found[-1].replay}", style="red", markup=False, soft_wrap=True)

        async def run() -> None:
            await run_campaign(campaign, results, lines=lines, progress=progress)

        try:
            trio.run(run)
        except KeyboardInterrupt:
            return True
        except BaseExceptionGroup as group:
            if group.subgroup(KeyboardInterrupt) is None:
                raise
            return True
        return False


def _table(results: Mapping[str, MixResult], kind: CampaignKind) -> Table:
    """One line per mix; its rates are those of one worker."""
    table = Table(title="simulated clusters", title_justify="left")
    table.add_column("mix", no_wrap=True)
    for title in ("runs", "violated", *kind.columns.values(), "seeds/s", f"{kind.title}/s"):
        table.add_column(title, justify="right")
    table.add_column("violations, runs with each")
    for result in results.values():
        table.add_row(
            result.mix,
            str(result.runs),
            str(result.violated),
            *(f"{round(result.figures.get(name, 0)):,}" for name in kind.columns),
            f"{result.seeds_per_s:.1f}",
            f"{result.per_s(kind.counted):,.0f}",
            ", ".join(f"{kind} {count}" for kind, count in sorted(result.kinds.items())),
            style="red" if result.violated else "",
        )
    return table


def _show(found: list[Found], screen: Console) -> None:
    for one in found[:_SHOWN]:
        screen.print(
            f"{one.mix} seed {one.seed}: {one.kind}: {one.sentence}", style="red", soft_wrap=True, markup=False
        )
        for line in one.lines:
            screen.print(f"    {line}", style="dim", soft_wrap=True, markup=False, highlight=False)
        screen.print(f"  again: {one.replay}", soft_wrap=True, markup=False, highlight=False)
    if len(found) > _SHOWN:
        screen.print(f"and {len(found) - _SHOWN} more")
