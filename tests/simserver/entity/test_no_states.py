"""What a world gives that is no state, and what `migrate` gave before a tick with it, is not the state of an entity."""

from typing import Any

import pytest

from batonpass.actors.core.system import System
from batonpass.authority.fence import Fence
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.table import Holdings, WorldFailed
from batonpass.simserver.world.step import Step
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import ADA, BALL, Stage, feed, inspect, ticks

pytestmark = pytest.mark.usefixtures("either_kind")

NO_STATE = "which is no state"


class Forgets:
    """Forgets to return in whatever it is told to; its states of before schema version 2 are other ones."""

    schema_version = 1

    def __init__(self) -> None:
        self.forgets = ""
        self.raises = ""

    def _given(self, method: str, state: Any) -> Any:
        if method == self.raises:
            raise ValueError(f"no {method}")
        return None if method == self.forgets else state

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return self._given("spawn", {"count": 0})

    def step(self, state: Any, inputs: Any, dt_s: float) -> Any:
        return self._given("step", state | {"count": state["count"] + len(inputs)})

    def migrate(self, kind: str, state: Any, from_version: int) -> Any:
        # As no world should, and nothing may be lost by it.
        state["count"] += 1000
        return self._given("migrate", state | {"form": 2})

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        return None


class ForgetsInAdvance(Forgets):
    def advance(self, state: Any, inputs: Any, dt_s: float, step: Step) -> Any:
        return self.step(state, inputs, dt_s)


class Sleepy(Forgets):
    def may_sleep(self, state: Any) -> bool:
        return bool(state["form"])


def staged(world: Any, system: Any = None) -> Stage:
    return Stage(system, world=world)


def upgraded(system: Any = None, world: Forgets | None = None) -> tuple[Stage, EntitySnapshot]:
    """A server whose world is of a later schema version, and an entity as it comes there."""
    stage = staged(world or Forgets(), system)
    came = stage.fresh()
    stage.world.schema_version = 2
    return stage, came


@pytest.mark.parametrize("kind", [Forgets, ForgetsInAdvance])
async def test_failures_row_41_a_step_that_returns_nothing_leaves_the_last_good_state_with_its_inputs(
    system: System, kind: type[Forgets]
) -> None:
    world = kind()
    stage = staged(world, system)
    actor = stage.start()
    feed(actor, 1)
    ticks(actor)
    await inspect(actor)
    world.forgets = "step"
    feed(actor, 2)
    ticks(actor, 3)
    seen = await inspect(actor)
    assert NO_STATE in seen["broken"]
    assert (actor.life.world, seen["pending_inputs"]) == ({"count": 1}, 1)
    kept = EntitySnapshot.decode((await actor.frozen()).state)
    assert (kept.world, kept.broken) == ({"count": 1}, seen["broken"]), "it stands still wherever it goes"
    world.forgets = ""
    there = stage.revive(stage.life(Fence(2), kept))
    assert there.life.release()
    ticks(there)
    assert (await inspect(there))["sources"][ADA]["applied"] == 2
    assert there.life.world == {"count": 2}, "nothing was lost"


def test_nothing_begins_with_a_spawn_that_returns_nothing() -> None:
    world = Forgets()
    world.forgets = "spawn"
    holdings = Holdings(staged(world).environment, Written())
    with pytest.raises(WorldFailed, match=NO_STATE):
        holdings.spawn(BALL, "ball", {}, Fence(1))
    assert len(holdings) == 0


@pytest.mark.parametrize(("forgets", "raises"), [("migrate", ""), ("", "migrate")], ids=["returns nothing", "raises"])
def test_failures_row_28_a_migrate_that_fails_leaves_state_and_version_as_they_came(forgets: str, raises: str) -> None:
    stage, came = upgraded()
    stage.world.forgets = forgets
    stage.world.raises = raises
    life = stage.life(Fence(1), came)
    assert life.quarantine_reason
    assert EntitySnapshot.decode(life.encoded()) == came, "a server of the earlier world goes on with it"


async def test_what_migrate_gave_is_the_state_once_a_tick_with_it_has_succeeded(system: System) -> None:
    stage, came = upgraded(system)
    actor = stage.start(came)
    assert EntitySnapshot.decode(actor.life.encoded()) == came, "copies and checkpoints have what it came as"
    assert actor.life.seen == {"count": 1000, "form": 2}
    ticks(actor)
    await inspect(actor)
    kept = EntitySnapshot.decode(actor.life.encoded())
    assert (kept.world, kept.schema, kept.tick) == ({"count": 1000, "form": 2}, 2, 1)


@pytest.mark.parametrize("fails", ["forgets", "raises"])
async def test_failures_row_28_if_the_first_tick_after_migrate_fails_it_is_as_it_came_and_runs_elsewhere(
    system: System, fails: str
) -> None:
    stage, came = upgraded(system)
    setattr(stage.world, fails, "step")
    actor = stage.start(came)
    feed(actor, 1)
    ticks(actor, 2)
    assert (await inspect(actor))["broken"]
    assert (actor.life.quarantine.wherever, actor.life.is_untaken) == ("", False)
    kept = EntitySnapshot.decode((await actor.frozen()).state)
    assert (kept.world, kept.schema, kept.broken) == (came.world, 1, "")
    there = staged(Forgets(), system)
    back = there.revive(there.life(Fence(2), kept))
    ticks(back)
    assert (await inspect(back))["sources"][ADA]["applied"] == 1, "with the input that it failed on"
    assert back.life.world == {"count": 1}


async def test_it_is_tried_anew_from_the_former_state_when_it_is_released(system: System) -> None:
    stage, came = upgraded(system)
    world = stage.world
    world.raises = "step"
    actor = stage.start(came)
    ticks(actor)
    assert (await inspect(actor))["broken"]
    world.raises = ""
    assert actor.life.release()
    ticks(actor)
    await inspect(actor)
    assert (actor.life.world, actor.life.schema) == ({"count": 1000, "form": 2}, 2), "migrated once, not twice"


async def test_a_sleeper_that_was_migrated_has_a_tick_before_it_sleeps_on(system: System) -> None:
    stage, came = upgraded(system, Sleepy())
    actor = stage.start(came)
    assert actor.life.sleep is None, "asleep its new state would never become its state"
    ticks(actor)
    await inspect(actor)
    assert (actor.life.sleep is not None, actor.life.schema) == (True, 2)


async def test_a_hand_over_before_the_first_tick_carries_the_former_state_and_one_that_is_refused_loses_nothing(
    system: System,
) -> None:
    stage, came = upgraded(system)
    actor = stage.start(came)
    frozen = await actor.frozen()
    assert (frozen.schema, EntitySnapshot.decode(frozen.state)) == (1, came)
    await actor.resume(Fence(2))
    ticks(actor)
    await inspect(actor)
    assert (actor.life.world, actor.life.schema) == ({"count": 1000, "form": 2}, 2)
