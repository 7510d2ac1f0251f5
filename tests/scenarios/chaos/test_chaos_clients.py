"""The demand on clients, with real processes: nothing lost, nothing twice, whatever ends."""

from batonpass.scenarios.chaos.playing import PlayingPlan, play_through
from tests.scenarios.asked import PATIENCE_S, limited

pytestmark = limited


async def test_100_disconnections_20_hand_overs_and_a_kill_cost_no_input_and_no_listener() -> None:
    trial = await play_through(PlayingPlan(disconnections=100, handovers=20, kills=1, patience_s=PATIENCE_S))
    assert trial.problems == []
    assert (trial.handovers, trial.kills) == (20, 1)
    assert trial.disconnections >= 100
    assert trial.inputs > 100
