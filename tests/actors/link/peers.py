"""Several peers of one endpoint, which share its budgets, on one clock; some of them hostile."""

from collections.abc import Callable

from batonpass.actors.link import LinkExpired, LinkSettings
from tests.actors.link.network import Network, Node, Transit

SETTINGS = LinkSettings(max_datagram_bytes=61_440)


class Peers:
    """`alpha` of each network is one peer, and `beta` the endpoint, its end of each link; `share` gives a node what
    the endpoint has for all."""

    def __init__(self, count: int, share: Callable[[Node], object]) -> None:
        self.networks = [Network(seed, settings=SETTINGS) for seed in range(count)]
        self.expired = [0] * count
        for network in self.networks:
            share(network.beta)
            network.beta.start(0.0)
            network.send(network.alpha, b"hello")
            network.run_for(1.0)

    def run_for(self, duration_s: float) -> None:
        """So much virtual time, in steps of 0.1 s."""
        for _ in range(round(duration_s / 0.1)):
            for number, network in enumerate(self.networks):
                network.run_for(0.1)
                if any(isinstance(event, LinkExpired) for event in network.beta.events):
                    self.expired[number] += 1
                    network.beta.events.clear()
                    network.beta.start(network.now)  # as the endpoint does: the next one there is a new link
            self.after_step()

    def after_step(self) -> None:
        """To look at what there is."""


def say(network: Network, body: bytes) -> None:
    """Alpha, which has good keys, says something that its link would not."""
    link = network.alpha.link
    if link._sessions.current is not None:
        datagram = link._sender.seal(link._sessions.current, body)
        network.put(Transit(network.alpha.address, network.beta.address, datagram))
