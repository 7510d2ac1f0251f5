"""The rows of the table: which figure of which measurement, what Khepri has there, and what is demanded. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from batonpass.scenarios.bench.subject import LeaderFault
from batonpass.scenarios.bench.workloads import WORKLOADS, BenchWorkload, OperationKind, Place

__all__ = ["NodesFigure", "Reference", "RowDemand", "RowSpec", "RowUnit", "bare", "number", "rewritten_of", "rows_of"]


class RowUnit(StrEnum):
    """What a row counts in."""

    MS = "ms"
    SECONDS = "s"
    PER_SECOND = "/s"
    BYTES = "bytes"
    TIMES = "x"
    MICROSECONDS = "µs"
    MEGABYTES = "MB"
    MEGABYTES_PER_SECOND = "MB/s"
    SHARE = "of 1"
    FRAMES = "frames"
    EVENTS = "events"
    CLIENTS = "clients"
    TICKS = "ticks"

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller figure is the better one."""
        return self not in {RowUnit.PER_SECOND, RowUnit.MEGABYTES_PER_SECOND, RowUnit.SHARE, RowUnit.CLIENTS}


class NodesFigure(StrEnum):
    """A figure of the measurement with very many nodes; see `nodes`."""

    LOAD = "load"
    MEMORY = "memory"
    DISK = "disk"
    WRITE_FEW = "write-few"
    WRITE_SOME = "write-some"
    WRITE_ALL = "write-all"
    WRITE_GROWTH = "write-growth"
    WRITES_FEW = "writes-few"
    WRITES_SOME = "writes-some"
    WRITES_ALL = "writes-all"
    LONGEST_WRITE = "longest-write"
    RESTART = "restart"


class Reference(StrEnum):
    """What a demand compares with."""

    ETCD = "etcd"
    """etcd's figure in the same run."""
    ABSOLUTE = "absolute"
    """The figure itself."""


@dataclass(frozen=True)
class RowDemand:
    """At most, or at least, `limit` times the reference; which of the two follows from the unit.

    With `quiet_only`, it is judged only on a machine that has nothing else to do.
    """

    limit: float
    reference: Reference = Reference.ABSOLUTE
    quiet_only: bool = False


@dataclass(frozen=True)
class RowSpec:
    """One row. `khepri` was measured elsewhere, at another time, on a machine with two shared cores.

    A row of a workload with a single client shows the median latency, with several what they do per second.
    """

    name: str
    title: str
    source: BenchWorkload | LeaderFault | NodesFigure
    unit: RowUnit
    khepri: float | None = None
    demands: tuple[RowDemand, ...] = ()


# The better of Khepri 0.16 and 0.19 beta, medians; 3 processes on loopback, fdatasync of 0.16-0.18 ms.
_KHEPRI: Final[dict[tuple[OperationKind, Place, int], float]] = {
    (OperationKind.WRITE, Place.LEADER, 1): 0.60,
    (OperationKind.WRITE, Place.LEADER, 16): 7_300,
    (OperationKind.WRITE, Place.LEADER, 64): 10_600,
    (OperationKind.WRITE, Place.LEADER, 256): 18_500,
    (OperationKind.WRITE, Place.FOLLOWER, 1): 0.67,
    (OperationKind.LOCAL_READ, Place.LEADER, 64): 317_000,
}
_DEMANDS: Final[dict[tuple[OperationKind, Place, int], tuple[RowDemand, ...]]] = {
    (OperationKind.WRITE, Place.LEADER, 1): (RowDemand(0.8, Reference.ETCD),),
    (OperationKind.WRITE, Place.LEADER, 64): (RowDemand(2.0, Reference.ETCD),),
    # 26,000 is one and a half times Khepri.
    (OperationKind.WRITE, Place.LEADER, 256): (RowDemand(3.0, Reference.ETCD), RowDemand(26_000, quiet_only=True)),
    (OperationKind.GROUPED_WRITE, Place.LEADER, 64): (RowDemand(60_000),),
    (OperationKind.LINEARIZABLE_READ, Place.LEADER, 1): (RowDemand(0.7, Reference.ETCD),),
    (OperationKind.LINEARIZABLE_READ, Place.FOLLOWER, 1): (RowDemand(0.7, Reference.ETCD),),
    (OperationKind.LOCAL_READ, Place.LEADER, 64): (RowDemand(300_000),),
}
_OUTAGES: Final = (
    RowSpec(
        "outage-sigkill", "leader SIGKILL to next accepted write", LeaderFault.KILL, RowUnit.MS, 387, (RowDemand(400),)
    ),
    RowSpec(
        "outage-sigstop",
        "leader SIGSTOP to next accepted write",
        LeaderFault.STOP,
        RowUnit.MS,
        1_816,
        (RowDemand(1_500),),
    ),
)
# A write looks names up in one dictionary per level, so it should cost the same; the rest is noise and cache misses.
_WRITE_GROWTH_LIMIT: Final = 1.3


def rows_of(node_counts: tuple[int, int, int]) -> tuple[RowSpec, ...]:
    """All rows; `node_counts` are the sizes of the tree at which a write is timed, the last being all nodes."""
    return (*(_row(workload) for workload in WORKLOADS), *_OUTAGES, *_nodes_rows(*node_counts))


def rewritten_of(nodes: int) -> int:
    """How many nodes are rewritten to see what a snapshot costs; of a million, enough that one has to be made."""
    return min(nodes, 400_000)


def _row(workload: BenchWorkload) -> RowSpec:
    key = (workload.kind, workload.place, workload.outstanding)
    unit = RowUnit.MS if workload.outstanding == 1 else RowUnit.PER_SECOND
    clients = "one client" if workload.outstanding == 1 else f"{workload.outstanding} outstanding"
    title = f"{workload.kind}{'' if unit is RowUnit.MS else 's'}, {workload.place}, {clients}"
    if workload.kind is OperationKind.GROUPED_WRITE:
        title = f"writes in batches of 16, {workload.place}, {clients}"
    if workload.kind is OperationKind.LOCAL_READ:
        title = "local reads, in process (etcd: serializable)"
    return RowSpec(workload.name, title, workload, unit, _KHEPRI.get(key), _DEMANDS.get(key, ()))


def _nodes_rows(few: int, some: int, everything: int) -> tuple[RowSpec, ...]:
    rewritten = f"{rewritten_of(everything):,}"
    rows = (
        (NodesFigure.LOAD, RowUnit.PER_SECOND, f"{everything:,} nodes: load", ()),
        (NodesFigure.MEMORY, RowUnit.BYTES, f"{everything:,} nodes: memory of a member, per node", ()),
        (NodesFigure.DISK, RowUnit.BYTES, f"{everything:,} nodes: on disk, per node", ()),
        (NodesFigure.WRITE_FEW, RowUnit.MS, f"write among {few:,} nodes, one client", ()),
        (NodesFigure.WRITE_SOME, RowUnit.MS, f"write among {some:,} nodes, one client", ()),
        (NodesFigure.WRITE_ALL, RowUnit.MS, f"write among {everything:,} nodes, one client", ()),
        (
            NodesFigure.WRITE_GROWTH,
            RowUnit.TIMES,
            f"cost of a write, {everything:,} nodes : {few:,} nodes",
            (RowDemand(_WRITE_GROWTH_LIMIT),),
        ),
        (NodesFigure.WRITES_FEW, RowUnit.PER_SECOND, f"writes among {few:,} nodes, 64 outstanding", ()),
        (NodesFigure.WRITES_SOME, RowUnit.PER_SECOND, f"writes among {some:,} nodes, 64 outstanding", ()),
        (NodesFigure.WRITES_ALL, RowUnit.PER_SECOND, f"writes among {everything:,} nodes, 64 outstanding", ()),
        (
            NodesFigure.LONGEST_WRITE,
            RowUnit.MS,
            f"{everything:,} nodes: longest write while {rewritten} are rewritten",
            (),
        ),
        (NodesFigure.RESTART, RowUnit.SECONDS, f"{everything:,} nodes: restart of a member until it has caught up", ()),
    )
    return tuple(
        RowSpec(f"nodes-{figure}", title, figure, unit, demands=demands) for figure, unit, title, demands in rows
    )


def number(value: float, unit: RowUnit) -> str:
    """A figure with its unit."""
    suffix = "/s" if unit is RowUnit.PER_SECOND else unit if unit is RowUnit.TIMES else f" {unit}"
    return f"{bare(value, unit)}{suffix}"


def bare(value: float, unit: RowUnit) -> str:
    """A figure without its unit, with as many digits as mean something."""
    if unit is not RowUnit.PER_SECOND and value < 10:
        return f"{value:.2f}"
    return f"{value:,.0f}" if value < 100_000 else f"{value / 1000:,.0f}k"
