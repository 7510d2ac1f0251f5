"""The command line that all courses share: read the flags, run, show."""

from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console

from batonpass.scenarios.bench.comparison_table import render_comparison
from batonpass.scenarios.bench.peers import cache_directory
from batonpass.scenarios.bench.side_by_side import ComparisonPlan, Course, run_course
from batonpass.scenarios.common.options import FiniteRange, json_file_option

__all__ = ["course_command"]

_MIN_WIDTH = 140
_ENDING = """

    {where}, each sample in fresh processes. Absolute figures say more about the machine than about
    the programs; the ratios are what counts. The exit status is 1 when a demand is missed.
"""


def course_command(course: Course, *, name: str, short_help: str, sentence: str) -> click.Command:
    """`baton bench NAME`, which measures `course`; its help begins with `sentence`."""
    names = [row.name for row in course.rows]

    def run(**flags: Any) -> int:
        return _run(course, flags)

    where = "Everything runs on one core" if course.one_core else "Everything runs on this machine"
    run.__doc__ = sentence + _ENDING.format(where=where)
    for option in reversed(
        (
            json_file_option(),
            click.option("--quick", is_flag=True, help="One short round: noisy."),
            click.option("--only", multiple=True, metavar="NAME", type=click.Choice(names), help="This row."),
            click.option("--list", "list_rows", is_flag=True, help="List the rows, and end."),
            click.option("--without-peers", is_flag=True, help="Without other libraries; installs nothing."),
            click.option("--rounds", type=click.IntRange(1, 100), help="How often. [default: 5]"),
            click.option("--seconds", type=FiniteRange(0.02, 60.0), help="How long each time. [default: 1]"),
            click.option(
                "--peers-dir",
                "directory",
                type=click.Path(file_okay=False, path_type=Path),
                default=cache_directory,
                show_default="~/.cache/batonpass/peers",
                help="Where the other libraries are installed, once.",
            ),
        )
    ):
        run = option(run)
    return click.command(name=name, short_help=short_help)(run)


def _run(course: Course, flags: dict[str, Any]) -> int:
    if flags["list_rows"]:
        width = max(len(row.name) for row in course.rows)
        for row in course.rows:
            click.echo(f"{row.name:{width}}  {row.title}")
        return 0
    quick = flags["quick"]
    plan = ComparisonPlan(
        course=course,
        rows=tuple(row for row in course.rows if not flags["only"] or row.name in flags["only"]),
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

    report = trio.run(run_course, plan, tell)
    screen.print(render_comparison(report))
    if flags["json_file"] is not None:
        flags["json_file"].write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return 0 if report.passed else 1
