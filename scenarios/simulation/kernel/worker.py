"""One process of a campaign: runs its share of the seeds, and prints a line of JSON about each.

python -m batonpass.scenarios.simulation.kernel.worker --run MODULE:FUNCTION --mixes crashes,slow --from 0 --until 300
"""

import argparse
import gc
import json
import logging
import resource
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, cast

from batonpass.scenarios.cluster.subreaper import die_with_parent
from batonpass.scenarios.simulation.kernel.outcome import RunOutcome

__all__ = ["MODULE", "main"]

MODULE: Final = "batonpass.scenarios.simulation.kernel.worker"
# A run takes some ten megabytes; a system under test that goes in circles takes everything.
_MEMORY_BYTES: Final = 2 << 30
# After how many runs what they leave behind is thrown away at once.
_RUNS_KEPT: Final = 4


def main(arguments: list[str]) -> None:
    """Run the seeds of each mix, and print one line each.

    Each seed of every mix comes before the next seed, so that a campaign that is ended early has run all of them.
    """
    flags = _parser().parse_args(arguments)
    if flags.parent_pipe:
        die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # Servers tell their operators of everything that goes wrong, and here that is all that happens.
    logging.disable()
    run = _run_named(flags.run)
    # What was imported stays, and what a run leaves behind is gone with its cluster. A collection every few thousand
    # objects finds nothing, and takes a tenth of the time.
    gc.freeze()
    gc.disable()
    runs = 0
    for seed in range(flags.first, flags.until):
        for place, mix in enumerate(flags.mixes.split(",")):
            # Two by two, because odd seeds of some subjects take longer.
            if (seed // 2 + place) % flags.shares != flags.share:
                continue
            outcome = run(mix, seed, **flags.options)
            data = outcome.to_data()
            if flags.lines:
                data["lines"] = outcome.lines
            sys.stdout.write(json.dumps(data) + "\n")
            sys.stdout.flush()
            runs += 1
            if runs % _RUNS_KEPT == 0:
                gc.collect()


def _run_named(name: str) -> Callable[..., RunOutcome]:
    module, _, function = name.partition(":")
    return cast(Callable[..., RunOutcome], getattr(import_module(module), function))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}")
    add: Callable[..., Any] = parser.add_argument
    add("--run", required=True, metavar="MODULE:FUNCTION", help="what runs a seed: is called with a mix and a seed")
    add("--options", type=json.loads, default={}, metavar="JSON", help="what it is called with beside these")
    add("--mixes", required=True)
    add("--from", dest="first", type=int, default=0)
    add("--until", type=int, required=True)
    add("--share", type=int, default=0, help="run only this share of the seeds...")
    add("--shares", type=int, default=1, help="...of how many")
    add("--lines", action="store_true", help="add the end of the trace of a violation")
    add("--parent-pipe", action="store_true", help="end when stdin, a pipe held by the parent, closes")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
