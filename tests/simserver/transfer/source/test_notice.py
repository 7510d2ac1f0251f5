"""Notice before an entity leaves: whoever was told may finish, lets it go early, and cannot hold it back."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.wire.transfer import ImminentLoss
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.notice import OWNER, WORLD, DrainNotices
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step
from tests.simserver.stage import ADA, BALL, Stage, Tally, inspect, ticks
from tests.simserver.transfer.source.test_departures import THERE, TRANSFER, Scene

pytestmark = pytest.mark.usefixtures("either_kind")
alone = pytest.mark.parametrize("either_kind", [False], indirect=True, ids=["each"])
"""Of worlds that are told nothing: a batch world is told of every entity that leaves (`BatchStep.leaving`)."""

PLAN = DeparturePlan(TRANSFER, BALL, THERE, notice_ms=2000)


class Finishing(Tally):
    """A world that needs three ticks to finish."""

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"seen": []}

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        seen = [*state["seen"], step.leaves_in_ms]
        if len([ms for ms in seen if ms is not None]) == 3:
            step.ready()
        return {"seen": seen}


@pytest.fixture
def scene(system: System) -> Scene:
    return Scene(system)


def test_it_leaves_when_all_that_were_told_are_ready_or_in_time() -> None:
    notices, left = DrainNotices(), list[str]()
    notices.give("a", set(), 10, lambda: left.append("a"))
    assert (left, "a" in notices) == (["a"], False)
    notices.give("b", {WORLD, OWNER}, 10, lambda: left.append("b"))
    notices.give("c", {OWNER}, 20, lambda: left.append("c"))
    notices.ready("b", WORLD)
    notices.ready("b", WORLD)
    notices.ready("nobody", WORLD)
    notices.over("b", 9)
    assert (left, notices.waiting()) == (["a"], {"b": 10, "c": 20})
    notices.ready("b", OWNER)
    notices.over("c", 20)
    notices.over("c", 21)
    assert (left, notices.waiting()) == (["a", "b", "c"], {})


@alone
async def test_the_owner_is_told_and_the_entity_goes_on_until_it_lets_go(
    scene: Scene, autojump_clock: MockClock
) -> None:
    holding = scene.spawn()
    async with scene.served():
        scene.departures.begin(PLAN)
        scene.departures.begin(PLAN)
        told = [message for to, message in scene.mail.sent if to == ADA]
        assert told == [ImminentLoss(entity=BALL, target=THERE, within_ms=2000, epoch=1, sub=0)]
        await trio.sleep(1)
        scene.departures.let_go(BALL, "alpha.eve")
        assert (holding.life.frozen, scene.departures.is_under_way(BALL)) == (False, True)
        scene.departures.let_go(BALL, ADA)
        assert holding.life.frozen


async def test_nobody_can_hold_it_back_for_longer_than_the_notice(scene: Scene, autojump_clock: MockClock) -> None:
    holding = scene.spawn()
    async with scene.served():
        scene.departures.begin(PLAN)
        await trio.sleep(1.9)
        assert not holding.life.frozen
    async with scene.served():
        await trio.sleep(0.2)
        assert (holding.life.frozen, holding.life.leaves_at_ns) == (True, 0)


async def test_the_world_is_told_with_every_step_and_says_when_it_is_ready(system: System) -> None:
    stage = Stage(system, world=Finishing())
    left: list[str] = []
    object.__setattr__(stage.environment, "ready_to_leave", left.append)
    actor = stage.start(stage.fresh("tally"))
    ticks(actor, 2)
    await inspect(actor)
    assert actor.life.can_be_told
    actor.life.leaves_at_ns = stage.now_ns + 5_000_000_000
    ticks(actor, 4)
    await inspect(actor)
    seen = actor.life.world["seen"]
    assert seen[:2] == [None, None]
    assert [ms is not None and 4990 <= ms <= 5000 for ms in seen[2:]] == [True] * 4
    assert left == [BALL]


@alone
async def test_without_anybody_to_tell_it_leaves_at_once(scene: Scene, autojump_clock: MockClock) -> None:
    holding = scene.spawn()
    holding.life.acceptance.ownership = holding.life.ownership._replace(owner="")
    scene.departures.begin(PLAN)
    assert holding.life.frozen
