"""What the old authority tells its home instance until it has been heard: how hand-overs went, and which it declined.

Nothing waits for it: safety does not need reports, people do. So what cannot be told now is told later, and given up
when that takes too long.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

from actors.clock import Clock
from authority.hops import Trace
from authority.messages import Decline, Report, ReportReply
from simserver.home import Home, HomeRefused, HomeUnreachable

__all__ = ["TRIES", "Reports"]

_log = logging.getLogger("simserver.reports")

TRIES: Final = 30
"""How often each is offered to the home instance, `_AGAIN_S` apart."""
_AGAIN_S: Final = 2.0


class Spawn(Protocol):
    """Runs something beside the rest, if somebody serves at the moment; whether somebody does."""

    def __call__(self, function: Callable[..., Awaitable[None]], *args: Any) -> bool:
        """Begin with `function(*args)`."""


class Reports:
    """The reports and refusals of one server that its home instance has not heard yet, by transfer id."""

    def __init__(self, home: Home, clock: Clock, counts: Counter[str], spawn: Spawn) -> None:
        self._home: Final = home
        self._clock: Final = clock
        self._counts: Final = counts
        self._spawn: Final = spawn
        # At most one of each hand-over that was begun within the minute after which it is given up.
        self.untold: dict[str, Report | Decline] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.untold)

    def tell(self, message: Report | Decline) -> None:
        """Tell home, until it has heard."""
        self.untold[message.transfer_id] = message
        self._spawn(self._tell, message)

    def resume(self) -> None:
        """Whoever told home before is gone: go on with what is left."""
        for message in self.untold.values():
            self._spawn(self._tell, message)

    async def _tell(self, message: Report | Decline) -> None:
        if not await self._told(message):
            self._counts[f"{message.type}_given_up"] += 1
        self.untold.pop(message.transfer_id, None)

    async def _told(self, message: Report | Decline) -> bool:
        """Whether home has heard it, at last."""
        for _ in range(TRIES):
            try:
                answer = await self._home.ask(message, Trace(message.transfer_id), on_path=False)
            except HomeRefused as error:
                self._counts[f"{message.type}_refused"] += 1
                _log.warning("the %s of %s was refused: %s", message.type, message.transfer_id, error)
                return True
            except HomeUnreachable:
                await self._clock.sleep_s(_AGAIN_S)
                continue
            if answer is not None and isinstance(answer.message, ReportReply):
                return True
        return False
