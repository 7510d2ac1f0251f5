"""Shows in simulated clusters: no frame number has two contents and no node goes back, and their guards are why."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pytest

from batonpass.scenarios.simulation.kernel.outcome import Violation
from batonpass.scenarios.simulation.servers import run
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.run import simulate, simulate_seed
from batonpass.simserver.sync.followers.controller import ControllerPart
from batonpass.simserver.sync.followers.datagrams import Datagram, ShowDatagramKind
from batonpass.simserver.sync.followers.received_data import ReceivedData
from batonpass.simserver.sync.shows.host import HostedShows
from tests.mutants.servers.shows import AskedCounts, ForgetsToSend, PassesOverNothing, SendsWithoutLease

# What a guard is for shows in few seeds else.
_MOVES: Final = replace(MIXES["shows"], move=5.0, crash=0.5, drain=0.0, pause=1.0, fail_engine=0.0)


def test_no_frame_has_two_contents_while_shows_move_and_servers_die() -> None:
    outcome = simulate_seed("shows", 2)
    assert outcome.violations == ()
    assert outcome.moves > 0
    assert outcome.takeovers > 0


def first_violation(seeds: Iterable[int], shows: type[HostedShows] = HostedShows) -> Violation:
    """Of the first seed that has one; after a change of what is simulated, another may be."""
    for seed in seeds:
        if found := simulate(_MOVES, seed, ServersParts(shows=shows)).violations:
            return found[0]
    pytest.fail("no seed has a violation without the guard")


def test_a_limit_that_counts_before_a_copy_of_it_is_kept_is_seen() -> None:
    assert first_violation(range(40), AskedCounts).kind in {"before-copy", "two-contents"}


def test_a_controller_that_sends_without_its_lease_is_seen() -> None:
    assert first_violation(range(40), SendsWithoutLease).kind in {"fenced-off", "two-contents"}


def test_a_hand_over_that_uses_the_number_of_a_frame_that_had_begun_is_seen() -> None:
    assert first_violation((18, 5, *range(40)), PassesOverNothing).kind == "two-contents"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not settle is judged soon: a run to the end takes 16 s of processor time."""
    for name, seconds in (("FAULTS_S", 2.0), ("HEAL_S", 12.0), ("REST_S", 2.0)):
        monkeypatch.setattr(run, name, seconds)


@pytest.mark.usefixtures("soon")
def test_shows_settle_soon_where_frames_are_sent_and_acknowledged() -> None:
    assert simulate_seed("shows", 2).violations == ()


@pytest.mark.usefixtures("soon")
def test_a_controller_that_forgets_to_send_for_ever_is_seen() -> None:
    found = first_violation(range(4), ForgetsToSend)
    assert (found.kind, "has shown no frame of" in found.sentence) == ("not-settled", True)


@pytest.mark.usefixtures("soon")
def test_a_controller_that_never_hears_of_acknowledgements_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = ControllerPart.receive

    def deaf(controller: ControllerPart, peer: str, datagram: Datagram, now_ns: int) -> None:
        if datagram.kind is not ShowDatagramKind.COMPLETE:
            receive(controller, peer, datagram, now_ns)

    monkeypatch.setattr(ControllerPart, "receive", deaf)
    found = first_violation(range(4))
    assert (found.kind, "has not heard that" in found.sentence) == ("not-settled", True)


def test_an_engine_that_applies_inputs_to_another_state_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReceivedData, "follows", lambda data, ready: True)
    assert first_violation(range(40)).kind == "two-contents"
