"""Whole clusters of the pure machines from a seed: what must never happen does not, over some seeds of every fault mix.

`BATONPASS_SIMULATED_MACHINES` changes how many; a failure prints the command that replays its seed.
docs/reference/simulation-machines.md has what many came to.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from batonpass.authority.fence import Fence
from batonpass.scenarios.cli.main import run_command
from batonpass.scenarios.simulation.kernel.campaign import Campaign, MixResult, run_campaign
from batonpass.scenarios.simulation.kernel.show import run_and_show
from batonpass.scenarios.simulation.kernel.worker import MODULE
from batonpass.scenarios.simulation.machines.command import MACHINES
from batonpass.scenarios.simulation.machines.judge import MachineJudge
from batonpass.scenarios.simulation.machines.lives import MachineState
from batonpass.scenarios.simulation.machines.mixes import MIXES
from batonpass.scenarios.simulation.machines.parts import MachineParts
from batonpass.scenarios.simulation.machines.rows import CheckedRows
from batonpass.scenarios.simulation.machines.run import simulate
from tests.budget import DEEP, WORKERS
from tests.mutants.machines import MUTANTS
from tests.mutants.runs import campaign_of

SEEDS = int(os.environ.get("BATONPASS_SIMULATED_MACHINES", "1"))
ENOUGH = 8
# Run in two processes, and judged there: not again in a campaign of one seed.
TWICE = ("everything", "deaths")


@pytest.mark.timeout(900)
async def test_no_seed_of_a_mix_breaks_a_promise() -> None:
    results: dict[str, MixResult] = {}
    mixes = tuple(mix for mix in MACHINES.mixes if DEEP or SEEDS > 1 or mix not in TWICE)
    await run_campaign(Campaign(MACHINES, mixes, SEEDS, workers=WORKERS), results)
    for mix, result in results.items():
        assert result.runs == SEEDS
        again = "\n".join(f"{one.kind}: {one.sentence}; again: {one.replay}" for one in result.found)
        assert not result.violated, again
        # It must have done something worth judging.
        for case in ("case_1", "case_2", "case_3"):
            assert result.figures[case] > 10 * result.runs, (mix, case)
        assert result.figures["inputs"] > 200 * result.runs, mix
        if MIXES[mix].leases:
            assert result.figures["takeovers"] > 5 * result.runs, mix


@pytest.mark.timeout(300)
def test_a_seed_is_the_same_run_in_every_process_and_under_every_hash_seed() -> None:
    def output(hash_seed: str) -> str:
        flags = ["--run", MACHINES.run, "--mixes", ",".join(TWICE), "--from", "2", "--until", "3"]
        arguments = [sys.executable, "-m", MODULE, *flags]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout

    first = output("1")
    assert [json.loads(line)["violations"] for line in first.splitlines()] == [[]] * len(TWICE)
    assert first.count('"trace"') == len(TWICE)
    assert first == output("2")


def test_a_seed_is_the_same_run_twice_in_one_process_and_another_seed_is_another() -> None:
    first = simulate(MIXES["log"], 3)
    assert simulate(MIXES["log"], 3) == first
    assert simulate(MIXES["log"], 4).trace != first.trace


def test_no_procedure_changes_a_row_that_it_was_given() -> None:
    """Rows go by reference here: who changed one would change the log behind everybody's back."""
    small = replace(MIXES["deaths"], entities=10, moves=60.0, delegations=30.0)
    run = simulate(small, 0, MachineParts(rows=CheckedRows))
    assert run.violations == ()
    assert run.takeovers > 0


# Of each, a mix of which many seeds find it, so that whatever changes the runs, one of the first does.
FOUND = {
    "activates-at-once": "lossy",
    "acts-for-another-life": "crashes",
    "answers-once": "lossy",
    "asks-before-staged": "log",
    "asks-once": "log",
    "commits-for-anybody": "lossy",
    "deletes-at-commit": "log",
    "deletes-before-commit": "log",
    "forgets-on-arrival": "log",
    "goes-on-after-freezing": "log",
    "hasty-granter": "leases",
    "keeps-its-entities": "leases",
    "never-stops": "leases",
    "refuses-without-raising": "log",
    "resumes-on-timeout": "log",
    "resumes-without-the-log": "lossy",
    "stale-certificates": "lossy",
}


# From which seed on, where those before it do not find it, or late in a run.
FIRST = {"hasty-granter": 2}


@pytest.mark.parametrize("name", FOUND)
def test_a_guard_that_is_taken_away_is_missed(name: str) -> None:
    first = FIRST.get(name, 0)
    runs = (simulate(MIXES[FOUND[name]], seed, MUTANTS[name].parts) for seed in range(first, first + ENOUGH))
    assert any(run.violations for run in runs)


def test_seeds_without_a_violation_are_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    assert run_command(["simulate", "machines", "--seeds", "2", "--mix", "log", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "log" in printed
    assert "transfers per second of wall time" in printed
    report = json.loads(file.read_text())
    assert report["transfers_per_s"] > 0
    (result,) = report["mixes"]
    assert (result["mix"], result["runs"], result["violated"]) == ("log", 2, 0)
    assert result["moves"] == result["case_1"] + result["case_2"] + result["case_3"] > 0


def test_what_was_lost_with_a_state_that_was_called_durable_is_noticed() -> None:
    judge = MachineJudge(lambda server, entity: False, lambda line: None, has_leases=True)
    judge.created("alpha.e1", "alpha.s1", Fence(1))
    judge.begins("alpha.e1", "alpha.s1", Fence(1), MachineState())
    later = MachineState().taken_up("alpha.s1")
    judge.changes("alpha.e1", "alpha.s1", Fence(1), later)
    judge.kept("alpha.e1", Fence(1), later.tick, 0)
    judge.died("alpha.s1")
    judge.given("alpha.e1", "", Fence(2))
    judge.lost("alpha.e1")
    assert [one.kind for one in judge.violations] == ["lost"]
    judge.given("alpha.e1", "alpha.s2", Fence(3))
    judge.takes_over("alpha.e1", "alpha.s2", Fence(3), MachineState())
    assert [one.kind for one in judge.violations] == ["lost", "durable-state"]


def test_who_takes_over_an_earlier_state_than_the_last_of_somebody_alive_is_noticed() -> None:
    judge = MachineJudge(lambda server, entity: False, lambda line: None, has_leases=True)
    judge.created("alpha.e1", "alpha.s1", Fence(1))
    judge.begins("alpha.e1", "alpha.s1", Fence(1), MachineState())
    judge.changes("alpha.e1", "alpha.s1", Fence(1), MachineState().taken_up("alpha.s1"))
    judge.given("alpha.e1", "alpha.s2", Fence(2))
    judge.takes_over("alpha.e1", "alpha.s2", Fence(2), MachineState())
    assert [one.kind for one in judge.violations] == ["state"]


def test_a_violation_is_a_failure_and_tells_how_to_see_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_and_show(campaign_of("machines", "deletes-at-commit", ("log",), 1), trace=True) == 1
    printed = capsys.readouterr().out
    assert "python -m tests.mutants machines deletes-at-commit --mix log --from 0 --seeds 1 --trace" in printed
    assert "violated: lost" in printed  # of the trace


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_a_server_without_a_lease_has_set_aside_is_there_until_it_is_killed(*, is_killed: bool) -> None:
    """So an old authority may drop the same state, which it stood still with (`leases` 104)."""
    judge = MachineJudge(lambda server, entity: False, lambda line: None, has_leases=True)
    judge.created("alpha.e1", "alpha.s1", Fence(1))
    judge.begins("alpha.e1", "alpha.s1", Fence(1), MachineState())
    judge.given("alpha.e1", "alpha.s2", Fence(2))
    judge.takes_over("alpha.e1", "alpha.s2", Fence(2), MachineState())
    judge.sets_aside("alpha.e1", "alpha.s2")
    if is_killed:
        judge.killed("alpha.s2")
    judge.leaves("alpha.e1", "alpha.s1")
    assert [one.kind for one in judge.violations] == ["lost"] * is_killed
