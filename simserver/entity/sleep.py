"""Sleep: an entity of which its world says that nothing changes is not ticked, until something wakes it.

A world says so with `may_sleep(state)` (see `simserver.world.api`). Such an entity is as if it ticked and every tick
changed nothing. Its ticks are counted, its timers end when they would have ended, authority, lease and custody stay as
they are. What it saves is the work: no turn of its actor, no step of its world, and copies ever more seldom. An input,
a timer, a notice, another owner, or a release wakes it for the next tick. Physics engines call it sleeping bodies. A
long sleeper is passivated, and costs next to no memory either: `simserver.entity.passivation`.

Ticks that were slept through are counted in rounds of the server, not by the clock. A round that the server skipped, or
in which it had no lease, was no tick for those that are awake either.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from batonpass.simserver.world.api import yes_or_no

__all__ = ["NEVER", "Rounds", "Sleep", "may_sleep"]

NEVER: Final = 2**63
"""The round of an entity without a timer."""


class Rounds:
    """How often this server has had everything tick that lives here."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


@dataclass(frozen=True, slots=True)
class Sleep:
    """From after round `since` on; the first timer ends in round `until`, which is a tick again."""

    since: int
    until: int = NEVER

    @classmethod
    def begun(cls, since: int, tick: int, timers: Mapping[str, int]) -> "Sleep | None":
        """The sleep of an entity that has had `tick` ticks; None if a timer ends with the next one already."""
        due = min(timers.values(), default=NEVER)
        if due <= tick + 1:
            return None
        return cls(since, NEVER if due == NEVER else since + due - tick)

    def slept(self, count: int) -> int:
        """How many ticks were slept through when there have been `count` rounds; never the one of a timer."""
        return min(count, self.until - 1) - self.since

    def is_over(self, count: int) -> bool:
        """Whether round `count` is that of the first timer, or a later one."""
        return count >= self.until


def may_sleep(world: Any, state: Any) -> bool:
    """Whether the world says that an entity in this state may sleep; worlds that say nothing want every tick.

    Raises:
        TypeError: it says anything but yes or no; a text such as "no" would be taken for a yes.
        Exception: whatever else the world's own code raises.
    """
    asked = getattr(world, "may_sleep", None)
    if asked is None:
        return False
    return yes_or_no("may_sleep", asked(state))
