"""The frames that have begun and that an engine has not awaited yet, and which of them it is given."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from batonpass.simserver.sync.followers.ports import FrameBegins
from batonpass.simserver.sync.followers.structs import FrameDataFlag

__all__ = ["MAX_BEGUN", "BegunFrames"]

MAX_BEGUN: Final = 64
"""About a second; of more the oldest are dropped."""


class BegunFrames:
    """In the order of their numbers, within a bound. If a RESET is dropped, the next frame is one.

    Args:
        dropped: is told the number of each frame that the engine is not given.
    """

    def __init__(self, dropped: Callable[[int], None]) -> None:
        self._dropped: Final = dropped
        self._frames: Final[deque[FrameBegins]] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def controls(self) -> bool:
        """Whether this node is the controller for the newest of them."""
        return bool(self._frames) and self._frames[-1].is_controller

    def add(self, begins: FrameBegins) -> bool:
        """Add a frame that has begun. Return False if its number does not rise."""
        if self._frames and begins.frame <= self._frames[-1].frame:
            return False
        self._frames.append(begins)
        if len(self._frames) > MAX_BEGUN:
            self._drop_oldest()
        return True

    def pass_over(self, frame: int) -> None:
        """Drop what began up to this frame, without its data; the newest one stays, and with it a RESET."""
        while len(self._frames) > 1 and self._frames[0].frame <= frame:
            self._drop_oldest()

    def take(self, ready: Sequence[int]) -> FrameBegins:
        """Return the frame that the engine is given; there must be one.

        At a follower it is the first one of those that have their data, `ready`, or else the next one, whose data come
        first. Data may take longer than a frame: an engine that always waited for those of the newest would show few. A
        controller waits for nothing, and is given the newest.
        """
        newest = self._frames[-1]
        first = next((frame for frame in ready if frame >= self._frames[0].frame), 0)
        wanted = newest.frame if newest.is_controller else min(newest.frame, first)
        while self._frames[0].frame < wanted:
            self._drop_oldest()
        return self._frames.popleft()

    def _drop_oldest(self) -> None:
        gone, following = self._frames.popleft(), self._frames[0]
        flags = following.data.flags | (gone.data.flags & FrameDataFlag.RESET)
        self._frames[0] = replace(following, data=replace(following.data, flags=flags))
        self._dropped(gone.frame)
