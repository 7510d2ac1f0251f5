"""Instances whose home does not say whether it would have an entity: worlds that want one there are not listened to.

To find out takes a freeze of five seconds (`homeserver.names.foreign_admission`), which players see. So after it nobody
goes there by the wish of a world for a while, and then one entity, to try. What is ordered goes all the same.
"""

from typing import Final

from batonpass.actors.base.clock import Clock

__all__ = ["CLOSED_NS", "TRIAL_NS", "CircuitBreaker"]

CLOSED_NS: Final = 30_000_000_000
# Longer than home waits for the other one.
TRIAL_NS: Final = 10_000_000_000


class CircuitBreaker:
    """What one simulation server knows of that."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        # Bounded by the instances that home has a way to.
        self._until_ns: dict[str, int] = {}

    def close(self, destination: str) -> None:
        """Its home did not answer."""
        self._until_ns[_instance_of(destination)] = self._clock.monotonic_ns() + CLOSED_NS

    def open(self, destination: str) -> None:
        """Its home has let an entity in."""
        if self._until_ns:
            self._until_ns.pop(_instance_of(destination), None)

    def is_closed(self, destination: str) -> bool:
        """Whether `may_try` would say no; that does not count as a try."""
        return self._clock.monotonic_ns() < self._until_ns.get(_instance_of(destination), 0)

    def may_try(self, destination: str) -> bool:
        """Whether a world's wish to have an entity there is followed; after a while once, to see if it can be again."""
        if not self._until_ns or (until_ns := self._until_ns.get(_instance_of(destination))) is None:
            return True
        now_ns = self._clock.monotonic_ns()
        if now_ns < until_ns:
            return False
        self._until_ns[_instance_of(destination)] = now_ns + TRIAL_NS
        return True


def _instance_of(server: str) -> str:
    """The instance of a name that a world has made up, so it may be none."""
    return server.partition(".")[0]
