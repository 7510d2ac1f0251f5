"""Whose HELLOs lead to a session: those of peers that the directory knows, and that wrote them themselves.

A HELLO may come from any sender. One of a peer with a link is for that link. One of a stranger waits until the
directory has said whose it is, as far as `actors.link.strangers` allows, and gets a link only when it proves to be its
own.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from batonpass.actors.link import Address, Link
from batonpass.actors.link.frames import DatagramKind, write_header
from batonpass.actors.link.gate import HandshakeGate, HelloVerdict
from batonpass.actors.link.strangers import Strangers
from batonpass.actors.net.datagrams import Outbound
from batonpass.actors.net.link_table import LinkTable
from batonpass.actors.net.peer_keys import PeerDirectory, PeerKeys
from batonpass.crypto.keys import PublicIdentity
from batonpass.crypto.session import Hello, echo_cookie, prove_cookie, read_hello_untrusted
from batonpass.crypto.static_secrets import StaticSecrets

__all__ = ["HandshakeAdmission", "new_gate"]

_HANDSHAKES_PER_S: Final = 500.0
_HANDSHAKE_BURST: Final = 256.0
"""An answer to a HELLO costs about 0.2 ms, so a flood can take a tenth of a core."""


def new_gate(rng: random.Random) -> HandshakeGate:
    """What all links of an endpoint have together to answer HELLOs."""
    return HandshakeGate(rng.randbytes(32), rate_per_s=_HANDSHAKES_PER_S, burst=_HANDSHAKE_BURST, now=-math.inf)


class HandshakeAdmission:
    """See the module. `on_change` is told of links that may have something to send; `send` takes datagrams that are
    no link's. `peer_keys` asks the directory."""

    def __init__(
        self,
        name: str,
        directory: PeerDirectory,
        table: LinkTable,
        gate: HandshakeGate,
        counters: Counter[str],
        *,
        on_change: Callable[[Link], None],
        send: Callable[[Sequence[Outbound]], None],
    ) -> None:
        self._name = name
        self._table = table
        self._links = table.links
        self._counters = counters
        self._gate = gate
        self._mark = on_change
        self._send = send
        self._strangers = Strangers(-math.inf)
        self.peer_keys: Final = PeerKeys(
            name,
            directory,
            table.links,
            counters,
            on_keys=self._on_keys,
            on_end=self._strangers.end,
            on_change=on_change,
        )

    def forget(self) -> None:
        """This endpoint has another identity: what was computed with the old one is of no use."""
        self._strangers.forget()

    def on_hello(self, cookie: int, body: bytes, source: Address, now: float) -> Link | None:
        """The link that has taken the HELLO, and may have an answer. Raises Malformed.

        Budget: 15 us for one that its initiator did not write.
        """
        keys = self._table.identity.public
        hello = read_hello_untrusted(body, cookie=cookie, responder=self._name, responder_keys=keys)
        peer = hello.initiator
        if self.peer_keys.is_unknown(peer, now) or peer == self._name:
            self._counters["dropped_unknown_peer"] += 1
            return None
        link = self._links.get(peer)
        if link is None:
            self._on_hello_of_stranger(hello, source, now)
        elif link.peer_keys is None:
            self.peer_keys.look_up(peer, (hello, source), now)
        else:
            is_proved = link.on_hello(hello, now, source)
            # The peer may have new keys; those may be why this one does not fit.
            self.peer_keys.look_up(peer, None if is_proved else (hello, source), now)
            return link
        return None

    def _on_hello_of_stranger(self, hello: Hello, source: Address, now: float) -> None:
        peer = hello.initiator
        secrets = self._strangers.secrets_of(peer, now)
        if secrets is not None and hello.proves(secrets):
            self._welcome(secrets, hello, source, now)
            self.peer_keys.look_up(peer, None, now)
            return
        is_fresh = self._gate.is_fresh(hello, source, now)
        match self._strangers.judge(peer, source, now, is_fresh=is_fresh):
            case HelloVerdict.ANSWER:
                self._strangers.begin(peer, source, now, is_fresh=is_fresh)
                self.peer_keys.look_up(peer, (hello, source), now)
            case HelloVerdict.COOKIE:
                self._send_cookie(hello, source, None, now)
            case HelloVerdict.DROP:
                self._counters["dropped_lookup_rate" if secrets is None else "dropped_unproved"] += 1

    def _on_keys(self, peer: str, keys: PublicIdentity, hello: tuple[Hello, Address] | None, now: float) -> None:
        link = self._links.get(peer)
        if link is not None:
            self.peer_keys.looked_up_s[peer] = now
            link.know_keys(keys)
            if hello is not None:
                link.on_hello(hello[0], now, hello[1])
            self._mark(link)
        elif hello is not None:
            secrets = self._strangers.remember(peer, self._table.identity, keys, now)
            if hello[0].proves(secrets):
                self.peer_keys.looked_up_s[peer] = now
                self._welcome(secrets, *hello, now)
            else:
                self._counters["dropped_unproved"] += 1

    def _welcome(self, secrets: StaticSecrets, hello: Hello, source: Address, now: float) -> None:
        """A peer without a link has written this HELLO, now or when it was recorded."""
        is_fresh = self._gate.is_fresh(hello, source, now)
        verdict = self._gate.judge(now, is_fresh=is_fresh)
        if not is_fresh and self._table.is_crowded:
            verdict = HelloVerdict.COOKIE
        if verdict is HelloVerdict.COOKIE:
            self._send_cookie(hello, source, secrets, now)
        elif verdict is HelloVerdict.DROP or self._table.is_full:
            self._counters["dropped_handshake_rate"] += 1
        else:
            link = self._table.make(hello.initiator, source, now)
            link.know_keys(secrets.peer_keys)
            link.on_hello(hello, now, source)
            self._mark(link)

    def _send_cookie(self, hello: Hello, source: Address, secrets: StaticSecrets | None, now: float) -> None:
        self._counters["cookies_sent"] += 1
        header = write_header(DatagramKind.COOKIE, hello.session_id, self._gate.cookie(hello, source, now))
        proof = echo_cookie(header, hello.mac) if secrets is None else prove_cookie(secrets, hello, header)
        self._send([(header + proof, source)])
