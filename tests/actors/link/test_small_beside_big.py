"""A small message does not wait for the credit that a bigger one waits for, nor is the bigger one starved."""

from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.link import LARGE_MESSAGE_BYTES, LinkSettings
from batonpass.actors.link.frames import Ack
from batonpass.actors.link.outgoing import OutgoingMessages
from batonpass.actors.link.settings import INITIAL_CREDIT_BYTES, RESERVED_CREDIT_BYTES, SMALL_MESSAGE_BYTES
from tests.actors.link.network import Network

WINDOW_BYTES = LinkSettings().window_bytes
OTHER_CHANNELS = [0, 1, 7, 15, 16, 31]
SIZES = st.one_of(
    st.integers(0, 200),
    st.integers(1000, SMALL_MESSAGE_BYTES),
    st.integers(SMALL_MESSAGE_BYTES + 1, 300_000),
    st.sampled_from([SMALL_MESSAGE_BYTES + 1, 1_000_000, 3_000_000, LARGE_MESSAGE_BYTES, LARGE_MESSAGE_BYTES + 1]),
)


def full(body_bytes: int, credit_bytes: int = WINDOW_BYTES, messages: int = 1024) -> OutgoingMessages:
    outgoing = OutgoingMessages(body_bytes=body_bytes, max_bytes=2**30, max_messages=2**16)
    outgoing.on_credit(Ack([(0, 0)], 0.0, credit_bytes, messages))
    return outgoing


@given(
    st.lists(st.tuples(st.sampled_from(OTHER_CHANNELS), SIZES), max_size=40),
    st.sampled_from([1168, 61_408]),
    st.integers(0, 2000),
)
def test_a_small_message_leaves_within_two_datagrams_of_each_other_channel(
    queued: list[tuple[int, int]], body_bytes: int, datagrams: int
) -> None:
    """Whatever the others have queued, and though the peer's application takes nothing at all."""
    outgoing = full(body_bytes)
    small_bytes = 0
    for channel, size in queued:
        if size > SMALL_MESSAGE_BYTES or small_bytes + size + 256 <= RESERVED_CREDIT_BYTES // 2:
            small_bytes += size + 256 if size <= SMALL_MESSAGE_BYTES else 0
            outgoing.enqueue(bytes(size), channel)
    for _ in range(datagrams):
        if not outgoing.fill(body_bytes, []):
            break
    outgoing.enqueue(bytes(100), 5)
    for _ in range(2 * len(OTHER_CHANNELS) + 1):
        assert outgoing.has_chunks
        if any(message.channel == 5 for message, _ in outgoing.fill(body_bytes, [])):
            return
    raise AssertionError("it waits for others")


@settings(max_examples=10)
@given(st.integers(SMALL_MESSAGE_BYTES + 1, LARGE_MESSAGE_BYTES), st.integers(4000, SMALL_MESSAGE_BYTES))
def test_a_stream_of_small_messages_does_not_starve_a_bigger_one(size: int, small: int) -> None:
    """The peer takes everything at once, and there are always more small messages."""
    outgoing = full(61_408, messages=2**30)
    taken_bytes = 0
    outgoing.enqueue(bytes(WINDOW_BYTES - RESERVED_CREDIT_BYTES - LARGE_MESSAGE_BYTES), 0)
    outgoing.enqueue(bytes(LARGE_MESSAGE_BYTES), 0)
    outgoing.enqueue(bytes(size), 0)
    passed_bytes = 0
    while outgoing._next_number[0] < 3:
        if outgoing._queued_messages < 20:
            for _ in range(20):
                outgoing.enqueue(bytes(small), 1)
        chunks = outgoing.fill(61_408, [])
        is_waiting = outgoing._waiting_for_credit == 0
        outgoing.on_acked(chunks)
        for message, part in chunks:
            if message.channel == 1 and part + 1 == message.chunk_count and is_waiting:
                passed_bytes += small + 256
                taken_bytes += small
            assert passed_bytes <= 9 * WINDOW_BYTES
        if not chunks:  # what is left of the credit comes when the big ones before are taken
            taken_bytes += 100_000
        outgoing.on_credit(Ack([(0, 0)], 0.0, WINDOW_BYTES + taken_bytes, 2**30))


def test_has_chunks_is_true_only_when_something_can_be_filled() -> None:
    outgoing = full(1168, INITIAL_CREDIT_BYTES + RESERVED_CREDIT_BYTES)
    outgoing.enqueue(bytes(INITIAL_CREDIT_BYTES + 1), 0)
    for _ in range(5000):
        outgoing.enqueue(bytes(100), 1)
    count = 0
    while outgoing.has_chunks:
        chunks = outgoing.fill(1168, [])
        assert chunks
        count += len(chunks)
    assert count == RESERVED_CREDIT_BYTES // (100 + 256)


def test_what_one_channel_does_not_take_leaves_small_messages_of_another_alone() -> None:
    network = Network()
    network.beta.link.claim(17)
    for _ in range(4):
        network.send(network.alpha, bytes(3_000_000), 17)
    network.run_for(3.0)
    assert network.alpha.link._outgoing.waits_for_credit
    for number in range(300):
        sent_s = network.now
        network.send(network.alpha, bytes(100), 1)
        network.run(lambda number=number: len(network.beta.data_received(1)) > number)  # type: ignore[misc]
        assert network.now - sent_s <= 0.0051
    for _ in range(4):
        network.run(lambda: network.beta.link.has_ready(17), limit_s=10)
        assert network.beta.link.take(17) is not None
        network.pump(network.beta)
    network.run(lambda: network.is_quiet, limit_s=10)
