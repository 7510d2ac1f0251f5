"""Proofs by a shared secret: that a server belongs to an instance, and that a directory answer comes from one.

Both sides write what is proved as the same bytes (JSON with sorted keys), so the proofs stand in one place for both.
"""

import hmac
import json
from typing import Any

from batonpass.crypto import mac

__all__ = [
    "CLOCK",
    "DIRECTORY",
    "federation_clock_purpose",
    "federation_purpose",
    "is_proof",
    "registration_proof",
    "rows_proof",
]

DIRECTORY = "directory"
"""The purpose of proofs of directory rows for the servers of an instance, made with its join token."""


CLOCK = "clock"
"""The purpose of proofs of what time it is, made with the join token of an instance."""


def federation_purpose(instance: str) -> str:
    """The purpose of proofs of directory rows that `instance` answers to others, made with the federation secret."""
    return f"federation:{instance}"


def federation_clock_purpose(instance: str) -> str:
    """The purpose of proofs of what time it is in `instance`, for others, made with the federation secret."""
    return f"{CLOCK}:{instance}"


def registration_proof(join_token: bytes, name: str, fields: dict[str, Any]) -> str:
    """The proof with which a server registers: over its name and everything that it registers."""
    return mac.tag(join_token, "register", name.encode(), _canonical(fields))


def rows_proof(secret: bytes, purpose: str, nonce: str, rows: Any) -> str:
    """The proof that the server that answers with these directory rows knows the secret; `nonce` makes it fresh."""
    return mac.tag(secret, purpose, nonce.encode(), _canonical(rows))


def is_proof(given: object, expected: str) -> bool:
    """Whether `given`, from a peer, is the expected proof; takes the same time however much of it is right."""
    return isinstance(given, str) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _canonical(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
