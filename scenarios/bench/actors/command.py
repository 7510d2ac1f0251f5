"""`baton bench actors`: read the flags, run, show."""

from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console

from scenarios.bench.actors.rows import ROWS
from scenarios.bench.actors.run import Plan, run_bench
from scenarios.bench.comparison_table import render_comparison
from scenarios.bench.peers import cache_directory
from scenarios.options import output_file

__all__ = ["command"]

_MIN_WIDTH = 140


@click.command(name="actors", short_help="Actors against other Python actor libraries and bare trio.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=output_file,
    help="Also write it as JSON.",
)
@click.option("--quick", is_flag=True, help="One short round: noisy.")
@click.option("--only", multiple=True, metavar="NAME", type=click.Choice([row.name for row in ROWS]), help="This row.")
@click.option("--without-peers", is_flag=True, help="Measure batonpass and bare trio only; installs nothing.")
@click.option("--rounds", type=click.IntRange(1, 100), help="How often everything is measured. [default: 5]")
@click.option("--seconds", type=click.FloatRange(0.05, 60.0), help="How long each time. [default: 1]")
@click.option(
    "--peers-dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=cache_directory,
    show_default="~/.cache/batonpass/peers",
    help="Where the other libraries are installed, once.",
)
def command(**flags: Any) -> int:
    """Measure actors, and other actor libraries for Python beside them in the same run.

    Everything runs on one core, each sample in a fresh process. Absolute figures say more about the machine than about
    the programs; the ratios are what counts. The exit status is 1 when a demand is missed.
    """
    quick = flags["quick"]
    plan = Plan(
        rows=tuple(row for row in ROWS if not flags["only"] or row.name in flags["only"]),
        rounds=flags["rounds"] or (1 if quick else 5),
        seconds=flags["seconds"] or (0.2 if quick else 1.0),
        peers=not flags["without_peers"],
        directory=flags["directory"],
    )
    progress, screen = Console(stderr=True), Console()
    if screen.width < _MIN_WIDTH:
        screen = Console(width=_MIN_WIDTH)

    def tell(sentence: str) -> None:
        progress.print(sentence, style="dim", highlight=False, soft_wrap=True)

    report = trio.run(run_bench, plan, tell)
    screen.print(render_comparison(report))
    if flags["json_file"] is not None:
        flags["json_file"].write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return 0 if report.passed else 1
