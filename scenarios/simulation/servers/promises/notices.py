"""What is watched of notices before leaving: their time is granted, ends earlier for those that finish, and ends."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from batonpass.authority.fence import Fence
from batonpass.authority.wire.transfer import ImminentLoss

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.simserver import SimulationServer

__all__ = ["NoticeWatch"]

_OWNER: Final = "owner"
_WORLD: Final = "world"
_SLACK_NS: Final = 1_000_000
"""Clocks are rounded; no entity is frozen or continues for this long by that."""


@dataclass(slots=True)
class _Given:
    """A notice, as its owner was told of it, and which have not finished yet."""

    fence: Fence
    until_ns: int
    waits_for: set[str]
    is_late: bool = False


class NoticeWatch:
    """Watches one life of one server; looks at every tick."""

    def __init__(self, server: "SimulationServer") -> None:
        self._server: Final = server
        self._given: Final[dict[str, _Given]] = {}
        self.given = 0

    def told(self, message: ImminentLoss) -> None:
        """An owner is told that its entity leaves."""
        until_ns = self._server.clock.monotonic_ns() + message.within_ms * 1_000_000
        self._given[message.entity] = _Given(Fence(message.epoch, message.sub), until_ns, {_OWNER, _WORLD})
        self.given += 1

    def let_go(self, entity: str) -> None:
        """Its owner has finished."""
        self._finished(entity, _OWNER)

    def ready(self, entity: str) -> None:
        """Its world has finished."""
        self._finished(entity, _WORLD)

    def _finished(self, entity: str, who: str) -> None:
        if (given := self._given.get(entity)) is not None:
            given.waits_for.discard(who)

    def look(self) -> str:
        """What is wrong with a notice, in a sentence; empty if nothing is. What is over is forgotten."""
        now_ns, why = self._server.clock.monotonic_ns(), ""
        departures = self._server.node.departures
        for entity, given in list(self._given.items()):
            holding = self._server.holding(entity)
            if holding is None or holding.fence != given.fence or holding.life.quarantine_reason:
                del self._given[entity]
            elif holding.life.frozen:
                del self._given[entity]
                if given.waits_for and now_ns < given.until_ns - _SLACK_NS:
                    text = f"notice: {entity} is frozen {(given.until_ns - now_ns) / 1e6:.0f} ms before its time"
                    why = why or f"{text} is over, and {', '.join(sorted(given.waits_for))} had not finished"
            elif not departures.has_notice(entity):
                # Its target is asked now whether it has a place; or it stays, because that has none.
                del self._given[entity]
            elif now_ns > given.until_ns:
                # Seen twice, because what was held up with a pause is done one after the other.
                why = why or (f"notice: the time of {entity} is over, and it does not leave" if given.is_late else "")
                given.is_late = True
        return why
