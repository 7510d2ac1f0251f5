"""Names of servers and ids of transfers, as they appear in signed bytes.

Only visible ASCII without quote and backslash is allowed. So a name has exactly one encoding in JSON, in a handshake
transcript and in a log line. The size of a header is bounded by the number of its fields.
"""

import re
from typing import Final

MAX_NAME_BYTES: Final = 128
"""Long enough for `instance.role` names and for UUIDs with a prefix; short enough to bound every header."""

_NAME: Final = re.compile(r"[!#-\[\]-~]{1,128}", re.ASCII)


def is_name(value: object) -> bool:
    """Whether `value` may stand for a server, a key or a transfer: 1 to 128 visible ASCII characters, no `"`
    or `\\`."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def are_names(*values: object) -> bool:
    """Whether each of these is one, by one call: a message has several."""
    for value in values:  # noqa: SIM110 -- a generator costs as much as what it saves
        if not isinstance(value, str) or _NAME.fullmatch(value) is None:
            return False
    return True


def require_name(what: str, value: str) -> str:
    """Return `value`, or raise ValueError naming `what` it was meant to be. For values of our own making."""
    if not is_name(value):
        raise ValueError(
            f"{what} {value!r:.160} is not a name: use 1 to {MAX_NAME_BYTES} visible ASCII characters "
            'without spaces, quotes (") and backslashes'
        )
    return value
