"""The frame that an engine awaited last: what has been done of it, and as the loop `frames` yields it."""

from dataclasses import dataclass
from typing import NamedTuple

from batonpass.simserver.sync.followers.ports import FrameBegins, FrameReady
from batonpass.simserver.sync.followers.structs import FrameData

__all__ = ["AwaitedFrame", "ShowFrame"]


@dataclass(slots=True)
class AwaitedFrame:
    """What has been done of the frame that the engine awaited last."""

    begins: FrameBegins
    handles: frozenset[int]
    timeout_ms: int
    exchanged: bool = False
    reported: bool = False
    may_render: bool = False
    inputs: bool = False
    closed: bool = False
    ready: FrameReady | None = None

    @property
    def frame(self) -> int:
        """Its number."""
        return self.begins.frame


class ShowFrame(NamedTuple):
    """A frame of `EngineNode.frames`.

    Attributes:
        is_controller: this engine computes the state of the frame and sends it.
        received: the state to apply first: of the frame, or at a controller the one to continue from; None if none.
        inputs: what was received are inputs: the engine computes the state, and reports its hash.
    """

    data: FrameData
    is_controller: bool
    received: bytes | None
    inputs: bool = False
