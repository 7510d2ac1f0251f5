"""When a frame of a show is due, exactly, at any rational rate; and the times that an engine is told of a frame.

Times are integers of nanoseconds or come from one division of integers. After hours at 60000/1001 frames a second the
number of a frame and its tracked time are as exact as at the start. The rules of local time and of the delta are those
of RenderStream's Unreal plug-in (`SyncFrameData.cpp`).
"""

from dataclasses import dataclass
from typing import Final, Self

from batonpass.simserver.sync.followers.structs import FrameData, FrameDataFlag

__all__ = ["FrameClock", "FrameDeltas", "FrameRate"]

NS_IN_S: Final = 1_000_000_000
U32_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class FrameRate:
    """Frames a second, as a fraction: 60000/1001 for what television calls 59.94.

    Raises ValueError if a part is not between 1 and 2^32 - 1.
    """

    numerator: int
    denominator: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.numerator <= U32_MAX and 0 < self.denominator <= U32_MAX):
            raise ValueError(f"frame rate {self.numerator}/{self.denominator}: both parts must be from 1 to {U32_MAX}")

    def seconds(self, frames: int) -> float:
        """Return how long `frames` take; correctly rounded."""
        return frames * self.denominator / self.numerator

    def data_of(
        self, frame: int, *, since: int = 0, flags: FrameDataFlag = FrameDataFlag.NO_FLAGS, scene: int = 0
    ) -> FrameData:
        """Return what an engine is told of a frame; local time begins at the frame `since`, that of the last RESET."""
        return FrameData(
            t_tracked=self.seconds(frame),
            local_time=self.seconds(frame - since),
            local_time_delta=self.seconds(1),
            frame_rate_numerator=self.numerator,
            frame_rate_denominator=self.denominator,
            flags=flags,
            scene=scene,
        )

    def since_of(self, frame: int, data: FrameData) -> int:
        """Return the frame at which the local time of `data` began; 0 if there can be none, as others may say it."""
        frames = data.local_time * self.numerator / self.denominator
        return frame - round(frames) if 0 <= frames <= frame else 0


@dataclass(frozen=True, slots=True)
class FrameClock:
    """Which frame is due, by monotonic time in nanoseconds; `origin_ns` is when frame 0 is due."""

    rate: FrameRate
    origin_ns: int

    @classmethod
    def with_frame_at(cls, rate: FrameRate, frame: int, now_ns: int) -> Self:
        """Return the clock by which `frame` is due exactly at `now_ns`."""
        return cls(rate, now_ns - cls(rate, 0).due_ns(frame))

    def due_ns(self, frame: int) -> int:
        """Return the first nanosecond at which `frame` is due."""
        return self.origin_ns - (-frame * self.rate.denominator * NS_IN_S // self.rate.numerator)

    def frame_at(self, now_ns: int) -> int:
        """Return the newest frame that is due; negative before frame 0 is."""
        return (now_ns - self.origin_ns) * self.rate.numerator // (self.rate.denominator * NS_IN_S)


class FrameDeltas:
    """The `local_time_delta` of an engine: the time since the frame that this engine had before.

    The first frame, the first after a RESET and one that is not after the last have the length of one frame.

    Attributes:
        corrected: how many frames were not after the last one.
    """

    def __init__(self) -> None:
        self.corrected = 0
        self._last: int | None = None

    def step(self, frame: int, rate: FrameRate, *, reset: bool = False) -> float:
        """Return the delta of the frame that the engine has now, in seconds."""
        frames = 1 if self._last is None or reset else frame - self._last
        self._last = frame
        if frames <= 0:
            self.corrected += 1
            frames = 1
        return rate.seconds(frames)
