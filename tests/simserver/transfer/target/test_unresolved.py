"""Asking home about hand-overs that did not come to their end: chains, leave without a state, and leave too late."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.machines.target import Permission
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Message, Passed, ReportReply, StageWord, Stranded
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.transfer.target import unresolved
from batonpass.simserver.transfer.target.unresolved import UnresolvedTransfers, Unsettled
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import TrioClock, held_lease, ports_of
from tests.simserver.stage import ADA, BALL, Stage
from tests.simserver.transfer.source.test_departures import HERE

pytestmark = pytest.mark.usefixtures("either_kind")

GIVEN = Permission("transfer-1", Fence(3), "0" * 64, "alpha.s2")
STATE_AFTER_S, CHAIN_AFTER_S = 2.0, 1.0


class Desk:
    """Home, and a server with a loose end."""

    def __init__(self, system: System) -> None:
        self.asked: list[Message] = []
        self.word = "open"
        self.is_open = True
        self.holdings = Holdings(Stage(system).environment, Written())
        self.unsettled = Unsettled(TrioClock())
        self.waited_with: Permission | None = GIVEN
        home: Any = self
        self.ends = UnresolvedTransfers(
            ports_of(HERE, home=home), held_lease(7), self.holdings, self.unsettled, self.still_wants
        )

    def still_wants(self, entity: str, permission: Permission) -> bool:
        return (entity, permission) == (BALL, self.waited_with)

    async def ask(self, message: Message, trace: Trace, *, on_path: bool) -> OpenedMessage:
        await trio.lowlevel.checkpoint()
        if not self.is_open:
            raise HomeUnreachable("nobody")
        self.asked.append(message)
        if isinstance(message, Passed):
            return OpenedMessage(ReportReply(transfer_id=message.transfer_id), "alpha.h1", trace)
        return OpenedMessage(StageWord(transfer_id="transfer-1", word=self.word), "alpha.h1", trace)  # type: ignore[arg-type]

    async def serve(self, seconds: float) -> list[Message]:
        """What is asked meanwhile."""
        self.asked = []
        with trio.move_on_after(seconds):
            await self.ends.serve()
        return self.asked

    def passed_here(self) -> Holding:
        """The entity comes by a pass."""
        holding = self.holdings.spawn(BALL, "ball", {}, Fence(3, 1), Ownership(ADA, 1))
        holding.delegated(("grant", "pass"), (HERE, "alpha.s2"), holding.fence)
        self.unsettled.begun(BALL, by_chain=True)
        return holding


@pytest.fixture
async def desk(system: System, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(unresolved, "STATE_AFTER_NS", round(STATE_AFTER_S * 1e9))
    monkeypatch.setattr(unresolved, "CHAIN_AFTER_NS", round(CHAIN_AFTER_S * 1e9))
    return Desk(system)


async def test_a_chain_that_nobody_told_of_is_told_until_there_is_a_new_grant(desk: Desk) -> None:
    holding = desk.passed_here()
    assert await desk.serve(CHAIN_AFTER_S - 0.1) == [], "who passed it tells the log, in good times"
    told = await desk.serve(3 * CHAIN_AFTER_S)
    assert [(m.entity, m.chain) for m in told if isinstance(m, Passed)] == [(BALL, ["grant", "pass"])] * len(told)
    assert len(told) > 1
    holding.delegated(("new grant",), holding.group, holding.fence)
    assert await desk.serve(3.0) == []


async def test_a_chain_is_told_at_once_when_home_asks_who_has_it(desk: Desk) -> None:
    desk.passed_here()
    desk.unsettled.hurry(BALL)
    assert len(await desk.serve(0.1)) == 1


async def test_who_has_handed_it_on_says_nothing_any_more(desk: Desk) -> None:
    desk.passed_here()
    desk.holdings.leave(BALL, "alpha.s2", Fence(3, 2))
    assert await desk.serve(3.0) == []


async def test_leave_without_a_state_is_said_when_it_takes_too_long(desk: Desk) -> None:
    desk.unsettled.wants(BALL, GIVEN)
    desk.unsettled.wants(BALL, GIVEN)
    assert await desk.serve(STATE_AFTER_S - 0.1) == []
    asked = await desk.serve(1.0)
    expected = Stranded(transfer_id="transfer-1", entity=BALL, epoch=3, sub=0, target=HERE, incarnation=7, never=False)
    assert asked == [expected]
    assert await desk.serve(STATE_AFTER_S + 1.0) == [expected], "its source is alive: it may come yet"
    desk.word = "void"
    await desk.serve(STATE_AFTER_S + 1.0)
    assert await desk.serve(5.0) == []


async def test_home_is_asked_again_if_it_cannot_be_reached(desk: Desk) -> None:
    desk.unsettled.wants(BALL, GIVEN)
    desk.is_open = False
    await desk.serve(STATE_AFTER_S + 1.0)
    desk.is_open = True
    assert len(await desk.serve(STATE_AFTER_S + 1.0)) == 1


@pytest.mark.parametrize("why", ["begun", "another leave"])
async def test_leave_that_was_used_or_is_of_the_past_is_not_asked_about(desk: Desk, why: str) -> None:
    desk.unsettled.wants(BALL, GIVEN)
    if why == "begun":
        desk.unsettled.begun(BALL, by_chain=False)
    else:
        desk.waited_with = None
    assert await desk.serve(5.0) == []


async def test_leave_that_came_too_late_is_given_back_once_each_time_it_comes(desk: Desk) -> None:
    for _ in range(2):
        desk.unsettled.wants(BALL, GIVEN, never=True)
        asked = await desk.serve(3.0)
        assert [message.never for message in asked if isinstance(message, Stranded)] == [True]


def test_the_table_forgets_the_oldest_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unresolved, "MAX_LOOSE", 2)

    class Stopped(TrioClock):
        def monotonic_ns(self) -> int:
            return 0

    table = Unsettled(Stopped())
    for number in range(5):
        table.wants(f"alpha.e{number}", GIVEN, never=True)
        table.begun(f"alpha.c{number}", by_chain=True)
        table.hurry(f"alpha.c{number}")
    assert [entity for entity, _, _ in table.wanting()] == ["alpha.e3", "alpha.e4"]
    assert list(table.chains()) == ["alpha.c3", "alpha.c4"]
