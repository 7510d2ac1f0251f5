"""The fence around PySyncObj: Raft itself, with the faults of the stock package closed where they can be reached.

The modules `tree.raft.raft...` are the only ones that import PySyncObj, and they do so for exactly one version: private
methods are overridden here, and each override was judged against that version's source. What is touched and why is
listed, touch by touch, in docs/decisions/0001-raft-fence.md; the numbers (T1...) in comments here refer to it.

`RaftCore` is one object in four layers, because PySyncObj is one: `tree.raft.raft_member` (what it holds, whom it
counts), `tree.raft.raft_elections` (how it comes to lead), `tree.raft.raft_changes` (giving the leadership away, and
changes of the members), and this module, which keeps the log. `tree.raft.raft_ports` is what PySyncObj is given in
place of its own parts.

`RaftCore` waits for nothing and knows no sockets. Its driver calls `receive` with each message and `tick` when there is
something to do, and sends what it is handed. The contract is an order. A message whose type is in `NEEDS_SYNC` says "I
have this entry", "this is my term" or "you have my vote", so it may leave only after the journal was synced. The
journal is synced before each tick, because a leader counts itself as having what its journal holds.
"""

import logging
from collections.abc import Iterator
from typing import Final

import pysyncobj.syncobj
from pysyncobj.node import Node

from batonpass.tree.raft.raft_changes import RaftChanges
from batonpass.tree.raft.raft_elections import ELECTION_WHEN_LOST_S
from batonpass.tree.raft.raft_member import MAX_UNCOMMITTED, Timing, is_change
from batonpass.tree.raft.raft_ports import (
    CHANGE_KIND,
    COMMAND_KIND,
    NEEDS_SYNC,
    Driver,
    MemberNode,
    Message,
    RaftBroken,
    clock_s,
    use_clock,
)

__all__ = ["CHANGE_KIND", "COMMAND_KIND", "NEEDS_SYNC", "Driver", "RaftBroken", "RaftCore", "Timing", "use_clock"]

log = logging.getLogger("batonpass.tree.raft.raft")

# How much of the log is applied before messages are taken and heartbeats sent: about 30 ms, or one command.
APPLIED_STEPS: Final = 25_000
MAX_UNCOMMITTED_BYTES: Final = 64 * 1024 * 1024
# How long a follower may not know what is committed, if it did not ask for it and nothing else is to be said.
_COMMIT_ANNOUNCEMENT_S: Final = 0.002
_ELECTION_WHEN_MET_S: Final = (0.2, 0.5)
_LONGEST_IDLE_S: Final = 3600.0


class RaftCore(RaftChanges):
    """One member's Raft. Not to be used after any method raised: the driver stops the member."""

    # --- what the driver calls ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due. The journal must be synced. Announces new entries and a new commit index at once (T9).

        Of what is committed, it applies `APPLIED_STEPS` or one command more: then others have their turn, above all the
        heartbeats. While `is_behind`, the next tick is due at once.
        """
        self._steps_left = APPLIED_STEPS
        if self.is_behind():
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
        if self._applying is None:  # a state in the midst of an entry is that of no index
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
        led = self.followed() == name
        self._SyncObj__onNodeDisconnected(node)
        self._outlet.resting.discard(node)
        self._snapshots.cancelTransmisstion(node)
        self._rejected = self._said = None
        if self.configuration.seat(name) is None and name != self._name:
            self._nodes.pop(name, None)
        if led:
            self._candidacy.lost_leader()
            self.hasten_election(self._dice.uniform(*ELECTION_WHEN_LOST_S))

    def idle_for_s(self) -> float:
        """How long nothing is due if nothing happens."""
        if self.is_behind():
            return 0.0
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

    def entry_rounds(self) -> int:
        """How many times this member, as leader, sent new entries to the others (or, alone, appended them)."""
        return self._entry_rounds

    def nodes_under_way(self) -> int:
        """How many nodes were built of a snapshot that is arriving from the leader."""
        return self._snapshots.nodes_under_way()

    def close(self) -> None:
        """Close what is open. The journal belongs to the driver."""
        self._snapshots.close()

    # --- messages, with the guards that the stock package lacks ---------------------------------------------------

    def _receive_append(self, node: Node, message: Message) -> None:
        term = self.raftCurrentTerm
        if message["term"] == term and self._isLeader():
            raise RaftBroken(
                f"{node.id} leads in term {term}, and so does this member: two votes were given by one member"
            )
        if message["term"] < term:
            # Its sender must learn that it leads no more: no member will ask it for a vote that it would hear of (T17).
            self._send_acknowledgement(node, self._journal.last_index + 1, reset=False, success=False)
            return
        self._candidacy.heard_from_leader(clock_s())
        self._take_append(node, message, term)
        self._note_changes(entry[1] for entry in message.get("entries", ()) if is_change(entry))

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
            next_index = self._rejected[1]
            if message["prevLogIdx"] >= next_index:
                # Sent before the leader heard where to begin; answering each would send it back and forth (T7). If it
                # does not begin there, it forgot: it does when the member is dismissed, and may admit it again since.
                if self._is_news(node, next_index, reset=True):
                    self._send_acknowledgement(node, next_index, reset=True, success=False)
                return
            self._rejected = None
        self._SyncObj__onMessageReceived(node, message)

    def _adopt_installed(self) -> None:
        """If that was the end of a snapshot, the members may be others now."""
        if self._applying is not None and self._applying[0] <= self.raftLastApplied:
            self._applying = None
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
        if (success or reset) and not self._is_news(node, next_index, reset=reset):
            return
        self._send_acknowledgement(node, next_index, reset=reset, success=success)

    def _is_news(self, node: Node, next_index: int, *, reset: bool) -> bool:
        """Whether the leader was not told this yet, or has heard nothing for half a heartbeat (T7, T15)."""
        said = (node.id, self.raftCurrentTerm, next_index, reset)
        now_s = clock_s()
        if said == self._said and now_s - self._said_at_s < self._heartbeat_s / 2:
            return False
        self._said, self._said_at_s = said, now_s
        return True

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Apply what is committed, as far as the steps of this tick reach, and without pickle (T1, T20).

        An entry that took several ticks is the last of its tick, so that there is a moment between two entries.
        """
        while self.raftCommitIndex > self.raftLastApplied and self._steps_left > 0:
            index = self.raftLastApplied + 1
            if self._applying is None or self._applying[0] != index:
                entries = self._SyncObj__getEntries(index, 1)
                if not entries:
                    break
                self._SyncObj__commandsWaitingCommit.pop(index, None)
                self._applying = (index, self._apply_entry(entries[0][0]))
                is_new = True
            else:
                is_new = False
            for steps in self._applying[1]:
                self._steps_left -= steps
                if self._steps_left <= 0:
                    break
            else:
                self._applying = None
                self._SyncObj__raftLastApplied = index
                if not is_new:
                    self._steps_left = 0
        return False

    def _apply_entry(self, entry: bytes) -> Iterator[int]:
        """No-ops and whatever else is not a command change nothing."""
        if entry[:1] == COMMAND_KIND:
            yield from self._driver.apply(entry[1:])
        elif entry[:1] == CHANGE_KIND:
            self._apply_change(entry[1:])

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Send what is new to all members, but nothing more to those who have enough queued already (T18, T19)."""
        others, readers = self._SyncObj__otherNodes, self._SyncObj__readonlyNodes
        congested = {node for node in self._SyncObj__connectedNodes if self._driver.is_congested(node.id)}
        if congested:
            self._SyncObj__otherNodes, self._SyncObj__readonlyNodes = others - congested, readers - congested
        super()._SyncObj__sendAppendEntries()
        self._SyncObj__otherNodes, self._SyncObj__readonlyNodes = others, readers
        if self._outlet.resting:
            self._SyncObj__connectedNodes.update(self._outlet.resting)
            self._outlet.resting.clear()

    def _SyncObj__setState(self, state: int) -> None:  # noqa: N802
        """Who leads no more hears of no acknowledgement, so no piece of a snapshot may be waited for (T4)."""
        if self._isLeader() and state != pysyncobj.syncobj._RAFT_STATE.LEADER:
            self._snapshots.stop_sending()
        super()._SyncObj__setState(state)

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Snapshots are taken in slices, see `tree.disk.compaction` (T4)."""

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        """Dice are an input (T2); who has no vote never stands (T16)."""
        conf = self._getConf()
        if self._name not in self.configuration.voters:
            return float("inf")
        return float(self._dice.uniform(conf.raftMinTimeout, conf.raftMaxTimeout))
