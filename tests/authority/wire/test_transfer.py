"""Messages: what is encoded is what is decoded, and arbitrary bytes are a `MessageError` or exactly one message."""

from typing import Any, cast

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.limits import MAX_BODY_BYTES
from batonpass.authority.trust.certificates import MAX_CHAIN
from batonpass.authority.wire import transfer as messages
from batonpass.authority.wire.base import made
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.placement import CensusRow
from batonpass.authority.wire.transfer import (
    MAX_INPUT_BYTES,
    MAX_INPUTS,
    Parcel,
    decode_link_untrusted,
    decode_message_untrusted,
    encode_link,
    encode_message,
)
from tests.authority.message_strategies import (
    PLAYER_KINDS,
    PLAYER_MESSAGES,
    TRACES,
    TRANSFER_KINDS,
    TRANSFER_MESSAGES,
    of_kind,
)

PARCELS = st.builds(
    Parcel, trace=TRACES, on_path=st.booleans(), kind=st.text(min_size=1, max_size=32), sealed=st.text(max_size=50)
)


@pytest.mark.parametrize("kind", TRANSFER_KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_transfer_message_survives_the_wire(kind: type[BaseModel], data: st.DataObject) -> None:
    message = data.draw(of_kind(kind))
    assert decode_message_untrusted(encode_message(message)) == message


@pytest.mark.parametrize("kind", TRANSFER_KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_what_is_made_of_right_fields_is_what_would_be_read(kind: type[BaseModel], data: st.DataObject) -> None:
    message = data.draw(of_kind(kind))
    twin = made(kind, **vars(message))
    assert twin == message
    assert (repr(twin), vars(twin)) == (repr(message), vars(message))
    assert encode_message(cast(Any, twin)) == encode_message(message)
    assert decode_message_untrusted(encode_message(cast(Any, twin))) == message
    with pytest.raises(ValidationError):
        twin.type = "another"  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", PLAYER_KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_player_message_survives_the_link(kind: type[BaseModel], data: st.DataObject) -> None:
    message = data.draw(of_kind(kind))
    assert decode_link_untrusted(encode_link(message)) == message


@given(PARCELS)
def test_a_parcel_survives_the_link(parcel: Parcel) -> None:
    assert decode_link_untrusted(encode_link(parcel)) == parcel


def test_no_two_messages_have_one_type() -> None:
    types = [kind.model_fields["type"].default for kind in (*TRANSFER_KINDS, *PLAYER_KINDS)]
    assert len(types) == len(set(types))


def test_everything_that_is_a_message_is_exported() -> None:
    names = {kind.__name__ for kind in (*TRANSFER_KINDS, *PLAYER_KINDS)}
    assert names <= set(messages.__all__)


def test_a_player_message_is_no_transfer_message_and_the_other_way_round() -> None:
    player = messages.NotHere(entity="alpha.e")
    with pytest.raises(MessageError):
        decode_message_untrusted(encode_link(player))
    with pytest.raises(MessageError):
        decode_link_untrusted(encode_message(messages.Grant(certificate="x")))


def test_messages_know_the_fence_under_which_they_were_sent() -> None:
    fields: dict[str, Any] = {"transfer_id": "transfer-1", "epoch": 4, "sub": 2}
    assert messages.Activated(entity="alpha.e", **fields).fence == Fence(4, 2)
    assert messages.HandoffReply(outcome="refused", authority="alpha.s1", **fields).fence == Fence(4, 2)


# --- hostile bytes ----------------------------------------------------------------------------------------------------


def test_of_whom_nobody_says_that_it_is_immovable_or_not_taken_is_told_as_before_there_were_any() -> None:
    """So that releases of before read a census in which nobody is, and theirs is read here."""
    fields: dict[str, Any] = {"entity": "alpha.e1", "here_ms": 1, "cost_ppm": 2, "group": ""}
    assert CensusRow(**fields).model_dump() == fields
    assert CensusRow(**fields, immovable=True).model_dump() == fields | {"immovable": True}
    assert CensusRow(**fields, untaken=True).model_dump() == fields | {"untaken": True}


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_message(body: bytes) -> None:
    for decode in (decode_message_untrusted, decode_link_untrusted):
        with pytest.raises(MessageError):
            decode(body)


CBOR_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(st.one_of(TRANSFER_MESSAGES, PLAYER_MESSAGES), st.data())
def test_a_message_with_one_field_replaced_is_a_message_or_an_error(message: BaseModel, data: st.DataObject) -> None:
    fields = message.model_dump()
    fields[data.draw(st.sampled_from([*fields, "unknown"]))] = data.draw(CBOR_VALUES)
    body = cbor2.dumps(fields)
    for decode in (decode_message_untrusted, decode_link_untrusted):
        try:
            decoded = decode(body)
        except MessageError:
            continue
        assert not isinstance(decoded, Parcel)
        assert decoded.model_dump() == fields


@given(PARCELS, st.data())
def test_a_parcel_with_one_field_replaced_is_a_parcel_or_an_error(parcel: Parcel, data: st.DataObject) -> None:
    fields = parcel.to_data()
    fields[data.draw(st.sampled_from([*fields, "unknown"]))] = data.draw(CBOR_VALUES)
    try:
        decoded = Parcel.from_data_untrusted(fields)
    except MessageError:
        return
    assert decoded.to_data() == fields


@given(st.one_of(TRANSFER_MESSAGES, PLAYER_MESSAGES), st.data())
def test_a_message_that_was_cut_off_is_no_message(message: Any, data: st.DataObject) -> None:
    body = cbor2.dumps(message.model_dump())
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    for decode in (decode_message_untrusted, decode_link_untrusted):
        with pytest.raises(MessageError):
            decode(cut)


HOSTILE = {
    "deep nesting": b"\x81" * 100_000 + b"\x01",
    "a huge length": b"\x9b" + b"\xff" * 8,
    "a cycle": b"\xd8\x1c\x81\xd8\x1d\x00",
    "a tag that builds things": cbor2.dumps(cbor2.CBORTag(35, "(a+)+$")),
    "a text that is no text": b"\x61\xff",
    "an empty body": b"",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_cbor_is_no_message(body: bytes) -> None:
    for decode in (decode_message_untrusted, decode_link_untrusted):
        with pytest.raises(MessageError):
            decode(body)


def test_a_body_that_is_too_long_is_not_even_parsed() -> None:
    with pytest.raises(MessageError, match=f"longer than {MAX_BODY_BYTES}"):
        decode_message_untrusted(bytes(MAX_BODY_BYTES + 1))


# --- bounds -----------------------------------------------------------------------------------------------------------

FENCED: dict[str, Any] = {"transfer_id": "transfer-1", "entity": "alpha.e", "epoch": 1, "sub": 0}
HANDOFF: dict[str, Any] = FENCED | {
    "type": "handoff",
    "source": "alpha.s1",
    "target": "alpha.s2",
    "tick": 0,
    "state_hash": "0" * 64,
}
ITEM = {"source": "alpha.ada", "owner_rev": 1, "seq": 1, "data": b""}
REPORT: dict[str, Any] = {
    "type": "report",
    "transfer_id": "transfer-1",
    "entity": "alpha.e",
    "source": "alpha.s1",
    "trace": Trace("transfer-1").to_data(),
    "off_path": {},
    "counters": {},
}
TOO_MUCH: dict[str, dict[str, Any]] = {
    "a chain too long": HANDOFF | {"chain": ["x"] * (MAX_CHAIN + 2)},
    "a token too long": HANDOFF | {"chain": ["x" * 8193]},
    "a tick of a million digits": HANDOFF | {"tick": 1 << 3_000_000},
    "a tick before the first": HANDOFF | {"tick": -1},
    "an epoch that would wrap": HANDOFF | {"epoch": 2**63},
    "a name with a newline": HANDOFF | {"entity": "alpha.e\n"},
    "a tuple of a name": HANDOFF | {"source": ["alpha.s1"]},
    "too many inputs": FENCED | {"type": "forward", "inputs": [ITEM] * (MAX_INPUTS + 1)},
    "an input too long": FENCED | {"type": "forward", "inputs": [ITEM | {"data": bytes(MAX_INPUT_BYTES + 1)}]},
    "an input before the first": FENCED | {"type": "forward", "inputs": [ITEM | {"seq": 0}]},
    "an endless chase": FENCED | {"type": "forward", "inputs": [], "forwards": 5},
    "a report without a trace": REPORT | {"trace": {}},
    "a report with another trace": REPORT | {"trace": Trace("transfer-1").to_data() | {"note": "x" * 1000}},
    "a report that counts too much": REPORT | {"counters": {str(n): n for n in range(33)}},
    "a report of negative counts": REPORT | {"off_path": {"state": -1}},
    "a report with a long word": REPORT | {"off_path": {"s" * 33: 1}},
    "a trace that is none": FENCED | {"type": "activated", "trace": {"hops": 3}},
    "a book for a reason": {"type": "spawned", "entity": "alpha.e", "reason": "x" * 257},
}


def test_what_the_bounds_are_tried_on_is_a_message_itself() -> None:
    for fields in (HANDOFF, REPORT):
        assert decode_message_untrusted(cbor2.dumps(fields)).model_dump() == fields | {"chain": []} | (
            {"transport": "rest"} if fields is HANDOFF else {}
        )


@pytest.mark.parametrize("fields", TOO_MUCH.values(), ids=list(TOO_MUCH))
def test_everything_a_peer_can_make_longer_is_bounded(fields: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match="not a known message"):
        decode_message_untrusted(cbor2.dumps(fields))


PARCEL: dict[str, Any] = {"trace": Trace("transfer-1").to_data(), "on_path": False, "kind": "grant", "sealed": "x"}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": ""},
        {"kind": "x" * 33},
        {"kind": 1},
        {"on_path": 1},
        {"sealed": b"x"},
        {"sealed": "x" * (2 * MAX_BODY_BYTES + 1)},
        {"trace": {}},
        {"extra": 1},
    ],
    ids=lambda value: f"{value!s:.60}",  # an id is sent to and fro with each report of the test
)
def test_a_parcel_is_bounded_and_exact(changes: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        decode_link_untrusted(cbor2.dumps(PARCEL | changes))


def test_a_parcel_lacks_nothing() -> None:
    for name in PARCEL:
        with pytest.raises(MessageError):
            Parcel.from_data_untrusted({k: v for k, v in PARCEL.items() if k != name})
    with pytest.raises(MessageError):
        Parcel.from_data_untrusted(None)
