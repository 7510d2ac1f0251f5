"""Peers of which a node hears nothing: they may be elsewhere by now, as their rows in the directory say."""

from typing import Final

from batonpass.actors.link import Event, LinkExpired, PeerReachable, PeerUnreachable
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["SilentPeers"]

MAX_SILENT: Final = 100_000


class SilentPeers:
    """What the link of a node calls unreachable, until it hears them again."""

    def __init__(self) -> None:
        self._silent: LruTable[str, None] = LruTable(MAX_SILENT)

    def watching(self, endpoint: LinkEndpoint) -> LinkEndpoint:
        """Learn of silence from this endpoint, which is new: what another one said does not count any more."""
        self._silent.clear()
        endpoint.listen(self.on_news)
        return endpoint

    def on_news(self, peer: str, event: Event) -> None:
        """The link says how it stands with a peer."""
        match event:
            case PeerUnreachable():
                self.doubt(peer)
            case PeerReachable() | LinkExpired():
                self.heard(peer)
            case _:
                pass

    def doubt(self, peer: str) -> None:
        """It does not answer: until it is heard, it may be elsewhere."""
        self._silent[peer] = None

    def heard(self, peer: str) -> None:
        """It is there."""
        self._silent.pop(peer, None)

    def __contains__(self, peer: str) -> bool:
        return peer in self._silent
