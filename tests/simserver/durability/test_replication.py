"""Copies of what lives here: when they leave, where to, and what is durable by them."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.machines.lease import LeaseTerms
from batonpass.authority.machines.replica_choice import CopyTable, backup_replicas_of, may_follow
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.model.standing import CopySource
from batonpass.authority.wire.recovery import CopyItem, KeptItem
from batonpass.authority.wire.transfer import Copies, CopiesKept, decode_link_untrusted
from batonpass.simserver.durability import replication as copies
from batonpass.simserver.durability.replication import Replication, new_copy
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.world.api import World
from tests.simserver.entity.test_sleep import Naps
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import ports_of
from tests.simserver.stage import ADA, BALL, Stage

pytestmark = pytest.mark.usefixtures("either_kind")

HERE, FOLLOWER = "alpha.s1", "alpha.s2"
INTERVAL_S = 10.0


class Lease:
    """As much of a lease as copies need."""

    def __init__(self) -> None:
        self.peers: tuple[str, ...] = (HERE, FOLLOWER)
        self.aside: frozenset[str] = frozenset()
        self.is_alone = self.may_be_waited_for = False
        self.holder = SimpleNamespace(terms=LeaseTerms(80_000_000_000))
        self._others: tuple[str, ...] = ()

    @property
    def may_follow(self) -> tuple[str, ...]:
        others = may_follow(HERE, self.peers, self.aside)
        self._others = self._others if self._others == others else others
        return self._others

    def may_act(self, now_ns: int) -> bool:
        return True


class Place:
    """A server with its lease, a follower that hears everything, and a disk that remembers."""

    def __init__(self, system: System, world: World | None = None) -> None:
        self.stage = Stage(system, world=world)
        self.holdings = Holdings(self.stage.environment, Written())
        self.lease: Any = Lease()
        self.posted: list[tuple[str, Any]] = []
        self.posting = trio.Event()
        self.checkpoints: list[tuple[str, int]] = []
        self.checkpoint_fences: list[Fence] = []
        self.has_room = True
        self.link = SimpleNamespace(link_host="127.0.0.1", link_port=17000)
        self.counts: Counter[str] = Counter()
        self.table = CopyTable(1 << 20, 1000)

    def replication(self, **options: Any) -> Replication:
        this: Any = self
        settings = {"interval_s": INTERVAL_S, "checkpoint_s": 0.0, "backup_replicas": 1} | options
        ports = ports_of(HERE, home=this, link=this, counts=self.counts)
        return Replication(ports, self.lease, self.holdings, self.table, this, **settings)

    # The home instance, the link and the ledger, as far as copies need them.

    async def row(self, server: str) -> Any:
        await trio.lowlevel.checkpoint()
        return self.link

    def post(self, to: str, where: tuple[str, int], frame: bytes, *, channel: int) -> None:
        self.posted.append((to, decode_link_untrusted(frame)))
        self.posting.set()

    async def has_posted(self) -> None:
        """Wait for the next message."""
        self.posting = trio.Event()
        await self.posting.wait()

    def checkpoint(self, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        self.checkpoints.append((entity, tick))
        self.checkpoint_fences.append(fence)
        return self.has_room

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    def spawn(self, entity: str = BALL, epoch: int = 1) -> Holding:
        self.holdings.spawn(entity, "ball", {}, Fence(epoch), Ownership(ADA, 1))
        holding = self.holdings.get(entity)
        assert holding is not None
        return holding

    @property
    def copied(self) -> list[CopyItem]:
        return [item for _, message in self.posted if isinstance(message, Copies) for item in message.items]


@pytest.fixture
def place(system: System) -> Place:
    return Place(system)


@asynccontextmanager
async def served(replication: Replication) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(replication.serve)
        yield
        nursery.cancel_scope.cancel()


def kept(holding: Holding, tick: int) -> CopiesKept:
    return CopiesKept(items=[KeptItem(entity=holding.id, epoch=holding.fence.epoch, sub=0, tick=tick)])


def spawn_with_input(place: Place) -> Holding:
    holding = place.spawn()
    holding.life.take_input(ADA, 1, 1, b"\0" * 12)
    holding.life.commit(holding.life.world, now_ns=1)
    return holding


async def test_what_has_just_come_is_copied_with_the_next_part(place: Place, autojump_clock: MockClock) -> None:
    async with served(place.replication()):
        for number in range(20):
            place.spawn(f"alpha.ball-{number}")
        await trio.sleep(INTERVAL_S / 10 + 0.01)
        assert {item.entity for item in place.copied} == {f"alpha.ball-{number}" for number in range(20)}
        assert {to for to, _ in place.posted} == {FOLLOWER}


async def test_a_follower_that_has_not_said_where_its_link_is_gets_no_copies(
    place: Place, autojump_clock: MockClock
) -> None:
    place.link = SimpleNamespace(link_host="", link_port=0)
    async with served(place.replication()):
        place.spawn()
        await trio.sleep(2 * INTERVAL_S)
    assert place.posted == []


async def test_what_came_back_under_a_higher_fence_has_just_come(place: Place, autojump_clock: MockClock) -> None:
    async with served(place.replication()):
        for number in range(3):
            place.spawn(f"alpha.ball-{number}")
        await trio.sleep(INTERVAL_S)
        for holding in place.holdings:
            holding.life.freeze()
            holding.resume(Fence(5))
        place.posted.clear()
        await trio.sleep(INTERVAL_S / 10 + 0.01)
        assert [item.epoch for item in place.copied] == [5, 5, 5]


async def test_of_very_many_at_once_the_rest_waits_for_its_own_part(
    place: Place, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_NEW_IN_A_PART", 5)
    async with served(place.replication()):
        for number in range(100):
            place.spawn(f"alpha.ball-{number}")
        await trio.sleep(INTERVAL_S / 10 + 0.01)
        assert len(place.copied) <= 5 + 10
        await trio.sleep(INTERVAL_S)
        assert len({item.entity for item in place.copied}) == 100


async def test_of_very_many_that_were_copied_when_they_began_few_are_looked_at_in_one_go(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_LOOKED_AT_IN_A_PART", 7)
    replication = place.replication()
    holdings = [place.spawn(f"alpha.ball-{number}") for number in range(30)]
    await replication.copy_now(holdings)
    looked_at: list[str] = []
    monkeypatch.setattr(replication, "_is_new", lambda holding: looked_at.append(holding.id))
    for part in range(1, 5):
        replication._due(part)
        assert len(looked_at) <= 7 * part
    replication._due(5)
    assert looked_at == [holding.id for holding in holdings]


async def test_a_copy_that_is_kept_is_waited_for_no_more_nor_are_those_before_it(
    place: Place, autojump_clock: MockClock
) -> None:
    holding, replication = place.spawn(), place.replication()
    for seq in (1, 2, 3):
        holding.life.take_input(ADA, 1, seq, b"\0" * 12)
        holding.life.commit(holding.life.world, now_ns=1)
        await replication.copy_now([holding])
    first, second, third = [item.tick for item in place.copied]
    assert [sent.tick for sent in replication._copied[holding.id].under_way] == [first, second, third]
    replication.kept(kept(holding, second), FOLLOWER)
    assert [sent.tick for sent in replication._copied[holding.id].under_way] == [third]
    assert holding.life.acceptance.durable == {ADA: 2}
    replication.kept(kept(holding, first), FOLLOWER)
    assert holding.life.acceptance.durable == {ADA: 2}, "a later word for an earlier copy changes nothing"
    replication.kept(kept(holding, third), FOLLOWER)
    assert replication._copied[holding.id].under_way == []
    assert holding.life.acceptance.durable == {ADA: 3}


async def test_copies_of_very_many_leave_others_four_fifths_of_the_time(
    place: Place, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_AT_ONCE", 5)
    for number in range(200):
        place.spawn(f"alpha.ball-{number}")
    replication, taken_s = place.replication(), 0.1
    take, began_s, busy_s = replication._take, trio.current_time(), 0.0

    def slowly(due: Sequence[Holding]) -> dict[str, list[CopyItem]]:
        nonlocal busy_s
        assert len(due) <= 5
        autojump_clock.jump(taken_s)
        busy_s += taken_s
        return take(due)

    monkeypatch.setattr(replication, "_take", slowly)
    async with served(replication):
        await trio.sleep(20 * INTERVAL_S)
        assert len({item.entity for item in place.copied}) == 200
        assert busy_s <= (trio.current_time() - began_s) / 5 + 2 * taken_s


async def test_what_has_not_changed_is_copied_again_only_now_and_then(place: Place, autojump_clock: MockClock) -> None:
    place.spawn()
    async with served(place.replication()):
        await trio.sleep(5.5 * INTERVAL_S)
        assert len(place.copied) == 1
        await trio.sleep(10 * INTERVAL_S)
        assert len(place.copied) == 2


async def test_nothing_is_copied_without_a_lease(place: Place, autojump_clock: MockClock) -> None:
    place.lease.may_act = lambda now_ns: False
    place.spawn()
    async with served(place.replication()):
        await trio.sleep(3 * INTERVAL_S)
    assert place.copied == []


async def test_inputs_are_durable_when_every_follower_keeps_a_copy_with_them(
    place: Place, autojump_clock: MockClock
) -> None:
    place.lease.peers = (HERE, FOLLOWER, "alpha.s3")
    holding = place.spawn()
    holding.life.take_input(ADA, 1, 1, b"\0" * 12)
    holding.life.commit(holding.life.world, now_ns=1)
    replication = place.replication(backup_replicas=2)
    async with served(replication):
        await trio.sleep(INTERVAL_S)
        (tick,) = {item.tick for item in place.copied}
        replication.kept(kept(holding, tick + 1), FOLLOWER)
        replication.kept(kept(holding, tick), FOLLOWER)
        replication.kept(kept(holding, tick), FOLLOWER)
        assert holding.life.acceptance.durable == {}
        replication.kept(kept(holding, tick), "alpha.s3")
        assert holding.life.acceptance.durable == {ADA: 1}


async def test_it_is_known_what_no_replica_has_a_copy_of_since_it_came_here_or_its_replicas_were_chosen_anew(
    place: Place, autojump_clock: MockClock
) -> None:
    replication = place.replication()
    async with served(replication):
        holding, gone = place.spawn(), place.spawn("alpha.ball-2")
        assert replication.without_copy == {holding.id, gone.id}
        await trio.sleep(INTERVAL_S)
        for item in place.copied:
            replication.kept(CopiesKept(items=[KeptItem(entity=item.entity, epoch=1, sub=0, tick=item.tick)]), FOLLOWER)
        assert replication.without_copy == set()
        place.holdings.drop(gone.id)
        place.lease.peers = (HERE, "alpha.s3")
        await place.has_posted()
        assert replication.without_copy == {holding.id}
        replication.kept(kept(holding, holding.life.tick), FOLLOWER)
        assert replication.without_copy == {holding.id}
        replication.kept(kept(holding, holding.life.tick), "alpha.s3")
        assert replication.without_copy == set()
        holding.life.freeze()
        holding.resume(Fence(5))
        assert replication.without_copy == {holding.id}
        place.lease.peers = (HERE,)
        await trio.sleep(2 * INTERVAL_S)
        assert replication.without_copy == {holding.id}, "nobody is known who could have a copy"


async def test_all_would_wait_for_a_server_that_died_while_its_disk_may_count(place: Place) -> None:
    replication = place.replication()
    place.spawn(), place.spawn("alpha.ball-2")
    replication.without_copy.clear()
    place.lease.may_be_waited_for = True
    assert replication.waiting() == 2
    place.lease.may_be_waited_for = False
    assert replication.waiting() == 0


async def test_where_nobody_else_ever_was_its_own_disk_makes_them_durable(
    place: Place, autojump_clock: MockClock
) -> None:
    place.lease.peers, place.lease.is_alone = (HERE,), True
    holding = spawn_with_input(place)
    async with served(place.replication(checkpoint_s=100.0)):
        await trio.sleep(INTERVAL_S)
    assert (len(place.checkpoints), place.copied, holding.life.acceptance.durable) == (1, [], {ADA: 1})


@pytest.mark.parametrize("peers", [(HERE,), ()])
async def test_where_the_others_are_only_dead_or_not_known_its_own_disk_makes_nothing_durable(
    place: Place, autojump_clock: MockClock, peers: tuple[str, ...]
) -> None:
    """One of them may come back with an older copy, and be all that is left when this server dies."""
    place.lease.peers = peers
    holding = spawn_with_input(place)
    async with served(place.replication(checkpoint_s=100.0)):
        await trio.sleep(INTERVAL_S)
    assert (len(place.checkpoints), holding.life.acceptance.durable) == (1, {}), (
        "what may come of it is kept all the same"
    )


async def test_what_a_follower_kept_too_long_ago_to_be_sure_of_its_lease_is_sent_again(
    place: Place, autojump_clock: MockClock
) -> None:
    holding, replication = spawn_with_input(place), place.replication()
    async with served(replication):
        await trio.sleep(INTERVAL_S)
        (copied,) = place.copied
        await trio.sleep(place.lease.holder.terms.certain_ns / 1e9)
        replication.kept(kept(holding, copied.tick), FOLLOWER)
        assert (holding.life.acceptance.durable, place.counts["copies_kept_too_late"]) == ({}, 1)
        with trio.fail_after(2 * INTERVAL_S):
            await place.has_posted()
        replication.kept(kept(holding, copied.tick), FOLLOWER)
        assert holding.life.acceptance.durable == {ADA: 1}


async def test_the_word_for_a_copy_is_none_for_a_later_one_of_what_stands_still(
    place: Place, autojump_clock: MockClock
) -> None:
    """It has not ticked meanwhile; all the same its inputs count as applied since somebody discarded them."""
    holding, replication = place.spawn(), place.replication()
    holding.life.take_input(ADA, 1, 1, b"\0" * 12)
    holding.life.enter_quarantine("the world fails on it")
    async with served(replication):
        await trio.sleep(INTERVAL_S)
        assert holding.life.release(discard_inputs=True)
        await trio.sleep(INTERVAL_S)
        first, second = place.copied
        assert second.tick > first.tick, "else its follower would not keep it either"
        replication.kept(kept(holding, first.tick), FOLLOWER)
        assert holding.life.acceptance.durable == {}
        replication.kept(kept(holding, second.tick), FOLLOWER)
        assert holding.life.acceptance.durable == {ADA: 1}


async def test_who_has_no_lease_calls_nothing_durable(place: Place, autojump_clock: MockClock) -> None:
    """Both may be dead by the log, and neither is asked for what the one keeps and the other hears of."""
    holding, replication = spawn_with_input(place), place.replication()
    async with served(replication):
        await trio.sleep(INTERVAL_S)
        place.lease.may_act = lambda now_ns: False
        replication.kept(kept(holding, place.copied[0].tick), FOLLOWER)
    assert holding.life.acceptance.durable == {}


def offer(entity: str, epoch: int, tick: int) -> Copies:
    return Copies(items=[CopyItem(entity=entity, epoch=epoch, sub=0, tick=tick, state=b"state")])


async def test_a_follower_keeps_what_its_peers_send_and_says_so(place: Place) -> None:
    replication = place.replication()
    replication.keep(offer(BALL, 3, 7), FOLLOWER, ("127.0.0.1", 17000))
    (answer,) = (message for _, message in place.posted)
    assert [(item.entity, item.epoch, item.tick) for item in answer.items] == [(BALL, 3, 7)]
    assert replication.table.get(BALL) == new_copy(Fence(3), 7, b"state", CopySource.BACKUP_REPLICA)


async def test_a_follower_whose_lease_has_run_out_keeps_what_it_has(place: Place) -> None:
    """By which log the other one is an authority it does not know: an older one gives the same fences again."""
    replication = place.replication()
    replication.keep(offer(BALL, 3, 7), FOLLOWER, ("127.0.0.1", 17000))
    place.posted.clear()
    place.lease.may_act = lambda now_ns: False
    replication.keep(offer(BALL, 3, 8), FOLLOWER, ("127.0.0.1", 17000))
    replication.keep(offer(BALL, 4, 1), FOLLOWER, ("127.0.0.1", 17000))
    assert place.posted == [], "if the authority dies too, this one is not asked"
    assert place.counts["copies_without_lease"] == 2
    assert replication.table.get(BALL) == new_copy(Fence(3), 7, b"state", CopySource.BACKUP_REPLICA)


async def test_nobody_keeps_copies_of_strangers_or_of_what_lives_here(place: Place) -> None:
    replication = place.replication()
    replication.keep(offer(BALL, 3, 7), "beta.s1", ("127.0.0.1", 17000))
    place.spawn(epoch=4)
    replication.keep(offer(BALL, 4, 7), FOLLOWER, ("127.0.0.1", 17000))
    assert (place.posted, replication.table.get(BALL)) == ([], None)
    assert (place.counts["copies_of_strangers"], place.counts["copies_refused"]) == (1, 1)


# --- where there is no room for more ----------------------------------------------------------------------------------

WHERE = ("127.0.0.1", 17000)
LARGE = b"\0" * 300_000
ROWS = ("alpha.e1", "alpha.e2", "alpha.e3")


def large(entity: str, tick: int = 1, size: int = len(LARGE)) -> Copies:
    return Copies(items=[CopyItem(entity=entity, epoch=1, sub=0, tick=tick, state=LARGE[:1] * size)])


def said(place: Place) -> list[str]:
    """Of which entities this follower has said that it keeps them."""
    return [item.entity for _, message in place.posted for item in message.items]


def full(place: Place) -> Replication:
    """A follower that has room for three large copies, and has them."""
    replication = place.replication()
    for entity in ROWS:
        replication.keep(large(entity), FOLLOWER, WHERE)
    return replication


async def test_a_follower_says_to_keep_only_what_has_room_and_still_has_all_of_that(
    place: Place, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    replication = full(place)
    for entity in ("alpha.e4", "alpha.e5", "alpha.e1"):
        replication.keep(large(entity, 2, 600_000), FOLLOWER, WHERE)
    assert said(place) == list(ROWS)
    assert all(place.table.get(entity) for entity in ROWS)
    assert (place.counts["copies_refused"], place.counts["copies_without_room"]) == (3, 3)
    (line,) = caplog.messages
    assert "Raise max_copies_bytes, or add servers" in line
    await trio.sleep(60)
    replication.keep(large("alpha.e4"), FOLLOWER, WHERE)
    assert len(caplog.messages) == 2, "it is said again, though not for each copy"


async def test_a_copy_that_its_authority_has_not_renewed_for_longer_than_it_ever_takes_makes_room(
    place: Place, autojump_clock: MockClock
) -> None:
    """Sent again at last after 60 intervals, or asked for when its authority is dead and its lease over."""
    place.lease.holder.terms = LeaseTerms(3600_000_000_000)
    replication, term_s = full(place), 3600
    async with served(replication):
        await trio.sleep(3 * (60 * INTERVAL_S + term_s))
        replication.keep(large("alpha.e1"), FOLLOWER, WHERE)
        replication.keep(large("alpha.e4"), FOLLOWER, WHERE)
        assert "alpha.e4" not in said(place)
        await trio.sleep(60 * INTERVAL_S + term_s)
        replication.keep(large("alpha.e4"), FOLLOWER, WHERE)
    assert said(place)[-1] == "alpha.e4"
    assert [place.table.get(entity) is None for entity in ROWS] == [False, True, False]


async def test_no_copy_gets_older_while_there_are_no_leases(place: Place, autojump_clock: MockClock) -> None:
    """Without a quorum nobody renews any. Who sends first when there is one again is not to displace the others'."""
    replication = full(place)
    async with served(replication):
        place.lease.may_act = lambda now_ns: False
        await trio.sleep(1000 * INTERVAL_S)
        place.lease.may_act = lambda now_ns: True
        replication.keep(large("alpha.e4"), FOLLOWER, WHERE)
    assert said(place) == list(ROWS)


async def test_what_a_server_itself_had_makes_room_for_itself_and_what_that_costs_is_counted(
    place: Place, autojump_clock: MockClock
) -> None:
    replication = full(place)
    replication.keep_own(BALL, new_copy(Fence(1), 1, LARGE, CopySource.OWN))
    assert (place.table.get("alpha.e1"), place.counts["copies_evicted"]) == (None, 1)
    assert place.table.get(BALL) is not None


async def test_what_home_has_asked_for_makes_no_room_while_others_are_waited_for(
    place: Place, autojump_clock: MockClock
) -> None:
    replication = full(place)
    replication.asked_for("alpha.e1")
    for entity in ("alpha.e2", "alpha.e3"):
        replication.keep(large(entity, 2), FOLLOWER, WHERE)
    async with served(replication):
        await trio.sleep(350 * INTERVAL_S)
        replication.keep(large("alpha.e4"), FOLLOWER, WHERE)
    assert [place.table.get(entity) is None for entity in ROWS] == [False, True, False]


async def test_what_no_follower_has_room_for_is_applied_and_not_durable_and_keeps_a_drain_waiting(
    system: System, place: Place, autojump_clock: MockClock
) -> None:
    place.lease.peers = servers = (HERE, FOLLOWER, "alpha.s3")
    holding = spawn_with_input(place)
    (first,) = backup_replicas_of(holding.id, HERE, servers, 1)
    (other,) = {FOLLOWER, "alpha.s3"} - {first}
    there = Place(system)
    there.table = CopyTable(1 << 20, 3)
    replication, follower = place.replication(), full(there)
    async with served(replication):
        await trio.sleep(INTERVAL_S)
        replication.kept(kept(holding, place.copied[-1].tick), first)
        assert holding.life.acceptance.durable == {ADA: 1}
        place.lease.aside = frozenset({first})
        holding.life.take_input(ADA, 1, 2, b"\0" * 12)
        holding.life.commit(holding.life.world, now_ns=1)
        await trio.sleep(2 * INTERVAL_S)
        (to, message) = place.posted[-1]
        assert to == other
        follower.keep(message, FOLLOWER, WHERE)
        assert said(there) == list(ROWS)
        assert [upto for _, _, upto in holding.life.heard] == [2]
        assert (holding.life.acceptance.durable, replication.leaning()) == ({ADA: 1}, 1)


async def test_who_sleeps_is_copied_again_in_time_also_where_an_interval_takes_far_longer(
    system: System, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its follower would take it for one that nobody relies on."""
    place = Place(system, Naps())
    holding, replication = place.spawn(), place.replication()
    take, sent_s = replication._take, [trio.current_time()]

    def slowly(due: Sequence[Holding]) -> dict[str, list[CopyItem]]:
        autojump_clock.jump(20 * INTERVAL_S)
        return take(due)

    monkeypatch.setattr(replication, "_take", slowly)
    async with served(replication):
        while len(sent_s) < 20:
            await place.has_posted()
            sent_s.append(trio.current_time())
            replication.kept(kept(holding, place.copied[-1].tick), FOLLOWER)
    longest_s = max(later - before for before, later in pairwise(sent_s))
    assert longest_s <= 2 * 60 * INTERVAL_S + 22 * INTERVAL_S


@pytest.mark.parametrize(("is_kept", "expected"), [(True, [0, 10, 30, 70, 130, 190]), (False, [*range(0, 200, 10)])])
async def test_who_sleeps_is_copied_ever_more_seldom_once_the_copy_is_kept_and_at_once_when_it_has_woken(
    system: System, autojump_clock: MockClock, is_kept: bool, expected: list[int]
) -> None:
    place = Place(system, Naps())
    holding, replication = place.spawn(), place.replication(checkpoint_s=5 * INTERVAL_S)
    async with served(replication):
        in_interval = []
        for interval in range(200):
            await trio.sleep(INTERVAL_S)
            if place.copied:
                in_interval.append(interval)
                if is_kept:
                    replication.kept(kept(holding, place.copied[-1].tick), FOLLOWER)
                place.posted.clear()
            place.stage.environment.rounds.count += 1
        assert holding.life.sleep is not None
        assert in_interval == expected
        assert len(place.checkpoints) == len(expected)
        holding.life.owned(Ownership("alpha.bob", 2))
        await trio.sleep(INTERVAL_S)
        assert len(place.copied) == 1, "another owner is news"
        holding.life.fall_asleep()
        await trio.sleep(INTERVAL_S)
        place.posted.clear()
        place.lease.peers = (HERE, "alpha.s3")
        await trio.sleep(INTERVAL_S)
        assert [to for to, _ in place.posted] == ["alpha.s3"], "another follower has nothing yet"
