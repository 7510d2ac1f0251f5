"""`baton simulate transfers-search`: read the flags, search every scope, show how much was seen and what breaks."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from batonpass.scenarios.common.ending import status_of_the_end
from batonpass.scenarios.common.options import json_file_option
from batonpass.scenarios.report.files import write_atomically
from batonpass.scenarios.simulation.search.handover import Handovers, SearchBounds
from batonpass.scenarios.simulation.search.host import SearchParts
from batonpass.scenarios.simulation.search.search import Search, SearchViolation, TooManyStates

__all__ = ["SCOPES", "Searched", "command", "search_and_show", "search_scope"]

# What is searched unless said otherwise: each is small enough to be searched in seconds, and each goes deep somewhere.
SCOPES: Final[Mapping[str, SearchBounds]] = MappingProxyType(
    {
        "one-home": SearchBounds(inputs=0),
        "two-homes": SearchBounds(homes="two-homes", repeats=0, inputs=0),
        "direct": SearchBounds(repeats=0, inputs=0, delegated=True),
        "refusals": SearchBounds(losses=0, repeats=1, inputs=0, refusals=True),
        "inputs": SearchBounds(transfers=1, losses=1, repeats=0, inputs=2),
        "staged": SearchBounds(repeats=0, inputs=0, staged=True),
        "staged-crash": SearchBounds(transfers=1, losses=1, repeats=0, inputs=0, crashes=1, staged=True),
        "staged-direct": SearchBounds(transfers=1, losses=1, repeats=0, inputs=1, delegated=True, staged=True),
        "crash": SearchBounds(repeats=0, inputs=0, crashes=1),
        "lives": SearchBounds(transfers=1, repeats=0, inputs=0, crashes=2, leases=True, stale_ledger=True),
        "lives-direct": SearchBounds(
            transfers=1, losses=0, repeats=0, inputs=0, crashes=2, delegated=True, leases=True, stale_ledger=True
        ),
        "late-orders": SearchBounds(losses=0, inputs=0, crashes=1, delegated=True, only_direct=True, leases=True),
    }
)
_BUDGETS: Final = ("transfers", "losses", "repeats", "crashes", "inputs")
_MIN_WIDTH: Final = 110


@dataclass(frozen=True, slots=True)
class Searched:
    """One scope, searched."""

    scope: str
    bounds: SearchBounds
    states: int
    transitions: int
    depth: int
    violation: SearchViolation | None
    seconds: float

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        violation = None if self.violation is None else self.violation.to_data()
        return {
            "scope": self.scope,
            "bounds": asdict(self.bounds),
            "states": self.states,
            "transitions": self.transitions,
            "depth": self.depth,
            "violation": violation,
            "seconds": round(self.seconds, 3),
        }


def search_scope(
    scope: str,
    bounds: SearchBounds,
    parts: SearchParts | None = None,
    *,
    max_states: int = 5_000_000,
    progress: Callable[[int, int, int], None] | None = None,
) -> Searched:
    """Search one scope to its end, or to the first violation.

    Raises:
        TooManyStates: it is larger than `max_states`.
    """
    begun_s = time.monotonic()
    search = Search(Handovers(bounds, parts), max_states=max_states, progress=progress)
    violation = search.run()
    seconds = time.monotonic() - begun_s
    return Searched(scope, bounds, search.states, search.transitions, search.depth, violation, seconds)


@click.command(name="transfers-search", short_help="Every state that a small model of the hand-over can reach.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(list(SCOPES)),
    help="Only this one; can be repeated. [default: all]",
)
@click.option("--transfers", type=click.IntRange(0, 9), help="Orders to move the entity. [default: the scope's]")
@click.option("--losses", type=click.IntRange(0, 9), help="Messages that never arrive. [default: the scope's]")
@click.option("--repeats", type=click.IntRange(0, 9), help="Messages that arrive again. [default: the scope's]")
@click.option("--crashes", type=click.IntRange(0, 9), help="Servers killed and restarted. [default: the scope's]")
@click.option("--inputs", type=click.IntRange(0, 9), help="Inputs of one player. [default: the scope's]")
@click.option("--stale-ledger", is_flag=True, help="A crash may take a server's last note with it.")
@click.option("--max-states", type=click.IntRange(1), default=5_000_000, help="Give up beyond. [default: 5000000]")
@json_file_option()
def command(**flags: Any) -> int:
    """Visit every state that one entity on three servers can reach, and judge each step.

    Messages may arrive in any order, timers may fire at any time, and a budget of losses, repetitions and crashes may
    be spent anywhere. Never are there two authorities, never does a state go backwards. No acknowledged input is lost
    or applied twice, and no server deletes a state that no other simulates. From every state there is a way to exactly
    one authority. A violation is printed as the shortest way to it, and the exit status is 1.

    \b
    Examples:
      baton simulate transfers-search
      baton simulate transfers-search --scope two-homes --repeats 1
    """
    searches = {name: _bounds(SCOPES[name], flags) for name in flags["scopes"] or SCOPES}
    return search_and_show(searches, max_states=flags["max_states"], json_file=flags["json_file"])


def _bounds(bounds: SearchBounds, flags: dict[str, Any]) -> SearchBounds:
    changes = {name: flags[name] for name in _BUDGETS if flags[name] is not None}
    return replace(bounds, **changes, stale_ledger=flags["stale_ledger"] or bounds.stale_ledger)


def search_and_show(
    searches: Mapping[str, SearchBounds],
    parts: SearchParts | None = None,
    *,
    max_states: int,
    json_file: Path | None = None,
) -> int:
    """Search each scope and print what came of it. The exit status.

    1 if anything was violated, 130 if Ctrl-C ended it, 143 if SIGTERM did, 2 if a scope is larger than `max_states`,
    else 0.
    """
    results: list[Searched] = []
    too_many: list[str] = []
    interrupted = False
    for name, bounds in searches.items():
        try:
            progress = _progress(name)
            results.append(search_scope(name, bounds, parts, max_states=max_states, progress=progress))
        except TooManyStates as error:
            too_many.append(f"{name}: {error}")
        except KeyboardInterrupt:
            interrupted = True
            break
    _show(results)
    for line in too_many:
        click.echo(line, err=True)
    if json_file is not None:
        data = {"interrupted": interrupted, "scopes": [result.to_data() for result in results], "unfinished": too_many}
        write_atomically(json_file, json.dumps(data, indent=2) + "\n")
    sys.stdout.flush()
    if any(result.violation for result in results):
        return 1
    if interrupted:
        return status_of_the_end()
    return 2 if too_many else 0


def _progress(scope: str) -> Callable[[int, int, int], None] | None:
    """Tell a terminal how far the search has come."""
    if not sys.stderr.isatty():
        return None

    def progress(states: int, transitions: int, depth: int) -> None:
        click.echo(f"\r{scope}: {states:,} states, {transitions:,} transitions, depth {depth} ", err=True, nl=False)

    return progress


def _show(results: list[Searched]) -> None:
    screen = Console()
    if screen.width < _MIN_WIDTH:
        screen = Console(width=_MIN_WIDTH)
    if sys.stderr.isatty():
        click.echo(err=True)
    table = Table(title="every reachable state", title_justify="left")
    table.add_column("scope")
    for title in ("states", "transitions", "depth", "violations", "seconds"):
        table.add_column(title, justify="right")
    table.add_column("bounds")
    for result in results:
        bounds = ", ".join(f"{name} {value}" for name in _BUDGETS if (value := getattr(result.bounds, name)))
        table.add_row(
            result.scope,
            f"{result.states:,}",
            f"{result.transitions:,}",
            str(result.depth),
            "1" if result.violation else "0",
            f"{result.seconds:.1f}",
            bounds,
            style="red" if result.violation else "",
        )
    screen.print(table)
    for result in results:
        if result.violation is not None:
            click.echo(f"{result.scope}: {result.violation.kind}: {result.violation.sentence}")
            click.echo("\n".join(f"    {line}" for line in result.violation.transcript))
