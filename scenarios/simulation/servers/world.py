"""The world of simulated clusters: what it simulates is how far every source of inputs has come."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from simserver.inputs import PendingInput

__all__ = ["Counting"]


class Counting:
    """A world whose state is how far each source has come; it notices an input that is missing or comes again."""

    def __init__(self, complain: Callable[[str], None], wanders: Callable[[str, int], str | None]) -> None:
        self._complain: Final = complain
        self._wanders: Final = wanders

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, int]:
        """Nobody has come anywhere."""
        return {}

    def step(self, state: dict[str, int], inputs: Sequence[PendingInput], dt_s: float) -> dict[str, int]:
        """Each input is its source's next one, or its first since it owns the entity again, or something is wrong."""
        if not inputs:
            return state
        state = dict(state)
        for item in inputs:
            floor = int(item.data.split()[-1])
            if item.seq != max(state.get(item.source, 0), floor) + 1:
                self._complain(f"input {item.seq} of {item.source} was applied after {state.get(item.source, 0)}")
            state[item.source] = item.seq
        return state

    def destination(self, state: dict[str, int], here: str, ticks_here: int) -> str | None:
        """Where the dice send it, if anywhere."""
        return self._wanders(here, ticks_here)
