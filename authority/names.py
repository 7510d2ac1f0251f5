"""Names of instances, servers, players and entities.

A qualified name is `instance.local`, for example `alpha.h1` (a homeserver), `alpha.s2` (a simulation server),
`alpha.ada` (a player) or `alpha.ball-7` (an entity). The instance is where the directory row or ownership record lives,
so every name says whom to ask. Names stand in URLs, tree paths and certificates, hence the plain alphabet.
"""

import re
from functools import lru_cache

__all__ = ["INSTANCE_PATTERN", "NAME_PATTERN", "BadName", "check_name", "instance_of"]

INSTANCE_PATTERN = r"^[a-z][a-z0-9-]{0,15}$"
NAME_PATTERN = r"^[a-z][a-z0-9-]{0,15}\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
_NAME = re.compile(NAME_PATTERN)


class BadName(ValueError):
    """A name is not of the form `instance.local`."""


# The same few names stand in every hop of every trace. Only names are kept, so an entry has at most 81 characters.
@lru_cache(maxsize=4096)
def check_name(name: str) -> str:
    """Return `name` if it is a qualified name.

    Raises:
        BadName: it is not; the message quotes it.
    """
    # `$` also matches before a trailing newline, which must not pass: names end up in paths and headers.
    if not _NAME.fullmatch(name):
        raise BadName(f"{name[:80]!r} is not a name like 'alpha.s1' (instance, a dot, letters, digits, - or _)")
    return name


def instance_of(name: str) -> str:
    """The instance that a qualified name belongs to."""
    return check_name(name).partition(".")[0]
