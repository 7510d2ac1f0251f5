"""`baton chaos clients`: clients' connections end, while servers hand over and are killed."""

import json
import random
from dataclasses import asdict
from pathlib import Path

import click
import trio
from rich.console import Console

from batonpass.scenarios.chaos.playing import PlayingPlan, play_through
from batonpass.scenarios.common.options import json_file_option

__all__ = ["command"]

_WIDTH = 110


@click.command(name="clients", short_help="Break off clients' connections, hand over, and kill servers.")
@click.option("--disconnections", type=click.IntRange(0), default=1000, show_default=True, help="How many at least.")
@click.option("--handovers", type=click.IntRange(1), default=100, show_default=True, help="Of the entity.")
@click.option("--kills", type=click.IntRange(0), default=3, show_default=True, help="Of the server that has it.")
@click.option("--listeners", type=click.IntRange(0, 100), default=8, show_default=True, help="Who watch it.")
@click.option("--seed", type=int, help="Of inputs. [default: a new one, printed]")
@json_file_option("Write the results as JSON.")
def command(
    disconnections: int, handovers: int, kills: int, listeners: int, seed: int | None, json_file: Path | None
) -> int:
    """Play at the players' doors of real servers whose connections end, that hand over, and that are killed.

    One player gives inputs without a break, and listeners watch. In each turn all connections are broken off, and the
    entity is handed over; in some turns its server is killed by SIGKILL. Afterwards every input must have been applied
    once, by the entity's cursor and by what the world has added up. Every listener must have been shown all of it, and
    nothing that went back. Exit status 1 if not.
    """
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    screen = Console(width=_WIDTH, highlight=False)
    screen.print(f"seed {seed}", style="dim")
    plan = PlayingPlan(disconnections, handovers, kills, listeners, seed)
    trial = trio.run(play_through, plan, lambda sentence: screen.print(sentence, style="dim"))
    screen.print(trial.sentence)
    for problem in trial.problems:
        screen.print(f"     {problem}", style="bold red")
    if json_file is not None:
        report = {"seed": seed, "plan": asdict(plan), "trial": asdict(trial)}
        json_file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if trial.problems else 0
