"""`baton chaos transfers`: servers are killed or stopped at every named step of hand-overs between real processes."""

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import click
import trio
from rich.console import Console

from batonpass.scenarios.chaos.handovers import (
    HandoverEnd,
    Trial,
    TrialResult,
    all_cuts,
    all_trials,
    handover_ground,
)
from batonpass.scenarios.chaos.network import NamespacedNetwork
from batonpass.scenarios.chaos.privacy import detach_mounts_below, enter_private_namespaces
from batonpass.scenarios.chaos.ways import WAYS
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.options import json_file_option

__all__ = ["command"]

_WIDTH: Final = 110


@click.command(
    name="transfers", short_help="Kill or stop either end, or the leader, at every named step of hand-overs."
)
@click.option("--case", "cases", multiple=True, type=click.Choice(list(WAYS)), help="Of this way. [default: all]")
@click.option("--only", multiple=True, metavar="PATTERN", help="Trials like this: `case-2-decided-*`.")
@click.option("--list", "list_trials", is_flag=True, help="List the trials, and end.")
@click.option("--seed", type=int, help="Of inputs and ids. [default: a new one, printed]")
@json_file_option("Write the results as JSON.")
def command(
    cases: tuple[str, ...], only: tuple[str, ...], list_trials: bool, seed: int | None, json_file: Path | None
) -> int:
    """Hand entities over between real processes; hold them still at a named step; kill or stop a server; continue.

    In each trial a player gives inputs all the time. Afterwards exactly one server must simulate the entity, the one
    that the log names. The custody logs must show no overlap and no state that goes back. Every input must have been
    applied once. An entity that no server simulates in the end is a violation too. Stops and partitions are short, or
    last until a lease is over (`lapse`). Partitions need network namespaces, which the superuser has; where the kernel
    does not permit them they are skipped. Exit status 1 if anything was violated.
    """
    possible = (*all_trials(cases or tuple(WAYS)), *all_cuts(cases or tuple(WAYS)))
    trials = [trial for trial in possible if _is_chosen(trial, only)]
    if not trials:
        raise click.UsageError(f"no trial is called {', '.join(repr(name) for name in only)}; --list lists them all")
    if list_trials:
        for trial in trials:
            click.echo(str(trial))
        return 0
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    if (why_not := _enter(trials)) is not None:
        click.echo(f"skipping partitions: {why_not}", err=True)
        trials = [trial for trial in trials if not trial.parts]
    if not trials:
        raise EnvironmentFailed("none of the chosen trials is possible here")
    screen = Console(width=_WIDTH, highlight=False)
    screen.print(f"seed {seed}; {len(trials)} trials", style="dim")
    results: list[TrialResult] = []

    def show(result: TrialResult) -> None:
        results.append(result)
        screen.print(result.sentence, style="" if result.outcome is HandoverEnd.GOES_ON else "yellow")
        for problem in result.violations:
            screen.print(f"     {problem}", style="bold red")

    trio.run(_run, trials, seed, show)
    counts = Counter(result.outcome for result in results)
    violations = sum(len(result.violations) for result in results)
    screen.print(
        f"{counts[HandoverEnd.GOES_ON]} go on, {counts[HandoverEnd.UNAVAILABLE]} unavailable, {violations} violations"
    )
    if json_file is not None:
        rows = [asdict(r) | {"name": str(r.trial), "violations": r.violations} for r in results]
        json_file.write_text(json.dumps({"seed": seed, "results": rows}, indent=2) + "\n", encoding="utf-8")
    return 1 if violations else 0


def _enter(trials: list[Trial]) -> str | None:
    """Enter the namespaces that partitions need, if there are any among the trials; why that is not possible."""
    if not any(trial.parts for trial in trials):
        return None
    return NamespacedNetwork.missing_tools() or enter_private_namespaces(network=True, images=False).no_network


def _is_chosen(trial: Trial, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatch(str(trial), pattern) for pattern in patterns)


async def _run(trials: list[Trial], seed: int, show: Callable[[TrialResult], None]) -> None:
    cases = sorted({trial.case for trial in trials})
    with tempfile.TemporaryDirectory(prefix="baton-") as directory:
        parted = any(trial.parts for trial in trials)
        try:
            async with handover_ground(Path(directory), seed, cases, parted=parted) as ground:
                for trial in trials:
                    show(await ground.do(trial))
        finally:
            # The files that network namespaces are bound to; else nothing of it can be deleted.
            detach_mounts_below(Path(directory))
