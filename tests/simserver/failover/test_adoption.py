"""What a server says and gives up when its home instance looks for copies."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from batonpass.actors import System
from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.machines.replica_choice import Copy, CopyTable
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.model.standing import CopySource
from batonpass.authority.node.spans import ADOPTION, takeover_id
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.recovery import AdoptItem, FoundItem, RaisedItem
from batonpass.authority.wire.transfer import Adopt, Adopted, Collect, Collected
from batonpass.simserver.durability.put_aside import PutAside
from batonpass.simserver.durability.replication import new_copy
from batonpass.simserver.entity.crash_guard import _Death
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.failover.adoption import Adoption
from batonpass.simserver.transfer.source.order_history import ReleasedEpochs
from batonpass.simserver.transfer.target.staged_states import StagedState as Staged
from tests.authority.node.test_spans import Ear
from tests.simserver.entity.test_crash_guard import DIED_TWICE
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import ports_of
from tests.simserver.stage import ADA, BALL, Stage

pytestmark = pytest.mark.usefixtures("either_kind")

HOME = "alpha.h1"


class Scene:
    """A server, as far as recoveries are concerned; it is what its parts are given, too."""

    incarnation = 7

    def __init__(self, system: System) -> None:
        self.stage = Stage(system)
        self.holdings = Holdings(self.stage.environment, Written())
        self.table = CopyTable(10**6, 100)
        self.raised: list[tuple[str, Fence]] = []
        self.leaving: set[str] = set()
        self.taken: list[str] = []
        self.hurried: list[str] = []
        self.asked: list[str] = []
        self.staged: list[Staged] = []
        self.was_handed_over: Copy | None = None
        self.of_before: list[tuple[str, Copy]] = []
        self.went_on: list[tuple[str, int]] = []
        self.sent: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.handed_on = ReleasedEpochs()
        me: Any = self
        self.unsettled = me
        self.recovery = Adoption(ports_of(outbox=me, counts=self.counts), me, self.holdings, me, me, me, me, PutAside())

    # As arrivals, departures, stages, outbox, replication.
    def keep_own(self, entity: str, copy: Copy) -> None:
        self.table.keep(entity, copy, 0)

    def asked_for(self, entity: str) -> None:
        self.asked.append(entity)

    def fence_raised(self, entity: str, fence: Fence) -> None:
        self.raised.append((entity, fence))

    def adopt(self, entity: str, fence: Fence, snapshot: EntitySnapshot, ownership: Ownership) -> None:
        self.holdings.start(entity, fence, snapshot, ownership=ownership)

    def resumed(self, entity: str, tick: int) -> None:
        self.went_on.append((entity, tick))

    @property
    def handed_over(self) -> Any:
        return SimpleNamespace(of=lambda entity: self.was_handed_over, of_before=lambda: iter(self.of_before))

    def hurry(self, entity: str) -> None:
        self.hurried.append(entity)

    def is_leaving(self, entity: str) -> bool:
        return entity in self.leaving

    def taken_away(self, entity: str) -> None:
        self.taken.append(entity)

    def of(self, entity: str, below: Fence) -> Staged | None:
        return max((one for one in self.staged if one.fence < below), key=lambda one: one.fence, default=None)

    def send(self, message: Any, trace: Trace, to: str, **_: Any) -> None:
        self.sent.append(message)

    def collect(self, epoch: int, sub: int = 0, counts_before: int = 0) -> FoundItem | None:
        items = [RaisedItem(entity=BALL, epoch=epoch, sub=sub, counts_before=counts_before)]
        self.recovery.collect(Collect(number=1, items=items), HOME)
        answer = self.sent.pop()
        assert isinstance(answer, Collected)
        return answer.items[0] if answer.items else None

    def live(self, fence: Fence = Fence(3)) -> None:  # noqa: B008 — an immutable tuple
        holding = self.holdings.spawn(BALL, "ball", {}, fence, Ownership(ADA, 1))
        holding.life.commit(holding.life.world, 1)


@pytest.fixture
async def scene(system: System) -> Scene:
    return Scene(system)


async def test_what_lives_here_under_a_fence_that_the_log_has_left_behind_goes_on_no_longer(scene: Scene) -> None:
    """It was begun, and the log, which had not heard of it, took it back: its next life begins where this one ends."""
    scene.live()
    stint = scene.stage.custody.to_data()
    found = scene.collect(4)
    assert scene.holdings.get(BALL) is None
    (ended,) = scene.stage.custody.to_data()
    assert not stint[0]["ended_ns"]
    assert (ended["ended_tick"], ended["ended_hash"]) == (1, found and found.state_hash)
    assert found is not None
    assert (found.fence, found.tick, found.source, found.holds) == (Fence(3), 1, CopySource.OWN, True)
    assert scene.raised == [(BALL, Fence(4))]
    assert scene.collect(4) == found, "whoever asks again hears again that it was simulated until then"
    asked_for_chains = scene.collect(4, MAX_EPOCH)
    assert asked_for_chains is not None
    assert not asked_for_chains.holds, "nobody simulates it"
    # And goes on from there, if it is given back.
    item = AdoptItem(entity=BALL, epoch=5, sub=0, tick=1, state_hash=found.state_hash, owner=ADA, owner_rev=1)
    scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
    holding = scene.holdings.get(BALL)
    assert holding is not None
    assert (holding.fence, holding.life.tick) == (Fence(5), 1)
    assert isinstance(scene.sent.pop(), Adopted)


@pytest.mark.parametrize(("fence", "counts"), [(Fence(3, 1), False), (Fence(4), True)])
async def test_what_was_copied_here_after_a_pass_that_this_server_has_not_made_is_from_a_thief(
    scene: Scene, fence: Fence, counts: bool
) -> None:
    """Of what the log gave to somebody else meanwhile the copy counts."""
    scene.live()
    scene.table.keep(BALL, Copy(fence, 9, b"theirs", "f" * 64), 0)
    found = scene.collect(5)
    assert found is not None
    assert (found.tick, found.holds) == ((9, False) if counts else (1, True))


async def test_who_holds_it_by_a_chain_of_the_same_epoch_goes_on_and_tells_of_its_chain(scene: Scene) -> None:
    scene.live(Fence(3, 2))
    found = scene.collect(3, MAX_EPOCH)
    assert (found and found.holds, scene.hurried) == (True, [BALL])
    assert scene.holdings.get(BALL) is not None


async def test_whoever_holds_it_by_a_chain_has_copies_kept_also_by_those_who_were_asked(scene: Scene) -> None:
    """Nobody takes it from its holder; without copies nothing would be durable until it moves through the log."""
    copy = new_copy(Fence(3, 2), 9, b"state", CopySource.BACKUP_REPLICA)
    scene.collect(3, MAX_EPOCH)
    assert (scene.raised, scene.table.offer(BALL, copy, 0)) == ([(BALL, Fence(3, MAX_EPOCH))], True)
    scene.collect(4)
    assert not scene.table.offer(BALL, copy, 0), "now it is taken"


async def test_what_is_leaving_stays_as_it_stands_still_and_is_a_copy(scene: Scene) -> None:
    scene.live()
    holding = scene.holdings.get(BALL)
    assert holding is not None
    holding.life.freeze()
    scene.leaving.add(BALL)
    found = scene.collect(5)
    assert (found and (found.tick, found.holds)) == (1, False)
    assert scene.holdings.get(BALL) is holding
    assert scene.asked == [BALL], "it may be all that is left of it as soon as that is refused"


@pytest.mark.parametrize(("epoch", "sub", "is_taken"), [(4, 0, True), (3, 0, False), (3, MAX_EPOCH, False)])
async def test_what_is_leaving_does_not_go_on_here_once_the_log_has_raised_its_fence(
    scene: Scene, epoch: int, sub: int, is_taken: bool
) -> None:
    """A question of an earlier recovery says nothing of it, and who is asked for chains alone goes on."""
    scene.live()
    holding = scene.holdings.get(BALL)
    assert holding is not None
    holding.life.freeze()
    scene.leaving.add(BALL)
    scene.collect(epoch, sub)
    assert scene.taken == [BALL] * is_taken
    assert scene.holdings.get(BALL) is holding, "it may have left"
    scene.holdings.drop(BALL)
    assert (scene.holdings.lived(BALL), scene.holdings.since(BALL)) == ((Fence(3), 3) if is_taken else (None, 0))


async def test_what_was_handed_over_a_moment_ago_is_said_too(scene: Scene) -> None:
    scene.was_handed_over = new_copy(Fence(3), 9, b"state", CopySource.BACKUP_REPLICA)
    found = scene.collect(5)
    assert (found and (found.fence, found.tick)) == (Fence(3), 9)


@pytest.mark.parametrize("is_own", [True, False])
async def test_failures_row_42_it_knows_which_stay_of_its_own_it_has_gone_on_from(scene: Scene, is_own: bool) -> None:
    scene.live()
    found = scene.collect(4)
    assert found is not None
    if not is_own:
        copy = scene.table.get(BALL)
        assert copy is not None
        scene.table.drop(BALL)
        scene.table.keep(BALL, new_copy(copy.fence, copy.tick, copy.state, CopySource.BACKUP_REPLICA), 0)
    item = AdoptItem(entity=BALL, epoch=5, sub=0, tick=1, state_hash=found.state_hash, owner=ADA, owner_rev=1)
    scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
    assert scene.holdings.get(BALL) is not None
    assert scene.handed_on.before(BALL, 5) == ([3] if is_own else [])
    assert scene.holdings.since(BALL) == (3 if is_own else 5)


async def test_failures_row_42_it_knows_since_when_it_has_had_an_entity_however_often_its_fence_was_raised(
    scene: Scene,
) -> None:
    """Also what of it was written down by a life before the last one."""
    scene.live()
    found = scene.collect(6)
    assert found is not None
    scene.holdings.remember_lived(BALL, Fence(5), since=2)
    for epoch in (7, 9, 11):
        item = AdoptItem(entity=BALL, epoch=epoch, sub=0, tick=1, state_hash=found.state_hash, owner=ADA, owner_rev=1)
        scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
        assert scene.holdings.since(BALL) == 2
        found = scene.collect(epoch + 1)
        assert found is not None
    said = []
    for own_epoch in (0, 1, 2, 5, 10, 11):
        scene.sent.clear()
        items = [RaisedItem(entity=BALL, epoch=20, sub=0, own_epoch=own_epoch)]
        scene.recovery.collect(Collect(number=1, items=items), HOME)
        said += [own_epoch for answer in scene.sent if answer.handed_on]
    assert said == [2, 5, 10], "that under which it stands still has not gone on"


async def test_failures_row_42_what_comes_back_to_a_server_has_been_there_since_then(scene: Scene) -> None:
    scene.holdings.remember_lived(BALL, Fence(5), since=2)
    scene.live(Fence(8))
    assert scene.holdings.since(BALL) == 8
    scene.holdings.leave(BALL, "alpha.s2", Fence(9))
    assert scene.holdings.since(BALL) == 0


async def test_nothing_is_said_of_what_was_never_here(scene: Scene) -> None:
    assert scene.collect(2) is None


async def test_what_is_given_to_another_life_of_this_server_is_not_gone_on_with(scene: Scene) -> None:
    scene.live()
    found = scene.collect(4)
    assert found is not None
    item = AdoptItem(entity=BALL, epoch=5, sub=0, tick=1, state_hash=found.state_hash, owner="", owner_rev=0)
    scene.recovery.adopt(Adopt(incarnation=6, items=[item]), HOME)
    assert scene.holdings.get(BALL) is None
    assert scene.sent == []


async def test_what_an_earlier_life_went_on_with_is_not_begun_once_more_under_the_same_fence(
    scene: Scene,
) -> None:
    """Whoever was given it took it up, and its lease ended; the order to go on came again, to the next life."""
    scene.live()
    found = scene.collect(4)
    assert found is not None
    item = AdoptItem(entity=BALL, epoch=5, sub=0, tick=1, state_hash=found.state_hash, owner="", owner_rev=0)
    scene.holdings.remember_lived(BALL, Fence(5))
    scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
    assert scene.holdings.get(BALL) is None
    scene.recovery.adopt(Adopt(incarnation=7, items=[item.model_copy(update={"epoch": 7})]), HOME)
    holding = scene.holdings.get(BALL)
    assert (holding and holding.fence) == Fence(7)


def staged(fence: Fence, tick: int = 9, state: bytes = b"staged") -> Staged:
    return Staged("transfer-1", BALL, "alpha.s2", *fence, "ball", tick, "0" * 64, state)


async def test_failures_row_12_a_staged_state_that_is_later_than_all_copies_is_told_of_and_gone_on_with(
    scene: Scene,
) -> None:
    """Also when it is not staged any more: by the raised fence, nothing comes of the hand-over."""
    scene.live()
    holding = scene.holdings.get(BALL)
    assert holding is not None
    state = holding.life.encoded()
    scene.holdings.drop(BALL)
    scene.table.offer(BALL, new_copy(Fence(3), 1, b"copied", CopySource.BACKUP_REPLICA), 0)
    scene.staged = [staged(Fence(3), 2, state)]
    found = scene.collect(4)
    assert found is not None
    assert (found.fence, found.tick, found.source) == (Fence(3), 2, CopySource.STAGED)
    scene.staged.clear()
    assert scene.collect(4) == found
    item = AdoptItem(entity=BALL, epoch=5, sub=0, tick=2, state_hash=found.state_hash, owner=ADA, owner_rev=1)
    scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
    holding = scene.holdings.get(BALL)
    assert (holding and holding.fence) == Fence(5)


async def test_who_has_begun_with_a_staged_state_does_not_say_that_it_was_only_staged(scene: Scene) -> None:
    scene.staged = [staged(Fence(3))]
    scene.holdings.remember_lived(BALL, Fence(3))
    found = scene.collect(6)
    assert (found and found.source) == CopySource.STAGED, "it lived here before it was staged here again"
    scene.holdings.remember_lived(BALL, Fence(4))
    found = scene.collect(6)
    assert (found and found.source) == CopySource.CHECKPOINT


async def test_a_staged_state_under_a_fence_that_was_never_given_displaces_no_copy(scene: Scene) -> None:
    """Neither the one that there is, nor those of the next authority."""
    copy = new_copy(Fence(3), 5, b"copied", CopySource.BACKUP_REPLICA)
    scene.table.offer(BALL, copy, 0)
    scene.staged = [staged(Fence(1002)), staged(Fence(4))]
    found = scene.collect(4)
    assert (found and (found.fence, found.state_hash)) == (Fence(3), copy.state_hash)
    assert scene.table.get(BALL) == copy
    assert scene.table.offer(BALL, new_copy(Fence(5), 6, b"next", CopySource.BACKUP_REPLICA), 0)


async def test_a_staged_state_does_not_take_the_place_of_the_copy_that_an_authority_sent(scene: Scene) -> None:
    copy = new_copy(Fence(3), 5, b"copied", CopySource.BACKUP_REPLICA)
    scene.table.offer(BALL, copy, 0)
    scene.staged = [staged(Fence(3, 2**60))]
    scene.collect(4)
    assert scene.table.get(BALL) == copy
    item = AdoptItem(entity=BALL, epoch=5, sub=0, tick=5, state_hash=copy.state_hash, owner=ADA, owner_rev=1)
    scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
    assert scene.counts["adopt_without_copy"] == 0, "it is what it was asked to go on with"
    later = new_copy(Fence(5), 6, b"next", CopySource.BACKUP_REPLICA)
    assert scene.table.offer(BALL, later, 0)


async def test_a_later_copy_that_does_not_count_leaves_no_earlier_one_unsaid(scene: Scene) -> None:
    """It went home from here and was to come back: what was staged for that is not what its home may believe."""
    copy = new_copy(Fence(2), 26, b"left behind", CopySource.CHECKPOINT)
    scene.table.keep(BALL, copy, 0)
    scene.staged = [staged(Fence(4))]
    for _time in range(2):
        found = scene.collect(6, counts_before=3)
        assert (found and (found.fence, found.state_hash)) == (Fence(2), copy.state_hash)
    item = AdoptItem(entity=BALL, epoch=7, sub=0, tick=26, state_hash=copy.state_hash, owner=ADA, owner_rev=1)
    scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
    assert scene.counts["adopt_without_copy"] == 0


async def test_failures_row_42_what_lives_here_is_said_though_there_is_a_copy_of_what_another_history_gave(
    scene: Scene,
) -> None:
    """As a follower of whoever was given it by that, with a higher fence than the log that counts knows."""
    scene.live(Fence(4))
    scene.table.keep(BALL, new_copy(Fence(6), 99, b"another history", CopySource.BACKUP_REPLICA), 0)
    for _time in range(2):
        found = scene.collect(2**40, counts_before=5)
        assert found is not None
        assert (found.fence, found.source, found.holds) == (Fence(4), CopySource.OWN, True)
    assert scene.holdings.get(BALL) is None
    assert scene.counts["later_copy_does_not_count"] == 1


async def test_failures_row_42_it_says_what_it_has_handed_on(scene: Scene) -> None:
    scene.handed_on.note(BALL, 4)
    for entity, own_epoch in ((BALL, 4), (BALL, 0), (BALL, 5), ("alpha.third", 4)):
        items = [RaisedItem(entity=entity, epoch=9, sub=0, own_epoch=own_epoch)]
        scene.recovery.collect(Collect(number=1, items=items), HOME)
    assert [answer.handed_on for answer in scene.sent] == [[BALL], [], [], []]


async def test_failures_row_42_who_handed_it_on_a_moment_ago_keeps_the_copy_of_what_came_of_it(scene: Scene) -> None:
    """It follows whoever has it now. The copy does not count yet, and does as soon as home hears what this one says."""
    scene.was_handed_over = new_copy(Fence(4), 9, b"handed over", CopySource.CHECKPOINT)
    scene.handed_on.note(BALL, 4)
    scene.table.keep(BALL, new_copy(Fence(5), 99, b"what came of it", CopySource.BACKUP_REPLICA), 0)
    scene.collect(2**40, counts_before=5)
    found = scene.collect(2**40)
    assert found is not None
    assert (found.fence, found.tick) == (Fence(5), 99)


async def test_a_question_of_an_earlier_recovery_that_comes_late_takes_nothing_that_home_was_told_of(
    scene: Scene,
) -> None:
    scene.staged = [staged(Fence(6))]
    assert (found := scene.collect(8, counts_before=8)) is not None
    scene.staged.clear()
    scene.collect(5, counts_before=5)
    assert scene.collect(8, counts_before=8) == found


async def test_a_staged_state_of_when_it_counts_is_found_behind_one_that_does_not(scene: Scene) -> None:
    scene.staged = [staged(Fence(4))]
    assert (found := scene.collect(6)) is not None
    assert found.fence == Fence(4)
    scene.staged = [staged(Fence(1)), staged(Fence(4))]
    assert (found := scene.collect(6, counts_before=3)) is not None
    assert found.fence == Fence(1)


async def test_after_a_restart_what_had_just_left_is_a_copy_too(scene: Scene) -> None:
    """If all servers lost power, whoever has it now has perhaps written nothing down yet."""
    scene.of_before = [(BALL, new_copy(Fence(3), 9, b"state", CopySource.CHECKPOINT))]
    ledger: Any = SimpleNamespace(interrupted=())
    scene.recovery.remember(ledger)
    found = scene.collect(5)
    assert found is not None
    assert (found.epoch, found.tick, found.source, found.holds) == (3, 9, CopySource.CHECKPOINT, False)


async def test_after_a_restart_what_had_left_makes_room_for_what_lived_here(scene: Scene) -> None:
    """Others have what had left; of what lived here there may be nothing but this."""
    scene.table = CopyTable(10, 10)
    left = new_copy(Fence(3), 9, b"12345", CopySource.CHECKPOINT)
    scene.of_before = [("alpha.e1", left), ("alpha.e2", left)]
    row = SimpleNamespace(entity=BALL)
    ledger: Any = SimpleNamespace(interrupted=(row,), checkpoint_of=lambda entity: (Fence(3), 9, b"12345"))
    scene.recovery.remember(ledger)
    assert scene.table.get(BALL) is not None


async def test_what_is_asked_for_is_kept_for_whoever_waits_and_not_what_lives_here(scene: Scene) -> None:
    scene.table.offer(BALL, new_copy(Fence(3), 9, b"copied", CopySource.BACKUP_REPLICA), 0)
    scene.collect(5)
    assert scene.asked == [BALL]
    scene.live(Fence(6))
    scene.collect(6, MAX_EPOCH)
    assert scene.asked == [BALL]


async def test_of_staged_states_that_home_was_told_of_the_oldest_are_forgotten_first(system: System) -> None:
    """They are still on the disk, or nothing comes of them; a copy of an authority has no such place."""
    scene = Scene(system)
    scene.table = CopyTable(10, 10, fresh_ns=10**9)
    me: Any = scene
    scene.recovery = Adoption(ports_of(outbox=me, counts=scene.counts), me, scene.holdings, me, me, me, me, PutAside())
    for entity in ("alpha.e1", "alpha.e2", "alpha.e3"):
        scene.staged = [staged(Fence(3), state=b"12345")]
        items = [RaisedItem(entity=entity, epoch=4, sub=0)]
        scene.recovery.collect(Collect(number=1, items=items), HOME)
    assert [scene.recovery._staged.get(f"alpha.e{number}") is None for number in (1, 2, 3)] == [True, False, False]


async def test_going_on_from_a_copy_is_told_and_why_it_could_not_be(scene: Scene) -> None:
    ear = Ear()
    scene.recovery._spans = ear.spans
    scene.live()
    found = scene.collect(4)
    assert found is not None
    items = [
        AdoptItem(entity=BALL, epoch=5, sub=0, tick=1, state_hash=wanted, owner=ADA, owner_rev=1)
        for wanted in ("0" * 64, found.state_hash, found.state_hash)
    ]
    for item in items:
        scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
    told = [metadata for event, _, metadata in ear.heard if event == (*ADOPTION, "stop")]
    assert [one["outcome"] for one in told] == ["without_copy", "adopted"], "a repetition is none"
    assert {(one["transfer_id"], one["fence"]) for one in told} == {(takeover_id(BALL, 4), Fence(5))}


async def test_failures_row_41_it_says_of_whom_it_died_and_lets_stand_still_of_whom_servers_died_too_often(
    scene: Scene,
) -> None:
    scene.live()
    found = scene.collect(4)
    assert found is not None
    scene.holdings.crash_guard.heard(BALL, [1])
    items = [RaisedItem(entity=BALL, epoch=4, sub=0), RaisedItem(entity="alpha.other", epoch=4, sub=0)]
    scene.recovery.collect(Collect(number=1, items=items), HOME)
    assert scene.sent.pop().deaths == {BALL: [1]}, "who has died of it may be silent by now, and was heard"
    scene.holdings.crash_guard._deaths[BALL] = [_Death(0.0, 2)]
    scene.recovery.collect(Collect(number=1, items=items), HOME)
    assert scene.sent.pop().deaths == {BALL: [1, 2]}
    wanted = found.state_hash
    item = AdoptItem(entity=BALL, epoch=5, sub=0, tick=1, state_hash=wanted, owner=ADA, owner_rev=1, deaths=[1, 2])
    scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
    holding = scene.holdings.get(BALL)
    assert holding is not None
    assert (holding.fence, holding.life.quarantine.wherever) == (Fence(5), DIED_TWICE)


@pytest.mark.parametrize(
    ("released_epoch", "died_under", "stands_still"),
    [(3, [1, 2], False), (3, [2, 5], False), (3, [3, 5], True), (0, [1, 2], True), (MAX_EPOCH, [3, 5], True)],
    ids=["before", "once since", "since", "never released", "says so for ever"],
)
async def test_failures_row_41_what_was_released_is_gone_on_with_unless_servers_have_died_of_it_since(
    scene: Scene, released_epoch: int, died_under: list[int], stands_still: bool
) -> None:
    """Whoever had it last says when it was released, and so lets go on what it had itself; not what comes of that."""
    scene.live()
    holding = scene.holdings.get(BALL)
    assert holding is not None
    holding.life.quarantine.released_epoch = released_epoch
    found = scene.collect(6)
    assert found is not None
    item = AdoptItem(
        entity=BALL, epoch=7, sub=0, tick=1, state_hash=found.state_hash, owner=ADA, owner_rev=1, deaths=died_under
    )
    scene.recovery.adopt(Adopt(incarnation=7, items=[item]), HOME)
    adopted = scene.holdings.get(BALL)
    assert adopted is not None
    assert (adopted.fence, bool(adopted.life.quarantine.wherever)) == (Fence(7), stands_still)
