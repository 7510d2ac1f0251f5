"""What can be written and read again, and that nothing else is taken for it."""

import datetime
import enum
import re
import time
from collections import Counter, OrderedDict, defaultdict, deque
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.wire.cbor import loads_state_untrusted
from batonpass.simserver.world.portability import MAX_LEVELS, READER_LEVELS, Glance, NotPortable, glance, portable
from tests.budget import examples


class Colour(enum.StrEnum):
    RED = "red"


class Pair(NamedTuple):
    one: Any
    other: Any


class Plain(enum.Enum):
    ONE = 1


def nested(levels: int, inside: Any = 7, by: Any = lambda inner: [inner]) -> Any:
    for _ in range(levels):
        inside = by(inside)
    return inside


def circle() -> Any:
    endless: list[Any] = []
    endless.append({"again": endless})
    return endless


NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([2**64 - 1, 2**64, -(2**64), 10**4000]),
    st.integers(1, 9).map(lambda first: first * 10**5000),
    st.floats(),
)
TEXTS = st.text(st.characters(codec=None, exclude_categories=[]), max_size=6)
KEYS = st.one_of(TEXTS, st.integers(-9, 2**70), st.binary(max_size=3), st.tuples(st.integers()), st.none())
ODD = st.one_of(
    st.datetimes(), st.decimals(), st.fractions(), st.uuids(), st.dates(), st.complex_numbers(), st.timedeltas(),
    st.just(Colour.RED), st.just(Plain.ONE), st.just(cbor2.CBORTag(0, "x")), st.just(cbor2.CBORTag(29, 5)),
    st.builds(object), st.builds(circle), st.binary().map(bytearray),
    st.builds(datetime.datetime, st.just(2026), st.just(1), st.just(1), tzinfo=st.timezones()),
    st.frozensets(st.one_of(st.integers(), TEXTS), max_size=3),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.binary(max_size=20), ODD),
    lambda inner: st.one_of(
        st.lists(inner, max_size=20),
        st.dictionaries(KEYS, inner, max_size=4),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
        st.dictionaries(TEXTS, inner, max_size=2).map(OrderedDict),
        st.dictionaries(TEXTS, inner, max_size=2).map(MappingProxyType),
        st.builds(lambda one: defaultdict(int, a=one), inner),
        st.lists(inner, max_size=3).map(deque),
        st.builds(cbor2.CBORTag, st.integers(4000, 5000), inner),
        st.builds(nested, st.integers(MAX_LEVELS - 8, MAX_LEVELS + 8), inner),
    ),
    max_leaves=12,
)


@settings(max_examples=examples(300))
@given(VALUES)
def test_what_is_portable_is_read_again_as_it_was_and_all_else_is_said_not_to_be(value: Any) -> None:
    try:
        encoded = portable(value)
    except NotPortable:
        with pytest.raises((Exception, RecursionError)):
            loads_state_untrusted(cbor2.dumps({"world": value}, canonical=True))
        return
    read = loads_state_untrusted(cbor2.dumps({"world": value}, canonical=True))["world"]
    assert cbor2.dumps(read, canonical=True) == encoded
    assert portable(read) == encoded, "nor is anything else made of it on the way"


@settings(max_examples=examples(200))
@given(VALUES, st.integers(0, 2 * MAX_LEVELS))
def test_what_is_plain_at_a_glance_is_portable_however_much_is_looked_at(value: Any, most: int) -> None:
    try:
        seen = glance(value, most)
    except NotPortable:
        with pytest.raises(NotPortable):
            portable(value)
        return
    if seen is Glance.PLAIN:
        assert cbor2.loads(portable(value), max_depth=MAX_LEVELS) is not Ellipsis
        assert glance(value) is Glance.PLAIN


@pytest.mark.parametrize("by", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (inner,)])
@pytest.mark.parametrize("inside", [7, [], {}])
def test_the_bound_is_the_readers_less_the_map_of_a_snapshot(by: Any, inside: Any) -> None:
    deepest, deeper = nested(MAX_LEVELS, inside, by), nested(MAX_LEVELS + 1, inside, by)
    assert cbor2.loads(cbor2.dumps({"world": deepest}))
    assert glance(deepest) is Glance.PLAIN
    with pytest.raises(cbor2.CBORDecodeError, match=f"depth \\({READER_LEVELS}\\)"):
        cbor2.loads(cbor2.dumps({"world": deeper}))
    with pytest.raises(NotPortable, match="nested more than 399 levels"):
        glance(deeper)


def test_what_would_end_the_process_is_not_tried() -> None:
    """The writer has no bound of its own: at some 20,000 levels it runs out of stack."""
    sets: Any = frozenset()
    for _ in range(60):
        sets = frozenset((sets,))
    for value in (nested(10**5), nested(10**5, by=lambda inner: {"a": inner}), nested(10**5, by=lambda i: deque((i,)))):
        with pytest.raises(NotPortable, match="nested more than"):
            portable(value)
    with pytest.raises(NotPortable, match="sets on more than"):
        portable(sets)


def test_what_has_many_members_is_large_and_not_looked_through() -> None:
    for value in ([0] * 1000, {str(number): 0 for number in range(1000)}, ["ä" * 16_000], nested(3, [0] * 1000)):
        assert (glance(value, 999), glance(value, 1100)) == (Glance.LARGE, Glance.PLAIN)
    assert glance(b"x" * 10**6, 1) is Glance.PLAIN, "bytes are one member"
    assert glance(Counter("aab")) is Glance.OTHER


def doubled(levels: int) -> Any:
    """A list of the same list twice, and so on: it takes little memory, and has 2^levels members."""
    inside: list[Any] = []
    for _ in range(levels):
        inside = [inside, inside]
    return [0, inside]


def tagged(levels: int) -> Any:
    """The same with tags of which the value is twice the one below."""
    inside: Any = 7
    for _ in range(levels):
        inside = cbor2.CBORTag(4000, [inside, inside])
    return inside


def test_what_contains_the_same_many_times_is_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cbor2.loads(portable(doubled(3))) == doubled(3)
    monkeypatch.setattr("batonpass.simserver.world.portability.MAX_STATE_BYTES", 1000)
    monkeypatch.setattr("batonpass.simserver.world.portability._FEW", 500)
    twice: list[Any] = [0]
    twice += [twice, twice]
    for value in (doubled(300), {"a": doubled(300)}, twice, {"a": twice}, tagged(300), deque([doubled(300)])):
        with pytest.raises(NotPortable, match="more members than the 1000 bytes"):
            portable(value)
    with pytest.raises(NotPortable, match="more members than the 1000 bytes"):
        portable([0] * 1001)
    with pytest.raises(NotPortable, match="contains itself"):
        portable([circle(), [0] * 501])
    assert cbor2.loads(portable([0] * 999)) == [0] * 999


def test_nor_is_it_where_that_is_allowed_to_be_as_large_as_any_state() -> None:
    began_s = time.process_time()
    for value in (doubled(300), tagged(300)):
        with pytest.raises(NotPortable, match="more members"):
            portable(value)
    assert time.process_time() - began_s < 30, "2^300 members would take longer"


def test_what_refers_to_something_else_is_written_and_would_not_be_read() -> None:
    with pytest.raises(NotPortable, match="could not be read again"):
        portable(cbor2.CBORTag(28, []))


class Panicking(dict[str, int]):
    """As code in Rust that panics does."""

    def items(self) -> Any:
        raise SystemExit("panic")

    values = items


def test_what_ends_programs_when_it_is_written_is_not_portable() -> None:
    with pytest.raises((NotPortable, SystemExit)) as raised:
        portable({1: Panicking(a=1)})
    assert raised.type is NotPortable


@pytest.mark.parametrize(
    "value",
    [{2**64: 1}, {-(2**64) - 1: 1}, {"a": {2**70: 1}}, {(2**70, 1): 1}, {2**70}, re.compile("a"), {Fraction(1, 3)}],
    ids=repr,
)
def test_what_nobody_would_read_is_not_portable(value: Any) -> None:
    with pytest.raises(NotPortable, match="could not be read again"):
        portable(value)
    assert glance(value) is Glance.OTHER


class Mute(Exception):
    def __str__(self) -> str:
        raise AttributeError("detail")


class Unwritable(dict[str, int]):
    def items(self) -> Any:
        raise Mute

    values = items


def test_an_error_that_cannot_say_what_is_wrong_is_one_all_the_same() -> None:
    with pytest.raises(NotPortable, match="Mute, which cannot say more"):
        portable({1: Unwritable(a=1)})
