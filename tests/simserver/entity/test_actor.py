"""An entity as an actor: it ticks while it runs, keeps what comes while it is frozen, and moves as a whole."""

import logging
from enum import StrEnum
from random import Random
from typing import Any

import cbor2
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors import Exit, NoProc, System
from batonpass.authority.fence import Fence
from batonpass.authority.limits import MAX_BODY_BYTES
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.transfer import MAX_INPUT_BYTES, Activate, ForwardInputs, encode_message
from batonpass.simserver.entity import inputs
from batonpass.simserver.entity import inputs as journal
from batonpass.simserver.entity.actor import TickNow
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot, state_hash
from tests.budget import examples
from tests.simserver.stage import ADA, BALL, Actor, Stage, Tally, feed, inspect, ticks, with_actors

pytestmark = pytest.mark.usefixtures("either_kind")

BOB = "alpha.bob"


# --- running ----------------------------------------------------------------------------------------------------------


async def test_it_ticks_and_applies_what_came_before_the_tick(system: System) -> None:
    stage = Stage(system, world=Tally())
    ref = stage.start(stage.fresh("tally"))
    feed(ref, 1, 2)
    assert (await inspect(ref))["pending_inputs"] == 2
    ticks(ref)
    seen = await inspect(ref)
    assert (seen["tick"], seen["pending_inputs"]) == (1, 0)
    assert (seen["sources"][ADA]["accepted"], seen["sources"][ADA]["applied"]) == (2, 2)


async def test_each_source_hears_how_far_it_was_applied_once_a_tick(system: System) -> None:
    stage = Stage(system)
    ref = stage.start(fence=Fence(3, 1))
    feed(ref, 1, 2)
    ticks(ref)
    await inspect(ref)
    ref.life.owned(Ownership(BOB, 2))
    feed(ref, 1, source=BOB, owner_rev=2)
    ticks(ref)
    await inspect(ref)
    assert [(source, ack.applied, ack.tick, ack.epoch, ack.sub) for source, ack in stage.acks] == [
        (ADA, 2, 1, 3, 1),
        (BOB, 1, 2, 3, 1),
    ]


async def test_what_waits_from_an_earlier_ownership_is_refused_though_its_source_owns_it_again(system: System) -> None:
    """It may have been refused by an authority that has died since; its source has used the number for another one."""
    stage = Stage(system)
    ref = stage.start()
    feed(ref, 1)
    await inspect(ref)
    ref.life.owned(Ownership(ADA, 3))
    ticks(ref)
    seen = await inspect(ref)
    assert (seen["sources"][ADA]["accepted"], seen["sources"][ADA]["applied"]) == (0, 0)
    assert stage.counts["input_stale_ownership"] == 1
    feed(ref, 1, owner_rev=3)
    ticks(ref)
    assert (await inspect(ref))["sources"][ADA]["applied"] == 1


async def test_a_duplicate_is_answered_again_for_its_acknowledgement_may_be_lost(system: System) -> None:
    stage = Stage(system)
    ref = stage.start()
    feed(ref, 1)
    ticks(ref)
    feed(ref, 1)
    await inspect(ref)
    assert [ack.applied for _, ack in stage.acks] == [1, 1]
    assert stage.counts["input_duplicate"] == 1


async def test_what_is_not_taken_is_counted_and_a_gap_is_told_how_far_it_came(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "MAX_PENDING", 1)
    stage = Stage(system)
    ref = stage.start()
    feed(ref, 3, 1, 2)
    await inspect(ref)
    assert stage.counts == {"input_gap": 1, "input_full": 1}
    assert [ack.applied for _, ack in stage.acks] == [0], "so that what was lost with another server is given again"


@pytest.mark.parametrize(("destination", "wishes"), [("alpha.s2", [(BALL, "alpha.s2")]), ("alpha.s1", []), (None, [])])
async def test_the_world_may_want_it_elsewhere(
    system: System, destination: str | None, wishes: list[tuple[str, str]]
) -> None:
    world = Tally()
    world.goes_to = destination
    stage = Stage(system, world=world)
    ref = stage.start(stage.fresh("tally"))
    ticks(ref)
    await inspect(ref)
    assert stage.wishes == wishes


class Named(StrEnum):
    THERE = "alpha.s2"


async def test_where_its_world_wants_it_is_known_until_that_wants_something_else(system: System) -> None:
    world = Tally()
    stage = Stage(system, world=world)
    ref = stage.start(stage.fresh("tally"))
    for goes_to, wants in ((Named.THERE, "alpha.s2"), ("alpha.s1", ""), ("alpha.s2", "alpha.s2"), (None, "")):
        world.goes_to = goes_to
        ticks(ref)
        await inspect(ref)
        assert (type(ref.life.wants), ref.life.wants) == (str, wants)
    assert stage.wishes == [(BALL, "alpha.s2")] * 2


NO_NAMES = ["", "alpha", "not a name", "alpha.s2\n", "Alpha.s2", "alpha." + "s" * 100, 5, ["alpha.s2"]]


@pytest.mark.parametrize("goes_to", NO_NAMES)
async def test_a_world_that_wants_it_to_go_to_what_is_no_name_fails_as_if_it_had_raised(
    system: System, goes_to: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world: Any = Tally()
    stage = Stage(system, world=world)
    ref = stage.start(stage.fresh("tally"))
    ticks(ref)
    await inspect(ref)
    world.goes_to = goes_to
    feed(ref, 1)
    with caplog.at_level(logging.CRITICAL):
        ticks(ref, 20)
        seen = await inspect(ref)
    assert "destination has to name a server" in seen["broken"]
    assert (seen["pending_inputs"], stage.counts["world_failed"], stage.wishes) == (1, 1, [])
    world.goes_to = None
    assert ref.life.release()
    ticks(ref)
    assert (await inspect(ref))["pending_inputs"] == 0


@pytest.mark.parametrize("where", ["step", "destination"])
async def test_a_world_that_fails_leaves_the_entity_standing_still_with_its_inputs(
    system: System, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = Tally()
    stage = Stage(system, world=world)
    ref = stage.start(stage.fresh("tally"))
    ticks(ref)
    feed(ref, 1)
    await inspect(ref)
    world.fails = where
    with caplog.at_level(logging.CRITICAL):
        ticks(ref)
        seen = await inspect(ref)
    assert "poison" in seen["broken"]
    assert (seen["tick"], seen["pending_inputs"], seen["sources"][ADA]["applied"]) == (2, 1, 0)
    world.fails = ""
    ticks(ref, 3)
    assert (await inspect(ref))["tick"] == 2, "until people have looked at it"
    frozen = await ref.frozen()
    assert EntitySnapshot.decode(frozen.state).inbox["pending"] == [[ADA, 1, b""]], "and it can still be moved"


async def test_failures_row_41_released_it_goes_on_or_stands_still_again_with_what_was_discarded_gone(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    world = Tally()
    stage = Stage(system, world=world)
    ref = stage.start(stage.fresh("tally"))
    life = ref.life
    feed(ref, 1)
    world.fails = "step"
    with caplog.at_level(logging.CRITICAL):
        ticks(ref)
        assert (await inspect(ref))["broken"]
        assert life.release()
        ticks(ref)
        assert (await inspect(ref))["broken"], "the world has not changed"
        world.fails = ""
        assert life.release(discard_inputs=True)
        ticks(ref)
        seen = await inspect(ref)
    assert (seen["broken"], seen["tick"], seen["pending_inputs"]) == ("", 4, 0), (
        "to stand still is a tick, and so is what was discarded"
    )
    assert seen["sources"][ADA]["applied"] == 1, "its source does not repeat it"
    assert not life.release(), "it does not stand still"


@with_actors
async def test_a_message_that_it_does_not_know_ends_it_loudly(system: System, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(system)
    with caplog.at_level(logging.CRITICAL):
        with pytest.raises(Exit, match="an entity answers no"):
            await stage.start().call("nonsense")
        ref = stage.start()
        ref.cast("nonsense")
        with pytest.raises((Exit, NoProc)):
            await inspect(ref)


# --- frozen -----------------------------------------------------------------------------------------------------------


async def test_frozen_it_does_not_tick_and_is_not_frozen_twice(system: System) -> None:
    stage = Stage(system)
    ref = stage.start()
    ticks(ref, 2)
    frozen = await ref.frozen()
    assert (frozen.fence, frozen.kind, frozen.tick) == (Fence(1), "ball", 2)
    assert frozen.state_hash == state_hash(frozen.state)
    ticks(ref, 5)
    seen = await inspect(ref)
    assert (seen["tick"], seen["frozen"]) == (2, True)
    assert await ref.freeze() is None


async def test_inputs_that_come_while_it_is_frozen_go_into_the_journal_and_are_taken_once(system: System) -> None:
    stage = Stage(system)
    ref = stage.start()
    await ref.freeze()
    feed(ref, 1, 2)
    assert [item.seq for item in await ref.journal()] == [1, 2]
    feed(ref, 3)
    assert [item.seq for item in await ref.journal()] == [3]
    assert await ref.journal() == []
    assert stage.acks == []


async def test_it_resumes_from_where_it_was_with_what_came_meanwhile(system: System) -> None:
    stage = Stage(system, world=Tally())
    ref = stage.start(stage.fresh("tally"))
    feed(ref, 1)
    await ref.freeze()
    feed(ref, 2, 2, 3)
    await ref.resume(Fence(2))
    ticks(ref)
    seen = await inspect(ref)
    assert (seen["epoch"], seen["tick"], seen["frozen"]) == (2, 1, False)
    assert seen["sources"][ADA]["applied"] == 3
    assert stage.acks[-1][1].epoch == 2


@pytest.mark.parametrize("fence", [Fence(3), Fence(3, 2), Fence(2)])
async def test_it_resumes_only_under_a_higher_fence(system: System, fence: Fence) -> None:
    stage = Stage(system)
    ref = stage.start(fence=Fence(3, 2))
    await ref.freeze()
    await ref.resume(fence)
    assert (await inspect(ref))["frozen"]


async def test_a_resumption_that_comes_late_does_nothing(system: System) -> None:
    stage = Stage(system)
    ref = stage.start()
    await ref.resume(Fence(9))
    assert (await inspect(ref))["epoch"] == 1


async def test_it_can_be_frozen_again_after_it_resumed(system: System) -> None:
    stage = Stage(system)
    ref = stage.start()
    await ref.freeze()
    await ref.resume(Fence(2))
    ticks(ref)
    frozen = await ref.frozen()
    assert (frozen.fence, frozen.tick) == (Fence(2), 1)


async def test_retired_it_ends_and_says_who_should_be_told(system: System) -> None:
    stage = Stage(system)
    ref = stage.start()
    feed(ref, 1)
    ticks(ref)
    await inspect(ref)
    ref.life.owned(Ownership(BOB, 2))
    feed(ref, 1, source=BOB, owner_rev=2)
    ticks(ref)
    await ref.freeze()
    assert await ref.retire() == [ADA, BOB]
    with pytest.raises(NoProc):
        await inspect(ref)


async def test_the_journal_is_bounded_by_number_also_when_it_is_taken(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was taken since the freeze goes into one message, and is repeated in one."""
    monkeypatch.setattr(journal, "MAX_JOURNAL", 2)
    stage = Stage(system)
    ref = stage.start()
    await ref.freeze()
    feed(ref, 1)
    assert len(await ref.journal()) == 1
    feed(ref, 2, 3)
    assert len(await ref.journal()) == 1
    assert stage.counts["input_journal_full"] == 1
    await ref.resume(Fence(2))
    await ref.freeze()
    feed(ref, 1, 2)
    assert len(await ref.journal()) == 2, "the next freeze counts anew"


async def test_the_fullest_journal_fits_the_messages_that_carry_it(system: System) -> None:
    stage = Stage(system)
    ref = stage.start()
    await ref.freeze()
    longest_name = "alpha-and-omega0." + "x" * 63
    feed(ref, *range(1, 100), data=bytes(MAX_INPUT_BYTES), source=longest_name[1:])
    feed(ref, *range(100, 4096 + 300), data=bytes(150), source=longest_name[1:])
    journal = await ref.journal()
    assert stage.counts["input_journal_full"] > 0
    assert len(journal) > 3000
    fields: dict[str, Any] = {"transfer_id": "x" * 64, "inputs": journal}
    assert len(encode_message(Activate(certificate="x" * 8192, **fields))) < MAX_BODY_BYTES
    assert len(encode_message(ForwardInputs(entity=BALL, epoch=1, sub=0, **fields))) < MAX_BODY_BYTES


# --- moving as a whole ------------------------------------------------------------------------------------------------


def test_equal_snapshots_are_equal_bytes() -> None:
    one = EntitySnapshot("ball", 7, {"a": 1, "b": [1, b"x"]}, EntityInbox().to_data())
    other = EntitySnapshot("ball", 7, {"b": [1, b"x"], "a": 1}, EntityInbox().to_data())
    assert one.encode() == other.encode()
    assert EntitySnapshot.decode(one.encode()) == one
    assert state_hash(one.encode()) != state_hash(EntitySnapshot("ball", 8, one.world, one.inbox).encode())


async def test_the_next_server_begins_with_the_very_state_with_which_the_last_one_ended(system: System) -> None:
    here, there = Stage(system, "alpha.s1"), Stage(system, "alpha.s2")
    ref = here.start()
    feed(ref, 1, 2, data=cbor2.dumps([10_000, -20_000, 30_000]))
    ticks(ref, 3)
    feed(ref, 3, data=cbor2.dumps([5, 5, 5]))
    frozen = await ref.frozen()
    there.start(EntitySnapshot.decode(frozen.state), frozen.fence.raised())
    (ended,), (begun,) = here.custody.to_data(), there.custody.to_data()
    assert (begun["started_tick"], begun["started_hash"]) == (ended["ended_tick"], ended["ended_hash"])
    assert begun["started_hash"] == frozen.state_hash
    assert (begun["epoch"], begun["sub"], begun["server"]) == (2, 0, "alpha.s2")


async def test_the_custody_log_shows_each_stint_with_its_first_and_last_tick(system: System) -> None:
    stage = Stage(system)
    ref = stage.start()
    ticks(ref, 3)
    await ref.freeze()
    await ref.resume(Fence(2))
    await inspect(ref)
    first, second = stage.custody.to_data()
    assert 0 < first["started_ns"] < first["first_tick_ns"] < first["last_tick_ns"] < first["ended_ns"]
    assert (first["started_tick"], first["ended_tick"], second["started_tick"]) == (0, 3, 3)
    assert second["started_hash"] == first["ended_hash"]
    assert (second["epoch"], second["ended_ns"], second["first_tick_ns"]) == (2, 0, 0)


async def _play(seed: int, *, moves: bool) -> tuple[bytes, list[str]]:
    """A player's inputs and the world's ticks, from one seed; with and without freezes and hand-overs between."""
    dice, hand = Random(seed), Random(seed + 1)
    async with System.open("alpha.s1") as system:
        stages = [Stage(system, "alpha.s1"), Stage(system, "alpha.s2")]
        ref, fence, sent = stages[0].start(), Fence(1), 0
        for _ in range(30):
            for _ in range(dice.randrange(3)):
                sent += 1
                feed(ref, sent, data=cbor2.dumps([dice.randrange(-1000, 1000) for _ in range(3)]))
                if moves and hand.random() < 0.3:
                    ref, fence = await _move(ref, fence, hand, stages)
            ticks(ref)
        frozen = await ref.frozen()
        return frozen.state, [stint["server"] for stage in stages for stint in stage.custody.to_data()]


async def _move(ref: Actor, fence: Fence, hand: Random, stages: list[Stage]) -> tuple[Actor, Fence]:
    """Freeze; then stay after all, or go to the other server, with whatever came meanwhile."""
    frozen = await ref.frozen()
    ref.cast(TickNow())
    fence = fence.raised()
    if hand.random() < 0.4:
        await ref.resume(fence)
        return ref, fence
    stages.reverse()
    moved = stages[0].start(EntitySnapshot.decode(frozen.state), fence)
    for item in await ref.journal():
        feed(moved, item.seq, data=item.data, source=item.source, owner_rev=item.owner_rev)
    await ref.retire()
    return moved, fence


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32))
def test_an_entity_that_moved_is_where_it_would_be_had_it_stayed(seed: int) -> None:
    """The ticks that a frozen entity misses are not counted against it: whatever it applies, it applies alike."""
    stayed, servers = trio.run(lambda: _play(seed, moves=False))
    moved, also = trio.run(lambda: _play(seed, moves=True))
    assert moved == stayed
    assert len(servers) == 1 <= len(also)


async def test_inputs_sent_across_a_freeze_are_applied_exactly_once(system: System) -> None:
    """The source cannot know of the freeze: it sends on, and repeats everything to the next server."""
    here, there = Stage(system, "alpha.s1", Tally()), Stage(system, "alpha.s2", Tally())
    ref = here.start(here.fresh("tally"))
    feed(ref, 1, 2)
    ticks(ref)
    feed(ref, 3)
    frozen = await ref.frozen()
    feed(ref, 4, 5)
    moved = there.start(EntitySnapshot.decode(frozen.state), Fence(2))
    feed(moved, 3, 4)  # the source found the new server first
    for item in await ref.journal():
        feed(moved, item.seq)
    feed(moved, 5, 6)
    ticks(moved)
    ended = await moved.frozen()
    assert EntitySnapshot.decode(ended.state).world["applied"] == [[ADA, n] for n in range(1, 7)]
