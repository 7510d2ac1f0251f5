"""This end of one WebSocket (RFC 6455): bytes in, whole messages out, all of it within bounds. No I/O.

wsproto reads and writes the frames. It hands out a message in pieces as they come, so that a frame which announces
gigabytes costs nothing. This class puts the pieces together and counts them. No extension is ever agreed on. So a
compressed frame, which could be a thousand times as long as it looks, is an error of its sender.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError

__all__ = ["Came", "CloseReason", "LastFrame", "WebSocketEnd", "frame_of"]

_REASON_CHARS: Final = 120
# In place of what Python says of bytes that it cannot decode.
_IN_WORDS: Final[dict[int, str]] = {int(CloseReason.INVALID_FRAME_PAYLOAD_DATA): "a text is not UTF-8"}
# The first byte of a frame that is a whole message, and the longest payloads for each number of bytes of a length.
_TEXT, _BINARY = 0x81, 0x82
_ONE_BYTE, _TWO_BYTES = 125, 0xFFFF


@dataclass(slots=True)
class Came:
    """What some bytes of the peer amount to.

    `answer` is to be sent before anything else: a pong, or the last frame of this end. With `close`, a code and a
    reason, the WebSocket is over; `is_fault` says that the peer broke the protocol or a bound.
    """

    messages: list[str | bytes] = field(default_factory=list)
    answer: bytes = b""
    close: tuple[int, str] | None = None
    is_fault: bool = False


def frame_of(data: str | bytes) -> bytes:
    """A message of a server as one frame.

    It is not masked, and wsproto keeps nothing of a message that is whole. The header is written here (RFC 6455,
    section 5.2), at a tenth of the time.
    """
    first, payload = (_TEXT, data.encode()) if isinstance(data, str) else (_BINARY, bytes(data))
    size = len(payload)
    if size <= _ONE_BYTE:
        return bytes((first, size)) + payload
    if size <= _TWO_BYTES:
        return struct.pack("!BBH", first, 126, size) + payload
    return struct.pack("!BBQ", first, 127, size) + payload


class LastFrame:
    """The frame of the last message: one that many peers are sent at one time is made once."""

    def __init__(self) -> None:
        self._data: str | bytes | None = None
        self._frame = b""

    def of(self, data: str | bytes) -> bytes:
        """As `frame_of`."""
        if data is not self._data:
            self._data, self._frame = data, frame_of(data)
        return self._frame


class WebSocketEnd:
    """The server's end; `message_bytes` and `message_frames` bound one message of the peer."""

    def __init__(self, message_bytes: int, message_frames: int) -> None:
        self._wire: Final = Connection(ConnectionType.SERVER)
        self._message_bytes = message_bytes
        self._message_frames: Final = message_frames
        self._bytes, self._frames = 0, 0
        self._text, self._binary = StringIO(), bytearray()
        self.is_open = True
        """Neither end has begun to close."""

    def bound(self, message_bytes: int) -> None:
        """Take no message of the peer with more than `message_bytes` from now on."""
        self._message_bytes = message_bytes

    def message(self, data: str | bytes) -> bytes:
        """The bytes that send this message as one frame, while this end is open."""
        if not self.is_open:
            raise LocalProtocolError("the WebSocket is closed: nothing can be sent any more")
        return frame_of(data)

    def ping(self) -> bytes:
        """The bytes that ask the peer for a sign of life."""
        return bytes(self._wire.send(Ping()))

    def close(self, code: int, reason: str = "") -> bytes:
        """The bytes that begin to close, or answer the peer's close; nothing if this end has closed already."""
        if self._wire.state not in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            return b""
        self.is_open = False
        return bytes(self._wire.send(CloseConnection(code=code, reason=reason[:_REASON_CHARS])))

    def take_untrusted(self, data: bytes) -> Came:
        """Take bytes of the peer; whatever they are, the outcome says what follows.

        Of many pings only the last is answered (section 5.5.3), and after a close nothing is read any more. While this
        end waits for the answer to its own close, messages are thrown away.
        """
        came = Came()
        if self._wire.state not in (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING):
            return came
        ping: Ping | None = None
        self._wire.receive_data(data)
        for event in self._wire.events():
            match event:
                case TextMessage() | BytesMessage():
                    if not self._is_within_bounds(event):
                        return self._fail(came, CloseReason.MESSAGE_TOO_BIG, self._bound_in_words())
                    came.messages.extend(self._finished(event))
                case Ping():
                    ping = event
                case CloseConnection():
                    self.is_open = False
                    return self._end(came, event)
                case _:
                    pass  # a pong: it has come, which is all there is to it
        if self._announced_bytes() > self._message_bytes:
            # It is not waited for: what would come next is of no use.
            return self._fail(came, CloseReason.MESSAGE_TOO_BIG, self._bound_in_words())
        if ping is not None and self.is_open:
            came.answer = bytes(self._wire.send(Pong(payload=bytes(ping.payload))))
        return came

    def _announced_bytes(self) -> int:
        """How long the message under way is at least, by the header of its last frame."""
        # wsproto says nothing of a frame before its first byte has come; a test holds that it can be asked so.
        frames = self._wire._proto._frame_decoder
        header = frames.header
        if header is None or header.opcode.iscontrol():
            return 0
        return int(self._bytes + header.payload_len - frames.payload_consumed)

    def _is_within_bounds(self, event: TextMessage | BytesMessage) -> bool:
        data = event.data
        if isinstance(data, str):
            self._bytes += len(data) if data.isascii() else len(data.encode())
        else:
            self._bytes += len(data)
        self._frames += event.frame_finished
        return self._bytes <= self._message_bytes and self._frames <= self._message_frames

    def _finished(self, event: TextMessage | BytesMessage) -> Iterator[str | bytes]:
        """The message whose last piece this is, unless it is over already for this end."""
        whole: str | bytes
        if isinstance(event, TextMessage):
            self._text.write(event.data)
        else:
            self._binary += event.data
        if not event.message_finished:
            return
        whole = self._text.getvalue() if isinstance(event, TextMessage) else bytes(self._binary)
        self._bytes, self._frames, self._text, self._binary = 0, 0, StringIO(), bytearray()
        if self.is_open:
            yield whole

    def _bound_in_words(self) -> str:
        return f"a message has at most {self._message_bytes} bytes in {self._message_frames} frames"

    def _end(self, came: Came, event: CloseConnection) -> Came:
        """The peer's close: the answer to ours, the first, or wsproto's word for bytes that are no WebSocket."""
        code, reason = int(event.code), event.reason or ""
        if self._wire.state is ConnectionState.REMOTE_CLOSING:
            came.answer = bytes(self._wire.send(event.response()))
        elif self._wire.state is not ConnectionState.CLOSED:
            return self._fail(came, code, _IN_WORDS.get(code, reason))
        came.close = code, reason
        return came

    def _fail(self, came: Came, code: int, reason: str) -> Came:
        came.answer = self.close(code, reason)
        came.close = int(code), reason
        came.is_fault = True
        return came
