"""CBOR of others that may hold more than plain data, and never refers to itself."""

import time
from datetime import UTC, datetime
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority.cbor import loads_unshared
from authority.errors import MessageError
from authority.messages import decode_link_untrusted, decode_message_untrusted

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
        st.decimals(allow_nan=False),
        st.datetimes(timezones=st.just(UTC)), st.uuids(), st.frozensets(st.integers()).map(set),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
    max_leaves=20,
)  # fmt: skip


def laughs(levels: int) -> bytes:
    """A list of which each member is twice the one before, and is written once: nine bytes a level."""
    levels_below = [b"\xd8\x1c\x80"]
    for number in range(levels):
        before = b"\xd8\x1d" + cbor2.dumps(number)
        levels_below.append(b"\xd8\x1c\x82" + before + before)
    return b"\x98" + bytes([levels + 1]) + b"".join(levels_below)


@given(VALUES)
def test_what_a_world_may_have_is_read_as_it_was(value: Any) -> None:
    encoded = cbor2.dumps(value, canonical=True)
    assert loads_unshared(encoded) == cbor2.loads(encoded)


def test_dates_and_sets_are_values() -> None:
    value = {"at": datetime(2026, 11, 26, tzinfo=UTC), "who": {1, 2}}
    assert loads_unshared(cbor2.dumps(value)) == value


@pytest.mark.parametrize(
    "encoded",
    [
        laughs(20),
        bytes.fromhex("d81c82d81d00d81d00"),
        bytes.fromhex("d81c80"),
        bytes.fromhex("82d81c80d81d00"),
        bytes.fromhex("d901008263616161d81900"),
        bytes.fromhex("d81900"),
        bytes.fromhex("a1616bd81c80"),
    ],
)
def test_what_refers_to_something_else_is_not_taken(encoded: bytes) -> None:
    for wrapped in (
        encoded,
        b"\x81" + encoded,
        b"\xa1\x61\x61" + encoded,
        b"\xc1" + encoded,
        b"\xd9\x03\xe8" + encoded,
    ):
        with pytest.raises(cbor2.CBORDecodeError):
            loads_unshared(wrapped)
        with pytest.raises(MessageError, match="not CBOR"):
            decode_message_untrusted(wrapped)
        with pytest.raises(MessageError, match="not CBOR"):
            decode_link_untrusted(wrapped)


@given(st.binary(max_size=200))
def test_a_value_has_no_more_members_than_its_encoding_has_bytes(encoded: bytes) -> None:
    try:
        value = loads_unshared(encoded)
    except Exception:
        return
    members, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        members += 1
        if isinstance(one, cbor2.CBORTag):
            waiting.append(one.value)
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            waiting += one
    assert members <= len(encoded)


def test_nobody_is_kept_busy() -> None:
    began_s = time.process_time()
    with pytest.raises(cbor2.CBORDecodeError):
        loads_unshared(laughs(200))
    assert time.process_time() - began_s < 5, "2^200 members would take longer"
