"""A world whose state at any tick follows by itself: what an entity carries is all that happens in it.

Each of its entities draws a number with every tick, and a timer rings every third tick, whichever server simulates it.
So a state tells whether chance and timers came along with every hand-over; and one whose version did not could not be
read. Beside its state each has a pendulum, which has swung once for every tick, and is nowhere but in the memory of a
server.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Carried, EntityRandom, Step

__all__ = ["KIND", "Clockwork", "Pendulums", "state_at"]

KIND: Final = "clock"
_RINGS_EVERY: Final = 3
_SIDES: Final = 1000
_REMEMBERED: Final = 5000


class Pendulums:
    """How often the pendulum of each clock has swung: a participant, which notices one that does not fit its clock."""

    def __init__(self) -> None:
        self.swung: Counter[str] = Counter()

    def dehydrate(self, entity: str, state: Any) -> int:
        """As `Participant.dehydrate`."""
        return self.swung[entity]

    def rehydrate(self, entity: str, state: Any, data: int) -> None:
        """As `Participant.rehydrate`."""
        if data != len(state["drawn"]) < _REMEMBERED:
            raise ValueError(f"{entity} has had {len(state['drawn'])} ticks, and its pendulum has swung {data} times")
        self.swung[entity] = data

    def release(self, entity: str) -> None:
        """As `Participant.release`."""
        del self.swung[entity]


class Clockwork:
    """Entities of kind `clock`: state is `{"drawn": […], "rung": […]}`, the last numbers and ticks of the timer."""

    schema_version = 7
    kinds = (KIND,)

    def __init__(self) -> None:
        self.pendulums: Final = Pendulums()
        self.participants: Final = {"pendulum": self.pendulums}

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """A clock that has done nothing yet."""
        if kind != KIND:
            raise ValueError(f"this world has clocks, no {kind!r}")
        return {"drawn": [], "rung": []}

    def migrate(self, kind: str, state: Any, from_version: int) -> Any:
        """There never was another form."""
        raise ValueError(f"a clock of version {from_version} was never made")

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        """Is not called, as there is `advance`."""
        raise NotImplementedError

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        """Draw, and ring if it is time."""
        self.pendulums.swung[step.entity] += 1
        rung = [*state["rung"], step.tick] if step.due else state["rung"]
        if step.due or step.tick == 1:
            step.timers.set("ring", _RINGS_EVERY)
        drawn = [*state["drawn"], step.random.below(_SIDES)]
        return {"drawn": drawn[-_REMEMBERED:], "rung": rung[-_REMEMBERED:]}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """Clocks stay."""
        return None


def state_at(entity: str, tick: int) -> Any:
    """The state of a clock of this name after tick `tick`, of which none was lost or had twice."""
    seed = Carried.of_new(entity).seed
    chance = EntityRandom(seed, 0)
    drawn = [chance.below(_SIDES) for _ in range(tick)]
    return {"drawn": drawn[-_REMEMBERED:], "rung": list(range(1 + _RINGS_EVERY, tick + 1, _RINGS_EVERY))[-_REMEMBERED:]}
