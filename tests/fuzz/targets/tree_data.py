"""Plain data of the tree as the bytes that a fuzzer makes and changes."""

from collections.abc import Callable
from typing import Any

from batonpass.tree.data.data import decode_untrusted
from batonpass.tree.data.errors import BadData
from tests.fuzz.plain import from_cbor, to_cbor


def plain_data(data: bytes) -> Any:
    """The data that these bytes are the CBOR of. Raises `NotPlain`, which no target is blamed for."""
    try:
        return decode_untrusted(data)
    except BadData:
        return from_cbor(b"")  # raises NotPlain


def cbor_seeds(*values: Any) -> Callable[[], list[bytes]]:
    """These values as CBOR, as a target takes its seeds."""
    return lambda: [to_cbor(value) for value in values]
