"""The data of frames that have come to an engine: what it is given of them, which state it has, and which it lacks."""

from collections import deque
from typing import Final

from batonpass.simserver.sync.followers.ports import FrameReady

__all__ = ["MAX_READY", "ReceivedData"]

MAX_READY: Final = 2
"""Frames whose data are kept for an engine that is late, of up to 64 MiB each."""


class ReceivedData:
    """Of one engine. Inputs are for the state that they follow alone, so it is known of which frame the engine's is.

    Attributes:
        has: the frame whose state the engine has, whether received, computed or sent; -1 if none.
    """

    def __init__(self) -> None:
        # The newest data that came for frames which are not awaited yet: an engine late for a moment drops none.
        self._ready: Final[deque[FrameReady]] = deque()
        self._newest: FrameReady | None = None
        # The newest full state that the engine has for certain: what it computed from inputs may differ.
        self._certain = -1
        self.has = -1
        self._before = (-1, -1)

    def arrived(self, ready: FrameReady) -> None:
        """Data have come."""
        if not ready.is_inputs and (self._newest is None or ready.frame >= self._newest.frame):
            self._newest = ready

    def keep(self, ready: FrameReady) -> None:
        """Keep data for a frame that is not awaited yet; of more than `MAX_READY` the oldest go."""
        if not self._ready or ready.frame > self._ready[-1].frame:
            self._ready.append(ready)
            if len(self._ready) > MAX_READY:
                self._ready.popleft()

    def frames(self) -> tuple[int, ...]:
        """Return the frames whose data are kept, rising."""
        return tuple(ready.frame for ready in self._ready)

    def take(self, frame: int) -> FrameReady | None:
        """Return the data of a frame that is awaited now, if they are kept, and let those of older ones go."""
        found = None
        while self._ready and self._ready[0].frame <= frame:
            found = self._ready.popleft()
        return found if found is not None and found.frame == frame else None

    def lacked(self) -> FrameReady | None:
        """Return the newest full state, if it has come to this node and the engine has an older one."""
        newest = self._newest
        is_later = newest is not None and newest.frame > self._certain and newest.frame >= self.has
        return newest if is_later else None

    def follows(self, ready: FrameReady) -> bool:
        """Whether the engine has the state after which these data are applied; a full state needs none."""
        return not ready.is_inputs or ready.base_frame == self.has

    def sent(self, frame: int) -> None:
        """The engine has computed and sent the state of a frame, or continues from it."""
        self._certain = self.has = frame

    def received(self, ready: FrameReady) -> None:
        """The engine was given these data."""
        self._before = (self._certain, self.has)
        self.has = ready.frame
        if not ready.is_inputs:
            self._certain = ready.frame

    def refused(self) -> None:
        """The engine cannot read what it was given last."""
        self._certain, self.has = self._before

    def forget_before(self, frame: int) -> None:
        """After a RESET nothing of earlier frames is continued from."""
        if self._newest is not None and self._newest.frame < frame:
            self._newest = None
