"""Leases: until when a simulation server may act on what the log has given to it, and when it has certainly stopped.

A simulation server holds one lease for all its entities. It renews it with the *granter*, the one homeserver of its
home instance that holds the *office* of granting. The office is a row of the log with a number that rises. Nothing is
written for a renewal. Only that a lease is over is written (`authority.procedures.lease`), and only then may another
server be given what the server held.

Rules (R7 in FAILURES), none of which needs clocks that show the same time:

1. The holder counts from the moment at which it *sent* the renewal that was granted, the granter from one at which it
had *received* it. The holder's term is the shorter one, by more than two clocks can drift apart.
   had *received* it; and the holder's term is the shorter one by more than two clocks can drift apart.
2. A renewal is granted only if the office was still the granter's at some time after the renewal had arrived.
3. A homeserver that takes the office gives every server a full term before it ends a lease. The former granter may have
   granted renewals until then. So does a granter that did not look for a while: what was silent was perhaps itself.
4. Ending a lease is a write under the number of the office, so a former granter cannot end one that was renewed with
   its successor. And while that write is under way, no renewal of this lease is granted.
5. A lease that is over never comes back. The server claims the next *incarnation*, and has dropped by then whatever it
   simulated under this one.
6. A renewal is new because it has a *challenge* in it that the granter gave a moment ago, by the granter's own clock.
   Its answer is new because it is one to this renewal. What time it is, which a wrong clock may not know, is not asked.

Both machines are told the time; a holder's is never compared with a granter's.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

__all__ = [
    "TABLE",
    "Challenges",
    "Granter",
    "Holder",
    "HolderPhase",
    "LeaseTerms",
    "Over",
    "RanOut",
    "Renewed",
]

# How much faster or slower than true a clock may run. Quartz is a hundred times better, and NTP slews by 500 ppm at
# most; virtual machines are the reason for the rest.
MAX_DRIFT_PERMILLE: Final = 10
# What the holder's term is shorter by beside drift: whatever happens between its look at the clock and the effect.
_MARGIN_PART: Final = 8
# How many renewals may be lost in a row before the holder has to stop.
_RENEWALS_PER_TERM: Final = 5
_MAX_RENEWAL_NS: Final = 2_000_000_000
_MAX_LOOK_NS: Final = 250_000_000
# A granter that has not looked for this part of the term may have been what was silent.
_LOOKS_PER_TERM: Final = 4


@dataclass(frozen=True)
class LeaseTerms:
    """How long a lease lasts, for the granter; what is left for the holder follows from it.

    `holder_ns` of the slowest clock and a margin end before `granter_ns` of the fastest one:
    holder / (1 - drift) + margin <= granter / (1 + drift).
    """

    granter_ns: int

    @cached_property
    def holder_ns(self) -> int:
        """How long the holder may act, from the sending of a renewal that was granted."""
        return _drifted(self.granter_ns) - self.granter_ns // _MARGIN_PART

    @property
    def certain_ns(self) -> int:
        """For how long, by any clock, a lease is certainly not over by which a server acted just now.

        The holder stops by so much earlier than the granter ends its lease.
        """
        return _drifted(self.granter_ns // _MARGIN_PART)

    @cached_property
    def renew_every_ns(self) -> int:
        """How often the holder renews, and tells how much it has to do."""
        return min(self.holder_ns // _RENEWALS_PER_TERM, _MAX_RENEWAL_NS)

    @property
    def look_every_ns(self) -> int:
        """How often the granter looks around: well below where it would doubt itself, as who returns waits for it."""
        return min(self.granter_ns // (_LOOKS_PER_TERM * 4), _MAX_LOOK_NS)


def _drifted(duration_ns: int) -> int:
    """What is left of a duration if it was measured by the slowest clock, and counts by the fastest one."""
    return duration_ns * (1000 - MAX_DRIFT_PERMILLE) // (1000 + MAX_DRIFT_PERMILLE)


# --- the holder ----------------------------------------------------------------------------------------------------


class HolderPhase(StrEnum):
    """Where an incarnation of a simulation server stands, as far as it knows itself."""

    WAITING = "waiting"
    """Nothing was granted yet."""
    HELD = "held"
    """It may act until its term ends."""
    LAPSED = "lapsed"
    """Its term ended. It is not said that the lease is over: a renewal may still be granted."""
    OVER = "over"
    """The log has ended the lease, or given it to a later incarnation."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """A renewal was granted that was sent at `sent_ns`, with what it said of the terms."""

    sent_ns: int
    terms: LeaseTerms


@dataclass(frozen=True, slots=True)
class RanOut:
    """The term has ended by this server's own clock."""


@dataclass(frozen=True, slots=True)
class Over:
    """The home instance says that this incarnation's lease is over."""


Event = Renewed | RanOut | Over

TABLE: Final[dict[tuple[HolderPhase, type[Event]], HolderPhase]] = {
    (HolderPhase.WAITING, Renewed): HolderPhase.HELD,
    (HolderPhase.WAITING, Over): HolderPhase.OVER,
    (HolderPhase.HELD, Renewed): HolderPhase.HELD,
    (HolderPhase.HELD, RanOut): HolderPhase.LAPSED,
    (HolderPhase.HELD, Over): HolderPhase.OVER,
    (HolderPhase.LAPSED, Renewed): HolderPhase.HELD,
    (HolderPhase.LAPSED, Over): HolderPhase.OVER,
}
"""Every legal transition. What is absent changes nothing; in particular nothing leads out of `over`."""


class Holder:
    """The lease of one incarnation, seen from the server that holds it. `incarnation` is 0 for none."""

    def __init__(self, incarnation: int = 0) -> None:
        self.incarnation: Final = incarnation
        self.phase = HolderPhase.WAITING
        self.until_ns = 0
        self.terms: LeaseTerms | None = None

    def may_act(self, now_ns: int) -> bool:
        """Whether this server may simulate now. Asked before every effect; a late timer changes nothing about it."""
        return self.phase is HolderPhase.HELD and now_ns < self.until_ns

    def handle(self, event: Event, now_ns: int) -> HolderPhase:
        """Something happened; the phase from now on."""
        if self.phase is HolderPhase.HELD and now_ns >= self.until_ns:
            self.phase = TABLE[self.phase, RanOut]
        if isinstance(event, RanOut) and self.phase is HolderPhase.HELD:
            # Said too early: it was renewed meanwhile.
            return self.phase
        if isinstance(event, Renewed):
            until_ns = event.sent_ns + event.terms.holder_ns
            if until_ns <= now_ns:
                # The answer took longer than what it grants.
                return self.phase
            self.until_ns, self.terms = max(until_ns, self.until_ns), event.terms
        self.phase = TABLE.get((self.phase, type(event)), self.phase)
        return self.phase


# --- the granter ---------------------------------------------------------------------------------------------------


class Challenges:
    """What a granter has its holders repeat, so that no renewal can be kept back and make a dead server look alive.

    Each lasts for two terms, and is another one after every term; nothing is remembered. `secret` is random, and that
    of one life of one granter: after a restart, or at another granter, every holder is asked once more.
    """

    def __init__(self, secret: bytes, terms: LeaseTerms) -> None:
        self._secret: Final = secret
        self._every_ns: Final = terms.granter_ns

    def now(self, now_ns: int) -> str:
        """What to give to a holder at this moment."""
        return self._of(now_ns // self._every_ns)

    def is_recent(self, challenge: str, now_ns: int) -> bool:
        """Whether this was given to a holder less than two terms ago."""
        period = now_ns // self._every_ns
        return challenge in (self._of(period), self._of(period - 1))

    def _of(self, period: int) -> str:
        return hashlib.blake2s(b"%d" % period, digest_size=16, key=self._secret).hexdigest()


class Granter:
    """Who renewed when, as the granter remembers it. Nothing of it is written down.

    Leases are known by their server and incarnation; those that the log calls over are not this machine's business.
    """

    def __init__(self, terms: LeaseTerms) -> None:
        self.terms: Final = terms
        self.office = 0
        """The number of the office that this homeserver holds; 0 while it holds none."""
        self._since_ns = 0
        self._looked_ns = 0
        self._heard_ns: dict[tuple[str, int], int] = {}
        self._renewals: dict[tuple[str, int], int] = {}
        self._ending: set[tuple[str, int]] = set()

    def took_office(self, office: int, now_ns: int) -> None:
        """The log has given the office of this number to this homeserver; `now_ns` is not before that."""
        self.office, self._since_ns, self._looked_ns = office, now_ns, now_ns
        self._heard_ns.clear()
        self._renewals.clear()
        self._ending.clear()

    def left_office(self) -> None:
        """The office is another's, or may be."""
        self.office = 0

    def heard(self, server: str, incarnation: int, renewal: int, received_ns: int) -> bool:
        """A renewal arrived; whether it may be granted, if the office proves to be held still after this.

        Renewals are numbered: one that sends an old one again cannot make a dead server look alive.
        """
        lease = (server, incarnation)
        if not self.office or lease in self._ending or renewal <= self._renewals.get(lease, 0):
            return False
        self._renewals[lease] = renewal
        self._heard_ns[lease] = max(received_ns, self._heard_ns.get(lease, received_ns))
        return True

    def may_grant(self, server: str, incarnation: int, office: int) -> bool:
        """Whether a renewal that was `heard` under this office may be granted, now that the log was asked."""
        return office != 0 and office == self.office and (server, incarnation) not in self._ending

    def overdue(self, leases: Iterable[tuple[str, int]], now_ns: int) -> list[tuple[str, int]]:
        """Which of the leases that the log calls alive or returning were not renewed for a term.

        They are not granted from here on; the caller has the log end each, under `office`.
        """
        if now_ns - self._looked_ns > self.terms.granter_ns // _LOOKS_PER_TERM:
            self._since_ns = now_ns
        self._looked_ns = now_ns
        if not self.office:
            return []
        known = sorted(leases)
        self._heard_ns = {lease: self._heard_ns[lease] for lease in known if lease in self._heard_ns}
        self._renewals = {lease: self._renewals[lease] for lease in known if lease in self._renewals}
        late = {lease for lease in known if now_ns - self._last_ns(lease) >= self.terms.granter_ns}
        # Once the log was told to end a lease, it may do so at any later time: until it has, nothing is granted.
        self._ending = (self._ending | late) & set(known)
        return sorted(self._ending)

    def _last_ns(self, lease: tuple[str, int]) -> int:
        return max(self._since_ns, self._heard_ns.get(lease, self._since_ns))
