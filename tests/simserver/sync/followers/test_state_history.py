"""What deltas are made against is bounded by number and bytes."""

from batonpass.simserver.sync.followers.settings import ShowMode, ShowSettings
from batonpass.simserver.sync.followers.state_history import StateHistory


def test_the_oldest_states_go_when_there_are_too_many_or_too_large_ones() -> None:
    states = StateHistory(ShowSettings(mode=ShowMode.DELTA, max_history_frames=3, window_bytes=10))
    for frame in range(1, 5):
        states.keep(frame, b"12")
    assert [*reversed(states)] == [4, 3, 2]
    states.keep(5, b"1234567")
    assert [*reversed(states)] == [5, 4]
    states.forget()
    states.keep(6, b"1234567890")
    assert states.get(6) == b"1234567890"


def test_nothing_is_kept_where_no_deltas_are_sent() -> None:
    states = StateHistory(ShowSettings(mode=ShowMode.STATE))
    states.keep(1, b"1")
    assert states.get(1) is None
