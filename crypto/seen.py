"""What has been opened already, so that a recorded message cannot be sent again while it is still valid.

A message is known by a hash of everything that is signed (an ECDSA signature itself can be changed into another that
fits). It is remembered until it expires, and no longer: after that it is refused for its age.
"""

import hashlib
import heapq
from typing import Final

from crypto.errors import Replayed

__all__ = ["Seen"]

DEFAULT_CAPACITY: Final = 65_536
"""At 120 bytes each, 8 MB; a thousand messages a second of 60 seconds' validity fit."""


class Seen:
    """Messages of the recent past. `capacity` bounds it: beyond, messages that are new are refused as well.

    Failing closed is the safe side: forgetting the oldest would let whoever can make many messages replay another.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._capacity: Final = capacity
        self._digests: set[bytes] = set()
        self._by_expiry: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self._digests)

    def admit(self, signed: bytes, *, expires_at_s: float, now_s: float) -> None:
        """Let a message in that is proved to be its sender's; times are Unix seconds.

        Raises Replayed if it was let in before, or if too many that are still valid have been.
        """
        while self._by_expiry and self._by_expiry[0][0] <= now_s:
            self._digests.discard(heapq.heappop(self._by_expiry)[1])
        digest = hashlib.sha256(signed).digest()[:16]
        if digest in self._digests:
            raise Replayed("this message has been opened here before")
        if len(self._digests) >= self._capacity:
            raise Replayed(
                f"{self._capacity} messages that are still valid have been opened: it cannot be told any more which"
                " are new; raise the capacity, or give messages a shorter life"
            )
        self._digests.add(digest)
        heapq.heappush(self._by_expiry, (expires_at_s, digest))
