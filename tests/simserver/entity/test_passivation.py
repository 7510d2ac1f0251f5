"""Passivation: who sleeps for long is passivated, is as if it had not been, and leaves nothing behind but its bytes."""

import gc
import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors import (
    ActorSpec,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    NoProc,
    Strategy,
    SupervisorSpec,
    System,
)
from batonpass.actors.core.process import Process
from batonpass.actors.observe.sys import resume, suspend
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.transfer import InputItem
from batonpass.simserver.entity import passivated as passive
from batonpass.simserver.entity.actor import Entity, NewInput, TickNow
from batonpass.simserver.entity.actor_keeper import ENTITIES, ActorKeeper, entity_name
from batonpass.simserver.entity.inputs import Cursor
from batonpass.simserver.entity.passivation import Passivation
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.server.load_report import census_rows
from tests.simserver.durability.test_replication import FOLLOWER, kept
from tests.simserver.durability.test_replication import Place as CopyPlace
from tests.simserver.entity.test_sleep import EVENTS, NOBODY, Naps, Place, happens
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import TrioClock
from tests.simserver.server.test_load_report import LOAD
from tests.simserver.stage import ADA, BALL, Stage, with_actors
from tests.simserver.world.test_participants import Keeps

pytestmark = pytest.mark.usefixtures("either_kind")

AWAY = st.tuples(st.just("away"))


@given(st.lists(st.one_of(EVENTS, AWAY), max_size=15), st.booleans())
def test_who_is_passivated_is_as_if_it_had_not_been_whatever_comes(events: list[tuple[Any, ...]], always: bool) -> None:
    """State, hashes, ticks, timers, chance, cursors, ownership and who is told: byte for byte, wherever it is moved."""
    passes, stays = Place(sleeps=True), Place(sleeps=True)
    for event in events:
        if event[0] != "away":
            happens(passes, event)
            happens(stays, event)
        asleep = stays.life.sleep is not None and not stays.life.frozen
        if event[0] == "away" or always:
            passes.life.passivate()
            assert (passes.life.passive is not None) == asleep
        assert passes.seen == stays.seen, event
        assert passes.life.encoded() == stays.life.encoded()
        shown, others = passes.life.inspected(with_state=False), stays.life.inspected(with_state=False)
        assert shown | {"passive": False, "passivated": False} == others
        assert passes.life.heard == stays.life.heard, "in this order"
        for one, other in zip(passes.stages, stays.stages, strict=True):
            assert (one.acks, one.corrections) == (other.acks, other.corrections)
            assert _hashes(one) == _hashes(other)
    assert passes.steps == stays.steps


def _hashes(stage: Stage) -> list[tuple[Any, ...]]:
    return [(stint["started_hash"], stint["ended_hash"], stint["ended_tick"]) for stint in stage.custody.to_data()]


def asleep(**state: Any) -> Life:
    """One that sleeps, and has had an input."""
    stage = Stage(NOBODY, world=Naps())
    life = stage.life(Fence(1), stage.fresh("naps"))
    life.take_input(ADA, 1, 1, b"0")
    stage.tick(life)
    life.world |= state
    assert life.sleep is not None
    return life


def test_it_is_frozen_handed_over_and_ended_without_being_read_again() -> None:
    life = asleep()
    expected = life.at_rest().state
    assert life.passivate()
    assert life.at_rest().state == expected
    assert life.freeze() is not None
    life.take_input(ADA, 1, 2, b"0")
    assert life.passive is not None
    assert life.take_journal() == [InputItem(source=ADA, owner_rev=1, seq=2, data=b"0")]
    assert (life.end(), life.passive is not None) == ([ADA], True)


def test_refused_it_goes_on_asleep_and_wants_an_actor_again() -> None:
    wanted: list[str] = []
    life = asleep()
    object.__setattr__(life._env, "wants_actor", wanted.append)
    assert life.passivate()
    life.freeze()
    life.take_input(ADA, 1, 2, b"1")
    assert (life.passive is not None, wanted) == (True, [])
    life.resume(Fence(2))
    assert (life.passive, wanted, len(life.inbox.pending)) == (None, [life.id], 1)


@pytest.mark.parametrize("why", ["awake", "frozen", "over", "leaving", "already"])
def test_who_has_something_to_do_is_not_passivated(why: str) -> None:
    life = asleep()
    match why:
        case "awake":
            life.wake()
        case "frozen":
            life.freeze()
        case "over":
            life.end()
        case "leaving":
            life.leaves_at_ns = 1
        case _:
            life.passivate()
    assert not life.passivate()


def test_what_is_no_news_brings_nobody_back() -> None:
    life = asleep()
    stage_acks: list[Any] = []
    object.__setattr__(life._env, "acknowledge", lambda source, ack: stage_acks.append((source, ack.applied)))
    life.passivate()
    life.take_input("alpha.eve", 1, 1, b"0")
    life.take_input(ADA, 0, 1, b"0")
    life.acceptance.made_durable(life, {ADA: 1, "alpha.gone": 3})
    life.owned(Ownership(ADA, 1))
    life.acceptance.hinted(life, 1)
    assert life.inspected(with_state=True)["sources"][ADA]["applied"] == 1
    assert (life.passive is not None, life.acceptance.durable) == (True, {ADA: 1})
    assert stage_acks == [(ADA, 1), (ADA, 1)]


def test_what_is_idle_for_the_longest_time_is_still_forgotten_first() -> None:
    life = asleep()
    life.inbox.cursors = {"alpha.z": Cursor(1, 1), **life.inbox.cursors, "alpha.b": Cursor(2, 2)}
    life.inbox.changes += 1
    before = life.heard
    life.passivate()
    assert (list(life.inbox.cursors), life.heard) == (["alpha.z", ADA, "alpha.b"], before)


def test_it_is_compressed_where_that_is_shorter_and_not_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    life = asleep(blob=b"x" * 100_000)
    size = len(life.encoded())
    life.passivate()
    assert life.passive is not None
    assert len(life.passive._rest) < size // 10
    monkeypatch.setattr(passive, "MAX_COMPRESSED_BYTES", 99_999)
    life = asleep(blob=b"x" * 100_000)
    expected = life.encoded()
    life.passivate()
    assert life.passive is not None
    assert (life.passive._is_compressed, life.encoded()) == (False, expected)


def test_parts_are_asked_for_as_of_any_other_and_nothing_of_them_is_given_up() -> None:
    cache = Keeps()
    cache.kept[BALL] = [1]
    life = asleep()
    world: Any = life._env.world
    world = getattr(world, "alone", world)
    world.participants = {"cache": cache}
    expected = life.at_rest().state
    life._env.rounds.count += 1
    assert life.passivate()
    assert cache.kept == {BALL: [1]}
    state = life.at_rest().state
    assert (life.passive is not None, len(state)) == (True, len(expected))
    assert EntitySnapshot.decode(state).parts == {"cache": b"\x81\x01"}


def test_nothing_of_the_tick_at_which_it_came_is_lost() -> None:
    stage = Stage(NOBODY, world=Naps())
    fresh = stage.fresh("naps")
    snapshot = EntitySnapshot("naps", 0, fresh.world, fresh.inbox, fresh.ownership, parts={"cache": b"\x01"})
    life = stage.life(Fence(1), snapshot)
    assert not life.passivate(), "its parts belong to it until its first tick"
    stage.environment.rounds.count += 1
    assert life.passivate()


def test_the_group_of_one_that_is_passivated_is_asked_for_once_and_whether_it_is_immovable() -> None:
    asked: list[Any] = []

    class Grouped(Naps):
        def affinity(self, state: Any) -> str:
            asked.append(state)
            return "squad"

        def immovable(self, state: Any) -> bool:
            asked.append(state)
            return True

    life = asleep()
    life.passivate()
    for _ in range(3):
        (row,) = census_rows([Holding(BALL, life)], Grouped(), LOAD, 0.05, 10, lambda name: True)
        assert (row.group, row.immovable) == ("squad", True)
    assert (len(asked), life.passive is not None) == (2, True)


async def test_it_is_copied_and_written_down_from_its_bytes_and_nothing_else_keeps_its_state(system: System) -> None:
    place = CopyPlace(system, Naps())
    holding, replication = place.spawn(), place.replication()
    assert holding.life.sleep is not None
    ((_, (item,)),) = replication._take([holding]).items()
    replication.kept(kept(holding, item.tick), FOLLOWER)
    holding.life.passivate()
    replication.passivated(BALL)
    taken: Any = {}
    for _ in range(20):
        place.stage.environment.rounds.count += 1
        replication._round += 1
        if taken := replication._take([holding]):
            break
    ((_, (again,)),) = taken.items()
    assert (again.state, again.tick) == (holding.life.encoded(), holding.life.tick)
    replication.kept(kept(holding, again.tick), FOLLOWER)
    assert replication._copied[BALL].world is not None
    assert holding.life.passive is not None
    # Woken and passivated again it may have another state at the next turn, if it had a tick in between.
    holding.life.wake()
    holding.life.commit(holding.life.world, now_ns=1)
    holding.life.fall_asleep()
    holding.life.passivate()
    assert replication._take([holding])


# --- with its actor --------------------------------------------------------------------------------------------------


class Population:
    """Entities with their actors, their supervisor and their actor keeper."""

    def __init__(self, system: System, world: Any) -> None:
        self.system = system
        self.stage = Stage(system, world=world)
        environment = self.stage.environment
        self.holdings = Holdings(environment, Written())
        object.__setattr__(environment, "wants_actor", self.holdings.wants_actor)
        self.passivation = self.puts_away()

    def puts_away(self, **options: Any) -> Passivation:
        settings: Any = {"after_s": 1.0, "period_s": 0.05, "passivated": lambda _entity: None} | options
        rounds = self.stage.environment.rounds
        return Passivation(self.holdings, rounds, TrioClock(), self.stage.counts, **settings)

    async def start(self) -> None:
        family = (
            DynamicSupervisorSpec(ENTITIES, name=ENTITIES, max_restarts=100),
            ActorSpec("actor_keeper", ActorKeeper, (self.stage.environment, self.holdings), name="actor_keeper"),
        )
        await self.system.start_child(
            SupervisorSpec("population", family, strategy=Strategy.REST_FOR_ONE, max_restarts=100)
        )

    async def actors(self) -> int:
        try:
            return len(await DynamicSupervisor.which_children(self.system.named(ENTITIES)))
        except NoProc:
            return -1

    async def settled(self) -> None:
        """Everybody has an actor who is not passivated, and nobody else has."""
        with trio.fail_after(90):
            while True:
                awake = [holding.life for holding in self.holdings if holding.life.passive is None]
                if self.holdings.batch is not None:
                    return
                if all(life.has_actor for life in awake) and await self.actors() == len(awake):
                    return
                await trio.lowlevel.checkpoint()

    def spawn(self, entity: str) -> Holding:
        return self.holdings.spawn(entity, "naps", {}, Fence(1), Ownership(ADA, 1))

    async def round(self) -> None:
        """One round of the server, as `Node.tick_all` does it, and everybody has ticked."""
        rounds = self.stage.environment.rounds
        rounds.count += 1
        if self.holdings.batch is not None:
            self.holdings.batch.tick()
        for holding in () if self.holdings.batch else self.holdings:
            life = holding.life
            if not life.frozen and (life.sleep is None or life.sleep.is_over(rounds.count)):
                holding.cast(TickNow())
        await self.settled()
        for holding in self.holdings:
            try:
                await holding.inspect(with_state=False)
            except NoProc:
                assert holding.life.over, "only one that has left meanwhile has no actor"

    async def slept(self, rounds: int = 20) -> None:
        for _ in range(rounds):
            await self.round()

    def passivate(self) -> int:
        return sum([self.passivation.passivate(holding) for holding in self.passivation.due()])


@pytest.fixture
async def population(system: System) -> Population:
    population = Population(system, Naps())
    await population.start()
    return population


def given_to(holding: Holding, seq: int, data: bytes) -> None:
    holding.cast(NewInput(ADA, 1, seq, data, seq - 1))


async def test_its_actor_ends_and_nobody_keeps_anything_of_it(population: Population) -> None:
    # Runs that other tests share are kept.
    kept = [one for one in gc.get_objects() if isinstance(one, Entity | Process)]
    others = set(map(id, kept))
    holdings = [population.spawn(f"alpha.e{number}") for number in range(5)]
    await population.settled()
    await population.slept(19)
    assert population.passivate() == 0, "not before its time"
    await population.slept(1)
    assert population.passivate() == 5
    await population.settled()
    assert await population.actors() == 0
    assert population.system.whereis(entity_name("alpha.e0")) is None
    gc.collect()
    left = [one for one in gc.get_objects() if id(one) not in others]
    assert [one for one in left if isinstance(one, Entity)] == []
    labels = [one.label for one in left if isinstance(one, Process)]
    assert not [label for label in labels if "alpha.e" in label]
    assert (population.holdings.passive, population.holdings.asleep) == (5, 5)
    assert [holding.life.ref for holding in holdings] == [None] * 5
    assert population.stage.counts["passivated"] == 5


async def test_inputs_bring_it_back_and_none_of_them_is_lost_nor_waits(population: Population) -> None:
    holding = population.spawn(BALL)
    await population.settled()
    await population.slept()
    population.passivate()
    assert (await holding.inspect(with_state=True))["passive"]
    for seq in range(1, 6):
        given_to(holding, seq, b"0")
    assert holding.life.passive is None
    await population.round()
    seen = await holding.inspect(with_state=False)
    assert (seen["sources"][ADA]["applied"], seen["tick"], seen["passive"]) == (5, 21, False)
    assert population.stage.counts["brought_back"] == 1
    await population.slept()
    assert population.passivate() == 1, "and so again and again"


async def test_a_timer_ends_at_its_tick_whether_or_not_it_is_passivated(population: Population) -> None:
    away, there = population.spawn("alpha.away"), population.spawn("alpha.there")
    await population.settled()
    for holding in (away, there):
        given_to(holding, 1, b"-40")
    await population.slept(30)
    assert population.passivation.passivate(away)
    await population.slept(30)
    seen = [holding.life.look()["seen"] for holding in (away, there)]
    first = 2 if population.holdings.batch is None else 1
    assert seen[0] == seen[1] == [[first, ADA, 1], [first + 40, "bell -40"]]
    assert away.life.tick == there.life.tick == 60


@with_actors
@pytest.mark.parametrize("victim", [ENTITIES, "actor_keeper"])
async def test_whoever_is_killed_gives_no_actor_to_who_is_passivated(population: Population, victim: str) -> None:
    holding = population.spawn(BALL)
    await population.settled()
    await population.slept()
    population.passivate()
    awake = population.spawn("alpha.awake")
    await population.settled()
    ref = population.system.whereis(victim)
    assert ref is not None
    ref.kill()
    await population.settled()
    assert (holding.life.passive is not None, awake.life.has_actor) == (True, True)
    given_to(holding, 1, b"0")
    await population.settled()
    assert holding.life.has_actor


@with_actors
async def test_who_has_something_in_its_mailbox_or_is_held_is_left_alone(population: Population) -> None:
    holding = population.spawn(BALL)
    await population.settled()
    await population.slept()
    given_to(holding, 1, b"0")
    assert population.passivate() == 0
    await holding.inspect(with_state=False)
    await population.round()
    assert holding.life.heard == ((ADA, 1, 1),)
    await population.slept()
    assert holding.life.ref is not None
    await suspend(holding.life.ref)
    assert population.passivate() == 0
    await resume(holding.life.ref)
    assert population.passivate() == 1


@with_actors
async def test_what_cannot_be_encoded_stays_and_is_counted(
    population: Population, caplog: pytest.LogCaptureFixture
) -> None:
    holding = population.spawn(BALL)
    await population.settled()
    await population.slept()
    holding.life.world = {"busy": 0, "seen": [object()]}
    holding.life._encoder.__init__()  # type: ignore[misc]  # as after another tick
    with caplog.at_level(logging.CRITICAL):
        assert population.passivate() == 0
    assert population.stage.counts["passivation_failed"] == 1
    assert (holding.life.passive, holding.life.has_actor) == (None, True)


@with_actors
async def test_what_could_not_be_read_again_stays_and_is_tried_once_while_it_sleeps(
    population: Population, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader of CBOR takes fewer levels than a writer gives: nobody could ever bring it back, nor hand it over."""
    holding = population.spawn(BALL)
    await population.settled()
    await population.slept()
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    holding.life.world = {"busy": 0, "seen": deep}
    with caplog.at_level(logging.CRITICAL):
        assert [population.passivate() for _ in range(3)] == [0, 0, 0]
        assert population.stage.counts["passivation_failed"] == 1, "nor is it said every second"
        given_to(holding, 1, b"0")
        await holding.inspect(with_state=False)
        await population.round()
    assert "nested more than" in holding.life.quarantine_reason, "nor does it get another such state: it is quarantined"
    assert holding.life.heard == ((ADA, 1, 0),), "with what it was given"


@with_actors
async def test_whose_actor_has_crashed_is_passivated_when_there_is_another(population: Population) -> None:
    """Else the next one begins with an entity that has no use for it, and the crash is not counted."""
    holding = population.spawn(BALL)
    await population.settled()
    await population.slept()
    assert holding.life.ref is not None
    holding.life.ref.exit(RuntimeError("poison"))
    assert population.passivate() == 0
    await population.settled()
    assert population.stage.counts["entity_crashed"] == 1
    assert population.passivate() == 1


async def test_it_is_done_by_itself_in_short_turns_unless_it_is_switched_off(autojump_clock: MockClock) -> None:
    lives = [asleep() for _ in range(4)]
    actor: Any = SimpleNamespace(exit=lambda reason: None, alive=True, process=SimpleNamespace(scheduled=False))
    for life in lives:
        life.ref = actor
        life._env.rounds.count = 100
    counts: Counter[str] = Counter()
    holdings: Any = [Holding(BALL, life) for life in lives]
    told: list[str] = []

    def passivation(after_s: float) -> Passivation:
        return Passivation(
            holdings,
            lives[0]._env.rounds,
            TrioClock(),
            counts,
            after_s=after_s,
            period_s=0.05,
            passivated=told.append,
        )

    for after_s, expected in ((0.0, 0), (6.0, 0), (5.0, 4)):
        async with trio.open_nursery() as nursery:
            await nursery.start(passivation(after_s).serve)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
        assert (counts["passivated"], len(told)) == (expected, expected)
