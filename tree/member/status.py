"""What a member is configured to be, and what it tells about itself."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from batonpass.tree.net.membership import Member
from batonpass.tree.net.transport import Peers
from batonpass.tree.raft.raft import RaftCore, Timing

__all__ = ["Latencies", "Latency", "MemberStatus", "ReplicaConfig", "ReplicaStatus", "status_of"]

_LATENCIES_KEPT: Final = 1024


@dataclass(frozen=True)
class ReplicaConfig:
    """What a member is: its kind and instance, its name among the members, where it keeps its files.

    `members` are those that a new instance begins with; once members were added or removed, the log tells who they are
    and this counts no more. With `join`, this member begins with nothing and waits until it is added: `members` are
    then itself and some members at whose addresses to knock. `secret` is shared by the members of the instance and by
    no other; at least 16 random bytes.
    `machine_version` is that of the procedures: to be raised whenever one of them makes anything else of the same entry
    than before. Members of different versions, or who declare other names, do not connect to each other.
    `made_later` are files elsewhere that the program makes when the member has its journal
    (`tree.member.replica.open_journal`): a member without a journal that has one of them has lost it, and does not
    start. When snapshots are taken is what `compact_...` say, see `tree.disk.compaction.CompactionPolicy`.
    `max_history_events` are kept for watches: None for the usual number (`tree.store.watch.History`).
    """

    kind: str
    instance: str
    name: str
    members: tuple[Member, ...]
    directory: Path
    secret: bytes
    timing: Timing = field(default_factory=Timing)
    compact_after_entries: int = 262_144
    compact_after_bytes: int = 32 * 1024 * 1024
    join: bool = False
    compact_interval_s: float = 10.0
    machine_version: int = 0
    made_later: tuple[Path, ...] = ()
    max_history_events: int | None = None

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        if len(set(names)) != len(names):
            raise ValueError(f"two members of instance {self.instance!r} have the same name: {names}")
        if self.name not in names:
            raise ValueError(f"{self.name!r} is not among the members of instance {self.instance!r}: {names}")

    @property
    def me(self) -> Member:
        """This member."""
        return next(member for member in self.members if member.name == self.name)


@dataclass(frozen=True)
class MemberStatus:
    """A member as this one sees it.

    `connected`: there is a connection, and the member that should speak regularly on it did so lately. That is the
    leader, and to the leader every member. `role` is "voter" or "learner"; a learner gets a vote when it has caught up.
    `replaces` names the member that goes then. `match_index` is known to the leader only: up to there the member has
    the log. `lag_entries` is how much it lacks of what the leader has.
    """

    name: str
    host: str
    port: int
    connected: bool
    role: str = "voter"
    replaces: str | None = None
    match_index: int | None = None
    lag_entries: int | None = None


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


class Latencies:
    """How long the commands took that were answered lately."""

    def __init__(self) -> None:
        self._count = 0
        self._last_ns: Final[deque[int]] = deque(maxlen=_LATENCIES_KEPT)

    def add(self, latency_ns: int) -> None:
        """One more was answered."""
        self._count += 1
        self._last_ns.append(latency_ns)

    def summary(self) -> Latency:
        """What they come to now."""
        return Latency.of(self._count, self._last_ns)


@dataclass(frozen=True)
class ReplicaStatus:
    """What a member knows. `rounds` counts how often it sent new entries to the others as a leader.

    `configuration_index` is that of the entry of the log which made the members what they are: 0 as long as they are
    those that the instance began with, -1 for one that waits to be admitted.
    `leader` is the member that leads, by what was heard lately: the leader's last message, or, of this member, the last
    answers of a majority. `is_leader` and `ready` go by that too; `why_no_leader` says what is wrong if there was one.
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
    configuration_index: int = 0
    why_no_leader: str = ""
    cannot_write: str = ""
    """Why nothing can be written, though it is ready for reading: what keeps the tree has no room. Empty if it can."""


def status_of(
    name: str, raft: RaftCore | None, peers: Peers | None, applied_index: int, last_index: int, latency: Latency
) -> ReplicaStatus:
    """What the member `name` knows now. Without `raft` and `peers` it does not run; `last_index` is its journal's."""
    leader = None if raft is None else raft.leader_name()
    return ReplicaStatus(
        name=name,
        leader=leader,
        term=0 if raft is None else raft.raftCurrentTerm,
        members=() if raft is None or peers is None else _member_statuses(name, raft, peers, last_index),
        commit_index=0 if raft is None else raft.raftCommitIndex,
        applied_index=applied_index,
        is_leader=leader == name,
        ready=leader is not None and raft is not None and raft.has_committed_in_term(),
        rounds=0 if raft is None else raft.entry_rounds(),
        latency=latency,
        configuration_index=-1 if raft is None else raft.configuration.index,
        why_no_leader="" if raft is None else raft.why_no_leader(),
    )


def _member_statuses(name: str, raft: RaftCore, peers: Peers, last_index: int) -> tuple[MemberStatus, ...]:
    progress = raft.progress()
    return tuple(
        MemberStatus(
            name=seat.name,
            host=seat.member.host,
            port=seat.member.port,
            connected=seat.name == name or _is_heard(raft, peers, seat.name),
            role=str(seat.role),
            replaces=seat.replaces,
            match_index=progress[seat.name].match_index if seat.name in progress else None,
            lag_entries=last_index - progress[seat.name].match_index if seat.name in progress else None,
        )
        for seat in raft.configuration.seats
    )


def _is_heard(raft: RaftCore, peers: Peers, name: str) -> bool:
    """Whether there is a connection, and the peer spoke regularly if it should: the leader, or to it every member."""
    if raft.is_leader():
        progress = raft.progress().get(name)
        return progress is not None and progress.connected
    if name == raft.followed():
        return raft.leader_name() is not None
    return peers.is_connected(name)
