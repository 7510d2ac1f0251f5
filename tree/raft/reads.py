"""Read-index rounds: how a member makes sure that a local read misses nothing (Raft thesis, section 6.4).

A leader notes its commit index and asks the others to confirm that they are still in its term. When a majority (itself
included) has, no later leader can have existed when the index was noted. A member that has applied up to that index may
then read locally. All reads that wait while a round is under way share the next one. Pure.
"""

from collections.abc import Callable
from typing import Final

__all__ = ["MAX_WAITING_READS", "ReadRounds"]

MAX_WAITING_READS: Final = 4096

Deliver = Callable[[int], None]


class ReadRounds:
    """The leader's side. Forgets everything when it stops leading; those who wait ask again."""

    def __init__(self) -> None:
        self._voters: tuple[str, ...] = ()  # besides the leader, those whose confirmations count in this round
        self._waiting: list[Deliver] = []
        self._served: list[Deliver] = []
        self._round = 0
        self._index = 0
        self._confirmed_by: set[str] | None = None

    def ask(self, deliver: Deliver) -> bool:
        """Call `deliver(index)` when an index is confirmed; False if too many wait already."""
        if len(self._waiting) >= MAX_WAITING_READS:
            return False
        self._waiting.append(deliver)
        return True

    def begin(self, commit_index: int, other_voters: tuple[str, ...]) -> int | None:
        """Begin a round for those who wait, if none is under way: the number to be confirmed by the others, or None.

        `commit_index` must cover everything any earlier leader committed: one entry of this term must be committed.
        Of `other_voters` and the leader together, more than half must confirm; when they change, the round begins anew.
        """
        if self._confirmed_by is not None:
            if self._voters == other_voters:
                return None
            self._waiting = self._served + self._waiting
        if not self._waiting:
            return None
        self._served, self._waiting = self._waiting, []
        self._round += 1
        self._index = commit_index
        self._voters = other_voters
        self._confirmed_by = set()
        self._finish_if_confirmed()
        return self.under_way()

    def under_way(self) -> int | None:
        """The number of the round under way, to be asked for again when confirmations may have been lost."""
        return None if self._confirmed_by is None else self._round

    def confirm(self, name: str, round_number: int) -> None:
        """A member confirmed, in this term, that it follows; other rounds than the one under way do not count."""
        if self._confirmed_by is not None and round_number == self._round and name in self._voters:
            self._confirmed_by.add(name)
            self._finish_if_confirmed()

    def forget(self) -> None:
        """This member does not lead (any more)."""
        self._waiting, self._served, self._confirmed_by = [], [], None

    def _finish_if_confirmed(self) -> None:
        needed = (len(self._voters) + 1) // 2  # besides the leader itself
        if self._confirmed_by is not None and len(self._confirmed_by) >= needed:
            served, self._served, self._confirmed_by = self._served, [], None
            for deliver in served:
                deliver(self._index)
