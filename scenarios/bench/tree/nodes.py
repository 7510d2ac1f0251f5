"""Very many nodes: how fast they load, what they take, and whether a write still costs the same.

Three instances of three members, with few, some and all of the nodes, run side by side. The same writes to each of them
are timed in turns, so that what disturbs one disturbs the others too. Snapshots are made when the members think it is
time, as always; what that costs shows while many nodes are rewritten.
"""

import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import trio

from batonpass.scenarios.bench.process_facts import resident_bytes
from batonpass.scenarios.bench.rows import NodesFigure, rewritten_of
from batonpass.scenarios.bench.subject import Tell
from batonpass.scenarios.bench.tree.batonpass import Batonpass

__all__ = ["measure_nodes"]

_LATENCY: Final = (NodesFigure.WRITE_FEW, NodesFigure.WRITE_SOME, NodesFigure.WRITE_ALL)
_BUSY: Final = (NodesFigure.WRITES_FEW, NodesFigure.WRITES_SOME, NodesFigure.WRITES_ALL)
_BUSY_CLIENTS: Final = 64
# Short and often: what disturbs one loop is then more likely to disturb its neighbours too.
_TURNS: Final = 3
_POLL_S: Final = 0.05

Figures = dict[NodesFigure, list[float]]


async def measure_nodes(
    clusters: Mapping[int, Batonpass], rounds: int, seconds: float, tell: Tell
) -> Mapping[NodesFigure, list[float]]:
    """All figures of the rows about nodes, from three empty clusters by how many nodes each is to have, rising.

    `seconds` is how long each loop of writes runs.

    Raises:
        MeasurementFailed: an operation failed.
    """
    figures: Figures = defaultdict(list)
    for count, cluster in clusters.items():
        tell(f"nodes: loading {count:,}")
        figures[NodesFigure.LOAD], figures[NodesFigure.MEMORY] = await _load(cluster, count)
    for number in range(rounds):
        tell(f"nodes: writing, round {number + 1} of {rounds}")
        for _ in range(_TURNS):
            for figure, (count, cluster) in zip(_LATENCY, clusters.items(), strict=True):
                loop = await _write(cluster, count, 1, seconds / _TURNS)
                figures[figure].append(loop["p50_ns"] / 1e6)
        for figure, (count, cluster) in zip(_BUSY, clusters.items(), strict=True):
            loop = await _write(cluster, count, _BUSY_CLIENTS, seconds)
            figures[figure].append(loop["operations"] / loop["seconds"])
    # The best turn of each: what disturbs a turn only ever makes it longer.
    figures[NodesFigure.WRITE_GROWTH] = [min(figures[NodesFigure.WRITE_ALL]) / min(figures[NodesFigure.WRITE_FEW])]
    count, cluster = list(clusters.items())[-1]
    tell("nodes: rewriting, so that snapshots are made")
    figures[NodesFigure.LONGEST_WRITE] = [await _longest_write_ms(cluster, count)]
    await cluster.settle()
    figures[NodesFigure.DISK] = [_allocated_bytes((await cluster.leader()).config.directory) / count]
    tell("nodes: restarting a member")
    figures[NodesFigure.RESTART] = [await _restart_s(cluster)]
    return figures


async def _load(cluster: Batonpass, count: int) -> tuple[list[float], list[float]]:
    """Nodes per second, and the bytes of memory that each takes in a member."""
    host = await cluster.leader()
    before_bytes = resident_bytes(host.child.pid)
    load_s = (await host.order("load_nodes", first=0, last=count))["seconds"]
    return [count / load_s], [(resident_bytes(host.child.pid) - before_bytes) / count]


async def _write(cluster: Batonpass, count: int, outstanding: int, seconds: float) -> dict[str, Any]:
    leader = await cluster.leader()
    return await leader.loop(
        "write_among", nodes=count, outstanding=outstanding, warm_up_s=seconds / 5, seconds=seconds
    )


async def _longest_write_ms(cluster: Batonpass, count: int) -> float:
    """How long the unluckiest of a single client's writes took while others rewrote many nodes."""
    leader = await cluster.leader()
    longest_ms = [0.0]

    async def write_on() -> None:
        while True:
            loop = await leader.order("write_among", nodes=count, outstanding=1, warm_up_s=0.0, seconds=1.0)
            longest_ms.append(loop["max_ns"] / 1e6)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_on)
        await leader.order("load_nodes", first=0, last=rewritten_of(count))
        # The last round of writes may have met a snapshot too.
        known = len(longest_ms)
        while len(longest_ms) == known:  # noqa: ASYNC110 - bounded by the patience of a write
            await trio.sleep(_POLL_S)
        nursery.cancel_scope.cancel()
    return max(longest_ms)


async def _restart_s(cluster: Batonpass) -> float:
    """Kill a follower, and start it again; until it has applied what the leader has."""
    follower = (await cluster.followers())[0]
    follower.child.kill()
    await follower.child.wait()
    began_s = time.monotonic()
    follower.restart()
    await cluster.settle()
    return time.monotonic() - began_s


def _allocated_bytes(directory: Path) -> int:
    """What the files below a directory take on the disk, holes not counted, what is allocated ahead included."""
    return sum(512 * path.stat().st_blocks for path in directory.rglob("*") if path.is_file())
