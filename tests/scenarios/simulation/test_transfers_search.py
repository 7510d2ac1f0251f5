"""Every state that a hand-over can reach: no promise is broken in any, and broken guards are noticed."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from batonpass.scenarios.cli.main import run_command
from batonpass.scenarios.simulation.search.command import SCOPES, search_and_show, search_scope
from batonpass.scenarios.simulation.search.handover import SearchBounds
from batonpass.scenarios.simulation.search.search import SearchViolation
from tests.collected import ROOT
from tests.mutants.search import MUTANTS, Mutant

SIMULATION_PAGE: Final = (ROOT / "docs" / "reference" / "simulation.md").read_text(encoding="utf-8")

# How many states there are at least. The numbers change with what servers send and keep; a search that sees far fewer
# has lost something that may happen.
STATES: Final = {
    "one-home": 25_000,
    "two-homes": 2_500,
    "direct": 15_000,
    "refusals": 5_000,
    "inputs": 4_000,
    "staged": 10_000,
    "staged-crash": 400,
    "staged-direct": 3_000,
    "crash": 20_000,
    "lives": 3_000,
    "lives-direct": 2_500,
    "late-orders": 45_000,
}


@pytest.mark.parametrize("scope", SCOPES)
def test_no_reachable_state_breaks_a_promise(scope: str, record_property: Callable[[str, object], None]) -> None:
    found = search_scope(scope, SCOPES[scope])
    violations = 0 if found.violation is None else 1
    record_property(
        "printed",
        f"search of transfers: {scope}: {found.states:,} states, {found.transitions:,} transitions, "
        f"depth {found.depth}, {violations} violations",
    )
    assert found.violation is None, "\n".join(found.violation.transcript)
    assert found.states >= STATES[scope]


def test_every_scope_and_the_number_of_mutants_are_in_the_documentation() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| ([\d,]+) \| [\d,]+ \| \d+ \|$", SIMULATION_PAGE, re.MULTILINE)
    assert [scope for scope, _, _ in rows] == list(SCOPES)
    for scope, budget, states in rows:
        budgeted = re.findall(r"(\d+) (transfer|loss|repetition|crash|input)", budget)
        said = {word: int(number) for number, word in budgeted}
        bounds = SCOPES[scope]
        spent = {
            "transfer": bounds.transfers,
            "loss": bounds.losses,
            "repetition": bounds.repeats,
            "crash": bounds.crashes,
            "input": bounds.inputs,
        }
        assert said == {word: number for word, number in spent.items() if number}, scope
        assert int(states.replace(",", "")) >= STATES[scope], scope
    mutants = re.search(r"Each of (\d+) mutants", SIMULATION_PAGE)
    assert mutants is not None
    assert int(mutants[1]) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_a_missing_guard_has_a_counterexample(mutant: Mutant) -> None:
    violation = search_scope(mutant.name, mutant.bounds, mutant.parts, max_states=30_000).violation
    assert violation is not None
    assert violation.kind == mutant.kind
    assert len(violation.transcript) < 30


@cache
def first_violation(bounds: SearchBounds) -> SearchViolation | None:
    """Within bounds that several mutants have: a search of the same bounds is always the same."""
    return search_scope("guarded", bounds, max_states=50_000).violation


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_with_the_guard_the_same_bounds_are_safe_at_the_beginning(mutant: Mutant) -> None:
    """The counterexamples are the mutant's, not the bounds'."""
    assert first_violation(replace(mutant.bounds, transfers=1)) is None


def test_without_leases_a_note_that_a_crash_takes_along_lets_a_fence_begin_twice() -> None:
    """The ledger is written behind, and guards nothing: that every life is another incarnation does."""
    bounds = replace(SCOPES["crash"], transfers=1, stale_ledger=True)
    found = search_scope("crash", bounds)
    assert found.violation is not None
    assert "simulated under Fence(epoch=2, sub=0) already" in found.violation.sentence
    assert search_scope("crash", replace(bounds, leases=True)).violation is None


def test_two_searches_see_the_same() -> None:
    bounds = replace(SCOPES["inputs"], losses=0)
    first, second = (search_scope("inputs", bounds) for _ in range(2))
    assert replace(first, seconds=0.0) == replace(second, seconds=0.0)


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_search_without_a_violation_is_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "search.json"
    arguments = ["--scope", "two-homes", "--transfers", "1", "--json", str(file)]
    assert run_command(["simulate", "transfers-search", *arguments]) == 0
    (scope,) = json.loads(file.read_text())["scopes"]
    assert (scope["scope"], scope["violation"], scope["bounds"]["transfers"]) == ("two-homes", None, 1)
    assert f"{scope['states']:,}" in capsys.readouterr().out


def test_a_violation_is_a_failure_and_a_transcript(capsys: pytest.CaptureFixture[str]) -> None:
    mutant = MUTANTS["deletes-before-commit"]
    assert search_and_show({mutant.name: mutant.bounds}, mutant.parts, max_states=30_000) == 1
    printed = capsys.readouterr().out
    assert "safety: alpha.s1 deleted the newest state, which no other server simulates" in printed
    assert "1  transfer-1: the entity is to go to alpha.s2" in printed


def test_a_search_that_is_given_up_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["simulate", "transfers-search", "--scope", "inputs", "--max-states", "100"]) == 2
    assert "more than 100 states" in capsys.readouterr().err
