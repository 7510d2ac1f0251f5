"""What a member is configured to be, and what it tells about itself."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tree.raft import Timing
from tree.transport import Member

__all__ = ["Latency", "MemberStatus", "ReplicaConfig", "ReplicaStatus"]


@dataclass(frozen=True)
class ReplicaConfig:
    """What a member is: its kind and instance, its name among the members, where it keeps its files.

    `secret` is shared by the members of the instance and by nobody else; at least 16 random bytes.
    """

    kind: str
    instance: str
    name: str
    members: tuple[Member, ...]
    directory: Path
    secret: bytes
    timing: Timing = field(default_factory=Timing)
    compact_after_entries: int = 16_384
    compact_after_bytes: int = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        if len(set(names)) != len(names):
            raise ValueError(f"two members of instance {self.instance!r} have the same name: {names}")
        if self.name not in names:
            raise ValueError(f"{self.name!r} is not among the members of instance {self.instance!r}: {names}")


@dataclass(frozen=True)
class MemberStatus:
    """A member as this one sees it."""

    name: str
    host: str
    port: int
    connected: bool


@dataclass(frozen=True)
class Latency:
    """Of the commands submitted here lately and answered: how many ever, and how long they took."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @staticmethod
    def of(count: int, latencies_ns: Iterable[int]) -> "Latency":
        """Of the last latencies of `count` answered commands; all zero while there are none."""
        ordered = sorted(latencies_ns)
        if not ordered:
            return Latency(count, 0.0, 0.0, 0.0)
        p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        return Latency(count, p50 / 1e6, p99 / 1e6, ordered[-1] / 1e6)


@dataclass(frozen=True)
class ReplicaStatus:
    """What a member knows. `rounds` counts how often it sent new entries to the others as a leader.

    `ready` means that it knows a leader and has applied something of the leader's term, so that it is up to date but
    for what is under way.
    """

    name: str
    leader: str | None
    term: int
    members: tuple[MemberStatus, ...]
    commit_index: int
    applied_index: int
    is_leader: bool
    ready: bool
    rounds: int
    latency: Latency
