"""What a simulation server says of how its entities stand, in the order in which causes count."""

from dataclasses import replace

import trio
from trio.testing import MockClock

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.standing import MAX_WHY_CHARS, At, StandingInquiry, StandingRow
from batonpass.authority.wire.transfer import HandoffReply
from batonpass.simserver.server.standings import StandingAnswers
from batonpass.simserver.transfer.source import concurrency as concurrency_limit
from batonpass.simserver.transfer.source.reasons import MAX_WAITS, WaitReason, Waits
from tests.simserver.ports import TrioClock
from tests.simserver.stage import BALL
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

ORDERED = replace(PLAN, ordered=True)


def row_of(scene: Scene, entity: str = BALL, why_unleased: str = "") -> StandingRow:
    standings = StandingAnswers(scene.holdings, scene.departures, TrioClock(), lambda _now_ns: why_unleased)
    word = standings.answer(StandingInquiry(number=7, entities=[entity]))
    assert word.number == 7
    (row,) = word.rows
    assert row.entity == entity
    return row


def pending() -> tuple[OpenedMessage, HandoffReply]:
    message = HandoffReply(
        transfer_id=TRANSFER, outcome="pending", reason="", authority=HERE, epoch=1, sub=0, certificate=""
    )
    return OpenedMessage(message, "alpha.h1", Trace(TRANSFER)), message


async def test_what_runs_runs_and_what_is_not_here_is_not(scene: Scene) -> None:
    scene.spawn()
    assert row_of(scene) == StandingRow(entity=BALL, at=At.RUNS)
    assert row_of(scene, "alpha.other") == StandingRow(entity="alpha.other", at=At.NOT_HERE)


async def test_without_a_lease_nothing_runs_whatever_else_may_be(scene: Scene) -> None:
    scene.spawn().life.enter_quarantine("poison")
    why = "it was not renewed: nobody answered" + "!" * MAX_WHY_CHARS
    row = row_of(scene, why_unleased=why)
    assert (row.at, row.why) == (At.UNLEASED, why[:MAX_WHY_CHARS])


async def test_what_its_world_failed_on_is_quarantined_with_the_reason(scene: Scene) -> None:
    scene.spawn().life.enter_quarantine("ZeroDivisionError: poison")
    row = row_of(scene)
    assert (row.at, row.why) == (At.QUARANTINED, "ZeroDivisionError: poison")


async def test_what_stands_still_for_its_owner_is_suspended(scene: Scene) -> None:
    scene.spawn().life.owned(Ownership("", 2, suspended=True))
    assert row_of(scene).at is At.SUSPENDED


async def test_what_is_frozen_says_for_whom_how_often_that_was_asked_and_what_was_said_last(
    scene: Scene, autojump_clock: MockClock
) -> None:
    scene.spawn()
    async with scene.served():
        scene.departures.begin(ORDERED)
        first = row_of(scene)
        assert (first.at, first.transfer_id, first.phase, first.since_ms) == (At.FROZEN, TRANSFER, "requested", 0)
        assert first.why == f"its home instance has not decided yet whether {THERE} gets it"
        scene.mail.is_open = False
        await trio.sleep(2.0)
        later = row_of(scene)
        assert 1990 <= later.since_ms <= 2000
        assert later.why.startswith(f"{first.why} (asked ")
        assert later.why.endswith("; last: nobody")
        scene.departures.replied(*pending())
        assert row_of(scene).why.endswith("; last: others of its group are not frozen yet")
        scene.departures.activated(*activated())
    gone = row_of(scene)
    assert (gone.at, gone.moved_to, len(scene.departures.waits)) == (At.NOT_HERE, THERE, 0)


async def test_what_is_ordered_and_waits_runs_and_says_what_for(scene: Scene) -> None:
    scene.spawn()
    scene.rooms.reason = None
    scene.departures.begin(ORDERED)
    row = row_of(scene)
    assert (row.at, row.transfer_id) == (At.RUNS, TRANSFER)
    assert row.why == f"{THERE} has not said yet whether it has room for it"
    (decided,) = scene.rooms.kept
    decided(Reason.CAPACITY)
    assert row_of(scene) == StandingRow(entity=BALL, at=At.RUNS), "it was declined, which home knows"


async def test_what_is_ordered_while_home_is_silent_says_so_until_it_is_handed_over(
    scene: Scene, autojump_clock: MockClock
) -> None:
    scene.spawn()
    scene.lease.answers = False
    async with scene.served():
        scene.departures.begin(ORDERED)
        await trio.sleep(0.1)
        assert row_of(scene).why == "its home instance does not answer, so it could not decide"
        scene.lease.answers = True
        await trio.sleep(1.0)
        assert row_of(scene).at is At.FROZEN
        scene.departures.replied(*refusal())
        assert row_of(scene) == StandingRow(entity=BALL, at=At.RUNS)


async def test_what_waits_for_its_turn_says_so(scene: Scene) -> None:
    for number in range(concurrency_limit.AT_ONCE):
        entity = f"alpha.one-{number}"
        scene.holdings.spawn(entity, "ball", {}, Fence(1), Ownership("alpha.ada", 1))
        scene.departures.begin(replace(PLAN, transfer_id=f"{TRANSFER}-{number}", entity=entity))
    scene.spawn()
    scene.departures.begin(ORDERED)
    assert row_of(scene).why == f"as many as may be are on their way to {THERE}: it waits for its turn"


def test_what_waits_is_remembered_since_the_first_time_and_of_so_many_entities() -> None:
    waits = Waits()
    waits.note(BALL, TRANSFER, "a", 5)
    waits.note(BALL, TRANSFER, "b" * 1000, 9)
    assert waits.of(BALL) == WaitReason(TRANSFER, "b" * MAX_WHY_CHARS, 5)
    waits.over(BALL, "transfer-2")
    assert waits.of(BALL) is not None, "that was another one"
    waits.note(BALL, "transfer-2", "c", 11)
    assert waits.of(BALL) == WaitReason("transfer-2", "c", 11)
    for number in range(MAX_WAITS):
        waits.note(f"alpha.e-{number}", TRANSFER, "d", 12)
    assert (len(waits), waits.of(BALL)) == (MAX_WAITS, None)
    waits.over("alpha.e-0", TRANSFER)
    assert len(waits) == MAX_WAITS - 1


async def test_what_its_world_wants_elsewhere_says_where_and_why_it_is_not_there(
    scene: Scene, autojump_clock: MockClock
) -> None:
    life = scene.spawn().life
    life.wants = "alpha.s9"
    assert row_of(scene).why == "its world wants it at alpha.s9: it is about to leave"
    async with scene.served():
        scene.departures.wants_to_go(BALL, life.wants)
        await trio.sleep(0.25)
        row = row_of(scene)
        assert (row.at, row.transfer_id, row.since_ms) == (At.RUNS, "", 250)
        assert row.why == (
            "its world wants it at alpha.s9: no simulation server of this name is registered (unknown_target); "
            "it is tried again in 1 s"
        )
        life.wants = THERE
        scene.rooms.reason = None
        scene.departures.wants_to_go(BALL, THERE)
        assert row_of(scene).why.endswith(f": {THERE} is being asked whether it has room for it")
        (decided,) = scene.rooms.kept
        decided(Reason.CAPACITY)
        assert "that has no room for it (capacity); it is tried again in 1 s" in row_of(scene).why
        await trio.sleep(1)
        scene.lease.answers = False
        assert row_of(scene).why.endswith(": its home instance does not answer, so it could not decide")
        scene.departures._circuit_breaker.close(THERE)
        assert row_of(scene).why.endswith(": the home of that instance does not say whether it would have it")
        life.wants = ""
        assert row_of(scene) == StandingRow(entity=BALL, at=At.RUNS), "its world has thought of something else"
