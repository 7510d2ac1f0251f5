"""The bytes between members: whatever arrives is a message of exactly one shape, or the connection ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree.data.data import encode
from batonpass.tree.net.frames import (
    FrameBuffer,
    Greeting,
    GreetingVerdict,
    MalformedFrame,
    decode_greeting_untrusted,
    decode_hint_untrusted,
    decode_message_untrusted,
    decode_verdict_untrusted,
    encode_frame,
    encode_hint,
    encode_message,
)
from batonpass.tree.net.membership import Configuration, Member
from tests.tree.strategies import plain_data

APPEND = {"type": "append_entries", "term": 3, "commit_index": 4, "prevLogIdx": 5, "prevLogTerm": 2}

MESSAGES: list[dict[str, Any]] = [
    {"type": "request_vote", "term": 1, "last_log_index": 2, "last_log_term": 1, "transfer": False},
    {"type": "pre_vote", "term": 1, "last_log_index": 2, "last_log_term": 1},
    {"type": "pre_vote_answer", "term": 1, "granted": True, "current": 0},
    {"type": "timeout_now", "term": 1},
    {"type": "member_request", "round": 1, "request": ["dismiss", "h2"]},
    {"type": "member_answer", "round": 1, "code": "no_majority", "sentence": "why"},
    {"type": "response_vote", "term": 1},
    {**APPEND, "entries": []},
    {**APPEND, "entries": [(b"\x00a", 6, 2), (b"\x00b", 7, 3)]},
    {"type": "append_entries", "term": 3, "commit_index": 4, "serialized": [b"piece", True, False]},
    {"type": "append_entries", "term": 3, "commit_index": 4, "serialized": None},
    {"type": "next_node_idx", "term": 1, "next_node_idx": 2, "reset": True, "success": False},
    {"type": "apply_command", "command": b"\x00a"},
    {"type": "read_index", "round": 1},
    {"type": "read_index_answer", "round": 1, "index": 2},
    {"type": "confirm", "term": 1, "round": 2},
    {"type": "confirmed", "term": 1, "round": 2},
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message["type"]))
def test_every_message_is_read_back(message: dict[str, Any]) -> None:
    assert decode_message_untrusted(encode_message(message)[4:]) == message


@given(st.sampled_from(MESSAGES), st.data())
def test_a_message_with_a_field_missing_added_or_of_another_kind_is_refused(message: dict[str, Any], data: Any) -> None:
    field = data.draw(st.sampled_from(sorted(message)))
    without = {name: value for name, value in message.items() if name != field}
    changes: list[dict[str, Any]] = [without, {**message, "surprise": 1}, {**message, field: {"x": 1}}]
    for changed in changes:
        with pytest.raises(MalformedFrame):
            decode_message_untrusted(encode(changed))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_malformed(body: bytes) -> None:
    try:
        decode_message_untrusted(body)
    except MalformedFrame:
        return


@given(plain_data)
def test_any_data_is_a_greeting_or_a_verdict_or_malformed(data: Any) -> None:
    for decode in (decode_greeting_untrusted, decode_verdict_untrusted):
        try:
            decode(encode(data))
        except MalformedFrame:
            continue


@pytest.mark.parametrize(
    "entries",
    [
        [[b"\x00a", 7, 2]],
        [[b"\x00a", 6, 2], [b"\x00b", 8, 2]],
        [[b"\x00a", 6, 1]],
        [[b"\x00a", 6, 4]],
        [[b"", 6, 2]],
        [[b"\x00a", 6]],
        ["entry"],
    ],
    ids=["gap before", "gap between", "term falls", "term of the future", "empty command", "no term", "not an entry"],
)
def test_entries_must_follow_each_other(entries: list[Any]) -> None:
    with pytest.raises(MalformedFrame, match="follow"):
        decode_message_untrusted(encode({**APPEND, "entries": entries}))


def test_greetings_and_verdicts_are_read_back() -> None:
    greeting = Greeting("homeserver", "alpha", "h1", 1, probe=True, since=7, joining=True, machine="3-0123abcd")
    assert decode_greeting_untrusted(encode(greeting.to_data())) == greeting
    for verdict in (GreetingVerdict(), GreetingVerdict("wrong_kind", "because")):
        assert decode_verdict_untrusted(encode(verdict.to_data())) == verdict


def test_a_greeting_of_a_later_version_with_more_fields_is_understood_well_enough_to_be_refused() -> None:
    assert decode_greeting_untrusted(encode(["hello", 2, "homeserver", "alpha", "h1", False, "more"])).protocol == 2


@given(st.lists(st.binary(max_size=20), max_size=6), st.data())
def test_frames_are_found_however_the_stream_is_cut(bodies: list[bytes], data: Any) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    buffer, found = FrameBuffer(100), list[bytes]()
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        buffer.feed(stream[:cut])
        stream = stream[cut:]
        while (body := buffer.next_untrusted()) is not None:
            found.append(body)
    assert found == bodies
    assert buffer.take_rest() == b""


def test_an_oversized_frame_is_refused_before_it_is_there() -> None:
    buffer = FrameBuffer(10)
    buffer.feed((11).to_bytes(4, "big"))
    with pytest.raises(MalformedFrame, match="11"):
        buffer.next_untrusted()


def test_what_follows_the_last_frame_is_handed_on() -> None:
    buffer = FrameBuffer(10)
    buffer.feed(encode_frame(1) + b"\x16\x03\x01 TLS")
    assert buffer.next_untrusted() == encode(1)
    assert buffer.take_rest() == b"\x16\x03\x01 TLS"


def test_what_is_to_be_known_of_the_members_comes_back() -> None:
    known = Configuration.initial([Member("h1", "127.0.0.1", 1), Member("h2", "127.0.0.1", 2)])
    assert decode_hint_untrusted(encode_hint(known)[4:]) == known
    assert decode_hint_untrusted(encode_hint(None)[4:]) is None


@pytest.mark.parametrize("hint", [None, [], ["members"], ["members", 7], ["members", [1, [["h1"]]]], ["other", None]])
def test_what_says_nothing_of_the_members_is_malformed(hint: Any) -> None:
    with pytest.raises(MalformedFrame):
        decode_hint_untrusted(encode(hint))
