"""How a member comes to lead, and when it helps another one to: pre-votes, votes and stickiness around PySyncObj's own.

A layer of `tree.raft.raft.RaftCore`. Why each of these is not as in the stock package: T11 and T17 in
docs/decisions/0001-raft-fence.md.
"""

from typing import Final

import pysyncobj.syncobj
from pysyncobj.node import Node

from batonpass.tree.raft.raft_member import RaftMember
from batonpass.tree.raft.raft_ports import Message, clock_s

__all__ = ["ELECTION_WHEN_LOST_S", "RaftElections"]

# A little apart, so that two members seldom stand at the same time.
ELECTION_WHEN_LOST_S: Final = (0.01, 0.15)


class RaftElections(RaftMember):
    """The member as candidate and as voter."""

    @property
    def reluctant(self) -> bool:
        """Whether this member stands only if no other one does."""
        return self._candidacy.reluctant

    @reluctant.setter
    def reluctant(self, reluctant: bool) -> None:
        self._candidacy.reluctant = reluctant

    def _prepare_to_stand(self) -> None:
        """If PySyncObj would stand for election now, ask for pre-votes instead until they are there (T17)."""
        now_s = clock_s()
        if self._isLeader() or self._SyncObj__raftElectionDeadline >= now_s:
            return
        if self.is_behind():  # what is not applied yet may say who the members are (T16)
            self._SyncObj__raftElectionDeadline = now_s + self._heartbeat_s
            return
        if not self._SyncObj__connectedToAnyone() or not self._SyncObj__otherNodes:
            return
        self._outlet.by_transfer = bool(self._SyncObj__transferInProgress)
        if self._outlet.by_transfer or self._candidacy.may_stand(self.raftCurrentTerm + 1):
            self._candidacy_term = self.raftCurrentTerm
            return
        patience_s = self._patience_s(now_s)
        if patience_s:
            self._SyncObj__raftElectionDeadline = now_s + patience_s
            return
        self._SyncObj__raftElectionDeadline = now_s + self._SyncObj__generateRaftTimeout()
        if self._candidacy.holds_back(now_s):
            return
        self._candidacy.ask(self.raftCurrentTerm + 1)
        message = {"type": "pre_vote", "term": self.raftCurrentTerm + 1, **self._end_of_log()}
        for node in self._SyncObj__otherNodes:
            self._outlet.send(node, dict(message))

    def _patience_s(self, now_s: float) -> float:
        """How much longer to listen, as this member itself was busy or stopped when its election was due.

        What the leader said meanwhile waits to be read. And what held this member up, a command or a busy machine, may
        hold up the leader for about as long. Zero if it was not late, or has listened in this silence (T20).
        """
        late_s = now_s - self._SyncObj__raftElectionDeadline
        if not self._heartbeat_s < late_s < float("inf") or not self._candidacy.listens_first():
            return 0.0
        return max(2 * self._heartbeat_s, min(late_s, self._election_max_s))

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
            # Behind in terms, though perhaps not in the log: no member would ever vote for this member otherwise.
            self._step_down(message["current"])
        elif message["granted"] and self._candidacy.take_grant(name, message["term"], self.other_voters()):
            self._SyncObj__raftElectionDeadline = float("-inf")

    def _receive_vote(self, node: Node, message: Message) -> None:
        if node not in self._SyncObj__otherNodes:
            return
        term, voters = self._granted
        if message["term"] != term:
            term, voters = self._granted = (message["term"], set())
        if node.id not in voters:
            voters.add(node.id)
            self._SyncObj__onMessageReceived(node, message)

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
        """Follow the member that will lead in this later term."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(pysyncobj.syncobj._RAFT_STATE.FOLLOWER)
        self._SyncObj__raftLeader = None
        self._candidacy.lost_leader()
        self.hasten_election(self._dice.uniform(*ELECTION_WHEN_LOST_S))
