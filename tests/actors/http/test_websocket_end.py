"""The server's end of a WebSocket: whatever bytes come, whole messages within bounds, or an end with a code."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import LocalProtocolError

from batonpass.actors.http.websocket_end import Came, WebSocketEnd

BYTES, FRAMES = 100, 4


def end() -> WebSocketEnd:
    return WebSocketEnd(BYTES, FRAMES)


def masked(first: int, payload: bytes, *, length: int | None = None) -> bytes:
    """A frame as a client sends it, written by hand; `length` may lie."""
    said = len(payload) if length is None else length
    head = bytes([first])
    if said < 126:
        head += bytes([0x80 | said])
    elif said < 65536:
        head += bytes([0x80 | 126]) + said.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + said.to_bytes(8, "big")
    return head + bytes(4) + payload


TEXT, BINARY, MORE, FINAL = 0x1, 0x2, 0x0, 0x80
CLOSE, PING, PONG = 0x88, 0x89, 0x8A


def heard(sent: bytes) -> list[object]:
    """What a client makes of what this end sends."""
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(sent)
    return list(client.events())


messages = st.lists(st.text(max_size=20) | st.binary(max_size=20), max_size=6)


@given(sent=messages, cuts=st.lists(st.integers(0, 400)), seed=st.integers(0, 9))
def test_messages_come_out_whole_however_they_were_cut(sent: list[str | bytes], cuts: list[int], seed: int) -> None:
    client, dice, wire = Connection(ConnectionType.CLIENT), random.Random(seed), b""
    for message in sent:
        at = dice.randint(0, len(message))
        for part, is_last in ((message[:at], False), (message[at:], True)):
            if isinstance(part, str):
                wire += client.send(TextMessage(data=part, message_finished=is_last))
            else:
                wire += client.send(BytesMessage(data=part, message_finished=is_last))
            wire += client.send(Ping(payload=b"between"))
    here, came = end(), list[str | bytes]()
    places = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    for start, stop in itertools.pairwise(places):
        found = here.take_untrusted(wire[start:stop])
        assert found.close is None
        came += found.messages
    assert came == sent


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (masked(FINAL | TEXT, b"x" * (BYTES + 1)), 1009),
        (masked(BINARY, b"x" * 60) + masked(FINAL | MORE, b"x" * 60), 1009),
        (masked(FINAL | BINARY, b"x" * (BYTES + 1), length=2**40), 1009),
        (masked(TEXT, b"") + masked(MORE, b"") * FRAMES, 1009),
        (masked(FINAL | TEXT, "é".encode() * 51), 1009),
        (b"\x81\x01x", 1002),  # not masked
        (masked(0x40 | FINAL | TEXT, b"x"), 1002),  # said to be compressed
        (masked(FINAL | 0x3, b"x"), 1002),
        (masked(0x09, b"x"), 1002),  # a ping in pieces
        (masked(PING, b"x" * 126), 1002),
        (masked(FINAL | MORE, b"x"), 1002),
        (masked(TEXT, b"x") + masked(FINAL | TEXT, b"x"), 1002),
        (masked(FINAL | TEXT, b"\xff"), 1007),
        (masked(CLOSE, b"x"), 1002),
        (masked(CLOSE, (1005).to_bytes(2, "big")), 1002),
        (masked(CLOSE, (1000).to_bytes(2, "big") + b"\xff"), 1007),
        (masked(FINAL | BINARY, b"", length=2**63), 1002),
    ],
)
def test_what_breaks_the_protocol_or_a_bound_ends_with_its_code(sent: bytes, code: int) -> None:
    here = end()
    came = here.take_untrusted(sent)
    assert came.is_fault
    assert came.close is not None
    assert came.close[0] == code
    (said,) = heard(came.answer)
    assert isinstance(said, CloseConnection)
    assert said.code == code
    assert here.take_untrusted(masked(FINAL | TEXT, b"more")).messages == []


@pytest.mark.parametrize("began", [b"", masked(TEXT, b"y" * 40)], ids=["first", "continued"])
@pytest.mark.parametrize("size", [BYTES + 1, 2**40])
def test_a_message_that_announces_more_than_the_bound_is_refused_by_its_header_alone(began: bytes, size: int) -> None:
    kind = FINAL | (MORE if began else TEXT)
    here = end()
    came = here.take_untrusted(began + masked(kind, b"", length=size))
    assert came.close == (1009, f"a message has at most {BYTES} bytes in {FRAMES} frames")
    assert came.is_fault


def test_a_ping_in_the_middle_of_a_message_counts_for_none_of_its_bytes() -> None:
    here = end()
    assert here.take_untrusted(masked(BINARY, b"x" * (BYTES - 1))).close is None
    ping = masked(PING, b"p" * 100)
    assert here.take_untrusted(ping[:50]).close is None
    assert here.take_untrusted(ping[50:] + masked(FINAL | MORE, b"x")).messages == [b"x" * BYTES]


@pytest.mark.parametrize(
    "sent", [masked(FINAL | TEXT, b"\xff"), masked(CLOSE, (1000).to_bytes(2, "big") + b"\xff")], ids=["text", "close"]
)
def test_the_reason_for_bytes_that_are_no_utf_8_is_a_sentence_of_this_server(sent: bytes) -> None:
    assert end().take_untrusted(sent).close == (1007, "a text is not UTF-8")


def test_the_longest_message_in_the_most_frames_is_taken_and_the_next_one_too() -> None:
    here = end()
    parts = masked(BINARY, b"x" * 25) + masked(MORE, b"x" * 25) * 2 + masked(FINAL | MORE, b"x" * 25)
    assert here.take_untrusted(parts * 2).messages == [b"x" * BYTES] * 2


def test_of_many_pings_only_the_last_is_answered() -> None:
    pings = b"".join(masked(PING, b"%d" % number) for number in range(500))
    assert heard(end().take_untrusted(pings).answer) == [Pong(payload=b"499")]


def test_a_close_is_answered_with_its_code_and_nothing_is_read_after_it() -> None:
    here = end()
    came = here.take_untrusted(masked(CLOSE, (4000).to_bytes(2, "big") + b"bye") + masked(FINAL | TEXT, b"late"))
    assert (came.messages, came.close, came.is_fault) == ([], (4000, "bye"), False)
    assert heard(came.answer) == [CloseConnection(code=4000, reason="bye")]
    assert here.take_untrusted(masked(FINAL | TEXT, b"later")) == Came()


def test_while_this_end_waits_for_the_answer_to_its_close_messages_are_thrown_away() -> None:
    here = end()
    assert heard(here.close(1001, "é" * 200)) == [CloseConnection(code=1001, reason="é" * 61)]
    assert here.take_untrusted(masked(FINAL | TEXT, b"x")) == Came()
    assert here.take_untrusted(masked(CLOSE, (1001).to_bytes(2, "big"))).close == (1001, "")
    assert here.close(1000) == b""


@given(sent=st.lists(st.binary(max_size=40)))
def test_no_bytes_do_more_than_end_it(sent: list[bytes]) -> None:
    here = end()
    for data in sent:
        came = here.take_untrusted(data)
        assert all(len(message) <= BYTES for message in came.messages)
        if came.close is not None:
            break


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 70_000])
def test_a_message_of_any_length_is_one_frame_that_others_read(size: int) -> None:
    text, data = "x" * size, b"\xff" * size
    texts = [event for event in heard(end().message(text)) if isinstance(event, TextMessage)]
    assert ("".join(event.data for event in texts), texts[-1].message_finished) == (text, True)
    pieces = [event for event in heard(end().message(data)) if isinstance(event, BytesMessage)]
    assert (b"".join(event.data for event in pieces), pieces[-1].message_finished) == (data, True)
    assert heard(end().message("ö\u2028")) == [TextMessage(data="ö\u2028")]


def test_nothing_is_sent_after_a_close() -> None:
    closed = end()
    closed.close(1000)
    with pytest.raises(LocalProtocolError):
        closed.message("too late")
