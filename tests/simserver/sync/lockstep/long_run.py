"""No alarm in many equal ticks, and every divergence explained: `python -m tests.simserver.sync.lockstep.long_run`."""

import argparse
import sys
import time
from collections import Counter

from tests.simserver.sync.lockstep.divergences import diverge
from tests.simserver.sync.lockstep.equal_ticks import AlarmRaised, run_equal
from tests.simserver.sync.lockstep.lossy_room import Counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simserver.sync.lockstep.long_run", description=__doc__)
    parser.add_argument("--ticks", type=int, default=1_000_000, help="client-ticks that have another client's hash")
    parser.add_argument("--divergences", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    is_quiet = _equal(flags.seed, flags.ticks)
    are_explained = _divergences(flags.seed, flags.divergences)
    return 0 if is_quiet and are_explained else 1


def _equal(seed: int, ticks: int) -> bool:
    began_s, shown_s = time.monotonic(), 0.0

    def tell(counts: Counts, *, now: bool = False) -> None:
        nonlocal shown_s
        elapsed_s = time.monotonic() - began_s
        if now or elapsed_s - shown_s >= 10.0:
            shown_s = elapsed_s
            rate = counts.equal / max(elapsed_s, 0.001)
            _say(f"{counts.equal:>9,} of {ticks:,} equal client-ticks, {rate:,.0f}/s")

    try:
        counts = run_equal(seed, ticks, told=tell)
    except AlarmRaised as alarm:
        _say(f"ALARM  {alarm}")
        return False
    tell(counts, now=True)
    _say(f"no alarm; {counts}")
    return True


def _divergences(seed: int, wanted: int) -> bool:
    found: Counter[str] = Counter()
    for number in range(seed, seed + wanted):
        finding = diverge(number)
        found["tick"] += finding.tick_is_right
        found["field"] += finding.field_is_named
        found["draw or write"] += finding.act_is_named
        found["all of them"] += finding.is_whole
        if not finding.is_whole:
            _say(f"seed {number}, {finding.kind.__name__} at {finding.at}, told {finding.told}: {finding.report}")
    for what, count in found.items():
        _say(f"{count:>9,} of {wanted:,} divergences: {what}")
    return found["all of them"] == wanted


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
