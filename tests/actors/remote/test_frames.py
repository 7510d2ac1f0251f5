"""Frames of remote actors as bytes: read as they were written, or refused with one error."""

from __future__ import annotations

import contextlib
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.remote.errors import Undecodable
from batonpass.actors.remote.frames import (
    MAX_MESSAGE_BYTES,
    AnswerFrame,
    CallFrame,
    CancelFrame,
    Cast,
    CloseFrame,
    Demonitor,
    EndedFrame,
    Fail,
    Frame,
    KillFrame,
    LinkBroke,
    LinkIt,
    MonitorIt,
    Open,
    ReplyFrame,
    RequestFault,
    Send,
    Signal,
    StopIt,
    Unlink,
    Whereis,
    read_message_untrusted,
    write_frame,
    write_message,
)
from batonpass.actors.remote.settings import MAX_PAYLOAD_BYTES
from tests.budget import examples

NUMBERS = st.integers(0, 2**64 - 1)
PAYLOADS = st.binary(max_size=20)
TARGETS = st.one_of(st.tuples(NUMBERS, NUMBERS), st.text(min_size=1, max_size=20))
FLAGS = st.integers(0, 1)
FAULTS = st.sampled_from(RequestFault)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Open, NUMBERS, NUMBERS, NUMBERS),
    st.builds(CloseFrame, NUMBERS),
    st.builds(CallFrame, TARGETS, NUMBERS, PAYLOADS),
    st.builds(CancelFrame, NUMBERS),
    st.builds(ReplyFrame, NUMBERS, PAYLOADS),
    st.builds(Fail, NUMBERS, FAULTS, PAYLOADS),
    st.builds(Cast, TARGETS, PAYLOADS),
    st.builds(Send, TARGETS, PAYLOADS),
    st.builds(MonitorIt, TARGETS, NUMBERS),
    st.builds(Demonitor, NUMBERS),
    st.builds(EndedFrame, NUMBERS, PAYLOADS),
    st.builds(Signal, TARGETS, PAYLOADS),
    st.builds(KillFrame, TARGETS),
    st.builds(StopIt, TARGETS, NUMBERS, PAYLOADS),
    st.builds(Whereis, st.text(min_size=1, max_size=9), NUMBERS),
    st.builds(AnswerFrame, NUMBERS, NUMBERS, st.integers(-1, 2), PAYLOADS),
    st.builds(LinkIt, TARGETS, NUMBERS, PAYLOADS),
    st.builds(Unlink, NUMBERS, FLAGS),
    st.builds(LinkBroke, NUMBERS, FLAGS, PAYLOADS),
)


@given(NUMBERS, st.lists(FRAMES, max_size=30))
def test_frames_are_read_as_they_were_written(to: int, frames: list[Frame]) -> None:
    read = read_message_untrusted(write_message(to, [write_frame(frame) for frame in frames]))
    assert read == (to, frames)
    assert [type(frame) for frame in read[1]] == [type(frame) for frame in frames]


def test_however_many_frames_there_are() -> None:
    for count in (22, 23, 24, 70_000):
        assert len(read_message_untrusted(write_message(1, [write_frame(CancelFrame(1))] * count))[1]) == count


@given(st.binary(max_size=100) | st.recursive(
    st.none() | st.integers(-2, 20) | st.text(max_size=3) | st.binary(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=5),
).map(cbor2.dumps))  # fmt: skip
@settings(max_examples=examples(300))
def test_hostile_messages_are_read_or_refused_with_one_error(noise: bytes) -> None:
    with contextlib.suppress(Undecodable):
        read_message_untrusted(noise)


@pytest.mark.parametrize(
    "message",
    [
        [1, [99]],
        [1, [-1]],
        [1, []],
        [1, 5],
        [1, [True]],
        [],
        [-1],
        [2**64],
        {},
        [1, [3, -5]],
        [1, [3, 2**64]],
        [1, [3, 1, 1]],
        [1, [6, "", b""]],
        [1, [6, "x" * 256, b""]],
        [1, [6, [1], b""]],
        [1, [6, [1, -1], b""]],
        [1, [6, "a", "text"]],
        [1, [6, "a", bytes(MAX_PAYLOAD_BYTES + 1)]],
        [1, [5, 1, 3, b""]],
        [1, [15, 1, 1, 3, b""]],
        [1, [17, 1, 2]],
        [1, [17, 1, True]],
        [1, [3, cbor2.CBORTag(2, b"\x01")]],
        [1, [3, cbor2.CBORTag(99, 1)]],
        [1, [[[[[]]]]]],
    ],
)
def test_what_is_no_message_is_refused(message: Any) -> None:
    with pytest.raises(Undecodable):
        read_message_untrusted(cbor2.dumps(message))


def test_what_is_too_long_or_has_something_behind_it_is_refused() -> None:
    with pytest.raises(Undecodable, match="at most"):
        read_message_untrusted(bytes(MAX_MESSAGE_BYTES + 1))
    with pytest.raises(Undecodable):
        read_message_untrusted(write_message(1, []) + b"\x00")
