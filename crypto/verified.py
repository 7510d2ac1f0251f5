"""Which signatures have been verified already, so that none is verified twice.

A chain of certificates comes again with every pass, one link longer, and its signatures are most of what it costs. What
is remembered is that this very string was signed with this very key (by hash and by thumbprint). Whether the key is
still good, and whose it is, is asked every time.
"""

import hashlib
from typing import Final

from batonpass.crypto.bounded_tables import LruTable

__all__ = ["Verified"]

DEFAULT_CAPACITY: Final = 16_384
"""At 200 bytes each, 3 MB."""


class Verified:
    """Signatures that fitted. Beyond `capacity` the longest unused is forgotten, and verified again when it comes."""

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._fitted: LruTable[tuple[bytes, str], None] = LruTable(capacity)

    def __len__(self) -> int:
        return len(self._fitted)

    def knows(self, token: str, kid: str) -> bool:
        """Whether `token` has been found to be signed with the key of this thumbprint."""
        name = _name(token, kid)
        if name not in self._fitted:
            return False
        self._fitted.move_to_end(name)
        return True

    def note(self, token: str, kid: str) -> None:
        """It is: it was verified, or signed here."""
        self._fitted[_name(token, kid)] = None


def _name(token: str, kid: str) -> tuple[bytes, str]:
    return hashlib.sha256(token.encode()).digest(), kid
