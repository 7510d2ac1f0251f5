"""Event streams in simulated clusters: all clients of a stream are told one history, and its guards are why."""

import pytest

from batonpass.scenarios.simulation.servers.run import simulate_seed
from batonpass.simserver.sync.events.stream import StreamMachine
from batonpass.simserver.sync.hosting.publication import StreamPublication


@pytest.mark.parametrize("seed", [1, 2])
def test_clients_are_told_one_history_while_streams_move_and_servers_die(seed: int) -> None:
    outcome = simulate_seed("streams", seed)
    assert outcome.violations == ()
    assert outcome.moves > 0
    assert outcome.takeovers > 0


def test_what_is_told_before_a_copy_has_it_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamPublication, "tick", property(lambda stream: stream._newest))
    [violation] = simulate_seed("streams", 66).violations
    assert "different histories" in violation.sentence


def test_a_takeover_that_does_not_pass_over_what_was_told_takes_clients_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamMachine, "skip", lambda stream, ticks: None)
    [violation] = simulate_seed("streams", 6).violations
    assert "different histories" in violation.sentence


def test_what_is_told_after_a_hand_over_before_a_copy_has_it_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = StreamPublication.__init__

    def without(self: StreamPublication, tick: int | None, *, was_handed_over: bool) -> None:
        begin(self, tick)

    monkeypatch.setattr(StreamPublication, "__init__", without)
    [violation] = simulate_seed("streams", 332).violations
    assert violation.kind == "stream-went-back"
