"""A poller: has what nobody tells told to telemetry, every few seconds (the contract of `telemetry_poller`).

    ActorSpec("poller", TelemetryPoller, PollerSettings([measure_system, tills]))

Each measurement is a plain function of the system, which calls `system.telemetry.execute`. The first time is at the
start. One that raises is logged and asked no more, as a handler of telemetry that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeAlias, final

from batonpass.actors.base.errors import is_stopping
from batonpass.actors.core.checks import need_seconds
from batonpass.actors.core.process import logger
from batonpass.actors.core.server import Continue, Ok, Server
from batonpass.actors.core.telemetry import SYSTEM_COUNTS

if TYPE_CHECKING:
    from batonpass.actors.core.system import System

__all__ = ["PollerSettings", "TelemetryPoller", "measure_system"]

Measurement: TypeAlias = "Callable[[System], object]"


def measure_system(system: System) -> None:
    """Tell what the system has counted, and how many actors it has (`SYSTEM_COUNTS`)."""
    system.telemetry.execute(SYSTEM_COUNTS, asdict(system.stats), {"node": system.name})


@final
@dataclass(frozen=True, slots=True)
class PollerSettings:
    """What is measured, and every how many seconds. Raises `TypeError`, `ValueError` for what is no time."""

    measurements: Sequence[Callable[[System], object]] = (measure_system,)
    period_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what is no time here, in the face of its author."""
        need_seconds("period_s of a poller", self.period_s, positive=True)


@final
class TelemetryPoller(Server[list[Measurement]]):
    """See the head of the module. The state is what is still measured."""

    def init(self, arg: PollerSettings) -> Ok[list[Measurement]]:
        """Begin at once, when everything that was started with this has been."""
        self.send_interval(arg.period_s)
        return Ok(list(arg.measurements), then=Continue(None))

    def handle_continue(self, value: None, state: list[Measurement]) -> None:
        """The first time."""
        self._measure(state)

    def handle_info(self, message: object, state: list[Measurement]) -> None:
        """A tick."""
        self._measure(state)

    def _measure(self, state: list[Measurement]) -> None:
        for measurement in list(state):
            try:
                measurement(self.system)
            except BaseException as error:
                # A measurement may end the program.
                if is_stopping(error) or isinstance(error, SystemExit):
                    raise
                state.remove(measurement)
                logger.exception("the measurement %r failed and is not asked again", measurement)
