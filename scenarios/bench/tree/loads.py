"""Clients inside a member: closed loops on one backend, as a server's own code would use it."""

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import trio

from batonpass.scenarios.bench.workloads import (
    COMMANDS_PER_GROUP,
    KEY_COUNT,
    OperationKind,
    key_path,
    node_path,
    value_text,
)
from batonpass.scenarios.report.statistics import percentile
from batonpass.tree import Path, Procedure, Transaction
from batonpass.tree.member.backend import Backend

__all__ = ["PROCEDURES", "ClosedLoop", "closed_loop", "fill", "load_nodes", "local_reads", "run_load", "write_among"]

PUT_GROUP: Final = "bench.put_group"
# Long enough that asking for the time costs nothing, short enough that the member's other tasks do not wait (1 ms).
_LOCAL_READS_AT_ONCE: Final = 256
# No operation should take that long, whatever is being measured; if one does, the measurement has failed.
_PATIENCE_S: Final = 60.0
_NODES_PER_GROUP: Final = 100
_LOADING_CLIENTS: Final = 16
# More passes over the keys than any loop makes; the first numbers are those of `fill`.
_NUMBERS_PER_LOOP: Final = 1_000_000
_loops: Final = itertools.count(1)
# A prime: successive writes are far apart in the tree, and every node has its turn.
_STRIDE: Final = 7_919


def _put_group(transaction: Transaction, puts: Any) -> int:
    """Several puts as one command: a list of [path, data]."""
    for path, data in puts:
        transaction.put(path, data)
    return len(puts)


PROCEDURES: Final[Mapping[str, Procedure]] = {PUT_GROUP: _put_group}


@dataclass(frozen=True)
class ClosedLoop:
    """What a closed loop did while it was watched; latencies in nanoseconds, None where they were not taken.

    `operations_in_all` counts from the first to the last one, warm-up included. Where not one operation ended in time,
    `operations` is 0, and there is only the longest.
    """

    operations: int
    seconds: float
    operations_in_all: int
    p50_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


async def run_load(
    replica: Backend, kind: OperationKind, outstanding: int, *, warm_up_s: float, seconds: float
) -> ClosedLoop:
    """Keep `outstanding` operations of this kind under way, and measure after `warm_up_s`.

    Raises whatever an operation raises: a benchmark in which operations fail has no meaning.
    """
    if kind is OperationKind.LOCAL_READ:
        return await local_reads(replica, seconds=seconds)
    operation = {
        OperationKind.WRITE: _write,
        OperationKind.GROUPED_WRITE: _write_group,
        OperationKind.LINEARIZABLE_READ: _read,
    }[kind]
    return await closed_loop(
        lambda number: operation(replica, number), outstanding, warm_up_s=warm_up_s, seconds=seconds
    )


async def write_among(
    replica: Backend, nodes: int, outstanding: int, *, warm_up_s: float, seconds: float
) -> ClosedLoop:
    """Writes to nodes that `load_nodes` made, all over the tree, one command for each."""

    async def write(number: int) -> None:
        path = node_path(number * _STRIDE % nodes)
        await replica.submit("tree.put", {"path": path, "data": value_text(number)}, timeout_s=_PATIENCE_S)

    return await closed_loop(write, outstanding, warm_up_s=warm_up_s, seconds=seconds)


async def load_nodes(replica: Backend, first: int, last: int) -> float:
    """Make the nodes from `first` up to but without `last`, in large groups; how many seconds it took."""
    began_s = time.perf_counter()
    await _put_in_groups(replica, node_path, first, last)
    return time.perf_counter() - began_s


async def _put_in_groups(replica: Backend, path_of: Callable[[int], Path], first: int, last: int) -> None:
    groups = iter(range(first, last, _NODES_PER_GROUP))

    async def client() -> None:
        for start in groups:
            puts = [(path_of(one), value_text(one)) for one in range(start, min(start + _NODES_PER_GROUP, last))]
            await replica.submit(PUT_GROUP, puts, timeout_s=_PATIENCE_S)

    async with trio.open_nursery() as nursery:
        for _ in range(_LOADING_CLIENTS):
            nursery.start_soon(client)


async def _write(replica: Backend, number: int) -> None:
    await replica.submit("tree.put", {"path": key_path(number), "data": value_text(number)}, timeout_s=_PATIENCE_S)


async def _write_group(replica: Backend, number: int) -> None:
    first = number * COMMANDS_PER_GROUP
    puts = [(key_path(one), value_text(one)) for one in range(first, first + COMMANDS_PER_GROUP)]
    await replica.submit(PUT_GROUP, puts, timeout_s=_PATIENCE_S)


async def _read(replica: Backend, number: int) -> None:
    await replica.read_barrier(timeout_s=_PATIENCE_S)
    replica.store.get(key_path(number))


async def closed_loop(
    operation: Callable[[int], Awaitable[None]],
    outstanding: int,
    *,
    warm_up_s: float,
    seconds: float,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> ClosedLoop:
    """Keep `outstanding` operations under way; what ends within `seconds` after the warm-up counts."""
    # Where no loop before began: a put of what is there already changes nothing, and would be measured as a write.
    first = KEY_COUNT * _NUMBERS_PER_LOOP * next(_loops)
    numbers = itertools.count(first)
    latencies_ns: list[int] = []
    # What was under way at the end counts for the longest one only: it could be the one that all had to wait for.
    late_ns: list[int] = [0]
    begins_ns = clock_ns() + round(warm_up_s * 1e9)
    ends_ns = begins_ns + round(seconds * 1e9)

    async def client() -> None:
        before_ns = clock_ns()
        while before_ns < ends_ns:
            await operation(next(numbers))
            after_ns = clock_ns()
            if begins_ns <= after_ns < ends_ns:
                latencies_ns.append(after_ns - before_ns)
            elif after_ns >= ends_ns:
                late_ns.append(after_ns - before_ns)
            before_ns = after_ns

    async with trio.open_nursery() as nursery:
        for _ in range(outstanding):
            nursery.start_soon(client)
    longest_ns = max(latencies_ns + late_ns)
    if not latencies_ns:
        return ClosedLoop(0, seconds, next(numbers) - first, max_ns=longest_ns)
    p50_ns, p99_ns = (int(percentile(latencies_ns, percent)) for percent in (50, 99))
    return ClosedLoop(len(latencies_ns), seconds, next(numbers) - first, p50_ns, p99_ns, longest_ns)


async def local_reads(replica: Backend, *, seconds: float) -> ClosedLoop:
    """Read from the local tree, without waiting for others, as fast as one caller can."""
    paths = itertools.cycle([key_path(number) for number in range(KEY_COUNT)])
    get = replica.store.get
    operations = 0
    began_s = time.perf_counter()
    while (elapsed_s := time.perf_counter() - began_s) < seconds:
        for path in itertools.islice(paths, _LOCAL_READS_AT_ONCE):
            get(path)
        operations += _LOCAL_READS_AT_ONCE
        await trio.lowlevel.checkpoint()
    return ClosedLoop(operations, elapsed_s, operations)


async def fill(replica: Backend) -> None:
    """Write every key once, so that reads find something and writes replace something."""
    await _put_in_groups(replica, key_path, 0, KEY_COUNT)
