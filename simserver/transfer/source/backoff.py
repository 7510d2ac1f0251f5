"""Entities that would leave and cannot: they stay, and are not frozen again all the time to find that out.

To find out takes a freeze, which players see, or a question at least. So a *world* is not listened to for a while that
wants its entity where it was refused a moment ago. It is not listened to at all for a while if the entity is too large,
or attached to others. What *drain and balance* had begun with it and was refused, for whatever reason, they do not
begin again at once. Each time the pause is longer, up to a bound. Neither matters for what is ordered: the group in
which its home has it moved, say.

To instances whose home does not say whether it would have an entity no world's wish is followed.

To find out takes a freeze of five seconds (`homeserver.names.admission`), which players see. So after it no
entity goes there by the wish of a world for a while, and then one, to try. An ordered entity goes all the same.

How long a hand-over may take before it is worth repeating: longer than they take at the moment.

Messages are not lost by the link while both ends live; a repetition is for servers that have restarted. One that comes
because servers are busy makes them busier. So it waits, as TCP's retransmission timer does (RFC 6298), for what is
usual plus four times what that varies by. Pure.
"""

import logging
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.machines.source import FIRST_RETRY_NS
from batonpass.crypto.bounded_tables import LruTable

__all__ = [
    "CLOSED_NS",
    "FIRST_PAUSE_NS",
    "FIRST_WISH_NS",
    "FORGET_NS",
    "LONGEST_PAUSE_NS",
    "LONGEST_WISH_NS",
    "MAX_FIRST_RETRY_NS",
    "MAX_TARGETS",
    "TRIAL_NS",
    "CircuitBreaker",
    "RefusedStay",
    "RetryBackoff",
    "RetryTimeout",
]

_log = logging.getLogger("batonpass.simserver.transfer.source.departures")

# How long a target that refused is believed (`authority.machines.capacity`).
FIRST_WISH_NS: Final = 1_000_000_000
# At once, if it holds wherever the world wants it: too large states are encoded and hashed as a whole.
LONGEST_WISH_NS: Final = 10_000_000_000
MAX_TARGETS: Final = 8
"""The targets remembered that refused one entity; a world that thinks of ever more is heard."""
# Home proposes the whole of a hierarchy half a second after a refusal. A member that tried again before that would be
# frozen for the wrong transfer. The whole group would wait until the order is repeated.
FIRST_PAUSE_NS: Final = 2_000_000_000
LONGEST_PAUSE_NS: Final = 5_000_000_000
# Longer than the longest pause of a drain, so that it sees at all times what keeps it waiting.
TOO_LARGE_NS: Final = 30_000_000_000
# A refusal this long after the last pause has another cause than the one before.
FORGET_NS: Final = 60_000_000_000
MAX_ENTITIES: Final = 65_536


_ANYWHERE: Final = ""
# What is known of why, in words.
_WORDS: Final = {
    Reason.ASKED: "its rule is `ask`, and its master has not answered",
    Reason.ATTACHED: "it has a parent or children that would stay behind",
    Reason.CAPACITY: "that has no room for it",
    Reason.DENIED: "the rule, or its master, said no",
    Reason.DRAINING: "that is drained, and takes no entities",
    Reason.HOME_UNREACHABLE: "its home instance, or the one of that server, cannot be asked",
    Reason.INCOMPATIBLE: "that could not simulate it, or read its state",
    Reason.STATE_TOO_LARGE: f"a transfer carries {MAX_STATE_BYTES} bytes, and its state has more",
    Reason.TARGET_DOWN: "the lease of that server is over, or it has just come back",
    Reason.TARGET_FAILED: "that did not answer in time",
    Reason.UNKNOWN_TARGET: "no simulation server of this name is registered",
}


@dataclass(frozen=True, slots=True)
class _Pause:
    until_ns: int
    length_ns: int

    def is_forgotten(self, now_ns: int) -> bool:
        return now_ns >= self.until_ns + FORGET_NS


@dataclass(frozen=True, slots=True)
class RefusedStay:
    """Why an entity is not where its world wants it, since when it was refused, and when it is tried again."""

    reason: str
    since_ns: int
    pause: _Pause

    @property
    def words(self) -> str:
        """The reason for people, with its code."""
        known = {reason.value: words for reason, words in _WORDS.items()}
        return f"{known.get(self.reason, 'that was refused')} ({self.reason})"


class RetryBackoff:
    """Which entities had to stay lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        # By the target, or by `_ANYWHERE`.
        self._stays: LruTable[str, LruTable[str, RefusedStay]] = LruTable(MAX_ENTITIES)
        self._pauses: LruTable[str, _Pause] = LruTable(MAX_ENTITIES)
        self._too_large_until_ns: LruTable[str, int] = LruTable(MAX_ENTITIES)

    def stay(self, entity: str, target: str) -> RefusedStay | None:
        """Why its world is not listened to that wants it at `target`; None if it is."""
        if (stays := self._stays.get(entity)) is None:
            return None
        now_ns = self._clock.monotonic_ns()
        known = (stays.get(_ANYWHERE), stays.get(target))
        return next((stay for stay in known if stay is not None and now_ns < stay.pause.until_ns), None)

    def may_be_moved(self, entity: str) -> bool:
        """Whether drain and balance may try to move it (again)."""
        pause = self._pauses.get(entity)
        return pause is None or self._clock.monotonic_ns() >= pause.until_ns

    def is_too_large(self, entity: str, size_bytes: int) -> bool:
        """Whether a state of this size is too large for a transfer; then that is remembered for a while."""
        if size_bytes <= MAX_STATE_BYTES:
            self._too_large_until_ns.pop(entity, None)
            return False
        self._too_large_until_ns[entity] = self._clock.monotonic_ns() + TOO_LARGE_NS
        if self.note(entity, Reason.STATE_TOO_LARGE):
            text = "%s stays: its state has %d bytes, and a transfer carries %d"
            _log.error(text, entity, size_bytes, MAX_STATE_BYTES)
        self.refused(entity)
        return True

    def too_large(self, held: Container[str]) -> int:
        """How many of those `held` were found to be too large a moment ago, and have not been found smaller since."""
        now_ns, known = self._clock.monotonic_ns(), self._too_large_until_ns
        for name in [name for name, at_ns in known.items() if now_ns >= at_ns or name not in held]:
            del known[name]
        return len(known)

    def note(self, entity: str, reason: str) -> bool:
        """It has to stay, and its world is not heard for a while, wherever that wants it; whether that is news."""
        return self._note(entity, _ANYWHERE, reason, LONGEST_WISH_NS)

    def wished_in_vain(self, entity: str, target: str, reason: str) -> bool:
        """Its world wants it at `target`, which was refused: it is listened to again after a while, each time longer.

        Whether that is news: it was not refused there for this reason before, or not lately.
        """
        return self._note(entity, target, reason, FIRST_WISH_NS)

    def _note(self, entity: str, target: str, reason: str, first_ns: int) -> bool:
        now_ns, stays = self._clock.monotonic_ns(), self._stays.get(entity) or LruTable(MAX_TARGETS)
        self._stays[entity] = stays
        before = stays.get(target)
        if before is not None and before.pause.is_forgotten(now_ns):
            before = None
        pause = _next(None if before is None else before.pause, now_ns, first_ns, LONGEST_WISH_NS)
        stays[target] = RefusedStay(reason, now_ns if before is None else before.since_ns, pause)
        return before is None or before.reason != reason

    def left(self, entity: str) -> None:
        """It has gone: what kept it is over."""
        self._stays.pop(entity, None)

    def refused(self, entity: str) -> None:
        """It was frozen for drain or balance in vain: they leave it alone, each time for longer."""
        before, now_ns = self._pauses.get(entity), self._clock.monotonic_ns()
        self._pauses[entity] = _next(before, now_ns, FIRST_PAUSE_NS, LONGEST_PAUSE_NS)


def _next(before: _Pause | None, now_ns: int, first_ns: int, longest_ns: int) -> _Pause:
    """The pause after this one: twice as long, or the first one if that is long ago."""
    is_first = before is None or before.is_forgotten(now_ns)
    length_ns = first_ns if before is None or is_first else min(2 * before.length_ns, longest_ns)
    return _Pause(now_ns + length_ns, length_ns)


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


MAX_FIRST_RETRY_NS: Final = 4_000_000_000
# The time that one hand-over more takes all servers together, on cores that have other work too.
EACH_NS: Final = 10_000_000


class RetryTimeout:
    """Learns from how long hand-overs took."""

    def __init__(self) -> None:
        self._usual_ns = 0.0
        self._varies_ns = 0.0

    @property
    def first_retry_ns(self) -> int:
        """After how long the next hand-over is repeated for the first time."""
        return min(max(FIRST_RETRY_NS, round(self._usual_ns + 4 * self._varies_ns)), MAX_FIRST_RETRY_NS)

    def first_retry_beside_ns(self, others: int) -> int:
        """As `first_retry_ns`, for one of many that begin at the same moment: each has to wait for those before it."""
        return min(self.first_retry_ns + others * EACH_NS, MAX_FIRST_RETRY_NS)

    def took(self, duration_ns: int) -> None:
        """A hand-over took this long, from its freeze to its end."""
        if not self._usual_ns:
            self._usual_ns, self._varies_ns = float(duration_ns), duration_ns / 2
            return
        self._varies_ns += (abs(duration_ns - self._usual_ns) - self._varies_ns) / 4
        self._usual_ns += (duration_ns - self._usual_ns) / 8
