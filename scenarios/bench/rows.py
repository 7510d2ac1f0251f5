"""The rows of the table: which figure of which measurement, what Khepri has there, and what is demanded. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scenarios.bench.subject import Fault
from scenarios.bench.workloads import WORKLOADS, Kind, Place, Workload

__all__ = ["ROWS", "Demand", "Figure", "Reference", "RowSpec", "row_name"]


class Figure(StrEnum):
    """What of a measurement stands in the row."""

    P50_MS = "p50 ms"
    PER_SECOND = "/s"

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller figure is the better one."""
        return self is Figure.P50_MS


class Reference(StrEnum):
    """What a demand compares with."""

    ETCD = "etcd"
    """etcd's figure in the same run."""
    ABSOLUTE = ""
    """The figure itself."""


@dataclass(frozen=True)
class Demand:
    """At most, or at least, `limit` times the reference; which of the two follows from the figure.

    With `quiet_only`, it is judged only on a machine that has nothing else to do.
    """

    limit: float
    reference: Reference = Reference.ABSOLUTE
    quiet_only: bool = False


@dataclass(frozen=True)
class RowSpec:
    """One row. `khepri` was measured elsewhere, at another time, on a machine with two shared cores."""

    name: str
    title: str
    source: Workload | Fault
    figure: Figure
    khepri: float | None = None
    demands: tuple[Demand, ...] = ()


# The better of Khepri 0.16 and 0.19 beta, medians; 3 processes on loopback, fdatasync of 0.16-0.18 ms.
_KHEPRI: Final[dict[tuple[Kind, Place, int], float]] = {
    (Kind.WRITE, Place.LEADER, 1): 0.60,
    (Kind.WRITE, Place.LEADER, 16): 7_300,
    (Kind.WRITE, Place.LEADER, 64): 10_600,
    (Kind.WRITE, Place.LEADER, 256): 18_500,
    (Kind.WRITE, Place.FOLLOWER, 1): 0.67,
    (Kind.LOCAL_READ, Place.LEADER, 64): 317_000,
}
_DEMANDS: Final[dict[tuple[Kind, Place, int], tuple[Demand, ...]]] = {
    (Kind.WRITE, Place.LEADER, 1): (Demand(0.8, Reference.ETCD),),
    (Kind.WRITE, Place.LEADER, 64): (Demand(2.0, Reference.ETCD),),
    # 26,000 is one and a half times Khepri.
    (Kind.WRITE, Place.LEADER, 256): (Demand(3.0, Reference.ETCD), Demand(26_000, quiet_only=True)),
    (Kind.GROUPED_WRITE, Place.LEADER, 64): (Demand(60_000),),
    (Kind.LINEARIZABLE_READ, Place.LEADER, 1): (Demand(0.7, Reference.ETCD),),
    (Kind.LINEARIZABLE_READ, Place.FOLLOWER, 1): (Demand(0.7, Reference.ETCD),),
    (Kind.LOCAL_READ, Place.LEADER, 64): (Demand(300_000),),
}
_OUTAGES: Final = (
    RowSpec(
        "outage-sigkill",
        "leader SIGKILL to next accepted write",
        Fault.KILL,
        Figure.P50_MS,
        387,
        (Demand(400),),
    ),
    RowSpec(
        "outage-sigstop",
        "leader SIGSTOP to next accepted write",
        Fault.STOP,
        Figure.P50_MS,
        1_816,
        (Demand(1_500),),
    ),
)


def row_name(workload: Workload) -> str:
    """The name of the row of a workload: `write-leader-64`."""
    return workload.name


def _row(workload: Workload) -> RowSpec:
    key = (workload.kind, workload.place, workload.outstanding)
    figure = Figure.P50_MS if workload.outstanding == 1 else Figure.PER_SECOND
    unit = "" if figure is Figure.P50_MS else "s/s"
    clients = "one client" if workload.outstanding == 1 else f"{workload.outstanding} outstanding"
    title = f"{workload.kind}{unit}, {workload.place}, {clients}"
    if workload.kind is Kind.GROUPED_WRITE:
        title = f"grouped writes/s (16 a batch), {workload.place}, {clients}"
    if workload.kind is Kind.LOCAL_READ:
        title = "local reads/s (etcd: serializable, 64 outstanding)"
    return RowSpec(row_name(workload), title, workload, figure, _KHEPRI.get(key), _DEMANDS.get(key, ()))


ROWS: Final[tuple[RowSpec, ...]] = (*(_row(workload) for workload in WORKLOADS), *_OUTAGES)
