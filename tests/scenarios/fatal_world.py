"""Balls of which one input ends the process, as a fault in a physics engine or the out-of-memory killer would."""

import os
import signal
from collections.abc import Sequence
from typing import Any, Final

from batonpass.simserver.world.demo_balls import Balls
from batonpass.simserver.world.pending_input import PendingInput

DEADLY: Final = b"\xff" * 12


class FatalBalls(Balls):
    """As `Balls`, but for `DEADLY`."""

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        """One tick, if it lives to see its end."""
        if any(item.data == DEADLY for item in inputs):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(state, inputs, dt_s)


class Panic(BaseException):
    """As pyo3's `PanicException`, which is raised where code in Rust panics."""


class PanickingBalls(Balls):
    """As `FatalBalls`, but what is raised for `DEADLY` is no `Exception`."""

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        """One tick, unless it panics."""
        if any(item.data == DEADLY for item in inputs):
            raise Panic("unwrapped nothing")
        return super().step(state, inputs, dt_s)
