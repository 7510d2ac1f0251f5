"""Entities of simulated clusters follow tables of regions; their guards are why."""

import pytest

from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.run import simulate, simulate_seed
from tests.mutants.servers.regions import ForgetsSleepers


def test_entities_are_where_they_belong_in_the_end() -> None:
    outcome = simulate_seed("regions", 2)
    assert outcome.violations == ()
    assert outcome.moves > 0
    assert outcome.takeovers > 0


def test_entities_stay_while_the_server_of_their_region_is_dead_and_no_other_takes_any() -> None:
    """The last server that lives is drained, so the cells of the dead one are given to none."""
    assert simulate_seed("regions", 700107).violations == ()


def test_what_sleeps_and_is_forgotten_is_seen() -> None:
    """Of the first seed that has a violation; after a change of what is simulated, another may be."""
    for seed in range(10):
        if found := simulate(MIXES["regions"], seed, ServersParts(regions=ForgetsSleepers)).violations:
            assert found[0].kind == "not-settled"
            return
    pytest.fail("no seed has a violation without the guard")
