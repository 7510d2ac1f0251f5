"""What the clients of `baton run lockstep` compute: a tally for each client, and drifters that live off the generator.

A step is cheap, since one process computes it for all clients. A difference in a single event or draw shows in the
state for ever.
"""

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from batonpass.simserver.sync.lockstep.driver import SimDriver, SimEvent
from batonpass.simserver.sync.lockstep.entity import SimEntity

__all__ = ["TALLIED", "Drifter", "Tally", "TallyGame", "WatchedGame"]

TALLIED: Final = "tallied"
"""The type of all events that clients post."""

DRIFTERS: Final = 4
_WORD: Final = 0xFFFFFFFF


class Tally(SimEntity):
    """What a client has posted so far."""

    owner: str
    is_here: bool = True
    events: int = 0
    digest: int = 0


class Drifter(SimEntity):
    """Goes a step in a direction that is drawn."""

    x: int = 0
    y: int = 0

    def sim_tick(self) -> None:
        """One drifter moves in each tick."""
        if self.sim.tick % DRIFTERS == self.id % DRIFTERS:
            draw = self.sim.get_random().below(9)
            self.x += draw % 3 - 1
            self.y += draw // 3 - 1


class TallyGame(SimDriver):
    """Tallies and drifters."""

    kinds = (Tally, Drifter)

    def on_reset(self, seed: str) -> None:
        """Begin with the drifters."""
        for _ in range(DRIFTERS):
            self.spawn(Drifter)

    def on_connect(self, public_id: str) -> None:
        """A client that comes has a tally; one that comes again has its old one."""
        tally = self._tally(public_id)
        if tally is None:
            self.spawn(Tally, owner=public_id)
        else:
            tally.is_here = True

    def on_disconnect(self, public_id: str) -> None:
        """A client that goes leaves its tally."""
        tally = self._tally(public_id)
        if tally is not None:
            tally.is_here = False

    def on_client_event(self, type: str, origin: str, body: str) -> None:
        """Count it, and mix its body and a draw into the digest, so that order matters."""
        tally = self._tally(origin)
        if tally is not None and type == TALLIED:
            tally.events += 1
            tally.digest = (tally.digest * 31 + crc32(body.encode()) + self.get_random().next()) & _WORD

    def _tally(self, public_id: str) -> Tally | None:
        return next((tally for tally in self.entities(Tally) if tally.owner == public_id), None)


class WatchedGame(TallyGame):
    """The game of one client, which keeps what every tick was made of and became, for the judge."""

    def __init__(self) -> None:
        super().__init__(kept_ticks=1)
        self.hashes: Final[dict[int, str]] = {}
        """Of the state after each tick that was computed here."""
        self.events: Final[list[SimEvent]] = []
        """All that were applied here, in order."""
        self.restored: Final[list[tuple[int, int]]] = []
        """From which tick to which one it went by a snapshot."""

    def step(self, events: Iterable[SimEvent]) -> str:
        """As `SimDriver.step`."""
        happened = tuple(events)
        state_hash = super().step(happened)
        self.hashes[self.tick] = state_hash
        self.events.extend(happened)
        return state_hash

    def restore(self, snapshot: bytes) -> None:
        """As `SimDriver.restore`."""
        before = self.tick
        super().restore(snapshot)
        self.restored.append((before, self.tick))
