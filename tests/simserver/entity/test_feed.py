"""The commit feed: what is told of an entity, in which order, and what becomes of subscribers that are slow or fail."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.simserver.durability.copies_under_way import LastCopy
from batonpass.simserver.entity.feed import Changed, CommitFeed, Committed, EntityChange, Event, FeedBatch, FeedFollower
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.world.pending_input import PendingInput
from tests.simserver.durability.test_replication import INTERVAL_S, Place, served
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import ADA, BALL, Stage, Tally, feed, inspect, ticks, with_actors

pytestmark = pytest.mark.usefixtures("either_kind")


def unheard() -> None:
    """Nobody waits."""


def events_of(follower: FeedFollower) -> list[Event]:
    found: list[Event] = []
    while (batch := follower.take()) is not None:
        assert not batch.missed
        found += batch.events
    return found


def alone(world: Any = None) -> Stage:
    actors: Any = None
    return Stage(actors, world=world or Tally())


def living(stage: Stage, **fields: Any) -> Life:
    snapshot = EntitySnapshot("tally", 0, {"applied": []}, EntityInbox().to_data(), Ownership(ADA, 1))
    return stage.life(Fence(1), replace(snapshot, **fields))


# --- what is told ----------------------------------------------------------------------------------------------------


@with_actors
async def test_a_tick_is_told_with_the_states_before_and_after_it_and_the_inputs_that_were_applied(
    system: System,
) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    follower = stage.environment.feed.follow("test", unheard)
    before = actor.life.world
    feed(actor, 1, 2, data=b"push")
    ticks(actor, 2)
    await inspect(actor)
    first, second = events_of(follower)
    inputs = [PendingInput(ADA, 1, b"push"), PendingInput(ADA, 2, b"push")]
    assert first == Committed(BALL, Fence(1), 1, before, {"applied": [[ADA, 1], [ADA, 2]]}, inputs)
    assert isinstance(first, Committed)
    assert isinstance(second, Committed)
    assert (first.before is before, second.before is first.after, second.after is actor.life.world) == (True,) * 3
    assert (second.tick, list(second.inputs)) == (2, [])


async def test_a_tick_that_failed_is_not_told_but_that_the_entity_is_quarantined(system: System) -> None:
    world = Tally()
    stage = Stage(system, world=world)
    actor = stage.start(stage.fresh("tally"))
    follower = stage.environment.feed.follow("test", unheard)
    world.fails = "step"
    ticks(actor, 3)
    await inspect(actor)
    assert events_of(follower) == [Changed(BALL, Fence(1), 1, EntityChange.QUARANTINED)]
    assert actor.life.release()
    assert events_of(follower) == [Changed(BALL, Fence(1), 1, EntityChange.RELEASED)]


async def test_an_entity_that_comes_resumes_and_leaves_is_told_of_in_this_order(system: System) -> None:
    stage = Stage(system)
    follower = stage.environment.feed.follow("test", unheard)
    holdings = Holdings(stage.environment, Written())
    life = holdings.spawn(BALL, "ball", {}, Fence(1)).life
    life.owned(Ownership(ADA, 1))
    life.freeze()
    life.resume(Fence(2))
    holdings.leave(BALL, "alpha.s2", Fence(3))
    assert events_of(follower) == [
        Changed(BALL, Fence(1), 0, EntityChange.BEGUN),
        Changed(BALL, Fence(1), 0, EntityChange.ALTERED),
        Changed(BALL, Fence(2), 0, EntityChange.BEGUN),
        Changed(BALL, Fence(2), 0, EntityChange.ENDED),
    ]
    assert holdings.gone(BALL) is not None


@with_actors
def test_the_first_tick_after_an_upgrade_is_told_with_the_state_in_its_former_form() -> None:
    class Newer(Tally):
        schema_version = 2

        def migrate(self, kind: str, state: Any, schema: int) -> Any:
            return {"applied": state["log"]}

    stage = alone(Newer())
    life = living(stage, world={"log": []}, schema=1)
    follower = stage.environment.feed.follow("test", unheard)
    life.commit(stage.environment.world.step(life.seen, (), 0.05), now_ns=1)
    (event,) = events_of(follower)
    assert isinstance(event, Committed)
    assert (event.before, event.after) == ({"log": []}, {"applied": []})


ANYTHING = st.lists(
    st.one_of(
        st.tuples(st.just("input"), st.integers(1, 4), st.integers(1, 2), st.integers(0, 2)),
        st.tuples(st.just("tick")),
        st.tuples(st.just("freeze")),
        st.tuples(st.just("thaw")),
        st.tuples(st.just("resume")),
        st.tuples(st.just("owner"), st.sampled_from([ADA, "alpha.bob", ""]), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("stop")),
        st.tuples(st.just("release"), st.booleans()),
        st.tuples(st.just("end")),
    ),
    max_size=25,
)


def happens(stage: Stage, life: Life, step: tuple[Any, ...]) -> None:
    match step:
        case ("input", seq, rev, floor) if not life.over:
            life.take_input(ADA, rev, seq, b"x", 0, floor)
        case ("tick",) if not (life.frozen or life.quarantine_reason or life.ownership.suspended or life.over):
            if stage.batch is None:
                life.commit(stage.world.step(life.seen, tuple(life.inbox.pending), 0.05), now_ns=1)
            else:
                stage.batch.tick()
        case ("freeze",):
            life.freeze()
        case ("thaw",):
            life.thaw()
        case ("resume",):
            life.resume(Fence(life.fence.epoch + 1))
        case ("owner", owner, rev, still):
            life.owned(Ownership(owner, rev, suspended=still))
        case ("stop",) if not life.over:
            life.enter_quarantine("poison")
        case ("release", discard_inputs):
            life.release(discard_inputs=discard_inputs)
        case ("end",):
            life.end()
        case _:
            """It cannot happen now."""


@given(steps=ANYTHING)
def test_whatever_changes_of_an_entity_is_told_unless_a_tick_is_to_come_with_it(steps: list[tuple[Any, ...]]) -> None:
    """What replication rests on: of an entity of which nothing was told there is nothing new to copy."""
    stage = alone()
    told: list[str] = []
    stage.environment.feed.listen("test", EntityChange, told.append)
    life = living(stage)
    for step in steps:
        told.clear()
        before = (life.fence, life.over, replace(life.snapshot(), tick=0).encode())
        changed_at = life.changed_at
        happens(stage, life, step)
        after = (life.fence, life.over, replace(life.snapshot(), tick=0).encode())
        ticks_next = not (life.quarantine_reason or life.ownership.suspended or life.frozen or life.over)
        waits = step[0] in {"input", "thaw"} and ticks_next
        assert told or waits or before == after or life.changed_at > changed_at, step
        assert set(told) <= {BALL}


@given(steps=ANYTHING)
def test_of_one_entity_fence_and_tick_never_go_back_and_each_tick_is_a_higher_one(steps: list[tuple[Any, ...]]) -> None:
    stage = alone()
    follower = stage.environment.feed.follow("test", unheard)
    life = living(stage)
    for step in steps:
        happens(stage, life, step)
    seen, committed = (Fence(0), 0), -1
    for event in events_of(follower):
        assert (event.fence, event.tick) >= seen
        if isinstance(event, Committed):
            assert event.tick > committed
            committed = event.tick
        seen = (event.fence, event.tick)


# --- batches and their bound -----------------------------------------------------------------------------------------


def commit(told: CommitFeed, entity: str, tick: int, inputs: Sequence[PendingInput] = ()) -> None:
    if told.hears_commits:
        told.committed(entity, Fence(1), tick, {"tick": tick - 1}, {"tick": tick}, inputs)


def test_what_happens_in_one_round_is_one_batch_and_nobody_is_woken_before_it_is_over() -> None:
    told, woken = CommitFeed(), list[int]()
    follower = told.follow("test", lambda: woken.append(1))
    told.round_begins(7)
    for number in range(3):
        commit(told, f"alpha.e{number}", 1)
    assert (follower.take(), woken) == (None, [])
    told.round_is_over()
    batch = follower.take()
    assert batch is not None
    assert (batch.round, [event.entity for event in batch.events], woken) == (
        7,
        ["alpha.e0", "alpha.e1", "alpha.e2"],
        [1],
    )
    commit(told, "alpha.late", 1)
    late = follower.take()
    assert late is not None
    assert (late.round, [event.entity for event in late.events], len(woken)) == (7, ["alpha.late"], 2)


def test_a_round_that_was_not_ended_is_over_when_the_next_one_begins() -> None:
    told = CommitFeed()
    follower = told.follow("test", unheard)
    told.round_begins(1)
    commit(told, BALL, 1)
    told.round_begins(2)
    commit(told, BALL, 2)
    told.round_is_over()
    assert [batch.round for batch in iter(follower.take, None)] == [1, 2]


@given(
    bound=st.integers(1, 20),
    rounds=st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=30),
)
def test_a_slow_follower_has_every_change_in_order_or_is_told_how_many_it_has_missed(
    bound: int, rounds: list[tuple[int, bool]]
) -> None:
    told, tick, heard, missed, waiting = CommitFeed(), 0, list[int](), 0, 0
    follower = told.follow("slow", unheard, bound)
    prompt = told.follow("prompt", unheard)
    seen_by_prompt: list[int] = []

    def take() -> None:
        nonlocal missed, waiting
        while (batch := follower.take()) is not None:
            assert bool(batch.missed) != bool(batch.events), "one that has missed something is told so first, alone"
            missed += batch.missed
            # What was missed is all that there was until then: nothing older comes after it.
            heard.extend(range(len(heard) + 1, len(heard) + batch.missed + 1))
            for event in batch.events:
                assert event.tick == len(heard) + 1
                heard.append(event.tick)
        waiting = 0

    for number, (count, takes) in enumerate(rounds):
        told.round_begins(number)
        for _ in range(count):
            tick += 1
            commit(told, BALL, tick)
        told.round_is_over()
        waiting += count
        assert sum(len(batch.events) for batch in follower._batches) <= bound
        seen_by_prompt += [event.tick for event in events_of(prompt)]
        if takes:
            take()
    take()
    assert heard == seen_by_prompt == list(range(1, tick + 1))
    if all(takes for _, takes in rounds) and all(count <= bound for count, _ in rounds):
        assert missed == 0


def test_a_follower_that_has_missed_something_hears_again_from_where_it_reads_the_table() -> None:
    told = CommitFeed()
    follower = told.follow("slow", unheard, bound=2)
    for tick in range(1, 5):
        commit(told, BALL, tick)
    assert follower.take() == FeedBatch(0, (), 4), "what waited is lost too: the table has it"
    commit(told, BALL, 5)
    assert [event.tick for event in events_of(follower)] == [5]


# --- subscribers -----------------------------------------------------------------------------------------------------


@with_actors
def test_nothing_is_made_of_a_tick_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: object) -> None:
        raise AssertionError("a tick was told though nobody listens")

    stage = alone()
    told = stage.environment.feed
    told.listen("test", set(EntityChange) - {EntityChange.STEPPED}, unheard_of).close()
    with told.follow("test", unheard):
        assert hears_commits(told)
    life = living(stage)
    monkeypatch.setattr(CommitFeed, "committed", made)
    life.commit({"applied": [1]}, now_ns=1)
    assert not hears_commits(told)
    told.listen("test", {EntityChange.STEPPED}, unheard_of)
    with pytest.raises(AssertionError):
        life.commit({"applied": [2]}, now_ns=2)


def hears_commits(told: CommitFeed) -> bool:
    return told.hears_commits


def unheard_of(_entity: str) -> None:
    """Nobody cares."""


@given(
    fails_at=st.integers(1, 6),
    what=st.sampled_from(["listener", "follower"]),
    first=st.booleans(),
    steps=st.lists(st.sampled_from(["tick", "owner", "stop", "release", "input"]), min_size=6, max_size=12),
)
def test_a_subscriber_that_fails_ends_its_own_subscription_and_nothing_else(
    fails_at: int, what: str, first: bool, steps: list[str]
) -> None:
    def run(*, with_failing: bool) -> tuple[list[Event], list[str], bytes]:
        stage, calls, heard = alone(), 0, list[str]()
        told = stage.environment.feed

        def fail(*_: object) -> None:
            nonlocal calls
            calls += 1
            if calls == fails_at:
                raise ZeroDivisionError("poison")
            assert calls < fails_at, "it is told of nothing more"

        def failing() -> Any:
            return told.listen("bad", EntityChange, fail) if what == "listener" else told.follow("bad", fail)

        bad = failing() if with_failing and first else None
        told.listen("good", EntityChange, heard.append)
        follower = told.follow("good", unheard)
        if with_failing and not first:
            bad = failing()
        life = living(stage)
        for number, step in enumerate(steps, 1):
            match step:
                case "owner":
                    happens(stage, life, ("owner", ADA, number + 1, False))
                case "input":
                    happens(stage, life, ("input", 1, life.ownership.rev, 0))
                case "release":
                    happens(stage, life, ("release", False))
                case other:
                    happens(stage, life, (other,))
        if bad is not None and calls >= fails_at:
            assert isinstance(bad.error, ZeroDivisionError)
        return events_of(follower), heard, life.encoded()

    assert run(with_failing=True) == run(with_failing=False)


def test_a_subscription_that_was_closed_hears_nothing_more() -> None:
    told, heard = CommitFeed(), list[str]()
    with told.listen("test", EntityChange, heard.append) as listener, told.follow("test", unheard) as follower:
        commit(told, BALL, 1)
    commit(told, BALL, 2)
    told.changed(BALL, Fence(1), 2, EntityChange.ENDED)
    listener.close()
    assert (heard, len(events_of(follower)), told.hears_commits) == ([BALL], 1, False)


# --- who subscribes --------------------------------------------------------------------------------------------------


@with_actors
async def test_what_has_had_no_tick_since_its_copy_is_not_compared_with_that(
    system: System, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, compared = Place(system), list[Any]()

    def has(copied: LastCopy, world: Any) -> bool:
        compared.append((copied.world, world))
        return bool(copied.world == world)

    monkeypatch.setattr(LastCopy, "has", has)
    holding = place.spawn()
    async with served(place.replication()):
        await trio.sleep(5.5 * INTERVAL_S)
        assert (len(place.copied), compared) == (1, [])
        holding.life.commit(dict(holding.life.world), now_ns=1)
        await trio.sleep(2 * INTERVAL_S)
        assert (len(place.copied), len(compared)) == (1, 1), "its state is the same"
        holding.life.commit(holding.life.world | {"pushes": 7}, now_ns=2)
        await trio.sleep(INTERVAL_S)
        assert (len(place.copied), len(compared)) == (2, 2)
