"""Participants: what a world keeps beside a state moves along with it, and never stands in its way."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.machines.precopy import MAX_CHUNK_BYTES, CopyAhead
from batonpass.authority.model.ownership import UNTOLD
from batonpass.simserver.entity.snapshot import EntitySnapshot, state_hash
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.world import participants
from batonpass.simserver.world.participants import MAX_PART_NAME, MAX_PARTS, MAX_PARTS_BYTES
from batonpass.simserver.world.pending_input import PendingInput
from tests.simserver.durability.test_replication import FOLLOWER, Place
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import ADA, BALL, Stage
from tests.simserver.transfer.source.test_departures import Scene
from tests.simserver.transfer.source.test_direct_departures import PLAN, delegated, sent
from tests.simserver.world.test_portability import circle, nested

pytestmark = pytest.mark.usefixtures("either_kind")

SERVERS = "alpha.s1", "alpha.s2"
NOBODY: Any = None


class Keeps:
    """A participant that keeps one thing of each entity; it may fail, and remembers what it was asked."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.fails: set[str] = set()
        self.asked: list[tuple[Any, ...]] = []

    def dehydrate(self, entity: str, state: Any) -> Any:
        self._asked("dehydrate", entity, state)
        return self.kept.get(entity)

    def rehydrate(self, entity: str, state: Any, data: Any) -> None:
        self._asked("rehydrate", entity, state, data)
        self.kept[entity] = data

    def release(self, entity: str) -> None:
        self._asked("release", entity)
        self.kept.pop(entity, None)

    def _asked(self, what: str, *how: Any) -> None:
        self.asked.append((what, *how))
        if what in self.fails:
            raise ZeroDivisionError("poison")

    def how_often(self, what: str) -> int:
        return sum(asked[0] == what for asked in self.asked)


class Counts:
    """A world that counts ticks and inputs in its state; its participants are the test's."""

    def __init__(self, **parts: Keeps) -> None:
        self.participants = parts

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return [0, 0]

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        return [state[0] + 1, state[1] + len(inputs)]

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        return None


def stage_of(world: Any, server: str = SERVERS[0]) -> Stage:
    return Stage(NOBODY, server, world)


def begun(stage: Stage, snapshot: EntitySnapshot | None = None, fence: Fence = Fence(1)) -> Life:  # noqa: B008 — immutable
    life = stage.life(fence, snapshot or stage.fresh())
    life.rehydrate()
    return life


def tick(stage: Stage, life: Life) -> None:
    stage.tick(life)


def frozen_state(life: Life) -> bytes:
    frozen = life.freeze()
    assert frozen is not None
    assert state_hash(frozen.state) == frozen.state_hash == life.stint.ended_hash
    return frozen.state


# --- whatever happens ------------------------------------------------------------------------------------------------


class Odyssey:
    """An entity on one server or another, with participants that fail, or without any."""

    def __init__(self, *, has_parts: bool) -> None:
        self.parts = [{"a": Keeps(), "b": Keeps()} if has_parts else {} for _ in SERVERS]
        worlds = [Counts(**parts) for parts in self.parts]
        self.stages = [stage_of(world, name) for world, name in zip(worlds, SERVERS, strict=True)]
        self.here, self.given = 0, 0
        self.life = begun(self.stages[0])

    def happens(self, event: tuple[Any, ...]) -> None:
        keeper = self.parts[self.here]
        match event:
            case ("tick",):
                tick(self.stages[self.here], self.life)
            case ("input",):
                self.given += 1
                self.life.take_input(ADA, 1, self.given, b"")
            case ("keep", name, data):
                # What is kept beside a state changes with a step: between two of them it is asked for once.
                if keeper:
                    keeper[name].kept[BALL] = data
                tick(self.stages[self.here], self.life)
            case ("fails", name, what) if keeper:
                keeper[name].fails ^= {what}
            case ("rest",):
                self.life.at_rest()
            case ("stands", inputs, moves):
                self.stands_still(inputs, moves=moves)
            case _:
                assert not keeper

    def stands_still(self, inputs: int, *, moves: bool) -> None:
        before = {name: dict(part.kept) for name, part in self.parts[self.here].items()}
        ready = self.life.at_rest()
        state = frozen_state(self.life)
        assert ready.state == state, "what is signed ahead is what leaves"
        assert before == {name: part.kept for name, part in self.parts[self.here].items()}, "nothing is given up"
        for _ in range(inputs):
            self.happens(("input",))
        ended, fence = self.life.stint.ended_hash, Fence(self.life.fence.epoch + 1)
        if not moves:
            asked = [part.how_often("rehydrate") for part in self.parts[self.here].values()]
            self.life.resume(fence)
            assert self.life.stint.started_hash == ended
            assert asked == [part.how_often("rehydrate") for part in self.parts[self.here].values()]
            return
        journal, left = self.life.take_journal(), self.parts[self.here]
        self.life.end()
        for part in left.values():
            assert part.kept == {} or part.fails, "what has left is kept nowhere but where it is"
        self.here = 1 - self.here
        came = EntitySnapshot.decode(state)
        for name, encoded in came.parts.items():
            assert cbor2.loads(encoded) == before[name][BALL], "as it was kept"
        self.life = begun(self.stages[self.here], came, fence)
        assert self.life.stint.started_hash == ended
        for name, part in self.parts[self.here].items():
            if not part.fails:
                assert (name in came.parts) == (part.kept.get(BALL) is not None)
        self.life.take_inputs(journal)


NAMES, WHATS = st.sampled_from("ab"), st.sampled_from(["dehydrate", "rehydrate", "release"])
DATA = st.one_of(st.none(), st.integers(), st.binary(max_size=40), st.lists(st.floats(allow_nan=False), max_size=3))
EVENTS = st.one_of(
    st.just(("tick",)),
    st.just(("input",)),
    st.just(("rest",)),
    st.tuples(st.just("keep"), NAMES, DATA),
    st.tuples(st.just("fails"), NAMES, WHATS),
    st.tuples(st.just("stands"), st.integers(0, 2), st.booleans()),
)


@given(st.lists(EVENTS, max_size=20))
def test_whatever_becomes_of_the_parts_the_entity_is_as_one_without_any(events: list[tuple[Any, ...]]) -> None:
    logging.getLogger("batonpass.simserver.world.participants").disabled = True
    try:
        with_parts, without = Odyssey(has_parts=True), Odyssey(has_parts=False)
        for event in events:
            with_parts.happens(event)
            without.happens(event)
            life = with_parts.life
            assert life.encoded_state() == without.life.encoded() == without.life.snapshot().encode(), event
            assert life.encoded() == life.snapshot().encode() == EntitySnapshot.decode(life.encoded()).encode(), event
    finally:
        logging.getLogger("batonpass.simserver.world.participants").disabled = False


# --- what goes along -------------------------------------------------------------------------------------------------


def test_what_came_is_part_of_what_it_is_until_its_first_tick_and_what_left_until_it_goes_on() -> None:
    cache = Keeps()
    stage = stage_of(Counts(cache=cache))
    life = begun(stage)
    cache.kept[BALL] = {"warm": [1, 2]}
    assert (life.encoded(), cache.asked) == (life.encoded_state(), [])
    state = frozen_state(life)
    assert EntitySnapshot.decode(state).parts == {"cache": cbor2.dumps({"warm": [1, 2]})}
    assert life.encoded() == state != life.encoded_state()
    there = Keeps()
    target = stage_of(Counts(cache=there), SERVERS[1])
    arrived = begun(target, EntitySnapshot.decode(state), Fence(2))
    assert arrived.encoded() == state
    assert there.asked == [("rehydrate", BALL, [0, 0], {"warm": [1, 2]})]
    assert target.counts["part_rehydrated"] == 1
    tick(target, arrived)
    assert arrived.encoded() == arrived.encoded_state()


def test_it_is_asked_once_between_two_ticks_however_often_it_is_about_to_leave() -> None:
    cache = Keeps()
    stage = stage_of(Counts(cache=cache))
    life = begun(stage)
    cache.kept[BALL] = 1
    first = life.at_rest()
    cache.kept[BALL] = 2
    assert life.at_rest().state == first.state == frozen_state(life)
    life.thaw()
    tick(stage, life)
    assert frozen_state(life) != first.state
    assert cache.how_often("dehydrate") == 2


@pytest.mark.parametrize("go_on", ["thaw", "resume"])
def test_it_is_not_asked_again_before_its_next_tick_if_it_was_refused(go_on: str) -> None:
    cache = Keeps()
    life = begun(stage_of(Counts(cache=cache)))
    cache.kept[BALL] = 1
    state = frozen_state(life)
    life.thaw() if go_on == "thaw" else life.resume(Fence(2))
    assert frozen_state(life) == state
    assert cache.how_often("dehydrate") == 1


@pytest.mark.parametrize("name", [7, "\ud800"])
def test_a_name_that_is_none_keeps_nobody_from_leaving(name: Any, caplog: pytest.LogCaptureFixture) -> None:
    cache = Keeps()
    stage = stage_of(Counts())
    stage.environment.world.participants = {name: cache, "cache": cache}  # type: ignore[attr-defined]
    life = begun(stage)
    cache.kept[BALL] = 1
    with caplog.at_level(logging.CRITICAL):
        state = frozen_state(life)
    assert (EntitySnapshot.decode(state).parts, stage.counts["part_failed"]) == ({"cache": b"\x01"}, 1)


def test_refused_it_goes_on_with_what_it_has_and_nobody_gives_it_back() -> None:
    cache = Keeps()
    stage = stage_of(Counts(cache=cache))
    life = begun(stage)
    cache.kept[BALL] = 1
    state = frozen_state(life)
    life.resume(Fence(2))
    assert life.stint.started_hash == state_hash(state)
    assert cache.kept == {BALL: 1}
    assert [what for what, *_ in cache.asked] == ["dehydrate"]


def test_what_has_left_or_ended_is_released_once() -> None:
    cache = Keeps()
    life = begun(stage_of(Counts(cache=cache)))
    life.end()
    life.end()
    assert cache.asked == [("release", BALL)]


# --- what stays behind -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [object(), {1: object()}, nested(500), circle(), "raises"])
def test_what_is_no_data_or_raises_is_left_behind_and_the_rest_goes(
    data: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    poison, good = Keeps(), Keeps()
    poison.kept[BALL], good.kept[BALL] = data, 7
    poison.fails = {"dehydrate"} if data == "raises" else set()
    stage = stage_of(Counts(poison=poison, good=good))
    assert set(EntitySnapshot.decode(frozen_state(begun(stage))).parts) == {"good"}
    assert stage.counts["part_failed"] == 1


def test_too_many_too_long_and_too_large_parts_are_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Counts(
        **{f"part{number:02}": Keeps() for number in range(MAX_PARTS + 2)}, **{"x" * (MAX_PART_NAME + 1): Keeps()}
    )
    world.participants = {"": Keeps(), **world.participants, "late": Keeps()}
    for part in world.participants.values():
        part.kept[BALL] = 1
    world.participants["part00"].kept[BALL] = bytes(MAX_PARTS_BYTES)
    stage = stage_of(world)
    kept = EntitySnapshot.decode(frozen_state(begun(stage))).parts
    assert list(kept) == [f"part{number:02}" for number in range(1, MAX_PARTS + 1)]
    assert stage.counts["part_too_large"] == 5


def test_parts_never_make_a_state_too_large_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_PARTS_BYTES < MAX_STATE_BYTES
    cache = Keeps()
    stage = stage_of(Counts(cache=cache))
    life = begun(stage)
    for room in range(40, 120):
        limit = len(life.encoded_state()) + room
        monkeypatch.setattr(participants, "MAX_STATE_BYTES", limit)
        cache.kept[BALL] = bytes(30)
        tick(stage, life)
        assert len(frozen_state(life)) <= limit
        life.thaw()
    assert 0 < stage.counts["part_too_large"] < 80


@pytest.mark.parametrize(
    "parts",
    [{}, [], {"a": 1}, {1: b""}, {"": b""}, {"x" * (MAX_PART_NAME + 1): b""}, {"a": bytes(MAX_PARTS_BYTES + 1)},
     {str(number): b"" for number in range(MAX_PARTS + 1)}],
)  # fmt: skip
def test_what_no_participant_can_have_given_is_no_snapshot(parts: Any) -> None:
    fields = cbor2.loads(EntitySnapshot("ball", 1, [], {"cursors": {}, "pending": []}, UNTOLD).encode())
    with pytest.raises(ValueError, match="part"):
        EntitySnapshot.decode(cbor2.dumps(fields | {participants.KEY: parts}))


def test_what_is_not_known_here_or_cannot_be_read_is_counted_and_gone_with_the_next_tick(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    fails = Keeps()
    fails.fails = {"rehydrate", "release"}
    stage = stage_of(Counts(bad=Keeps(), fails=fails))
    parts = {"bad": b"\xff", "fails": cbor2.dumps(1), "unknown": cbor2.dumps(2)}
    snapshot = EntitySnapshot("ball", 5, [0, 0], {"cursors": {}, "pending": []}, UNTOLD, parts=parts)
    life = begun(stage, snapshot)
    assert (stage.counts["part_failed"], stage.counts["part_unknown"]) == (2, 1)
    assert life.encoded() == snapshot.encode()
    tick(stage, life)
    assert life.snapshot().parts == {}
    life.end()
    assert stage.counts["part_failed"] == 3


def test_a_world_without_participants_takes_what_comes_and_carries_nothing() -> None:
    world: Any = Counts()
    del world.participants
    stage = stage_of(world)
    snapshot = EntitySnapshot("ball", 5, [0, 0], {"cursors": {}, "pending": []}, UNTOLD, parts={"cache": b"\x01"})
    life = begun(stage, snapshot)
    assert (life.stint.started_hash, stage.counts["part_unknown"]) == (state_hash(snapshot.encode()), 1)
    assert frozen_state(life) == life.encoded_state()


def test_who_stands_still_since_its_world_failed_takes_no_parts_along() -> None:
    cache = Keeps()
    life = begun(stage_of(Counts(cache=cache)))
    cache.kept[BALL] = 1
    life.enter_quarantine("poison")
    assert EntitySnapshot.decode(frozen_state(life)).parts == {}
    assert cache.asked == []


def test_what_nobody_here_can_read_goes_on_as_it_came() -> None:
    cache = Keeps()
    life = begun(
        stage_of(Counts(cache=cache)),
        EntitySnapshot("ball", 5, [0, 0], {"cursors": {}, "pending": []}, UNTOLD, schema=2, parts={"cache": b"\x01"}),
    )
    assert life.quarantine_reason
    assert EntitySnapshot.decode(frozen_state(life)).parts == {"cache": b"\x01"}
    assert cache.asked == []


# --- with everything else --------------------------------------------------------------------------------------------


async def test_copies_and_checkpoints_have_the_state_alone(system: Any) -> None:
    cache = Keeps()
    place = Place(system, Counts(cache=cache))
    holding = place.spawn()
    cache.kept[BALL] = bytes(100)
    frozen = frozen_state(holding.life)
    holding.life.resume(Fence(2))
    assert holding.life.encoded() == frozen
    ((follower, (item,)),) = place.replication()._take([holding]).items()
    assert (follower, EntitySnapshot.decode(item.state).parts) == (FOLLOWER, {})
    assert holding.life.state_bytes == len(item.state), "nor is room asked for them"


async def test_they_are_taken_up_when_an_entity_begins_here_and_released_before_it_begins_again(system: Any) -> None:
    cache = Keeps()
    stage = Stage(system, world=Counts(cache=cache))
    holdings = Holdings(stage.environment, Written())
    snapshot = EntitySnapshot("ball", 5, [0, 0], {"cursors": {}, "pending": []}, UNTOLD, parts={"cache": b"\x01"})
    holdings.start(BALL, Fence(2), snapshot)
    assert cache.kept == {BALL: 1}
    holdings.leave(BALL, SERVERS[1], Fence(3))
    assert cache.kept == {}


@pytest.fixture
def scene(system: Any, autojump_clock: Any) -> Scene:
    return Scene(system)


@pytest.mark.parametrize("size_bytes", [100, 100_000])
async def test_a_pass_is_of_the_parts_with_which_it_leaves(scene: Scene, size_bytes: int) -> None:
    cache = Keeps()
    world: Any = scene.stage.environment.world
    world.participants = {"cache": cache}
    holding = await delegated(scene)
    cache.kept[BALL] = bytes(size_bytes)
    async with scene.served():
        scene.departures.begin(PLAN)
        assert holding.life.frozen
        assert len(EntitySnapshot.decode(sent(scene).state).parts["cache"]) > size_bytes
    assert cache.how_often("dehydrate") == 1


def test_what_went_ahead_of_a_large_state_need_not_go_again_with_its_parts() -> None:
    cache = Keeps()
    stage = stage_of(Counts(cache=cache))
    snapshot = stage.fresh()
    blob = b"".join(state_hash(number.to_bytes(4, "big")).encode() for number in range(50_000))
    life = begun(stage, EntitySnapshot(snapshot.kind, 5, blob, snapshot.inbox, snapshot.ownership))
    cache.kept[BALL] = bytes(1000)
    ahead = CopyAhead()
    assert ahead.next_round(life.encoded_state())
    state = frozen_state(life)
    recipe, beside = ahead.recipe(state)
    assert recipe
    assert len(state) > 3_000_000
    assert len(beside) <= 2 * MAX_CHUNK_BYTES + 1000, "the first chunk, since there is a field more, and the last"


class Ends(Keeps):
    """One of which every method raises what ends programs."""

    def _asked(self, what: str, *how: Any) -> None:
        raise SystemExit("panic")


def test_one_that_raises_what_ends_programs_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    stage = stage_of(Counts(ends=Ends(), good=(good := Keeps())))
    good.kept[BALL] = 7
    life = begun(stage, replace(stage.fresh("counter"), parts={"ends": b"\x01"}))
    assert set(EntitySnapshot.decode(frozen_state(life)).parts) == {"good"}
    life.end()
    assert stage.counts["part_failed"] == 3
