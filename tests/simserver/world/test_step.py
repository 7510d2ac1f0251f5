"""What moves with an entity beside its state: chance, timers, and the version of the form of its state."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.world.api import migrated, schema_version, takes
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import MAX_TIMERS, Carried, EntityRandom, Step, Timers
from tests.simserver.stage import BALL, Stage, Tally, inspect, ticks

pytestmark = pytest.mark.usefixtures("either_kind")


class Dice(Tally):
    """A world that draws a number with every tick, and every third tick by a timer; its states name what came."""

    schema_version = 2
    kinds = ("dice", "tally")

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"drawn": [], "rung": []}

    def migrate(self, kind: str, state: Any, from_version: int) -> Any:
        if state is None:
            raise ValueError("there is no such state")
        return {**state, "rung": [from_version]}

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        if "bell" in step.due or step.tick == 1:
            step.timers.set("bell", 3)
        drawn = step.random.below(6)
        if self.fails == "step":
            raise ZeroDivisionError("poison")
        rung = [*state["rung"], *([step.tick] if step.due else [])]
        return {"drawn": [*state["drawn"], drawn], "rung": rung}


def life_of(stage: Stage, snapshot: EntitySnapshot, fence: Fence = Fence(1)) -> Life:  # noqa: B008 — immutable
    return stage.life(fence, snapshot)


def fresh() -> EntitySnapshot:
    return EntitySnapshot(
        "dice", 0, {"drawn": [], "rung": []}, EntityInbox().to_data(), schema=2, carried=Carried.of_new(BALL)
    )


async def test_chance_and_timers_go_on_elsewhere_as_if_nothing_had_happened(system: System) -> None:
    stays, moves = Stage(system, world=Dice()), Stage(system, "alpha.s2", Dice())
    whole = stays.start(fresh())
    ticks(whole, 20)
    await inspect(whole)
    whole.life.end()
    first = stays.start(fresh())
    ticks(first, 7)
    frozen = await first.frozen()
    second = moves.start(EntitySnapshot.decode(frozen.state), Fence(2))
    ticks(second, 13)
    await inspect(second)
    assert second.life.world == whole.life.world
    assert second.life.world["rung"] == [4, 7, 10, 13, 16, 19]
    assert second.life.carried == whole.life.carried
    assert len(set(second.life.world["drawn"])) > 1


async def test_a_step_that_fails_has_drawn_and_set_nothing(system: System) -> None:
    world = Dice()
    stage = Stage(system, world=world)
    actor = stage.start(fresh())
    ticks(actor, 2)
    await inspect(actor)
    before = actor.life.carried
    world.fails = "step"
    ticks(actor)
    await inspect(actor)
    assert actor.life.quarantine_reason
    assert actor.life.carried == before


def test_two_entities_have_different_chances() -> None:
    one, other = (Step(Carried.of_new(name), 1).random.bits() for name in ("alpha.a", "alpha.b"))
    assert one != other


@given(st.binary(max_size=32), st.integers(0, 2**40), st.integers(1, 2**64))
def test_numbers_follow_from_the_seed_and_stay_below_their_bound(seed: bytes, drawn: int, bound: int) -> None:
    one, other = EntityRandom(seed, drawn), EntityRandom(seed, drawn)
    assert [one.below(bound) for _ in range(3)] == [other.below(bound) for _ in range(3)]
    assert 0 <= one.below(bound) < bound
    assert 0.0 <= one.uniform() < 1.0


def test_small_numbers_are_as_likely_as_large_ones() -> None:
    random = EntityRandom(b"x", 0)
    counts = [0] * 6
    for _ in range(6000):
        counts[random.below(6)] += 1
    assert all(850 < count < 1150 for count in counts), counts
    with pytest.raises(ValueError, match="bound"):
        random.below(0)


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.integers(1, 9), max_size=8), st.integers(0, 12))
def test_timers_end_once_and_in_order(timers: dict[str, int], at: int) -> None:
    carried = Carried(timers)
    due: list[tuple[int, str]] = []
    for tick in range(1, at + 1):
        step = Step(carried, tick)
        due += [(tick, name) for name in step.due]
        carried = Carried.from_data(step.carried().to_data())
    assert due == sorted((end, name) for name, end in timers.items() if end <= at)
    assert dict(carried.timers) == {name: end for name, end in timers.items() if end > at}


def test_timers_are_set_looked_at_and_cancelled() -> None:
    timers = Timers({}, 10)
    timers.set("a", 3)
    timers.set("a", 5)
    assert (timers.left("a"), timers.left("b"), list(timers)) == (5, None, ["a"])
    assert (timers.cancel("a"), timers.cancel("a")) == (True, False)
    for name, in_ticks in (("", 1), ("a", 0), ("x" * 65, 1), ("a", 2**63)):
        with pytest.raises(ValueError, match="no timer"):
            timers.set(name, in_ticks)
    for number in range(MAX_TIMERS):
        timers.set(str(number), 1)
    timers.set("7", 2)
    with pytest.raises(ValueError, match="at most"):
        timers.set("one more", 1)


@pytest.mark.parametrize(
    "data",
    [
        {"timers": {"a": -1}},
        {"timers": {"a": True}},
        {"timers": {"": 1}},
        {"timers": {str(n): 1 for n in range(MAX_TIMERS + 1)}},
        {"random": [b"x" * 33, 0]},
        {"random": [b"", -1]},
        {"random": ["", 0]},
    ],
)
def test_what_no_entity_carries_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"timers|seed"):
        Carried.from_data(data)


def test_a_snapshot_is_read_as_it_was_written_and_one_of_before_has_version_1() -> None:
    snapshot = fresh()
    assert EntitySnapshot.decode(snapshot.encode()) == snapshot
    plain = EntitySnapshot("ball", 7, {"a": 1}, EntityInbox().to_data())
    assert EntitySnapshot.decode(plain.encode()) == plain
    assert b"timers" not in plain.encode()


# --- schema versions --------------------------------------------------------------------------------------------------


def test_failures_row_28_only_earlier_forms_of_known_kinds_are_taken() -> None:
    dice, tally = Dice(), Tally()
    assert (schema_version(dice), schema_version(tally)) == (2, 1)
    assert [takes(dice, "dice", version) for version in (1, 2, 3)] == [True, True, False]
    assert not takes(dice, "ball", 2)
    assert [takes(tally, "whatever", version) for version in (0, 1, 2)] == [False, True, False]
    with pytest.raises(ValueError, match="version 3; its own is 2"):
        migrated(dice, "dice", {}, 3)


async def test_a_state_of_an_earlier_form_is_migrated_when_it_has_arrived(system: System) -> None:
    stage = Stage(system, world=Dice())
    old = EntitySnapshot("tally", 5, {"drawn": []}, EntityInbox().to_data())
    actor = stage.start(old)
    assert (actor.life.seen, actor.life.world, actor.life.schema) == ({"drawn": [], "rung": [1]}, {"drawn": []}, 1)
    (stint,) = stage.custody.to_data()
    assert stint["started_hash"] == Stage(system, world=Dice()).life(Fence(9), old).stint.started_hash
    ticks(actor)
    frozen = await actor.frozen()
    assert (frozen.schema, frozen.tick) == (2, 6), "a tick with it has succeeded"


@pytest.mark.parametrize(("schema", "state"), [(3, {"drawn": []}), (1, None)], ids=["later", "broken"])
async def test_failures_row_28_a_form_that_nobody_knows_stands_still_as_it_came(
    system: System, schema: int, state: Any
) -> None:
    stage = Stage(system, world=Dice())
    came = EntitySnapshot("tally", 5, state, EntityInbox().to_data(), schema=schema)
    actor = stage.start(came)
    ticks(actor, 3)
    frozen = await actor.frozen()
    assert actor.life.quarantine_reason
    assert EntitySnapshot.decode(frozen.state) == came


@pytest.mark.parametrize(
    ("kind", "schema", "state", "untaken"),
    [
        ("tally", 3, {"drawn": []}, True),
        ("ball", 1, {"drawn": []}, True),
        ("ball", 2, {"drawn": [], "rung": []}, True),
        ("tally", 1, None, False),
        ("tally", 1, {"drawn": []}, False),
    ],
    ids=["later", "kind of before", "kind of now", "not migrated", "migrated"],
)
async def test_failures_row_28_what_the_world_does_not_take_stands_still_to_be_passed_on(
    system: System, kind: str, schema: int, state: Any, untaken: bool
) -> None:
    """What it takes and fails on would stand still elsewhere, too."""
    stage = Stage(system, world=Dice())
    actor = stage.start(EntitySnapshot(kind, 5, state, EntityInbox().to_data(), schema=schema))
    ticks(actor, 3)
    await inspect(actor)
    assert actor.life.is_untaken is untaken
    assert (actor.life.tick == 5) is bool(actor.life.quarantine_reason)
    if untaken:
        assert "the world here" in actor.life.quarantine_reason
        assert actor.life.quarantine.wherever == "", "it is the fault of this server alone"
        actor.life.enter_quarantine("its actor crashed")
        assert not actor.life.is_untaken
