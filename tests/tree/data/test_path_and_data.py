"""Names, paths and plain data: what is accepted comes back, everything else is one documented error."""

import datetime
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree.data.data import (
    MAX_DATA_DEPTH,
    decode,
    decode_array_untrusted,
    decode_untrusted,
    encode,
    encode_shallow,
)
from batonpass.tree.data.errors import BadData, BadPath
from batonpass.tree.data.path import MAX_DEPTH, MAX_NAME_BYTES, ROOT, check_path, format_path, is_plain_path, parse_path
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command, encode_entry
from tests.tree.strategies import names, paths, plain_data


@given(st.lists(names.filter(lambda name: "/" not in name), max_size=MAX_DEPTH).map(tuple))
def test_a_path_is_read_back_from_its_written_form(path: tuple[str, ...]) -> None:
    assert parse_path(format_path(path)) == path


@pytest.mark.parametrize(
    ("text", "path"), [("", ROOT), ("/", ROOT), ("a/b", ("a", "b")), ("/a/../b", ("a", "..", "b"))]
)
def test_dots_and_stars_are_plain_names_and_one_leading_slash_is_allowed(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["a//b", "//a", "a/", "x" * 256, "é" * 128, "/".join(["a"] * 33)])
def test_empty_and_long_names_and_deep_paths_are_refused(text: str) -> None:
    with pytest.raises(BadPath):
        parse_path(text)


@pytest.mark.parametrize("path", ["a/b", None, 3, [1], [b"a"], ["\ud800"], [None]])
def test_what_is_not_a_list_of_names_is_refused(path: object) -> None:
    with pytest.raises(BadPath):
        check_path(path)


def test_a_slash_inside_a_name_has_no_written_form() -> None:
    with pytest.raises(BadPath, match="slash"):
        format_path(("a/b",))


@given(st.lists(st.text("a/é", min_size=0, max_size=2) | st.sampled_from(["x" * 255, "x" * 256, 1, None]), max_size=40))
def test_a_plain_path_needs_no_further_look(path: list[Any]) -> None:
    if is_plain_path(tuple(path)):
        assert check_path(path) == tuple(path)
    else:
        assert len(path) > MAX_DEPTH or any(
            not isinstance(name, str) or not 0 < len(name) < 256 or "é" in name for name in path
        )


@given(paths)
def test_every_path_within_the_limits_is_accepted_as_a_list_too(path: tuple[str, ...]) -> None:
    assert all(len(name.encode()) <= MAX_NAME_BYTES for name in path)
    assert check_path(list(path)) == path


@given(plain_data)
def test_plain_data_is_read_back(data: Any) -> None:
    assert encode(decode(encode(data))) == encode(data)


@given(st.dictionaries(st.text(max_size=4), st.integers(-5, 5), min_size=2))
def test_equal_maps_have_equal_bytes_however_they_were_built(data: dict[str, int]) -> None:
    assert encode(dict(reversed(data.items()))) == encode(data)


@given(
    st.dictionaries(
        st.text(max_size=30) | st.text("abcdé", max_size=3),
        st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3) | st.none() | st.booleans() | st.just([]),
    )
)
def test_a_flat_map_has_the_canonical_bytes(data: dict[str, Any]) -> None:
    assert encode(data) == cbor2.dumps(data, canonical=True)


def test_one_and_true_and_one_point_zero_are_three_values() -> None:
    assert len({encode(1), encode(True), encode(1.0)}) == 3


@pytest.mark.parametrize(
    "data", [2**64, -(2**65), {1: "a"}, {3, 4}, datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), object(), "\ud800"]
)
def test_what_is_not_plain_is_refused_before_it_is_kept(data: Any) -> None:
    with pytest.raises(BadData):
        encode(data)


@pytest.mark.parametrize(
    "data", [{"b": 2**64}, {"b": -(2**65)}, {"b": {1: 2}}, {"b": {3}}, {"b": object()}, {"b": "\ud800"}, {7: True}]
)
def test_a_map_in_which_one_thing_is_not_plain_is_refused(data: dict[Any, Any]) -> None:
    with pytest.raises(BadData):
        encode(data | {"a": 1})


@pytest.mark.parametrize("number", [10**30, -(10**30), 2**64, 10**4000])
def test_who_is_refused_for_a_large_number_is_told_so(number: int) -> None:
    with pytest.raises(BadData, match=r"a whole number is not between -2\^64 and 2\^64-1"):
        encode({"deep": [{"inside": [1, number]}]})


@given(st.binary(max_size=64))
def test_any_bytes_are_plain_data_or_bad_data(encoded: bytes) -> None:
    try:
        data = decode_untrusted(encoded)
    except BadData:
        return
    decode_untrusted(encode(data))


@pytest.mark.parametrize(
    "encoded",
    [b"", b"\x00\x00", b"\x9f\xff", b"\xa1\x01\x02", b"\xd8\x23\x61(", b"\xc2\x41\x01", b"\xa2\x61a\x01\x61a\x02"],
    ids=["nothing", "two values", "endless list", "number as key", "regular expression", "big number", "key twice"],
)
def test_tags_and_tricks_are_refused(encoded: bytes) -> None:
    with pytest.raises(BadData):
        decode_untrusted(encoded)


@pytest.mark.parametrize("tag", [*range(300), 1004, 43000, 55799])
def test_no_tag_makes_an_object_of_anything(tag: int) -> None:
    values: list[Any] = [0, b"", bytes(4), bytes(16), "a", [], [1, 1], {}, 0.5]
    for value in values:
        with pytest.raises(BadData):
            decode_untrusted(cbor2.dumps(cbor2.CBORTag(tag, value)))


def test_nesting_is_limited() -> None:
    with pytest.raises(BadData):
        decode_untrusted(b"\x81" * 1000 + b"\x00")


_anything = st.recursive(
    plain_data | st.integers() | st.datetimes() | st.decimals() | st.sets(st.integers()) | st.just(cbor2.undefined),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts) | st.tuples(parts),
)


@given(_anything)
def test_what_is_read_back_only_when_in_doubt_is_refused_all_the_same(data: Any) -> None:
    try:
        expected = encode(data, canonical=False)
    except BadData:
        with pytest.raises(BadData):
            encode_shallow(data)
    else:
        assert encode_shallow(data) == expected


@given(_anything)
def test_what_is_written_can_be_read_again(data: Any) -> None:
    try:
        encoded = encode(data)
    except BadData:
        return
    assert encode(decode_untrusted(encoded)) == encoded


def test_an_array_holds_values_of_the_greatest_depth_and_keys_that_are_lists() -> None:
    deepest: Any = 1
    for _ in range(MAX_DATA_DEPTH):
        deepest = [deepest]
    assert decode_array_untrusted(b"\x81" + encode_shallow(deepest)) == [deepest]
    with pytest.raises(BadData):
        encode_shallow([deepest])
    assert decode_array_untrusted(b"\x81" + encode_shallow({("a", 1): 2})) == [{("a", 1): 2}]
    with pytest.raises(BadData):
        decode_array_untrusted(encode("text"))


def test_a_key_that_is_a_list_is_not_stored_and_harms_no_other_command() -> None:
    machine = Machine({})
    odd = encode_command(Command("tree.put", {"path": ["a"], "data": {("k",): 1}}, "c", 1))
    good = encode_command(Command("tree.put", {"path": ["b"], "data": 1}, "c", 2))
    answers = machine.apply_entry(encode_entry([odd, good]))
    assert [CommandAnswer.from_encoded(answer).code for _, answer in answers] == ["bad_data", None]
