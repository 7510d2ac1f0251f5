"""A peer may delay acknowledgements by `max_ack_delay_s`; before that nobody asks again (RFC 9002, section 6.2.1)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link import LinkSettings
from batonpass.actors.link.settings import MIN_DATAGRAM_BYTES
from tests.actors.link.network import Faults, Network

SETTINGS = LinkSettings(max_datagram_bytes=MIN_DATAGRAM_BYTES)


def converse(one_way_s: float, ack_delay_s: float) -> Network:
    """Single messages, until the round trip is well known; each acknowledged so long after it has arrived."""
    network = Network(faults=Faults(delay_s=one_way_s), settings=replace(SETTINGS, ack_delay_s=ack_delay_s))
    for number in range(60):
        network.send(network.alpha, bytes([number]))
        network.run(lambda: network.is_quiet)
    assert len(network.beta.received) == 60
    return network


@given(st.floats(0.0, 0.1), st.floats(0.0, SETTINGS.max_ack_delay_s))
def test_a_delay_that_was_promised_causes_no_probe(one_way_s: float, ack_delay_s: float) -> None:
    network = converse(one_way_s, ack_delay_s)
    assert network.alpha.counters["retransmissions"] == 0
    assert network.alpha.counters["lost_datagrams"] == 0


@pytest.mark.parametrize("one_way_s", [0.0001, 0.005, 0.0075, 0.02])
def test_the_probe_timeout_is_a_round_trip_and_what_was_promised(one_way_s: float) -> None:
    recovery = converse(one_way_s, SETTINGS.ack_delay_s).alpha.link._recovery
    least_s = 2 * one_way_s + SETTINGS.max_ack_delay_s
    # Beside that only what the delay itself may add: to the smoothed time once, and four times as variation.
    most_s = least_s + 5 * SETTINGS.ack_delay_s
    assert max(least_s, SETTINGS.min_pto_s) <= recovery.probe_timeout_s <= max(most_s, SETTINGS.min_pto_s)


def test_a_delay_beyond_the_promise_widens_the_probe_timeout() -> None:
    """It is not taken off the measured time, whatever the peer says, so one that is always late is soon waited for."""
    network = converse(0.0075, 0.03)
    before = network.alpha.counters["retransmissions"]
    for number in range(20):
        network.send(network.alpha, bytes([number]))
        network.run(lambda: network.is_quiet)
    assert network.alpha.counters["retransmissions"] == before
