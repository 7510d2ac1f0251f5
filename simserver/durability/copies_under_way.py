"""What an authority knows of the copies of one entity: the last one, those on their way, and the servers that keep one.

An entity that sleeps is copied ever more seldom; one whose copy only a drained server keeps *leans on* that server.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.actors.base.errors import is_stopping
from batonpass.authority.fence import Fence
from batonpass.simserver.entity.sleep import Sleep
from batonpass.simserver.entity.state import Life

__all__ = ["AGAIN_AFTER", "ASLEEP_AGAIN_AFTER", "MAX_UNDER_WAY", "PASSIVATED", "LastCopy", "SentCopy"]

# The intervals after which an unchanged state is copied again: for its tick, and if its replica has forgotten it.
AGAIN_AFTER: Final = 10
# A sleeper is copied ever more seldom, down to once in this many intervals. For that long a replica that was restarted
# within its lease may be without the copy. And by that much a timer of a sleeper may end late after a takeover.
ASLEEP_AGAIN_AFTER: Final = 60
# Copies on the way of one entity; of more, the oldest receipts mean nothing any more.
MAX_UNDER_WAY: Final = 8
PASSIVATED: Final = object()
"""In place of the state that was copied last, of a passivated entity: it is not the same as any other."""


@dataclass(slots=True)
class SentCopy:
    """A copy on its way: which servers have not said yet that they keep it, and what was applied by then."""

    fence: Fence
    tick: int
    sent_ns: int
    applied: dict[str, int]
    waits_for: set[str]
    replicas: tuple[str, ...] = ()


@dataclass(slots=True)
class LastCopy:
    """What was copied last of an entity, and which copies are under way."""

    world: Any
    marks: tuple[Any, ...]
    replicas: tuple[str, ...]
    peers: tuple[str, ...]
    round: int
    taken_ns: int
    sleep: Sleep | None = None
    again_after: int = AGAIN_AFTER
    under_way: list[SentCopy] = field(default_factory=list)
    kept_by: tuple[str, ...] = ()
    """The servers of the last copy that all of its replicas have said to keep; none if no other one can be made."""
    changed_at: int = 0
    """As `Life.changed_at` said then."""

    def has(self, world: Any) -> bool:
        """Whether it is known to be of this state. States are data of a world, and may be nested too deep for that."""
        try:
            return bool(self.world == world)
        except BaseException as error:
            if is_stopping(error):
                raise
            return False

    def leans_on(self, aside: frozenset[str], peers: tuple[str, ...], heard_since_ns: int) -> bool:
        """Whether one that is `aside` keeps its copy, though others of these `peers` are to, and do not say so yet.

        Or may be about to say so of one that is under way: that is durable then, by this copy alone.
        """
        if self.peers is peers and self.kept_by == self.replicas:
            return False
        sent = [one for one in self.under_way if one.sent_ns >= heard_since_ns]
        return not aside.isdisjoint({*self.kept_by, *(name for one in sent for name in one.replicas)})

    def lasts(self, life: Life, peers: tuple[str, ...]) -> bool:
        """Whether the entity has slept since, so that nothing has changed but its tick, and the replicas are these."""
        return self.sleep is not None and self.sleep is life.sleep and self.peers is peers

    def again_of_sleeper(self) -> int:
        """After how many intervals it is copied again if it sleeps on: ever more, once all replicas have it."""
        is_kept = not self.under_way or not self.under_way[-1].waits_for
        return min(2 * self.again_after, ASLEEP_AGAIN_AFTER) if is_kept else AGAIN_AFTER
