"""Reading CBOR that somebody else wrote, and that may hold more than plain data (states of worlds have sets and dates).

RFC 8949 has tags that say "the same as before": shared values (28, 29) and texts that are written once (25, 256).
`cbor2` follows them, so that 255 bytes can be a list of 2^28 members: whoever goes through it, shows it or writes it
again is busy for minutes, and stops all that its server simulates. Nothing here writes them. Without them a value has
no more members than its encoding has bytes.

What is plain data is read by `tree.data.decode_untrusted`, which refuses all tags. Worlds should read inputs with that.
"""

from typing import Any, Final, NoReturn

import cbor2

__all__ = ["loads_unshared"]

_SHARING: Final = (25, 28, 29, 256)
# What `cbor2` takes if it is not told.
_MAX_LEVELS: Final = 400


def _refuse(*_: Any) -> NoReturn:
    raise ValueError("values that refer to others are not taken")


_SEMANTICS: Final = dict.fromkeys(_SHARING, _refuse)


def loads_unshared(data: bytes, max_levels: int = _MAX_LEVELS) -> Any:
    """The value of these bytes, nested at most `max_levels` deep. Raises what `cbor2.loads` raises: many kinds."""
    return cbor2.loads(data, semantic_decoders=_SEMANTICS, max_depth=max_levels)
