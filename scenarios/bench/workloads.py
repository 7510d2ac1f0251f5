"""What is measured: the workloads, and the keys and values that all of them use. Pure.

A workload is a closed loop of clients (`outstanding`), each of which begins its next operation when the last one
is answered. Keys and values are those of a metadata write: a path of three names, about 100 bytes of value.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = [
    "COMMANDS_PER_GROUP",
    "KEY_COUNT",
    "WORKLOADS",
    "BenchWorkload",
    "OperationKind",
    "Place",
    "Sample",
    "key_path",
    "node_path",
    "value_text",
]

KEY_COUNT: Final = 10_000
COMMANDS_PER_GROUP: Final = 16
_VALUE_CHARS: Final = 100
_KEYS_PER_SHARD: Final = 100


class OperationKind(StrEnum):
    """What one operation is."""

    WRITE = "write"
    GROUPED_WRITE = "grouped write"
    """`COMMANDS_PER_GROUP` writes that are submitted, and answered, together."""
    LINEARIZABLE_READ = "linearizable read"
    LOCAL_READ = "local read"
    """From the copy of the member that is asked; it may be behind."""


class Place(StrEnum):
    """Which member the clients talk to."""

    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True)
class BenchWorkload:
    """One closed loop: what, where, and how many clients."""

    kind: OperationKind
    place: Place
    outstanding: int

    @property
    def name(self) -> str:
        """As on the command line and in the report: `write-leader-64`."""
        return f"{self.kind.replace(' ', '-')}-{self.place}-{self.outstanding}"

    @property
    def commands_per_operation(self) -> int:
        """What an operation counts as in figures per second."""
        return COMMANDS_PER_GROUP if self.kind is OperationKind.GROUPED_WRITE else 1


@dataclass(frozen=True)
class Sample:
    """One workload, measured once.

    Latencies are those of operations: of a whole group, where writes are grouped. They are None where operations are
    too short to be timed one by one. The processor time is that of the member which leads, the mean of the others, and
    that of the clients, per command. The last is None where the clients run inside a member, whose time has it then.
    """

    commands: int
    seconds: float
    p50_ms: float | None
    p99_ms: float | None
    leader_cpu_us: float
    follower_cpu_us: float
    client_cpu_us: float | None = None

    @property
    def per_second(self) -> float:
        """Commands per second."""
        return self.commands / self.seconds


def key_path(number: int) -> tuple[str, str, str]:
    """The path of a key; numbers run over all `KEY_COUNT` keys and then begin again."""
    key = number % KEY_COUNT
    return ("bench", f"shard{key // _KEYS_PER_SHARD:02d}", f"key{key:05d}")


def node_path(number: int) -> tuple[str, str, str]:
    """The path of a node among very many: a thousand children to each parent."""
    return ("nodes", f"{number // 1000:06d}", f"{number % 1000:03d}")


def value_text(number: int) -> str:
    """A value of 100 characters, another one for each number, so that no write is a write of what is there already."""
    return f"{number:012d}".ljust(_VALUE_CHARS, "v")


def _workloads() -> tuple[BenchWorkload, ...]:
    writes = [BenchWorkload(OperationKind.WRITE, place, count) for place in Place for count in (1, 16, 64, 256)]
    groups = [BenchWorkload(OperationKind.GROUPED_WRITE, Place.LEADER, 64)]
    reads = [BenchWorkload(OperationKind.LINEARIZABLE_READ, place, count) for place in Place for count in (1, 64)]
    return (*writes, *groups, *reads, BenchWorkload(OperationKind.LOCAL_READ, Place.LEADER, 64))


WORKLOADS: Final = _workloads()
