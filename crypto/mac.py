"""Proofs of knowing a shared secret: HMAC-SHA256 (RFC 2104) over framed parts.

Used where two sides already share a secret, such as the token a server enrols with. `purpose` separates the
uses of one secret, and every part is preceded by its length, so `("ab", "c")` and `("a", "bc")` have
different tags.
"""

import base64
import hashlib
import hmac
import struct
from typing import Final

MIN_SECRET_BYTES: Final = 16
"""Shorter secrets can be guessed offline from one observed tag."""

_LABEL: Final = b"batonpass mac 1"


def tag(secret: bytes, purpose: str, *parts: bytes) -> str:
    """The proof, base64url, 43 characters. Raises ValueError for a secret below 16 bytes or an empty
    purpose."""
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(f"a shared secret needs at least {MIN_SECRET_BYTES} random bytes, got {len(secret)}")
    if not purpose:
        raise ValueError("a tag needs a purpose, so that it cannot be used for another one")
    mac = hmac.new(secret, digestmod=hashlib.sha256)
    for part in (_LABEL, purpose.encode("utf-8"), *parts):
        mac.update(struct.pack("<Q", len(part)))
        mac.update(part)
    return base64.urlsafe_b64encode(mac.digest()).rstrip(b"=").decode("ascii")


def check(presented: str, secret: bytes, purpose: str, *parts: bytes) -> bool:
    """Whether `presented` is the tag of these parts; takes the same time however much of it is right."""
    expected = tag(secret, purpose, *parts)
    return hmac.compare_digest(presented.encode("utf-8", "surrogatepass"), expected.encode("ascii"))
