"""Under which names a server lets itself be asked (RFC 9110, section 7.2). No I/O.

A page on the web can have the name of its own server point to an address of a reader's loopback or network (DNS
rebinding). To the browser both are one origin then, and the page reads what any client there may read. The name in
`Host` is the page's still. So a server is asked under a numeric address, which no page can have as its own name,
`localhost`, or one of the names that it was given.
"""

import ipaddress
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import urlsplit

__all__ = ["ANY_HOST", "host_of", "hosts_of_origins", "is_allowed_host"]

ANY_HOST: Final = "*"
_LOCALHOST: Final = "localhost"


def host_of(authority: str) -> str | None:
    """The host of `host[:port]`, in lower case and without brackets or a last dot; None if it is none."""
    try:
        parts = urlsplit(f"//{authority}")
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if host is None or parts.netloc != authority or "@" in authority:
        return None
    return host.lower().removesuffix(".") or None  # urlsplit leaves what follows a "%" as it is


def is_allowed_host(authority: str, names: Collection[str]) -> bool:
    """Whether `authority` (`host[:port]`) is numeric, localhost, or of one of `names`, which are in lower case."""
    if ANY_HOST in names:
        return True
    host = host_of(authority)
    if host is None:
        return False
    if host in names or host == _LOCALHOST or host.endswith(f".{_LOCALHOST}"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def hosts_of_origins(origins: Iterable[str]) -> set[str]:
    """The hosts of origins such as `https://game.example`; whose pages may ask here are served here too, perhaps."""
    return {ANY_HOST if one == ANY_HOST else host_of(one.partition("://")[2]) or "" for one in origins}
