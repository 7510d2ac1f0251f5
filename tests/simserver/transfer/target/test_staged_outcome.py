"""Asking what became of staged states: at once after a restart, later only about those that wait for long."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Message, StageInquiry, StageWord
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.transfer.target.staged_states import StagedState, Stages
from batonpass.simserver.transfer.target.unresolved import AFTER_NS, StagedOutcomeQueries
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import held_lease, ports_of
from tests.simserver.stage import ADA, BALL
from tests.simserver.stage import Stage as Scenery
from tests.simserver.transfer.source.test_departures import HERE


class Desk:
    """Home, and a server that has one state staged."""

    def __init__(self, system: System, directory: Path) -> None:
        self.asked: list[Message] = []
        self.told: list[tuple[str, str]] = []
        self.is_open = True
        self.stages = Stages(directory)
        self.holdings = Holdings(Scenery(system).environment, Written())
        self.counts: Counter[str] = Counter()

    def inquiries(self) -> StagedOutcomeQueries:
        home: Any = self
        return StagedOutcomeQueries(
            ports_of(HERE, home=home, counts=self.counts), held_lease(), self.holdings, self.stages, self.hear
        )

    async def ask(self, message: Message, trace: Trace, *, on_path: bool) -> OpenedMessage:
        await trio.lowlevel.checkpoint()
        if not self.is_open:
            raise HomeUnreachable("nobody")
        self.asked.append(message)
        return OpenedMessage(StageWord(transfer_id="transfer-1", word="void"), "alpha.h1", trace)

    async def hear(self, stage: StagedState, word: StageWord) -> None:
        self.told.append((stage.transfer_id, word.word))
        self.stages.drop(stage.transfer_id)

    async def serve(self, inquiries: StagedOutcomeQueries, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await inquiries.serve()


STAGED = StagedState("transfer-1", BALL, "alpha.s2", 3, 0, "ball", 7, "0" * 64, b"state")


@pytest.fixture
async def desk(system: System, tmp_path: Path) -> Desk:
    desk = Desk(system, tmp_path)
    await desk.stages.put(STAGED)
    return desk


async def test_failures_row_12_what_is_on_disk_at_the_start_is_asked_about_at_once(
    desk: Desk, autojump_clock: MockClock
) -> None:
    await desk.serve(desk.inquiries(), 0.5)
    (inquiry,) = desk.asked
    assert isinstance(inquiry, StageInquiry)
    assert (inquiry.fence, inquiry.target, inquiry.entity) == (Fence(3), HERE, BALL)
    assert (desk.told, len(desk.stages)) == ([("transfer-1", "void")], 0)


async def test_in_good_times_nobody_is_asked(desk: Desk, autojump_clock: MockClock) -> None:
    desk.stages.drop("transfer-1")
    inquiries = desk.inquiries()
    await desk.stages.put(STAGED)
    await desk.serve(inquiries, AFTER_NS / 1e9 - 1)
    assert desk.asked == []
    await desk.serve(inquiries, 3)
    assert len(desk.asked) == 1


async def test_a_home_that_is_away_is_asked_again(desk: Desk, autojump_clock: MockClock) -> None:
    inquiries = desk.inquiries()
    desk.is_open = False
    await desk.serve(inquiries, 3)
    desk.is_open = True
    await desk.serve(inquiries, 20)
    assert desk.told == [("transfer-1", "void")]


@pytest.mark.parametrize("how", ["lives", "lived"])
async def test_failures_row_13_nobody_asks_about_a_state_that_was_begun_with(
    desk: Desk, how: str, autojump_clock: MockClock
) -> None:
    inquiries = desk.inquiries()
    if how == "lives":
        desk.holdings.spawn(BALL, "ball", {}, Fence(4), Ownership(ADA, 1))
    else:
        desk.holdings.remember_lived(BALL, Fence(4))
    await desk.serve(inquiries, 20)
    assert (desk.asked, desk.stages.waiting(), len(desk.stages)) == ([], [], 1)


async def test_an_error_of_ours_over_one_state_is_counted_and_not_the_end(
    desk: Desk, autojump_clock: MockClock
) -> None:
    inquiries = desk.inquiries()

    async def fails(stage: StagedState, word: StageWord) -> None:
        raise ZeroDivisionError

    inquiries._told = fails
    await desk.serve(inquiries, 12)
    assert desk.counts["internal_error"] >= 2
