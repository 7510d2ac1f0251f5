"""Datagrams, pieces, deltas and seals."""

from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.followers.assembly import FrameAssembly
from batonpass.simserver.sync.followers.datagrams import (
    MAX_RANGES,
    BeginPart,
    ShowDatagramKind,
    begin_of_untrusted,
    names_of_untrusted,
    pack_begin,
    pack_datagram,
    pack_head,
    pack_names,
    pack_ranges,
    ranges_of_untrusted,
    read_datagram_untrusted,
    signed_head_of_untrusted,
)
from batonpass.simserver.sync.followers.delta import apply_delta_untrusted, delta_of
from batonpass.simserver.sync.followers.frames import FrameHead, HeadFlag, PayloadKind, head_of_untrusted
from batonpass.simserver.sync.followers.sealing import Ed25519Signing, GroupSeal
from batonpass.simserver.sync.followers.structs import FrameData, state_digest
from batonpass.simserver.sync.followers.window import SentFrame, SentWindow
from tests.budget import examples

numbers = st.integers(0, 2**64 - 1)


def head_of(payload: bytes, frame: int = 7, piece_bytes: int = 64, epoch: int = 2) -> FrameHead:
    """Return the head of a full state."""
    digest = state_digest(payload)
    return FrameHead(
        epoch, frame, frame - 1, PayloadKind.STATE, 0, len(payload), piece_bytes, digest, digest, 3, FrameData(1.0)
    )


@given(
    kind=st.sampled_from(ShowDatagramKind),
    epoch=numbers,
    frame=numbers,
    body=st.binary(max_size=80),
    to_all=st.booleans(),
)
def test_a_datagram_is_read_as_it_was_written(
    kind: ShowDatagramKind, epoch: int, frame: int, body: bytes, to_all: bool
) -> None:
    """Prefix and body."""
    read = read_datagram_untrusted(pack_datagram(kind, epoch, frame, body, to_all=to_all))
    assert read is not None
    assert (read.kind, read.epoch, read.frame, bytes(read.body), read.to_all) == (kind, epoch, frame, body, to_all)


def test_the_prefix_has_the_bytes_that_the_protocol_says() -> None:
    """Others may write their own reader."""
    packed = pack_datagram(ShowDatagramKind.GONE, 3, 258)
    assert packed.hex() == "0107" + "0300000000000000" + "0201000000000000"


@given(st.integers(1, 2**40), st.sampled_from(PayloadKind), st.sampled_from([HeadFlag.NO_FLAGS, HeadFlag.RESENT]))
def test_a_head_is_read_as_it_was_written(frame: int, kind: PayloadKind, flags: HeadFlag) -> None:
    """With its signature and the first piece."""
    head = FrameHead(1, frame, 0, kind, 5, 10, 64, b"d" * 16, b"p" * 16, 9, FrameData(2.0), flags)
    assert head_of_untrusted(head.pack()) == head
    read = read_datagram_untrusted(pack_head(head, b"s" * 64, b"piece"))
    assert read is not None
    signed = signed_head_of_untrusted(read.body)
    assert signed is not None
    assert (signed[0], signed[1], bytes(signed[2])) == (head, b"s" * 64, b"piece")


def test_a_begin_is_read_as_it_was_written() -> None:
    """And is for all."""
    begin = BeginPart(4, 2, 3, HeadFlag.RESET, FrameData(5.0))
    read = read_datagram_untrusted(pack_begin(1, 5, begin))
    assert read is not None
    assert read.to_all
    assert begin_of_untrusted(read.body) == begin


@given(st.lists(st.text("abcé", min_size=1, max_size=20), max_size=10))
def test_names_are_read_as_they_were_written(names: list[str]) -> None:
    """In order."""
    assert names_of_untrusted(memoryview(pack_names(names))) == names


def test_more_ranges_than_the_bound_are_refused() -> None:
    """And those that are none."""
    assert ranges_of_untrusted(memoryview(bytes(8))) is None
    one = pack_ranges([(0, 1)])
    assert ranges_of_untrusted(memoryview(one * MAX_RANGES)) == [(0, 1)] * MAX_RANGES
    assert ranges_of_untrusted(memoryview(one * (MAX_RANGES + 1))) is None


@settings(max_examples=examples(40))
@given(payload=st.binary(max_size=1_000), seed=st.integers(0, 999))
def test_pieces_in_any_order_and_twice_give_the_payload(payload: bytes, seed: int) -> None:
    """Also those that come before the head."""
    head, rng = head_of(payload), Random(seed)
    assembly = FrameAssembly(4, 10_000)
    of = assembly.open(7, 0)
    assert of is not None
    indices = [*range(head.pieces)] * 2
    rng.shuffle(indices)
    head_at = rng.randrange(len(indices))
    for place, index in enumerate(indices):
        if place == head_at:
            assert assembly.take_head(of, head, b"")
            lacking = {number for first, end in of.missing() for number in range(first, end)}
            assert lacking == set(range(head.pieces)) - set(indices[:place])
        assembly.take_piece(of, index, memoryview(payload)[index * 64 : index * 64 + 64])
    assert of.payload == payload
    assembly.close(7)
    assert assembly.bytes_held == 0


def test_an_assembly_keeps_to_its_bounds() -> None:
    """Frames and bytes."""
    assembly = FrameAssembly(2, 1_000)
    first, second = assembly.open(1, 0), assembly.open(2, 0)
    assert first is not None
    assert second is not None
    assert assembly.open(3, 0) is None
    assert assembly.take_head(first, head_of(bytes(600)), b"")
    assert not assembly.take_head(second, head_of(bytes(600)), b"")
    for index in range(1_000):
        assembly.take_piece(second, index, memoryview(bytes(64)))
    assert assembly.bytes_held <= 1_000


def test_a_window_keeps_to_its_bytes_and_its_time() -> None:
    """And the newest frame in any case."""
    window = SentWindow(1_000, 1.0)
    for number in range(1, 10):
        window.add(SentFrame(head_of(bytes(300), number), b"", bytes(300), number))
    assert len(window) == 3
    window.expire(5_000_000_000)
    assert len(window) == 1
    assert window.get(9) is not None


@given(base=st.binary(max_size=2_000), state=st.binary(max_size=2_000))
def test_a_delta_gives_the_state_again(base: bytes, state: bytes) -> None:
    """Of any two states."""
    assert apply_delta_untrusted(base, delta_of(base, state), 2_000) == state
    longer = base + state
    assert apply_delta_untrusted(base, delta_of(base, longer), 4_000) == longer


@given(st.binary(max_size=100))
def test_any_bytes_as_a_delta_give_a_bounded_state_or_none(delta: bytes) -> None:
    """Nothing is raised."""
    state = apply_delta_untrusted(b"base", delta, 1_000)
    assert state is None or len(state) <= 1_000


def test_a_sealed_datagram_opens_with_the_key_of_its_epoch_only() -> None:
    """And not if a bit of it is another."""
    sealed = GroupSeal(b"k" * 32, 3, 1).seal(b"datagram")
    assert GroupSeal(b"k" * 32, 3, 2).open_untrusted(sealed) == (1, b"datagram")
    assert GroupSeal(b"k" * 32, 4, 2).open_untrusted(sealed) is None
    assert GroupSeal(b"x" * 32, 3, 2).open_untrusted(sealed) is None
    for at in range(len(sealed)):
        broken = bytearray(sealed)
        broken[at] ^= 1
        assert GroupSeal(b"k" * 32, 3, 2).open_untrusted(bytes(broken)) is None


def test_no_two_datagrams_of_a_sender_have_one_nonce() -> None:
    """The counter rises."""
    seal = GroupSeal(b"k" * 32, 3, 1)
    assert len({seal.seal(b"same")[:21] for _ in range(100)}) == 100


def test_a_signature_holds_for_its_key_and_message_only() -> None:
    """Ed25519."""
    private = Ed25519PrivateKey.from_private_bytes(b"p" * 32)
    public = private.public_key().public_bytes_raw()
    signing = Ed25519Signing(private)
    signature = signing.sign(b"head")
    assert signing.verifies(public, b"head", signature)
    assert not signing.verifies(public, b"hexd", signature)
    assert not signing.verifies(b"q" * 32, b"head", signature)
    assert not signing.verifies(b"short", b"head", signature)
