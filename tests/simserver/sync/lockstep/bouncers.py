"""A game for tests, here and in JavaScript: balls of players in a field, by integers, floats, draws and events."""

import math
from collections.abc import Mapping
from typing import Final

from batonpass.simserver.sync.lockstep.driver import SimDriver
from batonpass.simserver.sync.lockstep.entity import SimEntity
from batonpass.simserver.sync.lockstep.turns import cosine, sine

SIDE: Final = 10_000


class Player(SimEntity):
    public_id: str
    score: int = 0


class Board(SimEntity):
    order: tuple[str, ...] = ()
    popped: Mapping[str, int] = {}
    best: str | None = None


class Ball(SimEntity):
    owner: str
    x: int
    y: int
    heading: int
    speed: int = 100
    bounces: int = 0
    spin: float = 0.0

    def sim_tick(self) -> None:
        self.x += cosine(self.heading) * self.speed // 65536
        self.y += sine(self.heading) * self.speed // 65536
        hit_x, hit_y = not 0 <= self.x < SIDE, not 0 <= self.y < SIDE
        if hit_x or hit_y:
            self.heading = (512 - self.heading if hit_x else -self.heading) % 1024
            self.x = max(0, min(SIDE - 1, self.x))
            self.y = max(0, min(SIDE - 1, self.y))
            self.bounces += 1
            self.spin = math.sqrt(self.spin * 0.75 + self.sim.get_random().uniform()) / 3
            if self.bounces >= 12:
                self.sim.remove(self)

    def sim_exit(self) -> None:
        for player in self.sim.entities(Player):
            if player.public_id == self.owner:
                player.score += self.bounces
        for board in self.sim.entities(Board):
            board.popped = {**board.popped, self.owner: board.popped.get(self.owner, 0) + 1}
            leaders = sorted(self.sim.entities(Player), key=lambda one: (-one.score, one.id))
            board.best = leaders[0].public_id if leaders else None


class Bouncers(SimDriver):
    kinds = (Player, Board, Ball)

    def on_reset(self, seed: str) -> None:
        self.spawn(Board)

    def on_connect(self, public_id: str) -> None:
        self.spawn(Player, public_id=public_id)

    def on_disconnect(self, public_id: str) -> None:
        for player in self.entities(Player):
            if player.public_id == public_id:
                self.remove(player)

    def on_client_event(self, type: str, origin: str, body: str) -> None:
        draws = self.get_random()
        mine = [ball for ball in self.entities(Ball) if ball.owner == origin]
        if type == "throw" and len(mine) < 8:
            heading = int(body) % 1024
            self.spawn(Ball, owner=origin, x=draws.below(SIDE), y=draws.below(SIDE), heading=heading)
        elif type == "kick":
            for ball in mine:
                ball.speed = min(400, ball.speed + draws.between(-20, 60))
                ball.heading = (ball.heading + draws.between(-64, 64)) % 1024
        elif type == "pop" and mine:
            self.remove(mine[draws.below(len(mine))])
        elif type == "mix":
            order = [player.public_id for player in self.entities(Player)]
            draws.shuffle(order)
            for board in self.entities(Board):
                board.order = tuple(order)

    def on_tick(self, tick: int) -> None:
        draws = self.get_random()
        if tick % 50 == 0 and len(self.entities(Ball)) < 20 and draws.chance(1, 3):
            x, y, heading = draws.below(SIDE), draws.below(SIDE), draws.below(1024)
            self.spawn(Ball, owner="", x=x, y=y, heading=heading, speed=draws.between(50, 250), spin=draws.uniform())
