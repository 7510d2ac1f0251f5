"""Ghosts in simulated clusters: of what was so, gone with their servers; their guards are why."""

import pytest

from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.run import simulate, simulate_seed
from batonpass.simserver.neighbours.host import HostedNeighbours
from tests.mutants.servers.neighbours import KeepsSilentPeers


@pytest.mark.parametrize("seed", [1, 2])
def test_ghosts_are_of_what_was_so_while_entities_move_and_servers_die(seed: int) -> None:
    outcome = simulate_seed("neighbours", seed)
    assert outcome.violations == ()
    assert outcome.moves > 0
    assert outcome.takeovers > 0
    assert outcome.ghosts > 100


def first_violation(neighbours: type[HostedNeighbours]) -> str:
    """Of the first seed that has one; after a change of what is simulated, another may be."""
    for seed in range(10):
        if found := simulate(MIXES["neighbours"], seed, ServersParts(neighbours=neighbours)).violations:
            return found[0].kind
    pytest.fail("no seed has a violation without the guard")


def test_ghosts_of_a_server_of_which_nothing_is_heard_are_seen() -> None:
    assert first_violation(KeepsSilentPeers) == "ghost-lingers"
