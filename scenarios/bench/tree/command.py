"""`baton bench tree`: read the flags, run, show."""

from functools import partial
from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console

from batonpass.scenarios.bench.rows import RowSpec, rows_of
from batonpass.scenarios.bench.tree.profiling import MemberProfile, render_profile
from batonpass.scenarios.bench.tree.run import TreeBenchPlan, run_bench, run_profiles
from batonpass.scenarios.bench.tree.table import render
from batonpass.scenarios.bench.workloads import BenchWorkload
from batonpass.scenarios.common.options import FiniteRange, json_file_option

__all__ = ["command"]

# What the table needs; a narrower terminal folds lines.
_MIN_WIDTH = 160
_FULL = {"rounds": 5, "seconds": 1.5, "faults": 8, "nodes": 1_000_000}
_QUICK = {"rounds": 1, "seconds": 0.4, "faults": 2, "nodes": 10_000}
_FEW_NODES = 1_000
_SOME_NODES = 100_000
# Below, the three trees would not differ enough to compare.
_LEAST_NODES = 10_000


@click.command(name="tree", short_help="The replicated tree against etcd, on this machine.")
@json_file_option()
@click.option("--quick", is_flag=True, help="One short round: under a minute, and noisy.")
@click.option(
    "--only", multiple=True, metavar="NAME", help="Only this row, or all that begin like this; can be repeated."
)
@click.option("--list", "list_rows", is_flag=True, help="List the rows, and end.")
@click.option("--without-etcd", is_flag=True, help="Measure only batonpass.")
@click.option("--rounds", type=click.IntRange(1, 100), help="How often each workload is measured. [default: 5]")
@click.option("--seconds", type=FiniteRange(0.1, 60.0), help="How long each time. [default: 1.5]")
@click.option("--faults", type=click.IntRange(1, 100), help="How often the leader fails, per kind. [default: 8]")
@click.option(
    "--nodes", type=click.IntRange(_LEAST_NODES), help="How many nodes, in the rows about nodes. [default: 1,000,000]"
)
@click.option("--profile", is_flag=True, help="Instead of measuring, show where the time goes in each workload.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=Path("/var/tmp"),  # noqa: S108 - only a fresh, private directory is made in it
    help="On the disk to be measured; a new directory is made there. [default: /var/tmp]",
)
def command(**flags: Any) -> int:
    """Measure the replicated tree, and etcd beside it in the same run.

    Three members of each run on loopback, with fdatasync and mutual TLS. Absolute figures say more about the machine
    than about the programs; the ratios are what counts. The exit status is 1 when a demand is missed.
    """
    plan = _plan(flags)
    if flags["list_rows"]:
        for row in plan.rows:
            click.echo(f"{row.name:32}{row.title}")
        return 0
    progress, screen = Console(stderr=True), Console()
    if screen.width < _MIN_WIDTH:
        screen = Console(width=_MIN_WIDTH)

    def tell(sentence: str) -> None:
        progress.print(sentence, style="dim", highlight=False, soft_wrap=True)

    if flags["profile"]:
        show = partial(_show_profile, screen)
        trio.run(run_profiles, plan, flags["directory"], tell, show)
        return 0
    report = trio.run(run_bench, plan, flags["directory"], tell)
    screen.print(render(report))
    if flags["json_file"] is not None:
        flags["json_file"].write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return 0 if report.passed else 1


def _show_profile(screen: Console, workload: BenchWorkload, members: list[MemberProfile]) -> None:
    screen.print(render_profile(workload, members))


def _plan(flags: dict[str, Any]) -> TreeBenchPlan:
    chosen = _QUICK if flags["quick"] else _FULL
    chosen = {name: chosen[name] if flags[name] is None else flags[name] for name in chosen}
    nodes = int(chosen["nodes"])
    node_counts = (_FEW_NODES, min(_SOME_NODES, nodes // 2), nodes)
    rows = _chosen_rows(rows_of(node_counts), flags["only"])
    return TreeBenchPlan(
        rows,
        rounds=int(chosen["rounds"]),
        seconds=float(chosen["seconds"]),
        faults=int(chosen["faults"]),
        node_counts=node_counts,
        with_etcd=not flags["without_etcd"],
    )


def _chosen_rows(rows: tuple[RowSpec, ...], patterns: tuple[str, ...]) -> tuple[RowSpec, ...]:
    """The rows with these names, or, where no row has the name, those whose names begin like that; all without any."""
    names = {row.name for row in rows}
    chosen = set()
    for pattern in patterns:
        found = {pattern} & names or {name for name in names if name.startswith(pattern)}
        if not found:
            raise click.UsageError(f"no row is called, or begins with, {pattern!r}; --list shows them all")
        chosen |= found
    return tuple(row for row in rows if not patterns or row.name in chosen)
