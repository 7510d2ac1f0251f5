"""Which of two entities that meet goes to the other one's server: a pure function, that a world may replace.

After Glenn Fiedler's networked physics (2018): whatever a player drives takes what it touches, and what that pushes
takes what *it* touches. But what a player drives, or pushes, is not taken by what others drive or push: each stays
where it is. Between two that no player drives the priority decides, then the id: the lower one takes.

A policy is asked by both servers, of the same two. So it has to be fair: what it answers for (a, b) has to be the
opposite of what it answers for (b, a).
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["CARRIED", "DRIVEN", "ContactPolicy", "MeetingEntity", "Verdict", "default_policy"]

DRIVEN: Final = 2
"""The rank of an entity to which a player has given inputs a moment ago."""
CARRIED: Final = 1
"""The rank of an entity that was taken by a contact, and is not at rest again."""


class MeetingEntity(NamedTuple):
    """One of two entities that meet."""

    entity: str
    rank: int
    priority: int
    server: str


class Verdict(StrEnum):
    """What becomes of the first of the two."""

    TAKES = "takes"
    """The other one is to come to its server."""
    GOES = "goes"
    """It is to go to the other one's server."""
    STAYS = "stays"
    """Neither moves."""


ContactPolicy = Callable[[MeetingEntity, MeetingEntity], Verdict]


def default_policy(mine: MeetingEntity, theirs: MeetingEntity) -> Verdict:
    """As the head of this module says."""
    if mine.rank and theirs.rank:
        return Verdict.STAYS
    one, other = (mine.rank, mine.priority), (theirs.rank, theirs.priority)
    if one == other:
        return Verdict.TAKES if mine.entity < theirs.entity else Verdict.GOES
    return Verdict.TAKES if one > other else Verdict.GOES
