"""How many seeds find a mutant: `python -m tests.mutants servers never-stops --seeds 4 --mix leases --mix pauses`."""

import argparse
import sys

from batonpass.scenarios.simulation.kernel.show import run_and_show
from tests.mutants.runs import KINDS, SENTENCES, campaign_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("mutant", nargs="?", help="which one [default: list them]")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--mix", action="append")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--nodes", type=int, choices=(3, 5), help="of raft")
    flags = parser.parse_args()
    if flags.mutant is None:
        print(*(f"{name:32}{sentence}" for name, sentence in SENTENCES[flags.kind].items()), sep="\n")  # noqa: T201
        return 0
    if flags.mutant not in SENTENCES[flags.kind]:
        parser.error(f"there is no mutant {flags.mutant!r} of {flags.kind}")
    mixes = tuple(flags.mix or KINDS[flags.kind].mixes)
    options = {"nodes": flags.nodes} if flags.nodes else {}
    campaign = campaign_of(flags.kind, flags.mutant, mixes, flags.seeds, options, first=flags.first)
    return run_and_show(campaign, trace=flags.trace)


if __name__ == "__main__":
    sys.exit(main())
