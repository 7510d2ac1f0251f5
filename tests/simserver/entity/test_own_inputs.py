"""Inputs of the server that simulates the entity: they need no owner, and move with the entity as all others do."""

import re

import pytest

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.names import NAME_PATTERN
from batonpass.authority.wire.transfer import InputAck
from batonpass.simserver.entity.feed import Committed
from batonpass.simserver.entity.inputs import MAX_PENDING, EntityInbox
from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.entity.snapshot import EntitySnapshot
from tests.simserver.stage import ADA, Stage, Tally, feed, inspect, ticks

OWN_LOG = "batonpass.simserver.entity.own_inputs"

pytestmark = pytest.mark.usefixtures("either_kind")


async def test_they_are_applied_in_order_beside_those_of_the_owner_and_the_feed_has_them(system: System) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    heard = stage.environment.feed.follow("test", lambda: None)
    assert [actor.life.take_own_input(b"one"), actor.life.take_own_input(b"two")] == [1, 2]
    feed(actor, 1)
    ticks(actor)
    await inspect(actor)
    assert actor.life.world["applied"] == [[OWN_SOURCE, 1], [OWN_SOURCE, 2], [ADA, 1]]
    batch = heard.take()
    assert batch is not None
    [committed] = [one for one in batch.events if isinstance(one, Committed)]
    assert [(one.source, one.data) for one in committed.inputs[:2]] == [(OWN_SOURCE, b"one"), (OWN_SOURCE, b"two")]


async def test_the_server_is_told_how_far_they_are_applied_and_one_listener_that_fails_is_dropped_alone(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    stage, heard = Stage(system, world=Tally()), list[tuple[int, int]]()

    def fails(_ack: InputAck) -> None:
        raise ZeroDivisionError

    stage.environment.own_inputs.listen(fails)
    stage.environment.own_inputs.listen(lambda ack: heard.append((ack.applied, ack.durable)))
    actor = stage.start(stage.fresh("tally"))
    for _ in range(2):
        actor.life.take_own_input(b"x")
        ticks(actor)
        await inspect(actor)
    assert heard == [(1, 1), (2, 2)], "where no copies are kept all is as durable as it can be"
    # A busy machine may have a record of a scheduler that was held up.
    assert len([record for record in caplog.records if record.name == OWN_LOG]) == 1


async def test_no_peer_is_told_of_them_and_none_can_give_inputs_as_the_server(system: System) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    actor.life.take_own_input(b"one")
    ticks(actor)
    await inspect(actor)
    actor.life.acceptance.made_durable(actor.life, {OWN_SOURCE: 1})
    assert not stage.acks
    assert not re.fullmatch(NAME_PATTERN, OWN_SOURCE)


async def test_an_entity_without_an_owner_takes_them(system: System) -> None:
    stage = Stage(system, world=Tally())
    nobodys = EntitySnapshot("tally", 0, {"applied": []}, EntityInbox().to_data(), Ownership("", 2))
    actor = stage.start(nobodys)
    assert actor.life.take_own_input(b"one") == 1
    ticks(actor)
    await inspect(actor)
    assert actor.life.world["applied"] == [[OWN_SOURCE, 1]]


async def test_a_frozen_or_stopped_entity_takes_none_and_what_waited_is_applied_where_it_went(system: System) -> None:
    world = Tally()
    stage = Stage(system, world=world)
    actor = stage.start(stage.fresh("tally"))
    actor.life.take_own_input(b"one")
    frozen = await actor.frozen()
    assert actor.life.take_own_input(b"two") == 0
    there = Stage(system, "alpha.s2", Tally())
    arrived = there.start(EntitySnapshot.decode(frozen.state), Fence(2))
    assert arrived.life.take_own_input(b"two") == 2
    ticks(arrived)
    await inspect(arrived)
    assert arrived.life.world["applied"] == [[OWN_SOURCE, 1], [OWN_SOURCE, 2]]
    arrived.life.enter_quarantine("people have to look at it")
    assert arrived.life.take_own_input(b"three") == 0


async def test_more_than_may_wait_for_a_tick_are_refused_and_counted(system: System) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    for _ in range(MAX_PENDING):
        assert actor.life.take_own_input(b"x")
    assert actor.life.take_own_input(b"x") == 0
    assert stage.counts["input_full"] == 1


async def test_another_owner_takes_back_what_the_last_one_gave_and_not_what_the_server_did(system: System) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    feed(actor, 1)
    assert actor.life.take_own_input(b"mine") == 1
    actor.life.owned(Ownership("alpha.bob", actor.life.ownership.rev + 1))
    ticks(actor)
    await inspect(actor)
    assert actor.life.world["applied"] == [[OWN_SOURCE, 1]]
    assert actor.life.take_own_input(b"more") == 2
