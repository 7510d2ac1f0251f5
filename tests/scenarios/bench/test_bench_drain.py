"""`baton bench drain`, small: the servers are real, and their custody logs are judged."""

import pytest
import trio

from batonpass.scenarios.bench.drain import DEMANDED_S, Drained, measure


async def test_a_small_drain_is_measured_and_found_in_order() -> None:
    with trio.fail_after(110):
        drained = await measure(25, simservers=2, tick_hz=5.0)
    assert drained.findings == []
    assert (drained.entities, drained.simservers) == (25, 2)
    assert drained.seconds > 0
    assert 0 < drained.gap_p50_ms <= drained.gap_p99_ms <= drained.gap_max_ms
    assert set(drained.processor_s) == {"alpha.h1", "alpha.h2", "alpha.h3", "alpha.s1", "alpha.s2"}


@pytest.mark.parametrize(
    ("entities", "seconds", "findings", "problems"),
    [
        (10_000, DEMANDED_S, [], 0),
        (10_000, DEMANDED_S + 0.1, [], 1),
        (20_000, 2 * DEMANDED_S, [], 0),
        (100, 0.1, ["two servers"], 1),
    ],
)
def test_what_is_slow_or_out_of_order_is_a_problem(
    entities: int, seconds: float, findings: list[str], problems: int
) -> None:
    drained = Drained(entities, 3, 1.0, seconds, entities / seconds, 1.0, 2.0, 3.0, 1, {}, findings)
    assert len(drained.problems) == problems
