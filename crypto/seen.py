"""What has been opened already, so that a recorded message cannot be sent again while it is still valid.

A message is known by a hash of everything that is signed (an ECDSA signature itself can be changed into another that
fits). It is remembered until it expires, and no longer: after that it is refused for its age.

For applications that do something with a message which must not be done twice. The servers' own messages need none of
it: they are taken once from a link, and their repetition is answered again (docs/reference/protocol.md, "Repetitions").
"""

import hashlib
import heapq
import math
from collections import Counter
from typing import Final

from batonpass.crypto.errors import Expired, Malformed, Replayed, SeenFull

__all__ = ["Seen", "require_short_life"]

DEFAULT_CAPACITY: Final = 65_536
"""At 120 bytes each, 8 MB; a thousand messages a second of 60 seconds' validity fit."""

DEFAULT_LONGEST_LIFE_S: Final = 600.0
"""Ten times the life that servers give their messages, for clocks that differ."""


def require_short_life(expires_at_s: float, now_s: float, longest_life_s: float = DEFAULT_LONGEST_LIFE_S) -> None:
    """Raises Malformed for a message that says that it is valid for longer; times are Unix seconds."""
    if expires_at_s - now_s > longest_life_s:
        raise Malformed(
            f"this message is valid for {expires_at_s - now_s:.3g} s more by the clock here, and "
            f"{longest_life_s:.0f} s is most: it was made to be, or the two clocks differ"
        )


class Seen:
    """Messages of the recent past.

    `capacity` bounds how many: beyond, messages that are new are refused as well. Failing closed is the safe side:
    forgetting the oldest would let an attacker who can make many messages replay another. No sender can hold more than
    what is free, so that one alone fills half of it, two a third each, and there is room for another. No message holds
    room for longer than `longest_life_s`.

    Time never goes back here: what had expired by the latest time that was named, and was forgotten therefore, has
    expired, also for a clock that was set back since. Until that clock has caught up, new messages are refused too.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY, *, longest_life_s: float = DEFAULT_LONGEST_LIFE_S) -> None:
        self._capacity: Final = capacity
        self._longest_life_s: Final = longest_life_s
        self._digests: set[bytes] = set()
        self._by_expiry: list[tuple[float, bytes, str]] = []
        self._held: Counter[str] = Counter()
        self._latest_s = -math.inf

    def __len__(self) -> int:
        return len(self._digests)

    def admit(self, signed: bytes, *, sender: str, expires_at_s: float, now_s: float) -> None:
        """Let a message in that is proved to be its sender's; times are Unix seconds.

        Raises Replayed if it was let in before, and SeenFull if too many that are still valid have been. Raises
        Malformed if it says that it is valid for longer than a sender is remembered, Expired if it has.
        """
        require_short_life(expires_at_s, now_s, self._longest_life_s)
        self._latest_s = max(self._latest_s, now_s)
        while self._by_expiry and self._by_expiry[0][0] <= self._latest_s:
            self._drop()
        if expires_at_s <= self._latest_s:
            raise Expired(
                f"this message of {sender} has expired by the clock here, which was set back by "
                f"{self._latest_s - now_s:.1f} s since: whether it was opened before is not known any more"
            )
        digest = hashlib.sha256(signed).digest()[:16]
        if digest in self._digests:
            raise Replayed("this message has been opened here before")
        free = self._capacity - len(self._digests)
        if self._held[sender] >= free:
            raise SeenFull(
                f"{self._held[sender]} messages of {sender} that are still valid have been opened, and there is room"
                f" for {free} more of all: it cannot be told any more which are new; raise the capacity, or give"
                " messages a shorter life"
            )
        self._digests.add(digest)
        self._held[sender] += 1
        heapq.heappush(self._by_expiry, (expires_at_s, digest, sender))

    def _drop(self) -> None:
        _, digest, sender = heapq.heappop(self._by_expiry)
        self._digests.discard(digest)
        self._held[sender] -= 1
        if not self._held[sender]:
            del self._held[sender]
