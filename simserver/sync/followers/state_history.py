"""The newest full states of a node, which deltas are made against; bounded by number and bytes."""

from collections.abc import Iterator
from typing import Final

from batonpass.crypto.bounded_tables import FifoTable
from batonpass.simserver.sync.followers.settings import ShowMode, ShowSettings

__all__ = ["StateHistory"]


class StateHistory:
    """By the numbers of their frames. Nothing is kept if the show does not send deltas."""

    def __init__(self, settings: ShowSettings) -> None:
        self._is_kept: Final = settings.mode is ShowMode.DELTA
        self._max_bytes: Final = settings.window_bytes
        self._states: Final[FifoTable[int, bytes]] = FifoTable(settings.max_history_frames, self._gone)
        self._bytes = 0

    def __reversed__(self) -> Iterator[int]:
        return reversed(self._states)

    def get(self, frame: int) -> bytes | None:
        """Return the state of a frame, if it is still kept."""
        return self._states.get(frame)

    def keep(self, frame: int, state: bytes) -> None:
        """Keep a state, and let the oldest go."""
        if not self._is_kept:
            return
        while self._states and self._bytes + len(state) > self._max_bytes:
            oldest = next(iter(self._states))
            self._gone(oldest, self._states.pop(oldest))
        self._bytes += len(state)
        self._states[frame] = state

    def forget(self) -> None:
        """Let all go."""
        self._states.clear()
        self._bytes = 0

    def _gone(self, _frame: int, state: bytes) -> None:
        self._bytes -= len(state)
