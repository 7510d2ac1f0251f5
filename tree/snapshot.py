"""Snapshots: the state after a certain entry of the log, as one file that is either whole or refused.

The file is a line that says what it is, CBOR, and the SHA-256 of everything before. It is sent to members that are too
far behind as it is, so a receiver checks it exactly as a restarting member does.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from tree.data import decode_untrusted, encode
from tree.errors import BadData
from tree.journal import Entry

__all__ = ["MAX_SNAPSHOT_BYTES", "Snapshot", "SnapshotDamaged"]

MAX_SNAPSHOT_BYTES: Final = 1 << 30
_MAGIC: Final = b"batonpass snapshot 1\n"
_DIGEST_BYTES: Final = 32


class SnapshotDamaged(Exception):
    """These bytes are not a whole snapshot of this instance."""


@dataclass(frozen=True)
class Snapshot:
    """`state` after `last` was applied; `previous` is the entry before it, because the log keeps begin with both."""

    owner: str
    previous: Entry
    last: Entry
    state: Any

    def encoded(self) -> bytes:
        """The bytes of the file."""
        body = _MAGIC + encode([self.owner, list(self.previous), list(self.last), self.state], canonical=False)
        return body + hashlib.sha256(body).digest()

    @staticmethod
    def decode_untrusted(encoded: bytes, owner: str) -> "Snapshot":
        """Read the bytes of a file; raises `SnapshotDamaged` unless it is a whole snapshot of this instance."""
        body, digest = encoded[:-_DIGEST_BYTES], encoded[-_DIGEST_BYTES:]
        if not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            raise SnapshotDamaged("the snapshot is incomplete or damaged: its checksum does not match")
        try:
            fields = decode_untrusted(body[len(_MAGIC) :])
        except BadData as error:
            raise SnapshotDamaged(f"the snapshot cannot be read: {error.message}") from error
        match fields:
            case [str(found), [bytes(), int(), int()] as previous, [bytes(), int(), int()] as last, state]:
                if found != owner:
                    raise SnapshotDamaged(f"the snapshot belongs to {found!r}, not to {owner!r}")
                if last[1] != previous[1] + 1:
                    raise SnapshotDamaged(f"the snapshot names entries {previous[1]} and {last[1]} as neighbours")
                return Snapshot(owner, tuple(previous), tuple(last), state)
            case _:
                raise SnapshotDamaged("the snapshot has another shape than this version writes")
