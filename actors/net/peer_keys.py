"""Asking the key directory who peers are: because of a message for one, of a HELLO, or because time has passed."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, Protocol

import trio

from batonpass.actors.link import Address, Link
from batonpass.actors.link.strangers import LOOKUP_INTERVAL_S
from batonpass.crypto.bounded_tables import LruTable
from batonpass.crypto.keys import PublicIdentity
from batonpass.crypto.session import Hello

__all__ = ["LOOKUP_INTERVAL_S", "PeerDirectory", "PeerKeys"]

log = logging.getLogger("batonpass.actors.net.endpoint")

MAX_UNKNOWN_NAMES: Final = 1024
KEYS_REFRESH_S: Final = 30.0
"""Every peer's keys are looked up so often, so that a revocation is heard of although the peer opens no session."""

Knock = tuple[Hello, Address]
"""A HELLO that waits for the answer, and where it came from."""


class PeerDirectory(Protocol):
    """Who is who. Looked up at every handshake, so an implementation caches."""

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """The public keys of the server called `name`; None when there is no such server."""
        ...


class PeerKeys:
    """The look-ups of one endpoint, one at a time for each peer.

    `links` are the peers that the application wants. `on_keys(peer, keys, knock, now)` is told what was found, `on_end`
    that a look-up has ended, and `on_change` that the keys of a link are gone. `counters` counts what failed.
    """

    def __init__(
        self,
        name: str,
        directory: PeerDirectory,
        links: dict[str, Link],
        counters: Counter[str],
        *,
        on_keys: Callable[[str, PublicIdentity, Knock | None, float], None],
        on_end: Callable[[str], None],
        on_change: Callable[[Link], None],
    ) -> None:
        self._name = name
        self._directory = directory
        self._links = links
        self._counters = counters
        self._on_keys = on_keys
        self._on_end = on_end
        self._on_change = on_change
        self._under_way: dict[str, Knock | None] = {}
        self._unknown_until_s: LruTable[str, float] = LruTable(MAX_UNKNOWN_NAMES)
        self.looked_up_s: dict[str, float] = {}
        """When the keys of a peer came last."""
        self.nursery: trio.Nursery | None = None
        """Where look-ups run; without it, there are none."""

    def look_up(self, peer: str, knock: Knock | None, now: float) -> None:
        """Ask for the peer's keys, at most once in a while; then `on_keys` gets its HELLO, too."""
        if peer in self._under_way:
            self._under_way[peer] = knock or self._under_way[peer]
        elif self.nursery is not None:
            wait_s = self.looked_up_s.get(peer, -math.inf) + LOOKUP_INTERVAL_S - now
            # A peer that was looked up a moment ago may have changed its keys since then: not never, but later.
            if wait_s <= 0 or peer in self._links:
                self._under_way[peer] = knock
                self.nursery.start_soon(self._ask, peer, max(wait_s, 0.0))

    async def _ask(self, peer: str, wait_s: float) -> None:
        if wait_s > 0:
            await trio.sleep(wait_s)
        keys, is_answer = await self._keys_of(peer)
        while keys is None and self._wants(peer, is_answer):
            # The application wants this peer, which may still be registering; or the directory is away.
            await trio.sleep(LOOKUP_INTERVAL_S)
            keys, is_answer = await self._keys_of(peer)
        knock = self._under_way.pop(peer)
        self._on_end(peer)
        now = trio.current_time()
        if keys is not None:
            try:
                self._on_keys(peer, keys, knock, now)
            except Exception:  # of this peer's keys, or HELLO: the others continue
                log.exception("%s: the keys of %s could not be used", self._name, peer)
                self._counters["internal_errors"] += 1
        elif peer not in self._links:
            self._counters["dropped_unknown_peer"] += 1
            self._remember_unknown(peer, now)

    async def _keys_of(self, peer: str) -> tuple[PublicIdentity | None, bool]:
        """The peer's keys; and whether their absence is the directory's answer, and not its failure."""
        try:
            return await self._directory.keys_of(peer), True
        except Exception as error:  # whatever a directory fails with, the links to other peers continue
            log.warning("%s: the directory could not be asked for the keys of %s: %r", self._name, peer, error)
            self._counters["failed_lookups"] += 1
            return None, False

    def _wants(self, peer: str, is_answer: bool) -> bool:
        """Whether to ask again for keys that were not found."""
        link = self._links.get(peer)
        if link is None:
            return False
        if is_answer and link.peer_keys is not None:
            log.info("%s: the directory does not know %s any longer; its sessions end", self._name, peer)
            link.know_keys(None)
            self._on_change(link)
        return link.peer_keys is None

    async def keep_fresh(self) -> None:
        """Look all peers up, one after the other, for ever."""
        while True:
            peers: Collection[str] = list(self._links)
            for peer in peers:
                await trio.sleep(KEYS_REFRESH_S / len(peers))
                if peer in self._links:
                    self.look_up(peer, None, trio.current_time())
            if not peers:
                await trio.sleep(KEYS_REFRESH_S)

    def is_unknown(self, peer: str, now: float) -> bool:
        """Whether the directory has just said that there is no such peer."""
        return now < self._unknown_until_s.get(peer, -math.inf)

    def _remember_unknown(self, peer: str, now: float) -> None:
        self._unknown_until_s[peer] = now + LOOKUP_INTERVAL_S
