"""Which HELLOs are worth an answer: a bound on how often, and cookies under load.

An answer costs an ECDH and a signature, and anybody can send a HELLO under any address. While there is little to do
all are let in. In the lower half of the bucket the sender must first repeat a cookie, which proves that it receives
at the address it writes from, so that a flood under false addresses cannot use up what honest servers need (as DTLS
and WireGuard do). Nothing is remembered about a sender: the cookie is a MAC of its address and of the time.
"""

import hashlib
from enum import Enum
from typing import Final

from actors.link.settings import Address

COOKIE_EPOCH_S: Final = 30.0
"""A cookie is good for the epoch it was made in and the next one."""


class Verdict(Enum):
    """What to do with a HELLO."""

    ANSWER = "answer it"
    COOKIE = "send a cookie instead of an answer"
    DROP = "drop it"


class HandshakeGate:
    """A token bucket. `secret` (32 random bytes) never leaves the process."""

    def __init__(self, secret: bytes, *, rate_per_s: float, burst: float, now: float) -> None:
        self._secret = secret
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = burst
        self._refilled_s = now

    def judge(self, source: Address, cookie: int, now: float) -> Verdict:
        """For a HELLO from `source` with `cookie` in the counter field of its header (0: none)."""
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_s) * self._rate_per_s)
        self._refilled_s = now
        if self._tokens < 1:
            return Verdict.DROP
        if self._tokens < self._burst / 2:
            epoch = int(now // COOKIE_EPOCH_S)
            if cookie not in {self._cookie(source, epoch), self._cookie(source, epoch - 1)}:
                return Verdict.COOKIE
        self._tokens -= 1
        return Verdict.ANSWER

    def cookie(self, source: Address, now: float) -> int:
        """The cookie for `source`, 1 to 2**64 - 1."""
        return self._cookie(source, int(now // COOKIE_EPOCH_S))

    def _cookie(self, source: Address, epoch: int) -> int:
        message = f"{source[0]} {source[1]} {epoch}".encode()
        digest = hashlib.blake2s(message, digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "little") or 1
