"""Sleep: who sleeps is as if it had ticked all the time, and costs nothing."""

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.simserver.entity.batch import EntityBatch
from batonpass.simserver.entity.sleep import may_sleep
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.notice import NoticeTimer
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step
from tests.simserver.stage import ADA, BALL, Stage, Tally, feed, inspect, ticks

pytestmark = pytest.mark.usefixtures("either_kind")

BOB = "alpha.bob"
SERVERS = "alpha.s1", "alpha.s2"
NOBODY: Any = None


class Naps:
    """An input keeps it busy for so many ticks as it says, or rings a bell after so many if it is negative."""

    def __init__(self, *, sleeps: bool = True) -> None:
        self.sleeps = sleeps
        self.steps = 0
        self.goes_to: str | None = None
        self.fails = False
        self.leaves_in_ms: list[int | None] = []

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"busy": 0, "seen": []}

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        raise NotImplementedError

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        self.steps += 1
        self.leaves_in_ms.append(step.leaves_in_ms)
        busy, seen = state["busy"], [*state["seen"], *([step.tick, name] for name in step.due)]
        for item in inputs:
            number = int(item.data)
            if number < 0:
                step.timers.set(f"bell {number}", -number)
            busy = max(busy, number)
            seen.append([step.tick, item.source, item.seq])
        if busy:
            seen.append([step.tick, step.random.below(100)])
        return {"busy": max(0, busy - 1), "seen": seen}

    def may_sleep(self, state: Any) -> bool:
        if self.fails:
            raise ZeroDivisionError("poison")
        return self.sleeps and not state["busy"]

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        return self.goes_to


class Place:
    """An entity on one server or the other, ticked without an actor."""

    def __init__(self, *, sleeps: bool) -> None:
        self.worlds = [Naps(sleeps=sleeps) for _ in range(2)]
        self.stages = [Stage(NOBODY, name, world) for name, world in zip(SERVERS, self.worlds, strict=True)]
        self.stages[1].environment.rounds.count = 1000
        self.here, self.given, self.owner_rev = 0, 0, 1
        self.life = self.stages[0].life(Fence(1), self.stages[0].fresh("naps"))

    def round(self) -> None:
        for stage in self.stages:
            stage.environment.rounds.count += 1
        self.stages[self.here].tick(self.life)

    def input(self, number: int) -> None:
        self.given += 1
        source = (ADA, BOB)[1 - self.owner_rev % 2]
        self.life.take_input(source, self.owner_rev, self.given, str(number).encode(), self.given - 1, self.given - 1)

    def ownership_changes(self) -> None:
        self.owner_rev += 1
        self.life.owned(Ownership((ADA, BOB)[1 - self.owner_rev % 2], self.owner_rev))

    def stands_still(self, rounds: int, *, moves: bool, number: int) -> None:
        frozen = self.life.freeze()
        assert frozen is not None
        for _ in range(rounds):
            self.round()
        if number:
            self.input(number)
        fence = Fence(self.life.fence.epoch + 1)
        if not moves:
            self.life.resume(fence)
            return
        journal, self.here = self.life.take_journal(), 1 - self.here
        self.life.end()
        self.life = self.stages[self.here].life(fence, EntitySnapshot.decode(frozen.state))
        self.life.take_inputs(journal)

    @property
    def seen(self) -> tuple[bytes, int, int]:
        return self.life.snapshot().encode(), self.life.tick, self.life.ticks_here

    @property
    def steps(self) -> int:
        return sum(world.steps for world in self.worlds)


class KnownHoldings(list[Any]):
    """In place of the entity table."""

    batch: EntityBatch | None = None


NUMBERS = st.integers(-12, 3)
EVENTS = st.one_of(
    st.tuples(st.just("round"), st.integers(1, 9)),
    st.tuples(st.just("input"), NUMBERS),
    st.tuples(st.just("owner"), st.just(0)),
    st.tuples(st.just("release"), st.just(0)),
    st.tuples(st.just("stands"), st.integers(0, 5), st.booleans(), NUMBERS),
)


def happens(place: Place, event: tuple[Any, ...]) -> None:
    match event:
        case ("round", count):
            for _ in range(count):
                place.round()
        case ("input", number):
            place.input(number)
        case ("owner", _):
            place.ownership_changes()
        case ("release", _):
            place.life.release()
        case ("stands", rounds, moves, number):
            place.stands_still(rounds, moves=moves, number=number)
        case _:
            raise AssertionError(event)


@example([("stands", 2, False, 0), ("stands", 2, True, 0)])
@example([("input", -3), ("round", 1), ("round", 1), ("stands", 1, False, 0), ("round", 2)])
@given(st.lists(EVENTS, max_size=15))
def test_who_sleeps_is_as_if_it_had_ticked_all_the_time(events: list[tuple[Any, ...]]) -> None:
    """State, ticks, timers, chance, cursors, ownership: byte for byte, whatever comes, and wherever it is moved."""
    sleeper, awake = Place(sleeps=True), Place(sleeps=False)
    for event in events:
        happens(sleeper, event)
        happens(awake, event)
        assert sleeper.seen == awake.seen, event
        life = sleeper.life
        if life.world["busy"] or life.inbox.pending:
            assert life.sleep is None
        elif event[0] in ("round", "stands") and not life.carried.timers:
            assert life.sleep is not None
    before = sleeper.steps
    happens(sleeper, ("round", 60))
    assert sleeper.steps - before <= 1 + 3 + 12, "it steps for what keeps it busy and for its timers, and no more"


async def test_who_sleeps_is_sent_no_ticks_but_the_one_of_its_timer(system: System) -> None:
    world = Naps()
    stage = Stage(system, world=world)
    actor = stage.start(stage.fresh("naps"))
    sent: list[int] = []

    def cast(message: Any) -> None:
        sent.append(stage.environment.rounds.count)
        actor.cast(message)

    holding = SimpleNamespace(life=actor.life, cast=cast)
    lease = SimpleNamespace(may_act=lambda now_ns: True)
    clock = SimpleNamespace(monotonic_ns=stage.environment.monotonic_ns)
    holdings = KnownHoldings([holding])
    holdings.batch = stage.batch
    node: Any = SimpleNamespace(
        holdings=holdings, environment=stage.environment, lease=lease, clock=clock, neighbours=None
    )
    feed(actor, 1, data=b"-20")
    for _ in range(50):
        await inspect(actor)
        SimserverNode.tick_all(node)
    seen = await inspect(actor)
    assert (world.steps, seen["tick"], seen["asleep"]) == (2, 50, True)
    assert sent == ([1, 21] if stage.batch is None else [])
    assert seen["sources"][ADA]["applied"] == 1


async def test_a_notice_wakes_it_so_that_its_world_hears_that_it_leaves(system: System) -> None:
    world = Naps()
    stage = Stage(system, world=world)
    actor = stage.start(stage.fresh("naps"))
    assert actor.life.sleep is not None
    holdings: Any = {BALL: SimpleNamespace(life=actor.life, fence=actor.life.fence)}
    outbox: Any = SimpleNamespace(tell_player=lambda player, message: None)
    clock: Any = SimpleNamespace(monotonic_ns=stage.environment.monotonic_ns)
    plan = DeparturePlan("transfer-1", BALL, "alpha.s2", notice_ms=5000)
    NoticeTimer(holdings, outbox, clock, lambda keep_time, entity: True).begin(plan, lambda: None)
    ticks(actor, 3)
    assert not (await inspect(actor))["asleep"], "until it has left, or stays"
    assert [left is not None for left in world.leaves_in_ms] == [True] * 3


async def test_what_is_no_news_is_answered_and_wakes_nobody(system: System) -> None:
    stage = Stage(system, world=Naps())
    actor = stage.start(stage.fresh("naps"))
    feed(actor, 1, data=b"0")
    ticks(actor)
    feed(actor, 1, data=b"0")
    feed(actor, 1, data=b"0", source=BOB, owner_rev=1)
    assert (await inspect(actor))["asleep"]
    assert [ack.applied for _, ack in stage.acks] == [1, 1]
    assert [source for source, _ in stage.corrections] == [BOB]


async def test_who_wants_to_be_elsewhere_does_not_sleep_over_it(system: System) -> None:
    world = Naps()
    world.goes_to = "alpha.s2"
    stage = Stage(system, world=world)
    actor = stage.start(stage.fresh("naps"))
    actor.life.wake()
    ticks(actor, 2)
    assert not (await inspect(actor))["asleep"]
    assert stage.wishes == [(BALL, "alpha.s2")] * 2


async def test_a_world_that_cannot_say_whether_it_may_sleep_stands_still_at_its_first_tick(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    world = Naps()
    world.fails = True
    stage = Stage(system, world=world)
    actor = stage.start(stage.fresh("naps"))
    with caplog.at_level(logging.CRITICAL):
        ticks(actor)
        seen = await inspect(actor)
    assert ("poison" in seen["broken"], seen["asleep"], seen["tick"]) == (True, False, 1)


@pytest.mark.parametrize("said", ["no", 1, 0, None, []])
async def test_a_world_that_says_neither_yes_nor_no_stands_still_at_its_first_tick(
    system: System, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    monkeypatch.setattr(Naps, "may_sleep", lambda *_: said)
    stage = Stage(system, world=Naps())
    actor = stage.start(stage.fresh("naps"))
    with caplog.at_level(logging.CRITICAL):
        ticks(actor)
        seen = await inspect(actor)
    assert "may_sleep has to say True or False" in seen["broken"]
    assert not seen["asleep"]


def test_a_bool_of_another_library_is_a_bool() -> None:
    class Other:
        def __init__(self, value: bool) -> None:
            self.value = value

        def __bool__(self) -> bool:
            return self.value

    Other.__name__ = "bool_"
    for value in (True, False):

        class Sleeps:
            def may_sleep(self, state: Any) -> Any:
                return Other(state)

        assert may_sleep(Sleeps(), value) is value


async def test_worlds_that_say_nothing_of_it_have_every_tick(system: System) -> None:
    stage = Stage(system, world=Tally())
    actor = stage.start(stage.fresh("tally"))
    ticks(actor, 5)
    seen = await inspect(actor)
    assert (seen["tick"], seen["asleep"]) == (5, False)
