"""What the code of a game does within a step, and whether it may: draws, writes, and their call sites in trace mode."""

import os
import sys
from collections.abc import MutableSequence
from types import FrameType
from typing import Any, Final, NamedTuple

from batonpass.simserver.sync.lockstep.generator import Xoshiro128

__all__ = ["MAX_ACTS", "Act", "OutsideOfTick", "StepGuard", "TracedXoshiro128", "call_site"]

# Of one tick. The rest is not needed: the first difference is what is looked for.
MAX_ACTS: Final = 20_000
_ROOM: Final = __name__.rpartition(".")[0]


class OutsideOfTick(RuntimeError):
    """Code of a game did outside of a tick or event what would reach this client only; the sentence names it."""


class Act(NamedTuple):
    """One draw or write of a tick."""

    what: str
    """`draw` or `write`."""
    of: str
    """The draw, as `below(6)`, or the field that is written, as `Ball 3.x`."""
    value: Any
    """What was drawn or written, in canonical form."""
    site: str
    """Where the game's code did it: `file:line function`."""

    @property
    def content(self) -> tuple[str, str, Any]:
        """What has to be equal on all clients; lines of code are not."""
        return self.what, self.of, self.value


class StepGuard:
    """Says whether a step is being taken, and keeps its acts if they are to be kept.

    Args:
        traced: whether acts are kept.
    """

    __slots__ = ("acts", "open", "traced")

    def __init__(self, *, traced: bool) -> None:
        self.traced: Final = traced
        self.open = False
        self.acts: list[Act] = []

    def require_open(self, what: str) -> None:
        """Raise `OutsideOfTick` unless a step is being taken."""
        if not self.open:
            raise OutsideOfTick(f"{what} outside of a tick or event: other clients would not do it; use send_event")

    def did(self, what: str, of: str, value: Any) -> None:
        """Keep an act with the line of the game that is running."""
        if len(self.acts) < MAX_ACTS:
            self.acts.append(Act(what, of, value, call_site()))


class TracedXoshiro128(Xoshiro128):
    """A generator that reports each draw.

    Args:
        state: as of `Xoshiro128`.
        guard: what is told of each draw.
    """

    __slots__ = ("_guard", "_inner")

    def __init__(self, state: tuple[int, ...], guard: StepGuard) -> None:
        super().__init__(state)
        self._guard: Final = guard
        self._inner = False

    def _drawn(self, of: str, draw: Any, *args: Any) -> Any:
        if self._inner:
            return draw(*args)
        self._inner = True
        try:
            value = draw(*args)
        finally:
            self._inner = False
        self._guard.did("draw", of, value)
        return value

    def next(self) -> int:
        """As of `Xoshiro128`."""
        return int(self._drawn("next()", super().next))

    def below(self, n: int) -> int:
        """As of `Xoshiro128`."""
        return int(self._drawn(f"below({n})", super().below, n))

    def between(self, low: int, high: int) -> int:
        """As of `Xoshiro128`."""
        return int(self._drawn(f"between({low}, {high})", super().between, low, high))

    def chance(self, numerator: int, denominator: int) -> bool:
        """As of `Xoshiro128`."""
        return bool(self._drawn(f"chance({numerator}, {denominator})", super().chance, numerator, denominator))

    def uniform(self) -> float:
        """As of `Xoshiro128`."""
        return float(self._drawn("uniform()", super().uniform))

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """As of `Xoshiro128`; what it drew is told by the state that it left."""

        def draw() -> tuple[int, ...]:
            super(TracedXoshiro128, self).shuffle(items)
            return self.state

        self._drawn(f"shuffle({len(items)})", draw)


def call_site() -> str:
    """Return the innermost line that is not this room's own, as `file:line function`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_ROOM + "."):
        frame = frame.f_back
    if frame is None:
        return "?"
    return f"{frame.f_code.co_filename.rpartition(os.sep)[2]}:{frame.f_lineno} {frame.f_code.co_name}"
