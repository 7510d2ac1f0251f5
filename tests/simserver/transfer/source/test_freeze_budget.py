"""How long an entity may be frozen until the commit, and what keeps to that."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.fence import Fence
from batonpass.authority.machines.source import Mode
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import (
    Decline,
    HandoffAbort,
    Staged,
)
from batonpass.simserver.entity.state import Life
from batonpass.simserver.transfer.source import departure as departing
from tests.simserver.ports import TrioClock, clock_of
from tests.simserver.stage import BALL
from tests.simserver.transfer.source.test_departures import HERE, PLAN, THERE, TRANSFER, Scene, refusal, scene

__all__ = ["scene"]


async def test_failures_row_26_the_freeze_budget_of_a_plan_ends_its_staging(
    scene: Scene, autojump_clock: MockClock
) -> None:
    holding = scene.spawn()
    async with scene.served():
        scene.stage.now_ns = TrioClock().monotonic_ns()
        scene.departures.begin(replace(PLAN, mode=Mode.STAGED, freeze_budget_ms=50))
        await trio.sleep(0.04)
        assert [message.type for _, message in scene.mail.sent] == ["stage"]
        await trio.sleep(0.02)
    (abort,) = [message for message in scene.mail.asked if isinstance(message, HandoffAbort)]
    assert (abort.reason, holding.life.frozen) == ("freeze_budget", True)
    scene.departures.replied(*refusal())
    assert not holding.life.frozen
    assert scene.mail.sent[-1][1].type == "stage_discard"


class SlowClock(TrioClock):
    """Looks at a clock beside which something takes time without that anybody waits."""

    def __init__(self) -> None:
        self.took_ns = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.took_ns


def slow_to_encode(scene: Scene, monkeypatch: pytest.MonkeyPatch, took_ns: int) -> None:
    """To encode a state takes so long from now on."""
    clock, encoded_state = SlowClock(), Life.encoded_state

    def slowly(life: Life) -> bytes:
        clock.took_ns += took_ns
        scene.stage.now_ns = clock.monotonic_ns()
        return encoded_state(life)

    scene.departures._clock = scene.departures._preparation._ahead._clock = clock_of(clock)
    monkeypatch.setattr(scene.departures._alarm, "_clock", clock)
    monkeypatch.setattr(Life, "encoded_state", slowly)


BUDGETED = replace(PLAN, ordered=True, freeze_budget_ms=50)


@pytest.mark.parametrize("path", ["home", "direct"])
async def test_failures_row_26_a_large_state_with_a_freeze_budget_is_there_before_the_commit(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, path: str
) -> None:
    holding = scene.spawn()
    holding.delegated(("grant",), (HERE, THERE), holding.fence)
    scene.stage.now_ns = TrioClock().monotonic_ns()
    monkeypatch.setattr(departing, "BUDGET_NS_PER_BYTE", 50_000_000 // (holding.life.state_bytes - 1))
    async with scene.served():
        scene.departures.begin(replace(PLAN, freeze_budget_ms=50, direct=path == "direct"))
        await trio.sleep(0.001)
        assert [message.type for _, message in scene.mail.sent] == ["stage"]
        assert not scene.mail.asked, "it is asked for when the state is there"
        ((to, stage),) = scene.mail.sent
        word = Staged(transfer_id=TRANSFER, entity=BALL, epoch=1, sub=0, state_hash=stage.state_hash)
        scene.departures.staged(OpenedMessage(word, to, Trace(TRANSFER)), word)
        await trio.sleep(0.001)
    asked = [message.type for _, message in scene.mail.sent[1:]] + [message.type for message in scene.mail.asked]
    assert asked == [{"home": "handoff", "direct": "direct"}[path]]


async def test_small_states_and_those_without_a_freeze_budget_are_handed_over_as_was_asked(scene: Scene) -> None:
    assert (BUDGETED.within_budget(500_000, 5_000), BUDGETED.within_budget(0, 1 << 40)) == (BUDGETED, BUDGETED)
    large, small = BUDGETED.within_budget(500_001, 5_000_000), BUDGETED.within_budget(500_000, 5_000_000)
    assert large is not None
    assert small is not None
    assert (large.mode, large.budget_ns) == (Mode.STAGED, 40_000_000), "the server that begins with it encodes it too"
    assert (small.mode, small.budget_ns) == (Mode.EAGER, 45_000_000)
    assert (BUDGETED.within_budget(500_001, 25_000_000), PLAN.budget_ns) == (None, 0)
    late = BUDGETED.within_budget(500_000, 60_000_000)
    assert late is not None
    assert late.budget_ns == 1, "given up with the first look at the time, and not without bound"
    scene.spawn()
    async with scene.served():
        scene.departures.begin(PLAN)
        await trio.testing.wait_all_tasks_blocked()
    assert [message.type for _, message in scene.mail.sent] == ["state"]


async def test_failures_row_26_who_cannot_be_encoded_within_its_freeze_budget_goes_on_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    holding = scene.spawn()
    monkeypatch.setattr(departing, "BUDGET_NS_PER_BYTE", 1 << 40)
    slow_to_encode(scene, monkeypatch, 30_000_000)
    async with scene.served():
        scene.departures.begin(BUDGETED)
        assert (holding.life.frozen, len(scene.departures), holding.fence) == (False, 0, Fence(1))
        await trio.sleep(1)
    told = [(message.type, message.reason) for message in scene.mail.asked if isinstance(message, Decline)]
    assert told == [("decline", "freeze_budget")]
    assert (scene.mail.sent, scene.requests()) == ([], 0)


async def test_failures_row_26_what_encoding_takes_counts_as_standing_still(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    holding = scene.spawn()
    slow_to_encode(scene, monkeypatch, 30_000_000)
    async with scene.served():
        scene.departures.begin(BUDGETED)
        await trio.sleep(0.01)
        assert not [message for message in scene.mail.asked if isinstance(message, HandoffAbort)]
        await trio.sleep(0.015)
    assert [message.reason for message in scene.mail.asked if isinstance(message, HandoffAbort)] == ["freeze_budget"]
    assert holding.life.frozen, "it was asked for, so the log has to say"
