"""HELLOs in names that this endpoint has no link to: how many of them may cost a question to the directory.

Until the directory has answered, nothing tells the true server from an attacker who knows its name. So what is scarce
is shared in two parts: some for those who have shown nothing, and the rest for those who have repeated a cookie, by
where they receive: a flood from one place leaves the others theirs. What was answered is kept for a while, and then the
MAC of a HELLO tells.
"""

import ipaddress
from typing import Final

from batonpass.actors.link.gate import Allowance, HelloVerdict
from batonpass.actors.link.settings import Address
from batonpass.crypto.bounded_tables import LruTable
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.static_secrets import StaticSecrets

MAX_LOOKUPS: Final = 32
"""Under way because of HELLOs without a link, half of them for those without a cookie."""

LOOKUPS_PER_S: Final = 100.0
LOOKUP_BURST: Final = 32.0
"""Begun for those without a cookie."""

MAX_LOOKUPS_PER_SOURCE: Final = 2
SOURCE_LOOKUPS_PER_S: Final = 20.0
SOURCE_LOOKUP_BURST: Final = 8.0
"""Under way, and begun, for those with a cookie that receive at one IPv4 address, or in one IPv6 network of 64 bits."""

MAX_SOURCES: Final = 1024
MAX_KNOWN: Final = 1024
KNOWN_FOR_S: Final = 30.0
"""The keys of this number of names are remembered for that time: a flood of names pushes out the oldest, and one that
is pushed out is looked up again."""

LOOKUP_INTERVAL_S: Final = 1.0
"""A name is looked up at most so often because its keys did not fit a HELLO."""


class _HelloSource:
    __slots__ = ("allowance", "lookups")

    def __init__(self, now: float) -> None:
        self.allowance = Allowance(rate_per_s=SOURCE_LOOKUPS_PER_S, burst=SOURCE_LOOKUP_BURST, now=now)
        self.lookups = 0


class _KnownSecrets:
    __slots__ = ("secrets", "since_s")

    def __init__(self, secrets: StaticSecrets, now: float) -> None:
        self.secrets = secrets
        self.since_s = now


class Strangers:
    """See the module. `begin` and `end` a look-up that `judge` lets in, and `remember` what it has found."""

    def __init__(self, now: float) -> None:
        self._allowance = Allowance(rate_per_s=LOOKUPS_PER_S, burst=LOOKUP_BURST, now=now)
        self._unproved_lookups = 0
        self._sources: dict[str, _HelloSource] = {}
        self._lookups: dict[str, str | None] = {}  # by name: where it came from, None without a cookie
        self._known: LruTable[str, _KnownSecrets] = LruTable(MAX_KNOWN)

    def judge(self, name: str, source: Address, now: float, *, is_fresh: bool) -> HelloVerdict:
        """Whether to look `name` up because of a HELLO from `source`, which shows a fresh cookie or does not."""
        known = self._known.get(name)
        if name in self._lookups or (known is not None and now < known.since_s + LOOKUP_INTERVAL_S):
            return HelloVerdict.DROP
        if not is_fresh:
            if self._unproved_lookups >= MAX_LOOKUPS // 2:
                return HelloVerdict.COOKIE
            # All of this allowance is for those without a cookie: no other takes from it.
            verdict = self._allowance.judge(now, is_fresh=True)
            return HelloVerdict.COOKIE if verdict is HelloVerdict.DROP else verdict
        if len(self._lookups) >= MAX_LOOKUPS:
            return HelloVerdict.DROP
        place = self._sources.get(place_of(source))
        if place is None:
            return HelloVerdict.ANSWER
        if place.lookups >= MAX_LOOKUPS_PER_SOURCE:
            return HelloVerdict.DROP
        return place.allowance.judge(now, is_fresh=True)

    def begin(self, name: str, source: Address, now: float, *, is_fresh: bool) -> None:
        """A look-up that was let in begins."""
        if not is_fresh:
            self._allowance.take()
            self._unproved_lookups += 1
            self._lookups[name] = None
            return
        key = self._lookups[name] = place_of(source)
        place = self._sources.get(key)
        if place is None:
            if len(self._sources) >= MAX_SOURCES:  # the oldest one that has nothing under way, which most have not
                del self._sources[next(one for one, other in self._sources.items() if not other.lookups)]
            place = self._sources[key] = _HelloSource(now)
        place.allowance.take()
        place.lookups += 1

    def end(self, name: str) -> None:
        """The look-up of `name` is over, if there was one."""
        if name not in self._lookups:
            return
        place = self._lookups.pop(name)
        if place is None:
            self._unproved_lookups -= 1
        else:
            self._sources[place].lookups -= 1

    def remember(self, name: str, identity: Identity, keys: PublicIdentity, now: float) -> StaticSecrets:
        """The keys of `name` that were found; `identity` is ours."""
        secrets = StaticSecrets(identity, keys)
        self._known[name] = _KnownSecrets(secrets, now)
        return secrets

    def secrets_of(self, name: str, now: float) -> StaticSecrets | None:
        """What is shared with `name`, if its keys were found a short while ago."""
        known = self._known.get(name)
        return None if known is None or now >= known.since_s + KNOWN_FOR_S else known.secrets

    def forget(self) -> None:
        """Our own keys have changed, and with them everything that is shared."""
        self._known.clear()


def place_of(source: Address) -> str:
    """What counts as one place: an IPv4 address, or an IPv6 network of 64 bits, of which one peer may have all."""
    address = ipaddress.ip_address(source[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.IPv6Network((address, 64), strict=False))
        address = address.ipv4_mapped
    return str(address)
