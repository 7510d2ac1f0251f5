"""The ground of a member's Raft: what it holds, whom it counts, and what can be asked of it.

The lowest layer of `tree.raft.raft.RaftCore`, which says what the whole is and to whom it answers.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import pysyncobj.syncobj
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node

from batonpass.tree.data.errors import BadData
from batonpass.tree.disk.batches import REMEDY
from batonpass.tree.disk.compaction import CompactionPolicy, Snapshots
from batonpass.tree.disk.disk import REAL_DISK, Disk
from batonpass.tree.disk.journal import Entry, Journal, JournalDamaged
from batonpass.tree.disk.snapshot import SnapshotDamaged, SnapshotFile
from batonpass.tree.net.membership import NO_CONFIGURATION, Configuration, Member, MemberRole, Progress, best_successor
from batonpass.tree.raft.elections import Candidacy
from batonpass.tree.raft.raft_ports import CHANGE_KIND, Driver, JournalPort, MemberNode, Outlet, clock_s

__all__ = ["MAX_UNCOMMITTED", "Handover", "RaftMember", "Timing", "is_change"]

# One frame takes a batch and the largest command. A single entry never reaches the size of a batch, so PySyncObj never
# cuts one in pieces. (Its pieces are pickled, and the last one may be sent twice.)
_BATCH_BYTES: Final = 2 * 1024 * 1024
# How far a leader may run ahead of its quorum before it takes no more.
MAX_UNCOMMITTED: Final = 16_384


@dataclass(frozen=True)
class Timing:
    """How patient Raft is, in seconds: a heartbeat each `heartbeat_s`, an election after a silence between the two."""

    heartbeat_s: float = 0.1
    election_min_s: float = 0.6
    election_max_s: float = 1.2


@dataclass(slots=True)
class Handover:
    """A transfer of leadership under way: to whom, until when, and when it was last told to stand."""

    target: str
    until_s: float
    told_at_s: float = float("-inf")


class RaftMember(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """One member's journal, snapshots and configuration, and where it stands."""

    def __init__(
        self,
        name: str,
        members: Iterable[Member],
        journal: Journal,
        directory: Path,
        owner: str,
        driver: Driver,
        dice: random.Random,
        timing: Timing,
        *,
        compact_after_entries: int,
        compact_after_bytes: int,
        batch_bytes: int = _BATCH_BYTES,
        disk: Disk = REAL_DISK,
        compact_interval_s: float = 0.0,
    ) -> None:
        """Restore the state from the snapshot in `directory`; raises `SnapshotDamaged`, `JournalDamaged`, `DiskFailed`.

        `members` are those that the instance began with; none for a member that waits to be admitted. Once the members
        were changed, what the log says counts and not this.
        `batch_bytes` bounds the entries of one message; smaller ones, always larger than any command, are for tests.
        """
        # PySyncObj calls overridden methods while it is being constructed, so everything of ours comes first.
        self._dice = dice
        self._driver = driver
        self._journal = journal
        self._heartbeat_s = timing.heartbeat_s
        self._batch_bytes = batch_bytes
        self._queued = 0
        # The entry that is being applied, and what is left of it; see `RaftCore._SyncObj__applyLogEntries`.
        self._applying: tuple[int, Iterator[int]] | None = None
        self._steps_left = 0
        self._uncommitted_bytes = 0
        self._announced = (0, 0)
        self._announce_at_s: float | None = None
        self._forwarded = False
        self._forwarded_up_to = 0
        self._granted: tuple[int, set[str]] = (0, set())
        self._rejected: tuple[int, int] | None = None
        self._said: tuple[str, int, int, bool] | None = None
        self._said_at_s = 0.0
        self._entry_rounds = 0
        self._name = name
        self._election_min_s = timing.election_min_s
        self._election_max_s = timing.election_max_s
        self._candidacy = Candidacy(timing.election_min_s)
        self._candidacy_term: int | None = None  # the term in which this tick began to stand
        self._handover: Handover | None = None
        self._unsettled = False  # whether a member waits to be promoted or dismissed
        self._proposed = (0, 0)  # the term and the index of the last change that this member proposed
        self._snapshots = Snapshots(
            SnapshotFile(directory / "snapshot", owner, disk),
            journal,
            driver,
            CompactionPolicy(compact_after_entries, compact_after_bytes, compact_interval_s),
            lambda: cast(int, self.raftLastApplied),
        )
        restored_index = self._restore(directory)
        commit_index = max(restored_index, min(journal.recorded_commit, journal.last_index))
        # The changes in the log that are not known to be committed, in order; see `_remember_committed_changes`.
        self._open_changes = [entry[1] for entry in journal[:] if entry[1] > commit_index and is_change(entry)]
        self.configuration = self._restored_configuration() or _initial(members)
        self._nodes = {seat.name: MemberNode(seat.name) for seat in self.configuration.seats}
        self._nodes.setdefault(name, MemberNode(name))
        self._outlet = Outlet(driver)
        conf = SyncObjConf(
            autoTick=False,
            dynamicMembershipChange=False,
            commandsWaitLeader=True,
            commandsQueueSize=MAX_UNCOMMITTED,
            raftMinTimeout=timing.election_min_s,
            raftMaxTimeout=timing.election_max_s,
            connectionTimeout=timing.election_max_s,
            appendEntriesPeriod=timing.heartbeat_s,
            appendEntriesUseBatch=True,
            appendEntriesBatchSizeBytes=batch_bytes,
            leaderFallbackTimeout=2 * timing.election_max_s,
            journalFile=JournalPort(journal, commit_index),
            fullDumpFile=None,
            useFork=False,
        )
        super().__init__(self._nodes[name], (), conf, nodeClass=MemberNode, transport=self._outlet)
        self._outlet.connected = self._SyncObj__connectedNodes
        self._SyncObj__serializer = self._snapshots
        self._SyncObj__needLoadDumpFile = False
        self._SyncObj__raftLastApplied = restored_index
        journal.mark_committed(commit_index)
        self._adopt(self.configuration)
        if self.is_alone():
            self.hasten_election(0.0)

    def _restore(self, directory: Path) -> int:
        restored_index = self._snapshots.restore()
        if restored_index is not None:
            return restored_index
        if self._journal.first_index > 1:
            raise JournalDamaged(
                f"the journal in {directory} begins at entry {self._journal.first_index}, and the snapshot that "
                f"held what came before is gone. Put it back; or {REMEDY.format(directory)}"
            )
        return 1

    def _restored_configuration(self) -> Configuration | None:
        data = self._driver.configuration()
        try:
            return None if data is None else Configuration.from_data_untrusted(data)
        except BadData as error:
            raise SnapshotDamaged(f"the snapshot does not tell who the members are: {error.message}") from error

    # --- where it stands ----------------------------------------------------------------------------------------------

    def leader_name(self) -> str | None:
        """The leader this member follows, or itself; None if it knows none, or nothing was heard that proves it.

        What was heard counts, not a connection. That is the leader's last message, or, where this member leads, the
        last answers of a majority, within the longest election timeout. Beyond, the others would elect another one.
        """
        name = self.followed()
        return name if name is not None and self._silence_s() < self._election_max_s else None

    def followed(self) -> str | None:
        """The leader that this member last followed in this term, or itself; it may be gone, see `leader_name`."""
        leader = self._getLeader()
        return None if leader is None else str(leader.id)

    def why_no_leader(self) -> str:
        """For people: what is wrong with the leader that this member follows, if anything is known of one."""
        name, silence_s = self.followed(), self._silence_s()
        if name is None or silence_s < self._election_max_s:
            return ""
        if self._isLeader():
            return f"it leads, but no majority of the members has answered it for {silence_s:.1f} s"
        if silence_s == float("inf"):
            return f"its leader {name} cannot be reached any more"
        return f"its leader {name} has not been heard of for {silence_s:.1f} s"

    def _silence_s(self) -> float:
        """How long ago this member heard what proves that there is a leader, in seconds."""
        now_s = clock_s()
        if not self._isLeader():
            leader = self._getLeader()
            reachable = leader is not None and self.isNodeConnected(leader)
            return self._candidacy.silence_s(now_s) if reachable else float("inf")
        silences_s = sorted(now_s - self._SyncObj__lastResponseTime[node] for node in self._SyncObj__otherNodes)
        needed = (len(silences_s) + 1) // 2  # of the others, to be a majority with this member
        return silences_s[needed - 1] if needed else 0.0

    def is_leader(self) -> bool:
        """Whether this member takes itself for the leader. Another one may have been elected meanwhile."""
        return bool(self._isLeader())

    def has_committed_in_term(self) -> bool:
        """Whether the commit index covers everything that any leader before has committed."""
        return bool(self._journal.term_at(self.raftCommitIndex) == self.raftCurrentTerm)

    def is_behind(self) -> bool:
        """Whether something is committed that is not applied yet: the next tick continues."""
        return bool(self.raftCommitIndex > self.raftLastApplied)

    def is_alone(self) -> bool:
        """Whether no other member votes, so that no acknowledgement brings the next tick."""
        return self._name in self.configuration.voters and not self._SyncObj__otherNodes

    def other_voters(self) -> tuple[str, ...]:
        """The other members whose confirmation counts, in order."""
        return self._others

    def hasten_election(self, delay_s: float) -> None:
        """Stand for election in `delay_s` at the latest, unless a leader is heard from before, or it may not vote."""
        if self._name not in self.configuration.voters:
            return
        deadline = clock_s() + delay_s
        current = cast(float, vars(self)["_SyncObj__raftElectionDeadline"])
        self._SyncObj__raftElectionDeadline = min(current, deadline)

    def progress(self) -> dict[str, Progress]:
        """As leader, how far each other member is; empty on others."""
        return self._progress() if self._isLeader() else {}

    def _progress(self) -> dict[str, Progress]:
        now_s = clock_s()
        match, heard_s = self._SyncObj__raftMatchIndex, self._SyncObj__lastResponseTime
        return {
            name: Progress(
                match_index=match.get(node, 0),
                connected=self.isNodeConnected(node)
                and now_s - heard_s.get(node, float("-inf")) < self._election_max_s,
                recent=now_s - heard_s.get(node, float("-inf")) < self._election_min_s,
            )
            for name, node in self._nodes.items()
            if name != self._name and self.configuration.seat(name) is not None
        }

    def _is_member(self) -> bool:
        """Whether this member may vote if a candidate asks it.

        A learner may. A candidate that asks it knows that it was promoted, which it may not know itself yet. Perhaps no
        other member is left to vote (as in etcd/raft). One that waits for its admission or is dismissed may not.
        """
        return self.configuration.seat(self._name) is not None

    def _node(self, name: str) -> Node:
        return self._nodes.get(name) or MemberNode(name)

    # --- the configuration that counts --------------------------------------------------------------------------------

    def _adopt(self, configuration: Configuration) -> None:
        """Count, send and stand by this configuration from now on (T16)."""
        self.configuration = configuration
        self._unsettled = any(
            seat.role is MemberRole.LEARNER or seat.replaces is not None for seat in configuration.seats
        )
        for seat in configuration.seats:
            self._nodes.setdefault(seat.name, MemberNode(seat.name))
        known = {name: node for name, node in self._nodes.items() if name != self._name}
        self._others = tuple(name for name in configuration.voters if name != self._name)
        self._SyncObj__otherNodes = {known[name] for name in self._others}
        self._SyncObj__readonlyNodes = {known[name] for name in configuration.learners if name != self._name}
        self._follow_progress_of(self._SyncObj__otherNodes | self._SyncObj__readonlyNodes)
        votes = self._name in configuration.voters
        if not votes or self._SyncObj__raftElectionDeadline == float("inf"):
            self._SyncObj__raftElectionDeadline = clock_s() + self._SyncObj__generateRaftTimeout()
        if not votes and self._isLeader():
            self._leave_leadership()

    def _follow_progress_of(self, nodes: set[Node]) -> None:
        """Give newcomers a place in PySyncObj's tables, and take that of those who left."""
        next_index, match_index = self._SyncObj__raftNextIndex, self._SyncObj__raftMatchIndex
        heard_s = self._SyncObj__lastResponseTime
        for node in nodes:
            if node not in match_index:
                next_index[node], match_index[node] = self._journal.last_index + 1, 0
                heard_s[node] = clock_s()
        for node in [node for node in match_index if node not in nodes]:
            for table in (next_index, match_index, heard_s):
                table.pop(node, None)
            self._snapshots.cancelTransmisstion(node)
            if not self.isNodeConnected(node):
                self._nodes.pop(node.id, None)

    def _leave_leadership(self) -> None:
        """This leader committed its own dismissal, which an earlier leader had proposed."""
        self._SyncObj__sendAppendEntries()  # the others learn that it is committed
        successor = best_successor(self.configuration, self._name, self._progress())
        if successor is not None:
            self._outlet.send(self._nodes[successor], {"type": "timeout_now", "term": self.raftCurrentTerm})
        self._SyncObj__setState(pysyncobj.syncobj._RAFT_STATE.FOLLOWER)
        self._SyncObj__raftLeader = None

    def _note_changes(self, indices: Iterable[int]) -> None:
        for index in indices:
            self._open_changes = [*(known for known in self._open_changes if known < index), index]

    def _remember_committed_changes(self) -> None:
        """Have the journal remember, in the sync that makes a later change durable, that an earlier one is committed.

        Without that, this member could stand for election by a configuration of long ago (`tree.net.membership`, T16).
        """
        if self._open_changes and self._open_changes[0] <= self.raftCommitIndex:
            self._open_changes = [index for index in self._open_changes if index > self.raftCommitIndex]
            self._journal.record_commit(min(self.raftCommitIndex, self._journal.last_index))


def _initial(members: Iterable[Member]) -> Configuration:
    configuration = Configuration.initial(members)
    return configuration if configuration.seats else NO_CONFIGURATION


def is_change(entry: Entry) -> bool:
    """Whether this entry of the log changes the members."""
    return entry[0].startswith(CHANGE_KIND)
