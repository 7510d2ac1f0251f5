"""Equal clients raise no alarm, and each way to go astray is explained; `long_run` does the same at length."""

import pytest

from batonpass.simserver.sync.hosting.world import HOSTED_LIMITS
from tests.simserver.sync.lockstep.divergences import KINDS, SLOW, DrawsOnceMore, diverge
from tests.simserver.sync.lockstep.equal_ticks import AlarmRaised, run_equal
from tests.simserver.sync.lockstep.lossy_room import Chances, LossyRoom
from tests.simserver.sync.lockstep.meadow import Meadow


def test_equal_clients_raise_no_alarm_though_they_come_late_leave_and_the_stream_is_handed_over() -> None:
    counts = run_equal(2, 2_000, chances=Chances(come=0.05, go=0.02, hand_over=0.01))
    assert counts.equal >= 2_000
    assert min(counts.lost, counts.repeated, counts.late, counts.gone, counts.back) > 0
    assert min(counts.snapshots, counts.hand_overs, counts.events) > 0


def test_a_client_that_goes_astray_raises_the_alarm() -> None:
    games = [Meadow(), Meadow(), DrawsOnceMore(60)]
    with pytest.raises(AlarmRaised, match="first_differing=60"):
        run_equal(1, 2_000, chances=Chances(), new_game=games.pop)


@pytest.mark.parametrize("seed", range(2 * len(KINDS)))
def test_a_divergence_is_found_at_its_tick_and_its_field_and_first_draw_or_write_are_named(seed: int) -> None:
    finding = diverge(seed)
    assert (finding.told, finding.differed) == (finding.at, finding.at)
    assert finding.field_is_named, str(finding.report)
    assert finding.act_is_named, str(finding.report)


@pytest.mark.parametrize("seed", [2, 5, 7, 12])
def test_clients_that_are_too_slow_to_tell_every_hash_find_the_first_tick_of_a_divergence(seed: int) -> None:
    """Of one that lasts until the next checkpoint; these kinds do."""
    finding = diverge(seed, SLOW, afterwards=300, limits=HOSTED_LIMITS)
    assert (finding.told, finding.differed) == (finding.at, finding.at)


@pytest.mark.parametrize("seed", range(3))
def test_snapshots_of_slow_clients_find_their_quorum_and_late_joiners_begin_from_them(seed: int) -> None:
    """One request in 3 s each, and the bounds of a hosted stream: votes come late, and few of them."""
    room = LossyRoom(seed, Meadow, chances=Chances(ask=1 / 60), limits=HOSTED_LIMITS)
    for _ in range(4):
        room.come()
    for _ in range(1_200):
        room.tick()
    assert room.stream.machine.snapshot is not None
    late = room.come()
    for _ in range(400):
        room.tick()
    assert room.counts.snapshots
    assert late.follower.driver.record(1) is None
