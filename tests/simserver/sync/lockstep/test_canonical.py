"""Equal values have equal bytes (docs/reference/lockstep.md); a value without canonical form is refused by its path."""

import json
import math
import struct
from pathlib import Path
from typing import Any, Final

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.lockstep.canonical import (
    MAX_INTEGER,
    NotCanonical,
    decode_untrusted_state,
    encode,
    freeze,
    state_hash,
)

VECTORS: Final = json.loads((Path(__file__).parent / "vectors" / "canonical.json").read_text())
NUMBERS: Final = st.integers(-MAX_INTEGER, MAX_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SCALARS: Final = st.none() | st.booleans() | NUMBERS | TEXTS | st.binary(max_size=30)
VALUES: Final = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(TEXTS, v, max_size=4), max_leaves=12
)


def value_of(case: dict[str, Any]) -> Any:
    if "bytes" in case:
        return bytes.fromhex(case["bytes"])
    return struct.unpack(">d", bytes.fromhex(case["double"]))[0] if "double" in case else case["value"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["encoded"][:24])
def test_bytes_and_hash_of_a_value_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    data = encode(value_of(case))
    assert (data.hex(), state_hash(data)) == (case["encoded"], case["hash"])


@given(VALUES)
def test_what_is_decoded_is_the_canonical_form_and_encodes_to_the_same_bytes(value: Any) -> None:
    data = encode(value)
    assert decode_untrusted_state(data) == freeze(value)
    assert encode(freeze(value)) == data


@given(VALUES)
def test_any_reader_of_cbor_reads_an_equal_value(value: Any) -> None:
    assert cbor2.loads(encode(value)) == value


@given(st.dictionaries(TEXTS, st.integers(0, 9), min_size=2, max_size=6), st.randoms())
def test_the_order_in_which_a_map_was_built_changes_nothing(value: dict[str, int], dice: Any) -> None:
    items = list(value.items())
    dice.shuffle(items)
    assert encode(dict(items)) == encode(value)
    assert list(freeze(dict(items))) == sorted(value, key=encode)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_encoded_as_javascript_would_which_knows_no_integers(number: float) -> None:
    is_integer = number.is_integer() and abs(number) <= MAX_INTEGER
    assert encode(number) == (encode(int(number)) if is_integer else b"\xfb" + struct.pack(">d", number))


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, {2}]}, r"value\.a\[1\]: a set has no order.*sorted"),
        ([math.nan], r"value\[0\]: nan .* finite"),
        (-math.inf, "value: -inf"),
        ({"n": 2**53}, r"value\.n: the integer 9007199254740992 is beyond"),
        (10**4000, "of 13288 bits is beyond"),
        ({1: 2}, "the key 1 is no text"),
        ({"x": {"\ud800": 1}}, r"value\.x \(a key\): the text .* surrogate"),
        ("\udfff", "surrogate"),
        ([object()], r"value\[0\]: object has no canonical form"),
        (nested(65), "more than 64 levels"),
    ],
)
def test_what_has_no_canonical_form_is_refused_with_its_path_and_a_remedy(value: Any, said: str) -> None:
    with pytest.raises(NotCanonical, match=said):
        encode(value)


def test_64_levels_are_taken() -> None:
    assert decode_untrusted_state(encode(nested(64))) == freeze(nested(64))


@pytest.mark.parametrize(
    "data",
    [
        cbor2.dumps(1.0),
        cbor2.dumps({"b": 1, "aa": 2, "a": 3}),
        b"\x18\x01",
        b"\x9f\x01\xff",
        b"\xf9\x38\x00",
        b"\xa2\x61a\x01\x61a\x02",
        b"\xc2\x41\x01",
        b"\x00\x00",
        b"",
        b"\x81" * 5000,
    ],
    ids=lambda data: data[:8].hex(),
)
def test_bytes_that_are_not_the_canonical_ones_are_refused(data: bytes) -> None:
    with pytest.raises(NotCanonical):
        decode_untrusted_state(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_to_a_value_of_those_bytes_or_refused(data: bytes) -> None:
    try:
        value = decode_untrusted_state(data)
    except NotCanonical:
        return
    assert encode(value) == data
