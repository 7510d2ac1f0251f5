"""The links of one endpoint: how many there may be, and what each is made with.

Where a datagram belongs: the session ids of an endpoint, and whose they are.
"""

import ipaddress
import random
import socket
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.actors.link import Address, Link, LinkFull, LinkSettings
from batonpass.actors.link.gate import HandshakeGate
from batonpass.actors.link.large import LargeBudget
from batonpass.actors.link.settings import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES
from batonpass.actors.link.unfinished import UnfinishedBudget
from batonpass.actors.net.datagrams import is_loopback_path
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.crypto.keys import Identity
from batonpass.crypto.names import require_name

__all__ = ["EndpointSessionIds", "LinkSessionIds", "LinkTable", "family_of"]


class EndpointSessionIds:
    """All of one endpoint. Random numbers, so that a restarted one does not take its former self's datagrams."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.links: dict[int, Link | None] = {}

    def allocate(self) -> int:
        """A number from 1 to 2**32 - 1 that is not in use."""
        while True:
            session_id = self._rng.getrandbits(32)
            if session_id and session_id not in self.links:
                self.links[session_id] = None
                return session_id

    def release(self, session_id: int) -> None:
        """The number may be used again."""
        self.links.pop(session_id, None)


class LinkSessionIds:
    """Those of one link, which is told to them as soon as it exists."""

    def __init__(self, ids: EndpointSessionIds) -> None:
        self._ids = ids
        self.link: Link | None = None

    def allocate(self) -> int:
        """As of all."""
        session_id = self._ids.allocate()
        self._ids.links[session_id] = self.link
        return session_id

    def release(self, session_id: int) -> None:
        """As of all."""
        self._ids.release(session_id)


_MAX_LINKS: Final = 4096
"""Peers known to the directory, so this bounds a mistake and not an attack."""

_CROWDED_LINKS: Final = _MAX_LINKS // 2
"""From this number of links on, one is made only for a HELLO that shows a fresh cookie, and so is no recording."""


class LinkTable:
    """`links` by the peer's name. `claimed` are the channels that parts of the program take for themselves; `gate` is
    what all links have together to answer HELLOs.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        host: str,
        *,
        rng: random.Random,
        settings: LinkSettings,
        counters: Counter[str],
        ids: EndpointSessionIds,
        gate: HandshakeGate,
        claimed: Collection[int],
    ) -> None:
        self._name = name
        self.identity = identity
        """What new links prove this endpoint's name with."""
        self._host = host
        self.family: Final = family_of(host)
        """The IP version of all of them."""
        self._rng = rng
        self.settings = settings
        """What new links are made with, as far as their path allows."""
        self._counters = counters
        self._ids = ids
        self._gate = gate
        self._claimed = claimed
        self._usable: FifoTable[Address, None] = FifoTable(_MAX_LINKS)
        self._large_budget = LargeBudget()
        self._unfinished_budget = UnfinishedBudget()
        self.links: Final[dict[str, Link]] = {}

    @property
    def is_crowded(self) -> bool:
        """A link is made only for a HELLO that shows a fresh cookie."""
        return len(self.links) >= _CROWDED_LINKS

    @property
    def is_full(self) -> bool:
        """No link is made any more."""
        return len(self.links) >= _MAX_LINKS

    def require_usable(self, address: Address) -> None:
        """Raises ValueError unless this endpoint can send to `address`: a numeric one of its IP version, and a port."""
        if address in self._usable:
            return
        host, port = address
        if family_of(host) != self.family:
            raise ValueError(f"{host} is of another IP version than this endpoint's {self._host}")
        if not 0 < port < 1 << 16:
            raise ValueError(f"{port} is no port")
        self._usable[address] = None

    def make(self, peer: str, address: Address, now: float) -> Link:
        """A link to a peer that has none. Raises LinkFull, or ValueError when `peer` is not a name."""
        require_name("peer", peer)
        if self.is_full:
            raise LinkFull(f"{len(self.links)} peers are as many as one endpoint talks to")
        ids = LinkSessionIds(self._ids)
        link = Link(
            name=self._name,
            identity=self.identity,
            peer=peer,
            incarnation=self._rng.getrandbits(64),
            ids=ids,
            new_ephemeral=_new_ephemeral,
            settings=self._settings_for(address),
            counters=self._counters,
            now=now,
            large_budget=self._large_budget,
            unfinished_budget=self._unfinished_budget,
            gate=self._gate,
            settings_for=self._settings_for,
        )
        for channel in self._claimed:
            link.claim(channel)
        ids.link = self.links[peer] = link
        return link

    def _settings_for(self, address: Address) -> LinkSettings:
        path_bytes = _datagram_bytes(self.family, address)
        is_loopback = is_loopback_path(self.family, address)
        return replace(
            self.settings,
            max_datagram_bytes=min(path_bytes, self.settings.max_datagram_bytes),
            tolerated_loss=max(
                self.settings.tolerated_loss, self.settings.loopback_tolerated_loss if is_loopback else 0.0
            ),
        )


def _new_ephemeral() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def family_of(host: str) -> socket.AddressFamily:
    """The IP version of a numeric address. Raises ValueError for anything else."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError as error:
        raise ValueError(f"{host!r} is not a numeric IP address; resolve names before they come here") from error
    return socket.AF_INET if version == 4 else socket.AF_INET6


def _datagram_bytes(family: socket.AddressFamily, address: Address) -> int:
    """The largest datagram for the path: the kernel's MTU tells loopback from everything else."""
    return MAX_DATAGRAM_BYTES if is_loopback_path(family, address) else MIN_DATAGRAM_BYTES
