"""Which servers take part in a show, as its controller knows them.

A node says again and again that it takes part, and is forgotten when it has been silent. Each of its lives has a number
of its own, so that no two senders ever use the same nonces with the key of an epoch. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batonpass.authority.wire.shows import MAX_SHOW_NODES

__all__ = ["SAID_AGAIN_NS", "SILENCE_NS", "NodeTable", "ShowPeer"]

SAID_AGAIN_NS: Final = 1_000_000_000
SILENCE_NS: Final = 5_000_000_000
"""A node that has not said for so long that it takes part is forgotten."""

_MAX_NUMBER: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ShowPeer:
    """A node: its number in the epoch, where its datagrams come from, and by which Ed25519 key it signs."""

    number: int
    host: str
    port: int
    public: bytes


class NodeTable:
    """Of one show and one epoch, bounded by `MAX_SHOW_NODES`; `revision` rises with every change."""

    def __init__(self, own_name: str, own: ShowPeer) -> None:
        self._own_name: Final = own_name
        self._peers: Final[dict[str, ShowPeer]] = {own_name: own}
        self._heard_ns: Final[dict[str, int]] = {}
        self._next = own.number + 1
        self.revision = 0

    @property
    def peers(self) -> Mapping[str, ShowPeer]:
        """By name; this server is among them."""
        return self._peers

    def took_over(self, peers: Mapping[str, ShowPeer], now_ns: int) -> None:
        """Know those whom the controller before has named, under new numbers, as if they had been heard now."""
        for name, peer in peers.items():
            self.heard(name, peer.host, peer.port, peer.public, now_ns)

    def heard(self, name: str, host: str, port: int, public: bytes, now_ns: int) -> bool:
        """A node takes part. Whether it may: there is room, and it is another server than this one."""
        known = self._peers.get(name)
        if name == self._own_name or (known is None and len(self._peers) >= MAX_SHOW_NODES):
            return False
        if known is None or (known.host, known.port, known.public) != (host, port, public):
            if self._next > _MAX_NUMBER:
                return False
            self._peers[name] = ShowPeer(self._next, host, port, public)
            self._next += 1
            self.revision += 1
        self._heard_ns[name] = now_ns
        return True

    def forget_silent(self, now_ns: int) -> list[str]:
        """Those that have been silent for too long, which are no nodes any more."""
        silent = [name for name, heard_ns in self._heard_ns.items() if now_ns - heard_ns > SILENCE_NS]
        for name in silent:
            del self._heard_ns[name], self._peers[name]
            self.revision += 1
        return silent
