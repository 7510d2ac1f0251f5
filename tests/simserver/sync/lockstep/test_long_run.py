"""Equal clients raise no alarm, and each way to go astray is explained; `long_run` does the same at length."""

import pytest

from tests.simserver.sync.lockstep.divergences import KINDS, DrawsOnceMore, diverge
from tests.simserver.sync.lockstep.equal_ticks import AlarmRaised, run_equal
from tests.simserver.sync.lockstep.lossy_room import Chances
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
