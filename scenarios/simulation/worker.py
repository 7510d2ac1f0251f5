"""One process of a campaign: runs seeds one after the other, and prints a line of JSON about each.

python -m scenarios.simulation.worker --mixes crashes,slow --from 0 --until 300 --nodes 3
"""

import sys
from collections.abc import Callable

from batonpass.scenarios.simulation.cluster import System
from batonpass.scenarios.simulation.fence import Fence
from batonpass.scenarios.simulation.mixes import MIXES
from batonpass.scenarios.simulation.run import simulate
from batonpass.scenarios.simulation.share import parser_of, work
from batonpass.scenarios.simulation.weaknesses import WEAKNESSES

__all__ = ["main", "size_of", "system_named"]


def system_named(weakness: str) -> Callable[[], System]:
    """What makes the system under test: the fence, or a weakened one."""
    return WEAKNESSES[weakness].fence if weakness else Fence


def size_of(seed: int, nodes: int | None) -> int:
    """How many members this seed gets if that is left to it."""
    return nodes or (3, 5)[seed % 2]


def main(arguments: list[str]) -> None:
    """Run the seeds of each mix; one line each."""
    parser = parser_of("batonpass.scenarios.simulation.worker")
    parser.add_argument("--nodes", type=int)
    flags = parser.parse_args(arguments)
    make_system = system_named(flags.weakness)
    work(flags, lambda mix, seed: simulate(make_system(), MIXES[mix], seed, size_of(seed, flags.nodes)))


if __name__ == "__main__":
    main(sys.argv[1:])
