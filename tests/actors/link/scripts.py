"""What links say to each other in tests: faults of the network, and messages to be played."""

from hypothesis import strategies as st

from batonpass.actors.link import (
    LinkSettings,
)
from batonpass.actors.link.settings import MIN_DATAGRAM_BYTES
from tests.actors.link.network import Faults, Network, Node

SMALL = LinkSettings(window_messages=32, max_datagram_bytes=MIN_DATAGRAM_BYTES)


MESSAGES = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(0, 15),
        st.one_of(st.integers(0, 40), st.integers(0, 3000), st.integers(0, 120_000)),
        st.sampled_from([0.0, 0.0, 0.0005, 0.01, 0.3]),
    ),
    min_size=1,
    max_size=40,
)


FAULTS = st.builds(
    Faults,
    lose=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
    repeat=st.sampled_from([0.0, 0.1, 0.5]),
    corrupt=st.sampled_from([0.0, 0.05]),
    delay_s=st.sampled_from([0.00005, 0.001, 0.05, 0.4]),
    jitter_s=st.sampled_from([0.0, 0.002, 0.2]),
)


def sent_by(network: Network, node: Node, script: list[tuple[bool, int, int, float]]) -> dict[int, list[bytes]]:
    expected: dict[int, list[bytes]] = {channel: [] for channel in range(16)}
    for number, (from_alpha, channel, size, _) in enumerate(script):
        if from_alpha == (node is network.alpha):
            expected[channel].append(content(number, size))
    return expected


def content(number: int, size: int) -> bytes:
    return (number.to_bytes(4, "big") * (size // 4 + 1))[:size]


def play(network: Network, script: list[tuple[bool, int, int, float]]) -> None:
    for number, (from_alpha, channel, size, pause_s) in enumerate(script):
        network.send(network.alpha if from_alpha else network.beta, content(number, size), channel)
        network.run_for(pause_s)


def joined(network: Network) -> Network:
    network.send(network.alpha, b"hello")
    network.run(lambda: bool(network.beta.received) and network.is_quiet)
    return network
