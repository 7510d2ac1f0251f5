"""One worker's share of a campaign: its flags, and a line of JSON on stdout for every seed that it has run."""

import argparse
import gc
import json
import resource
import sys
from collections.abc import Callable
from typing import Final

from batonpass.scenarios.cluster.subreaper import die_with_parent
from batonpass.scenarios.simulation.outcome import Outcome

__all__ = ["parser_of", "work"]

# A run takes some ten megabytes; a system under test that goes in circles takes everything.
_MEMORY_BYTES: Final = 2 << 30
# What so many runs leave behind is thrown away at once.
_RUNS_KEPT: Final = 4


def parser_of(module: str) -> argparse.ArgumentParser:
    """The flags that every worker takes."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--weakness", default="")
    parser.add_argument("--mixes", required=True)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--until", type=int, required=True)
    parser.add_argument("--share", type=int, default=0, help="run only this share of the seeds...")
    parser.add_argument("--shares", type=int, default=1, help="...of so many")
    parser.add_argument("--lines", action="store_true", help="add the end of the trace of a violation")
    parser.add_argument("--parent-pipe", action="store_true", help="end when stdin, a pipe held by the parent, closes")
    return parser


def work(flags: argparse.Namespace, simulate: Callable[[str, int], Outcome]) -> None:
    """Run the seeds of each mix, and print one line each. `simulate` is told a mix and a seed.

    Each seed of every mix comes before the next seed, so that a campaign that is ended early has run all of them.
    """
    if flags.parent_pipe:
        die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # What was imported stays, and what a run leaves behind is gone with its cluster: looking through all of it every
    # few thousand objects finds nothing, and takes a tenth of the time.
    gc.freeze()
    gc.disable()
    runs = 0
    for seed in range(flags.first, flags.until):
        for place, mix in enumerate(flags.mixes.split(",")):
            # Two by two, because odd seeds of some subjects take longer.
            if (seed // 2 + place) % flags.shares != flags.share:
                continue
            outcome = simulate(mix, seed)
            data = outcome.to_data()
            if flags.lines:
                data["lines"] = outcome.lines
            sys.stdout.write(json.dumps(data) + "\n")
            sys.stdout.flush()
            runs += 1
            if runs % _RUNS_KEPT == 0:
                gc.collect()
