"""What outsiders may see of a value: JSON, bounded, and nothing that looks like a secret or that could run code."""

import json
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.observe.display import HIDDEN, MAX_TOTAL_CHARACTERS, picture


class Colour(Enum):
    RED = "red"


@dataclass
class Account:
    owner: str
    token: str
    pin_hash: bytes = field(repr=False)


Point = namedtuple("Point", ["x", "y"])


class Opaque:
    def __init__(self) -> None:
        self.token = "s3cret"  # noqa: S105

    def __repr__(self) -> str:
        raise AssertionError("nobody asks")

    def __str__(self) -> str:
        raise AssertionError("nobody asks")


class Lying(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (2**53, "0x20000000000000"),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("text", "text"),
        ("x" * 300, "x" * 199 + "…"),
        ("\ud800", "?"),
        (b"\x01\x02", "<2 bytes>"),
        (Colour.RED, "Colour.RED"),
        ([1, (2, {3})], [1, [2, [3]]]),
        (deque([1, 2]), [1, 2]),
        ({"a": 1, 2: "b", (3, 4): None}, {"a": 1, "2": "b", "[3, 4]": None}),
        (OrderedDict(a=1), {"a": 1}),
        (Point(1, 2), {"x": 1, "y": 2}),
        (ValueError("bad"), "ValueError: bad"),
        (Opaque, "<class Opaque>"),
        (Opaque(), "<tests.actors.observe.test_display.Opaque>"),
        (Lying(), "<Lying: RuntimeError while it was looked at>"),
        (Account("ada", "s3cret", b"x"), {"Account": {"owner": "ada", "token": HIDDEN}}),
    ],
)
def test_a_value_is_shown_as(value: Any, shown: Any) -> None:
    assert picture(value) == shown


@pytest.mark.parametrize(
    "name",
    [
        "token", "joinToken", "client_token", "PASSWORD", "passwd", "secret", "shared_secret", "private", "api_key",
        "signingKey", "signing_key", "keys_private", "credentials", "cookie", "Authorization", "jwk", "signature",
    ],
)  # fmt: skip
def test_what_is_named_like_a_secret_is_hidden_at_any_depth(name: str) -> None:
    assert picture({"a": [{name: {"b": "s3cret"}}]}) == {"a": [{name: HIDDEN}]}


@pytest.mark.parametrize("name", ["key", "keys", "name", "owner", "spin", "monkey_count", "tick"])
def test_what_is_not_is_shown(name: str) -> None:
    assert picture({name: 1}) == {name: 1}


def test_what_is_long_is_cut_and_says_so() -> None:
    assert picture(list(range(1000)))[-1] == "… and 900 more"  # type: ignore[index]  # a list
    assert picture({str(n): n for n in range(1000)})["…"] == "and 900 more"  # type: ignore[index, call-overload]


def test_what_is_deep_or_contains_itself_ends() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert json.dumps(picture(endless), ensure_ascii=False).count("[") < 12


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(Opaque),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
)


@given(values)
def test_every_picture_is_json_that_utf_8_can_carry(value: Any) -> None:
    json.dumps(picture(value), allow_nan=False, ensure_ascii=False).encode()


@given(st.integers(1, 60), st.integers(1, 300))
def test_no_picture_is_large(width: int, length: int) -> None:
    value: Any = "x" * length
    for _ in range(4):
        value = [value] * width
    assert len(json.dumps(picture(value), ensure_ascii=False)) < 3 * MAX_TOTAL_CHARACTERS
