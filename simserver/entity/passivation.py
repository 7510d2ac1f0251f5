"""Passivation: the memory of those that have slept for long enough is given back, and their actors end.

They keep sleeping as if nothing had happened; whatever they are needed for brings them back in the same step (see
`simserver.entity.state`). To encode and compress one takes from tens of microseconds to milliseconds. So it is done in
short turns, and all other tasks have theirs in between. Pekko calls this passivation, Orleans deactivation.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.actors.core.ref import Ref
from batonpass.actors.core.system_messages import ControlledProcess
from batonpass.simserver.entity.sleep import Rounds, Sleep
from batonpass.simserver.entity.table import Holding, Holdings

__all__ = ["Passivation"]

_log = logging.getLogger("batonpass.simserver.entity.passivation")

SWEEP_S: Final = 1.0
# A turn is over after `_TURN_NS`, and the others have theirs for `_REST` times as long as it took.
_TURN_NS: Final = 1_000_000
_REST: Final = 4


def _is_idle(actor: Ref) -> bool:
    """Whether nothing waits for the actor: what did would be lost. Nor is one ended that is held still to be seen."""
    process = actor.process
    is_held = isinstance(process, ControlledProcess) and process.suspended
    return not (process.scheduled or is_held)


class Passivation:
    """Passivates the entities that have slept for `after_s`, while it is served; none if that is 0.

    Args:
        passivated: is told of each, so that others let go of what they keep of its state.
    """

    def __init__(
        self,
        holdings: Holdings,
        rounds: Rounds,
        clock: Clock,
        counts: Counter[str],
        *,
        after_s: float,
        period_s: float,
        passivated: Callable[[str], None],
    ) -> None:
        self._holdings: Final = holdings
        self._rounds: Final = rounds
        self._clock: Final = clock
        self._counts: Final = counts
        # Sleep is counted in rounds of the server.
        self._after_rounds: Final = math.ceil(after_s / period_s)
        self._sweep_s: Final = min(SWEEP_S, after_s / 2)
        self._passivated: Final = passivated
        # The sleep of each that could not be passivated: it would fail again until that is over.
        self._failed: dict[str, Sleep] = {}

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Passivate them, until cancelled."""
        task_status.started()
        if not self._after_rounds:
            await self._clock.sleep_forever()
        while True:
            await self._clock.sleep_s(self._sweep_s)
            began_ns = self._clock.monotonic_ns()
            for holding in self.due():
                self.passivate(holding)
                took_ns = self._clock.monotonic_ns() - began_ns
                if took_ns >= _TURN_NS:
                    await self._clock.sleep_s(_REST * took_ns / 1e9)
                    began_ns = self._clock.monotonic_ns()

    def due(self) -> list[Holding]:
        """The entities that have slept for long enough, and did not fail to be passivated since they fell asleep."""
        slept_since = self._rounds.count - self._after_rounds
        failed: dict[str, Sleep] = {}
        due: list[Holding] = []
        for holding in self._holdings:
            sleep = holding.life.sleep
            if sleep is None or sleep.since > slept_since or holding.life.passive is not None:
                continue
            if self._failed.get(holding.id) is sleep:
                failed[holding.id] = sleep
            else:
                due.append(holding)
        self._failed = failed
        return due

    def passivate(self, holding: Holding) -> bool:
        """Passivate it, unless it has left or woken since, or something waits for its actor; whether it was."""
        life = holding.life
        if not life.is_batched and (life.ref is None or not _is_idle(life.ref)):
            return False
        try:
            if not life.passivate():
                return False
        except Exception:
            # Its state cannot be encoded, or not be read again: so no server can resume from a copy of it either.
            self._counts["passivation_failed"] += 1
            if life.sleep is not None:
                self._failed[holding.id] = life.sleep
            _log.exception("%s cannot be passivated", holding.id)
            return False
        self._counts["passivated"] += 1
        self._passivated(holding.id)
        return True
