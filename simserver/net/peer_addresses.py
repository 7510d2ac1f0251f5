"""Where other servers and players are: whence they last sent, unless they have been silent since.

A server may be started again at another address. A server that has nothing to say to us does not tell us so. Its link
is silent, or it does not answer what it is asked. Then its row in the directory counts, which it wrote when it came.
"""

from typing import Final

from batonpass.actors.link import Event
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.net.silent_peers import SilentPeers
from batonpass.crypto.bounded_tables import FifoTable

__all__ = ["MAX_KNOWN_ADDRESSES", "PeerAddresses"]

MAX_KNOWN_ADDRESSES: Final = 100_000


class PeerAddresses:
    """What one simulation server has heard, and of which peers it hears nothing."""

    def __init__(self) -> None:
        self._heard: FifoTable[str, tuple[str, int]] = FifoTable(MAX_KNOWN_ADDRESSES)
        self._silent: Final = SilentPeers()

    def watching(self, endpoint: LinkEndpoint) -> LinkEndpoint:
        """As `SilentPeers.watching`."""
        return self._silent.watching(endpoint)

    def on_news(self, peer: str, event: Event) -> None:
        """As `SilentPeers.on_news`."""
        self._silent.on_news(peer, event)

    def heard_from(self, peer: str, address: tuple[str, int]) -> None:
        """Remember where an authenticated peer sends from."""
        self._silent.heard(peer)
        if self._heard.get(peer) != address:
            self._heard[peer] = address

    def doubt(self, peer: str) -> None:
        """As `SilentPeers.doubt`."""
        self._silent.doubt(peer)

    def is_silent(self, peer: str) -> bool:
        """Whether it has not answered for so long that it may be elsewhere by now, or nowhere."""
        return peer in self._silent

    def of_server(self, name: str) -> tuple[str, int] | None:
        """Where it is, unless the directory knows better."""
        return None if name in self._silent else self._heard.get(name)

    def last_of(self, name: str) -> tuple[str, int] | None:
        """Where it was last, silent or not. Of players no directory says more: they write, wherever they are now."""
        return self._heard.get(name)

    def forget(self, peer: str) -> None:
        """It cannot be reached there."""
        self._heard.pop(peer, None)
