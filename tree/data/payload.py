"""Payloads: what a node may hold. Nothing, data, or the name of a procedure that the program declares.

Payloads are kept as bytes: data as its canonical CBOR, a stored procedure as a CBOR tag around its name. Plain data has
no tags, so the first byte tells which it is, and no data can look like a procedure.
"""

from dataclasses import dataclass
from typing import Any, Final

import cbor2

from batonpass.tree.data.data import decode_untrusted, encode
from batonpass.tree.data.errors import BadData

__all__ = [
    "MAX_PAYLOAD_DEPTH",
    "MAX_PROCEDURE_NAME_CHARACTERS",
    "NO_PAYLOAD",
    "NoPayload",
    "StoredProcedure",
    "check_payload_untrusted",
    "encode_payload",
    "has_data",
    "procedure_name",
]

MAX_PROCEDURE_NAME_CHARACTERS: Final = 255
# A tag of two bytes from the range that is free for all (RFC 8949, section 9.2).
_TAG: Final = 0xB701
_MARK: Final = b"\xd9"
# Lower than what commands and answers may have, so that whatever is held can be told of and compared.
MAX_PAYLOAD_DEPTH: Final = 32
_PREFIX: Final = _MARK + _TAG.to_bytes(2, "big")


@dataclass(frozen=True)
class StoredProcedure:
    """A payload that names a procedure; the code itself is declared by the program and never travels."""

    name: str

    def __post_init__(self) -> None:
        name: object = self.name  # from the network it can be anything
        if not isinstance(name, str) or not 0 < len(name) <= MAX_PROCEDURE_NAME_CHARACTERS:
            raise BadData(f"the name of a procedure is text of 1 to {MAX_PROCEDURE_NAME_CHARACTERS} characters")


class NoPayload:
    """The absence of a payload, where one could be given; `NO_PAYLOAD` is the only one."""

    def __repr__(self) -> str:
        return "NO_PAYLOAD"


NO_PAYLOAD: Final = NoPayload()


def encode_payload(payload: Any) -> bytes | None:
    """The bytes of plain data, a `StoredProcedure`, or `NO_PAYLOAD` (None); raises `BadData` for anything else."""
    if type(payload) is StoredProcedure:
        return _PREFIX + encode(payload.name)
    return None if payload is NO_PAYLOAD else encode(payload, max_depth=MAX_PAYLOAD_DEPTH)


def has_data(encoded: bytes | None) -> bool:
    """Whether these bytes of a payload (None: there is none) are data."""
    return encoded is not None and not encoded.startswith(_MARK)


def procedure_name(encoded: bytes | None) -> str | None:
    """The name in a stored procedure's bytes; None for data and for no payload."""
    if encoded is None or not encoded.startswith(_MARK):
        return None
    name: str = cbor2.loads(encoded[len(_PREFIX) :])
    return name


def check_payload_untrusted(encoded: bytes) -> None:
    """Raises `BadData` unless these are bytes that `encode_payload` could have made, up to the order of maps."""
    if encoded.startswith(_PREFIX):
        StoredProcedure(decode_untrusted(encoded[len(_PREFIX) :]))
    else:
        decode_untrusted(encoded)
