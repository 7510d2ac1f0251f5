"""What an entity waits for before it is frozen: its turn, and room at its target."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import (
    Decline,
    HandoffReply,
    NotHere,
)
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.departures import DepartureLimits
from tests.simserver.stage import ADA, BALL
from tests.simserver.transfer.source.test_departures import (
    HERE,
    PLAN,
    THERE,
    TRANSFER,
    Scene,
    activated,
    refusal,
    scene,
)

__all__ = ["scene"]


async def test_who_finds_no_place_goes_on_living_here_and_leaves_when_it_is_its_turn(
    scene: Scene,
) -> None:
    scene.limit(DepartureLimits(1))
    first, second = scene.spawn(), scene.holdings.spawn("alpha.two", "ball", {}, Fence(1), Ownership(ADA, 1))
    waiting = DeparturePlan("transfer-2", "alpha.two", THERE)
    scene.departures.begin(replace(PLAN, ordered=True))
    scene.departures.begin(waiting)
    scene.departures.begin(waiting)
    scene.departures.wants_to_go("alpha.two", THERE)
    assert (first.life.frozen, second.life.frozen) == (True, False)
    assert scene.counts == {"departure_crowded": 1, "order_busy": 1}
    scene.departures.replied(*refusal())
    assert (first.life.frozen, second.life.frozen) == (False, True)
    scene.departures.wants_to_go(BALL, THERE)
    assert not first.life.frozen, "the world says so again with the next tick"
    assert scene.counts["departure_crowded"] == 2


async def test_of_large_states_the_next_is_simulated_until_the_one_before_has_arrived(scene: Scene) -> None:
    first, second = scene.spawn(), scene.holdings.spawn("alpha.two", "ball", {}, Fence(1), Ownership(ADA, 1))
    scene.limit(DepartureLimits(8, first.life.state_bytes))
    scene.departures.begin(PLAN)
    scene.departures.begin(DeparturePlan("transfer-2", "alpha.two", THERE))
    assert (first.life.frozen, second.life.frozen) == (True, False)
    scene.departures.activated(*activated())
    await trio.testing.wait_all_tasks_blocked()
    assert second.life.frozen


async def test_a_large_state_whose_target_does_not_answer_keeps_no_other_from_leaving(
    scene: Scene, autojump_clock: MockClock
) -> None:
    first, second = scene.spawn(), scene.holdings.spawn("alpha.two", "ball", {}, Fence(1), Ownership(ADA, 1))
    scene.limit(DepartureLimits(8, first.life.state_bytes))
    scene.mail.under_way.add(TRANSFER)
    async with scene.served():
        scene.departures.begin(PLAN)
        scene.departures.begin(DeparturePlan("transfer-2", "alpha.two", THERE))
        await trio.sleep(5)
        assert (first.life.frozen, second.life.frozen) == (True, False)
        scene.mail.under_way.clear()
        await trio.sleep(2)
        assert (first.life.frozen, second.life.frozen) == (True, True)


async def test_a_plan_that_fails_gives_its_place_back(scene: Scene) -> None:
    scene.limit(DepartureLimits(1))
    scene.spawn().life.freeze()
    scene.departures.begin(PLAN)
    assert scene.counts == {"order_busy": 1}
    other = scene.holdings.spawn("alpha.two", "ball", {}, Fence(1), Ownership(ADA, 1))
    scene.departures.begin(DeparturePlan("transfer-2", "alpha.two", THERE))
    assert other.life.frozen


# --- asking for room --------------------------------------------------------------------------------------------------


async def test_an_entity_is_simulated_while_its_target_is_asked_for_room(scene: Scene) -> None:
    holding = scene.spawn()
    scene.rooms.reason = None
    scene.departures.begin(PLAN)
    scene.departures.begin(PLAN)
    scene.departures.wants_to_go(BALL, THERE)
    assert (holding.life.frozen, scene.mail.sent, len(scene.rooms.kept)) == (False, [], 1)
    scene.rooms.kept[0]("")
    assert (holding.life.frozen, len(scene.departures)) == (True, 1)


@pytest.mark.parametrize("reason", [Reason.CAPACITY, Reason.INCOMPATIBLE, Reason.TARGET_FAILED])
async def test_failures_rows_27_and_28_what_the_target_refuses_is_declined_before_a_freeze(
    scene: Scene, reason: Reason
) -> None:
    holding = scene.spawn()
    scene.rooms.reason = reason.value
    scene.departures.begin(replace(PLAN, ordered=True))
    scene.departures.wants_to_go(BALL, THERE)
    assert (holding.life.frozen, len(scene.departures), holding.fence) == (False, 0, Fence(1))
    async with scene.served():
        await trio.sleep(1)
    told = [message for message in scene.mail.asked if isinstance(message, Decline)]
    assert [(decline.transfer_id, decline.reason) for decline in told] == [(TRANSFER, reason)]
    assert scene.counts[f"declined_{reason}"] == 2, "of the world's own wish nobody else knows"


async def test_an_order_to_go_where_the_entity_is_already_is_declined(scene: Scene) -> None:
    """It came here while a master was asked, say: who asked would wait for a result for ever."""
    holding = scene.spawn()
    scene.departures.begin(replace(PLAN, target=HERE, ordered=True))
    assert (holding.life.frozen, len(scene.departures), scene.rooms.kept) == (False, 0, [])
    async with scene.served():
        await trio.sleep(1)
    told = [message for message in scene.mail.asked if isinstance(message, Decline)]
    assert [(decline.transfer_id, decline.reason) for decline in told] == [(TRANSFER, Reason.SAME_SERVER)]


async def test_a_home_that_is_away_hears_of_what_was_declined_when_it_is_back(
    scene: Scene, autojump_clock: MockClock
) -> None:
    scene.spawn()
    scene.rooms.reason, scene.mail.is_open = "capacity", False
    async with scene.served():
        scene.departures.begin(replace(PLAN, ordered=True))
        await trio.sleep(5)
    scene.mail.is_open = True
    async with scene.served():
        await trio.sleep(5)
    assert sum(isinstance(message, Decline) for message in scene.mail.asked) == 1


async def test_an_entity_that_left_while_its_target_was_asked_is_not_handed_over(scene: Scene) -> None:
    scene.spawn()
    scene.rooms.reason = None
    scene.departures.begin(PLAN)
    scene.holdings.drop(BALL)
    scene.rooms.kept[0]("")
    assert (len(scene.departures), scene.counts["order_not_here"]) == (0, 1)


@pytest.mark.parametrize("fails", [False, True])
async def test_what_could_not_begin_is_begun_when_it_is_ordered_again(scene: Scene, fails: bool) -> None:
    life = scene.spawn().life
    life.frozen = not fails
    if fails:
        scene.departures._depart = None  # type: ignore[assignment]  # its caller has an error of ours
    scene.departures.begin(PLAN)
    assert len(scene.departures) == 0
    life.frozen = False
    scene.departures.__dict__.pop("_depart", None)
    scene.departures.begin(PLAN)
    assert (len(scene.departures), scene.counts["order_repeated"]) == (1, 0)


async def test_what_was_taken_in_the_midst_of_it_and_came_back_is_begun_when_it_is_ordered_again(scene: Scene) -> None:
    scene.spawn()
    scene.departures.begin(PLAN)
    scene.departures.superseded(BALL, Fence(5))
    assert len(scene.departures) == 0
    scene.holdings.drop(BALL)
    scene.holdings.spawn(BALL, "ball", {}, Fence(5), Ownership(ADA, 1))
    scene.departures.begin(PLAN)
    assert (len(scene.departures), scene.counts["order_repeated"]) == (1, 0)


async def test_failures_row_36_a_frozen_copy_of_what_was_deleted_ends(scene: Scene) -> None:
    holding = scene.spawn()
    holding.life.take_input(ADA, 1, 1, b"")
    scene.departures.begin(PLAN)
    reply = HandoffReply(transfer_id=TRANSFER, outcome="refused", reason="gone", authority="", epoch=2, sub=0)
    scene.departures.replied(OpenedMessage(reply, "alpha.h1", Trace(TRANSFER)), reply)
    assert (scene.holdings.get(BALL), len(scene.departures), holding.life.over) == (None, 0, True)
    assert (ADA, NotHere(entity=BALL, epoch=2)) in scene.mail.sent
