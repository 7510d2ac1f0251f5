"""Which addresses can be registered: where others are to find a server's link and REST.

A row of the directory is what a server said of itself, and servers of other instances read it, too. An address to which
nothing can be sent, or which is certainly no server of ours, is refused when it is registered (`bad_address`). To
servers that read it from elsewhere it is as good as none: that one peer cannot be reached then, and no other is
concerned.

A link is one UDP socket, which reaches one IP version: all links of an instance are of one.
"""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from batonpass.authority.model.records import DirectoryRow

__all__ = [
    "MAX_URL_CHARS",
    "BadAddress",
    "check_link",
    "check_server",
    "check_url",
    "ip_version",
    "with_usable_addresses",
]

MAX_URL_CHARS: Final = 256
_LOWEST_LINK_PORT: Final = 1024
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*", re.ASCII)
_URL: Final = re.compile(r"[!-~]+", re.ASCII)


class BadAddress(ValueError):
    """No server can be reached there; the sentence says why, and what to give."""


def ip_version(host: str) -> int:
    """4 or 6, of a numeric address to which a link can send. Raises `BadAddress`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        text = f"{host[:64]!r} is no numeric IP address: give the one at which others reach this server"
        raise BadAddress(text) from None
    _check_host(address, host)
    return address.version


def check_link(host: str, port: int) -> None:
    """Raise `BadAddress` unless a link of an IP version can send there: to a numeric address, and no system port."""
    ip_version(host)
    if not _LOWEST_LINK_PORT <= port < 1 << 16:
        text = f"{port} is no port for a link: give one from {_LOWEST_LINK_PORT} to 65535; those below are of services"
        raise BadAddress(text)


def check_server(rest_url: str, link_host: str, link_port: int, *, beside: str) -> None:
    """Raise `BadAddress` unless others of its instance can reach a server there; one has its link at host `beside`.

    Others would wait for it, or send to another server.
    """
    check_url(rest_url)
    check_link(link_host, link_port)
    if ip_version(link_host) != ipaddress.ip_address(beside).version:
        raise BadAddress(
            f"its link listens on {link_host}, and those of its homeservers are of the other IP version ({beside}), "
            "which a link cannot reach: give all servers of an instance one version"
        )


def check_url(url: str) -> None:
    """Raise `BadAddress` unless `url` is the base of a server's REST: a scheme, a host and perhaps a port, no more."""
    if len(url) > MAX_URL_CHARS or _URL.fullmatch(url) is None:
        raise BadAddress(f"{url[:64]!r} is no URL: give one of at most {MAX_URL_CHARS} ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadAddress(f"{url!r} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise BadAddress(f"{url!r} is no URL of a server: give one like http://10.0.0.1:7100")
    if "@" in parts.netloc or parts.path or parts.query or parts.fragment or "#" in url or "?" in url:
        raise BadAddress(f"{url!r} has more than scheme, host and port: give one like http://10.0.0.1:7100")
    if port == 0:
        raise BadAddress(f"{url!r} names port 0, at which no server listens")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if _HOST_NAME.fullmatch(host) is None or host.rpartition(".")[2].isdigit():
            raise BadAddress(f"{host[:64]!r} in {url!r} is neither a host name nor an IP address") from None
        return
    _check_host(address, host)


def _check_host(address: ipaddress.IPv4Address | ipaddress.IPv6Address, host: str) -> None:
    if address.is_unspecified:
        raise BadAddress(f"{host} is no address that others could send to: give the one of the network interface")
    if address.is_multicast or (address.version == 4 and address.is_reserved):
        raise BadAddress(f"{host} is no address of one server")
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or address.is_link_local:
            raise BadAddress(f"{host} means something on one machine alone: give a global or unique local address")
        if address.ipv4_mapped is not None:
            raise BadAddress(f"{host} is an IPv4 address in another form: give {address.ipv4_mapped}")


def with_usable_addresses(row: DirectoryRow) -> DirectoryRow:
    """The row of a server of whom others speak, without an address to which nothing can be sent."""
    changes: dict[str, str | int] = {}
    try:
        if row.rest_url:
            check_url(row.rest_url)
    except BadAddress:
        changes["rest_url"] = ""
    try:
        if row.link_host or row.link_port:
            check_link(row.link_host, row.link_port)
    except BadAddress:
        changes |= {"link_host": "", "link_port": 0}
    return row.changed(**changes) if changes else row
