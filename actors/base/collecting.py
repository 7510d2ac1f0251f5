"""How often a server lets Python look for cyclic garbage.

Python looks whenever there are 700 containers more than the last time, and what is alive then is looked at again, soon
with everything else. A server that works for a hundred entities at one moment has many times that alive at that moment,
most of which is freed a few milliseconds later without anybody's looking.
"""

import gc
from typing import Final

__all__ = ["collect_seldom"]

_YOUNG: Final = 10_000
"""Looked through in less than a millisecond. What is garbage, and in cycles, waits that long: some megabytes."""


def collect_seldom() -> None:
    """Look for garbage only when there is much that is new; for the whole process."""
    _, middle, old = gc.get_threshold()
    gc.set_threshold(_YOUNG, middle, old)
