"""Which signatures have been verified already, so that none is verified twice.

A chain of certificates comes again with every pass, one link longer, and its signatures are most of what it costs. What
is remembered is that this very string was signed with this very key (by hash and by thumbprint); whether the key is
still good, and whose it is, is asked every time.
"""

import hashlib
from collections import OrderedDict
from typing import Final

__all__ = ["Verified"]

DEFAULT_CAPACITY: Final = 16_384
"""At 200 bytes each, 3 MB."""


class Verified:
    """Signatures that fitted. Beyond `capacity` the longest unused is forgotten, and verified again when it comes."""

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._capacity: Final = capacity
        self._fitted: OrderedDict[tuple[bytes, str], None] = OrderedDict()

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
        if len(self._fitted) > self._capacity:
            self._fitted.popitem(last=False)


def _name(token: str, kid: str) -> tuple[bytes, str]:
    return hashlib.sha256(token.encode()).digest(), kid
