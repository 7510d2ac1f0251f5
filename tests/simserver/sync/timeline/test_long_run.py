"""Histories changed at random are those of a naive replay, under each hash seed (T3, T16); `long_run` does more."""

import os
import subprocess
import sys

import pytest

from tests.simserver.sync.timeline.long_run import ChangedAtRandom


@pytest.mark.parametrize("seed", range(40))
def test_t3_a_history_that_was_changed_at_random_is_that_of_a_naive_replay(seed: int) -> None:
    ChangedAtRandom(seed).run(24)


def test_t16_the_bytes_of_histories_do_not_depend_on_the_hash_seed() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simserver.sync.timeline.long_run", "--seeds", "8", "--shared", "1"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    told = [process.communicate()[0] for process in running]
    assert told[0] == told[1]
    assert told[0].startswith("8 histories and 1 shared ones: ")
