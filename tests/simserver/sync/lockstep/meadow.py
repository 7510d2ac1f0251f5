"""A game that costs little: visitors sow flowers in the wind. Draws, floats, a map, spawning and removing are in it."""

import math
from collections.abc import Iterable, Mapping

from batonpass.simserver.sync.lockstep.driver import SimDriver
from batonpass.simserver.sync.lockstep.entity import SimEntity

FLOWERS = 3


class Wind(SimEntity):
    gust: int = 0
    speed: float = 0.0


class Patch(SimEntity):
    order: tuple[str, ...] = ()
    sown: Mapping[str, int] = {}


class Visitor(SimEntity):
    public_id: str
    score: int = 0


class Flower(SimEntity):
    owner: str
    withers: int

    def sim_tick(self) -> None:
        if self.sim.tick >= self.withers:
            self.sim.remove(self)

    def sim_exit(self) -> None:
        for visitor in self.sim.entities(Visitor):
            if visitor.public_id == self.owner:
                visitor.score += 1


class Meadow(SimDriver):
    """The game. Its one event is `sow`."""

    kinds = (Wind, Patch, Visitor, Flower)

    def on_reset(self, seed: str) -> None:
        self.spawn(Wind)
        self.spawn(Patch)

    def on_connect(self, public_id: str) -> None:
        self.spawn(Visitor, public_id=public_id)

    def on_disconnect(self, public_id: str) -> None:
        for visitor in self.entities(Visitor):
            if visitor.public_id == public_id:
                self.remove(visitor)

    def on_client_event(self, type: str, origin: str, body: str) -> None:
        if type == "sow" and len(self.entities(Flower)) < FLOWERS:
            self.spawn(Flower, owner=origin, withers=self.tick + self.get_random().between(5, 60))
            for patch in self.entities(Patch):
                patch.sown = {**patch.sown, origin: patch.sown.get(origin, 0) + 1}

    def on_tick(self, tick: int) -> None:
        for wind in self.entities(Wind):
            wind.gust = self.gust()
            wind.speed = self.speed(wind.speed)
        if tick % 4 == 0:
            for patch in self.entities(Patch):
                patch.order = tuple(dict.fromkeys(self.going_through()))

    # What a stray client does otherwise.

    def gust(self) -> int:
        return self.get_random().below(10)

    def speed(self, before: float) -> float:
        return math.sqrt(before * 0.75 + self.get_random().uniform())

    def going_through(self) -> Iterable[str]:
        return [visitor.public_id for visitor in self.entities(Visitor)]
