"""A state that could not leave its server is not committed; and where one stands all the same, it stops nobody else."""

import json
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.wire.recovery import RaisedItem
from batonpass.authority.wire.transfer import Collect, Collected, Decline
from batonpass.simserver.durability.put_aside import PutAside
from batonpass.simserver.entity import encoder as lives
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.table import Holding, Holdings, WorldFailed
from batonpass.simserver.failover.adoption import Adoption
from batonpass.simserver.world.portability import NotPortable
from batonpass.simserver.world.step import Timers
from tests.budget import examples
from tests.simserver.durability.test_replication import INTERVAL_S, Place, served
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import ports_of
from tests.simserver.stage import ADA, BALL, Stage, feed, inspect, ticks, with_actors
from tests.simserver.transfer.source.test_departures import PLAN, THERE, TRANSFER, Scene
from tests.simserver.transfer.source.test_precopy import Ahead
from tests.simserver.world.test_portability import VALUES, circle, nested

pytestmark = pytest.mark.usefixtures("either_kind")

POISON = {"said": "\ud800"}
# As committed before anybody looked, or too large to be looked at with every tick.
LARGE_POISON = {"said": [*range(lives.MAX_GLANCED), "\ud800"]}


class Chat:
    """Keeps what players say, which is JSON, as many worlds would have it."""

    schema_version = 1

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"said": params.get("said", [])}

    def step(self, state: Any, inputs: Any, dt_s: float) -> Any:
        return {"said": [*state["said"], *(json.loads(item.data) for item in inputs)][-10:]}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        return None


class Returns(Chat):
    """Returns what it is told to."""

    returned: Any = None

    def step(self, state: Any, inputs: Any, dt_s: float) -> Any:
        return self.returned

    def migrate(self, kind: str, state: Any, from_version: int) -> Any:
        return self.returned


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


# --- not committed ---------------------------------------------------------------------------------------------------


@with_actors
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (json.dumps("\ud800"), "cannot be written: UnicodeEncodeError"),
        ("[" * 450 + "]" * 450, "nested more than 399 levels deep"),
    ],
)
async def test_failures_row_41_what_players_give_makes_no_state_that_could_not_travel(
    system: System, data: str, why: str
) -> None:
    stage = Stage(system, world=Chat())
    actor = stage.start()
    feed(actor, 1, data=b'"hello"')
    ticks(actor)
    await inspect(actor)
    before = actor.life.world
    feed(actor, 2, data=data.encode())
    ticks(actor, 3)
    seen = await inspect(actor)
    assert seen["broken"].startswith("NotPortable: the world gave a state that cannot travel: it")
    assert why in seen["broken"]
    assert (seen["tick"], seen["pending_inputs"], seen["sources"][ADA]["applied"]) == (2, 1, 1)
    assert actor.life.world is before
    there = stage.life(Fence(2), EntitySnapshot.decode((await actor.frozen()).state))
    assert (there.world, there.quarantine_reason, len(there.inbox.pending)) == ({"said": ["hello"]}, seen["broken"], 1)
    assert there.release(discard_inputs=True)
    assert not there.quarantine_reason, "people may let it go on without what it was given"


@settings(max_examples=examples(100))
@given(VALUES)
def test_failures_row_41_whatever_a_world_returns_is_read_again_or_is_not_committed(value: Any) -> None:
    nobody: Any = None
    stage = Stage(nobody, world=Chat())
    life = stage.life(Fence(1), stage.fresh())
    before = life.encoded()
    try:
        life.require_portable(value)
    except NotPortable as error:
        life.enter_quarantine(str(error))
        assert life.world == EntitySnapshot.decode(before).world
    else:
        life.commit(value, 1)
    frozen = life.freeze()
    assert frozen is not None
    assert stage.life(Fence(2), EntitySnapshot.decode(frozen.state)).encoded() == frozen.state


@pytest.mark.parametrize("poison", [POISON, object(), nested(500), circle()])
async def test_nothing_begins_with_it(system: System, poison: Any) -> None:
    world = Chat()
    holdings = Holdings(Stage(system, world=world).environment, Written())
    with pytest.raises(WorldFailed, match="NotPortable"):
        holdings.spawn(BALL, "chat", {"said": poison}, Fence(1))
    assert len(holdings) == 0


@pytest.mark.parametrize("poison", [POISON, nested(500)])
def test_what_cannot_be_brought_into_the_present_form_for_it_stays_as_it_came(poison: Any) -> None:
    nobody: Any = None
    world = Returns()
    stage = Stage(nobody, world=world)
    came = stage.fresh()
    world.schema_version, world.returned = 2, poison
    life = stage.life(Fence(1), came)
    assert (life.world, life.schema, life.quarantine.wherever) == (came.world, 1, ""), "another server may be able to"
    assert "NotPortable" in life.quarantine_reason


@with_actors
async def test_what_is_no_plain_data_is_encoded_with_every_tick_unless_it_is_long(system: System) -> None:
    world = Returns()
    stage = Stage(system, world=world)
    actor = stage.start()
    world.returned = {"seen": {1, 2}, "said": "\ud800"}
    ticks(actor)
    assert (await inspect(actor))["broken"]
    actor.life.release()
    world.returned = {"seen": {1, 2}, "kept": bytes(lives.MAX_TRIED_BYTES)}
    ticks(actor)
    await inspect(actor)
    world.returned = {"seen": {1, 2}, "said": "\ud800"}
    ticks(actor)
    seen = await inspect(actor)
    assert (seen["broken"], seen["tick"]) == ("", 3), "that is found when it is encoded"


async def test_a_state_that_is_changed_where_it_stands_is_found_when_it_is_encoded(system: System) -> None:
    """Worlds are not to do so: there is no state of before to stand still with."""
    stage = Stage(system, world=(world := Returns()))
    actor = stage.start()
    world.returned = actor.life.world
    world.returned["said"] = "\ud800"
    ticks(actor)
    assert not (await inspect(actor))["broken"]
    assert actor.life.encoded_if_portable() is None
    assert "its state cannot travel" in actor.life.quarantine_reason


def test_no_timer_has_a_name_that_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="no timer"):
        Timers({}, 1).set("\ud800", 5)


# --- found when it is encoded ----------------------------------------------------------------------------------------


@pytest.fixture
def place(system: System) -> Place:
    return Place(system)


def five(place: Place, *poisoned: int) -> list[Holding]:
    holdings = [place.spawn(f"alpha.ball-{number}") for number in range(5)]
    for number in poisoned:
        life = holdings[number].life
        life.require_portable(LARGE_POISON)
        life.commit(LARGE_POISON, 1)
    return holdings


@pytest.mark.parametrize("checkpoint_s", [0.0, INTERVAL_S])
async def test_failures_row_41_one_that_cannot_be_encoded_ends_the_copies_of_no_other(
    place: Place, autojump_clock: MockClock, checkpoint_s: float
) -> None:
    async with served(place.replication(checkpoint_s=checkpoint_s)):
        holdings = five(place, 2)
        for _ in range(8):
            await trio.sleep(INTERVAL_S)
            for holding in holdings:
                if not holding.life.quarantine_reason:
                    holding.life.commit({"n": holding.life.tick}, 1)
    others = {f"alpha.ball-{number}" for number in (0, 1, 3, 4)}
    assert {item.entity for item in place.copied} == others
    assert {entity for entity, _ in place.checkpoints} == (others if checkpoint_s else set())
    assert "its state cannot travel" in holdings[2].life.quarantine_reason
    assert place.stage.counts["entity_broken"] == 1
    if not checkpoint_s:
        assert place.stage.counts["state_not_portable"] == 2, "found, and looked at once more since it stands still"


async def test_states_that_cannot_be_compared_are_copied_anew(place: Place, autojump_clock: MockClock) -> None:
    class Odd(dict[str, Any]):
        def __eq__(self, other: object) -> bool:
            raise RecursionError

        __hash__ = None

    holding = place.spawn()
    async with served(place.replication()):
        for _ in range(3):
            holding.life.commit(Odd(), 1)
            await trio.sleep(INTERVAL_S)
    assert len(place.copied) >= 3


async def test_failures_row_41_a_server_that_stops_writes_all_others_down(place: Place) -> None:
    five(place, 0, 3)
    place.replication(checkpoint_s=1.0).check_in_all()
    assert [entity for entity, _ in place.checkpoints] == [f"alpha.ball-{number}" for number in (1, 2, 4)]


def recovery(place: Place, sent: list[Any] | None = None) -> Adoption:
    place.lease.incarnation = 1
    nobody: Any = SimpleNamespace(
        step_down=lambda: None,
        is_leaving=lambda _: False,
        fence_raised=lambda *_: None,
        unsettled=SimpleNamespace(hurry=lambda _: None),
        handed_on=SimpleNamespace(has=lambda *_: False),
        of=lambda *_: None,
        send=lambda message, *_, **__: None if sent is None else sent.append(message),
    )
    return Adoption(
        ports_of(outbox=nobody), place.lease, place.holdings, place.replication(), nobody, nobody, nobody, PutAside()
    )


async def test_failures_row_41_a_server_whose_lease_is_over_gives_all_up(place: Place) -> None:
    five(place, 1)
    recovery(place).step_down()
    assert len(place.holdings) == 0
    assert [place.table.get(f"alpha.ball-{number}") is None for number in range(5)] == [False, True, *[False] * 3]
    assert place.holdings.lived("alpha.ball-1") == Fence(1)


@pytest.mark.parametrize("epoch", [1, 2])
async def test_failures_row_41_whoever_is_asked_for_copies_answers_with_the_others(place: Place, epoch: int) -> None:
    """Home waits for every answer of the servers that it asks, and nobody goes on with anything until then."""
    five(place, 0)
    sent: list[Any] = []
    items = [RaisedItem(entity=f"alpha.ball-{number}", epoch=epoch, sub=2**63 - 1) for number in range(3)]
    recovery(place, sent).collect(Collect(number=1, items=items), "alpha.h1")
    (answer,) = sent
    assert isinstance(answer, Collected)
    assert [item.entity for item in answer.items] == ["alpha.ball-1", "alpha.ball-2"]


@pytest.mark.parametrize("kind", [Scene, Ahead])
async def test_failures_row_41_an_order_to_hand_it_over_is_declined(
    system: System, autojump_clock: MockClock, kind: type[Scene]
) -> None:
    scene = kind(system)
    holding = scene.big() if isinstance(scene, Ahead) else scene.spawn()
    holding.life.commit(LARGE_POISON, 1)
    async with scene.served():
        scene.departures.begin(replace(PLAN, ordered=True))
        await trio.sleep(0.5)
        scene.departures.wants_to_go(BALL, THERE)
        await trio.sleep(0.5)
    told = [message for message in scene.mail.asked if isinstance(message, Decline)]
    assert [(decline.transfer_id, decline.reason) for decline in told] == [(TRANSFER, Reason.INCOMPATIBLE)]
    assert (holding.life.frozen, scene.departures.under_way, scene.counts["internal_error"]) == (False, 0, 0)
    assert holding.life.quarantine_reason
    assert not scene.departures.may_be_moved(BALL), "nor do drain and balance try again at once"


async def test_it_can_be_looked_at_and_is_shown_without_its_state(system: System) -> None:
    stage = Stage(system)
    actor = stage.start()
    assert actor.life.inspected(with_state=True)["state"]
    actor.life.commit(LARGE_POISON, 1)
    seen = actor.life.inspected(with_state=True)
    assert (seen["state"], seen["tick"]) == (None, 1)
