"""Which HELLOs are worth an answer: bounds on how often, and cookies under load.

An answer costs an ECDH and a signature. A HELLO that is not its initiator's own never gets one (`Hello.proves`). So
what is left to bound are recorded HELLOs, sent again from anywhere, and servers with good keys that mean ill. While
there is little to do, all are answered. In the lower half of an allowance the initiator must first repeat a cookie
under its MAC, which no holder of a recording can do. So a flood of recordings cannot use up what honest servers need.
DTLS and WireGuard do so, too; their cookies show only that a host receives there. Nothing is remembered about whom a
cookie was sent to. It is a MAC of the HELLO, of where that came from and of the time.
"""

import hashlib
from enum import Enum
from typing import Final

from batonpass.actors.link.settings import Address
from batonpass.crypto.session import Hello

COOKIE_EPOCH_S: Final = 30.0
"""A cookie is good for the epoch it was made in and the next one."""


class HelloVerdict(Enum):
    """What to do with a HELLO."""

    ANSWER = "answer it"
    COOKIE = "send a cookie instead of an answer"
    DROP = "drop it"


class Allowance:
    """A token bucket, the lower half of which is for those that have shown a cookie."""

    def __init__(self, *, rate_per_s: float, burst: float, now: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = burst
        self._refilled_s = now

    def judge(self, now: float, *, is_fresh: bool) -> HelloVerdict:
        """What there is enough left for; `take` if that is an answer, and it is given."""
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_s) * self._rate_per_s)
        self._refilled_s = now
        if self._tokens >= 1 and (is_fresh or self._tokens >= self._burst / 2):
            return HelloVerdict.ANSWER
        return HelloVerdict.DROP if is_fresh else HelloVerdict.COOKIE

    def take(self) -> None:
        """One answer is given."""
        self._tokens -= 1


class HandshakeGate(Allowance):
    """What all links of an endpoint have together, and its cookies. `secret` (32 random bytes) never leaves the
    process."""

    def __init__(self, secret: bytes, *, rate_per_s: float, burst: float, now: float) -> None:
        super().__init__(rate_per_s=rate_per_s, burst=burst, now=now)
        self._secret = secret

    def is_fresh(self, hello: Hello, source: Address, now: float) -> bool:
        """Whether it shows the cookie that it was sent at `source` a short while ago."""
        if not hello.cookie:
            return False
        epoch = int(now // COOKIE_EPOCH_S)
        return hello.cookie in {self._cookie(hello, source, epoch), self._cookie(hello, source, epoch - 1)}

    def cookie(self, hello: Hello, source: Address, now: float) -> int:
        """The cookie for this HELLO from `source`, 1 to 2**64 - 1."""
        return self._cookie(hello, source, int(now // COOKIE_EPOCH_S))

    def _cookie(self, hello: Hello, source: Address, epoch: int) -> int:
        # The ephemeral key has a fixed length and is new in every HELLO.
        place = f" {hello.session_id} {source[0]} {source[1]} {epoch}".encode()
        digest = hashlib.blake2s(hello.ephemeral_point + place, digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "little") or 1
