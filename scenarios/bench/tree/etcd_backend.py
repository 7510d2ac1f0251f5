"""How fast our tree is when etcd keeps it: `python -m batonpass.scenarios.bench.tree.etcd_backend`.

Three members of etcd, one process of ours and the clients inside it, as in a homeserver. The loads are those of
`baton bench tree`, so the rows can be held against the ones there.
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom

import click
import trio

from batonpass.scenarios.bench.tree.etcd import Etcd
from batonpass.scenarios.bench.tree.loads import PROCEDURES, fill, run_load
from batonpass.scenarios.bench.workloads import COMMANDS_PER_GROUP, OperationKind
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.tree.etcd import EtcdConfig, EtcdReplica

__all__ = ["main", "measure"]

_LOADS = [
    *((OperationKind.WRITE, outstanding) for outstanding in (1, 16, 64, 256)),
    (OperationKind.GROUPED_WRITE, 16),
    (OperationKind.LINEARIZABLE_READ, 1),
    (OperationKind.LINEARIZABLE_READ, 64),
    (OperationKind.LOCAL_READ, 1),
]


@asynccontextmanager
async def _running(directory: Path, ports: PortAllocator) -> AsyncIterator[EtcdReplica]:
    async with Etcd.open(directory, ports) as etcd, trio.open_nursery() as nursery:
        replica = EtcdReplica(EtcdConfig("bench", "bench", "b1", etcd.urls), PROCEDURES)
        await nursery.start(replica.serve)
        await fill(replica)
        yield replica
        nursery.cancel_scope.cancel()


async def measure(seconds: float) -> list[tuple[str, float, float]]:
    """Each load's name, its commands per second, and the median of its latencies in milliseconds."""
    rows = []
    with tempfile.TemporaryDirectory() as directory, PortAllocator(SystemRandom()) as ports:
        async with _running(Path(directory), ports) as replica:
            for kind, outstanding in _LOADS:
                loop = await run_load(replica, kind, outstanding, warm_up_s=seconds / 4, seconds=seconds)
                commands = loop.operations * (COMMANDS_PER_GROUP if kind is OperationKind.GROUPED_WRITE else 1)
                rows.append((f"{kind}, {outstanding}", commands / loop.seconds, (loop.p50_ns or 0) / 1e6))
    return rows


@click.command()
@click.option("--seconds", default=4.0, show_default=True, help="How long each load is measured.")
def main(seconds: float) -> None:
    """Measure the tree kept in etcd."""
    click.echo(f"{'load, outstanding':<28}{'per second':>12}{'p50 ms':>10}")
    for name, per_second, p50_ms in trio.run(measure, seconds):
        click.echo(f"{name:<28}{per_second:>12,.0f}{p50_ms:>10.3f}")


if __name__ == "__main__":
    main()
