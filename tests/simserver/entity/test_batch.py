"""A batch: what is the same as alone is in the suites of both kinds (`either_kind`); here is what only a batch has."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.model.regions import Border, RegionTable
from batonpass.scenarios.simulation.servers.one_by_one import OneByOne
from batonpass.simserver.entity.bisection import SEARCH_NS
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.feed import Committed
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.world.batch import BatchStep
from batonpass.simserver.world.portability import NotPortable
from batonpass.simserver.world.validation import flaw
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import ADA, Stage, Tally

NOBODY: Any = None


class Rows:
    """Counts ticks and inputs of all entities in rows of its own, and fails on those that it is told to."""

    kinds = ("row",)

    def __init__(self) -> None:
        self.rows: dict[str, list[int]] = {}
        self.before: dict[str, list[int]] = {}
        self.poison: set[str] = set()
        self.together: set[str] = set()
        self.mute: set[str] = set()
        self.encoded: list[str] = []
        self.steps: list[int] = []
        self.says: Any = None
        self.busy_ns = 0
        self.stage: Any = None

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"ticks": 0, "inputs": 0}

    def enter(self, entity: str, state: Any) -> None:
        assert entity not in self.rows
        self.rows[entity] = [state["ticks"], state["inputs"]]

    def leave(self, entity: str) -> Any:
        row = self.rows.pop(entity)
        if entity in self.mute:
            raise ZeroDivisionError("mute")
        return {"ticks": row[0], "inputs": row[1]}

    def encode(self, entity: str) -> Any:
        self.encoded.append(entity)
        if entity in self.mute:
            raise ZeroDivisionError("mute")
        return {"ticks": self.rows[entity][0], "inputs": self.rows[entity][1]}

    def step_all(self, batch: BatchStep, dt_s: float) -> Any:
        self.steps.append(len(self.rows))
        self.before = {entity: list(row) for entity, row in self.rows.items()}
        if self.stage is not None:
            self.stage.now_ns += self.busy_ns
        for entity, row in self.rows.items():
            row[0] += 1
            row[1] += len(batch.inputs.get(entity, ()))
        if self.rows.keys() & self.poison or (self.together and self.together <= self.rows.keys()):
            raise ZeroDivisionError("poison")
        return self.says(self.rows) if callable(self.says) else self.says


class Undoes(Rows):
    """The same, and takes back what it has changed."""

    def undo(self) -> None:
        self.rows = self.before


class Keeps(Rows):
    """The same without `undo`: what raises has changed nothing, and a step that is done is done."""

    def step_all(self, batch: BatchStep, dt_s: float) -> Any:
        try:
            return super().step_all(batch, dt_s)
        except ZeroDivisionError:
            self.rows = self.before
            raise


class AtOnce(Undoes):
    """The same, and gives the states of several in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []

    def encode_all(self, entities: Sequence[str]) -> Any:
        self.asked.append(list(entities))
        return [self.encode(entity) for entity in entities]


class Place:
    """A server with a batch world and entities `alpha.e0` and so on."""

    def __init__(self, count: int, world: Rows | None = None) -> None:
        self.world = world or Undoes()
        self.stage = Stage(NOBODY, world=self.world)  # type: ignore[arg-type]
        self.world.stage = self.stage
        self.holdings = Holdings(self.stage.environment, Written())
        assert self.holdings.batch is not None
        self.batch = self.holdings.batch
        self.entities = [self.spawn(f"alpha.e{number}") for number in range(count)]

    def spawn(self, entity: str) -> Holding:
        return self.holdings.spawn(entity, "row", {}, Fence(1), Ownership(ADA, 1))

    def ticks(self, count: int = 1) -> None:
        for _ in range(count):
            self.stage.environment.rounds.count += 1
            self.stage.environment.feed.round_begins(self.stage.environment.rounds.count)
            self.batch.tick()
            self.stage.environment.feed.round_is_over()

    def seen(self) -> list[tuple[int, Any]]:
        return [(one.life.tick, one.life.world) for one in self.entities]

    @property
    def stopped(self) -> set[str]:
        return {one.id for one in self.entities if one.life.quarantine_reason}


def given_to(holding: Holding, seq: int) -> None:
    holding.life.take_input(ADA, 1, seq, b"")


def state(ticks: int, inputs: int = 0) -> dict[str, int]:
    return {"ticks": ticks, "inputs": inputs}


# --- what a tick costs -----------------------------------------------------------------------------------------------


def test_nothing_is_asked_of_the_world_about_entities_of_which_nobody_wants_to_know() -> None:
    place = Place(50)
    place.ticks(20)
    assert place.world.encoded == []
    assert place.world.steps == [50] * 20
    assert place.entities[7].life.encoded() == place.entities[7].life.encoded()
    assert place.world.encoded == ["alpha.e7"], "once for each time that it has changed"
    assert (place.entities[7].life.tick, place.entities[7].life.ticks_here) == (20, 20)


def test_who_is_not_named_as_changed_is_not_asked_for_again() -> None:
    place = Place(3)
    place.ticks()
    seen = place.seen()
    place.world.encoded.clear()
    place.world.says = ["alpha.e1", "alpha.nobody"]
    given_to(place.entities[2], 1)
    place.ticks(2)
    assert [tick for tick, _ in place.seen()] == [3, 3, 3]
    assert place.world.encoded == ["alpha.e1", "alpha.e2"], "named, and with an input"
    assert place.entities[0].life.world == seen[0][1]


def test_states_of_several_are_asked_for_in_one_call_and_only_of_those_that_have_changed() -> None:
    world = AtOnce()
    place, alone = Place(3, world), Place(3)
    for one in (place, alone):
        given_to(one.entities[1], 1)
        one.ticks(2)
    names = [holding.id for holding in place.entities]
    place.batch.look_at_all([*names, "alpha.nobody"])
    assert [one.life.encoded() for one in place.entities] == [one.life.encoded() for one in alone.entities]
    assert world.asked == [names]
    assert world.encoded == names, "and nothing is asked again"
    world.says = ["alpha.e2"]
    place.ticks()
    place.batch.look_at_all(names)
    place.batch.look_at_all(names)
    assert world.asked == [names, ["alpha.e2"]]


def test_for_followers_the_states_of_a_tick_are_asked_for_in_one_call() -> None:
    world = AtOnce()
    place = Place(3, world)
    place.ticks()
    follower = place.stage.environment.feed.follow("test", lambda: None)
    place.ticks()
    world.says = ["alpha.e2"]
    place.ticks()
    names = [holding.id for holding in place.entities]
    assert world.asked == [names, ["alpha.e2"]]
    told = [(event.entity, event.after["ticks"]) for batch in iter(follower.take, None) for event in batch.events]  # type: ignore[union-attr]
    assert told == [*((name, 2) for name in names), ("alpha.e2", 3)]


def test_where_states_cannot_be_had_together_it_is_found_out_one_by_one_whose() -> None:
    world = AtOnce()
    place = Place(3, world)
    place.ticks()
    world.mute = {"alpha.e1"}
    place.batch.look_at_all([holding.id for holding in place.entities])
    encoded = [one.life.encoded_if_portable() for one in place.entities]
    assert [one is None for one in encoded] == [False, True, False]
    assert place.stopped == {"alpha.e1"}
    assert place.stage.counts["world_failed"] >= 1


def test_followers_are_told_of_what_has_changed_and_of_its_inputs() -> None:
    place = Place(3)
    place.ticks()
    follower = place.stage.environment.feed.follow("test", lambda: None)
    place.world.says = ["alpha.e1"]
    given_to(place.entities[2], 1)
    place.ticks()
    batch = follower.take()
    assert batch is not None
    told = {
        event.entity: (event.tick, event.after, len(event.inputs))
        for event in batch.events
        if isinstance(event, Committed)
    }
    assert told == {"alpha.e1": (2, state(2), 0), "alpha.e2": (2, state(2, 1), 1)}


@pytest.mark.parametrize("says", [7, "alpha.e0"], ids=["a number", "a text"])
def test_a_list_of_changes_that_is_none_stops_the_world_and_not_the_server(says: Any) -> None:
    place = Place(2)
    place.world.says = says
    place.ticks()
    assert place.stopped == {"alpha.e0", "alpha.e1"}
    assert "step_all has to give" in place.entities[0].life.quarantine_reason


# --- on whom the world fails -----------------------------------------------------------------------------------------


@given(
    poison=st.sets(st.integers(0, 19), max_size=4),
    inputs=st.sets(st.integers(0, 19)),
    undoes=st.booleans(),
    ticks=st.integers(0, 2),
)
def test_those_on_whom_the_world_fails_are_found_and_all_others_have_their_tick(
    poison: set[int], inputs: set[int], undoes: bool, ticks: int
) -> None:
    place = Place(20, Undoes() if undoes else Keeps())
    place.ticks(ticks)
    for number in inputs:
        given_to(place.entities[number], 1)
    place.world.poison = {f"alpha.e{number}" for number in poison}
    place.ticks()
    assert place.stopped == place.world.poison
    for number, one in enumerate(place.entities):
        fails, has_input = number in poison, number in inputs
        assert one.life.world == state(ticks + (not fails), has_input and not fails)
        assert len(one.life.inbox.pending) == (has_input and fails)
        assert one.life.tick == ticks + 1, "a quarantine takes a tick of its own"
    place.world.poison = set()
    for number in poison:
        assert place.entities[number].life.release()
    place.ticks()
    assert [one.life.world for one in place.entities] == [
        state(ticks + 2 - (number in poison), number in inputs) for number in range(20)
    ]


def test_a_fault_of_those_with_something_new_costs_one_step_of_all_others() -> None:
    place = Place(1000)
    place.ticks()
    place.world.steps.clear()
    place.world.poison = {"alpha.e500"}
    given_to(place.entities[500], 1)
    given_to(place.entities[3], 1)
    place.ticks()
    assert place.stopped == {"alpha.e500"}
    assert sum(place.world.steps) <= 1000 + 2 + 2 + 998 + 999, place.world.steps


def test_where_the_world_fails_on_several_together_those_with_something_new_are_stopped_as_a_region() -> None:
    place = Place(10)
    place.ticks()
    place.world.together = {"alpha.e2", "alpha.e3", "alpha.e7"}
    for number in (2, 3):
        given_to(place.entities[number], 1)
    place.ticks()
    assert place.stopped == {"alpha.e2", "alpha.e3"}
    assert "fails on 2 entities together" in place.entities[2].life.quarantine_reason
    assert place.stage.counts["batch_region_quarantined"] == 1
    assert place.entities[7].life.world == state(2)


def test_where_nothing_is_new_the_smallest_group_that_fails_is_the_region() -> None:
    place = Place(8)
    place.ticks()
    place.world.together = {"alpha.e4", "alpha.e5", "alpha.e6"}
    place.ticks()
    assert place.stopped == {f"alpha.e{number}" for number in range(4, 8)}
    place.ticks()
    assert [one.life.world["ticks"] for one in place.entities] == [3] * 4 + [1] * 4


def test_a_search_that_takes_too_long_ends_with_what_it_has() -> None:
    place = Place(64)
    place.ticks()
    place.world.busy_ns, place.world.poison = SEARCH_NS // 3, {"alpha.e9"}
    place.ticks()
    assert "alpha.e9" in place.stopped
    assert 1 < len(place.stopped) < 64
    assert len(place.world.steps) < 12


def test_whom_the_world_names_is_stopped_and_the_others_do_not_miss_a_tick() -> None:
    class Naming(Undoes):
        def step_all(self, batch: BatchStep, dt_s: float) -> Any:
            poison, self.poison = self.poison, set()
            for entity in poison:
                batch.fail(entity, ZeroDivisionError("poison"))
            kept = {entity: self.rows.pop(entity) for entity in poison}
            try:
                return super().step_all(batch, dt_s)
            finally:
                self.rows |= kept

    place = Place(5, Naming())
    place.ticks()
    place.world.poison = {"alpha.e3"}
    given_to(place.entities[3], 1)
    place.ticks()
    assert (place.stopped, place.world.steps) == ({"alpha.e3"}, [5, 4])
    assert place.seen() == [(2, state(2))] * 3 + [(2, state(1)), (2, state(2))]


def test_a_state_that_the_world_cannot_give_stays_here_and_goes_nowhere() -> None:
    place = Place(2)
    place.ticks()
    lost, other = place.entities
    place.world.mute = {lost.id}
    assert lost.life.encoded_if_portable() is None
    assert "could not give it" in lost.life.quarantine_reason or "cannot travel" in lost.life.quarantine_reason
    with pytest.raises(NotPortable):
        lost.life.freeze()
    assert not lost.life.release(), "what is here is of before its last ticks"
    place.ticks()
    assert other.life.world == state(2)


def test_a_state_that_cannot_travel_is_found_when_somebody_wants_it_and_stops_its_entity_alone() -> None:
    class Odd(Undoes):
        def encode(self, entity: str) -> Any:
            return object() if entity == "alpha.e0" else super().encode(entity)

        def leave(self, entity: str) -> Any:
            return super().leave(entity) and (object() if entity == "alpha.e0" else state(1))

    place = Place(2, Odd())
    place.ticks()
    assert place.entities[0].life.encoded_if_portable() is None
    assert place.stopped == {"alpha.e0"}
    assert place.stage.counts["state_not_portable"] >= 1


def test_who_cannot_enter_is_stopped_with_what_it_came_with() -> None:
    place = Place(0)
    came = EntitySnapshot("row", 5, {"odd": 1}, {"cursors": {}, "pending": []}, Ownership(ADA, 1))
    life = place.holdings.start("alpha.x", Fence(2), came).life
    place.ticks()
    assert "KeyError" in life.quarantine_reason
    assert EntitySnapshot.decode(life.encoded()).world == {"odd": 1}


# --- the lease -------------------------------------------------------------------------------------------------------


def without_lease(place: Place, *, has: bool) -> None:
    object.__setattr__(place.stage.environment, "may_act", lambda _now_ns: has)


def test_a_tick_that_ends_without_the_lease_is_taken_back_by_a_world_that_can() -> None:
    place = Place(2)
    place.ticks()
    given_to(place.entities[0], 1)
    without_lease(place, has=False)
    place.ticks(3)
    assert place.seen() == [(1, state(1)), (1, state(1))]
    assert place.stage.acks == []
    without_lease(place, has=True)
    place.ticks()
    assert place.seen() == [(2, state(2, 1)), (2, state(2))]
    assert [ack.applied for _, ack in place.stage.acks] == [1]


def test_without_undo_it_counts_and_nobody_is_told_before_there_is_a_lease() -> None:
    place = Place(2, Keeps())
    place.ticks()
    follower = place.stage.environment.feed.follow("test", lambda: None)
    given_to(place.entities[0], 1)
    without_lease(place, has=False)
    place.ticks()
    kept = EntitySnapshot.decode(place.entities[0].life.encoded())
    assert (kept.tick, kept.world, kept.inbox["pending"]) == (2, state(2, 1), []), "the input is not applied twice"
    assert (place.stage.acks, follower.take()) == ([], None)
    without_lease(place, has=True)
    given_to(place.entities[0], 1)
    assert [ack.applied for _, ack in place.stage.acks] == [1], "its source gives it again, and is answered"
    place.ticks()
    assert place.seen() == [(3, state(3, 1)), (3, state(3))]


def test_a_server_that_dies_of_a_tick_knows_for_whom_there_was_something_new_in_it(tmp_path: Path) -> None:
    guard = CrashGuard(tmp_path, lambda: 1000.0)
    guard.enter_together([("alpha.e1", 7), ("alpha.e2", 8)])
    after = CrashGuard(tmp_path, lambda: 1001.0)
    assert (after.deaths("alpha.e1"), after.deaths("alpha.e2"), after.deaths("alpha.e3")) == ([7], [8], [])
    assert set(json.loads((tmp_path / "deaths.json").read_bytes())) == {"alpha.e1", "alpha.e2"}
    after.enter_together([("alpha.e1", 9)])
    after.leave_together()
    assert CrashGuard(tmp_path, lambda: 1002.0).deaths("alpha.e1") == [7]


def test_of_very_many_only_so_many_are_written_down(tmp_path: Path) -> None:
    guard = CrashGuard(tmp_path, lambda: 1000.0)
    guard.enter_together((f"alpha.{'e' * 60}{number:04d}", 2**62) for number in range(500))
    assert CrashGuard(tmp_path, lambda: 1000.0).deaths(f"alpha.{'e' * 60}0000") == [2**62]
    deaths = json.loads((tmp_path / "deaths.json").read_bytes())
    assert len(deaths) == 64
    assert all(epoch == 2**62 for rows in deaths.values() for _, epoch in rows)


# --- what a world may say --------------------------------------------------------------------------------------------


def test_of_entities_that_are_not_here_nothing_is_taken() -> None:
    batch = BatchStep("alpha.s1", 1, {"alpha.e1"}, {}, lambda _: NOBODY, lambda _: 0)
    for says in (batch.sleep, batch.step, batch.ticks_here):
        with pytest.raises(KeyError):
            says("alpha.e2")
    with pytest.raises(KeyError):
        batch.wish("alpha.e2", "alpha.s2")
    with pytest.raises(KeyError):
        batch.fail("alpha.e2", ValueError())
    with pytest.raises(ValueError, match="destination has to name a server"):
        batch.wish("alpha.e1", "nowhere")


def test_what_a_batch_world_lacks_is_said_when_its_server_starts() -> None:
    class Half:
        def spawn(self, kind: str, params: dict[str, Any]) -> Any: ...

        def step_all(self, batch: BatchStep, dt_s: float) -> Any: ...

    assert flaw(Half()) == "it has no `enter`: give it one"
    assert flaw(Undoes()) == flaw(Keeps()) == flaw(OneByOne(Tally())) == ""


class Drowsy(Undoes):
    """Wants to sleep with every step; where its entities are it says, or not."""

    lost = False

    def step_all(self, batch: BatchStep, dt_s: float) -> Any:
        for entity in self.rows:
            batch.sleep(entity)
        return super().step_all(batch, dt_s)

    def position(self, state: Any) -> Any:
        if self.lost:
            raise ZeroDivisionError("lost")
        return (float(state["ticks"]),)


def test_whose_place_the_world_cannot_say_does_not_sleep_and_who_belongs_elsewhere_goes() -> None:
    world = Drowsy()
    place = Place(2, world)
    place.stage.environment.regions.told(RegionTable(1, 1, Border(0, 2.5, "alpha.s1", "alpha.s2"), hold_s=0.0), 0)
    world.lost = True
    place.ticks(2)
    assert [one.life.sleep for one in place.entities] == [None, None]
    assert place.stage.counts["world_failed"] > 0
    assert place.stopped == set()
    world.lost = False
    place.ticks()
    assert [one.life.sleep for one in place.entities] == [None, None]
    assert {server for _, server in place.stage.wishes} == {"alpha.s2"}
    place.stage.environment.regions.told(RegionTable(2, 1, "alpha.s1", hold_s=0.0), 0)
    place.ticks()
    assert None not in [one.life.sleep for one in place.entities]
