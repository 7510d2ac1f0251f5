"""Resets in the directory of this instance, vouched for with keys that are good today.

A reset counts for others only while the key it was signed with is good. Otherwise a thief of a key of a homeserver
years after it was replaced could give keys to every server of its instance. The log keeps the statement as it was
signed. When the first signature has lost its worth, the member that answers shows the statement signed by itself. The
log says that it happened, and its members are trusted to know their log. What is signed stays the same, so later
statements follow on it as before.
"""

from functools import lru_cache
from typing import Final

from batonpass.authority.model.records import DirectoryRow
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.crypto.continuity import Reset, Statement, newest_reset_untrusted, sign_again
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.log.store import InstanceStore

__all__ = ["KeyReset"]

MAX_KEPT: Final = 1_000


class KeyReset:
    """One member's word for the resets in its log."""

    def __init__(self, sealer: Sealer, store: InstanceStore) -> None:
        self._sealer: Final = sealer
        self._store: Final = store
        self._kept: FifoTable[tuple[str, str], str] = FifoTable(MAX_KEPT)

    def shown(self, row: DirectoryRow, now_s: float) -> DirectoryRow:
        """The row of this instance as others shall see it at `now_s` (Unix time): this very one, most of the time."""
        reset = _last_reset(row.statements)
        if reset is None or row.name == self._sealer.name or self._is_good(row.statements[reset.at], now_s):
            return row
        again = self._again(row.statements[reset.at], reset.statement)
        return row.changed(statements=(*row.statements[: reset.at], again, *row.statements[reset.at + 1 :]))

    def _is_good(self, token: str, now_s: float) -> bool:
        signer = self._store.row(jose.peek_sender_untrusted(token))
        if signer is None:
            return False
        try:
            PublicIdentity.from_jwks_untrusted(signer.keys).signing_key(jose.peek_key_untrusted(token), now_s)
        except CryptoError:
            return False
        return True

    def _again(self, token: str, statement: Statement) -> str:
        key = (token, self._sealer.identity.public.signing_kid)
        if key not in self._kept:
            self._kept[key] = sign_again(statement, signer=self._sealer.identity, signer_id=self._sealer.name)
        return self._kept[key]


@lru_cache(maxsize=MAX_KEPT)
def _last_reset(statements: tuple[str, ...]) -> Reset | None:
    """What stands before it is not looked at."""
    return newest_reset_untrusted(statements)
