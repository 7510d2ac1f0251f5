"""Clients that go astray at a seeded tick, each in one way, and whether the stream and the reports find out how."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.lockstep.acts import Act
from batonpass.simserver.sync.lockstep.desync import DesyncReport, Difference, explain
from tests.simserver.sync.lockstep.lossy_room import Chances, LossyRoom
from tests.simserver.sync.lockstep.meadow import Meadow, Patch, Visitor, Wind

SHORT: Final = Chances(post=0.05)
SLOW: Final = Chances(post=0.05, ask=0.02)
"""A client asks once in 2.5 s: its requests have no room for all of its hashes."""
_EARLIEST: Final = 40
_LATEST: Final = 120
_PATIENCE: Final = 1_000
_AFTERWARDS: Final = 60
"""Ticks after the first word of a desync, in which dumps come in."""
MORE: Final = 1_000


class StrayMeadow(Meadow):
    """Does one thing otherwise in one tick.

    Args:
        at: the tick whose state it gets wrong.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        super().__init__(trace=True)

    @property
    def is_astray(self) -> bool:
        return self.tick + 1 == self._at


class DrawsOnceMore(StrayMeadow):
    def on_tick(self, tick: int) -> None:
        if self.is_astray:
            self.get_random().below(MORE)
        super().on_tick(tick)


class DrawsAnother(StrayMeadow):
    def gust(self) -> int:
        return self.get_random().between(10, 19) if self.is_astray else super().gust()


class WritesAField(StrayMeadow):
    def on_tick(self, tick: int) -> None:
        super().on_tick(tick)
        if self.is_astray:
            self.entities(Visitor)[0].score += MORE


class HasAnotherOrder(StrayMeadow):
    """Goes through the same entries in another order than they were put in."""

    def going_through(self) -> Iterable[str]:
        return reversed(list(super().going_through())) if self.is_astray else super().going_through()


class IsOffByOneBit(StrayMeadow):
    """Has a square root whose last bit is another."""

    def speed(self, before: float) -> float:
        right = super().speed(before)
        return math.nextafter(right, math.inf) if self.is_astray else right


class Signs(NamedTuple):
    """By what a report has to name a divergence."""

    field: Callable[[Difference], bool]
    """One of the differences: entity, field path and both values."""
    act: Callable[[Act | None, Act | None], bool]
    """The first draw or write that differs, of an equal client and of the stray one."""


def _at(act: Act | None, module: str, function: str) -> bool:
    return act is not None and act.site.startswith(f"{module}.py:") and act.site.endswith(f" {function}")


def _both_write(left: Act | None, right: Act | None, of: str) -> bool:
    return (
        left is not None
        and right is not None
        and (left.what, left.of, right.what, right.of) == ("write", of, "write", of)
        and left.value != right.value
        and _at(left, "meadow", "on_tick")
        and _at(right, "meadow", "on_tick")
    )


KINDS: Final[dict[type[StrayMeadow], Signs]] = {
    DrawsOnceMore: Signs(
        lambda one: one.kind == "Random" and one.left != one.right,
        lambda left, right: (
            right is not None
            and (right.what, right.of) == ("draw", f"below({MORE})")
            and _at(right, "divergences", "on_tick")
            and _at(left, "meadow", "gust")
        ),
    ),
    DrawsAnother: Signs(
        lambda one: (one.kind, one.path) == (Wind.__name__, "gust") and one.left < 10 <= one.right,
        lambda left, right: (
            left is not None
            and right is not None
            and (left.of, right.of) == ("below(10)", "between(10, 19)")
            and _at(left, "meadow", "gust")
            and _at(right, "divergences", "gust")
        ),
    ),
    WritesAField: Signs(
        lambda one: (one.kind, one.path) == (Visitor.__name__, "score") and one.left + MORE == one.right,
        lambda left, right: (
            right is not None
            and right.what == "write"
            and right.of.startswith("Visitor ")
            and right.of.endswith(".score")
            and _at(right, "divergences", "on_tick")
        ),
    ),
    HasAnotherOrder: Signs(
        lambda one: one.kind == Patch.__name__ and one.path.startswith("order[") and one.left != one.right,
        lambda left, right: _both_write(left, right, "Patch 2.order"),
    ),
    IsOffByOneBit: Signs(
        lambda one: (
            (one.kind, one.path) == (Wind.__name__, "speed") and one.right == math.nextafter(one.left, math.inf)
        ),
        lambda left, right: _both_write(left, right, "Wind 1.speed"),
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out of one divergence."""

    seed: int
    kind: type[StrayMeadow]
    at: int
    """The tick whose state the stray client had wrong."""
    differed: int | None
    """The first tick at which two clients computed different hashes."""
    told: int | None
    """The tick of the desync of which the stream told."""
    report: DesyncReport | None

    @property
    def tick_is_right(self) -> bool:
        return self.at == self.differed == self.told

    @property
    def field_is_named(self) -> bool:
        return self.report is not None and any(map(KINDS[self.kind].field, self.report.differences))

    @property
    def act_is_named(self) -> bool:
        if self.report is None or self.report.act is None:
            return False
        _, left, right = self.report.act
        return KINDS[self.kind].act(left, right)

    @property
    def is_whole(self) -> bool:
        return self.tick_is_right and self.field_is_named and self.act_is_named


def diverge(
    seed: int, chances: Chances = SHORT, afterwards: int = _AFTERWARDS, limits: StreamLimits | None = None
) -> Finding:
    """Let one of three clients go astray, and see what the stream tells of it and what two dumps explain."""
    draws = Random(f"divergence {seed}")
    kind = list(KINDS)[seed % len(KINDS)]
    # The order is written in every fourth tick.
    at = draws.randrange(_EARLIEST // 4, _LATEST // 4) * 4 + (1 if kind is HasAnotherOrder else draws.randrange(4))
    room = LossyRoom(seed, lambda: Meadow(trace=True), chances=chances, limits=limits)
    seats: list[Meadow | None] = [None, None, kind(at)]
    draws.shuffle(seats)
    guests: list[Any] = [room.come(game) for game in seats]
    (stray,) = (guest for guest, game in zip(guests, seats, strict=True) if game is not None)
    while room.stream.machine.desync is None and room.counts.ticks < _PATIENCE:
        room.tick()
    for _ in range(afterwards):
        room.tick()
    machine = room.stream.machine
    dumps = sorted(machine.dumps.values(), key=lambda dump: dump[0] == stray.follower.public_id)
    return Finding(
        seed=seed,
        kind=kind,
        at=at,
        differed=room.counts.first_differing,
        told=None if machine.desync is None else machine.desync.tick,
        report=explain(dumps[0][1], dumps[1][1]) if len(dumps) == 2 else None,
    )
