"""The closed loops of the clients, on a clock that jumps."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from batonpass.scenarios.bench.tree.loads import closed_loop


def clock_ns() -> int:
    return round(trio.current_time() * 1e9)


class Server:
    """Answers after `latency_s`, and operation `slow`, counted from 0, after ten times that."""

    def __init__(self, latency_s: float, slow: int | None = None) -> None:
        self._latency_s = latency_s
        self._slow = slow
        self.numbers: list[int] = []
        self.under_way = self.most_under_way = 0

    async def answer(self, number: int) -> None:
        slow = len(self.numbers) == self._slow
        self.numbers.append(number)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await trio.sleep(self._latency_s * (10 if slow else 1))
        self.under_way -= 1


async def test_what_ends_within_the_window_counts_and_all_clients_are_kept_busy(autojump_clock: MockClock) -> None:
    server = Server(0.1)
    loop = await closed_loop(server.answer, 4, warm_up_s=1.0, seconds=5.0, clock_ns=clock_ns)
    # Each client ends one every 0.1 s; which of two borders the ones on it fall into is up to rounding.
    assert loop.operations == pytest.approx(4 * 50, abs=4)
    assert loop.operations_in_all == len(server.numbers) == pytest.approx(4 * 60, abs=4)
    assert server.numbers == list(range(server.numbers[0], server.numbers[0] + len(server.numbers)))
    assert server.most_under_way == 4


async def test_the_slowest_operation_shows_in_the_longest_and_not_in_the_median(autojump_clock: MockClock) -> None:
    loop = await closed_loop(Server(0.1, slow=30).answer, 2, warm_up_s=0.0, seconds=5.0, clock_ns=clock_ns)
    assert loop.p50_ns == pytest.approx(0.1e9, rel=0.01)
    assert loop.max_ns == pytest.approx(1e9, rel=0.01)


async def test_a_stall_longer_than_the_loop_still_tells_the_longest(autojump_clock: MockClock) -> None:
    loop = await closed_loop(Server(30.0).answer, 1, warm_up_s=0.0, seconds=1.0, clock_ns=clock_ns)
    assert (loop.operations, loop.p50_ns) == (0, None)
    assert loop.max_ns == pytest.approx(30e9, rel=0.01)


async def test_an_operation_that_fails_ends_the_loop_with_its_error(autojump_clock: MockClock) -> None:
    async def fail(_number: int) -> None:
        raise OSError("the disk is full")

    operation: Callable[[int], Awaitable[None]] = fail
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="the disk is full")):
        await closed_loop(operation, 1, warm_up_s=0.0, seconds=1.0, clock_ns=clock_ns)


async def test_no_loop_writes_again_what_an_earlier_one_wrote(autojump_clock: MockClock) -> None:
    servers = [Server(0.1), Server(0.1)]
    for server in servers:
        await closed_loop(server.answer, 2, warm_up_s=0.0, seconds=1.0, clock_ns=clock_ns)
    assert not set(servers[0].numbers) & set(servers[1].numbers)
