"""One process of a campaign: runs seeds one after the other, and prints a line of JSON about each.

    python -m scenarios.simulation.worker --system fence --mixes crashes,slow --from 0 --until 300 --nodes 3

A worker of the stock package must be a process of its own, because importing `tree` replaces attributes of PySyncObj's
modules: so the systems are imported by name, here, and nothing else that a worker imports knows either of them.
"""

import argparse
import json
import resource
import sys
from collections.abc import Callable
from typing import Final

from scenarios.orphans import die_with_parent
from scenarios.simulation.cluster import System
from scenarios.simulation.mixes import MIXES
from scenarios.simulation.run import simulate

__all__ = ["main", "size_of", "system_named"]

# A run takes some ten megabytes; a system under test that goes in circles takes everything.
_MEMORY_BYTES: Final = 2 << 30


def system_named(name: str, weakness: str = "") -> Callable[[], System]:
    """What makes the system under test: `fence` (or a weakened one), or `stock`."""
    if name == "stock":
        from scenarios.simulation.stock import Stock

        return Stock
    if weakness:
        from scenarios.simulation.weaknesses import WEAKNESSES

        return WEAKNESSES[weakness].fence
    from scenarios.simulation.fence import Fence

    return Fence


def size_of(seed: int, nodes: int | None) -> int:
    """How many members this seed gets if that is left to it."""
    return nodes or (3, 5)[seed % 2]


def main(arguments: list[str]) -> None:
    """Run the seeds of each mix; one line each."""
    parser = argparse.ArgumentParser(prog="python -m scenarios.simulation.worker")
    parser.add_argument("--system", default="fence", choices=["fence", "stock"])
    parser.add_argument("--weakness", default="")
    parser.add_argument("--mixes", required=True)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--until", type=int, required=True)
    parser.add_argument("--share", type=int, default=0, help="run only this share of the seeds...")
    parser.add_argument("--shares", type=int, default=1, help="...of so many")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--lines", action="store_true", help="add the end of the trace of a violation")
    parser.add_argument("--parent-pipe", action="store_true", help="end when stdin, a pipe held by the parent, closes")
    flags = parser.parse_args(arguments)
    if flags.parent_pipe:
        die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    make_system = system_named(flags.system, flags.weakness)
    for mix in flags.mixes.split(","):
        for seed in range(flags.first, flags.until):
            # Two by two, because odd seeds have more members, and take longer.
            if seed // 2 % flags.shares != flags.share:
                continue
            outcome = simulate(make_system(), MIXES[mix], seed, size_of(seed, flags.nodes))
            data = outcome.to_data()
            if flags.lines:
                data["lines"] = outcome.lines
            sys.stdout.write(json.dumps(data) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
