"""The driver: the order of a tick, what may be done when, snapshots, and hashes that are equal everywhere."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.lockstep.acts import OutsideOfTick
from batonpass.simserver.sync.lockstep.canonical import NotCanonical, decode_untrusted_state, encode, state_hash
from batonpass.simserver.sync.lockstep.driver import MAX_SENT, SimDriver, SimEvent, SimFailed
from batonpass.simserver.sync.lockstep.entity import FieldRefused, SimEntity, accept
from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from batonpass.simserver.sync.lockstep.scene import SnapshotRefused
from tests.budget import examples
from tests.simserver.sync.lockstep.bouncers import Ball, Bouncers
from tests.simserver.sync.lockstep.games import BOUNCERS_HASHES, RESET, SCRIPT, Crate, Yard, steps_of, yard_with_a_crate

VECTORS: Final = json.loads((Path(__file__).parent / "vectors" / "bouncers.json").read_text())
TICKS: Final = 1_000


def test_e10_a_game_has_the_hashes_and_snapshots_of_the_vectors_at_each_tick() -> None:
    game, hashes = Bouncers(), dict(VECTORS["hashes"])
    assert game.state_hash() == hashes[0]
    for events in steps_of((SimEvent(*row) for row in VECTORS["events"]), TICKS):
        hashed = game.step(events)
        assert hashes.get(game.tick, hashed) == hashed
        if (snapshot := VECTORS["snapshots"].get(str(game.tick))) is not None:
            assert game.snapshot().hex() == snapshot


def test_e11_a_game_that_is_restored_from_a_snapshot_of_the_vectors_goes_on_to_their_end() -> None:
    game, hashes = Bouncers(), dict(VECTORS["hashes"])
    game.restore(bytes.fromhex(VECTORS["snapshots"]["5000"]))
    events = steps_of((SimEvent(*row) for row in VECTORS["events"]), 5_300)
    for happened in events[5_000:]:
        game.step(happened)
    assert game.state_hash() == hashes[5_300]


@settings(max_examples=examples(25))
@given(st.sets(st.integers(1, 80), max_size=8), st.booleans())
def test_a_game_that_is_saved_and_loaded_at_any_ticks_has_the_same_hashes(at: set[int], is_traced: bool) -> None:
    game: SimDriver = Bouncers(trace=is_traced)
    for events in steps_of(SCRIPT, 80):
        if game.tick in at:
            snapshot = game.snapshot()
            game = Bouncers(trace=not is_traced)
            game.restore(snapshot)
        assert game.step(events) == BOUNCERS_HASHES[game.tick]


def test_the_hash_is_that_of_the_canonical_bytes_of_the_documented_form() -> None:
    yard = yard_with_a_crate(items=[1, {"b": 2.0, "a": None}])
    random = Xoshiro128.seeded("seed").state
    fields = {"n": 0, "x": 0, "items": [1, {"a": None, "b": 2}], "note": None}
    form = {"Tick": 1, "Random": random, "Next": 2, "Entities": [[1, "Crate", fields]], "Pending": []}
    assert yard.snapshot() == encode(form)
    assert yard.state_hash() == state_hash(encode(form))


# The order of a tick


def test_e12_what_is_spawned_in_a_tick_enters_at_its_end_and_what_is_removed_leaves_after_that() -> None:
    def doing(sim: Yard, moment: str, entity: Crate | None) -> None:
        if moment == "reset":
            sim.spawn(Crate)
            sim.spawn(Crate)
        elif moment == "event":
            sim.remove(1)
            sim.remove(1)
            sim.said.append(f"spawned {sim.spawn(Crate)}")

    yard = Yard(doing)
    yard.step([RESET, SimEvent(1, "_c", "_", "1")])
    assert yard.said == ["on_tick 0", "reset seed", "connect 1", "enter 1", "enter 2"]
    yard.said.clear()
    yard.step([SimEvent(2, "go", "1", "now"), SimEvent(2, "_d", "_", "1")])
    assert yard.said == [
        *("on_tick 1", "tick 1", "tick 2", "go 1 now", "spawned 3", "disconnect 1"),
        *("enter 3", "exit 1"),
    ]
    assert [crate.id for crate in yard.entities(Crate)] == [2, 3]
    assert (yard.entity(1), yard.tick) == (None, 2)


def test_e12_what_is_asked_for_while_entities_enter_and_leave_waits_for_the_next_tick_also_in_a_snapshot() -> None:
    def doing(sim: Yard, moment: str, entity: Crate | None) -> None:
        if moment == "reset" or (moment == "enter" and entity is not None and entity.id < 3):
            sim.spawn(Crate, n=sim.tick)
        if moment == "enter" and entity is not None and entity.id == 2:
            sim.remove(entity)

    yard = Yard(doing)
    yard.step([RESET])
    assert [crate.id for crate in yard.entities(Crate)] == [1]
    other = Yard(doing)
    other.restore(yard.snapshot())
    for game in (yard, other):
        game.step([])
        assert [crate.id for crate in game.entities(Crate)] == [1, 2]
    assert decode_untrusted_state(yard.snapshot())["Pending"][1] == (2,)
    assert (yard.step([]), [crate.id for crate in yard.entities(Crate)]) == (other.step([]), [1, 3])


@pytest.mark.parametrize("moment", ["enter", "exit"])
def test_an_entity_whose_removal_is_asked_for_again_while_it_leaves_leaves_once(moment: str) -> None:
    def doing(sim: Yard, now: str, entity: Crate | None) -> None:
        if now == "reset":
            sim.spawn(Crate)
            sim.spawn(Crate)
        elif now == "event":
            sim.remove(1)
            sim.remove(2)
            sim.spawn(Crate)
        elif now == moment and entity is not None and entity.id == {"enter": 3, "exit": 1}[moment]:
            sim.remove(2)

    yard = Yard(doing)
    yard.step([RESET])
    yard.step([SimEvent(2, "go", "1", "now")])
    assert decode_untrusted_state(yard.snapshot())["Pending"] == ()
    other = Yard()
    other.restore(yard.snapshot())
    assert yard.step([]) == other.step([])
    assert [line for line in yard.said if line.startswith("exit")] == ["exit 1", "exit 2"]


def test_a_reset_removes_everything_without_a_word_and_counts_ids_and_draws_anew() -> None:
    yard = yard_with_a_crate()
    yard.doing = lambda sim, moment, _: sim.spawn(Crate) if moment == "reset" else None
    yard.step([RESET._replace(tick=2)])
    assert yard.said == ["on_tick 1", "tick 1", "reset seed", "enter 1"]
    state = decode_untrusted_state(yard.snapshot())
    assert (state["Next"], state["Random"], state["Tick"]) == (2, Xoshiro128.seeded("seed").state, 2)


def test_the_generator_is_drawn_once_before_each_tick() -> None:
    yard = yard_with_a_crate()
    twin = Xoshiro128.seeded("seed")
    twin.next()
    seen: list[Any] = []
    yard.doing = lambda sim, moment, _: seen.append(sim.get_random().state) if moment == "on_tick" else None
    yard.step([])
    assert seen == [twin.state]


def test_a_type_of_the_server_from_another_origin_is_data() -> None:
    yard = yard_with_a_crate()
    posted = [SimEvent(2, "_a", "1", "x"), SimEvent(2, "_d", "2", "1"), SimEvent(2, "$connect", "1", "9")]
    yard.step([*posted, SimEvent(2, "_new", "_", "y")])
    assert yard.said == ["on_tick 1", "tick 1", "_a 1 x", "_d 2 1", "$connect 1 9", "_new _ y"]
    assert len(yard.entities(Crate)) == 1


def test_an_event_that_a_game_sends_has_no_effect_until_it_comes_back() -> None:
    yard = yard_with_a_crate()
    before = yard.state_hash()
    yard.send_event("go", "1")
    assert (yard.said, yard.state_hash(), yard.take_sent(), yard.take_sent()) == ([], before, [("go", "1")], [])


# What is forbidden


def test_e12_spawning_removing_drawing_and_writing_outside_of_a_tick_are_refused() -> None:
    yard = yard_with_a_crate()
    (crate,) = yard.entities(Crate)
    before = yard.snapshot()
    with pytest.raises(OutsideOfTick, match=r"Crate is spawned outside of a tick or event: .* use send_event"):
        yard.spawn(Crate)
    with pytest.raises(OutsideOfTick, match="entity 1 is removed outside"):
        yard.remove(crate)
    with pytest.raises(OutsideOfTick, match="the generator is used outside"):
        yard.get_random()
    with pytest.raises(OutsideOfTick, match=r"Crate 1\.n is written outside"):
        crate.n = 3
    yard.restore(before)
    assert yard.step([]) == yard_with_a_crate().step([])


def test_a_draw_between_ticks_by_a_kept_reference_is_found_at_the_next_tick() -> None:
    yard, kept = yard_with_a_crate(), []
    yard.doing = lambda sim, moment, _: kept.append(sim.get_random()) if moment == "on_tick" else None
    yard.step([])
    kept[0].next()
    with pytest.raises(OutsideOfTick, match="drawn between two ticks"):
        yard.step([])


def test_a_write_around_the_driver_is_found_at_the_next_tick_in_trace_mode() -> None:
    yard = Yard(lambda sim, moment, _: sim.spawn(Crate) if moment == "reset" else None, trace=True)
    yard.step([RESET])
    yard.entities(Crate)[0].__dict__["n"] = 3
    with pytest.raises(OutsideOfTick, match="around the driver"):
        yard.step([])


def test_the_game_object_takes_no_state_within_a_tick() -> None:
    yard = yard_with_a_crate()
    yard.doing = lambda sim, moment, _: setattr(sim, "score", 1)
    with pytest.raises(OutsideOfTick, match=r"Yard\.score is written within a tick: .* field of an entity"):
        yard.step([])
    yard.screen = "outside, it may"


def test_a_game_does_not_step_or_restore_itself_within_a_tick() -> None:
    yard = yard_with_a_crate()
    before = yard.snapshot()
    for doing in (lambda: yard.step([]), lambda: yard.restore(before), yard.start_over):
        yard.doing = lambda *_, doing=doing: doing()
        with pytest.raises(RuntimeError, match="was called within a tick"):
            yard.step([])
        yard.restore(before)


def test_a_tick_that_failed_stops_the_game_until_it_is_restored() -> None:
    yard = yard_with_a_crate()
    before = yard.snapshot()
    yard.doing = lambda sim, moment, _: 1 // 0
    with pytest.raises(ZeroDivisionError):
        yard.step([])
    yard.doing = None
    with pytest.raises(SimFailed, match="tick 1 failed half-way: restore"):
        yard.step([])
    yard.restore(before)
    assert yard.step([]) == yard_with_a_crate().step([])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("n", r"Crate\.n takes int, not str"),
        (1.0, r"Crate\.n takes int, not the float 1\.0: use //"),
        (True, r"Crate\.n takes int, not bool"),
        (None, r"Crate\.n takes int, not NoneType"),
    ],
)
def test_a_field_takes_only_what_it_is_declared_as(value: Any, said: str) -> None:
    yard = yard_with_a_crate()
    yard.doing = lambda sim, moment, entity: setattr(entity, "n", value) if moment == "tick" else None
    with pytest.raises(FieldRefused, match=said):
        yard.step([])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("items", [{1, 2}], r"Crate\.items\[0\]: a set has no order"),
        ("x", float("nan"), r"Crate\.x: nan has no canonical form"),
        ("items", (2**53,), r"Crate\.items\[0\]: the integer"),
        ("items", (Crate,), r"Crate\.items\[0\]: type has no canonical form"),
        ("speed", 1, r"Crate\.speed is not declared"),
    ],
)
def test_a_value_that_machines_would_not_share_is_refused_when_it_is_written(field: str, value: Any, said: str) -> None:
    yard = yard_with_a_crate()
    yard.doing = lambda sim, moment, entity: setattr(entity, field, value) if moment == "tick" else None
    with pytest.raises((FieldRefused, NotCanonical), match=said):
        yard.step([])


def test_a_field_holds_a_frozen_copy_of_what_it_is_given() -> None:
    given_items: list[Any] = [1, {"z": -0.0, "a": 2.0}]
    yard = yard_with_a_crate(items=given_items, x=3)
    given_items.append(4)
    (crate,) = yard.entities(Crate)
    assert (crate.items, type(crate.x)) == ((1, {"a": 2, "z": 0}), float)
    assert list(crate.items[1]) == ["a", "z"]
    with pytest.raises(TypeError):
        crate.items[1]["b"] = 1


class Shelf(SimEntity):
    numbers: tuple[int, ...] = ()
    named: tuple[str, float] = ("", 0.0)
    scores: Mapping[str, float | None] = MappingProxyType({})
    rows: tuple[tuple[int, int], ...] | None = None
    any: tuple = ()  # type: ignore[type-arg]  # whose values may be of any type
    either: tuple[int, ...] | tuple[str, str] = ()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("numbers", (1, "2"), r"Shelf\.numbers\[1\] takes int, not str"),
        ("numbers", (1.0,), r"Shelf\.numbers\[0\] takes int, not the float 1\.0"),
        ("numbers", (True,), r"Shelf\.numbers\[0\] takes int, not bool"),
        ("named", ("a",), r"Shelf\.named takes 2 values, not 1"),
        ("named", ("a", "b"), r"Shelf\.named\[1\] takes float, not str"),
        ("scores", {"ada": "5"}, r"Shelf\.scores\.ada takes None or float, not str"),
        ("rows", [(1, 2), (3, None)], r"Shelf\.rows\[1\]\[1\] takes int, not NoneType"),
        ("rows", ((1, 2, 3),), r"Shelf\.rows\[0\] takes 2 values, not 3"),
    ],
)
def test_what_is_within_a_tuple_or_mapping_is_what_it_is_declared_as(field: str, value: Any, said: str) -> None:
    with pytest.raises(FieldRefused, match=said):
        accept(Shelf, field, value)


def test_what_is_within_a_tuple_or_mapping_is_taken_as_a_field_of_its_type_takes_it() -> None:
    assert accept(Shelf, "numbers", [1, 2]) == (1, 2)
    named, scores = accept(Shelf, "named", ["a", 2]), accept(Shelf, "scores", {"b": 3.0, "a": None})
    assert (named, type(named[1])) == (("a", 2.0), float)
    assert (list(scores.items()), type(scores["b"])) == ([("a", None), ("b", 3.0)], float)
    assert encode(named) == encode(("a", 2)), "a float that is whole has the bytes of the integer"
    assert accept(Shelf, "rows", None) is None
    assert accept(Shelf, "any", (1, "a", None)) == (1, "a", None)
    assert accept(Shelf, "either", ("a", 1)) == ("a", 1)
    with pytest.raises(TypeError):
        scores["c"] = 1.0


class Wrong(SimEntity):
    things: list[int]


class Hidden(SimEntity):
    _secret: int = 0


class Bare(SimEntity):
    name: str


@pytest.mark.parametrize(
    ("kind", "said"), [(Wrong, r"Wrong\.things is declared as list"), (Hidden, r"Hidden\._secret: the name is")]
)
def test_a_declaration_that_no_field_may_have_is_refused_when_the_game_is_made(kind: type, said: str) -> None:
    with pytest.raises(FieldRefused, match=said):
        type("Game", (SimDriver,), {"kinds": (kind,)})()


def test_a_class_that_the_game_does_not_list_is_not_spawned_and_neither_is_one_without_its_fields() -> None:
    yard = yard_with_a_crate()
    yard.doing = lambda sim, moment, _: sim.spawn(Bare, name="a")
    with pytest.raises(FieldRefused, match="Bare is not among the kinds of Yard: add it"):
        yard.step([])
    game = type("Game", (Yard,), {"kinds": (Bare,)})(lambda sim, *_: sim.spawn(Bare))
    with pytest.raises(FieldRefused, match=r"Bare\.name has no default"):
        game.step([])


def test_fields_are_not_deleted_and_what_is_not_there_is_not_removed() -> None:
    yard = yard_with_a_crate()
    yard.doing = lambda sim, moment, entity: delattr(entity, "n") if moment == "tick" else None
    with pytest.raises(FieldRefused, match="cannot be deleted"):
        yard.step([])
    yard = yard_with_a_crate()
    yard.doing = lambda sim, moment, _: sim.remove(7)
    with pytest.raises(KeyError, match="no entity 7"):
        yard.step([])


@pytest.mark.parametrize("type", ["_a", "$init", ""])
def test_types_of_the_server_are_not_sent(type: str) -> None:
    with pytest.raises(ValueError, match="which are the server's"):
        Yard().send_event(type)


@pytest.mark.parametrize("kept", [0, -1])
def test_a_game_keeps_its_last_tick_at_least(kept: int) -> None:
    with pytest.raises(ValueError, match="give 1 or more"):
        Bouncers(kept_ticks=kept)
    one = Bouncers(kept_ticks=1)
    one.step([])
    assert [record.tick for record in one.records()] == [1]


def test_events_are_bounded_in_size_and_number() -> None:
    yard = Yard()
    with pytest.raises(ValueError, match="an event has at most 12288"):
        yard.send_event("go", "\n" * 6200)
    for _ in range(MAX_SENT):
        yard.send_event("go")
    with pytest.raises(ValueError, match="1000 events wait"):
        yard.send_event("go")


# Snapshots of others


def changed(**parts: Any) -> bytes:
    game = Bouncers()
    game.restore(bytes.fromhex(VECTORS["snapshots"]["100"]))
    return encode({**decode_untrusted_state(game.snapshot()), **parts})


BALL: Final = {"owner": "", "x": 0, "y": 0, "heading": 0, "speed": 1, "bounces": 0, "spin": 0.5}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encode(None),
        encode({"Tick": 1}),
        changed(Tick=-1),
        changed(Tick="1"),
        changed(Random=[0, 0, 0, 0]),
        changed(Next=0),
        changed(More=1),
        changed(Entities=[[1, "Ball", {**BALL, "mass": 1}]]),
        changed(Entities=[[1, "Ball", {"owner": "", "x": 0, "y": 0, "heading": 0}]]),
        changed(Entities=[[1, "Ball", {**BALL, "x": 0.5}]]),
        changed(Entities=[[1, "Cannon", {}]]),
        changed(Entities=[[1, "Ball", BALL], [1, "Ball", BALL]]),
        changed(Entities=[[1.5, "Ball", BALL]]),
        changed(Entities=[[1, "Ball", BALL]], Pending=[[2]]),
        changed(Entities=[[1, "Ball"]]),
        changed(Entities=7),
        changed(Pending=[[1, "Ball", BALL], [1, "Ball", BALL]]),
    ],
)
def test_bytes_that_are_no_snapshot_of_the_game_are_refused_and_change_nothing(data: bytes) -> None:
    game = Bouncers()
    game.restore(bytes.fromhex(VECTORS["snapshots"]["100"]))
    before = game.snapshot()
    with pytest.raises(SnapshotRefused, match=r"Bouncers"):
        game.restore(data)
    assert game.snapshot() == before
    assert game.entities(Ball) != []
    game.step([])


def test_a_game_that_starts_over_is_as_new() -> None:
    game = Bouncers()
    for events in steps_of(SCRIPT, 30):
        game.step(events)
    game.start_over()
    assert [game.state_hash(), *(game.step(events) for events in steps_of(SCRIPT, 50))] == BOUNCERS_HASHES[:51]
