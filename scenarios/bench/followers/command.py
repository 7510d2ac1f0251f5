"""`baton bench followers`."""

from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console

from batonpass.scenarios.bench.followers.course import course_of
from batonpass.scenarios.bench.followers.table import render_followers
from batonpass.scenarios.bench.side_by_side import ComparisonPlan, run_course
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.options import FiniteRange, json_file_option
from batonpass.scenarios.followers.run import StateSize

__all__ = ["command"]

_WIDTH = 200


class _Several(click.ParamType[tuple[Any, ...]]):
    """Values of another kind with commas between them."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self._kind = kind
        self.name = f"{kind.name},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys(self._kind.convert(part.strip(), param, ctx) for part in str(value).split(",")))


@click.command(
    name="followers", short_help="Shows of many followers against bare UDP that sends the same bytes to as many."
)
@click.option(
    "--followers", type=_Several(click.IntRange(1, 32)), default="1,2,4,8,16,32", show_default=True, help="How many."
)
@click.option(
    "--state", "states", type=_Several(StateSize()), default="1KiB,64KiB,1MiB,16MiB", show_default=True, help="Sizes."
)
@click.option("--rate", type=click.IntRange(1, 1_000), default=60, show_default=True, help="Frames a second.")
@click.option("--seconds", type=FiniteRange(0.1, 600.0), help="How long each time. [default: 3]")
@click.option("--rounds", type=click.IntRange(1, 100), help="How often. [default: 3]")
@click.option("--quick", is_flag=True, help="One short round: noisy.")
@json_file_option()
def command(
    followers: tuple[int, ...],
    states: tuple[int, ...],
    rate: int,
    seconds: float | None,
    rounds: int | None,
    quick: bool,
    json_file: Path | None,
) -> int:
    """Measure shows on loopback, and beside them in the same run bare UDP: no repair, seals or acknowledgements.

    Each sample is taken in fresh processes: a controller and the followers. Absolute figures say more about the
    machine than about the programs; the ratios are what counts.
    """
    course = course_of(followers, states, rate)
    plan = ComparisonPlan(
        course=course,
        rows=course.rows,
        rounds=rounds or (1 if quick else 3),
        seconds=seconds or (1.0 if quick else 3.0),
        peers=False,
        directory=Path(),
    )
    progress, screen = Console(stderr=True), Console()
    if screen.width < _WIDTH:
        screen = Console(width=_WIDTH)

    told = set[str]()

    def tell(sentence: str) -> None:
        # Of all rows of a show, its samples are taken with the first one.
        show = sentence.rpartition(":")[0]
        if show not in told:
            told.add(show)
            progress.print(show, style="dim", highlight=False, soft_wrap=True)

    try:
        report = trio.run(run_course, plan, tell)
    except EnvironmentFailed as error:
        raise click.ClickException(str(error)) from error
    screen.print(render_followers(report))
    if json_file is not None:
        json_file.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return 0
