"""The old authority at work: whoever of those that carry a transfer is ended, it goes on, and is never half begun."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.machines.capacity import Need
from batonpass.authority.machines.replica_choice import CopyTable
from batonpass.authority.machines.source import STAGE_PATIENCE_NS, Mode
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.model.standing import CopySource
from batonpass.authority.node.spans import SILENT, Spans
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.placement import MoveItem
from batonpass.authority.wire.recovery import RaisedItem
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import (
    Activated,
    Collect,
    Decline,
    HandoffAbort,
    HandoffReply,
    HandoffRequest,
    Message,
    NotHere,
    Precopied,
    Precopy,
    Report,
    ReportReply,
)
from batonpass.crypto.keys import Identity
from batonpass.simserver.durability.put_aside import PutAside
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.failover.adoption import Adoption
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.transfer.source.admission import Decided
from batonpass.simserver.transfer.source.backoff import FIRST_PAUSE_NS, FORGET_NS
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.departures import DepartureLimits, Departures
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import HeldLease, ports_of
from tests.simserver.stage import ADA, BALL, Stage

pytestmark = pytest.mark.usefixtures("either_kind")

HERE, THERE = "alpha.s1", "alpha.s2"
IDENTITY = Identity.generate()


@dataclass
class Mail:
    """Home and outbox in one: what was asked and sent, and what home answers."""

    asked: list[Message] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    is_open: bool = True
    roles: dict[str, Role] = field(default_factory=lambda: {THERE: Role.SIMSERVER})
    looked_up: list[str] = field(default_factory=list)
    under_way: set[str] = field(default_factory=set)

    async def ask(
        self, message: Message, trace: Trace, *, on_path: bool, is_wanted: Any = None
    ) -> OpenedMessage | None:
        await trio.lowlevel.checkpoint()
        if not self.is_open:
            raise HomeUnreachable("nobody")
        self.asked.append(message)
        if isinstance(message, Report | Decline):
            return OpenedMessage(ReportReply(transfer_id=message.transfer_id), "alpha.h1", Trace(message.transfer_id))
        return None

    def role_at_hand(self, name: str) -> Role | None:
        return self.roles.get(name)

    async def role_of(self, name: str) -> Role | None:
        await trio.lowlevel.checkpoint()
        if not self.is_open:
            raise HomeUnreachable("nobody")
        self.looked_up.append(name)
        return self.roles.get(name)

    async def ask_each(self, letters: Sequence[Letter]) -> list[OpenedMessage | Exception | None]:
        return [await self._asked(letter) for letter in letters]

    async def _asked(self, letter: Letter) -> OpenedMessage | Exception | None:
        try:
            return await self.ask(letter.message, letter.trace, on_path=letter.on_path)
        except HomeUnreachable as error:
            return error

    def members(self) -> Sequence[DirectoryRow]:
        return ()

    def send(self, message: Message, trace: Trace, to: str, **_: Any) -> bool:
        self.sent.append((to, message))
        self.traces.append(trace)
        return True

    def is_under_way(self, transfer_id: str, _to: str) -> bool:
        return transfer_id in self.under_way

    def tell_player(self, player: str, message: Any) -> None:
        self.sent.append((player, message))


class Rooms:
    """There is room, unless a reason says why not; `kept` are those who wait for an answer."""

    def __init__(self) -> None:
        self.reason: str | None = ""
        self.kept: list[Decided] = []

    def ask(self, target: str, need: Need, decided: Decided, *, afresh: bool = False) -> None:
        if self.reason is None:
            self.kept.append(decided)
        else:
            decided(self.reason)

    def incarnation_of(self, target: str) -> int:
        return 0


class Scene:
    def __init__(self, system: System, spans: Spans = SILENT) -> None:
        self.mail = Mail()
        post: Any = self.mail
        self.counts: Counter[str] = Counter()
        self.stage = Stage(system)
        self.holdings = Holdings(self.stage.environment, Written())
        self.rooms, self.lease = Rooms(), HeldLease()
        self.ports = ports_of(
            Sealer.without_log(HERE, IDENTITY), home=post, outbox=post, counts=self.counts, spans=spans
        )
        self.limit(DepartureLimits())

    def limit(self, limits: DepartureLimits) -> None:
        """Begin with other departures, of these limits."""
        lease: Any = self.lease
        self.departures = Departures(
            self.ports,
            lease,
            self.holdings,
            self.rooms,
            lambda entity, frozen: None,
            lambda entity: None,
            limits=limits,
        )

    def spawn(self) -> Holding:
        return self.holdings.spawn(BALL, "ball", {}, Fence(1), Ownership(ADA, 1))

    def requests(self) -> int:
        return sum(isinstance(message, HandoffRequest) for message in self.mail.asked)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """One life of the service, for the length of the block."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.departures.serve)
            yield
            nursery.cancel_scope.cancel()


@pytest.fixture
def scene(system: System) -> Scene:
    return Scene(system)


TRANSFER = "transfer-1"
PLAN = DeparturePlan(TRANSFER, BALL, THERE)


def refusal() -> tuple[OpenedMessage, HandoffReply]:
    message = HandoffReply(
        transfer_id=TRANSFER, outcome="refused", reason="denied", authority=HERE, epoch=2, sub=0, certificate=""
    )
    return OpenedMessage(message, "alpha.h1", Trace(TRANSFER)), message


def activated() -> tuple[OpenedMessage, Activated]:
    message = Activated(transfer_id=TRANSFER, entity=BALL, epoch=2, sub=0)
    return OpenedMessage(message, THERE, Trace(TRANSFER)), message


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_target_has_time_to_stage_all_of_a_group(
    scene: Scene, grouped: bool, autojump_clock: MockClock
) -> None:
    """All of them are staged at the same moment: with 2 s for each, a thousand were given up (`target_failed`)."""
    count, staged = 101, DeparturePlan("", "", THERE, mode=Mode.STAGED, grouped=grouped)
    async with scene.served():
        for number in range(count):
            entity = f"alpha.one-{number}"
            scene.holdings.spawn(entity, "ball", {}, Fence(1), Ownership(ADA, 1))
            scene.departures.begin(replace(staged, transfer_id=f"{TRANSFER}-{number}", entity=entity))
        await trio.sleep(STAGE_PATIENCE_NS / 1e9 + 0.505)
        given_up = {message.transfer_id for message in scene.mail.asked if isinstance(message, HandoffAbort)}
        assert len(given_up) == (51 if grouped else count)
        await trio.sleep(1)
        given_up = {message.transfer_id for message in scene.mail.asked if isinstance(message, HandoffAbort)}
        assert len(given_up) == count


async def test_a_transfer_that_begins_while_nobody_serves_is_seen_to_by_the_next_who_does(
    scene: Scene, autojump_clock: MockClock
) -> None:
    holding = scene.spawn()
    scene.departures.begin(PLAN)
    assert holding.life.frozen
    await trio.sleep(5)
    assert scene.requests() == 0
    async with scene.served():
        await trio.sleep(0.1)
        assert scene.requests() == 1


async def test_served_again_it_goes_on_asking_until_the_log_has_answered(
    scene: Scene, autojump_clock: MockClock
) -> None:
    scene.spawn()
    for lives in range(1, 4):
        async with scene.served():
            if lives == 1:
                scene.departures.begin(PLAN)
            before = scene.requests()
            await trio.sleep(3)
            assert scene.requests() > before
    holding = scene.holdings.get(BALL)
    assert holding is not None
    scene.departures.replied(*refusal())
    assert (holding.life.frozen, holding.fence, len(scene.departures)) == (False, Fence(2), 0)


async def test_failures_row_42_what_was_refused_before_the_log_raised_the_fence_does_not_go_on_when_that_is_heard(
    scene: Scene,
) -> None:
    """The refusal was long under way. From what was said to be here meanwhile somebody is given the entity."""
    table = CopyTable(10**6, 100)
    rest: Any = SimpleNamespace(
        incarnation=7,
        table=table,
        handed_over=SimpleNamespace(of=lambda _: None),
        keep_own=lambda entity, copy: table.keep(entity, copy, 0),
        asked_for=lambda entity: table.asked(entity, 0),
        fence_raised=lambda *_: None,
        of=lambda *_: None,
        send=lambda *_, **__: None,
    )
    recovery = Adoption(
        ports_of(outbox=rest, counts=scene.counts),
        rest,
        scene.holdings,
        rest,
        rest,
        scene.departures,
        rest,
        PutAside(),
    )
    holding = scene.spawn()
    scene.departures.begin(PLAN)
    recovery.collect(Collect(number=1, items=[RaisedItem(entity=BALL, epoch=3, sub=0, own_epoch=2)]), "alpha.h1")
    assert (scene.holdings.get(BALL), len(scene.departures)) == (holding, 1), "it may have left"
    scene.departures.replied(*refusal())
    assert (scene.holdings.get(BALL), holding.life.over, len(scene.departures)) == (None, True, 0)
    copy = table.get(BALL)
    assert copy is not None
    assert (copy.fence, copy.tick, copy.source) == (Fence(1), 0, CopySource.OWN)


async def test_how_long_somebody_was_away_has_the_next_transfer_repeated_no_later(
    scene: Scene, autojump_clock: MockClock
) -> None:
    """As a retransmission timer takes no sample of what was repeated (Karn and Partridge, 1987)."""
    scene.spawn()
    async with scene.served():
        scene.mail.is_open = False
        scene.departures.begin(PLAN)
        await trio.sleep(20)
        scene.mail.is_open = True
        await trio.sleep(1)
        scene.departures.activated(*activated())
        scene.spawn()
        before = scene.requests()
        scene.departures.begin(replace(PLAN, transfer_id="transfer-2"))
        await trio.sleep(1)
        assert scene.requests() == before + 3


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "of_a_group"])
async def test_nobody_is_frozen_for_a_home_that_did_not_answer_when_it_was_asked_last(
    scene: Scene, grouped: bool
) -> None:
    """It is ordered again after a while; those of a group, of which others may be frozen already, are waited for."""
    holding = scene.spawn()
    scene.lease.answers = False
    scene.departures.begin(replace(PLAN, grouped=grouped))
    assert (holding.life.frozen, scene.counts["order_home_silent"]) == (grouped, 0 if grouped else 1)
    scene.lease.answers = True
    scene.departures.begin(replace(PLAN, grouped=grouped))
    assert holding.life.frozen


async def test_what_is_ordered_of_a_server_whose_home_is_silent_begins_when_it_answers_and_is_kept_once(
    scene: Scene, autojump_clock: MockClock
) -> None:
    holding, scene.lease.answers = scene.spawn(), False
    ordered = replace(PLAN, ordered=True)
    async with scene.served():
        scene.departures.begin(ordered)
        await trio.sleep(3)
        assert (holding.life.frozen, scene.departures.is_under_way(BALL)) == (False, True)
        scene.departures.begin(replace(ordered, transfer_id="transfer-2"))
        assert (scene.counts["order_home_silent"], scene.counts["order_busy"]) == (1, 1)
        scene.lease.answers = True
        await trio.sleep(0.3)
        assert holding.life.frozen
        asked = [message for message in scene.mail.asked if isinstance(message, HandoffRequest)]
        assert {message.transfer_id for message in asked} == {TRANSFER}


async def test_without_a_lease_home_is_not_asked_and_at_once_when_it_grants_it_again(
    scene: Scene, autojump_clock: MockClock
) -> None:
    """Hundreds that ask it meanwhile may be what keeps it from granting the lease."""
    scene.spawn()
    async with scene.served():
        scene.departures.begin(PLAN)
        await trio.sleep(1)
        before = scene.requests()
        assert before == 3
        scene.lease.lasts = False
        await trio.sleep(60)
        assert (scene.requests(), scene.counts["not_asked"] > 0) == (before, True)
        scene.lease.lasts = True
        scene.departures.home_is_back()
        await trio.sleep(0.01)
        assert scene.requests() == before + 1


async def test_the_longer_home_does_not_answer_the_less_it_is_asked(scene: Scene, autojump_clock: MockClock) -> None:
    scene.spawn()
    async with scene.served():
        scene.departures.begin(PLAN)
        await trio.sleep(60)
        in_the_first_minute = scene.requests()
        await trio.sleep(60)
    assert in_the_first_minute <= 14
    assert scene.requests() - in_the_first_minute <= 11


async def test_what_is_ordered_is_not_kept_beyond_the_lease(scene: Scene, autojump_clock: MockClock) -> None:
    """Whoever takes the entity over is ordered then."""
    holding = scene.spawn()
    scene.lease.answers = False
    async with scene.served():
        scene.departures.begin(replace(PLAN, ordered=True))
        scene.lease.lasts = False
        await trio.sleep(1)
        assert not scene.departures.is_under_way(BALL)
        scene.lease.answers = scene.lease.lasts = True
        await trio.sleep(1)
    assert not holding.life.frozen


async def test_a_large_state_that_went_ahead_goes_ahead_once_though_home_was_silent_then(
    scene: Scene, autojump_clock: MockClock
) -> None:
    holding = scene.spawn()
    scene.limit(DepartureLimits(least_bytes_ahead=1))
    async with scene.served():
        scene.departures.begin(replace(PLAN, ordered=True))
        (ahead,) = [message for _, message in scene.mail.sent if isinstance(message, Precopy)]
        scene.lease.answers = False
        answer = Precopied(transfer_id=TRANSFER, entity=BALL, round=ahead.round)
        scene.departures.copied_ahead(OpenedMessage(answer, THERE, Trace(TRANSFER)), answer)
        await trio.sleep(2)
        assert (holding.life.frozen, scene.departures.is_under_way(BALL)) == (False, True)
        scene.lease.answers = True
        await trio.sleep(0.3)
        assert holding.life.frozen
        assert len([message for _, message in scene.mail.sent if isinstance(message, Precopy)]) == 1


async def test_what_was_never_this_servers_to_hand_over_is_not_gone_on_with(
    scene: Scene, autojump_clock: MockClock
) -> None:
    scene.spawn()
    async with scene.served():
        scene.departures.begin(PLAN)
        assert scene.departures.is_leaving(BALL)
        scene.departures.give_up({"alpha.other"})
        assert scene.departures.is_leaving(BALL)
        scene.departures.give_up({BALL})
        assert not scene.departures.is_under_way(BALL)
        scene.mail.asked.clear()
        await trio.sleep(30)
    assert scene.mail.asked == []
    assert scene.departures.under_way == 0


async def test_a_world_is_not_listened_to_while_home_does_not_answer_and_nothing_is_logged_with_each_tick(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    holding = scene.spawn()
    caplog.set_level("DEBUG")
    scene.lease.answers = False
    for _ in range(20):
        scene.departures.wants_to_go(BALL, THERE)
    assert (holding.life.frozen, scene.counts["departure_home_silent"], caplog.messages) == (False, 20, [])
    scene.lease.answers = True
    scene.departures.wants_to_go(BALL, THERE)
    assert holding.life.frozen


async def test_what_the_log_has_decided_is_carried_out_at_once_whether_or_not_anybody_serves(scene: Scene) -> None:
    holding = scene.spawn()
    holding.life.take_input(ADA, 1, 1, b"")
    scene.departures.begin(PLAN)
    holding.life.take_input(ADA, 1, 2, b"late")
    scene.departures.activated(*activated())
    assert (scene.holdings.get(BALL), holding.life.over) == (None, True)
    gone = scene.holdings.gone(BALL)
    assert gone is not None
    assert (gone.moved_to, gone.fence) == (THERE, Fence(2))
    (forwarded,) = [message for to, message in scene.mail.sent if to == THERE and message.type == "forward"]
    assert [item.seq for item in forwarded.inputs] == [2]
    assert [to for to, message in scene.mail.sent if isinstance(message, NotHere)] == [ADA]


async def test_an_owner_that_gives_no_inputs_is_told_where_its_entity_went(scene: Scene) -> None:
    holding = scene.spawn()
    assert (holding.life.ownership.owner, len(holding.life.inbox.cursors)) == (ADA, 0)
    scene.departures.begin(PLAN)
    scene.departures.activated(*activated())
    assert (ADA, NotHere(entity=BALL, moved_to=THERE, epoch=2)) in scene.mail.sent


async def test_a_report_that_is_owed_is_made_by_the_next_who_serves_and_only_once(
    scene: Scene, autojump_clock: MockClock
) -> None:
    scene.spawn()
    scene.mail.is_open = False
    async with scene.served():
        scene.departures.begin(PLAN)
        scene.departures.activated(*activated())
        await trio.sleep(1)
    scene.mail.is_open = True
    for _ in range(2):
        async with scene.served():
            await trio.sleep(5)
    assert sum(isinstance(message, Report) for message in scene.mail.asked) == 1


async def test_a_freeze_whose_hand_over_cannot_be_made_is_taken_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding = scene.spawn()
    holding.delegated(("grant",), (HERE, THERE), holding.fence)
    monkeypatch.setattr("batonpass.simserver.transfer.source.departures.Departure", lambda *_, **__: 1 / 0)
    scene.departures.begin(DeparturePlan(TRANSFER, BALL, THERE, direct=True))
    assert (holding.life.frozen, len(scene.departures), scene.mail.sent) == (False, 0, [])
    scene.departures.wants_to_go(BALL, THERE)
    assert (holding.life.frozen, scene.counts["internal_error"]) == (False, 2)
    (stint,) = scene.stage.custody.to_data()
    assert stint["ended_ns"] == 0


async def test_a_pass_that_cannot_be_signed_is_signed_when_it_is_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    holding = scene.spawn()
    holding.delegated(("grant",), (HERE, THERE), holding.fence)
    async with scene.served():
        await trio.sleep(1)
        with monkeypatch.context() as broken:
            broken.setattr("batonpass.simserver.transfer.source.pass_signing.jose.sign_all", lambda *_, **__: 1 / 0)
            scene.departures.begin(DeparturePlan(TRANSFER, BALL, THERE, direct=True))
        assert (scene.departures.is_leaving(BALL), scene.mail.sent, scene.counts["internal_error"]) == (True, [], 1)
        await trio.sleep(1)
        assert {message.type for _, message in scene.mail.sent} == {"direct"}


async def test_an_effect_that_fails_keeps_none_of_the_others_from_being_performed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding = scene.spawn()
    scene.departures.begin(PLAN)
    holding.life.take_input(ADA, 1, 1, b"")
    monkeypatch.setattr(scene.mail, "send", lambda *_, **__: 1 / 0)
    scene.departures.activated(*activated())
    assert (scene.holdings.get(BALL), scene.counts["internal_error"]) == (None, 1)


# --- drain and balance ------------------------------------------------------------------------------------------------


def refused(transfer_id: str, epoch: int, reason: str = "attached") -> tuple[OpenedMessage, HandoffReply]:
    message = HandoffReply(
        transfer_id=transfer_id, outcome="refused", reason=reason, authority=HERE, epoch=epoch, sub=0, certificate=""
    )
    return OpenedMessage(message, "alpha.h1", Trace(transfer_id)), message


async def test_a_world_is_not_listened_to_where_no_home_answers_as_each_try_is_a_gap_of_seconds(
    scene: Scene, autojump_clock: MockClock
) -> None:
    holding, frozen_at_s = scene.spawn(), list[float]()
    began_s = trio.current_time()
    while trio.current_time() - began_s < 100.0:
        scene.departures.wants_to_go(BALL, THERE)
        if holding.life.frozen:
            frozen_at_s.append(round(trio.current_time() - began_s))
            transfer_id = scene.departures._leaving[BALL].plan.transfer_id
            scene.departures.replied(*refused(transfer_id, holding.fence.epoch + 1, "home_unreachable"))
        await trio.sleep(0.5)
    assert frozen_at_s == [0, 30, 60, 90]
    scene.departures.begin(replace(PLAN, ordered=True))
    assert holding.life.frozen, "what is ordered goes"


@pytest.mark.parametrize("reason", ["attached", "target_down"])
async def test_what_a_drain_was_refused_does_not_stand_still_for_it_again_at_once(
    scene: Scene, autojump_clock: MockClock, reason: str
) -> None:
    """A drain orders ten times a second; each try is a gap for players. The pauses become longer, up to a bound."""
    holding, frozen_at_s = scene.spawn(), list[float]()
    began_s = trio.current_time()
    for number in range(300):
        scene.departures.relocate([MoveItem(transfer_id=f"drain-{number:04d}", entity=BALL, target=THERE)])
        assert scene.departures.may_be_moved(BALL) is False, "it is under way, or was refused a moment ago"
        if holding.life.frozen:
            frozen_at_s.append(round(trio.current_time() - began_s, 1))
            scene.departures.replied(*refused(f"drain-{number:04d}", holding.fence.epoch + 1, reason))
        assert not holding.life.frozen
        await trio.sleep(0.1)
    assert frozen_at_s == [0.0, 2.0, 6.0, 11.0, 16.0, 21.0, 26.0]


async def test_what_a_drain_was_refused_goes_when_it_is_ordered_to_and_is_forgotten_after_a_while(
    scene: Scene, autojump_clock: MockClock
) -> None:
    holding = scene.spawn()

    def relocated(transfer_id: str) -> bool:
        scene.departures.relocate([MoveItem(transfer_id=transfer_id, entity=BALL, target=THERE)])
        if not holding.life.frozen:
            return False
        scene.departures.replied(*refused(transfer_id, holding.fence.epoch + 1))
        return True

    assert relocated("drain-0001")
    await trio.sleep((FIRST_PAUSE_NS + FORGET_NS) / 1e9)
    assert relocated("drain-0002")
    await trio.sleep(FIRST_PAUSE_NS / 1e9)
    assert relocated("drain-0003"), "the refusal of a minute ago does not count any more"
    assert not relocated("drain-0004")
    scene.departures.begin(replace(PLAN, ordered=True, grouped=True))
    assert holding.life.frozen, "home has the whole hierarchy moved"
    scene.departures.replied(*refused(TRANSFER, holding.fence.epoch + 1))
    await trio.sleep(2 * FIRST_PAUSE_NS / 1e9)
    assert relocated("drain-0005"), "what was ordered by others makes no pause longer"


async def test_failures_row_42_what_was_refused_and_does_not_go_on_here_is_not_said_to_have_gone_on(
    scene: Scene,
) -> None:
    """Home believes that of its last authority, and counts copies of another history of the log then.

    The log at hand has given the ball under epoch 1 last; the refusal, heard late, is of the other history.
    """
    scene.spawn()
    scene.departures.begin(PLAN)
    scene.departures.taken_away(BALL)
    scene.departures.replied(*refusal())
    assert scene.holdings.get(BALL) is None
    assert not scene.departures.handed_on.has(BALL, 1)


async def test_what_was_refused_after_the_lease_was_over_has_not_gone_on_either(scene: Scene) -> None:
    scene.spawn()
    scene.departures.begin(PLAN)
    scene.departures.step_down()
    scene.departures.replied(*refusal())
    assert scene.holdings.get(BALL) is None
    assert not scene.departures.handed_on.has(BALL, 1)
