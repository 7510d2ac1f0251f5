"""Fireflies: two boats on a pond at night catch fireflies; ten points win a round. The twin of `fireflies.js`.

Whole numbers only. Positions and speeds count 256ths of a unit of the pond, which is 1600 units wide and 1000 high.
"""

import re
from collections.abc import Sequence
from typing import Final

from batonpass.simserver.sync.lockstep.driver import SimDriver
from batonpass.simserver.sync.lockstep.entity import SimEntity

__all__ = ["Boat", "Fireflies", "Firefly", "Pond", "Visit"]

WIDTH: Final = 1600
HEIGHT: Final = 1000
UNIT: Final = 256
GOAL: Final = 10
BOAT_RADIUS: Final = 46
FIREFLY_RADIUS: Final = 14
FIREFLIES: Final = 6
PAUSE_TICKS: Final = 100
NOBODY: Final = ""
_STARTS: Final = (300 * UNIT, (WIDTH - 300) * UNIT)
_STEERED: Final = re.compile(r"(-?[0-8]) (-?[0-8])")


class Firefly(SimEntity):
    """A light to catch; every eighth is golden and gives three points."""

    x: int
    y: int
    vx: int = 0
    vy: int = 0
    gold: bool = False

    def sim_tick(self) -> None:
        """Turn now and then, and drift."""
        if (self.sim.tick + self.id) & 15 == 0:
            self.vx = self.sim.get_random().between(-600, 600)
            self.vy = self.sim.get_random().between(-600, 600)
        _drift(self, FIREFLY_RADIUS)


class Boat(SimEntity):
    """What one player steers: `dx` and `dy`, from -8 to 8, are where the player wants to go."""

    owner: str
    seat: int
    x: int
    y: int = HEIGHT // 2 * UNIT
    vx: int = 0
    vy: int = 0
    dx: int = 0
    dy: int = 0
    score: int = 0

    def sim_tick(self) -> None:
        """Take speed, lose an eighth of it to the water, and move."""
        self.vx = (self.vx + self.dx * 128) * 224 >> 8
        self.vy = (self.vy + self.dy * 128) * 224 >> 8
        _drift(self, BOAT_RADIUS)

    def start(self) -> None:
        """Go to the start, without points."""
        self.x = _STARTS[self.seat]
        self.y = HEIGHT // 2 * UNIT
        self.vx = 0
        self.vy = 0
        self.score = 0


class Visit(SimEntity):
    """A client came or left; the pond takes note of it in its next tick."""

    owner: str
    there: bool


class Pond(SimEntity):
    """The rules: who has which seat, who waits for one, the points and the round."""

    round: int = 0
    winner: int = -1
    """The seat, after a round."""
    pause: int = 0
    """Ticks until the next round."""
    seats: tuple[str, ...] = (NOBODY, NOBODY)
    waiting: tuple[str, ...] = ()

    def sim_tick(self) -> None:
        """Apply the rules."""
        boats = self.sim.entities(Boat)
        self._bump(boats)
        if self.pause == 0:
            self._score(boats)
        else:
            self.pause -= 1
            if self.pause == 0:
                self._begin(boats)
        self._seat(boats)

    def _bump(self, boats: Sequence[Boat]) -> None:
        """Let boats that meet exchange their speeds."""
        if len(boats) != 2 or not _near(boats[0], boats[1], 2 * BOAT_RADIUS):
            return
        one, other = boats
        if (one.x - other.x) * (one.vx - other.vx) + (one.y - other.y) * (one.vy - other.vy) < 0:
            one.vx, other.vx = other.vx, one.vx
            one.vy, other.vy = other.vy, one.vy

    def _score(self, boats: Sequence[Boat]) -> None:
        """Count what was caught; the first boat with ten points wins."""
        for firefly in self.sim.entities(Firefly):
            boat = next((boat for boat in boats if _near(boat, firefly, BOAT_RADIUS + FIREFLY_RADIUS)), None)
            if boat is not None:
                boat.score += 3 if firefly.gold else 1
                self.sim.remove(firefly)
                self.sim.hatch()
        winner = next((boat for boat in boats if boat.score >= GOAL), None)
        if winner is not None:
            self.winner = winner.seat
            self.pause = PAUSE_TICKS

    def _begin(self, boats: Sequence[Boat]) -> None:
        """Begin the next round."""
        self.round += 1
        self.winner = -1
        self.pause = 0
        for boat in boats:
            boat.start()

    def _seat(self, boats: Sequence[Boat]) -> None:
        """Free the seats of those who left, and fill seats in the order of coming."""
        for visit in self.sim.entities(Visit):
            self.waiting = tuple(owner for owner in self.waiting if owner != visit.owner)
            if visit.there:
                self.waiting = (*self.waiting, visit.owner)
            self.seats = tuple(NOBODY if owner == visit.owner else owner for owner in self.seats)
            for boat in boats:
                if boat.owner == visit.owner:
                    self.sim.remove(boat)
            self.sim.remove(visit)
        for seat in (0, 1):
            if self.seats[seat] == NOBODY and self.waiting:
                owner, *rest = self.waiting
                self.waiting = tuple(rest)
                self.seats = tuple(owner if at == seat else former for at, former in enumerate(self.seats))
                self.sim.spawn(Boat, owner=owner, seat=seat, x=_STARTS[seat])
                self._begin(boats)


class Fireflies(SimDriver):
    """The game. Its one event is `steer`, with the body "dx dy"."""

    kinds = (Pond, Firefly, Boat, Visit)

    def on_reset(self, seed: str) -> None:
        """A pond with fireflies."""
        self.spawn(Pond)
        for _ in range(FIREFLIES):
            self.hatch()

    def on_connect(self, public_id: str) -> None:
        """Tell the pond."""
        self.spawn(Visit, owner=public_id, there=True)

    def on_disconnect(self, public_id: str) -> None:
        """Tell the pond."""
        self.spawn(Visit, owner=public_id, there=False)

    def on_client_event(self, type: str, origin: str, body: str) -> None:
        """Steer the boat of the sender; anything else has no effect."""
        wanted = _STEERED.fullmatch(body)
        boat = next((boat for boat in self.entities(Boat) if boat.owner == origin), None)
        if type == "steer" and wanted is not None and boat is not None:
            boat.dx = int(wanted[1])
            boat.dy = int(wanted[2])

    def hatch(self) -> None:
        """Spawn a firefly anywhere on the pond."""
        draws = self.get_random()
        x = draws.between(60, WIDTH - 60) * UNIT
        y = draws.between(60, HEIGHT - 60) * UNIT
        self.spawn(Firefly, x=x, y=y, gold=draws.chance(1, 8))


def _drift(entity: Boat | Firefly, radius: int) -> None:
    """Move by the velocity; off the shore with half of it."""
    entity.x += entity.vx
    entity.y += entity.vy
    right, low = (WIDTH - radius) * UNIT, (HEIGHT - radius) * UNIT
    if not radius * UNIT <= entity.x <= right:
        entity.x = min(max(entity.x, radius * UNIT), right)
        entity.vx = -entity.vx >> 1
    if not radius * UNIT <= entity.y <= low:
        entity.y = min(max(entity.y, radius * UNIT), low)
        entity.vy = -entity.vy >> 1


def _near(one: Boat | Firefly, other: Boat | Firefly, reach: int) -> bool:
    """Whether two centres are nearer than `reach` units."""
    dx, dy = one.x - other.x >> 8, one.y - other.y >> 8
    return dx * dx + dy * dy < reach * reach
