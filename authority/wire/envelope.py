"""The parcel that sealed messages travel in: a hop trace in the open, the sealed body, and a stream beside it."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from batonpass.authority.errors import MessageError
from batonpass.authority.limits import INLINE_STATE_BYTES, MAX_BODY_BYTES, MAX_STATE_BYTES
from batonpass.authority.trust.certificates import Hash
from batonpass.authority.wire.base import MessageModel
from batonpass.authority.wire.hops import BadTrace, Trace

__all__ = ["WAIT_HEADER", "KeyAhead", "Manifest", "Parcel"]

WAIT_HEADER: Final = "batonpass-wait-ms"
"""The header of HTTP requests with a parcel that says for how long the sender waits for the answer."""
MAX_KEY_HEADER_BYTES: Final = 1024


class Manifest(MessageModel):
    """Instead of what is large: what is signed and sealed of it, while its bytes travel on the link in the same parcel.

    `hash` is the hex SHA-256 of the bytes, `length` their number, `stream` which of the parcel's streams it is.
    """

    hash: Hash
    length: Annotated[int, Field(gt=INLINE_STATE_BYTES, le=MAX_STATE_BYTES)]
    stream: Literal[0] = 0


class KeyAhead(MessageModel):
    """What is sealed in the sender's next parcel begins with this header: its key can be agreed on until it comes.

    Bare, over the link: nothing is believed because of it.
    """

    type: Literal["key_ahead"] = "key_ahead"
    header: Annotated[bytes, Field(min_length=1, max_length=MAX_KEY_HEADER_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A sealed message and the trace it travels with.

    `on_path` says that the last hop of the trace is this message; otherwise the trace only names the transfer. `body`
    is the stream of which the sealed message has the manifest; only the link carries parcels with one.
    """

    trace: Trace
    on_path: bool
    kind: str
    sealed: str
    body: bytes = b""

    @property
    def size_bytes(self) -> int:
        """What it counts for in a hop: the sealed message and the body."""
        return len(self.sealed) + len(self.body)

    def to_data(self) -> dict[str, Any]:
        """As plain data for CBOR, and without a body for JSON too."""
        data = {
            "trace": self.trace.to_data(),
            "on_path": self.on_path,
            "kind": self.kind,
            "sealed": self.sealed,
        }
        return data | {"body": self.body} if self.body else data

    @classmethod
    def from_data_untrusted(cls, data: object) -> "Parcel":
        """Read what `to_data` wrote, from a peer.

        Raises:
            MessageError: anything else.
        """
        if not isinstance(data, dict) or set(data) - {"body"} != {"trace", "on_path", "kind", "sealed"}:
            raise MessageError("a parcel has exactly trace, on_path, kind and sealed, and perhaps a body")
        on_path, kind, sealed = data["on_path"], data["kind"], data["sealed"]
        if not isinstance(on_path, bool) or not isinstance(kind, str) or not isinstance(sealed, str):
            raise MessageError("a parcel's on_path is a boolean, kind and sealed are texts")
        if not 1 <= len(kind) <= 32 or len(sealed) > 2 * MAX_BODY_BYTES:
            raise MessageError("a parcel's kind or sealed message is too long")
        body = data.get("body", b"")
        if not isinstance(body, bytes) or len(body) > MAX_STATE_BYTES:
            raise MessageError(f"a parcel's body is at most {MAX_STATE_BYTES} bytes")
        try:
            trace = Trace.from_data_untrusted(data["trace"])
            return cls(trace=trace, on_path=on_path, kind=kind, sealed=sealed, body=body)
        except BadTrace as error:
            raise MessageError(str(error)) from error
