"""A server counts by the time of its instance where the clock of its host shows another one, and says so."""

import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.base.clock import TOLERANCE_S, Clock, InstanceClock

TRUE_S = 1_700_000_000.0


class Host(Clock):
    """A host whose wall clock is off."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.ahead_s = ahead_s

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)

    def unix_s(self) -> float:
        return TRUE_S + self.now_s + self.ahead_s


def told(host: Host, took_s: float = 0.0) -> InstanceClock:
    clock = InstanceClock(host, "alpha.s1")
    tell(clock, host, took_s)
    return clock


def tell(clock: InstanceClock, host: Host, took_s: float = 0.0) -> None:
    """A homeserver is asked what time it is, and is right."""
    asked_ns = clock.monotonic_ns()
    host.now_s += took_s / 2
    now_ms = round((TRUE_S + host.now_s) * 1e3)
    host.now_s += took_s / 2
    clock.told(now_ms, asked_ns)


@given(st.floats(-TRUE_S, 1e10), st.floats(0, 2))
def test_whatever_the_clock_of_the_host_shows_the_time_is_that_of_the_instance(ahead_s: float, took_s: float) -> None:
    host = Host(ahead_s)
    clock = told(host, took_s)
    for _ in range(2):
        assert math.isclose(clock.unix_s(), TRUE_S + host.now_s, abs_tol=TOLERANCE_S + 0.01, rel_tol=0)
        host.now_s += 1000.0
    assert clock.is_off == bool(clock.why)


def test_a_clock_that_is_right_is_used_as_it_is() -> None:
    clock = told(Host(TOLERANCE_S - 0.1))
    assert not clock.is_off
    assert clock.unix_s() == clock.host.unix_s()


def test_it_is_said_once_that_it_is_off_and_once_that_it_is_right_again(caplog: pytest.LogCaptureFixture) -> None:
    host = Host(90.0)
    clock = told(host)
    tell(clock, host)
    assert "the clock of alpha.s1 is 90.0 s ahead of the time of its instance" in clock.why
    host.ahead_s = -TOLERANCE_S + 0.1
    tell(clock, host)
    assert clock.is_off, "nearly right is not right again"
    assert "4.9 s behind" in clock.why
    host.ahead_s = 0.0
    tell(clock, host)
    tell(clock, host)
    assert [
        record.message.partition(",")[0] for record in caplog.records if record.name == "batonpass.actors.base.clock"
    ] == [
        "the clock of alpha.s1 is 90.0 s ahead of the time of its instance",
        "the clock of alpha.s1 shows the time of its instance again",
    ]


def test_an_answer_that_took_long_or_says_nothing_of_the_time_counts_for_nothing() -> None:
    host = Host(90.0)
    assert not told(host, took_s=2.1).is_off
    clock = InstanceClock(host, "alpha.s1")
    clock.told(0, clock.monotonic_ns())
    assert not clock.is_off


async def test_all_else_is_the_hosts(autojump_clock: trio.testing.MockClock) -> None:
    clock = InstanceClock(Clock(), "alpha.s1")
    began_s = trio.current_time()
    await clock.sleep_s(3.0)
    bell = clock.bell()
    bell.ring()
    assert await bell.wait()
    assert not await bell.wait(4.0)
    assert trio.current_time() - began_s == pytest.approx(7.0)
