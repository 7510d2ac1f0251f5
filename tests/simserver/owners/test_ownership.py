"""Owner as a mutex: whoever does not own an entity, or owned it before, has no input applied, and is told."""

from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import OwnerRequest, OwnerWord
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.owners.lookup import ASK_AGAIN_NS, MAX_WAITING, OwnerLookup
from tests.budget import examples
from tests.simserver.stage import ADA, BALL, Stage, Tally

either_kind = pytest.mark.usefixtures("either_kind")

BOB = "alpha.bob"
PLAYERS = (ADA, BOB, "alpha.eve")


def life() -> tuple[Stage, Life]:
    stage = Stage(None, world=Tally())  # type: ignore[arg-type]  # no actor is started here
    return stage, stage.life(Fence(1), stage.fresh("tally"))


def tick(stage: Stage, one: Life) -> None:
    if stage.batch is None:
        one.commit(stage.world.step(one.world, one.inbox.pending, 0.05), 1)
    else:
        stage.batch.tick()
        # The stage is about acknowledgements that others send.
        stage.acks.clear()


def told(stage: Stage) -> list[tuple[str, str, str, int, int]]:
    return [(to, c.reason, c.owner, c.owner_rev, c.applied) for to, c in stage.corrections]


@either_kind
def test_a_stranger_is_refused_and_told_who_owns_it() -> None:
    stage, one = life()
    one.take_input(BOB, 1, 1, b"")
    assert one.inbox.pending == []
    assert BOB not in one.inbox.cursors, "strangers take no room"
    assert told(stage) == [(BOB, "not_owner", ADA, 1, 0)]


@either_kind
def test_what_the_former_owner_gave_and_no_tick_has_applied_is_refused_at_the_change() -> None:
    stage, one = life()
    one.take_input(ADA, 1, 1, b"")
    tick(stage, one)
    one.take_input(ADA, 1, 2, b"")
    one.owned(Ownership(BOB, 2))
    tick(stage, one)
    assert one.world["applied"] == [[ADA, 1]]
    assert told(stage) == [(ADA, "not_owner", BOB, 2, 1)]


@either_kind
def test_a_former_owner_that_asks_hears_how_much_of_what_it_gave_will_stay() -> None:
    stage, one = life()
    one.take_input(ADA, 1, 1, b"")
    tick(stage, one)
    one.owned(Ownership(BOB, 2))
    before = len(stage.acks)
    one.take_input(ADA, 1, 1, b"")
    assert [(to, ack.applied, ack.durable) for to, ack in stage.acks[before:]] == [(ADA, 1, 1)]
    one.take_input(ADA, 1, 2, b"")
    assert len(stage.acks) == before + 1, "what it gives now is only refused"
    assert one.world["applied"] == [[ADA, 1]]


@either_kind
def test_an_owner_who_comes_back_goes_on_after_what_was_applied_and_nothing_of_the_first_time_counts() -> None:
    stage, one = life()
    one.take_input(ADA, 1, 1, b"")
    one.owned(Ownership(BOB, 2))
    one.owned(Ownership(ADA, 3))
    one.take_input(ADA, 1, 1, b"fire")
    assert told(stage)[-1] == (ADA, "stale_ownership", ADA, 3, 0)
    one.take_input(ADA, 3, 1, b"")
    tick(stage, one)
    assert one.world["applied"] == [[ADA, 1]]


@either_kind
def test_a_later_ownership_than_the_known_one_is_looked_up_and_an_earlier_word_is_of_the_past() -> None:
    stage, one = life()
    one.take_input(BOB, 2, 1, b"")
    assert stage.unheard == [BALL]
    one.owned(Ownership(BOB, 2))
    one.owned(Ownership(ADA, 1))
    one.take_input(BOB, 2, 1, b"")
    tick(stage, one)
    assert one.world["applied"] == [[BOB, 1]]


@either_kind
def test_frozen_it_ends_with_the_state_that_it_was_frozen_with_and_changes_hands_as_it_goes_on() -> None:
    stage, one = life()
    one.take_input(ADA, 1, 1, b"")
    frozen = one.freeze()
    assert frozen is not None
    one.owned(Ownership(BOB, 2))
    one.take_input(ADA, 1, 2, b"")
    one.take_input(BOB, 2, 1, b"")
    one.resume(Fence(2))
    assert stage.custody.to_data()[-1]["started_hash"] == frozen.state_hash
    tick(stage, one)
    assert one.world["applied"] == [[BOB, 1]]


@either_kind
def test_the_ownership_moves_with_the_entity() -> None:
    _, one = life()
    one.owned(Ownership(BOB, 7))
    frozen = one.freeze()
    assert frozen is not None
    assert EntitySnapshot.decode(frozen.state).ownership == Ownership(BOB, 7)


class Mutex(RuleBasedStateMachine):
    """The log hands ownership about; players give inputs under what they know; servers hear late, freeze and move."""

    def __init__(self) -> None:
        super().__init__()
        self.stage, self.life = life()
        self.log = [Ownership("", 0), Ownership(ADA, 1)]
        self.sent: Counter[str] = Counter()
        self.fence = Fence(1)
        self.applied_under: list[tuple[str, int]] = []

    @rule(player=st.sampled_from(PLAYERS))
    def the_log_makes_owner(self, player: str) -> None:
        self.log.append(Ownership(player, len(self.log)))

    @rule(back=st.integers(0, 3))
    def the_server_hears(self, back: int) -> None:
        self.life.owned(self.log[max(0, len(self.log) - 1 - back)])

    @rule(player=st.sampled_from(PLAYERS), rev=st.integers(0, 12), ahead=st.integers(1, 2))
    def a_player_gives_an_input(self, player: str, rev: int, ahead: int) -> None:
        cursor = self.life.inbox.cursors.get(player)
        seq = (cursor.accepted if cursor else 0) + ahead
        self.life.take_input(player, min(rev, len(self.log) - 1), seq, b"")

    @precondition(lambda self: not self.life.frozen)
    @rule()
    def tick(self) -> None:
        pending = list(self.life.inbox.pending)
        tick(self.stage, self.life)
        self.applied_under += [(item.source, self.life.ownership.rev) for item in pending]

    @rule()
    def freeze(self) -> None:
        self.life.freeze()

    @precondition(lambda self: self.life.frozen)
    @rule()
    def resume(self) -> None:
        self.fence = self.fence.raised()
        self.life.resume(self.fence)

    @precondition(lambda self: self.life.frozen)
    @rule(back=st.integers(0, 2))
    def move(self, back: int) -> None:
        """To another life, with the certificate's word of the owner and the journal."""
        self.fence = self.fence.raised()
        snapshot = EntitySnapshot(
            "tally", self.life.tick, self.life.world, self.life.inbox.to_data(), self.life.ownership
        )
        journal = self.life.take_journal()
        self.life.end()
        self.life = self.stage.life(self.fence, snapshot)
        self.life.owned(self.log[max(0, len(self.log) - 1 - back)])
        self.life.take_inputs(journal)

    @invariant()
    def nobody_but_the_owner_has_inputs_applied(self) -> None:
        for player, rev in self.applied_under:
            assert self.log[rev].owner == player

    @invariant()
    def nobody_but_the_owner_has_inputs_waiting(self) -> None:
        if not self.life.frozen:
            assert {item.source for item in self.life.inbox.pending} <= {self.life.ownership.owner}

    @invariant()
    def revisions_never_go_back(self) -> None:
        revs = [rev for _, rev in self.applied_under]
        assert revs == sorted(revs)

    @invariant()
    def each_input_is_applied_once_and_in_order(self) -> None:
        for player in PLAYERS:
            seqs = [seq for source, seq in self.life.world["applied"] if source == player]
            assert seqs == list(range(1, len(seqs) + 1))


TestMutex = Mutex.TestCase
TestMutex.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


class Home:
    """A home instance that knows one owner, or is away."""

    def __init__(self) -> None:
        self.away = False
        self.asked: list[str] = []

    async def ask(self, message: OwnerRequest, _trace: Trace, *, on_path: bool) -> Any:
        self.asked.append(message.entity)
        if self.away:
            raise HomeUnreachable("away")
        return type("Opened", (), {"message": OwnerWord(entity=message.entity, owner=BOB, owner_rev=2)})


class StoppedClock(Clock):
    now_ns = 10**12

    def monotonic_ns(self) -> int:
        return self.now_ns


async def test_an_owner_is_asked_for_once_a_second_and_again_after_that() -> None:
    home, clock, heard = Home(), StoppedClock(), list[OwnerWord]()
    post: Any = home
    when: Any = clock
    owners = OwnerLookup(post, when, Counter(), heard.append)
    async with trio.open_nursery() as nursery:
        await nursery.start(owners.serve)
        home.away = True
        owners.want(BALL)
        owners.want(BALL)
        await trio.testing.wait_all_tasks_blocked()
        assert (home.asked, heard) == ([BALL], [])
        home.away = False
        clock.now_ns += ASK_AGAIN_NS
        owners.want(BALL)
        await trio.testing.wait_all_tasks_blocked()
        assert [word.ownership for word in heard] == [Ownership(BOB, 2)]
        nursery.cancel_scope.cancel()


@either_kind
def test_what_players_claim_fills_no_memory() -> None:
    counts: Counter[str] = Counter()
    post: Any = Home()
    when: Any = StoppedClock()
    owners = OwnerLookup(post, when, counts, lambda _word: None)
    for number in range(MAX_WAITING + 5):
        owners.want(f"alpha.ball-{number}")
    assert counts["owner_not_asked"] == 5
