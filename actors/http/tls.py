"""TLS under the HTTP server: a stream that encrypts, and the contexts of both ends (RFC 8446).

Only TLS 1.3 is spoken: every client of batonpass has it, and so has every browser that a page supports.
"""

import logging
import ssl
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import trio

from batonpass.crypto.key_files import read_private

__all__ = ["ServerContext", "TlsStream", "secured_by", "server_context"]

_log = logging.getLogger("batonpass.actors.http.tls")


ServerContext = ssl.SSLContext


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What a server proves itself by.

    Args:
        certificate: a file in PEM: its own certificate, and those between it and the authority.
        key: a file in PEM with its private key, which is for this user alone.

    Raises:
        OSError: a file cannot be read; `ssl.SSLError` if they do not fit or are none.
        KeyFileError: others can read the key.
    """
    read_private(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    return context


class TlsStream(trio.abc.HalfCloseableStream):
    """One connection of a server, encrypted."""

    def __init__(self, transport: trio.SocketStream, context: ssl.SSLContext) -> None:
        self._transport: Final = transport
        # Clients of HTTP close without a farewell, and what HTTP says has its own end.
        self._tls: Final = trio.SSLStream(transport, context, server_side=True, https_compatible=True)

    async def do_handshake(self) -> None:
        """Agree on keys. Raises trio.BrokenResourceError if the peer does not want what this end offers."""
        await self._tls.do_handshake()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As of every stream."""
        await self._tls.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """As of every stream."""
        await self._tls.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """As of every stream."""
        return await self._tls.receive_some(max_bytes)

    async def send_eof(self) -> None:
        """Nothing more is sent. The transport says so: TLS has no end of one direction that all clients know."""
        await self._transport.send_eof()

    async def aclose(self) -> None:
        """As of every stream."""
        await self._tls.aclose()


async def secured_by(
    context: ssl.SSLContext, stream: trio.SocketStream, patience: AbstractContextManager[None]
) -> TlsStream | None:
    """A connection by TLS; None, and closed, if its peer speaks none, or has not agreed on keys within `patience`."""
    secured = TlsStream(stream, context)
    try:
        with patience:
            await secured.do_handshake()
    except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
        _log.debug("a connection is given up before its first request: %r", error)
        await trio.aclose_forcefully(stream)
        return None
    return secured
