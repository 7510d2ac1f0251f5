"""The bytes of a datagram: what is written is read back, and nothing else is accepted."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link.frames import (
    CLOSE,
    HEADER_BYTES,
    MAX_ACK_BYTES,
    MAX_ACK_RANGES,
    MIN_PIECE_BYTES,
    PING,
    Ack,
    Close,
    DatagramHeader,
    DatagramKind,
    Frame,
    LargeGrant,
    LargeWant,
    Message,
    PathChallenge,
    PathResponse,
    Piece,
    Ping,
    message_head,
    piece_head,
    read_frames_untrusted,
    read_header_untrusted,
    write_ack,
    write_challenge,
    write_grant,
    write_header,
    write_response,
    write_want,
)
from batonpass.actors.link.settings import LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from batonpass.crypto.errors import Malformed

U64 = st.integers(0, 2**64 - 1)


@st.composite
def ack_ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Descending runs that do not touch."""
    ranges = []
    last = draw(st.integers(2**40, 2**63))
    for _ in range(draw(st.integers(1, MAX_ACK_RANGES))):
        first = last - draw(st.integers(0, 2**20))
        ranges.append((first, last))
        last = first - draw(st.integers(2, 2**20))
    return ranges


def write(frame: Frame) -> bytes:
    match frame:
        case Message():
            return message_head(frame.channel, frame.number, len(frame.data)) + frame.data
        case Piece():
            return (
                piece_head(frame.channel, frame.number, frame.total_bytes, frame.piece_bytes, frame.part) + frame.data
            )
        case Ack():
            return write_ack(frame.ranges, frame.delay_s, frame.credit_bytes, frame.credit_messages)
        case Ping() | Close():
            return PING if isinstance(frame, Ping) else CLOSE
        case PathChallenge() | PathResponse():
            return (write_challenge if isinstance(frame, PathChallenge) else write_response)(frame.token)
        case LargeWant():
            return write_want(*frame)
        case LargeGrant():
            return write_grant(*frame)


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    piece_bytes = draw(st.integers(MIN_PIECE_BYTES, 2000))
    total = draw(st.integers(1, 5000))
    part = draw(st.integers(0, -(-total // piece_bytes) - 1))
    data = draw(st.binary(min_size=1, max_size=1)) * min(piece_bytes, total - part * piece_bytes)
    return Piece(draw(st.integers(0, 15)), draw(U64), total, piece_bytes, part, data)


FRAMES = st.one_of(
    st.builds(Message, st.integers(0, 15), U64, st.binary(max_size=50)),
    pieces(),
    st.builds(Ack, ack_ranges(), st.integers(0, 10**6).map(lambda us: us / 1e6), U64, U64),
    st.just(Ping()),
    st.just(Close()),
    st.builds(PathChallenge, U64),
    st.builds(PathResponse, U64),
    st.builds(LargeWant, st.integers(0, 2**32 - 1), st.integers(LARGE_MESSAGE_BYTES + 1, MAX_MESSAGE_BYTES)),
    st.builds(LargeGrant, st.integers(0, 2**32 - 1)),
)


def one_ack(frames: list[Frame]) -> bool:
    """At most, as in every datagram."""
    return sum(isinstance(frame, Ack) for frame in frames) <= 1


@given(st.lists(FRAMES, max_size=6).filter(one_ack))
def test_frames_are_read_as_they_were_written(frames: list[Frame]) -> None:
    read = read_frames_untrusted(b"".join(write(frame) for frame in frames))
    assert [frame if not isinstance(frame, Ack) else frame[0] for frame in read] == [
        frame if not isinstance(frame, Ack) else frame[0] for frame in frames
    ]
    for got, expected in zip(read, frames, strict=True):
        if isinstance(expected, Ack) and isinstance(got, Ack):
            assert got.delay_s == pytest.approx(expected.delay_s, abs=1.1e-6)
            assert got[2:] == expected[2:]


@given(st.lists(FRAMES, min_size=1, max_size=3).filter(one_ack), st.data())
def test_a_cut_off_body_is_malformed_or_ends_between_frames(frames: list[Frame], data: st.DataObject) -> None:
    encoded = [write(frame) for frame in frames]
    body = b"".join(encoded)
    cut = data.draw(st.integers(0, len(body) - 1))
    ends = {sum(map(len, encoded[:count])) for count in range(len(encoded) + 1)}
    if cut in ends:
        read_frames_untrusted(body[:cut])
    else:
        with pytest.raises(Malformed):
            read_frames_untrusted(body[:cut])


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x01", b"\x02", b"\x03", b"\x04"]))
def test_noise_is_read_or_malformed_and_nothing_else(noise: bytes, kind: bytes) -> None:
    with contextlib.suppress(Malformed):
        read_frames_untrusted(kind + noise)


@pytest.mark.parametrize(
    "body",
    [
        b"\x00",
        b"\x06",
        b"\x07" + bytes(7),
        b"\x0f",
        write_want(1, LARGE_MESSAGE_BYTES),
        write_want(1, MAX_MESSAGE_BYTES + 1),
        message_head(32, 0, 0),
        message_head(0, 0, 1),
        piece_head(32, 0, 1, MIN_PIECE_BYTES, 0) + b"x",
        piece_head(0, 0, 10_000, MIN_PIECE_BYTES - 1, 0) + bytes(MIN_PIECE_BYTES - 1),
        piece_head(0, 0, 2000, MIN_PIECE_BYTES, 2) + bytes(MIN_PIECE_BYTES),
        piece_head(0, 0, MAX_MESSAGE_BYTES + 1, MIN_PIECE_BYTES, 0) + bytes(MIN_PIECE_BYTES),
        piece_head(0, 0, 2000, MIN_PIECE_BYTES, 0) + bytes(MIN_PIECE_BYTES - 1),
        write_ack([(5, 5)], 0, 0, 0)[:-9] + b"\x00",  # no range
        write_ack([(5, 5)], 0, 0, 0)[:-9] + b"\xff" + bytes(8 * 255),  # too many
        write_ack([(5, 5), (3, 3)], 0, 0, 0)[:-8] + bytes(8),  # a gap of nothing
        write_ack([(5, 5)], 0, 0, 0)[:-8] + b"\1" + bytes(7),  # a gap above the largest
        write_ack([(5, 5), (3, 3)], 0, 0, 0)[:-16] + b"\1" + bytes(7) + b"\1" + bytes(7),
        write_ack([(0, 5)], 0, 0, 0)[:-4] + b"\x06\x00\x00\x00",  # below zero
    ],
)
def test_a_peer_that_writes_nonsense_is_caught(body: bytes) -> None:
    with pytest.raises(Malformed):
        read_frames_untrusted(body)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=200, unique=True))
def test_an_acknowledgement_has_a_bounded_size_and_names_nothing_that_did_not_arrive(counters: list[int]) -> None:
    ranges = [(counter, counter) for counter in sorted({3 * counter for counter in counters}, reverse=True)]
    encoded = write_ack(ranges, 0.0, 0, 0)
    assert len(encoded) <= MAX_ACK_BYTES
    (ack,) = read_frames_untrusted(encoded)
    assert isinstance(ack, Ack)
    assert ack.ranges == ranges[:MAX_ACK_RANGES]


def test_runs_that_are_too_long_or_too_far_apart_are_shortened_and_left_out() -> None:
    (ack,) = read_frames_untrusted(write_ack([(0, 2**40)], 1e9, 1, 2))
    assert ack == Ack([(2**40 - 0xFFFF_FFFF, 2**40)], 0xFFFF_FFFF / 1e6, 1, 2)
    (ack,) = read_frames_untrusted(write_ack([(2**40, 2**40), (0, 0)], 0, 1, 2))
    assert ack == Ack([(2**40, 2**40)], 0, 1, 2)


@given(st.sampled_from(DatagramKind), st.integers(0, 2**32 - 1), U64)
def test_a_header_is_read_as_it_was_written(kind: DatagramKind, session_id: int, counter: int) -> None:
    assert read_header_untrusted(write_header(kind, session_id, counter) + b"x") == DatagramHeader(
        kind, session_id, counter
    )


@pytest.mark.parametrize("datagram", [b"", bytes(HEADER_BYTES - 1), bytes(HEADER_BYTES), b"\x04\x01" + bytes(14)])
def test_another_header_is_malformed(datagram: bytes) -> None:
    with pytest.raises(Malformed):
        read_header_untrusted(datagram)


def test_the_bytes_are_those_of_the_protocol_document() -> None:
    """Pinned: a peer of another version must be able to rely on docs/reference/protocol-link.md."""
    assert write_header(DatagramKind.DATA, 0x01020304, 0x1112131415161718).hex() == "04000000040302011817161514131211"
    assert (message_head(3, 7, 2) + b"hi").hex() == "0203070000000000000002006869"
    assert piece_head(3, 7, 5000, 1000, 4).hex() == "0303070000000000000088130000e8030400"
    ack = write_ack([(8, 10), (3, 5)], 0.001, 65_536, 32)
    assert ack.hex() == ("010a00000000000000e8030000000001000000000020000000000000000200000000020000000200000002000000")
    assert (PING + CLOSE).hex() == "0405"
