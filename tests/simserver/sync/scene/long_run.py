"""`python -m tests.simserver.sync.scene.long_run`: more late joiners and failures than the suite has time for.

What does not end as it has to raises; its seed is in what is raised, or in the line before it.
"""

import argparse

from tests.simserver.sync.scene.test_hydration import late_joiner
from tests.simserver.sync.scene.test_schedule import fail_anywhere


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--joiners", type=int, default=1_000, help="late joiners, each with a seed of its own")
    parser.add_argument("--failures", type=int, default=10_000, help="failures at any point of a batch")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    asked = parser.parse_args()
    _say(f"{asked.joiners} late joiners from seed {asked.seed} on")
    for seed in range(asked.seed, asked.seed + asked.joiners):
        late_joiner(seed)
    _say(f"{asked.failures} failures from seed {asked.seed}")
    fail_anywhere(asked.failures, asked.seed)
    _say("all ended as they had to")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
