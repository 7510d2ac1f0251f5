"""Frames at any rational rate: exact after hours, by integers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.followers.frame_clock import FrameClock, FrameDeltas, FrameRate
from batonpass.simserver.sync.followers.structs import FrameData, FrameDataFlag

TELEVISION = FrameRate(60_000, 1_001)
NS_IN_S = 1_000_000_000
RATES = st.builds(FrameRate, st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1))
CLOCKS = st.builds(FrameClock, RATES, st.integers(-(2**62), 2**62))


@given(CLOCKS, st.integers(-(2**40), 2**40))
def test_a_frame_is_due_from_its_first_nanosecond_on_and_not_before(clock: FrameClock, frame: int) -> None:
    exact = clock.origin_ns + Fraction(frame * clock.rate.denominator * NS_IN_S, clock.rate.numerator)
    assert exact <= clock.due_ns(frame) < exact + 1
    assert clock.frame_at(clock.due_ns(frame)) >= frame
    assert clock.frame_at(clock.due_ns(frame) - 1) < frame


@given(RATES, st.integers(0, 2**40), st.integers(0, 2**62))
def test_a_clock_set_by_a_frame_has_that_frame_due_at_that_time(rate: FrameRate, frame: int, now_ns: int) -> None:
    assert FrameClock.with_frame_at(rate, frame, now_ns).due_ns(frame) == now_ns


@given(RATES, st.integers(0, 2**40))
def test_tracked_time_is_the_nearest_float_to_the_fraction(rate: FrameRate, frame: int) -> None:
    assert rate.seconds(frame) == float(Fraction(frame * rate.denominator, rate.numerator))


def test_a_day_of_television_ends_on_its_exact_frame() -> None:
    clock = FrameClock(TELEVISION, origin_ns=5)
    day = 5_178_821
    assert clock.frame_at(5 + 86_400 * NS_IN_S) == day
    assert TELEVISION.seconds(60_000 * 24) == 1_001.0 * 24


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (60, 0), (-60, 1), (2**32, 1), (60, 2**32)])
def test_a_rate_that_the_struct_cannot_hold_is_refused(numerator: int, denominator: int) -> None:
    with pytest.raises(ValueError, match=f"frame rate {numerator}/{denominator}"):
        FrameRate(numerator, denominator)


def test_the_data_of_a_frame_say_its_times_and_rate() -> None:
    assert FrameRate(50).data_of(100, since=75, flags=FrameDataFlag.RESET, scene=2) == FrameData(
        2.0, 0.5, 0.02, 50, 1, FrameDataFlag.RESET, 2
    )


@given(
    st.integers(0, 10**9),
    st.integers(0, 10**7),
    st.sampled_from([FrameRate(60), FrameRate(60_000, 1_001), FrameRate(1)]),
)
def test_the_frame_of_the_last_reset_is_read_from_local_time(since: int, frames: int, rate: FrameRate) -> None:
    assert rate.since_of(since + frames, rate.data_of(since + frames, since=since)) == since


@pytest.mark.parametrize("local_time", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_local_time_that_cannot_be_says_nothing(local_time: float) -> None:
    assert FrameRate(60).since_of(10, FrameData(local_time=local_time)) == 0


def test_the_first_frame_has_the_length_of_one_frame() -> None:
    deltas = FrameDeltas()
    assert deltas.step(1_000, FrameRate(50)) == 0.02
    assert deltas.corrected == 0


def test_frames_that_an_engine_did_not_have_are_in_its_next_delta() -> None:
    deltas = FrameDeltas()
    deltas.step(10, FrameRate(50))
    assert deltas.step(13, FrameRate(50)) == 0.06


@pytest.mark.parametrize("frame", [10, 9])
def test_a_frame_that_is_not_after_the_last_has_the_length_of_one_and_is_counted(frame: int) -> None:
    deltas = FrameDeltas()
    deltas.step(10, FrameRate(50))
    assert deltas.step(frame, FrameRate(50)) == 0.02
    assert deltas.corrected == 1


def test_r16_a_reset_clears_the_frame_before() -> None:
    deltas = FrameDeltas()
    deltas.step(10, FrameRate(50))
    assert deltas.step(500, FrameRate(50), reset=True) == 0.02
    assert deltas.step(501, FrameRate(50)) == 0.02
    assert deltas.corrected == 0
