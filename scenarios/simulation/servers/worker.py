"""One process of a campaign of servers: runs seeds one after the other, and prints a line of JSON about each.

python -m scenarios.simulation.servers.worker --mixes cuts,pauses --from 0 --until 100
"""

import logging
import sys

from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.run import simulate
from batonpass.scenarios.simulation.servers.weaknesses import WEAKNESSES
from batonpass.scenarios.simulation.share import parser_of, work

__all__ = ["MODULE", "main"]

MODULE = "batonpass.scenarios.simulation.servers.worker"


def main(arguments: list[str]) -> None:
    """Run the seeds of each mix; one line each."""
    flags = parser_of(MODULE).parse_args(arguments)
    # Servers tell their operators of everything that goes wrong, and here that is all that happens.
    logging.disable()
    parts = WEAKNESSES[flags.weakness].parts if flags.weakness else None
    work(flags, lambda mix, seed: simulate(MIXES[mix], seed, parts))


if __name__ == "__main__":
    main(sys.argv[1:])
