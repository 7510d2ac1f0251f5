"""What time it is in an instance: what the clocks of most of its homeservers show.

Each homeserver asks the others what their own clocks show, and notes by its own monotonic clock when that was. The time
of the instance is the median of them all, its own among them: of three, one may show anything. Of two that differ, it
is between them. So all members count by the same time, without agreeing on one. Pure.
"""

from collections.abc import Collection
from statistics import median
from typing import Final

__all__ = ["MemberClocks"]


class MemberClocks:
    """What the clocks of the members of one instance show, as far as the member called `name` has heard."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        # When their wall clocks were at 0, by our monotonic clock, in seconds.
        self._began_s: dict[str, float] = {}

    def heard(self, member: str, now_ms: int, asked_ns: int, answered_ns: int) -> None:
        """A member, which is proved, says what its own clock shows (Unix milliseconds)."""
        self._began_s[member] = now_ms / 1e3 - (asked_ns + answered_ns) / 2e9

    def own(self, unix_s: float, now_ns: int) -> None:
        """What our own clock shows."""
        self._began_s[self._name] = unix_s - now_ns / 1e9

    def keep(self, members: Collection[str]) -> None:
        """Forget what is no member any more."""
        kept = {*members, self._name}
        self._began_s = {name: began_s for name, began_s in self._began_s.items() if name in kept}

    def ahead_s(self) -> dict[str, float]:
        """By how much each of the clocks is ahead of the time of the instance; negative: behind."""
        if not self._began_s:
            return {}
        middle_s = median(self._began_s.values())
        return {name: began_s - middle_s for name, began_s in sorted(self._began_s.items())}
