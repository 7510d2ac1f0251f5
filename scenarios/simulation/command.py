"""`baton simulate raft`: read the flags, run the campaign, show what it found."""

import json
import os
import sys
from typing import Any, Final

import click
import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from scenarios.options import json_file_option
from scenarios.report.files import write_atomically
from scenarios.simulation.campaign import Campaign, Found, MixResult, run_campaign
from scenarios.simulation.mixes import MIXES

__all__ = ["command", "render"]

_INTERRUPTED: Final = 130
_MIN_WIDTH: Final = 150
_SHOWN: Final = 10


@click.command(name="raft", short_help="The replicated log under faults, thousands of virtual seconds a minute.")
@click.option("--seeds", type=click.IntRange(1), default=100, help="How many of each mix. [default: 100]")
@click.option("--from", "first", type=click.IntRange(0), default=0, metavar="SEED", help="The first one. [default: 0]")
@click.option(
    "--mix",
    "mixes",
    multiple=True,
    type=click.Choice(list(MIXES)),
    help="Only this fault mix; can be repeated. [default: all]",
)
@click.option("--nodes", type=click.Choice(["3", "5"]), help="Members. [default: 3 for even seeds, 5 for odd ones]")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes. [default: one per core]")
@click.option(
    "--system",
    type=click.Choice(["fence", "stock"]),
    default="fence",
    help="Our replicas, or the PySyncObj package as it comes. [default: fence]",
)
@click.option("--weakness", default="", metavar="NAME", help="Take one guard away; `--weakness list` lists them.")
@click.option("--trace", is_flag=True, help="Print the end of what happened before each violation.")
@json_file_option()
def command(**flags: Any) -> int:
    """Run real replicas on a virtual clock, network and disk, with faults drawn from seeds, and judge what they did.

    Each seed is a run of some seconds of faults, a healing, and a verdict: state-machine safety, one leader per term,
    no acknowledged write lost, exactly once, linearizable histories, progress afterwards. The same seed is the same
    run, everywhere. The exit status is 1 if anything was violated; the command that replays it is printed.

    \b
    Examples:
      baton simulate raft --seeds 300
      baton simulate raft --mix slow --nodes 5 --seeds 2000 --from 5000
      baton simulate raft --mix slow --from 5123 --seeds 1 --nodes 5 --trace
      baton simulate raft --system stock --seeds 300
    """
    if flags["weakness"]:
        from scenarios.simulation.weaknesses import WEAKNESSES

        if flags["weakness"] not in WEAKNESSES:
            for weakness in WEAKNESSES.values():
                click.echo(f"{weakness.name:32}{weakness.sentence}")
            return 0 if flags["weakness"] == "list" else 2
    campaign = Campaign(
        mixes=flags["mixes"] or tuple(MIXES),
        seeds=flags["seeds"],
        first=flags["first"],
        nodes=flags["nodes"] and int(flags["nodes"]),
        system=flags["system"],
        weakness=flags["weakness"],
        workers=flags["jobs"] or os.cpu_count() or 1,
    )
    results: dict[str, MixResult] = {}
    interrupted = _run(campaign, results, lines=flags["trace"])
    found = [one for result in results.values() for one in result.found]
    screen = Console()
    if screen.width < _MIN_WIDTH:
        screen = Console(width=_MIN_WIDTH)
    screen.print(render(results))
    _show(found, screen)
    if flags["json_file"] is not None:
        data = {"interrupted": interrupted, "mixes": [result.to_data() for result in results.values()]}
        write_atomically(flags["json_file"], json.dumps(data, indent=2) + "\n")
    sys.stdout.flush()
    if found:
        return 1
    return _INTERRUPTED if interrupted else 0


def _run(campaign: Campaign, results: dict[str, MixResult], *, lines: bool) -> bool:
    """Run it with a bar on stderr; whether Ctrl-C ended it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("seeds", total=campaign.seeds * len(campaign.mixes))
        told = 0

        def progress(result: MixResult) -> None:
            nonlocal told
            bar.update(task, advance=1, description=result.mix)
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


def render(results: dict[str, MixResult]) -> Table:
    """One line per mix."""
    table = Table(title="simulated clusters", title_justify="left")
    table.add_column("mix")
    titles = "runs violated acknowledged unknown reads terms snapshots crashes changes virtual_s seeds/s"
    for title in titles.split():
        table.add_column(title.replace("_", " "), justify="right")
    table.add_column("violations, runs with each")
    for result in results.values():
        counts = [
            result.acknowledged,
            result.unknown,
            result.reads,
            result.elections,
            result.snapshots,
            result.crashes,
            result.changes,
            round(result.virtual_s),
        ]
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(result.kinds.items()))
        table.add_row(
            result.mix,
            str(result.runs),
            str(result.violated),
            *(f"{count:,}" for count in counts),
            f"{result.seeds_per_s:.1f}",
            kinds,
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
