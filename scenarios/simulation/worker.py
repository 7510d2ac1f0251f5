"""One process of a campaign: runs seeds one after the other, and prints a line of JSON about each.

    python -m scenarios.simulation.worker --system fence --mixes crashes,slow --from 0 --until 300 --nodes 3

A worker of the stock package must be a process of its own, because importing `tree` replaces attributes of PySyncObj's
modules: so the systems are imported by name, here, and nothing else that a worker imports knows either of them.
"""

import sys
from collections.abc import Callable

from batonpass.scenarios.simulation.cluster import System
from batonpass.scenarios.simulation.mixes import MIXES
from batonpass.scenarios.simulation.run import simulate
from batonpass.scenarios.simulation.share import parser_of, work

__all__ = ["main", "size_of", "system_named"]


def system_named(name: str, weakness: str = "") -> Callable[[], System]:
    """What makes the system under test: `fence` (or a weakened one), or `stock`."""
    if name == "stock":
        from batonpass.scenarios.simulation.stock import Stock

        return Stock
    if weakness:
        from batonpass.scenarios.simulation.weaknesses import WEAKNESSES

        return WEAKNESSES[weakness].fence
    from batonpass.scenarios.simulation.fence import Fence

    return Fence


def size_of(seed: int, nodes: int | None) -> int:
    """How many members this seed gets if that is left to it."""
    return nodes or (3, 5)[seed % 2]


def main(arguments: list[str]) -> None:
    """Run the seeds of each mix; one line each."""
    parser = parser_of("batonpass.scenarios.simulation.worker")
    parser.add_argument("--system", default="fence", choices=["fence", "stock"])
    parser.add_argument("--nodes", type=int)
    flags = parser.parse_args(arguments)
    make_system = system_named(flags.system, flags.weakness)
    work(flags, lambda mix, seed: simulate(make_system(), MIXES[mix], seed, size_of(seed, flags.nodes)))


if __name__ == "__main__":
    main(sys.argv[1:])
