"""Clients inside a member: closed loops on one `Replica`, as a server's own code would use it."""

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio

from scenarios.bench.workloads import COMMANDS_PER_GROUP, KEY_COUNT, Kind, key_path, value_text
from scenarios.report.statistics import percentile
from tree import Procedure, Replica, Transaction

__all__ = ["PROCEDURES", "Loop", "fill", "local_reads", "run_load"]

PUT_GROUP: Final = "bench.put_group"
# Long enough that asking for the time costs nothing, short enough that the member's other tasks do not wait (1 ms).
_LOCAL_READS_AT_ONCE: Final = 256


def _put_group(transaction: Transaction, puts: Any) -> int:
    """Several puts as one command: a list of [path, data]."""
    for path, data in puts:
        transaction.put(path, data)
    return len(puts)


PROCEDURES: Final[Mapping[str, Procedure]] = {PUT_GROUP: _put_group}


@dataclass(frozen=True)
class Loop:
    """What a closed loop did while it was watched; latencies in nanoseconds, None where they were not taken.

    `operations_in_all` counts from the first to the last one, warm-up included.
    """

    operations: int
    seconds: float
    operations_in_all: int
    p50_ns: int | None
    p99_ns: int | None

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "operations": self.operations,
            "seconds": self.seconds,
            "operations_in_all": self.operations_in_all,
            "p50_ns": self.p50_ns,
            "p99_ns": self.p99_ns,
        }


async def run_load(replica: Replica, kind: Kind, outstanding: int, *, warm_up_s: float, seconds: float) -> Loop:
    """Keep `outstanding` operations of this kind under way, and measure after `warm_up_s`.

    Raises whatever an operation raises: a benchmark in which operations fail has no meaning.
    """
    if kind is Kind.LOCAL_READ:
        return await local_reads(replica, seconds=seconds)
    operation = {
        Kind.WRITE: _write,
        Kind.GROUPED_WRITE: _write_group,
        Kind.LINEARIZABLE_READ: _read,
    }[kind]
    return await _closed_loop(
        lambda number: operation(replica, number), outstanding, warm_up_s=warm_up_s, seconds=seconds
    )


async def _write(replica: Replica, number: int) -> None:
    await replica.submit("tree.put", {"path": key_path(number), "data": value_text(number)}, timeout_s=30.0)


async def _write_group(replica: Replica, number: int) -> None:
    first = number * COMMANDS_PER_GROUP
    puts = [(key_path(one), value_text(one)) for one in range(first, first + COMMANDS_PER_GROUP)]
    await replica.submit(PUT_GROUP, puts, timeout_s=30.0)


async def _read(replica: Replica, number: int) -> None:
    await replica.read_barrier(timeout_s=30.0)
    replica.store.get(key_path(number))


async def _closed_loop(
    operation: Callable[[int], Awaitable[None]], outstanding: int, *, warm_up_s: float, seconds: float
) -> Loop:
    numbers = itertools.count()
    latencies_ns: list[int] = []
    clock_ns = time.perf_counter_ns
    begins_ns = clock_ns() + round(warm_up_s * 1e9)
    ends_ns = begins_ns + round(seconds * 1e9)

    async def client() -> None:
        before_ns = clock_ns()
        while before_ns < ends_ns:
            await operation(next(numbers))
            after_ns = clock_ns()
            if begins_ns <= after_ns < ends_ns:
                latencies_ns.append(after_ns - before_ns)
            before_ns = after_ns

    async with trio.open_nursery() as nursery:
        for _ in range(outstanding):
            nursery.start_soon(client)
    if not latencies_ns:
        raise RuntimeError(f"not one operation was answered in {seconds} s; measure for longer")
    p50_ns, p99_ns = (int(percentile(latencies_ns, percent)) for percent in (50, 99))
    return Loop(len(latencies_ns), seconds, next(numbers), p50_ns, p99_ns)


async def local_reads(replica: Replica, *, seconds: float) -> Loop:
    """Read from the local tree, without waiting for anybody, as fast as one caller can."""
    paths = itertools.cycle([key_path(number) for number in range(KEY_COUNT)])
    get = replica.store.get
    operations = 0
    began_s = time.perf_counter()
    while (elapsed_s := time.perf_counter() - began_s) < seconds:
        for path in itertools.islice(paths, _LOCAL_READS_AT_ONCE):
            get(path)
        operations += _LOCAL_READS_AT_ONCE
        await trio.lowlevel.checkpoint()
    return Loop(operations, elapsed_s, operations, None, None)


async def fill(replica: Replica) -> None:
    """Write every key once, so that reads find something and writes replace something."""
    for number in range(KEY_COUNT // COMMANDS_PER_GROUP + 1):
        await _write_group(replica, number)
