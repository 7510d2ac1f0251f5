"""Entities that are about to leave, and who has been told of it: they leave when all of those are ready, or in time.

A world, or the owner, may want to finish something before an entity stands still and changes servers: an animation, a
trade, a burst of inputs. Whoever asks for the transfer gives them so long (`notice_ms`); the entity is simulated
meanwhile. Nobody can hold it back for longer. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["GROUP", "OWNER", "WORLD", "DrainNotices"]

WORLD: Final = "world"
OWNER: Final = "owner"
# Nobody is ever ready in its name: the members of a group stand still together, when the time of all is over.
GROUP: Final = "group"


@dataclass
class _Notice:
    until_ns: int
    waits_for: set[str]
    leave: Callable[[], None] = field(repr=False)


class DrainNotices:
    """The notices of one server, one for each entity at most."""

    def __init__(self) -> None:
        self._notices: dict[str, _Notice] = {}

    def __contains__(self, entity: str) -> bool:
        return entity in self._notices

    def give(self, entity: str, told: set[str], until_ns: int, leave: Callable[[], None]) -> None:
        """`told` know that it leaves; it does when they are ready, or at `until_ns`. At once if nobody was told."""
        if told:
            self._notices[entity] = _Notice(until_ns, set(told), leave)
        else:
            leave()

    def ready(self, entity: str, who: str) -> None:
        """`who` has finished; with the last of those who were told it leaves."""
        notice = self._notices.get(entity)
        if notice is None:
            return
        notice.waits_for.discard(who)
        if not notice.waits_for:
            del self._notices[entity]
            notice.leave()

    def waiting(self) -> dict[str, int]:
        """When each of those that wait leaves at the latest, in monotonic nanoseconds."""
        return {entity: notice.until_ns for entity, notice in self._notices.items()}

    def over(self, entity: str, now_ns: int) -> None:
        """Time has passed: it leaves if it is time."""
        notice = self._notices.get(entity)
        if notice is not None and now_ns >= notice.until_ns:
            del self._notices[entity]
            notice.leave()
