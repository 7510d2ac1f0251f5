"""Orders that come again: nothing moves twice for one, and what the log has not decided is begun whenever it can be."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from actors import System
from authority.epoch import Fence
from authority.hops import Trace
from authority.messages import Activated, DirectHandoff, HandoffReply, HandoffRequest
from authority.ownership import Ownership
from authority.sealing import Opened
from simserver import begun
from simserver.begun import Begun
from tests.simserver import test_preparing as direct
from tests.simserver.stage import ADA, BALL
from tests.simserver.test_departures import HERE, PLAN, THERE, TRANSFER, Scene

DIRECT = replace(direct.PLAN, ordered=True)


@pytest.fixture
def scene(system: System, autojump_clock: MockClock) -> Scene:
    return Scene(system)


def comes_back(scene: Scene, fence: Fence) -> None:
    """As whatever brings an entity does; it is delegated under its new fence."""
    scene.departures.superseded(BALL, fence)
    scene.holdings.drop(BALL)
    holding = scene.holdings.spawn(BALL, "ball", {}, fence, Ownership(ADA, 1))
    holding.delegated(("grant", "more"), (HERE, THERE), fence)


def passes(scene: Scene) -> set[Fence]:
    return {message.fence for _, message in scene.mail.sent if isinstance(message, DirectHandoff)}


async def passed(scene: Scene, has_heard: bool) -> None:
    """It has left directly, and maybe its target has said that it simulates."""
    scene.departures.begin(DIRECT)
    await direct.turn()
    if has_heard:
        message = Activated(transfer_id=DIRECT.transfer_id, entity=BALL, epoch=1, sub=1)
        scene.departures.activated(Opened(message, THERE, Trace(DIRECT.transfer_id)), message)


def answered(scene: Scene, outcome: str, epoch: int, reason: str = "", authority: str = THERE) -> None:
    reply = HandoffReply.model_validate(
        {
            "transfer_id": TRANSFER,
            "outcome": outcome,
            "reason": reason,
            "authority": authority,
            "epoch": epoch,
            "sub": 0,
        }
    )
    scene.departures.replied(Opened(reply, "alpha.h1", Trace(TRANSFER)), reply)


@pytest.mark.parametrize("is_near", [True, False])
@pytest.mark.parametrize("has_heard", [True, False])
async def test_failures_row_2_a_direct_order_that_comes_again_after_the_entity_came_back_moves_nothing_again(
    scene: Scene, is_near: bool, has_heard: bool
) -> None:
    scene.mail.is_near, scene.mail.is_open = is_near, False
    await direct.delegated(scene)
    async with scene.served():
        await passed(scene, has_heard)
        comes_back(scene, Fence(1, 2))
        scene.departures.begin(DIRECT)
        await direct.turn()
    assert (passes(scene), scene.departures.is_leaving(BALL)) == ({Fence(1, 1)}, False)
    assert scene.counts["order_repeated"] == 1


@pytest.mark.parametrize("has_heard", [True, False])
async def test_what_was_passed_and_given_back_by_the_log_goes_through_the_log_when_it_is_ordered_again(
    scene: Scene, has_heard: bool
) -> None:
    """The log may have learned of the pass before it raised the epoch, or not: it says what comes of the transfer."""
    scene.mail.is_open = False
    await direct.delegated(scene)
    async with scene.served():
        await passed(scene, has_heard)
        comes_back(scene, Fence(2))
        scene.mail.is_open = True
        scene.departures.begin(DIRECT)
        await direct.turn()
        asked = [message for message in scene.mail.asked if isinstance(message, HandoffRequest)]
    assert [(request.transfer_id, request.fence) for request in asked] == [(DIRECT.transfer_id, Fence(2))]
    assert (passes(scene), scene.departures.is_leaving(BALL)) == ({Fence(1, 1)}, True)


async def test_of_which_home_has_taken_the_report_nothing_is_begun_again_in_any_epoch(scene: Scene) -> None:
    await direct.delegated(scene)
    async with scene.served():
        await passed(scene, has_heard=True)
        await trio.sleep(1)
    comes_back(scene, Fence(5))
    scene.departures.begin(DIRECT)
    assert (len(scene.departures), scene.counts["order_repeated"]) == (0, 1)


@pytest.mark.parametrize(("outcome", "reason"), [("committed", ""), ("refused", "denied")])
async def test_what_the_log_has_decided_is_not_begun_again_in_any_epoch(
    scene: Scene, outcome: str, reason: str
) -> None:
    scene.spawn()
    scene.departures.begin(PLAN)
    answered(scene, outcome, 2, reason, THERE if outcome == "committed" else HERE)
    comes_back(scene, Fence(5))
    scene.departures.begin(PLAN)
    assert (len(scene.departures), scene.counts["order_repeated"]) == (0, 1)


@pytest.mark.parametrize(
    ("authority", "epoch", "back"), [(THERE, 2, Fence(2, 1)), (HERE, 2, Fence(2)), (THERE, 1, Fence(1, 2))]
)
async def test_who_asked_under_an_old_fence_begins_again_what_the_log_has_not_decided(
    scene: Scene, authority: str, epoch: int, back: Fence
) -> None:
    """It was taken from here, and maybe given back already, before the request was read."""
    scene.spawn()
    scene.departures.begin(PLAN)
    answered(scene, "refused", epoch, "not_holder", authority)
    assert len(scene.departures) == 0
    comes_back(scene, back)
    scene.departures.begin(PLAN)
    assert (len(scene.departures), scene.counts["order_repeated"]) == (1, 0)


def test_so_many_are_remembered_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begun, "MAX_BEGUN", 2)
    known = Begun()
    for transfer_id in ("one", "two", "one", "three"):
        known.begins(transfer_id, 0)
    known.decided("two")
    assert dict(known.items()).keys() == {"one", "three"}


def test_what_is_decided_stays_so_when_the_entity_is_taken_away() -> None:
    known = Begun()
    known.begins("one", 1)
    known.decided("one")
    known.taken("one")
    assert known.is_repetition("one", 7)
    known.taken("another")
    assert "another" not in known


def test_in_the_epoch_in_which_an_entity_was_taken_and_came_back_its_transfer_is_begun_again() -> None:
    known = Begun()
    known.begins("one", 1)
    assert known.is_repetition("one", 1)
    known.taken("one")
    assert "one" in known
    assert not known.is_repetition("one", 1)
