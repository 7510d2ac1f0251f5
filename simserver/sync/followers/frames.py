"""What a frame is for all parts of a show: its head, and its data once they are complete."""

import enum
import struct
from dataclasses import dataclass
from typing import Final

from batonpass.simserver.sync.followers.structs import FrameData, layout_of

__all__ = ["HEAD_BYTES", "CompleteFrame", "FrameHead", "HeadFlag", "PayloadKind", "head_of_untrusted"]


class PayloadKind(enum.IntEnum):
    """What the payload of a frame is."""

    STATE = 0
    DELTA = 1
    INPUTS = 2


class HeadFlag(enum.IntFlag):
    """What else holds for a frame."""

    NO_FLAGS = 0
    RESET = 2
    """No delta and no inputs refer to a frame before this one."""
    STREAMS_CHANGED = 4
    """Nodes look up their streams anew."""
    RESENT = 8
    """Of an earlier epoch, and sent anew under this one: the newest state that the new controller found."""


_FIXED: Final = struct.Struct("<QQQQQIIIB3x16s16s")
_DATA: Final = layout_of(FrameData).size
HEAD_BYTES: Final = _FIXED.size + _DATA


@dataclass(frozen=True, slots=True)
class FrameHead:
    """What the controller signs of a frame.

    Attributes:
        epoch: under which the frame is sent.
        frame: its number.
        previous: the frame of the same show before it; numbers between were passed over.
        base_frame: DELTA: of which the payload is a change; INPUTS: after which they are applied.
        size: of the payload, in bytes.
        piece_bytes: of each piece of the payload but the last one.
        payload_digest: `structs.state_digest` of the payload.
        digest: `structs.state_digest` of the full state, whatever the payload is.
        version: of the payload, as the engine gives it.
    """

    epoch: int
    frame: int
    previous: int
    kind: PayloadKind
    base_frame: int
    size: int
    piece_bytes: int
    digest: bytes
    payload_digest: bytes
    version: int
    data: FrameData
    flags: HeadFlag = HeadFlag.NO_FLAGS

    @property
    def pieces(self) -> int:
        """How many there are: one at least, which may be empty."""
        return max(1, -(-self.size // self.piece_bytes))

    def pack(self) -> bytes:
        """Return the bytes that are signed."""
        return (
            _FIXED.pack(
                self.epoch,
                self.frame,
                self.previous,
                self.base_frame,
                self.size,
                self.piece_bytes,
                self.version,
                self.flags,
                self.kind,
                self.digest,
                self.payload_digest,
            )
            + self.data.pack()
        )


def head_of_untrusted(packed: bytes | memoryview) -> FrameHead | None:
    """Return the head of these bytes; None if they are none."""
    if len(packed) != HEAD_BYTES:
        return None
    epoch, frame, previous, base, size, piece, version, flags, kind, digest, of_payload = _FIXED.unpack_from(packed)
    if kind > PayloadKind.INPUTS or not piece or flags & ~14 or packed[_FIXED.size - 35 : _FIXED.size - 32] != bytes(3):
        return None
    try:
        data = FrameData.unpack(packed[_FIXED.size :])
    except ValueError:
        return None
    return FrameHead(
        epoch, frame, previous, PayloadKind(kind), base, size, piece, digest, of_payload, version, data, HeadFlag(flags)
    )


@dataclass(frozen=True, slots=True)
class CompleteFrame:
    """A frame whose payload is complete, with the signature of its head.

    Attributes:
        payload: as it was sent.
        state: the full state; None if the payload are inputs.
    """

    head: FrameHead
    signature: bytes
    payload: bytes
    state: bytes | None
