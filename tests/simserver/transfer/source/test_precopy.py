"""Large states at the old authority: simulated while they go ahead, frozen after that, and not for a silent target."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.machines.precopy import PRECOPY_BYTES, ChunkTable, parse_recipe_untrusted, split_untrusted
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Decline, Precopied, Precopy, StateTransfer
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.transfer.source import departure as departing
from batonpass.simserver.transfer.source.departure import DeparturePlan
from tests.simserver.stage import BALL
from tests.simserver.transfer.source.test_departures import HERE, PLAN, THERE, TRANSFER, Scene
from tests.simserver.transfer.source.test_freeze_budget import BUDGETED, slow_to_encode


class Ahead(Scene):
    """A ball with a large state, and a target that keeps what comes."""

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self.table = ChunkTable()

    def big(self) -> Holding:
        holding = self.spawn()
        holding.life.state_bytes = PRECOPY_BYTES
        return holding

    def came(self, kind: type[Any]) -> list[Any]:
        return [message for to, message in self.mail.sent if to == THERE and isinstance(message, kind)]

    def answer(self, number: int, sender: str = THERE) -> None:
        for message in self.came(Precopy):
            if message.round == number:
                self.table.keep(TRANSFER, HERE, split_untrusted(message.state, message.lengths))
        message = Precopied(transfer_id=TRANSFER, entity=BALL, round=number)
        self.departures.copied_ahead(OpenedMessage(message, sender, Trace(TRANSFER)), message)


@pytest.fixture
def scene(system: System) -> Ahead:
    return Ahead(system)


async def test_failures_row_26_it_is_simulated_until_its_state_is_there_and_then_the_rest_is_sent(
    scene: Ahead, autojump_clock: MockClock
) -> None:
    holding = scene.big()
    async with scene.served():
        scene.departures.begin(PLAN)
        assert scene.departures.is_under_way(BALL)
        scene.departures.begin(DeparturePlan("transfer-2", BALL, THERE))
        scene.answer(1, "alpha.s9")
        scene.answer(2)
        assert not len(scene.departures), "nobody else answers for the target, and nothing before it was asked"
        scene.answer(1)
        assert holding.life.frozen
        await trio.sleep(0.1)
        (message,) = scene.came(StateTransfer)
        assert message.state == b"", "nothing has changed since, so there is nothing to send"
        whole = scene.table.whole(TRANSFER, HERE, parse_recipe_untrusted(message.recipe), message.state)
        assert whole == holding.life.snapshot().encode()
        await trio.sleep(1)
        again = scene.came(StateTransfer)[-1]
        assert (again.recipe, again.state) == (b"", whole), "a repetition brings all of it"


async def test_a_round_that_is_lost_comes_again_and_a_target_that_says_nothing_is_not_waited_for(
    scene: Ahead, autojump_clock: MockClock
) -> None:
    holding = scene.big()
    for lives in range(2):
        async with scene.served():
            if not lives:
                scene.departures.begin(DeparturePlan(TRANSFER, BALL, THERE, ordered=True))
            await trio.sleep(0.6)
    assert len(scene.came(Precopy)) > 1
    async with scene.served():
        await trio.sleep(30)
    assert not scene.departures.is_under_way(BALL)
    assert not holding.life.frozen
    assert [message.reason for message in scene.mail.asked if isinstance(message, Decline)] == ["target_failed"]


async def test_what_has_left_or_stands_still_meanwhile_is_not_frozen_again(scene: Ahead) -> None:
    holding = scene.big()
    scene.departures.begin(PLAN)
    assert holding.life.freeze() is not None
    scene.answer(1)
    assert not len(scene.departures)
    scene.holdings.drop(BALL)
    assert not scene.departures.is_under_way(BALL)


async def test_failures_row_26_who_cannot_be_encoded_within_its_freeze_budget_is_not_frozen_for_it(
    scene: Ahead, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    holding = scene.big()
    monkeypatch.setattr(departing, "BUDGET_NS_PER_BYTE", 1 << 40)
    monkeypatch.setattr(Life, "freeze", None)
    slow_to_encode(scene, monkeypatch, 25_000_000)
    async with scene.served():
        scene.departures.begin(BUDGETED)
        assert (holding.life.frozen, scene.departures.is_under_way(BALL)) == (False, False)
        await trio.sleep(1)
    assert scene.mail.sent == [], "nothing is sent ahead of what will not come"
    assert [message.reason for message in scene.mail.asked if isinstance(message, Decline)] == ["freeze_budget"]
    assert scene.counts["internal_error"] == 0


async def test_who_can_be_encoded_within_its_freeze_budget_goes_ahead(
    scene: Ahead, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    holding = scene.big()
    monkeypatch.setattr(departing, "BUDGET_NS_PER_BYTE", 1 << 40)
    slow_to_encode(scene, monkeypatch, 20_000_000)
    async with scene.served():
        scene.departures.begin(BUDGETED)
        scene.answer(1)
        assert holding.life.frozen
