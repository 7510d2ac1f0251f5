"""One member's part in read-index rounds, whether it leads or not: how a local read is known to miss nothing.

A follower asks the leader for an index, and reads when it has applied up to there. The leader notes its commit index
and has a majority confirm that it still leads (`tree.raft.reads` knows when they have). `Replica.read_barrier` waits
for both; here is what is decided and sent meanwhile. Nothing of it touches the journal.
"""

from collections.abc import Callable
from typing import Any, Final

from batonpass.tree.raft.raft import RaftCore
from batonpass.tree.raft.reads import ReadRounds

__all__ = ["ReadIndex"]

Message = dict[str, Any]


class ReadIndex:
    """Asks for an index, as leader gives one, and confirms to leaders that they lead."""

    def __init__(
        self,
        raft: Callable[[], RaftCore],
        send: Callable[[str, Message], bool],
        send_after_sync: Callable[[str, Message], bool],
        heartbeat_s: float,
        now_s: Callable[[], float],
    ) -> None:
        """`send` says whether there is a connection; `send_after_sync` is for what promises that a term is known."""
        self._raft: Final = raft
        self._send: Final = send
        self._send_after_sync: Final = send_after_sync
        self._heartbeat_s: Final = heartbeat_s
        self._now_s: Final = now_s
        self._rounds: Final = ReadRounds()
        self._asked_at_s = 0.0
        self._remote: dict[int, Callable[[int], None]] = {}
        self._next = 0

    def ask(self, deliver: Callable[[int], None]) -> tuple[int, bool]:
        """Join the leader's next round; the number under which its answer is awaited, and whether it was asked."""
        raft = self._raft()
        number = self._next = self._next + 1
        if raft.is_leader():
            asked = self._rounds.ask(deliver)
            # At once: those who come while a round is under way share the next one anyway.
            self.begin()
            return number, asked
        leader = raft.leader_name()
        self._remote[number] = deliver
        return number, leader is not None and self._send(leader, {"type": "read_index", "round": number})

    def forget(self, number: int) -> None:
        """Wait no more for the answer to this question; what was asked of this member itself is just not used."""
        self._remote.pop(number, None)

    def begin(self) -> None:
        """As leader, begin a round for those who wait, if none is under way; ask again if one takes long."""
        raft = self._raft()
        if not raft.is_leader():
            self._rounds.forget()
            return
        if raft.has_committed_in_term():
            number = self._rounds.begin(raft.raftCommitIndex, raft.other_voters())
            if number is None and self._now_s() - self._asked_at_s > self._heartbeat_s:
                number = self._rounds.under_way()  # what was asked, or answered, went down with a connection
            if number is not None:
                self._asked_at_s = self._now_s()
                self._ask_for_confirmation(number)

    def _ask_for_confirmation(self, number: int) -> None:
        raft = self._raft()
        message = {"type": "confirm", "term": raft.raftCurrentTerm, "round": number}
        for name in raft.other_voters():
            self._send(name, message)

    def take(self, name: str, message: Message) -> bool:
        """Take a member's message if it is of a read-index round; whether it was."""
        raft = self._raft()
        match message["type"]:
            case "read_index":
                self._take_question(name, message["round"])
            case "read_index_answer":
                deliver = self._remote.get(message["round"])
                if deliver is not None:
                    deliver(message["index"])
            case "confirm":
                if message["term"] == raft.raftCurrentTerm and raft.followed() == name:
                    answer = {"type": "confirmed", "term": message["term"], "round": message["round"]}
                    self._send_after_sync(name, answer)
            case "confirmed":
                if message["term"] == raft.raftCurrentTerm and raft.is_leader():
                    self._rounds.confirm(name, message["round"])
            case _:
                return False
        return True

    def _take_question(self, name: str, number: int) -> None:
        if self._raft().is_leader():
            self._rounds.ask(lambda index: self._answer(name, number, index))

    def _answer(self, name: str, number: int, index: int) -> None:
        # First the commit index itself: the reader must not wait for an announcement that takes its time.
        self._raft().announce_commit()
        self._send(name, {"type": "read_index_answer", "round": number, "index": index})
