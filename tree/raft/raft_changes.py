"""What a leader does about the members: hands the leadership on, proposes changes, and sees them through.

A layer of `tree.raft.raft.RaftCore`. The rules are in `tree.net.membership`; what they ask of PySyncObj is T16 in
docs/decisions/0001-raft-fence.md.
"""

import logging
from collections.abc import Iterable

from batonpass.tree.data.errors import BadData
from batonpass.tree.net.membership import (
    Change,
    ChangeRefused,
    Configuration,
    Seat,
    best_successor,
    decode_seats_untrusted,
    encode_seats,
    next_step,
    proposed_seats,
)
from batonpass.tree.raft.raft_elections import RaftElections
from batonpass.tree.raft.raft_member import Handover
from batonpass.tree.raft.raft_ports import CHANGE_KIND, RaftBroken, clock_s

__all__ = ["RaftChanges"]

log = logging.getLogger("batonpass.tree.raft.raft")


class RaftChanges(RaftElections):
    """The member as one that gives the leadership away, and changes who the members are."""

    # --- leadership transfer ------------------------------------------------------------------------------------------

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
        if not self._progress()[target].connected:
            raise ChangeRefused("not_connected", f"{target} is not connected to the leader {self._name}, or is silent")
        self._handover = Handover(target, clock_s() + self._election_max_s)
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

    # --- changes of the members ---------------------------------------------------------------------------------------

    def propose_change(self, change: Change) -> int:
        """As leader, append a change of the members to the log; its index. It holds once it is applied.

        Sync the journal before the next tick, as always. Raises `ChangeRefused`.
        """
        self._require_free_to_change()
        reachable = [name for name, progress in self._progress().items() if progress.connected]
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

    def _apply_change(self, body: bytes) -> None:
        index = self.raftLastApplied + 1
        try:
            configuration = Configuration(index, decode_seats_untrusted(body))
        except BadData as error:
            raise RaftBroken(f"entry {index} changes the members in a way unknown here: {error.message}") from error
        # Durable before it is told. An operator who hears that a member is gone may throw its disk away. If it was one
        # of two, a leader that had forgotten that it leads alone would wait for it for ever.
        self._journal.record_commit(index)
        self._journal.sync()
        self._driver.configure(configuration.to_data())
        self._adopt(configuration)
