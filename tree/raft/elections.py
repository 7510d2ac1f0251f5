"""When a member may stand for election, and when it listens to one who does. Pure.

Raft alone lets a member that was cut off for a while depose a working leader. Alone it raised its term again and again,
and when it returns all follow the higher term. Two rules prevent that (Raft thesis, 4.2.3 and 9.6; both are in
etcd/raft as `PreVote` and `CheckQuorum`):

* *pre-vote*: before it raises its term, a member asks the others whether they would vote for it, and stands only if a
  majority says so. Asking changes nothing for any member;
* *stickiness*: a member that heard from a leader within the shortest election timeout says no, to this and to a real
request
  for its vote. Only a transfer of leadership, which the leader itself wants, goes past both rules.

A member whose connection to the leader broke has not heard from one: it need not wait for a silence. So a leader that
was killed, whose connections all break at once, is replaced as fast as without these rules.
"""

from collections.abc import Collection
from typing import Final

__all__ = ["Candidacy"]

# After an election without a winner: long enough for one to end on a slow disk, growing up to the election timeout.
_RETRY_MIN_S: Final = 0.15
_NEVER_S: Final = float("-inf")
# How long a reluctant member leaves it to the others, in shortest election timeouts: they have asked for votes by then.
_HOLD_BACK: Final = 4


class Candidacy:
    """What one member knows about elections: whether there is a leader, and who would vote for it."""

    def __init__(self, election_min_s: float) -> None:
        """`election_min_s` is the shortest election timeout."""
        self._election_min_s: Final = election_min_s
        self._heard_at_s = _NEVER_S
        self._asked_for_term = 0
        self._granted_by: set[str] | None = None
        self._won_term = 0
        self._stood_in_vain = 0
        self.reluctant = False
        """Whether others are better leaders: this one stands only if none of them does."""
        self._missed_since_s: float | None = None
        self._listened = False

    def listens_first(self) -> bool:
        """Whether this is the first time in this silence that the member was too busy to hear."""
        first, self._listened = not self._listened, True
        return first

    def heard_from_leader(self, now_s: float) -> None:
        """A leader of the current term spoke; whatever was asked before is void."""
        self._heard_at_s = now_s
        self._missed_since_s = None
        self._stood_in_vain = 0
        self._listened = False
        self._granted_by = None
        self._won_term = 0

    def lost_leader(self) -> None:
        """The connection to the leader broke, or it was deposed: do not wait for a silence."""
        self._heard_at_s = _NEVER_S

    def silence_s(self, now_s: float) -> float:
        """How long ago a leader spoke."""
        return now_s - self._heard_at_s

    def has_live_leader(self, now_s: float) -> bool:
        """Whether a leader spoke so lately that no other is listened to."""
        return now_s - self._heard_at_s < self._election_min_s

    def holds_back(self, now_s: float) -> bool:
        """Whether this member, which could stand, leaves it to others for a while yet."""
        if not self.reluctant:
            return False
        if self._missed_since_s is None:
            self._missed_since_s = now_s
        return now_s - self._missed_since_s < _HOLD_BACK * self._election_min_s

    def ask(self, term: int) -> None:
        """Begin to ask for pre-votes for this term."""
        self._asked_for_term = term
        self._granted_by = set()
        self._won_term = 0

    def take_grant(self, name: str, term: int, other_voters: Collection[str]) -> bool:
        """A pre-vote for this term came; whether it made the majority of the voters, this member included."""
        if self._granted_by is None or term != self._asked_for_term or name not in other_voters:
            return False
        self._granted_by.add(name)
        if len(self._granted_by) + 1 <= (len(other_voters) + 1) // 2:
            return False
        self._granted_by = None
        self._won_term = term
        return True

    def is_asking_for(self, term: int) -> bool:
        """Whether answers about this term are still waited for."""
        return self._granted_by is not None and term == self._asked_for_term

    def may_stand(self, term: int) -> bool:
        """Whether a majority said that it would vote for this member in this term."""
        return self._won_term == term

    def stood(self) -> tuple[float, float]:
        """This member stands now: between how many seconds from now to try again if none wins."""
        self._granted_by = None
        self._won_term = 0
        low_s = min(_RETRY_MIN_S * 2.0 ** min(self._stood_in_vain, 8), self._election_min_s)
        self._stood_in_vain += 1
        return low_s, 2 * low_s
