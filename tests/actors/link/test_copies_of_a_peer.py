"""A peer and a copy of it, two processes with one name and one key, of which one is left in the end: it is reached."""

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.link import Link, PeerRestarted
from batonpass.actors.link.sessions import MAX_REPLACED
from tests.actors.link.network import Faults, Ids, Network
from tests.actors.link.scripts import joined
from tests.budget import examples

ORIGINAL: Final = 0


class Twins:
    """The processes that have beta's name. One at a time is on the network, as if the others were elsewhere."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._beta = network.beta
        self._lives: list[tuple[Link, Ids]] = [(network.beta.link, network.beta.ids)]

    def go_on(self, number: int) -> None:
        """This one is there from now on; it is begun if it has never been."""
        self._lives += [self._begun() for _ in range(number - len(self._lives) + 1)]
        self._beta.link, self._beta.ids = self._lives[number]

    def _begun(self) -> tuple[Link, Ids]:
        self._beta.start(self._network.now)
        return self._beta.link, self._beta.ids

    def exchange(self, text: bytes, limit_s: float = 300.0) -> None:
        """Something is sent both ways, and arrives."""
        network = self._network
        for node in network.nodes:
            network.send(node, text)
        network.run(
            lambda: all(any(message.data == text for message in node.received) for node in network.nodes),
            limit_s=limit_s,
        )


def test_who_was_left_alone_by_a_copy_is_reached_again_and_nothing_it_sends_is_lost() -> None:
    network = joined(Network())
    twins = Twins(network)
    for number in range(20):
        twins.exchange(b"before %d" % number)
    twins.go_on(1)
    twins.exchange(b"by the copy")
    twins.go_on(ORIGINAL)
    network.alpha.received.clear()
    network.beta.received.clear()
    for number in range(20):
        twins.exchange(b"after %d" % number)
    for node in network.nodes:
        # What was not acknowledged before the copy came may arrive once more, as after every restart.
        arrived = dict.fromkeys(message.data for message in node.received if message.data.startswith(b"after"))
        assert list(arrived) == [b"after %d" % number for number in range(20)]
    assert PeerRestarted() in network.beta.events, "it is told that alpha has forgotten it"


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32), st.lists(st.integers(0, 3), max_size=6), st.floats(0, 0.2), st.floats(0.0, 20.0))
def test_whichever_of_them_is_left_is_reached(seed: int, order: list[int], lose: float, pause_s: float) -> None:
    network = joined(Network(seed, Faults(lose=lose)))
    twins = Twins(network)
    for step, number in enumerate(order):
        twins.go_on(min(number, len(twins._lives)))
        network.send(network.beta, b"here I am, %d" % step)
        network.run_for(pause_s)
    for number in range(3):
        twins.exchange(b"now %d" % number)


@pytest.mark.parametrize("copies", [MAX_REPLACED - 1, MAX_REPLACED, MAX_REPLACED + 1, 2 * MAX_REPLACED + 1])
def test_however_many_others_there_were_meanwhile(copies: int) -> None:
    network = joined(Network())
    twins = Twins(network)
    for number in range(1, copies + 1):
        twins.go_on(number)
        twins.exchange(b"copy %d" % number)
    assert len(network.alpha.link._sessions._replaced) <= MAX_REPLACED
    twins.go_on(ORIGINAL)
    twins.exchange(b"the first one")
