"""Messages of tens of megabytes beside small ones, and channels without an order."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.link import LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES, LinkSettings
from batonpass.actors.link.frames import Ack, DatagramKind, LargeWant, Message, Piece
from batonpass.actors.link.incoming import IncomingMessages
from batonpass.actors.link.large import REACH_BYTES, LargeBudget
from batonpass.actors.link.outgoing import OutgoingMessages
from batonpass.actors.link.settings import UNORDERED_AHEAD
from batonpass.crypto.errors import Malformed
from tests.actors.link.network import Faults, Network, Node, Transit
from tests.budget import examples

FAST = LinkSettings(max_datagram_bytes=61_440)
STATE_BYTES = 50_000_000
UNORDERED = 16


def joined(network: Network) -> Network:
    network.send(network.alpha, b"hello")
    network.run(lambda: network.is_quiet and bool(network.beta.received))
    network.beta.received.clear()
    network.history.clear()
    return network


def left_alpha(network: Network) -> int:
    """How many sealed datagrams have left alpha."""
    return sum(is_data_of_alpha(network, transit) for transit in network.history)


def is_data_of_alpha(network: Network, transit: Transit) -> bool:
    return transit.source == network.alpha.address and transit.datagram[0] == DatagramKind.DATA


def datagrams_until_left(network: Network, channel: int) -> int:
    """How many datagrams leave alpha up to the one that carries a message of 100 bytes that is sent now."""
    before = left_alpha(network)
    arrived = len(network.beta.data_received(channel))
    carriers: list[int] = []
    deliver = network.deliver

    def watch(transit: Transit) -> None:
        deliver(transit)
        if not carriers and len(network.beta.data_received(channel)) > arrived:
            known = [number for number, other in enumerate(network.history) if other is transit]
            carriers.append(sum(is_data_of_alpha(network, other) for other in network.history[: known[0] + 1]))

    network.deliver = watch  # type: ignore[method-assign]  # only to look
    network.send(network.alpha, bytes(100), channel)
    network.run(lambda: bool(carriers), limit_s=20)
    network.deliver = deliver  # type: ignore[method-assign]  # as above
    return carriers[0] - before


@pytest.mark.parametrize(("settings", "size_bytes"), [(FAST, STATE_BYTES), (LinkSettings(), 20_000_000)])
def test_a_small_message_leaves_within_two_datagrams_beside_a_large_one(
    settings: LinkSettings, size_bytes: int
) -> None:
    """However much of the large one waits. And it is there one and a half round trips later, and the time an
    acknowledgement may be delayed: that makes room in the congestion window, and then it goes its own way."""
    network = joined(Network(settings=settings))
    network.send(network.alpha, bytes(size_bytes), 1)
    times = 0
    while not network.beta.data_received(1):  # the large one is still on its way
        sent_s = network.now
        assert datagrams_until_left(network, 2) <= 2
        assert network.now - sent_s <= 0.0051
        times += 1
        network.run_for(0.002)
    assert times > 6
    network.run(lambda: network.is_quiet, limit_s=600)
    assert [len(data) for data in network.beta.data_received(1)] == [size_bytes]


def test_every_small_message_arrives_soon_on_a_network_that_loses() -> None:
    network = joined(Network(3, Faults(lose=0.02, delay_s=0.005), FAST))
    network.send(network.alpha, bytes(STATE_BYTES), 1)
    waited_s = []
    while not network.beta.data_received(1):
        sent_s, count = network.now, len(network.beta.data_received(2))
        network.send(network.alpha, bytes(100), 2)
        network.run(lambda count=count: len(network.beta.data_received(2)) > count)  # type: ignore[misc]
        waited_s.append(network.now - sent_s)
    assert len(waited_s) > 30
    assert sorted(waited_s)[len(waited_s) // 2] <= 0.016  # a round trip and a half
    assert max(waited_s) <= 0.1


def test_a_small_message_does_not_wait_for_what_was_lost_before_it() -> None:
    network = joined(Network(settings=replace(LinkSettings(), initial_flight_bytes=2**21)))
    network.send(network.alpha, bytes(4_000_000), 1)
    network.passes = lambda _: False
    network.run_for(1.0)  # all that was in flight is lost, and the congestion window is as small as can be
    network.passes = lambda _: True
    assert datagrams_until_left(network, 2) <= 4  # what was lost, a new piece, what was lost, and this


def test_many_small_messages_share_datagrams_also_beside_a_large_one() -> None:
    network = joined(Network())
    network.send(network.alpha, bytes(4_000_000), 1)
    network.run_for(0.05)
    before = left_alpha(network)
    for number in range(100):
        network.alpha.link.send(bytes([number]) * 100, network.now, 2)
    network.pump(network.alpha)
    network.run(lambda: len(network.beta.data_received(2)) == 100)
    assert left_alpha(network) - before < 10_000 // 1000 * 2 + 1200  # a datagram in turn; the flight was under way


def test_the_receiver_holds_what_has_arrived_and_what_is_within_reach() -> None:
    network = joined(Network(1, Faults(lose=0.05, jitter_s=0.01), FAST))
    network.send(network.alpha, random.Random(0).randbytes(STATE_BYTES), 1)
    incoming = network.beta.link._incoming
    most_ahead = 0
    while not network.beta.data_received(1):
        assert network.step()
        for assembly in incoming._channels[1].assemblies.values():
            assembly.reaches(0)
            last = assembly._arrived.rindex(1)
            most_ahead = max(most_ahead, last - assembly._first_missing)
            assert len(assembly._buffer.getbuffer()) <= (last + 1) * assembly.piece_bytes
    assert 0 < most_ahead * 60_000 <= REACH_BYTES
    assert network.beta.data_received(1) == [random.Random(0).randbytes(STATE_BYTES)]
    assert not network.beta.counters["dropped_violation"]


def test_of_several_large_messages_one_is_on_its_way_at_a_time_and_none_before_the_last_one_was_taken() -> None:
    network = joined(Network(settings=FAST))
    network.beta.is_taking = False
    for channel in (1, 2, UNORDERED):
        network.send(network.alpha, bytes(LARGE_MESSAGE_BYTES + channel), channel)
        network.send(network.alpha, b"behind it", channel)
    network.send(network.alpha, b"beside them", 5)
    network.run_for(5)
    incoming = network.beta.link._incoming
    for channel in (1, 2, UNORDERED):
        taken = []
        while (message := network.beta.link.take()) is not None:
            taken.append(message)
        sizes = [len(message.data) for message in taken if len(message.data) > 100]
        assert sizes == [LARGE_MESSAGE_BYTES + channel]
        assert incoming._large._reserved_bytes == 0
        assert not incoming.has_any_ready
        network.pump(network.beta)
        network.run_for(5)
    assert network.alpha.link.queued_messages == 0


def test_while_a_large_message_waits_for_its_grant_the_other_channels_go_on() -> None:
    network = joined(Network(settings=FAST))
    budget = network.beta.link._incoming._large._budget
    assert budget.reserve(4 * MAX_MESSAGE_BYTES)  # other peers have taken all there is
    network.send(network.alpha, bytes(STATE_BYTES), 1)
    for number in range(50):
        network.send(network.alpha, bytes([number]), 2)
        network.run_for(0.1)
    assert len(network.beta.data_received(2)) == 50
    assert not network.beta.data_received(1)
    budget.release(4 * MAX_MESSAGE_BYTES)
    network.run(lambda: bool(network.beta.data_received(1)), limit_s=10)


def test_a_restart_in_the_middle_of_a_large_message_gives_back_its_memory_and_sends_it_again() -> None:
    network = joined(Network(settings=FAST))
    budget = network.beta.link._incoming._large._budget
    network.send(network.alpha, bytes(STATE_BYTES), 1)
    network.run_for(0.01)
    network.alpha.start(network.now)
    network.send(network.alpha, bytes(STATE_BYTES), 1)
    network.send(network.alpha, b"small", 2)
    network.run(lambda: network.is_quiet and bool(network.beta.data_received(1)), limit_s=30)
    assert budget._free_bytes == 4 * MAX_MESSAGE_BYTES
    network.send(network.alpha, bytes(STATE_BYTES), 1)
    network.run_for(0.01)
    network.beta.start(network.now)
    network.beta.received.clear()
    network.run(lambda: network.is_quiet and bool(network.beta.data_received(1)), limit_s=30)
    assert network.beta.link._incoming._large._budget._free_bytes == 4 * MAX_MESSAGE_BYTES


def test_a_peer_that_never_finishes_gives_its_memory_back_when_it_is_given_up() -> None:
    network = joined(Network(settings=FAST))
    budget = network.beta.link._incoming._large._budget
    network.send(network.alpha, bytes(STATE_BYTES), 1)
    network.run_for(0.01)
    assert budget._free_bytes < 4 * MAX_MESSAGE_BYTES
    network.passes = lambda _: False
    network.run_for(700)
    assert budget._free_bytes == 4 * MAX_MESSAGE_BYTES


LARGE_SCRIPT = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from([0, 1, UNORDERED]),
        st.sampled_from([0, 100, 70_000, LARGE_MESSAGE_BYTES, LARGE_MESSAGE_BYTES + 1, 9_000_000]),
        st.sampled_from([0.0, 0.01, 0.3]),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(15))
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.02, 0.1]), LARGE_SCRIPT, st.data())
def test_large_and_small_messages_arrive_once_whatever_the_network_does(
    seed: int, lose: float, script: list[tuple[bool, int, int, float]], data: st.DataObject
) -> None:
    network = Network(seed, Faults(lose=lose, repeat=0.05, jitter_s=0.003), FAST)
    expected: dict[Node, list[tuple[int, bytes]]] = {node: [] for node in network.nodes}
    for number, (from_alpha, channel, size, pause_s) in enumerate(script):
        node = network.alpha if from_alpha else network.beta
        content = number.to_bytes(4, "big") * (size // 4) + bytes(size % 4)
        network.send(node, content, channel)
        expected[network.other(node)].append((channel, content))
        network.beta.is_taking = data.draw(st.booleans())
        network.run_for(pause_s)
    network.beta.is_taking = True
    network.pump(network.beta)
    network.run(lambda: network.is_quiet, limit_s=1000)
    for node in network.nodes:
        for channel in (0, 1):
            assert node.data_received(channel) == [data for to, data in expected[node] if to == channel]
        unordered = sorted(data for to, data in expected[node] if to == UNORDERED)
        assert sorted(node.data_received(UNORDERED)) == unordered
        assert not node.counters["dropped_violation"]
        assert node.link._incoming._large._budget._free_bytes == 4 * MAX_MESSAGE_BYTES


def test_on_an_unordered_channel_a_lost_message_does_not_hold_up_those_after_it() -> None:
    network = joined(Network(faults=Faults(delay_s=0.05)))
    network.passes = lambda transit: transit.source != network.alpha.address
    for channel in (0, UNORDERED):
        network.send(network.alpha, b"lost", channel)
    network.passes = lambda _: True
    for channel in (0, UNORDERED):
        network.send(network.alpha, b"not lost", channel)
    network.run_for(0.06)
    assert network.beta.received == [(UNORDERED, b"not lost")]
    network.run(lambda: network.is_quiet)
    assert network.beta.data_received(UNORDERED) == [b"not lost", b"lost"]
    assert network.beta.data_received(0) == [b"lost", b"not lost"]


def test_an_unordered_channel_runs_only_so_far_ahead_of_what_is_missing() -> None:
    outgoing = OutgoingMessages(body_bytes=1168, max_bytes=10**6, max_messages=10**6)
    outgoing.on_credit(Ack([(0, 0)], 0.0, 10**9, 10**6))
    for _ in range(2 * UNORDERED_AHEAD):
        outgoing.enqueue(b"", UNORDERED)
    [(first, _), *others] = outgoing.fill(1168, [])

    def send_all() -> int:
        started = 0
        while chunks := outgoing.fill(1168, []):
            outgoing.on_acked(chunks)
            started += len(chunks)
        return started

    outgoing.on_acked(others)
    assert len(others) + send_all() == UNORDERED_AHEAD - 1
    assert [outgoing.has_chunks, outgoing.held_messages] == [False, UNORDERED_AHEAD + 1]
    outgoing.on_acked([(first, 0)])
    assert outgoing.has_chunks
    assert send_all() == UNORDERED_AHEAD
    assert outgoing.is_empty


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.3]), st.integers(1, 400))
def test_unordered_messages_arrive_once_each(seed: int, lose: float, count: int) -> None:
    network = Network(seed, Faults(lose=lose, repeat=0.2, corrupt=0.02, jitter_s=0.05))
    for number in range(count):
        network.alpha.link.find_at(network.beta.address, network.now)
        network.alpha.link.send(number.to_bytes(2, "big") * (number % 900), network.now, UNORDERED + number % 2)
    network.pump(network.alpha)
    network.run(lambda: network.is_quiet, limit_s=1000)
    expected = sorted(number.to_bytes(2, "big") * (number % 900) for number in range(count))
    assert sorted(data for _, data in network.beta.received) == expected


class TestReceiverOfALargeMessage:
    SIZE = LARGE_MESSAGE_BYTES + 5000

    def incoming(self, *, granted: bool = True) -> IncomingMessages:
        incoming = IncomingMessages(window_bytes=6_000_000, window_messages=64)
        if granted:
            incoming.on_want(LargeWant(1, self.SIZE))
            assert incoming.large_news(0.0)
        return incoming

    def piece(self, part: int, *, number: int = 0, size_bytes: int = SIZE) -> Piece:
        return Piece(1, number, size_bytes, 5000, part, bytes(5000))

    def test_what_was_not_granted_is_a_violation(self) -> None:
        with pytest.raises(Malformed, match="not granted"):
            self.incoming(granted=False).on_piece(self.piece(0))
        with pytest.raises(Malformed, match="not granted"):
            self.incoming().on_piece(self.piece(0, size_bytes=self.SIZE + 1))
        incoming = self.incoming()
        incoming.on_piece(self.piece(0))
        with pytest.raises(Malformed, match="not granted"):
            incoming.on_piece(self.piece(0, number=1))

    def test_what_is_out_of_reach_is_a_violation(self) -> None:
        incoming = self.incoming()
        with pytest.raises(Malformed, match="too far ahead"):
            incoming.on_piece(self.piece(REACH_BYTES // 5000 + 1))
        incoming.on_piece(self.piece(0))
        incoming.on_piece(self.piece(1))
        incoming.on_piece(self.piece(REACH_BYTES // 5000 + 1))

    def test_asking_again_is_harmless_and_asking_out_of_turn_a_violation(self) -> None:
        incoming = self.incoming()
        incoming.on_want(LargeWant(1, self.SIZE))
        with pytest.raises(Malformed, match="before its turn"):
            incoming.on_want(LargeWant(2, self.SIZE))
        with pytest.raises(Malformed, match="before its turn"):
            incoming.on_want(LargeWant(3, self.SIZE))

    def test_the_news_is_repeated_until_the_first_piece_comes(self) -> None:
        incoming = self.incoming()
        assert incoming.is_asked_for_large
        assert incoming.large_news(0.0)
        incoming.on_piece(self.piece(0))
        assert not incoming.is_asked_for_large

    def test_a_message_of_an_unordered_channel_too_far_ahead_is_a_violation(self) -> None:
        incoming = self.incoming()
        incoming.on_message(Message(UNORDERED, UNORDERED_AHEAD - 1, b""))
        with pytest.raises(Malformed, match="too far ahead"):
            incoming.on_message(Message(UNORDERED, UNORDERED_AHEAD, b""))
        with pytest.raises(Malformed, match="too far ahead"):
            incoming.on_piece(Piece(17, 5000, 5000, 4000, 0, bytes(4000)))


def test_a_budget_that_could_not_hold_the_largest_message_is_refused() -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        LargeBudget(MAX_MESSAGE_BYTES - 1)


def test_links_of_one_endpoint_share_its_budget() -> None:
    budget = LargeBudget(MAX_MESSAGE_BYTES)
    first, second = (
        IncomingMessages(window_bytes=6_000_000, window_messages=64, large_budget=budget) for _ in range(2)
    )
    first.on_want(LargeWant(1, STATE_BYTES))
    second.on_want(LargeWant(1, STATE_BYTES))
    assert first.large_news(0.0)
    assert not second.large_news(0.0)
    first.restart()
    assert second.large_news(0.0)
