"""What is saved is the whole network, circles included, and what cannot be read is refused (T5, T15)."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.timeline.composites import GridTimeline, OrderedSetTimeline
from batonpass.simserver.sync.timeline.data import DataTimeline, ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.persistence import (
    NotPersistent,
    PersistentTypes,
    dump,
    dump_in_pieces,
    load_untrusted,
)
from batonpass.simserver.sync.timeline.snapshot import STEP_ITEMS, TimelineSnapshot
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import ValidSince
from tests.budget import examples
from tests.simserver.sync.timeline.village import TYPES, Come, Leave, Step, make_village

plain = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.integers(-(2**200), 2**200), st.text(), st.binary(), st.fractions()
    ),
    lambda members: st.lists(members, max_size=3).map(tuple),
    max_leaves=8,
)


def saved(value: Any, types: PersistentTypes = TYPES) -> bytes:
    snapshot = TimeSteward(lambda now: now.create(ValueTimeline, value)).snapshot_before(0)
    assert snapshot is not None
    return dump(snapshot, types)


@settings(max_examples=examples(30))
@given(plain)
def test_a_value_comes_back_as_it_was_in_type_and_amount(value: Any) -> None:
    steward = load_untrusted(saved(value), TYPES)
    snapshot = steward.snapshot_before(0)
    assert snapshot is not None
    assert repr(snapshot.read(steward.globals)) == repr(value)


def test_t15_handles_that_point_in_a_circle_point_in_a_circle_again() -> None:
    def make(now: Accessor) -> Any:
        one, other = now.create(ValueTimeline, None), now.create(ValueTimeline, None)
        now.write(one, (other, one))
        now.write(other, (one, Fraction(1, 3)))
        return one

    snapshot = TimeSteward(make).snapshot_before(5)
    assert snapshot is not None
    steward = load_untrusted(dump(snapshot, TYPES), TYPES)
    again = steward.snapshot_before(5)
    assert again is not None
    one = steward.globals
    other, itself = again.read(one)
    assert itself is one
    assert again.read(other) == (one, Fraction(1, 3))


def test_t15_a_type_id_that_is_not_known_is_refused() -> None:
    snapshot = TimeSteward(make_village).snapshot_before(50)
    assert snapshot is not None
    with pytest.raises(NotPersistent, match="unknown"):
        load_untrusted(dump(snapshot, TYPES), PersistentTypes([]))


def test_a_snapshot_is_saved_piece_by_piece_while_the_simulation_goes_on_and_its_past_changes() -> None:
    steward = TimeSteward(make_village)
    snapshot = steward.snapshot_before(120)
    assert snapshot is not None
    whole, pieces = dump(snapshot, TYPES), []
    for number, piece in enumerate(dump_in_pieces(snapshot, TYPES)):
        pieces.append(piece)
        steward.insert_fiat_event(10 + number, number, Come(number % 6) if number % 2 else Leave())
        steward.run_until(130 + number)
    assert len(pieces) > 12
    assert b"".join(pieces) == whole
    changed = steward.snapshot_before(120)
    assert changed is not None
    assert dump(changed, TYPES) != whole


@dataclass(frozen=True, slots=True)
class Later(TimelineEvent):
    type_id: ClassVar[int] = 0x4B7D_90E1_C62A_F385

    number: int

    def execute(self, now: Accessor) -> None:
        now.write(now.globals[self.number], self.number)


class Wide(GridTimeline):
    __slots__ = ()
    type_id = 0xD3F1_0A6C_85B2_E947


def make_wide(now: Accessor) -> tuple[DataTimeline, ...]:
    """Much of everything: handles in one value, timelines, places of one timeline, predictions."""
    wide = now.create(Wide, None)
    for number in range(1_000):
        now.write(wide.at(number, 0), number)
        now.predict(50 + number, Later(number))
    return (*[now.create(ValueTimeline, number) for number in range(1_000)], wide)


def test_no_piece_takes_longer_however_large_the_world_is(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = TimeSteward(make_wide).snapshot_before(40)
    assert snapshot is not None
    looked_at, read = [0], TimelineSnapshot.read

    def counting(self: TimelineSnapshot, timeline: DataTimeline) -> object:
        looked_at[0] += 1
        return read(self, timeline)

    monkeypatch.setattr(TimelineSnapshot, "read", counting)
    pieces, types = [], PersistentTypes([Later, Wide])
    for piece in dump_in_pieces(snapshot, types):
        assert looked_at[0] <= 2 * STEP_ITEMS
        assert len(piece) < 100 * STEP_ITEMS
        pieces.append(piece)
        looked_at[0] = 0
    whole = b"".join(pieces)
    again = load_untrusted(whole, types).snapshot_before(40)
    assert again is not None
    assert dump(again, types) == whole


def test_what_was_loaded_has_no_past() -> None:
    snapshot = TimeSteward(make_village).snapshot_before(50)
    assert snapshot is not None
    steward = load_untrusted(dump(snapshot, TYPES), TYPES)
    assert steward.valid_since == steward.remembered_since == ValidSince.before(50)
    assert steward.snapshot_before(49) is None


@dataclass(frozen=True, slots=True)
class Nameless:
    part: int


@dataclass(frozen=True, slots=True)
class Imitator:
    type_id: ClassVar[int] = Step.type_id

    part: int


class Listed:
    type_id = 5


@pytest.mark.parametrize(
    ("value", "remedy"), [(1.5, "integers, or a Fraction"), ([1], "give a tuple"), (Nameless(1), "with a type_id")]
)
def test_what_cannot_be_saved_is_named_with_what_to_do(value: Any, remedy: str) -> None:
    with pytest.raises(NotPersistent, match=remedy):
        saved(value)


def test_a_place_of_a_timeline_cannot_be_saved_by_itself() -> None:
    with pytest.raises(NotPersistent, match="timeline and place"):
        saved(GridTimeline(1).at(0, 0))


@pytest.mark.parametrize(
    ("kinds", "why"),
    [([Nameless], "has no type_id"), ([Step, Imitator], "the type_id of Step"), ([Listed], "neither a timeline")],
)
def test_classes_that_could_not_be_told_apart_are_refused(kinds: list[type], why: str) -> None:
    with pytest.raises(NotPersistent, match=why):
        PersistentTypes(kinds)


STEP = f"{Step.type_id:x}"
VALUE = f"{ValueTimeline.type_id:x}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        [],
        [2, "0", None, [], []],
        [1, "x", None, [], []],
        [1, "0", ["timeline", STEP, "1"], [], []],
        [1, "0", ["object", STEP], [], []],
        [1, "0", ["object", "zz"], [], []],
        [1, "0", ["what"], [], []],
        [1, "0", ["ratio", 1, 0], [], []],
        [1, "0", None, [[VALUE, "1", [[["tuple", 1], 5]]]], []],
        [1, "0", None, [], [["5", 7]]],
        [1, "5" + "0" * 39, None, [], [["1", ["object", STEP, None]]]],
        [1, "0", ["tuple", ["timeline", VALUE, "1"], ["timeline", f"{0x2C6E9B0741F8D35C:x}", "1"]], [], []],
    ],
    ids=repr,
)
def test_bytes_that_are_no_saved_timeline_are_refused(data: Any) -> None:
    with pytest.raises(NotPersistent):
        load_untrusted(data if isinstance(data, bytes) else cbor2.dumps(data, canonical=True), TYPES)


@dataclass(frozen=True, slots=True)
class Enter(TimelineEvent):
    """Puts something into a set, and into a grid at the place of that name."""

    what: int

    def execute(self, now: Accessor) -> None:
        members, grid = now.globals
        members.add(now, self.what)
        now.write(grid.at(self.what, 0), 7)


def test_who_named_a_place_first_makes_no_difference_to_what_is_saved() -> None:
    dumps = set()
    for is_first in (False, True):
        steward = TimeSteward(lambda now: (now.create(OrderedSetTimeline, ()), now.create(GridTimeline, None)))
        if is_first:
            steward.insert_fiat_event(5, 1, Enter(True))
            steward.run_until(10)
            steward.remove_fiat_event(5, 1)
        steward.insert_fiat_event(5, 2, Enter(1))
        snapshot = steward.snapshot_before(10)
        assert snapshot is not None
        dumps.add(dump(snapshot, PersistentTypes([])))
    assert len(dumps) == 1
