"""Hosted scenes in simulated clusters: one state for all members, nothing lost that was kept; their guards are why."""

from collections.abc import Iterable

import pytest

from batonpass.scenarios.simulation.kernel.outcome import Violation
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.run import simulate, simulate_seed
from batonpass.simserver.sync.scene.elements import LwwElements
from batonpass.simserver.sync.scenes.host import HostedScenes
from tests.mutants.servers.scenes import CorrectsNobody, KeepsItsMembers, TellsBeforeTaken


@pytest.mark.parametrize("seed", [1, 2])
def test_all_members_have_one_state_while_scenes_move_and_servers_die(seed: int) -> None:
    outcome = simulate_seed("scenes", seed)
    assert outcome.violations == ()
    assert outcome.moves > 0
    assert outcome.takeovers > 0


def first_violation(seeds: Iterable[int], scenes: type[HostedScenes] = HostedScenes) -> Violation:
    """Of the first seed that has one; after a change of what is simulated, another may be."""
    for seed in seeds:
        if found := simulate(MIXES["scenes"], seed, ServersParts(scenes=scenes)).violations:
            return found[0]
    pytest.fail("no seed has a violation without the guard")


def test_a_writer_that_is_not_corrected_is_seen() -> None:
    assert first_violation(range(10), CorrectsNobody).kind == "not-corrected"


def test_what_is_told_before_the_entity_has_taken_it_is_seen() -> None:
    assert first_violation(range(20), TellsBeforeTaken).kind == "write-lost"


def test_members_of_a_server_that_has_the_scene_no_more_are_seen() -> None:
    assert first_violation(range(20), KeepsItsMembers).kind in {"not-settled", "write-lost"}


def test_an_owner_whose_write_is_lost_to_one_who_may_not_write_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LwwElements, "_taken", lambda elements, entity, stands: stands)
    assert first_violation(range(20)).kind == "owner-lost"
