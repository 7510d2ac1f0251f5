"""Who waits to send a large message gets there, whatever those do who may send one already."""

from collections.abc import Callable

import pytest

from batonpass.actors.link import LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from batonpass.actors.link.frames import PING, piece_head, write_want
from batonpass.actors.link.large import MIN_BYTES_PER_S, STALL_S, LargeBudget
from tests.actors.link.network import Network
from tests.actors.link.peers import Peers, say

FREE_BYTES = LARGE_MESSAGE_BYTES + 5000
"""What the endpoint has left for large messages, so that one of this size keeps all others waiting."""
PIECE_BYTES = 5000


class Endpoint(Peers):
    """With room for one large message."""

    def __init__(self, peers: int) -> None:
        self.budget = LargeBudget()
        assert self.budget.reserve(4 * MAX_MESSAGE_BYTES - FREE_BYTES)
        super().__init__(peers, lambda node: setattr(node, "large_budget", self.budget))

    def large_received(self, number: int) -> int:
        return sum(len(message.data) > LARGE_MESSAGE_BYTES for message in self.networks[number].beta.received)


def piece(number: int, part: int) -> bytes:
    size_bytes = min(PIECE_BYTES, FREE_BYTES - part * PIECE_BYTES)
    return piece_head(3, number, FREE_BYTES, PIECE_BYTES, part) + bytes(size_bytes)


def say_nothing(network: Network, second: int) -> None:
    pass


def ping(network: Network, second: int) -> None:
    say(network, PING)


def trickle(network: Network, second: int) -> None:
    say(network, piece(0, second))


def keep_back_the_one_before(network: Network, second: int) -> None:
    if second:
        say(network, PING)
    else:
        for part in range(-(-FREE_BYTES // PIECE_BYTES)):
            say(network, piece(1, part))


@pytest.mark.parametrize(
    ("attack", "limit_s"),
    [
        (say_nothing, STALL_S),
        (ping, STALL_S),
        (keep_back_the_one_before, STALL_S),
        (trickle, STALL_S + FREE_BYTES / MIN_BYTES_PER_S),
    ],
)
def test_who_was_granted_a_large_message_and_does_not_send_it_loses_the_grant_to_who_waits(
    attack: Callable[[Network, int], None], limit_s: float
) -> None:
    endpoint = Endpoint(2)
    hostile, honest = endpoint.networks
    say(hostile, write_want(1, FREE_BYTES))
    say(hostile, PING)
    endpoint.run_for(0.1)
    assert endpoint.budget._free_bytes == 0
    honest.send(honest.alpha, bytes(FREE_BYTES), 1)
    for second in range(round(limit_s + 3)):
        if not endpoint.expired[0]:
            attack(hostile, second)
        endpoint.run_for(1.0)
        if second < limit_s - 3:
            assert not endpoint.large_received(1), "taken from the one that had it before it was late"
    assert endpoint.large_received(1) == 1
    assert endpoint.expired == [1, 0]
    assert hostile.beta.counters["revoked_grants"] == 1
    assert endpoint.budget._free_bytes == FREE_BYTES


def test_those_who_come_back_wait_behind_those_who_waited() -> None:
    """Three that take every turn they can get, and use none."""
    endpoint = Endpoint(5)
    *hostile, honest, other = endpoint.networks
    asked = [-1] * len(hostile)
    for second in range(90):
        for number, network in enumerate(hostile):
            if network.alpha.link._sessions.current is None or asked[number] < endpoint.expired[number]:
                asked[number] = endpoint.expired[number]
                network.send(network.alpha, b"here again")
                network.run_for(0.0)
            elif second:
                say(network, write_want(1, FREE_BYTES) + PING)
        if second == 2:
            honest.send(honest.alpha, bytes(FREE_BYTES), 1)
            other.send(other.alpha, bytes(FREE_BYTES), 1)
        endpoint.run_for(1.0)
        if endpoint.large_received(3) == endpoint.large_received(4) == 1:
            break
    assert second <= 3 * (STALL_S + 2) + 3
    assert sum(endpoint.expired[:3]) >= 3
    assert endpoint.expired[3:] == [0, 0]


def test_one_that_only_waits_keeps_what_it_was_granted_for_as_long_as_nobody_wants_it() -> None:
    endpoint = Endpoint(1)
    [network] = endpoint.networks
    say(network, write_want(1, FREE_BYTES))
    for _ in range(100):
        say(network, PING)
        endpoint.run_for(1.0)
    assert endpoint.expired == [0]
    assert network.beta.counters["revoked_grants"] == 0


def test_what_our_application_does_not_take_is_not_held_against_the_peer() -> None:
    endpoint = Endpoint(2)
    first, second = endpoint.networks
    first.beta.is_taking = False
    first.send(first.alpha, bytes(FREE_BYTES), 1)
    endpoint.run_for(2.0)
    second.send(second.alpha, bytes(FREE_BYTES), 1)
    endpoint.run_for(5 * STALL_S)
    assert endpoint.expired == [0, 0]
    first.beta.is_taking = True
    first.pump(first.beta)
    endpoint.run_for(3.0)
    assert [endpoint.large_received(0), endpoint.large_received(1)] == [1, 1]


def test_an_honest_peer_that_was_cut_off_sends_it_again_from_the_beginning() -> None:
    endpoint = Endpoint(2)
    first, second = endpoint.networks
    content = bytes(range(250)) * (FREE_BYTES // 250)
    first.send(first.alpha, content, 1)
    first.send(first.alpha, b"behind it", 1)
    first.run(lambda: first.beta.link._incoming._large.started == 1)
    first.passes = lambda _: False
    second.send(second.alpha, bytes(FREE_BYTES), 1)
    endpoint.run_for(STALL_S + 3)
    assert endpoint.large_received(1) == 1
    assert endpoint.expired == [1, 0]
    first.passes = lambda _: True
    first.beta.received.clear()
    endpoint.run_for(5)
    assert first.beta.data_received(1) == [content, b"behind it"]
    assert not first.beta.counters["dropped_violation"]
