"""The short cuts for what nearly every datagram is do exactly what the long way does.

Two copies of one world, byte for byte: the same keys, the same network with the same dice. In one of them the short
cuts are blocked. Whatever happens, both put the same datagrams on the wire, and hold and hand on the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batonpass.actors.link import LinkSettings
from batonpass.actors.link.frames import (
    MAX_CONTENT_FRAMES,
    MIN_PIECE_BYTES,
    PING,
    Ack,
    DatagramKind,
    Message,
    MessageRun,
    Piece,
    message_head,
    read_frames_untrusted,
    read_usual_untrusted,
    write_ack,
)
from batonpass.actors.link.incoming import IncomingMessages, NoRoom
from batonpass.actors.link.outgoing import OutgoingMessages
from batonpass.actors.link.prediction import Prediction
from batonpass.actors.link.settings import LOOPBACK_TOLERATED_LOSS, NEVER
from batonpass.crypto.errors import Malformed
from tests.actors.link.network import Faults, Network, Node, Transit
from tests.actors.link.snapshot import snapshot

SIZES = st.one_of(st.integers(0, 300), st.sampled_from([880, 900, 1100, 1156, 1157, 5000]))
CHANNELS = st.sampled_from([0, 0, 0, 1, 15, 16])
Step = tuple[str, float, list[tuple[int, int]]]
NOTHING: st.SearchStrategy[list[tuple[int, int]]] = st.just([])
SAID = st.lists(st.tuples(CHANNELS, SIZES), max_size=8)
TALK = st.tuples(st.just("talk"), st.integers(0, 1), SAID)
WAIT = st.tuples(st.just("wait"), st.sampled_from([0.0, 0.0005, 0.004, 0.1, 1.0]), NOTHING)
BUNDLE = st.tuples(st.just("bundle"), st.integers(0, 31), SAID)
RALLY = st.tuples(st.just("rally"), st.sampled_from([0.0005, 0.004, 0.05]), SAID)
CALLS = st.tuples(
    st.just("calls"),
    st.integers(0, 1),
    st.lists(
        st.tuples(
            st.sampled_from([0, 0, 1, 15]), st.one_of(st.integers(0, 300), st.sampled_from([3000, 8059, 8060, 8150]))
        ),
        min_size=6,
        max_size=20,
    ),
)
WEATHER = st.tuples(st.just("weather"), st.just(0), NOTHING)
"""From here on there are faults: after the first datagram that is lost, hardly anything is usual any more."""
TAKE = st.tuples(st.just("take"), st.integers(0, 1), NOTHING)
FAULTS = st.builds(
    Faults,
    lose=st.sampled_from([0.0, 0.0, 0.1]),
    repeat=st.sampled_from([0.0, 0.1]),
    corrupt=st.sampled_from([0.0, 0.1]),
    delay_s=st.sampled_from([0.0001, 0.003]),
    jitter_s=st.sampled_from([0.0, 0.002]),
)


@contextmanager
def long_way_only(*, one_by_one: bool) -> Iterator[None]:
    """`one_by_one`: small messages that leave together are not remembered as one either."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batonpass.actors.link.receiver.read_usual_untrusted", lambda _: None)
        patch.setattr(Prediction, "arm", lambda _: False)
        if one_by_one:
            patch.setattr(OutgoingMessages, "_fill_small", lambda _, room_bytes, *__: room_bytes)
        yield


def say(network: Network, node: Node, message: bytes, channel: int) -> bool:
    """As the shell does; whether it left by the short cut."""
    node.link.find_at(network.other(node).address, network.now)
    node.take()
    if len(message) % 2:
        node.link.be_ready()
    departure = node.link.send_at_once(message, network.now, channel)
    if departure is None:
        node.link.send(message, network.now, channel)
        network.pump(node)
        return False
    datagram, address, timer_s = departure
    assert address == node.link.address
    assert timer_s in {NEVER, node.link.next_timer()}
    network.send_datagram(node, address, datagram)
    return True


def call(network: Network, first: int, messages: list[tuple[int, int]]) -> None:
    for at, (channel, size) in enumerate(messages):
        asked = network.nodes[(first + at + 1) % 2]
        count = len(asked.received)
        say(network, network.other(asked), bytes(size), channel)
        for _ in range(20):
            if len(asked.received) > count or not network.step():
                break


def play(
    seed: int, faults: Faults, settings: LinkSettings, steps: list[Step]
) -> tuple[list[object], list[object], list[Transit]]:
    """What can be seen of a world after each step; all that its links know then; and what was on the wire."""
    network = Network(seed, settings=settings)
    say(network, network.alpha, b"hello", 0)
    network.run(lambda: bool(network.beta.received) and network.is_quiet)
    seen: list[object] = []
    known: list[object] = []
    for kind, which, messages in steps:
        node = network.nodes[int(which) % 2]
        if kind == "talk":
            for channel, size in messages:
                say(network, node, bytes(size), channel)
        elif kind == "bundle":
            for channel, size in messages:
                for _ in range(1 + int(which) // 2):
                    node.link.send(bytes(size), network.now, channel)
            network.pump(node)
        elif kind == "rally":  # one after the other says something, and waits
            for at, (channel, size) in enumerate(messages):
                say(network, network.nodes[at % 2], bytes(size), channel)
                network.run_for(which)
        elif kind == "calls":  # a question, and its answer as soon as it is there, and so on
            call(network, int(which), messages)
        elif kind == "weather":
            network.faults = faults
        elif kind == "wait":
            network.run_for(which)
        else:
            node.is_taking = not node.is_taking
            network.pump(node)
        seen.append([state(one) for one in network.nodes])
        known.append([snapshot(one.link) for one in network.nodes])
    # Signatures of handshakes have dice of their own.
    return seen, known, [transit for transit in network.history if transit.datagram[0] == DatagramKind.DATA]


def state(node: Node) -> object:
    link = node.link
    return (
        list(node.received),
        list(node.events),
        dict(node.counters),
        link.next_timer(),
        link.queued_messages,
        link.queued_bytes,
        link.is_idle,
        link._incoming.credit,
    )


@given(
    st.integers(0, 2**32),
    FAULTS,
    st.sampled_from([32, 1024]),
    st.sampled_from([1200, 9000]),
    st.lists(st.tuples(CALLS, st.one_of(TALK, BUNDLE, RALLY, WAIT, WAIT, TAKE, WEATHER)), min_size=1, max_size=4),
)
def test_both_ways_put_the_same_on_the_wire(
    seed: int, faults: Faults, window: int, datagram_bytes: int, pairs: list[tuple[Step, Step]]
) -> None:
    """Questions and answers, so that the short way is taken; and after each of them something else."""
    steps = [step for pair in pairs for step in pair]
    tolerated_loss = LOOPBACK_TOLERATED_LOSS if window == 32 else 0.0  # another congestion window
    settings = LinkSettings(max_datagram_bytes=datagram_bytes, window_messages=window, tolerated_loss=tolerated_loss)
    short = play(seed, faults, settings, steps)
    with long_way_only(one_by_one=False):
        assert play(seed, faults, settings, steps) == short
    with long_way_only(one_by_one=True):
        seen, _, sent = play(seed, faults, settings, steps)
    assert (seen, sent) == (short[0], short[2])


@pytest.mark.parametrize(("datagram_bytes", "size"), [(1200, 100), (9000, 100), (9000, 8000)])
def test_a_question_and_its_answer_take_the_short_cut(datagram_bytes: int, size: int) -> None:
    network = Network(settings=LinkSettings(max_datagram_bytes=datagram_bytes))
    say(network, network.alpha, b"hello", 0)
    network.run(lambda: bool(network.beta.received) and network.is_quiet)
    ways: list[bool] = []
    for _ in range(10):
        for node in network.nodes:
            other = network.other(node)
            count = len(other.received)
            ways.append(say(network, node, bytes(size), 0))
            network.run(lambda other=other, count=count: len(other.received) > count)  # type: ignore[misc]
    assert ways == [True] * 20


FRAMES = st.one_of(
    st.builds(
        lambda first, length, us, credit: write_ack([(first, first + length)], us / 1e6, credit, credit),
        st.integers(0, 99),
        st.integers(0, 99),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**63),
    ),
    st.just(write_ack([(9, 12), (3, 5)], 0.001, 70_000, 40)),
    st.just(PING),
)
RUNS = st.builds(
    lambda channel, number, sizes, gap: b"".join(
        message_head(channel, number + at + (gap if at > 2 else 0), size) + bytes(size) for at, size in enumerate(sizes)
    ),
    st.integers(0, 33),
    st.integers(0, 99),
    st.lists(st.integers(0, 40), max_size=6),
    st.sampled_from([0, 0, 0, 1]),
)


def agree(body: bytes) -> bool:
    """What the short reader says is what the long one says; whether it says anything."""
    usual = read_usual_untrusted(body)
    if usual is None:
        return False
    ack, run = usual
    frames: list[Ack | Message] = [] if ack is None else [ack]
    if run is not None:
        frames += [Message(run.channel, number, data) for number, data in enumerate(run.contents, run.number)]
    assert [tuple(map(listed, frame)) for frame in frames] == [
        tuple(map(listed, frame)) for frame in read_frames_untrusted(body)
    ]
    return True


def listed(value: object) -> object:
    return list(value) if isinstance(value, list | tuple) else value


@given(st.lists(st.one_of(FRAMES, RUNS, RUNS), max_size=3), st.integers(0, 40), st.integers(0, 40))
def test_the_short_reader_reads_what_the_long_one_reads(frames: list[bytes], cut: int, more: int) -> None:
    body = b"".join(frames)
    agree(body)
    agree(body[: max(len(body) - cut, 0)])
    agree(body + bytes(more))


def test_the_short_reader_knows_what_is_usual() -> None:
    ack = write_ack([(0, 7)], 0.0, 1, 1)
    one, two = message_head(3, 5, 1) + b"x", message_head(3, 6, 0)
    assert all(agree(body) for body in (ack, one, ack + one, one + two, ack + one + two))
    assert not any(agree(body) for body in (b"", PING, two + one, one + ack, ack + PING, one + one, ack[:-1], one[:-1]))
    full = b"".join(message_head(0, number, 0) for number in range(MAX_CONTENT_FRAMES))
    assert agree(full)
    assert not agree(full + message_head(0, MAX_CONTENT_FRAMES, 0))


# A run of messages, or a piece of one of three pieces. Both begin so far beyond what the channel expects next.
AHEAD = st.sampled_from([0, 0, 0, 1, 2, 5])
INCOMING_CHANNELS = st.sampled_from([0, 0, 1, 3, 16, 17])
MESSAGES = st.tuples(INCOMING_CHANNELS, AHEAD, st.lists(st.integers(0, 9000), min_size=1, max_size=12))
PIECES = st.tuples(INCOMING_CHANNELS, AHEAD, st.integers(0, 2))


def piece_of(channel: int, number: int, part: int) -> Piece:
    return Piece(channel, number, 3 * MIN_PIECE_BYTES, MIN_PIECE_BYTES, part, bytes(MIN_PIECE_BYTES))


def outcome(act: Callable[[], object]) -> type[Exception] | None:
    try:
        act()
    except (Malformed, NoRoom) as error:
        return type(error)
    return None


def one_after_the_other(incoming: IncomingMessages, channel: int, number: int, contents: list[bytes]) -> None:
    for at, data in enumerate(contents, number):
        incoming.on_message(Message(channel, at, data))


def half_received(incoming: IncomingMessages) -> list[tuple[int, list[int], list[int]]]:
    """What the application does not see: of each channel, what is expected, and what is there beyond it."""
    return [(one.next_number, sorted(one.assemblies), sorted(one.complete)) for one in incoming._channels]


@given(st.lists(st.one_of(MESSAGES, PIECES), max_size=12), st.integers(0, 4))
@example([(0, 2, 0), (0, 0, [1, 1, 1, 1])], 0)  # one of the run has begun in pieces
@example([(0, 2, [1]), (0, 0, [1, 1, 1, 1])], 0)  # one of it is there already
@example([(0, 2, [1]), (0, 0, [1, 1])], 0)  # one that is there waits for the run
def test_a_run_of_messages_is_as_good_as_one_by_one(
    arrivals: list[tuple[int, int, list[int]] | tuple[int, int, int]], taken: int
) -> None:
    at_once = IncomingMessages(window_bytes=2**23, window_messages=40)
    one_by_one = IncomingMessages(window_bytes=2**23, window_messages=40)
    for incoming in (at_once, one_by_one):
        incoming.claim(3)
    for channel, ahead, what in arrivals:
        number = one_by_one._channels[channel].next_number + ahead
        if isinstance(what, int):
            piece = piece_of(channel, number, what)
            assert outcome(partial(at_once.on_piece, piece)) == outcome(partial(one_by_one.on_piece, piece))
        else:
            contents = [bytes(size) for size in what]
            run = MessageRun(channel, number, contents)
            assert outcome(partial(at_once.on_messages, run)) == outcome(partial(one_after_the_other, one_by_one, *run))
        assert half_received(at_once) == half_received(one_by_one)
        for _ in range(taken):
            assert at_once.take() == one_by_one.take()
        assert at_once.credit == one_by_one.credit
        assert at_once.should_tell == one_by_one.should_tell
    for claimed in (None, 3):
        while (message := at_once.take(claimed)) is not None:
            assert message == one_by_one.take(claimed)
        assert one_by_one.take(claimed) is None


@pytest.mark.parametrize("begun", [0, 2])
def test_a_run_with_a_message_that_has_begun_in_pieces_is_a_violation(begun: int) -> None:
    """Else its number would pass, and the pieces be held until the peer restarts."""
    incoming = IncomingMessages(window_bytes=2**23, window_messages=40)
    incoming.on_piece(piece_of(0, begun, 0))
    with pytest.raises(Malformed, match="whole that it had begun to send in pieces"):
        incoming.on_messages(MessageRun(0, 0, [b"a", b"b", b"c", b"d"]))
    assert half_received(incoming)[0] == (begun, [begun], [])
    for part in (1, 2):
        incoming.on_piece(piece_of(0, begun, part))
    sizes = [len(message.data) for message in iter(incoming.take, None)]
    assert sizes == [1] * begun + [3 * MIN_PIECE_BYTES]
