"""Copies that nobody renews: what the log says is deleted goes, and nothing else does."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.model.standing import CopySource
from batonpass.authority.names import instance_of
from batonpass.authority.wire.messages import AuthorityRequest, AuthorityWord
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.simserver.durability.replication import Replication, new_copy
from batonpass.simserver.durability.stale_copies import ASK_AGAIN_NS, MAX_ASKED, SILENT_NS, WALK_NS, StaleCopies
from batonpass.simserver.entity.table import Tombstone
from batonpass.simserver.net.home_answers import HomeUnreachable
from tests.simserver.durability.test_replication import HERE, Place
from tests.simserver.ports import TrioClock, ports_of
from tests.simserver.stage import ADA

STATE = b"state"


class Clock(TrioClock):
    def __init__(self) -> None:
        self.now_ns = 10**15

    def monotonic_ns(self) -> int:
        return self.now_ns


class Home:
    """What the log says, and what happens while it is asked."""

    def __init__(self) -> None:
        self.standings: dict[str, str] = {}
        self.asked: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.away: set[str] = set()

    async def ask(self, message: AuthorityRequest, trace: Any, **_: Any) -> OpenedMessage:
        self.asked.append(message.entity)
        self.meanwhile()
        if instance_of(message.entity) in self.away:
            raise HomeUnreachable("away")
        standing: Any = self.standings.get(message.entity, "unknown")
        return OpenedMessage(AuthorityWord(entity=message.entity, standing=standing), "alpha.h1", trace)


class Keeper:
    """A server that keeps copies of others, and asks about those that are stale."""

    def __init__(self) -> None:
        nobody: Any = None
        self.place = Place(nobody)
        self.clock, self.home = Clock(), Home()
        this: Any = self.place
        ports = ports_of(HERE, home=self.home, link=this, clock=self.clock, counts=self.place.counts)
        settings: Any = {"interval_s": 0.5, "checkpoint_s": 0.0, "backup_replicas": 1}
        self.replication = Replication(ports, self.place.lease, self.place.holdings, self.place.table, this, **settings)
        self.stale_copies = StaleCopies(ports, self.place.lease, self.place.holdings, self.replication)

    def keep(self, entity: str, epoch: int = 1) -> None:
        copy = new_copy(Fence(epoch), 1, STATE, CopySource.BACKUP_REPLICA)
        self.replication.stale()
        assert self.place.table.offer(entity, copy, self.replication._kept_at_ns())

    def lapse(self) -> None:
        """Time passes, in which no authority renews anything."""
        self.replication.stale()
        self.clock.now_ns += self.place.table.fresh_ns // 2 + WALK_NS

    async def look(self) -> list[str]:
        asked = self.stale_copies.due()
        for entity in asked:
            await self.stale_copies._ask(entity)
        return asked

    @property
    def kept(self) -> set[str]:
        return set(self.place.table._rows)


async def test_copies_of_the_deleted_go_and_all_others_stay() -> None:
    keeper = Keeper()
    keeper.home.standings = {"alpha.dead": "deleted", "alpha.lives": "known", "alpha.strange": "unknown"}
    for entity in ("alpha.dead", "alpha.lives", "alpha.strange"):
        keeper.keep(entity)
    assert await keeper.look() == [], "an authority may be about to renew them"
    keeper.lapse()
    keeper.keep("alpha.fresh")
    assert await keeper.look() == ["alpha.dead", "alpha.lives", "alpha.strange"]
    assert keeper.kept == {"alpha.lives", "alpha.strange", "alpha.fresh"}
    assert keeper.place.table.bytes == 3 * len(STATE)


async def test_an_entity_that_is_there_is_asked_about_again_much_later() -> None:
    keeper = Keeper()
    keeper.keep("alpha.lives")
    keeper.lapse()
    assert await keeper.look() == ["alpha.lives"]
    for _ in range(5):
        keeper.clock.now_ns += WALK_NS
        assert await keeper.look() == []
    keeper.clock.now_ns += ASK_AGAIN_NS
    assert await keeper.look() == ["alpha.lives"]


async def test_what_home_has_asked_for_is_not_asked_about() -> None:
    keeper = Keeper()
    keeper.keep("alpha.ball")
    keeper.replication.asked_for("alpha.ball")
    keeper.lapse()
    assert await keeper.look() == []


async def test_a_home_that_is_away_lets_go_of_nothing() -> None:
    keeper = Keeper()
    keeper.home.standings = {"alpha.dead": "deleted"}
    keeper.home.away = {"alpha"}
    keeper.keep("alpha.dead")
    keeper.lapse()
    assert await keeper.look() == ["alpha.dead"]
    assert keeper.kept == {"alpha.dead"}


async def test_what_a_busy_home_does_not_answer_has_its_turn_again_soon_and_not_when_all_is_asked_again() -> None:
    keeper = Keeper()
    names = [f"alpha.{number}" for number in range(3 * MAX_ASKED)]
    keeper.home.standings = dict.fromkeys(names, "deleted")
    for name in names:
        keeper.keep(name)
    keeper.lapse()
    began_ns, keeper.home.away = keeper.clock.now_ns, {"alpha"}
    assert len(await keeper.look()) == MAX_ASKED
    assert await keeper.look() == [], "it has more to do than it can"
    keeper.home.away = set()
    while keeper.kept:
        keeper.clock.now_ns += SILENT_NS
        await keeper.look()
    assert keeper.clock.now_ns - began_ns < ASK_AGAIN_NS // 10


async def test_a_home_that_is_away_keeps_nobody_elses_waiting() -> None:
    keeper = Keeper()
    strange = [f"beta.{number}" for number in range(3 * MAX_ASKED)]
    names = [f"alpha.{number}" for number in range(5)]
    keeper.home.standings, keeper.home.away = dict.fromkeys(names, "deleted"), {"beta"}
    for name in (*strange, *names):
        keeper.keep(name)
    keeper.lapse()
    while set(names) & keeper.kept:
        await keeper.look()
    assert len([name for name in keeper.home.asked if name in strange]) == MAX_ASKED
    assert keeper.kept == set(strange)
    keeper.home.away = set()
    keeper.clock.now_ns += WALK_NS + SILENT_NS
    for _ in range(4):
        await keeper.look()
        keeper.clock.now_ns += WALK_NS
    assert set(strange) <= {*keeper.home.asked[MAX_ASKED + len(names) :]}


async def test_a_later_entity_of_the_name_that_comes_while_home_is_asked_stays() -> None:
    keeper = Keeper()
    keeper.home.standings = {"alpha.ball": "deleted"}
    keeper.home.meanwhile = lambda: keeper.keep("alpha.ball", epoch=9)
    keeper.keep("alpha.ball")
    keeper.lapse()
    await keeper.look()
    copy = keeper.place.table.get("alpha.ball")
    assert copy is not None
    assert copy.fence == Fence(9)


async def test_what_lived_here_and_was_deleted_elsewhere_is_forgotten_on_disk_too() -> None:
    keeper = Keeper()
    keeper.home.standings = {"alpha.dead": "deleted", "alpha.lives": "known"}
    holdings = keeper.place.holdings
    for entity in ("alpha.dead", "alpha.lives"):
        holdings.remember_lived(entity, Fence(3))
    assert await keeper.look() == ["alpha.dead", "alpha.lives"]
    assert dict(holdings.all_lived()) == {"alpha.lives": Fence(3)}
    assert holdings.gone("alpha.dead") == Tombstone("", Fence(3))
    notes: Any = holdings._notes
    assert notes.lines == ["alpha.dead left to  under 3"]


async def test_one_that_has_begun_here_again_meanwhile_goes_on() -> None:
    keeper = Keeper()
    keeper.home.standings = {"alpha.ball": "deleted"}
    holdings = keeper.place.holdings
    holdings.remember_lived("alpha.ball", Fence(3))
    keeper.home.meanwhile = lambda: void(holdings.spawn("alpha.ball", "ball", {}, Fence(5), Ownership(ADA, 1)))
    await keeper.look()
    holding = holdings.get("alpha.ball")
    assert holding is not None
    assert holding.fence == Fence(5)


def void(*_: object) -> None:
    """All was done."""


@given(st.lists(st.tuples(st.sampled_from(["keep", "delete", "lapse", "look"]), st.integers(0, 4)), max_size=40))
async def test_nothing_goes_but_what_the_log_says_is_deleted(steps: list[tuple[str, int]]) -> None:
    keeper, names = Keeper(), [f"alpha.{number}" for number in range(5)]
    keeper.home.standings = dict.fromkeys(names, "known")
    there: set[str] = set()
    for what, number in steps:
        name = names[number]
        if what == "keep" and keeper.home.standings[name] == "known":
            keeper.keep(name)
            there.add(name)
        elif what == "delete":
            keeper.home.standings[name] = "deleted"
        elif what == "lapse":
            keeper.lapse()
        elif what == "look":
            await keeper.look()
        gone = there - keeper.kept
        assert all(keeper.home.standings[one] == "deleted" for one in gone)
    keeper.lapse()
    keeper.clock.now_ns += ASK_AGAIN_NS
    keeper.stale_copies._due.clear()
    await keeper.look()
    assert keeper.kept == {one for one in there if keeper.home.standings[one] == "known"}


async def test_no_more_than_a_parcel_is_asked_about_at_a_time_and_all_have_their_turn() -> None:
    keeper = Keeper()
    names = [f"alpha.{number}" for number in range(2 * MAX_ASKED + 5)]
    for name in names:
        keeper.keep(name)
        keeper.home.standings[name] = "deleted"
    keeper.lapse()
    assert [len(await keeper.look()) for _ in range(4)] == [MAX_ASKED, MAX_ASKED, 5, 0]
    assert keeper.kept == set()
