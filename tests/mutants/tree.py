"""Replicas with one guard taken away each: a simulation that finds nothing must show that it can find something.

The names T5, T6... are those of docs/decisions/0001-raft-fence.md. Each mutant overrides the guard by its private
name, because a guard that could be switched off from outside would be a guard that is switched off one day.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from batonpass.scenarios.simulation.tree.disk import SimulatedDisk
from batonpass.scenarios.simulation.tree.fence import RaftFence, SimulatedReplica
from batonpass.tree.member.read_index import ReadIndex
from batonpass.tree.net.frames import encode_message
from batonpass.tree.raft.raft import RaftCore

__all__ = ["MUTANTS", "Mutant"]

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A guard that is missing."""

    name: str
    sentence: str
    fence: Callable[[], RaftFence]


class _AcknowledgementsOfAnyTerm(RaftCore):
    def _receive_acknowledgement(self, node: Any, message: Message) -> None:
        # An earlier one only: that of a later term deposes a leader, which is another guard.
        super()._receive_acknowledgement(node, {**message, "term": max(message["term"], self.raftCurrentTerm)})


class _CommitIndexBesideSnapshot(RaftCore):
    def _take_append(self, node: Any, message: Message, term: int) -> None:
        if "serialized" not in message:
            super()._take_append(node, message, term)
            return
        self._SyncObj__onMessageReceived(node, message)
        self._adopt_installed()
        if message["term"] >= term:
            self._send_acknowledgement(node, self._journal.last_index + 1, reset=False, success=False)


class _RejectionsForgotten(RaftCore):
    def _receive_append(self, node: Any, message: Message) -> None:
        self._rejected = None
        super()._receive_append(node, message)

    def _first_of_term(self, index: int) -> int:
        return index


class _EagerTruncation(RaftCore):
    def __init__(self, *args: Any, **limits: Any) -> None:
        journal = args[2]
        settle = journal.settle

        def drop_what_is_set_aside() -> None:
            journal._set_aside = []
            settle()

        journal.settle = drop_what_is_set_aside
        super().__init__(*args, **limits)


class _VotesForgotten(RaftCore):
    def __init__(self, *args: Any, **limits: Any) -> None:
        journal = args[2]

        def set_vote(term: int, _: str | None) -> None:
            journal._term = term

        journal.set_vote = set_vote
        super().__init__(*args, **limits)


class _CommitsForgotten(RaftCore):
    def _remember_committed_changes(self) -> None: ...


class _SeveralChanges(RaftCore):
    def _is_free_to_change(self) -> bool:
        return True


class _SpeaksBeforeSync(SimulatedReplica):
    def outbound(self, name: str, message: Message) -> bool:
        is_sent = self.peers.send(name, encode_message(message))
        self.peers.flush()
        return is_sent


class _WithoutRound(ReadIndex):
    def begin(self) -> None:
        super().begin()
        raft = self._raft()
        if raft.is_leader():
            for name in raft.other_voters():
                self._rounds.confirm(name, self._rounds.under_way() or 0)


class _ReadsWithoutRound(SimulatedReplica):
    make_reads = _WithoutRound


class _BeforeCommit(ReadIndex):
    def begin(self) -> None:
        raft = self._raft()
        if raft.is_leader() and not raft.has_committed_in_term():
            number = self._rounds.begin(raft.raftCommitIndex, raft.other_voters())
            if number is not None:
                self._ask_for_confirmation(number)
        super().begin()


class _ReadsBeforeCommit(SimulatedReplica):
    make_reads = _BeforeCommit


class _AppliesAgain(SimulatedReplica):
    def apply(self, entry: bytes) -> Iterator[int]:
        self.machine._sessions._sessions.clear()
        return super().apply(entry)


class _LyingDisk(SimulatedDisk):
    """Says that it synced, and did not."""

    _lied = False

    def operation(self, path: Path, doing: str) -> bool:
        cut = super().operation(path, doing)
        # To the file it looks as if the power went off; `end` then does not.
        self._lied = doing == "syncing" and not cut
        return cut or self._lied

    def end(self, cut: bool) -> None:
        lied, self._lied = self._lied, False
        if not lied:
            super().end(cut)


_ALL: Final = (
    Mutant(
        "acknowledgements-of-any-term",
        "T5 undone: an acknowledgement counts in whatever term it arrives",
        partial(RaftFence, _AcknowledgementsOfAnyTerm),
    ),
    Mutant(
        "commit-index-beside-snapshot",
        "T6 undone: a commit index that comes with a snapshot is believed",
        partial(RaftFence, _CommitIndexBesideSnapshot),
    ),
    Mutant(
        "rejections-forgotten",
        "T7 undone: every message that does not fit is rejected anew, one entry at a time",
        partial(RaftFence, _RejectionsForgotten),
    ),
    Mutant(
        "eager-truncation",
        "T3 undone in part: entries that a message repeats are dropped first",
        partial(RaftFence, _EagerTruncation),
    ),
    Mutant(
        "commits-forgotten",
        "T16 undone in part: no member remembers that a change of the members is committed",
        partial(RaftFence, _CommitsForgotten),
    ),
    Mutant(
        "several-changes",
        "a leader proposes a change of the members while another one is open",
        partial(RaftFence, _SeveralChanges),
    ),
    Mutant("votes-forgotten", "a vote is not written to the journal", partial(RaftFence, _VotesForgotten)),
    Mutant(
        "speaks-before-sync",
        "votes and acknowledgements leave before the journal is synced",
        partial(RaftFence, make_replica=_SpeaksBeforeSync),
    ),
    Mutant("lying-disk", "fsync returns without having synced", partial(RaftFence, make_disk=_LyingDisk)),
    Mutant(
        "reads-without-round",
        "a leader answers reads without asking whether it still leads",
        partial(RaftFence, make_replica=_ReadsWithoutRound),
    ),
    Mutant(
        "reads-before-commit",
        "a new leader answers reads before it committed an entry of its own term",
        partial(RaftFence, make_replica=_ReadsBeforeCommit),
    ),
    Mutant(
        "applies-again",
        "a command submitted twice is applied twice",
        partial(RaftFence, make_replica=_AppliesAgain),
    ),
)

MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType({mutant.name: mutant for mutant in _ALL})
