"""Whether what a world names is a simulation server at all: home is asked, before the target is.

A name that a world has made up has no address, or that of a homeserver or a player, which would never answer.
"""

import logging
from collections.abc import Callable
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason
from batonpass.authority.machines.capacity import REFUSED_TTL_NS
from batonpass.authority.model.records import Role
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.home_client import HomeClient
from batonpass.simserver.net.timer import SpawnTask
from batonpass.simserver.transfer.source.admission import Decided

__all__ = ["MAX_UNKNOWN", "Targets"]

_log = logging.getLogger("batonpass.simserver.transfer.source.departures")

MAX_UNKNOWN: Final = 4096
"""Names of which it is remembered for a moment that they are no simulation server's."""


class Targets:
    """One server's part.

    Args:
        spawn: runs what waits beside everything else; false if it is not served.
        went_wrong: is told of an error of ours, while that is handled.
    """

    def __init__(self, home: HomeClient, clock: Clock, spawn: SpawnTask, went_wrong: Callable[[], None]) -> None:
        self._home: Final = home
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._went_wrong: Final = went_wrong
        # Bounded by the entities that want to go.
        self._waiting: dict[str, list[Decided]] = {}
        self._unknown_until_ns: LruTable[str, int] = LruTable(MAX_UNKNOWN)

    def go_on(self) -> None:
        """It is served again: what was being looked up is not any more."""
        for target in list(self._waiting):
            self._spawn(self._look_up, target)

    def ask(self, target: str, decided: Decided) -> None:
        """Find out whether this is a simulation server; `decided` hears it once, perhaps before this returns."""
        role = self._home.role_at_hand(target)
        if role is not None:
            decided(_why_not(role))
        elif self._clock.monotonic_ns() < self._unknown_until_ns.get(target, 0):
            decided(Reason.UNKNOWN_TARGET.value)
        elif target in self._waiting:
            self._waiting[target].append(decided)
        else:
            self._waiting[target] = [decided]
            self._spawn(self._look_up, target)

    async def _look_up(self, target: str) -> None:
        reason = Reason.HOME_UNREACHABLE.value
        try:
            reason = _why_not(await self._home.role_of(target))
        except (HomeUnreachable, HomeRefused) as error:
            _log.info("it is not known whether %s is a simulation server: %s", target, error)
        except Exception:
            self._went_wrong()
        if reason == Reason.UNKNOWN_TARGET:
            self._unknown_until_ns[target] = self._clock.monotonic_ns() + REFUSED_TTL_NS
        for decided in self._waiting.pop(target, ()):
            decided(reason)


def _why_not(role: Role | None) -> str:
    return "" if role is Role.SIMSERVER else Reason.UNKNOWN_TARGET.value
