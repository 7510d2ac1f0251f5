"""What servers of the earlier release say is read as they meant it, and what is said to them has the same bytes."""

from collections.abc import Callable
from typing import Any, Final, get_args

import cbor2
import pytest

from batonpass.actors.remote import frames as remote_frames
from batonpass.actors.remote.codec import Codec
from batonpass.authority.trust.certificates import CommitCertificate, DelegationGrant, PassCertificate, token_hash
from batonpass.authority.trust.signed_positions import LogPosition
from batonpass.authority.wire.columnar import columns_of, rows_untrusted
from batonpass.authority.wire.envelope import Parcel
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.phase_timings import timings_ms
from batonpass.authority.wire.sealing import Sealer, no_log
from batonpass.authority.wire.transfer import (
    Batch,
    LinkMessage,
    Message,
    decode_link_untrusted,
    decode_message_untrusted,
    encode_link,
    encode_message,
)
from batonpass.crypto import jose
from batonpass.crypto.key_forms import private_key_from_jwk_untrusted
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.tree.net import frames
from tests.earlier_release.vectors import neutral, recorded

WIRE: Final = recorded("wire")
NEWER: Final[frozenset[str]] = frozenset(
    {
        "contact",
        "contact_handoff",
        "authority",
        "authority_request",
        "entity_message_answers",
        "entity_messages",
        "ghost_interest",
        "ghosts",
        "region_report",
        "region_word",
        "show_members",
        "show_node",
    }
)
"""Kinds of messages, and of frames, that the earlier release did not have: of them nothing can be recorded."""


def dump(message: Any) -> Any:
    return neutral(message.model_dump())


def kinds_of(union: Any) -> set[str]:
    return {kind.model_fields["type"].default for kind in get_args(get_args(union)[0])}


def samples(where: str) -> list[Any]:
    return [
        pytest.param(one, id=f"{kind}-{number}") for kind in WIRE[where] for number, one in enumerate(WIRE[where][kind])
    ]


# --- messages ---------------------------------------------------------------------------------------------------------


def test_there_are_recordings_of_every_kind_of_message_and_frame() -> None:
    assert kinds_of(Message) - NEWER == set(WIRE["messages"])
    assert kinds_of(LinkMessage) - NEWER == set(WIRE["link"])
    assert all(len(found) > 0 for where in ("messages", "link") for found in WIRE[where].values())
    framed = {one["says"]["type"] for one in WIRE["frames"] if one["kind"] == "message"}
    assert set(frames._SHAPES) - NEWER == framed


@pytest.mark.parametrize("one", samples("messages"))
def test_a_message_between_servers_says_the_same_in_the_same_bytes(one: Any) -> None:
    message = decode_message_untrusted(bytes.fromhex(one["bytes"]))
    assert dump(message) == one["says"]
    assert encode_message(message).hex() == one["bytes"]


@pytest.mark.parametrize("one", samples("link"))
def test_a_message_between_players_and_servers_says_the_same_in_the_same_bytes(one: Any) -> None:
    message = decode_link_untrusted(bytes.fromhex(one["bytes"]))
    assert dump(message) == one["says"]
    assert encode_link(message).hex() == one["bytes"]


@pytest.mark.parametrize("batch", WIRE["batches"])
def test_both_forms_of_a_batch_hold_the_same_messages(batch: Any) -> None:
    by_columns = decode_message_untrusted(bytes.fromhex(batch["columns"]))
    one_by_one = decode_message_untrusted(bytes.fromhex(batch["messages"]))
    assert isinstance(by_columns, Batch)
    assert isinstance(one_by_one, Batch)
    assert by_columns.columns is not None
    rows = rows_untrusted(by_columns.columns)
    said = [{"message": dump(m), "trace": neutral(trace.to_data()), "on_path": hop} for m, trace, hop in rows]
    assert said == batch["says"]
    assert encode_message(Batch(columns=columns_of(rows))).hex() == batch["columns"]
    assert [dump(decode_message_untrusted(item.body)) for item in one_by_one.messages] == [m["message"] for m in said]
    assert encode_message(one_by_one).hex() == batch["messages"]


# --- traces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", WIRE["traces"])
def test_a_hop_trace_has_the_same_hops_digest_and_phases(one: Any) -> None:
    data = cbor2.loads(bytes.fromhex(one["bytes"]))
    trace = Trace.from_data_untrusted(data)
    assert neutral(trace.to_data()) == one["says"]
    assert cbor2.dumps(trace.to_data()).hex() == one["bytes"]
    assert (trace.digest(), timings_ms(trace)) == (one["digest"], one["phases_ms"])
    route, numbers = trace.packed()
    assert (neutral(route.crossings), neutral(route.places), numbers.hex()) == (
        one["crossings"],
        one["places"],
        one["numbers"],
    )


# --- what is signed and sealed ----------------------------------------------------------------------------------------


def public(name: str) -> PublicIdentity:
    return PublicIdentity.from_jwks_untrusted(WIRE["identities"][name]["jwks"])


def private(name: str) -> Identity:
    signing, agreement = map(private_key_from_jwk_untrusted, WIRE["identities"][name]["private"])
    return Identity(signing, agreement)


@pytest.mark.parametrize("envelope", WIRE["envelopes"])
def test_an_envelope_is_opened(envelope: Any) -> None:
    parcel = decode_link_untrusted(bytes.fromhex(envelope["bytes"]))
    assert isinstance(parcel, Parcel)
    assert encode_link(parcel).hex() == envelope["bytes"]
    heard: list[tuple[str, str]] = []
    reader = Sealer("alpha.h1", private("alpha.h1"))
    reader.bind(log_for=no_log, heard_log=lambda sender, log: heard.append((sender, log)))
    opened = reader.open_all_untrusted(parcel, sender=public("alpha.s1"), now_ns=20, now_s=WIRE["now_s"] + 1)
    said = [
        {
            "message": dump(one.message),
            "sender": one.sender,
            "trace": neutral(one.trace.to_data()),
            "in_batch": one.in_batch,
            "state_hash": one.state_hash,
        }
        for one in opened
    ]
    assert said == envelope["says"]
    assert heard == [("alpha.s1", "3.00ff00ff.17")]


CERTIFICATES: Final[dict[str, Callable[[object], Any]]] = {
    "commit": CommitCertificate.from_claims_untrusted,
    "delegation": DelegationGrant.from_claims_untrusted,
    "pass": PassCertificate.from_claims_untrusted,
    "log_position": LogPosition.from_claims_untrusted,
}


@pytest.mark.parametrize("one", WIRE["certificates"])
def test_a_certificate_is_verified_and_says_the_same(one: Any) -> None:
    claims = jose.verify_untrusted(one["token"], sender=public(one["signer"]), now_s=WIRE["now_s"])
    certificate = CERTIFICATES[one["kind"]](claims)
    assert neutral(certificate.to_claims()) == one["says"]
    assert token_hash(one["token"]) == one["hash"]


# --- frames between the members of an instance ------------------------------------------------------------------------


@pytest.mark.parametrize("one", WIRE["frames"])
def test_a_frame_between_members_says_the_same_in_the_same_bytes(one: Any) -> None:
    frame = bytes.fromhex(one["bytes"])
    (body,) = iter(_cut(frame))
    said, again = READ_FRAME[one["kind"]](body)
    assert neutral(said) == one["says"]
    assert again == frame


def _cut(stream: bytes) -> list[bytes]:
    buffer = frames.FrameBuffer(frames.MAX_FRAME_BYTES)
    buffer.feed(stream)
    bodies = []
    while (body := buffer.next_untrusted()) is not None:
        bodies.append(body)
    return bodies


def _message(body: bytes) -> tuple[Any, bytes]:
    message = frames.decode_message_untrusted(body)
    return message, frames.encode_message(message)


def _greeting(body: bytes) -> tuple[Any, bytes]:
    data = frames.decode_greeting_untrusted(body).to_data()
    return data, frames.encode_frame(data)


def _verdict(body: bytes) -> tuple[Any, bytes]:
    data = frames.decode_verdict_untrusted(body).to_data()
    return data, frames.encode_frame(data)


def _hint(body: bytes) -> tuple[Any, bytes]:
    configuration = frames.decode_hint_untrusted(body)
    return None if configuration is None else configuration.to_data(), frames.encode_hint(configuration)


READ_FRAME: Final = {"message": _message, "greeting": _greeting, "verdict": _verdict, "hint": _hint}


# --- what actors on different nodes say to each other -----------------------------------------------------------------

NODES: Final = WIRE["nodes"]


def test_a_message_between_nodes_has_the_same_frames_in_the_same_bytes() -> None:
    to, read = remote_frames.read_message_untrusted(bytes.fromhex(NODES["message"]))
    assert to == NODES["to"]
    assert [neutral(list(frame)) for frame in read] == [said[1:] for said in NODES["frames"]]
    written = [remote_frames.write_frame(frame) for frame in read]
    assert remote_frames.write_message(to, written).hex() == NODES["message"]
    assert [cbor2.loads(frame)[0] for frame in written] == [kind for kind, *_ in NODES["frames"]]
    newer = set(get_args(remote_frames.Frame)) - {type(frame) for frame in read}
    assert {kind.__name__ for kind in newer} <= NEWER


@pytest.mark.parametrize("one", NODES["payloads"])
def test_what_actors_say_to_each_other_is_the_same_in_the_same_bytes(one: Any) -> None:
    codec = Codec()
    value = codec.decode_untrusted(bytes.fromhex(one["bytes"]))
    match value:
        case Exception():
            # It does not travel on as what it was.
            assert str(value) == one["says"]
            return
        case tuple() if hasattr(value, "_fields"):
            assert list(value) == one["says"]
        case _:
            assert repr(value) == one["says"]
    assert codec.encode(value).hex() == one["bytes"]
