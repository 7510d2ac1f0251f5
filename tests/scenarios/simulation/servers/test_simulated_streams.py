"""Event streams in simulated clusters: all clients of a stream are told one history, and its guards are why."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pytest

from batonpass.scenarios.simulation.kernel.outcome import Violation
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.run import simulate, simulate_seed
from batonpass.simserver.sync.events.stream import StreamMachine
from batonpass.simserver.sync.hosting.publication import StreamPublication

# Deaths alone: what a guard is for shows in few seeds else.
_DEATHS: Final = replace(
    MIXES["streams"],
    servers=("alpha.s1", "alpha.s2", "alpha.s3"),
    entities=2,
    move=6.0,
    crash=0.35,
    delegate=0.0,
    drain=0.0,
    cut=0.0,
    cut_from_home=0.0,
    isolate=0.0,
    pause=0.0,
    unknown_share=0.0,
)


@pytest.mark.parametrize("seed", [1, 2])
def test_clients_are_told_one_history_while_streams_move_and_servers_die(seed: int) -> None:
    outcome = simulate_seed("streams", seed)
    assert outcome.violations == ()
    assert outcome.moves > 0
    assert outcome.takeovers > 0


def first_violation(seeds: Iterable[int]) -> Violation:
    """Of the first seed that has one; after a change of what is simulated, another may be."""
    for seed in seeds:
        if found := simulate(_DEATHS, seed).violations:
            return found[0]
    pytest.fail("no seed has a violation without the guard")


def test_what_is_told_before_a_copy_has_it_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamPublication, "tick", property(lambda stream: stream._newest))
    assert "different histories" in first_violation((53, *range(80))).sentence


def test_a_takeover_that_does_not_pass_over_what_was_told_takes_clients_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamMachine, "skip", lambda stream, ticks: None)
    assert first_violation((1, 7, *range(40))).kind == "stream-went-back"
