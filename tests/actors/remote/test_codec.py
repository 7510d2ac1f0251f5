"""Messages as bytes: what arrives equals what was sent, and nobody's bytes do anything but that."""

from __future__ import annotations

import contextlib
import enum
import math
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.remote.codec import Codec, DataOnly, WireCaller, WireNamed, WireRef
from batonpass.actors.remote.errors import RemoteError, Undecodable, Unsendable
from batonpass.actors.remote.settings import MAX_DEPTH, MAX_LOOSE_KEYS, MAX_PAYLOAD_BYTES
from tests.budget import examples


class Colour(enum.Enum):
    RED = 1
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1


@dataclass(frozen=True)
class Put:
    key: str
    value: Any
    seen: int = field(default=7, init=False)


@dataclass(frozen=True, slots=True)
class Natural:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("a natural number is not negative")


@dataclass
class Unknown:
    x: int


class Pair(NamedTuple):
    a: int
    b: int


def make_codec(node: str = "alpha") -> Codec:
    codec = Codec(DataOnly(node))
    codec.register(Colour, "colour")
    codec.register(Level, "level")
    codec.register(Put, "put")
    codec.register(Natural, "natural")
    return codec


CODEC = make_codec()
NUMBERS = st.integers(0, 2**64 - 1)
WIRE = st.one_of(
    st.builds(WireRef, st.text(max_size=9), NUMBERS, NUMBERS, NUMBERS),
    st.builds(WireNamed, st.text(max_size=9), st.text(max_size=9)),
    st.builds(WireCaller, st.text(max_size=9), NUMBERS, NUMBERS, NUMBERS),
)
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.sampled_from([*Colour, *Level]),
    st.builds(Natural, st.integers(0, 100)),
    WIRE,
)
KEYS = st.recursive(
    ATOMS, lambda keys: st.lists(keys, max_size=3).map(tuple) | st.frozensets(keys, max_size=3), max_leaves=4
)
MESSAGES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(st.text(max_size=4), inner, max_size=4),
        st.builds(Put, st.text(max_size=4), inner),
        st.sets(KEYS, max_size=3),
        st.frozensets(KEYS, max_size=3),
    ),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    """A value and the types in it, so that `(1,)` differs from `[1]`, and 1 from True and 1.0; maps in their order."""
    if isinstance(value, dict):
        return dict, [(shape(key), shape(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [shape(part) for part in value]
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(shape(part)) for part in value)
    if isinstance(value, Put):
        return Put, shape(value.key), shape(value.value)
    return type(value), value


@given(MESSAGES)
def test_what_arrives_is_what_was_sent_type_for_type_and_in_order(message: Any) -> None:
    assert shape(CODEC.decode_untrusted(CODEC.encode(message))) == shape(message)


@given(MESSAGES)
def test_the_same_message_has_the_same_bytes(message: Any) -> None:
    assert make_codec().encode(message) == CODEC.encode(message)


def test_nan_arrives_as_nan() -> None:
    arrived = CODEC.decode_untrusted(CODEC.encode(float("nan")))
    assert math.isnan(arrived)


@given(st.binary(max_size=200))
@settings(max_examples=examples(300))
def test_hostile_bytes_are_decoded_or_refused_with_one_error(noise: bytes) -> None:
    with contextlib.suppress(Undecodable):
        CODEC.decode_untrusted(noise)


ANY_CBOR = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.text(max_size=3) | st.integers(0, 3), inner, max_size=3),
        st.builds(cbor2.CBORTag, st.sampled_from([0, 1, 2, 28, 29, 35, 39, 224, 225, *range(226, 236), 258]), inner),
    ),
    max_leaves=10,
)


@given(ANY_CBOR)
@settings(max_examples=examples(300))
def test_cbor_that_nobody_should_send_is_decoded_or_refused_with_one_error(value: Any) -> None:
    try:
        hostile = cbor2.dumps(value)
    except Exception:
        return
    with contextlib.suppress(Undecodable):
        CODEC.decode_untrusted(hostile)


@given(MESSAGES, st.data())
def test_a_message_that_was_tampered_with_is_decoded_or_refused_with_one_error(message: Any, data: Any) -> None:
    encoded = bytearray(CODEC.encode(message))
    where = data.draw(st.integers(0, len(encoded) - 1))
    encoded[where] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Undecodable):
        CODEC.decode_untrusted(bytes(encoded))
    with pytest.raises(Undecodable):
        CODEC.decode_untrusted(CODEC.encode(message)[:-1])
    with pytest.raises(Undecodable, match="follow the message"):
        CODEC.decode_untrusted(CODEC.encode(message) + b"\x00")


@pytest.mark.parametrize("opening", [b"\x81", b"\xa1", b"\xd8\xe0\x81", b"\xd8\xe0", b"\xc2", b"\xd8\xe8\x82\x61a"])
def test_however_deep_it_is_nested_nothing_overflows(opening: bytes) -> None:
    with pytest.raises(Undecodable):
        CODEC.decode_untrusted(opening * (100_000 // len(opening)))


def test_what_the_other_node_would_refuse_is_refused_here() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    CODEC.decode_untrusted(CODEC.encode(deep))
    with pytest.raises(Unsendable, match="nested more than"):
        CODEC.encode([deep])
    with pytest.raises(Unsendable, match="the largest is"):
        CODEC.encode(bytes(MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(Undecodable, match="the largest is"):
        CODEC.decode_untrusted(bytes(MAX_PAYLOAD_BYTES + 1))
    many = dict.fromkeys(range(MAX_LOOSE_KEYS + 1))
    with pytest.raises(Unsendable, match="can travel in one map"):
        CODEC.encode(many)
    hostile = cbor2.dumps(cbor2.CBORTag(225, [part for pair in many.items() for part in pair]))
    with pytest.raises(Undecodable, match="can travel in one map"):
        CODEC.decode_untrusted(hostile)
    text = {str(number): number for number in range(MAX_LOOSE_KEYS + 1)}
    assert CODEC.decode_untrusted(CODEC.encode(text)) == text
    assert CODEC.decode_untrusted(CODEC.encode(set(text))) == set(text)


def test_bytes_that_look_like_containers_do_not_count_as_depth() -> None:
    looks_deep = {"a": b"\x81" * 5000, "b": (b"\xd8" * 100, 1.5)}
    assert CODEC.decode_untrusted(CODEC.encode(looks_deep)) == looks_deep


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (object(), "send plain data"),
        (Unknown(1), r"codec\.register it"),
        (Pair(1, 2), "send plain data"),
        (bytearray(b"x"), "bytearray"),
        (range(3), "range"),
        (1j, "complex"),
        (uuid.UUID(int=0), "UUID"),
        (Put, "type"),
        (lambda: None, "function"),
        (cbor2.CBORTag(228, ["a", 1, 1, 1]), "CBORTag"),
        (cbor2.undefined, "Undefined"),
        ("\ud800", "surrogates"),
    ],
)
def test_what_would_arrive_as_something_else_is_refused_with_its_name(value: Any, hint: str) -> None:
    for message in (value, [value], {"a": (value,)}):
        with pytest.raises(Unsendable, match=hint):
            CODEC.encode(message)


def test_a_message_that_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(Unsendable, match="cyclic"):
        CODEC.encode(circle)


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_arrives_as_what_it_was_called_and_what_it_said() -> None:
    arrived = CODEC.decode_untrusted(CODEC.encode(("down", ValueError("boom"))))
    assert arrived == ("down", RemoteError("ValueError", "boom", "alpha"))
    assert isinstance(arrived[1], RemoteError)
    assert str(arrived[1]) == "ValueError on alpha: boom"
    # Handed on by a third node, it still says where it was raised.
    assert make_codec("gamma").encode(arrived) == CODEC.encode(("down", ValueError("boom")))
    assert CODEC.decode_untrusted(CODEC.encode(Odd())).text.startswith("(it has no sentence")
    assert len(CODEC.decode_untrusted(CODEC.encode(ValueError("x" * 10_000))).text) == 2000


def test_a_registered_class_is_made_by_its_own_constructor() -> None:
    arrived = CODEC.decode_untrusted(CODEC.encode(Put("k", [Natural(3)])))
    assert arrived == Put("k", [Natural(3)])
    assert arrived.seen == 7
    with pytest.raises(Undecodable, match="not negative"):
        CODEC.decode_untrusted(cbor2.dumps(cbor2.CBORTag(232, ["natural", -1])))
    for wrong in (["natural"], ["natural", 1, 2], ["nobody", 1], [], 3, [["natural"], 1]):
        with pytest.raises(Undecodable):
            CODEC.decode_untrusted(cbor2.dumps(cbor2.CBORTag(232, wrong)))
    for wrong_member in (["colour", "BLUE"], ["nobody", "RED"], ["colour"], ["colour", 1]):
        with pytest.raises(Undecodable):
            CODEC.decode_untrusted(cbor2.dumps(cbor2.CBORTag(233, wrong_member)))


def test_a_type_has_one_name() -> None:
    codec = make_codec()
    codec.register(Put, "put")  # again the same
    for cls, name in ((Put, "another"), (Unknown, "put"), (Unknown, ""), (Unknown, "x" * 256), (int, "int")):
        with pytest.raises(ValueError, match=r"registered already|not a name|neither"):
            codec.register(cls, name)


def test_keys_given_twice_are_refused() -> None:
    for twice in (b"\xa2\x61a\x01\x61a\x02", cbor2.dumps(cbor2.CBORTag(225, [1, 2, 1, 3]))):
        with pytest.raises(Undecodable):
            CODEC.decode_untrusted(twice)
