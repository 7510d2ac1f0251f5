"""A recording that is played: forwards at any pace, and to any tick, by snapshots that are kept on the way."""

from typing import Final

from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.sync.lockstep.driver import SimDriver
from batonpass.simserver.sync.lockstep.recording import StreamRecording

__all__ = ["Replay", "ReplayDiffers"]

KEPT_SNAPSHOTS: Final = 256


class ReplayDiffers(RuntimeError):
    """The game computes another state than the one that was recorded: its code is another, or not deterministic."""


class Replay:
    """Plays a recording with a driver.

    Args:
        driver: the game; nothing else may step it.
        recording: what is played.
        snapshot_every: ticks between kept snapshots. Seeking computes at most this many ticks, but for the first time.

    Raises:
        ValueError: `snapshot_every` is below 1.
    """

    def __init__(self, driver: SimDriver, recording: StreamRecording, *, snapshot_every: int = 500) -> None:
        if snapshot_every < 1:
            raise ValueError(f"snapshot_every is {snapshot_every}: snapshots are 1 tick apart or more")
        self.driver: Final = driver
        self._recording: Final = recording
        self._events: Final = recording.by_tick()
        self._every: Final = snapshot_every
        self._snapshots: Final[LruTable[int, bytes]] = LruTable(KEPT_SNAPSHOTS)
        driver.start_over()

    @property
    def ticks(self) -> int:
        """How many there are."""
        return self._recording.ticks

    def step(self) -> str:
        """Compute the next tick and return its hash.

        Raises:
            EOFError: there is none.
            ReplayDiffers: the recording has another hash for this tick.
        """
        if self.driver.tick >= self.ticks:
            raise EOFError(f"the recording ends at tick {self.ticks}")
        hashed = self.driver.step(self._events.get(self.driver.tick + 1, ()))
        tick = self.driver.tick
        if self._recording.hashes.get(tick, hashed) != hashed:
            raise ReplayDiffers(
                f"tick {tick}: the state's hash is {hashed}, recorded was {self._recording.hashes[tick]}"
            )
        if tick % self._every == 0:
            self._snapshots[tick] = self.driver.snapshot()
        return hashed

    def seek(self, tick: int) -> None:
        """Go to a tick, backwards or forwards.

        Raises:
            ValueError: the recording does not have it.
            ReplayDiffers: as of `step`.
        """
        if not 0 <= tick <= self.ticks:
            raise ValueError(f"the recording has ticks 0 to {self.ticks}, not {tick}")
        nearest = max((kept for kept in self._snapshots if kept <= tick), default=0)
        if not nearest <= self.driver.tick <= tick:
            if nearest:
                self.driver.restore(self._snapshots[nearest])
            else:
                self.driver.start_over()
        while self.driver.tick < tick:
            self.step()
