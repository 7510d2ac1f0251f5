"""The fence around PySyncObj: Raft itself, with the faults of the stock package closed where they can be reached.

This module and `tree.raft_ports` are the only ones that import PySyncObj, and they do so for exactly one version:
private methods are overridden here, and each override was judged against that version's source. What is touched and
why is listed, touch by touch, in docs/decisions/0001-raft-fence.md; the numbers (T1...) in comments here refer to it.

`RaftCore` waits for nothing and knows no sockets. Its driver calls `receive` with each message and `tick` when there is
something to do, and sends what it is handed. The contract is an order: a message whose type is in `NEEDS_SYNC` says "I
have this entry", "this is my term" or "you have my vote", so it may leave only after the journal was synced; and the
journal is synced before each tick, because a leader counts itself as having what its journal holds.
"""

import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import pysyncobj.syncobj
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node

from tree.batches import REMEDY
from tree.compaction import CompactionPolicy, Snapshots
from tree.disk import REAL_DISK, Disk
from tree.elections import Candidacy
from tree.errors import BadData
from tree.journal import Entry, Journal, JournalDamaged
from tree.membership import (
    NO_CONFIGURATION,
    Change,
    ChangeRefused,
    Configuration,
    Member,
    Progress,
    Role,
    Seat,
    best_successor,
    decode_seats_untrusted,
    encode_seats,
    next_step,
    proposed_seats,
)
from tree.raft_ports import (
    CHANGE_KIND,
    COMMAND_KIND,
    NEEDS_SYNC,
    Driver,
    JournalPort,
    MemberNode,
    Message,
    Outlet,
    RaftBroken,
    clock_s,
    use_clock,
)
from tree.snapshot import SnapshotDamaged, SnapshotFile

__all__ = ["CHANGE_KIND", "COMMAND_KIND", "NEEDS_SYNC", "Driver", "RaftBroken", "RaftCore", "Timing", "use_clock"]

log = logging.getLogger("tree.raft")

# One frame takes a batch and the largest command; a single entry never reaches the size of a batch, so that PySyncObj
# never cuts one in pieces (its pieces are pickled, and the last one may be sent twice).
_BATCH_BYTES: Final = 2 * 1024 * 1024
# How far a leader may run ahead of its quorum before it takes no more.
MAX_UNCOMMITTED: Final = 16_384
MAX_UNCOMMITTED_BYTES: Final = 64 * 1024 * 1024
# How long a follower may not know what is committed, if it did not ask for it and nothing else is to be said.
_COMMIT_ANNOUNCEMENT_S: Final = 0.002
# A little apart, so that two members seldom stand at the same time.
_ELECTION_WHEN_LOST_S: Final = (0.01, 0.15)
_ELECTION_WHEN_MET_S: Final = (0.2, 0.5)
_LONGEST_IDLE_S: Final = 3600.0


@dataclass(frozen=True)
class Timing:
    """How patient Raft is, in seconds: a heartbeat each `heartbeat_s`, an election after a silence between the two."""

    heartbeat_s: float = 0.1
    election_min_s: float = 0.6
    election_max_s: float = 1.2


@dataclass(slots=True)
class _Handover:
    """A transfer of leadership under way: to whom, until when, and when it was last told to stand."""

    target: str
    until_s: float
    told_at_s: float = float("-inf")


class RaftCore(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """One member's Raft. Not to be used after any method raised: the driver stops the member."""

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
        self._uncommitted_bytes = 0
        self._announced = (0, 0)
        self._announce_at_s: float | None = None
        self._forwarded = False
        self._forwarded_up_to = 0
        self._granted: tuple[int, set[str]] = (0, set())
        self._rejected: tuple[int, int] | None = None
        self._said: tuple[str, int, int] | None = None
        self._said_at_s = 0.0
        self._entry_rounds = 0
        self._name = name
        self._election_min_s = timing.election_min_s
        self._election_max_s = timing.election_max_s
        self._candidacy = Candidacy(timing.election_min_s)
        self._candidacy_term: int | None = None  # the term in which this tick began to stand
        self._handover: _Handover | None = None
        self._unsettled = False  # whether somebody waits to be promoted or dismissed
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
        self._open_changes = [entry[1] for entry in journal[:] if entry[1] > commit_index and _is_change(entry)]
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

    # --- what the driver calls ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due. The journal must be synced. Announces new entries and a new commit index at once (T9)."""
        if self.raftCommitIndex > self.raftLastApplied:
            self._SyncObj__applyLogEntries()  # changes of the members above all, before this one stands (T16)
        self._prepare_to_stand()
        self.doTick(0.0)
        self._after_standing()
        self._queued = 0
        self._journal.mark_committed(max(self.raftLastApplied, min(self.raftCommitIndex, self._journal.last_index)))
        if self._isLeader():
            self._go_on_with_handover()
            self._go_on_with_changes()
            self._announce_news()
        else:
            self._handover = None
        self._remember_committed_changes()
        self._snapshots.work(clock_s())

    def _announce_news(self) -> None:
        """Send new entries at once; a new commit index too if another member waits for it, else with the next entries.

        A client that writes one thing after the other has the next entry on its way within the delay, so half of all
        messages are never sent (T9).
        """
        last, commit = self._journal.last_index, self.raftCommitIndex
        if self._forwarded:
            self._forwarded, self._forwarded_up_to = False, last
        if last != self._announced[0]:
            self._entry_rounds += 1
        elif commit == self._announced[1]:
            self._announce_at_s = None
            return
        elif self._announced[1] >= self._forwarded_up_to:
            now_s = clock_s()
            if self._announce_at_s is None:
                self._announce_at_s = now_s + _COMMIT_ANNOUNCEMENT_S
            if now_s < self._announce_at_s:
                return
        self._announce(last, commit)

    def _announce(self, last: int, commit: int) -> None:
        self._announced, self._announce_at_s = (last, commit), None
        self._SyncObj__sendAppendEntries()

    def announce_commit(self) -> None:
        """As leader, let the others know the commit index now, if they do not."""
        if self._isLeader() and self.raftCommitIndex != self._announced[1]:
            self._announce(self._journal.last_index, self.raftCommitIndex)

    def receive(self, name: str, message: Message) -> None:
        """Take a message of a member. Afterwards the journal may need a sync, and a tick is due."""
        node = self._node(name)
        try:
            match message["type"]:
                case "append_entries":
                    self._receive_append(node, message)
                case "next_node_idx":
                    self._receive_acknowledgement(node, message)
                case "response_vote":
                    self._receive_vote(node, message)
                case "apply_command":
                    self._receive_command(node, message)
                case "request_vote":
                    self._receive_vote_request(node, message)
                case "pre_vote":
                    self._receive_pre_vote(name, message)
                case "pre_vote_answer":
                    self._receive_pre_vote_answer(name, message)
                case "timeout_now":
                    self._receive_timeout_now(node, message)
                case other:
                    raise RaftBroken(f"a message {other!r} is none of Raft's")
        finally:
            self._journal.settle()
        self._remember_committed_changes()
        if self._snapshots.failure is not None:
            raise RaftBroken("a snapshot could not be installed") from self._snapshots.failure

    def submit(self, command: bytes) -> bool:
        """Append a command at the next tick, if this member leads then.

        False if too many are waiting already, or while the leadership is being transferred: submit it again.
        """
        if self._handover is not None:
            return False
        uncommitted = self._journal.last_index - self.raftCommitIndex
        if self._uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
            # An upper bound; the exact sum is only worth its time when the bound is reached.
            self._uncommitted_bytes = sum(len(entry[0]) for entry in self._journal[len(self._journal) - uncommitted :])
        if self._queued + uncommitted >= MAX_UNCOMMITTED or self._uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
            return False
        self._queued += 1
        self._uncommitted_bytes += len(command)
        self._applyCommand(command, None)
        return True

    def peer_connected(self, name: str) -> None:
        """A member can be reached now."""
        node = self._nodes.setdefault(name, MemberNode(name))
        self._SyncObj__onNodeConnected(node)
        self._rejected = self._said = None
        if self.leader_name() is None:
            # Not at once: if there is a leader, its heartbeat is about to come.
            self.hasten_election(self._dice.uniform(*_ELECTION_WHEN_MET_S))

    def peer_lost(self, name: str) -> None:
        """A member cannot be reached any more. If it was the leader, do not wait for its silence (T10)."""
        node = self._node(name)
        led = self.leader_name() == name
        self._SyncObj__onNodeDisconnected(node)
        self._outlet.resting.discard(node)
        self._snapshots.cancelTransmisstion(node)
        self._rejected = self._said = None
        if self.configuration.seat(name) is None and name != self._name:
            self._nodes.pop(name, None)
        if led:
            self._candidacy.lost_leader()
            self.hasten_election(self._dice.uniform(*_ELECTION_WHEN_LOST_S))

    def hasten_election(self, delay_s: float) -> None:
        """Stand for election in `delay_s` at the latest, unless a leader is heard from before, or it may not vote."""
        if self._name not in self.configuration.voters:
            return
        deadline = clock_s() + delay_s
        current = cast(float, vars(self)["_SyncObj__raftElectionDeadline"])
        self._SyncObj__raftElectionDeadline = min(current, deadline)

    def idle_for_s(self) -> float:
        """How long nothing is due if nothing happens."""
        due = self._SyncObj__newAppendEntriesTime if self._isLeader() else self._SyncObj__raftElectionDeadline
        now_s = clock_s()
        remaining_s = float(due) - now_s
        # A hair later than due, because PySyncObj asks whether the time is over, not whether it has come. What stays
        # overdue after a tick waits for something else, such as an election for a member to stand before.
        idle_s = min(remaining_s + 0.0005, _LONGEST_IDLE_S) if remaining_s > 0 else self._heartbeat_s
        if self._announce_at_s is not None and self._isLeader():
            idle_s = max(0.0, self._announce_at_s - now_s)
        work_s = self._snapshots.next_work_in_s(now_s)
        return idle_s if work_s is None else min(idle_s, work_s)

    def leader_name(self) -> str | None:
        """The leader this member follows, or itself; None if it knows none or cannot reach it."""
        leader = self._getLeader()
        if leader is None or not (self._isLeader() or self.isNodeConnected(leader)):
            return None
        return str(leader.id)

    def is_leader(self) -> bool:
        """Whether this member takes itself for the leader. Another one may have been elected meanwhile."""
        return bool(self._isLeader())

    def has_committed_in_term(self) -> bool:
        """Whether the commit index covers everything that any leader before has committed."""
        return bool(self._journal.term_at(self.raftCommitIndex) == self.raftCurrentTerm)

    def entry_rounds(self) -> int:
        """How many times this member, as leader, sent new entries to the others (or, alone, appended them)."""
        return self._entry_rounds

    def nodes_under_way(self) -> int:
        """How many nodes were built of a snapshot that is arriving from the leader."""
        return self._snapshots.nodes_under_way()

    def close(self) -> None:
        """Close what is open. The journal belongs to the driver."""
        self._snapshots.close()

    # --- elections ------------------------------------------------------------------------------------------------

    def _prepare_to_stand(self) -> None:
        """If PySyncObj would stand for election now, ask for pre-votes instead until they are there (T17)."""
        now_s = clock_s()
        if self._isLeader() or self._SyncObj__raftElectionDeadline >= now_s:
            return
        if not self._SyncObj__connectedToAnyone() or not self._SyncObj__otherNodes:
            return
        self._outlet.by_transfer = bool(self._SyncObj__transferInProgress)
        if self._outlet.by_transfer or self._candidacy.may_stand(self.raftCurrentTerm + 1):
            self._candidacy_term = self.raftCurrentTerm
            return
        self._SyncObj__raftElectionDeadline = now_s + self._SyncObj__generateRaftTimeout()
        self._candidacy.ask(self.raftCurrentTerm + 1)
        message = {"type": "pre_vote", "term": self.raftCurrentTerm + 1, **self._end_of_log()}
        for node in self._SyncObj__otherNodes:
            self._outlet.send(node, dict(message))

    def _after_standing(self) -> None:
        """If PySyncObj stood, try again soon: it is known that a majority has no leader."""
        if self._candidacy_term is None:
            return
        term, self._candidacy_term = self._candidacy_term, None
        self._outlet.by_transfer = False
        if self.raftCurrentTerm != term:
            self.hasten_election(self._dice.uniform(*self._candidacy.stood()))

    def _end_of_log(self) -> dict[str, int]:
        last = self._journal[-1]
        return {"last_log_index": last[1], "last_log_term": last[2]}

    def _receive_vote_request(self, node: Node, message: Message) -> None:
        if self._is_member() and (message["transfer"] or not self._has_live_leader()):
            self._SyncObj__onMessageReceived(node, message)

    def _receive_pre_vote(self, name: str, message: Message) -> None:
        mine, theirs = self._journal[-1], (message["last_log_term"], message["last_log_index"])
        granted = (
            message["term"] > self.raftCurrentTerm
            and theirs >= (mine[2], mine[1])
            and self._is_member()
            and not self._has_live_leader()
        )
        answer = {"type": "pre_vote_answer", "term": message["term"], "granted": granted}
        self._driver.outbound(name, {**answer, "current": self.raftCurrentTerm})

    def _receive_pre_vote_answer(self, name: str, message: Message) -> None:
        if not self._candidacy.is_asking_for(message["term"]) or message["term"] != self.raftCurrentTerm + 1:
            return
        if message["current"] > self.raftCurrentTerm:
            # Behind in terms, though perhaps not in the log: nobody would ever vote for this member otherwise.
            self._step_down(message["current"])
        elif message["granted"] and self._candidacy.take_grant(name, message["term"], self.other_voters()):
            self._SyncObj__raftElectionDeadline = float("-inf")

    def _receive_timeout_now(self, node: Node, message: Message) -> None:
        """The leader wants this member to lead: stand at the next tick, past pre-vote and stickiness (T17)."""
        if self._name in self.configuration.voters and message["term"] == self.raftCurrentTerm:
            self._SyncObj__onMessageReceived(node, message)

    def _has_live_leader(self) -> bool:
        """Whether this member leads a majority that answers, or heard from a leader lately."""
        now_s = clock_s()
        if not self._isLeader():
            return self._candidacy.has_live_leader(now_s)
        answered = [
            node
            for node in self._SyncObj__otherNodes
            if now_s - self._SyncObj__lastResponseTime[node] < self._election_min_s
        ]
        return len(answered) + 1 > (len(self._SyncObj__otherNodes) + 1) / 2

    def _step_down(self, term: int) -> None:
        """Follow whoever will lead in this later term."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(pysyncobj.syncobj._RAFT_STATE.FOLLOWER)
        self._SyncObj__raftLeader = None
        self._candidacy.lost_leader()
        self.hasten_election(self._dice.uniform(*_ELECTION_WHEN_LOST_S))

    # --- leadership transfer --------------------------------------------------------------------------------------

    def transfer_leadership(self, name: str | None = None) -> str:
        """Begin to hand the leadership to this voter, or to the best one; who it is (Raft thesis, 3.10).

        Until it has happened, or an election timeout has passed, `submit` takes nothing. Raises `ChangeRefused`.
        """
        if not self._isLeader():
            raise ChangeRefused("not_leader", f"{self._name} does not lead")
        if self._handover is not None:
            raise ChangeRefused("transfer_pending", f"the leadership is on its way to {self._handover.target}")
        target = best_successor(self.configuration, self._name, self._progress()) if name is None else name
        if target is None:
            raise ChangeRefused("not_connected", "no other voter is connected to the leader")
        if target == self._name:
            raise ChangeRefused("is_leader", f"{target} leads already")
        if target not in self.configuration.voters:
            raise ChangeRefused("not_a_voter", f"{target!r} is not a voter of this instance")
        if not self.isNodeConnected(self._nodes[target]):
            raise ChangeRefused("not_connected", f"{target} is not connected to the leader {self._name}")
        self._handover = _Handover(target, clock_s() + self._election_max_s)
        log.info("%s hands the leadership to %s", self._name, target)
        return target

    def _go_on_with_handover(self) -> None:
        handover = self._handover
        if handover is None:
            return
        now_s, node = clock_s(), self._node(handover.target)
        if now_s >= handover.until_s or node not in self._SyncObj__otherNodes or not self.isNodeConnected(node):
            log.warning("%s did not take the leadership; %s goes on leading", handover.target, self._name)
            self._handover = None
        elif (
            self._SyncObj__raftMatchIndex[node] == self._journal.last_index
            and now_s - handover.told_at_s > self._heartbeat_s
        ):
            handover.told_at_s = now_s
            self._outlet.send(node, {"type": "timeout_now", "term": self.raftCurrentTerm})

    # --- changes of the members -----------------------------------------------------------------------------------

    def propose_change(self, change: Change) -> int:
        """As leader, append a change of the members to the log; its index. It holds once it is applied.

        Sync the journal before the next tick, as always. Raises `ChangeRefused`.
        """
        self._require_free_to_change()
        reachable = [name for name in self._nodes if self.isNodeConnected(self._nodes[name])]
        return self._append_change(proposed_seats(self.configuration, change, self._name, reachable))

    def _require_free_to_change(self) -> None:
        if not self._isLeader():
            raise ChangeRefused("not_leader", f"{self._name} does not lead")
        if self._handover is not None:
            raise ChangeRefused("transfer_pending", f"the leadership is on its way to {self._handover.target}")
        if not self._is_free_to_change():
            raise ChangeRefused("change_pending", "the last change of the members is not applied yet, or may not be")

    def _is_free_to_change(self) -> bool:
        """Whether all changes that this leader's log may hold are applied here."""
        proposed = self._proposed[1] if self._proposed[0] == self.raftCurrentTerm else 0
        return bool(self.raftLastApplied >= max(self._SyncObj__noopIDx, proposed))

    def _append_change(self, seats: Iterable[Seat]) -> int:
        index, term = self._journal.last_index + 1, self.raftCurrentTerm
        self._journal.append((CHANGE_KIND + encode_seats(seats), index, term))
        self._proposed = (term, index)
        self._note_changes([index])
        return index

    def _go_on_with_changes(self) -> None:
        """Promote who has caught up, dismiss who was replaced."""
        if not self._unsettled or self._handover is not None or not self._is_free_to_change():
            return
        if self._name not in self.configuration.voters:
            return
        step = next_step(self.configuration, self._name, self._journal.last_index, self._progress())
        if step is None:
            return
        if step.seats is not None:
            log.info("the members change: %s", step.reason)
            self._append_change(step.seats)
        elif best_successor(self.configuration, self._name, self._progress()) is not None:
            log.info("the leader changes: %s", step.reason)
            self.transfer_leadership()

    def _progress(self) -> dict[str, Progress]:
        now_s = clock_s()
        match, heard_s = self._SyncObj__raftMatchIndex, self._SyncObj__lastResponseTime
        return {
            name: Progress(
                match_index=match.get(node, 0),
                connected=self.isNodeConnected(node),
                recent=now_s - heard_s.get(node, float("-inf")) < self._election_min_s,
            )
            for name, node in self._nodes.items()
            if name != self._name and self.configuration.seat(name) is not None
        }

    def progress(self) -> dict[str, Progress]:
        """As leader, how far each other member is; empty on others."""
        return self._progress() if self._isLeader() else {}

    def is_alone(self) -> bool:
        """Whether no other member votes, so that nobody's acknowledgement brings the next tick."""
        return self._name in self.configuration.voters and not self._SyncObj__otherNodes

    def other_voters(self) -> tuple[str, ...]:
        """The other members whose confirmation counts, in order."""
        return self._others

    def _is_member(self) -> bool:
        """Whether this member may vote if a candidate asks it.

        A learner may: a candidate that asks it knows that it was promoted, which it may not know itself yet, and
        perhaps nobody else is left to vote (as in etcd/raft). One that waits for its admission or is dismissed may not.
        """
        return self.configuration.seat(self._name) is not None

    def _apply_change(self, body: bytes) -> None:
        index = self.raftLastApplied + 1
        try:
            configuration = Configuration(index, decode_seats_untrusted(body))
        except BadData as error:
            raise RaftBroken(f"entry {index} changes the members in a way unknown here: {error.message}") from error
        # Durable before anybody is told: an operator who hears that a member is gone may throw its disk away, and if it
        # was one of two, a leader that had forgotten that it leads alone would wait for it for ever.
        self._journal.record_commit(index)
        self._journal.sync()
        self._driver.configure(configuration.to_data())
        self._adopt(configuration)

    def _adopt(self, configuration: Configuration) -> None:
        """Count, send and stand by this configuration from now on (T16)."""
        self.configuration = configuration
        self._unsettled = any(seat.role is Role.LEARNER or seat.replaces is not None for seat in configuration.seats)
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

        Without that, this member could stand for election by a configuration of long ago (`tree.membership`, T16).
        """
        if self._open_changes and self._open_changes[0] <= self.raftCommitIndex:
            self._open_changes = [index for index in self._open_changes if index > self.raftCommitIndex]
            self._journal.record_commit(min(self.raftCommitIndex, self._journal.last_index))

    def _node(self, name: str) -> Node:
        return self._nodes.get(name) or MemberNode(name)

    # --- messages, with the guards that the stock package lacks ---------------------------------------------------

    def _receive_append(self, node: Node, message: Message) -> None:
        term = self.raftCurrentTerm
        if message["term"] == term and self._isLeader():
            raise RaftBroken(
                f"{node.id} leads in term {term}, and so does this member: two votes were given by one member"
            )
        if message["term"] < term:
            # Its sender must learn that it leads no more: nobody will ask it for a vote that it would hear of (T17).
            self._send_acknowledgement(node, self._journal.last_index + 1, reset=False, success=False)
            return
        self._candidacy.heard_from_leader(clock_s())
        self._take_append(node, message, term)
        self._note_changes(entry[1] for entry in message.get("entries", ()) if _is_change(entry))

    def _take_append(self, node: Node, message: Message, term: int) -> None:
        if "serialized" in message:
            # The commit index says nothing about a log that has not been compared with the leader's (T6).
            message["commit_index"] = 0
            self._SyncObj__onMessageReceived(node, message)
            self._adopt_installed()
            if message["term"] >= term and message["serialized"] is not None:
                # Receiving a snapshot takes long, and PySyncObj says nothing meanwhile; the leader would give up. And
                # it sends the next piece when one has arrived.
                self._send_acknowledgement(node, self._journal.last_index + 1, reset=False, success=False)
            return
        if self._rejected is not None and message["term"] == self._rejected[0]:
            if message["prevLogIdx"] >= self._rejected[1]:
                return  # sent before the leader heard where to begin; answering would send it back and forth (T7)
            self._rejected = None
        self._SyncObj__onMessageReceived(node, message)

    def _adopt_installed(self) -> None:
        """If that was the end of a snapshot, the members may be others now."""
        configuration = self._restored_configuration()
        if configuration is not None and configuration != self.configuration:
            self._adopt(configuration)

    def _receive_acknowledgement(self, node: Node, message: Message) -> None:
        if message["term"] > self.raftCurrentTerm and self._isLeader():
            self._step_down(message["term"])
        if message["term"] != self.raftCurrentTerm or not self._isLeader():
            return  # said to a leader of another term (T5)
        if node not in self._SyncObj__raftMatchIndex:
            return  # not a member any more, or not yet
        if message["next_node_idx"] > self._journal.last_index + 1:
            log.warning("%s acknowledges entries that were never sent to it; ignored", node.id)
            return
        sent_up_to = self._SyncObj__raftNextIndex[node]
        self._SyncObj__onMessageReceived(node, message)
        if message["reset"]:
            self._announced = (0, 0)  # send from where it says at the next tick, not at the next heartbeat
        elif not message["success"] and self._snapshots.piece_arrived(node.id):
            self._announced = (0, 0)  # send the next one
        if message["success"]:
            # PySyncObj would send again everything that is under way (T8).
            next_index = self._SyncObj__raftNextIndex
            next_index[node] = max(next_index[node], sent_up_to)

    def _receive_vote(self, node: Node, message: Message) -> None:
        if node not in self._SyncObj__otherNodes:
            return
        term, voters = self._granted
        if message["term"] != term:
            term, voters = self._granted = (message["term"], set())
        if node.id not in voters:
            voters.add(node.id)
            self._SyncObj__onMessageReceived(node, message)

    def _receive_command(self, node: Node, message: Message) -> None:
        command = message["command"]
        if not command.startswith(COMMAND_KIND) or len(command) >= self._batch_bytes:
            log.warning("%s forwarded something that is not a command; ignored", node.id)
        elif self._isLeader():
            self._forwarded = True
            self.submit(command)
        # Otherwise it is dropped: the sender submits it again to the leader; passing it on could go in circles.

    def _send_acknowledgement(self, node: Node, next_index: int, *, reset: bool, success: bool) -> None:
        message = {"type": "next_node_idx", "next_node_idx": next_index, "reset": reset, "success": success}
        self._driver.outbound(node.id, {**message, "term": self.raftCurrentTerm})

    def _first_of_term(self, index: int) -> int:
        """The first entry of the run of entries with the same term that ends here, among those not applied."""
        term = self._journal.term_at(index)
        while index - 1 > self.raftLastApplied and self._journal.term_at(index - 1) == term:
            index -= 1
        return index

    # --- private methods of PySyncObj, overridden by their mangled names ------------------------------------------

    def _SyncObj__sendNextNodeIdx(  # noqa: N802
        self,
        node: Node,
        reset: bool = False,
        nextNodeIdx: int | None = None,  # noqa: N803
        success: bool = False,
    ) -> None:
        """Acknowledge with the term (T5); a rejection goes back by a whole term at once (Raft paper, 5.3)."""
        next_index = nextNodeIdx
        if next_index is None:
            next_index = self._journal.last_index + 1
        elif reset:
            next_index = self._first_of_term(next_index)
        self._rejected = (self.raftCurrentTerm, next_index) if reset else None
        if success and not self._is_news(node, next_index):
            return
        self._send_acknowledgement(node, next_index, reset=reset, success=success)

    def _is_news(self, node: Node, next_index: int) -> bool:
        """Whether the leader does not know this yet, or has heard nothing for half a heartbeat (T15)."""
        said = (node.id, self.raftCurrentTerm, next_index)
        now_s = clock_s()
        if said == self._said and now_s - self._said_at_s < self._heartbeat_s / 2:
            return False
        self._said, self._said_at_s = said, now_s
        return True

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802
        """Apply without pickle (T1); no-ops and whatever else is not a command change nothing."""
        if command[:1] == COMMAND_KIND:
            self._driver.apply(command[1:])
        elif command[:1] == CHANGE_KIND:
            self._apply_change(command[1:])

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Send what is new to everybody, but nothing more to those who have enough queued already (T18, T19)."""
        others, readers = self._SyncObj__otherNodes, self._SyncObj__readonlyNodes
        congested = {node for node in self._SyncObj__connectedNodes if self._driver.is_congested(node.id)}
        if congested:
            self._SyncObj__otherNodes, self._SyncObj__readonlyNodes = others - congested, readers - congested
        super()._SyncObj__sendAppendEntries()
        self._SyncObj__otherNodes, self._SyncObj__readonlyNodes = others, readers
        if self._outlet.resting:
            self._SyncObj__connectedNodes.update(self._outlet.resting)
            self._outlet.resting.clear()

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Snapshots are taken in slices, see `tree.compaction` (T4)."""

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        """Dice are an input (T2); who has no vote never stands (T16)."""
        conf = self._getConf()
        if self._name not in self.configuration.voters:
            return float("inf")
        return float(self._dice.uniform(conf.raftMinTimeout, conf.raftMaxTimeout))


def _initial(members: Iterable[Member]) -> Configuration:
    configuration = Configuration.initial(members)
    return configuration if configuration.seats else NO_CONFIGURATION


def _is_change(entry: Entry) -> bool:
    return entry[0].startswith(CHANGE_KIND)
