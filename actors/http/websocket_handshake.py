"""The opening handshake of a WebSocket (RFC 6455, section 4.2): who may have one, and what it is answered. No I/O."""

import binascii
from base64 import b64decode
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11
from wsproto.utilities import generate_accept_token

__all__ = [
    "ANY_ORIGIN",
    "HandshakeProblem",
    "asks_for_websocket",
    "may_ask",
    "offered_subprotocols",
    "problem_of",
    "switching",
]

ANY_ORIGIN: Final = "*"
_VERSION: Final = b"13"
_KEY_BYTES: Final = 16
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class HandshakeProblem(NamedTuple):
    """Why there is no WebSocket: status, code and sentence of the answer, and its headers."""

    status: int
    code: str
    message: str
    headers: Sequence[tuple[str, str]] = ()


def asks_for_websocket(request: h11.Request) -> bool:
    """Whether this is an opening handshake, good or not."""
    return (
        request.method == b"GET"
        and b"websocket" in _tokens(request, b"upgrade")
        and b"upgrade" in _tokens(request, b"connection")
    )


def problem_of(request: h11.Request, origins: Collection[str]) -> HandshakeProblem | None:
    """What is wrong with an opening handshake; None if it may be passed on to an application.

    A browser says in `Origin` whose page asks. That has to be this server's own, by the `Host` of the request, or one
    of `origins` (as `https://game.example`; `*` is any). Else any page could use the WebSocket with all that a
    visitor's browser may do here. A client that is no browser sends no `Origin` and is let in.
    """
    names = {name for name, _ in request.headers}
    if request.http_version != b"1.1" or names & {b"content-length", b"transfer-encoding"}:
        return HandshakeProblem(400, "bad_handshake", "a WebSocket begins with a GET of HTTP/1.1 without a body")
    if _values(request, b"sec-websocket-version") != [_VERSION]:
        headers = [("sec-websocket-version", _VERSION.decode())]
        return HandshakeProblem(
            426, "websocket_version", "this server speaks version 13 of WebSocket (RFC 6455)", headers
        )
    keys = _values(request, b"sec-websocket-key")
    if len(keys) != 1 or not _is_key(keys[0]):
        return HandshakeProblem(400, "bad_handshake", "Sec-WebSocket-Key is 16 bytes in base64, given once")
    return _problem_of_origin(request, origins)


def offered_subprotocols(request: h11.Request) -> list[str]:
    """What the client speaks over the WebSocket, the dearest first."""
    lists = [value.decode("latin-1").split(",") for value in _values(request, b"sec-websocket-protocol")]
    return [name.strip() for names in lists for name in names if name.strip()]


def switching(request: h11.Request, subprotocol: str | None) -> h11.InformationalResponse:
    """The answer that turns the connection into a WebSocket, without any extension."""
    (key,) = _values(request, b"sec-websocket-key")
    headers = [
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", generate_accept_token(key)),
    ]
    if subprotocol is not None:
        headers.append((b"sec-websocket-protocol", subprotocol.encode("latin-1")))
    return h11.InformationalResponse(status_code=101, headers=headers, reason=b"Switching Protocols")


def _problem_of_origin(request: h11.Request, origins: Collection[str]) -> HandshakeProblem | None:
    given, hosts = ([value.decode("latin-1") for value in _values(request, name)] for name in (b"origin", b"host"))
    if may_ask(given, hosts, origins):
        return None
    text = "a page of another origin may not open a WebSocket here, unless this server is told so"
    return HandshakeProblem(403, "origin_refused", text)


def may_ask(given: Sequence[str], hosts: Sequence[str], origins: Collection[str]) -> bool:
    """Whether a request may be taken by its `Origin`: it has none, or one of `origins`, or that of its `Host`."""
    if not given or ANY_ORIGIN in origins:
        return True
    return len(given) == 1 and (given[0] in origins or _is_of_host(given[0], hosts))


def _is_of_host(origin: str, hosts: Sequence[str]) -> bool:
    try:
        page = urlsplit(origin)
        port = _DEFAULT_PORTS[page.scheme] if page.port is None else page.port
        here = urlsplit(f"{page.scheme}://{hosts[0]}")
        here_port = _DEFAULT_PORTS[page.scheme] if here.port is None else here.port
    except (ValueError, KeyError, IndexError):
        return False
    return page.hostname is not None and (page.hostname, port) == (here.hostname, here_port)


def _is_key(value: bytes) -> bool:
    try:
        return len(b64decode(value, validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False


def _values(request: h11.Request, wanted: bytes) -> list[bytes]:
    return [value for name, value in request.headers if name == wanted]


def _tokens(request: h11.Request, name: bytes) -> set[bytes]:
    return {token.strip().lower() for value in _values(request, name) for token in value.split(b",")}
