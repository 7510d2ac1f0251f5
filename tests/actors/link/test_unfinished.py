"""What many peers begin to send and do not end is bounded for all of them together, and goes when others wait."""

import random
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link import LARGE_MESSAGE_BYTES
from batonpass.actors.link.frames import (
    Message,
    MessageRun,
    Piece,
    message_head,
    piece_head,
    read_frames_untrusted,
    read_lone_piece_untrusted,
)
from batonpass.actors.link.incoming import IncomingMessages, NoRoom
from batonpass.actors.link.unfinished import LATE_S, OWN_BYTES, Unfinished, UnfinishedBudget
from tests.actors.link.network import Network
from tests.actors.link.peers import Peers, say

BUDGET_BYTES = 8 * 1024 * 1024
BIG_BYTES = 3_000_000
PIECE_BYTES = 50_000


class Endpoint(Peers):
    """With room for two big messages; it notes how much was ever held."""

    def __init__(self, peers: int) -> None:
        self.budget = UnfinishedBudget(BUDGET_BYTES)
        self.most_bytes = 0
        super().__init__(peers, lambda node: setattr(node, "unfinished_budget", self.budget))

    def after_step(self) -> None:
        held_bytes = sum(network.beta.link._incoming._unfinished.held_bytes for network in self.networks)
        self.most_bytes = max(self.most_bytes, held_bytes)


def begin(network: Network) -> None:
    """Two messages in pieces, of each the first piece."""
    for number in (0, 1):
        say(network, piece_head(3, number, BIG_BYTES, PIECE_BYTES, 0) + bytes(PIECE_BYTES))


def keep_back_the_first(network: Network) -> None:
    """Messages that are complete, but for the first one of their channel."""
    for number in range(1, 100):
        say(network, message_head(3, number, 60_000) + bytes(60_000))


def trickle(network: Network) -> None:
    """A piece now and then: progress, but not in time."""
    begin(network)
    part = round(network.now)
    say(network, piece_head(3, 0, BIG_BYTES, PIECE_BYTES, part) + bytes(PIECE_BYTES))


@pytest.mark.parametrize("attack", [begin, keep_back_the_first, trickle])
def test_what_many_peers_begin_is_bounded_and_goes_when_others_wait(attack: Callable[[Network], None]) -> None:
    endpoint = Endpoint(4)
    *hostile, honest = endpoint.networks
    for network in hostile:
        attack(network)
    endpoint.run_for(1.0)
    assert endpoint.budget.free_bytes < BIG_BYTES
    honest.send(honest.alpha, bytes(BIG_BYTES), 1)
    waited_s = []
    begun_s = honest.now
    while not honest.beta.data_received(1):
        for number, network in enumerate(hostile):
            if not endpoint.expired[number]:
                attack(network)
        sent_s, arrived = honest.now, len(honest.beta.data_received(2))
        honest.send(honest.alpha, b"small", 2)
        honest.run(lambda arrived=arrived: len(honest.beta.data_received(2)) > arrived)  # type: ignore[misc]
        waited_s.append(honest.now - sent_s)
        endpoint.run_for(1.0)
        assert honest.now - begun_s <= 2 * (LATE_S + 3), "those who asked before have had their turn"
    assert max(waited_s) < 0.5, "small messages wait for the congestion window, and for nobody else"
    assert endpoint.most_bytes <= BUDGET_BYTES + len(endpoint.networks) * OWN_BYTES
    assert sum(endpoint.expired) > 0
    assert not endpoint.expired[-1]


def test_honest_peers_that_want_more_together_than_there_is_all_get_it() -> None:
    endpoint = Endpoint(6)
    contents = [random.Random(number).randbytes(BIG_BYTES) for number in range(6)]
    for network in endpoint.networks:
        for content in contents:
            network.send(network.alpha, content, 1)
            network.send(network.alpha, content[:100_000], 17)
    endpoint.run_for(15.0)
    for network in endpoint.networks:
        assert network.beta.data_received(1) == contents
        assert len(network.beta.data_received(17)) == 6
        assert not network.beta.counters["dropped_violation"]
    assert endpoint.expired == [0] * 6
    assert endpoint.budget.free_bytes == BUDGET_BYTES


def test_those_who_asked_first_get_their_room_first() -> None:
    budget = UnfinishedBudget(LARGE_MESSAGE_BYTES)
    first, second, third = (Unfinished(budget, lambda now: False, lambda: None) for _ in range(3))
    assert first.reserve(LARGE_MESSAGE_BYTES)
    for who in (second, third):
        assert not who.reserve(LARGE_MESSAGE_BYTES)
        who.refused(0.0)
    first.clear()
    assert not third.reserve(LARGE_MESSAGE_BYTES)
    assert third.reserve(OWN_BYTES), "a little of every peer has its place"
    assert second.reserve(LARGE_MESSAGE_BYTES)
    second.clear()
    assert third.reserve(LARGE_MESSAGE_BYTES - OWN_BYTES)


def test_who_does_not_ask_any_more_holds_up_nobody() -> None:
    budget = UnfinishedBudget(LARGE_MESSAGE_BYTES)
    first, second, third = (Unfinished(budget, lambda now: False, lambda: None) for _ in range(3))
    assert first.reserve(LARGE_MESSAGE_BYTES)
    for who in (second, third):
        assert not who.reserve(LARGE_MESSAGE_BYTES)
        who.refused(0.0)
    first.clear()
    for now in (4.0, 8.0):
        third.refused(now)
    assert third.reserve(LARGE_MESSAGE_BYTES)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3_000_000), st.booleans()), max_size=60))
def test_what_is_given_back_is_what_was_taken(steps: list[tuple[int, int, bool]]) -> None:
    budget = UnfinishedBudget(BUDGET_BYTES)
    holders = [Unfinished(budget, lambda now: False, lambda: None) for _ in range(4)]
    held: list[list[int]] = [[] for _ in holders]
    for at, size, takes in steps:
        if takes and holders[at].reserve(size):
            held[at].append(size)
        elif not takes and held[at]:
            holders[at].release(held[at].pop())
        beyond = sum(max(sum(sizes) - OWN_BYTES, 0) for sizes in held)
        assert budget.free_bytes == BUDGET_BYTES - beyond >= 0
    for holder in holders:
        holder.clear()
    assert budget.free_bytes == BUDGET_BYTES
    assert not budget._holding


def full() -> IncomingMessages:
    """Of a peer that finds no room beyond its own."""
    budget = UnfinishedBudget(BUDGET_BYTES)
    assert Unfinished(budget, lambda now: False, lambda: None).reserve(BUDGET_BYTES + OWN_BYTES)
    return IncomingMessages(window_bytes=6_000_000, window_messages=64, unfinished_budget=budget)


def test_what_is_refused_has_not_happened() -> None:
    incoming = full()
    for _ in range(100):
        with pytest.raises(NoRoom):
            incoming.on_piece(Piece(1, 0, 100_000, 50_000, 0, bytes(50_000)))
        with pytest.raises(NoRoom):
            incoming.on_piece_run(Piece(1, 0, 100_000, 1024, 0, bytes(1024)), [bytes(1024)] * 2)
    assert incoming.is_empty
    assert (incoming._used_bytes, incoming._used_messages) == (0, 0)
    incoming.on_messages(MessageRun(2, 0, [bytes(60_000)] * 3))  # what can be handed on at once needs no room
    incoming.on_message(Message(2, 4, bytes(60_000)))
    with pytest.raises(NoRoom):
        incoming.on_message(Message(2, 5, bytes(60_000)))
    incoming.on_message(Message(2, 3, b""))
    assert incoming._unfinished.held_bytes == 0


def test_a_train_of_pieces_that_find_no_room_is_dropped_and_harms_nobody() -> None:
    network = Network()
    network.beta.unfinished_budget = UnfinishedBudget(BUDGET_BYTES)
    other = Unfinished(network.beta.unfinished_budget, lambda now: False, lambda: None)
    assert other.reserve(BUDGET_BYTES + OWN_BYTES)
    network.beta.start(0.0)
    network.send(network.alpha, b"hello")
    network.run(lambda: network.is_quiet)
    sender, session = network.alpha.link._sender, network.alpha.link._sessions.current
    assert session is not None
    pieces = [sender.seal(session, piece_head(3, 0, 100_000, 1024, part) + bytes(1024)) for part in range(5)]
    before = dict(network.beta.counters)
    assert not network.beta.link.receive_train(b"".join(pieces), len(pieces[0]), network.now, network.alpha.address)
    assert before == dict(network.beta.counters)
    for datagram in pieces:
        network.beta.link.receive(datagram, network.now, network.alpha.address)
    assert network.beta.counters["dropped_no_room"] == 5


def test_a_budget_that_could_not_hold_the_largest_message_charged_is_refused() -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        UnfinishedBudget(LARGE_MESSAGE_BYTES - 1)


@pytest.mark.parametrize("padding_bytes", [0, 100, 3000, 4500, 29_000, 50_000])
def test_a_piece_keeps_little_more_in_memory_than_it_is_charged_for(padding_bytes: int) -> None:
    size_bytes = 60_000 - padding_bytes
    body = piece_head(1, 0, 4_000_000, size_bytes, 0) + bytes(size_bytes)
    if padding_bytes:
        body += message_head(5, 0, padding_bytes) + bytes(padding_bytes)
    incoming = IncomingMessages(window_bytes=8 * 2**20, window_messages=64)
    before = sys.getrefcount(body)
    piece = read_frames_untrusted(body)[0] if padding_bytes else read_lone_piece_untrusted(body)
    assert isinstance(piece, Piece)
    incoming.on_piece(piece)
    del piece
    assert sys.getrefcount(body) == before, "the datagram is kept"
    (assembly,) = incoming._channels[1].assemblies.values()
    assert assembly.held_bytes == incoming._used_bytes, "all of it is charged"
