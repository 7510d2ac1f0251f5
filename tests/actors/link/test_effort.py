"""What one datagram of a peer with good keys can cost: it is bounded by what an honest sender needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link.frames import (
    CLOSE,
    MAX_CONTENT_FRAMES,
    MAX_CONTROL_FRAMES,
    MAX_FRAMES,
    MIN_PIECE_BYTES,
    PING,
    Ack,
    Message,
    Piece,
    message_head,
    piece_head,
    read_frames_untrusted,
    write_ack,
    write_challenge,
    write_grant,
    write_response,
)
from batonpass.actors.link.incoming import IncomingMessages, NoRoom
from batonpass.actors.link.settings import (
    INITIAL_CREDIT_BYTES,
    INITIAL_CREDIT_MESSAGES,
    LARGE_MESSAGE_BYTES,
    LinkSettings,
)
from batonpass.crypto.errors import Malformed
from tests.actors.link.network import Network, Transit

ROOM_BYTES = 61_400

CONTROLS = {
    "ping": PING,
    "close": CLOSE,
    "challenge": write_challenge(7),
    "response": write_response(7),
    "grant": write_grant(1),
}


def _opened(settings: LinkSettings, seed: int = 0) -> Network:
    network = Network(seed=seed, settings=settings)
    network.send(network.alpha, b"first")
    network.run(lambda: network.is_quiet and bool(network.beta.received))
    return network


@pytest.mark.parametrize("name", CONTROLS)
def test_a_datagram_full_of_short_frames_is_refused(name: str) -> None:
    frame = CONTROLS[name]
    assert len(read_frames_untrusted(frame * MAX_CONTROL_FRAMES)) == MAX_CONTROL_FRAMES
    for body in (frame * (ROOM_BYTES // len(frame)), frame * (MAX_CONTROL_FRAMES + 1)):
        with pytest.raises(Malformed):
            read_frames_untrusted(body)


def test_a_datagram_has_one_acknowledgement() -> None:
    ack = write_ack([(first, first) for first in range(100, 36, -2)], 0.0, 0, 0)
    assert len(read_frames_untrusted(ack + PING)) == 2
    for body in (ack + PING + ack, ack * (ROOM_BYTES // len(ack))):
        with pytest.raises(Malformed):
            read_frames_untrusted(body)


@pytest.mark.parametrize("frame", [message_head(0, 0, 0), piece_head(0, 0, 1, MIN_PIECE_BYTES, 0) + b"x"])
def test_the_smallest_messages_and_pieces_are_bounded_too(frame: bytes) -> None:
    assert len(read_frames_untrusted(frame * MAX_FRAMES)) == MAX_FRAMES
    with pytest.raises(Malformed, match=f"{MAX_FRAMES} frames"):
        read_frames_untrusted(frame * (MAX_FRAMES + 1))


def test_a_datagram_with_too_many_frames_does_nothing_and_is_counted() -> None:
    network = _opened(LinkSettings())
    session = network.alpha.link._sessions.current
    assert session is not None
    body = message_head(20, 0, 5) + b"hello" + PING * 60_000
    datagram = network.alpha.link._sender.seal(session, body)
    network.deliver(Transit(network.alpha.address, network.beta.address, datagram))
    assert network.beta.counters["dropped_violation"] == 1
    assert [message.data for message in network.beta.received] == [b"first"]
    network.send(network.alpha, b"second")
    network.run(lambda: len(network.beta.received) == 2)


@given(st.lists(st.tuples(st.integers(0, 31), st.integers(0, 40)), min_size=1, max_size=8), st.integers(0, 3))
def test_an_honest_sender_stays_within_the_bound(script: list[tuple[int, int]], seed: int) -> None:
    """However small its messages are, and however many of them wait: none of its datagrams is refused."""
    network = _opened(LinkSettings(window_messages=8000), seed)
    for channel, size_bytes in script:
        network.alpha.link.find_at(network.beta.address, network.now)
        for _ in range(3000 // len(script)):
            network.alpha.link.send(bytes(size_bytes), network.now, channel)
    network.pump(network.alpha)
    network.run(lambda: network.is_quiet, limit_s=30)
    assert not network.beta.counters["dropped_violation"]
    assert len(network.beta.received) == 1 + 3000 // len(script) * len(script)


def test_the_smallest_messages_share_datagrams_up_to_the_bound() -> None:
    network = _opened(LinkSettings(window_messages=8000))
    sizes: list[int] = []

    def counted(body: bytes) -> list[object]:
        frames = read_frames_untrusted(body)
        sizes.append(sum(isinstance(frame, Message | Piece) for frame in frames))
        assert sum(isinstance(frame, Ack) for frame in frames) <= 1
        return list(frames)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "batonpass.actors.link.receiver.read_usual_untrusted", lambda _: None
        )  # so that the other sees all
        patch.setattr("batonpass.actors.link.receiver.read_frames_untrusted", counted)
        for _ in range(5000):
            network.alpha.link.send(b"", network.now, 3)
        network.run(lambda: network.is_quiet)
    assert max(sizes) == MAX_CONTENT_FRAMES
    assert len(network.beta.received) == 5001


class _Twin:
    """What the lives of a peer hold, added up message by message."""

    def __init__(self, incoming: IncomingMessages) -> None:
        self._incoming = incoming

    def has_room(self, size_bytes: int) -> bool:
        sizes = [size_bytes, *(len(message.data) for message in self._incoming._ready)]
        for channel in self._incoming._channels:
            sizes += [assembly.total_bytes for assembly in channel.assemblies.values()]
            sizes += [len(data) for data in channel.complete.values()]
        return (
            sum(sizes) <= self._incoming._window_bytes + INITIAL_CREDIT_BYTES
            and len(sizes) <= self._incoming._window_messages + INITIAL_CREDIT_MESSAGES
        )


_STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 40), st.sampled_from([0, 10, 60_000, 1_000_000])),
    st.tuples(st.just("take"), st.integers(1, 5), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
)


@given(st.lists(_STEPS, max_size=200))
def test_what_all_lives_of_a_peer_hold_is_known_without_adding_it_up(steps: list[tuple[str, int, int]]) -> None:
    incoming = IncomingMessages(window_bytes=2 * LARGE_MESSAGE_BYTES, window_messages=40)
    twin = _Twin(incoming)
    for step, number, size_bytes in steps:
        if step == "restart":
            incoming.restart()
        elif step == "take":
            for _ in range(number):
                incoming.take()
        else:
            channel = incoming._channels[1]
            if number < channel.next_number or number in channel.complete:
                continue
            expected = twin.has_room(size_bytes)
            try:
                incoming.on_message(Message(1, number, bytes(size_bytes)))
            except NoRoom:
                assert not expected
            except Malformed:  # beyond the credit, which is looked at first
                pass
            else:
                assert expected or not incoming._is_cramped
