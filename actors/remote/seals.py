"""Proof that this node has given a reference away: without it, knowing or guessing a pid opens nothing.

A seal is a keyed hash of the pid with a secret that never leaves the node. So it need not be remembered what was given
to whom. A reference keeps working when it is handed on to a third node, as a reference should. 64 bits can only be
guessed by asking this node, and each wrong guess is counted. A hundred thousand guesses a second would need a million
years for an even chance. Pure.
"""

from __future__ import annotations

import hashlib
from typing import Final, final

from batonpass.actors.remote.settings import MAX_SEALS
from batonpass.crypto.bounded_tables import FifoTable

SECRET_BYTES: Final = 32


@final
class Seals:
    """Makes and checks seals. `secret`: `SECRET_BYTES` of the operating system's dice, drawn by each life of a node."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret of a node has {SECRET_BYTES} bytes, not {len(secret)}")
        self._secret = secret
        self._actors: FifoTable[int, int] = FifoTable(MAX_SEALS)

    def of_actor(self, pid: int) -> int:
        """The seal of the actor `pid`."""
        seal = self._actors.get(pid)
        if seal is None:
            seal = self._actors[pid] = self._compute(b"actor", pid)
        return seal

    def of_caller(self, number: int) -> int:
        """The seal of the waiting caller `number`."""
        return self._compute(b"caller", number)

    def _compute(self, kind: bytes, number: int) -> int:
        digest = hashlib.blake2b(number.to_bytes(8, "big"), digest_size=8, key=self._secret, person=kind).digest()
        return int.from_bytes(digest, "big")
