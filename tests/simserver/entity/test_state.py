"""The life of an entity outlives its actors: whatever ends them, nothing that anybody has seen is undone."""

import logging
from random import Random
from typing import Any, cast

import cbor2
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors import Ignored, System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.simserver.entity.quarantine import MAX_CRASHES
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.world.step import Carried
from tests.budget import examples
from tests.simserver.stage import ADA, BALL, Actor, Stage, Tally, feed, inspect, ticks, with_actors

pytestmark = pytest.mark.usefixtures("either_kind")


async def crash(stage: Stage, actor: Actor) -> Actor:
    """Crash an entity's actor in a callback, and have another one take up its life."""
    actor.cast("what no entity takes")
    await actor.ref.exited()
    return stage.revive(actor.life)


@with_actors
async def test_the_next_actor_goes_on_after_the_last_tick_that_was_completed(system: System) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    feed(actor, 1, 2)
    ticks(actor, 3)
    feed(actor, 3)
    before = await inspect(actor)
    actor.ref.kill()
    actor = stage.revive(actor.life)
    assert await inspect(actor) == before
    ticks(actor)
    seen = await inspect(actor)
    assert (seen["tick"], seen["sources"][ADA]["applied"]) == (4, 3)
    assert len(stage.custody.to_data()) == 1, "it is the same stint: this server never stopped simulating"


@with_actors
async def test_what_was_not_accepted_when_the_actor_ended_is_taken_when_it_is_repeated(system: System) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    feed(actor, 1)
    await inspect(actor)
    actor.cast("what no entity takes")
    feed(actor, 2, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("batonpass.actors"), "disabled", True)
        await actor.ref.exited()
    actor = stage.revive(actor.life)
    feed(actor, 4)
    await inspect(actor)
    assert stage.counts["input_gap"] == 1, "two and three went with the actor"
    feed(actor, 1, 2, 3, 4)
    ticks(actor)
    await inspect(actor)
    assert actor.life.world["applied"] == [[ADA, n] for n in range(1, 5)]


async def test_a_tick_whose_acknowledgement_failed_is_done_all_the_same_and_not_done_again(system: System) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    heard, fails = list(stage.acks), True

    def acknowledge(source: str, ack: object) -> None:
        if fails:
            raise RuntimeError("the way to the player is broken")
        heard.append((source, ack))  # type: ignore[arg-type]  # an InputAck

    object.__setattr__(stage.environment, "acknowledge", acknowledge)
    feed(actor, 1, 2)
    ticks(actor)
    if stage.batch is None:
        await actor.ref.exited()
    fails = False
    actor = stage.revive(actor.life)
    assert (actor.life.tick, actor.life.world["applied"]) == (1, [[ADA, 1], [ADA, 2]])
    feed(actor, 1, 2)
    ticks(actor)
    await inspect(actor)
    assert actor.life.world["applied"] == [[ADA, 1], [ADA, 2]]
    assert [ack.applied for _, ack in heard] == [2, 2], "the repetitions are answered with how far it has come"


@with_actors
async def test_frozen_it_stays_frozen_whoever_ends_and_goes_on_with_its_journal(system: System) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    await actor.freeze()
    feed(actor, 1)
    await inspect(actor)
    actor.ref.kill()
    actor.life.take_input(ADA, 1, 2, b"")
    actor = stage.revive(actor.life)
    ticks(actor)
    assert (await inspect(actor))["tick"] == 0
    actor.ref.kill()
    actor.life.resume(Fence(2))
    actor = stage.revive(actor.life)
    ticks(actor)
    seen = await inspect(actor)
    assert (seen["epoch"], seen["tick"], seen["sources"][ADA]["applied"]) == (2, 1, 2)


@with_actors
async def test_a_life_that_is_over_gets_no_actor_and_cannot_be_frozen_or_resumed(system: System) -> None:
    stage = Stage(system)
    actor = stage.start()
    actor.life.end()
    assert not actor.ref.alive
    with pytest.raises(Ignored):
        stage.revive(actor.life)
    assert actor.life.freeze() is None
    actor.life.resume(Fence(9))
    assert actor.life.fence == Fence(1)


async def test_a_freeze_of_which_nobody_has_heard_can_be_taken_back(system: System) -> None:
    stage = Stage(system)
    actor = stage.start()
    await actor.freeze()
    feed(actor, 1)
    await inspect(actor)
    actor.life.thaw()
    ticks(actor)
    seen = await inspect(actor)
    assert (seen["epoch"], seen["tick"], seen["sources"][ADA]["applied"]) == (1, 1, 1)
    (stint,) = stage.custody.to_data()
    assert (stint["ended_ns"], stint["ended_tick"], stint["ended_hash"]) == (0, 0, "")
    actor.life.thaw()
    assert not actor.life.frozen


@with_actors
async def test_an_entity_whose_actors_crash_again_and_again_stands_still_and_can_be_handed_over(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(system)
    actor = stage.start()
    with caplog.at_level(logging.CRITICAL):
        for _ in range(MAX_CRASHES):
            actor = await crash(stage, actor)
            assert not actor.life.quarantine_reason
        actor = await crash(stage, actor)
    ticks(actor)
    seen = await inspect(actor)
    assert "crashed 4 times" in seen["broken"]
    assert "an entity takes no" in seen["broken"]
    assert seen["tick"] == 1, "that it stands still"
    assert (stage.counts["entity_crashed"], stage.counts["entity_broken"]) == (MAX_CRASHES + 1, 1)
    assert await actor.freeze() is not None


@with_actors
async def test_to_be_killed_is_nothing_to_hold_against_an_entity(system: System) -> None:
    stage = Stage(system)
    actor = stage.start()
    for _ in range(10):
        actor.ref.kill()
        actor = stage.revive(actor.life)
    ticks(actor)
    assert (await inspect(actor))["tick"] == 1


async def _play(seed: int, *, dies: bool) -> bytes:
    """A player's inputs, repeated until they are accepted, and ticks; with and without the ends of actors between."""
    dice, death = Random(seed), Random(seed + 1)
    async with System.open("alpha.s1") as system:
        stage = Stage(system)
        actor = stage.start()
        inputs = [cbor2.dumps([dice.randrange(-1000, 1000) for _ in range(3)]) for _ in range(20)]
        for number in range(20):
            # One input for each tick, so that both plays apply the same inputs in the same ticks.
            while actor.life.inbox.cursors.get(ADA) is None or actor.life.inbox.cursors[ADA].accepted <= number:
                feed(actor, number + 1, data=inputs[number])
                if dies and death.random() < 0.4:
                    actor.ref.kill()
                    actor = stage.revive(actor.life)
                await inspect(actor)
            before = actor.life.tick
            while actor.life.tick == before:
                ticks(actor)
                if dies and death.random() < 0.4:
                    actor.ref.kill()
                    actor = stage.revive(actor.life)
                await inspect(actor)
        frozen = await actor.frozen()
        return frozen.state


@with_actors
@settings(max_examples=examples(20))
@given(st.integers(0, 2**32))
def test_an_entity_whose_actors_died_is_where_it_would_be_had_they_lived(seed: int) -> None:
    assert trio.run(lambda: _play(seed, dies=True)) == trio.run(lambda: _play(seed, dies=False))


def test_a_life_begins_with_the_inputs_that_came_with_it() -> None:
    def nothing(*_: object) -> None:
        raise AssertionError("it has no actor yet")

    async def begin() -> Life:
        async with System.open("alpha.s1") as system:
            stage = Stage(system, world=Tally())
            life = Life(
                stage.environment,
                BALL,
                Fence(1),
                EntitySnapshot("tally", 4, {"applied": []}, {"cursors": {}, "pending": []}, Ownership(ADA, 1)),
            )
            life.take_input(ADA, 1, 1, b"")
            assert not life.has_actor
            return life

    life = trio.run(begin)
    assert [item.seq for item in life.inbox.pending] == [1]


DEEDS = st.sampled_from(("input", "tick", "owner", "freeze", "resume", "thaw", "discard", "look"))


@given(st.lists(DEEDS, max_size=30))
def test_what_is_encoded_once_is_encoded_anew_as_soon_as_anything_has_changed(deeds: list[str]) -> None:
    stage = Stage(cast(Any, None), world=Tally())
    life, given_inputs = stage.life(Fence(1), stage.fresh("tally")), 0
    for number, deed in enumerate(deeds, 2):
        match deed:
            case "input":
                given_inputs += 1
                life.take_input(ADA, life.ownership.rev, given_inputs, b"")
            case "tick" if not life.frozen:
                life.commit({"applied": [*life.world["applied"], number]}, number, Carried(seed=bytes([number])))
            case "owner":
                life.owned(Ownership(ADA, number))
            case "freeze":
                life.freeze()
            case "resume":
                life.resume(Fence(number))
            case "thaw":
                life.thaw()
            case "discard":
                if not life.quarantine_reason:
                    life.quarantine.begin("poison", is_unread=False)
                life.release(discard_inputs=True)
            case _:
                pass
        assert life.encoded() == life.snapshot().encode()
    assert life.encoded() is life.encoded(), "nothing has changed"


def test_one_that_is_made_before_it_begins_is_in_custody_since_it_was_made() -> None:
    """Whoever waits to hear that it is here hears it in between; what is written down is the same."""
    one, other = (Stage(cast(Any, None), world=Tally()) for _ in range(2))
    arriving = one.life(Fence(1), one.fresh("tally"), begins=False)
    assert not one.custody.to_data()
    for _ in range(5):
        one.environment.monotonic_ns()
    arriving.begin()
    at_once = other.life(Fence(1), other.fresh("tally"))
    assert one.custody.to_data() == other.custody.to_data()
    assert arriving.state_bytes == at_once.state_bytes > 0
    arriving.take_input(ADA, 1, 1, b"")
    arriving.commit({"applied": [[ADA, 1]]}, 1)
    frozen = arriving.freeze()
    assert frozen is not None
    assert one.custody.to_data()[0]["ended_hash"] == frozen.state_hash


def test_one_that_cannot_be_written_when_it_begins_stands_still() -> None:
    """It is looked at before anybody hears that it is here; this is for what no look finds, such as want of memory."""
    stage = Stage(cast(Any, None), world=Tally())
    came = stage.fresh("tally")
    life = stage.life(Fence(1), came, begins=False)
    life.world = {"applied": ["\ud800"]}
    life.begin()
    assert life.quarantine_reason.startswith("its state cannot travel")
    assert stage.counts["state_not_portable"] == 1
    (stint,) = stage.custody.to_data()
    assert (stint["started_tick"], stint["started_hash"]) == (0, ""), "the custody log vouches for nothing"
