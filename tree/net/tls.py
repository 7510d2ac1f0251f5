"""One TLS 1.3 session without I/O: ciphertext in, plaintext out, and the other way round.

Used instead of `trio.SSLStream` for two reasons. A failed handshake leaves its alert in `outgoing()`, so that the peer
learns that it was refused instead of seeing a broken connection. And bytes are encrypted in plain calls: what a tick
has to say goes out in one write, without a lock per message.
"""

import ssl
from typing import Final

__all__ = ["TlsFailed", "TlsSession"]

_READ_BYTES: Final = 256 * 1024


class TlsFailed(Exception):
    """The session is broken: the peer is not who it has to be, or the bytes were tampered with.

    `by_peer` tells that it was the peer who refused (it sent an alert).
    """

    def __init__(self, reason: str, *, by_peer: bool) -> None:
        super().__init__(reason)
        self.by_peer: Final = by_peer


class TlsSession:
    """One end of a session. After every call, whatever `outgoing` returns has to be sent."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        self._tls: Final = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self.established = False

    def outgoing(self) -> bytes:
        """The ciphertext to be sent now."""
        return self._outgoing.read()

    def feed_untrusted(self, ciphertext: bytes) -> bytes:
        """Take what arrived and return the plaintext in it; continues the handshake first. Raises `TlsFailed`."""
        if ciphertext:
            self._incoming.write(ciphertext)
        plaintext = []
        try:
            if not self.established:
                self._tls.do_handshake()
                self.established = True
            while chunk := self._tls.read(_READ_BYTES):
                plaintext.append(chunk)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            raise TlsFailed(reason, by_peer="ALERT" in reason) from error
        return b"".join(plaintext)

    def encrypt(self, plaintext: bytes) -> None:
        """Add plaintext to what `outgoing` returns."""
        self._tls.write(plaintext)

    @property
    def peer_uris(self) -> tuple[str, ...]:
        """The URIs in the peer's verified certificate."""
        certificate = self._tls.getpeercert() or {}
        names = certificate.get("subjectAltName", ())
        return tuple(name[1] for name in names if isinstance(name, tuple) and len(name) == 2 and name[0] == "URI")
