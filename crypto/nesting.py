"""How deep JSON from strangers may be nested.

A reader takes what the stack still holds, about 990 levels. It hands that to the code that walks, writes or prints it
from further up the same stack. So what is nested deeper than any use is refused by its reader, and no other code has to
ask.
"""

from typing import Any, Final

__all__ = ["is_deeper"]

# What a JSON reader makes, and what a writer takes besides.
_CONTAINERS: Final = frozenset({list, dict, tuple})


def is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects lie more than this many levels in each other.

    It does not call itself, and takes a small part of the time that reading takes.
    """
    found = [value] if type(value) in _CONTAINERS else []
    for _ in range(levels):
        if not found:
            return False
        found = [
            inner
            for outer in found
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _CONTAINERS
        ]
    return bool(found)
