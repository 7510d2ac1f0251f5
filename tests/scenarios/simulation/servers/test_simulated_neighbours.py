"""Ghosts in simulated clusters: of what was so, gone with their servers; their guards are why."""

import pytest

from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.run import simulate, simulate_seed
from tests.mutants.servers.neighbours import MOVES_WHATEVER_THE_RULE, KeepsSilentPeers


@pytest.mark.parametrize("seed", [1, 2])
def test_ghosts_are_of_what_was_so_while_entities_move_and_servers_die(seed: int) -> None:
    outcome = simulate_seed("neighbours", seed)
    assert outcome.violations == ()
    assert outcome.moves > 0
    assert outcome.takeovers > 0
    assert outcome.ghosts > 100


def test_a_repeated_request_of_a_contact_is_judged_by_those_who_were_owners_when_it_was_decided() -> None:
    """A cut-off server hears nothing of the commit, and asks again when the entity that was met has another owner."""
    outcome = simulate_seed("neighbours-in-batches", 700049)
    assert outcome.violations == ()
    assert outcome.contacts > 0


def first_violation(parts: ServersParts) -> str:
    """Of the first seed that has one; after a change of what is simulated, another may be."""
    for seed in range(10):
        if found := simulate(MIXES["neighbours"], seed, parts).violations:
            return found[0].kind
    pytest.fail("no seed has a violation without the guard")


def test_ghosts_of_a_server_of_which_nothing_is_heard_are_seen() -> None:
    assert first_violation(ServersParts(neighbours=KeepsSilentPeers)) == "ghost-lingers"


def test_what_a_contact_moves_against_its_rule_is_seen() -> None:
    assert first_violation(MOVES_WHATEVER_THE_RULE) == "contact-against-rule"
