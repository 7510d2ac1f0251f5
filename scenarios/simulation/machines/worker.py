"""One process of a campaign of machines: runs seeds one after the other, and prints a line of JSON about each.

python -m scenarios.simulation.machines.worker --mixes cuts,pauses --from 0 --until 100
"""

import sys

from batonpass.scenarios.simulation.machines.mixes import MIXES
from batonpass.scenarios.simulation.machines.run import simulate
from batonpass.scenarios.simulation.machines.weaknesses import WEAKNESSES
from batonpass.scenarios.simulation.share import parser_of, work

__all__ = ["MODULE", "main"]

MODULE = "batonpass.scenarios.simulation.machines.worker"


def main(arguments: list[str]) -> None:
    """Run the seeds of each mix; one line each."""
    flags = parser_of(MODULE).parse_args(arguments)
    parts = WEAKNESSES[flags.weakness].parts if flags.weakness else None
    work(flags, lambda mix, seed: simulate(MIXES[mix], seed, parts))


if __name__ == "__main__":
    main(sys.argv[1:])
