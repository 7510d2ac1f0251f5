"""Whole clusters from a seed: what must never happen does not, over some seeds of every fault mix.

`BATONPASS_SIMULATED_SEEDS` changes how many; a failure prints the command that replays its seed.
"""

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from batonpass.scenarios.simulation.kernel.campaign import Campaign, MixResult, run_campaign
from batonpass.scenarios.simulation.kernel.worker import MODULE
from batonpass.scenarios.simulation.tree.command import RAFT
from batonpass.scenarios.simulation.tree.fence import RaftFence
from batonpass.scenarios.simulation.tree.mixes import MIXES
from batonpass.scenarios.simulation.tree.run import simulate
from tests.budget import WORKERS, examples
from tests.mutants.tree import MUTANTS

SEEDS = int(os.environ.get("BATONPASS_SIMULATED_SEEDS", examples(12, fewest=4)))


@pytest.mark.timeout(900)
async def test_no_seed_of_a_mix_breaks_a_promise() -> None:
    results: dict[str, MixResult] = {}
    # In one campaign: the workers of each would import all that they run anew.
    await run_campaign(Campaign(RAFT, tuple(MIXES), SEEDS, workers=WORKERS), results)
    assert set(results) == set(MIXES)
    for mix, result in results.items():
        assert result.runs == SEEDS
        again = "\n".join(f"{one.kind}: {one.sentence}; again: {one.replay}" for one in result.found)
        assert not result.violated, again
        # It must have done something worth judging.
        assert result.figures["acknowledged"] > 50 * result.runs, mix
        assert result.figures["elections"] > 1.2 * result.runs, mix
        assert result.figures["reads"] > 5 * result.runs, mix


SOME_MIXES = ("crashes", "slow", "everything")


def worker_output(*flags: str, environment: Mapping[str, str]) -> str:
    arguments = [sys.executable, "-m", MODULE, "--run", RAFT.run, *flags]
    done = subprocess.run(arguments, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_seed_is_the_same_run_in_every_process_and_under_every_hash_seed() -> None:
    flags = ("--mixes", ",".join(SOME_MIXES), "--from", "2", "--until", "4")
    first = worker_output(*flags, environment={"PYTHONHASHSEED": "1"})
    second = worker_output(*flags, environment={"PYTHONHASHSEED": "2"})
    assert first.count('"trace"') == 2 * len(SOME_MIXES)
    assert first == second


# Of each, a mix that finds it, from which seed on and within how many; how many find it there is in
# docs/reference/simulation.md. What few runs find moves to other seeds with every change of what is sent: those are
# told step by step, in test_simulation_transcripts.py.
FOUND = {
    "eager-truncation": ("slow", 0, 10),
    "lying-disk": ("crashes", 0, 10),
    "reads-without-round": ("small-batches", 0, 20),
    "applies-again": ("slow", 0, 4),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_guard_that_is_taken_away_is_missed(name: str) -> None:
    mix, first, count = FOUND[name]
    seeds = range(first, first + count)
    outcomes = (simulate(MUTANTS[name].fence(), MIXES[mix], seed, (3, 5)[seed % 2]) for seed in seeds)
    assert any(outcome.violations for outcome in outcomes)


def test_an_outcome_tells_what_happened_and_its_lines_only_when_something_was_violated() -> None:
    fine = simulate(RaftFence(), MIXES["crashes"], 1, 3)
    assert not fine.violations
    assert fine.crashes
    assert fine.lines == ()
    bad = simulate(MUTANTS["applies-again"].fence(), MIXES["slow"], 0, 3)
    assert bad.violations
    assert bad.lines
    assert bad.to_data()["violations"][0][0] == bad.violations[0].kind
