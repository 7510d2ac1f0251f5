"""Worlds that want entities where no home answers are not listened to, but for one entity at a time."""

import trio
from trio.testing import MockClock

from batonpass.simserver.transfer.source.backoff import CLOSED_NS, TRIAL_NS, CircuitBreaker
from tests.simserver.ports import TrioClock

THERE, TOO, ELSEWHERE = "beta.s1", "beta.s2", "gamma.s1"


async def test_after_a_refusal_nobody_goes_there_for_a_while_and_then_one_tries(autojump_clock: MockClock) -> None:
    circuit_breaker = CircuitBreaker(TrioClock())
    assert all(circuit_breaker.may_try(THERE) for _ in range(3))
    circuit_breaker.close(THERE)
    assert [circuit_breaker.may_try(name) for name in (THERE, TOO, ELSEWHERE, "no name at all")] == [
        False,
        False,
        True,
        True,
    ]
    await trio.sleep(CLOSED_NS / 1e9)
    assert [circuit_breaker.may_try(name) for name in (TOO, THERE, TOO)] == [True, False, False], "one tries"
    await trio.sleep(TRIAL_NS / 1e9)
    assert circuit_breaker.may_try(THERE), "nothing was heard of that one"
    circuit_breaker.close(TOO)
    assert not circuit_breaker.may_try(THERE)
    circuit_breaker.open(ELSEWHERE)
    assert not circuit_breaker.may_try(THERE)
    circuit_breaker.open(TOO)
    assert all(circuit_breaker.may_try(THERE) for _ in range(3))
