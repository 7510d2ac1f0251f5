"""With which exit statuses a homeserver ends that must not continue; the process that started it may read them."""

from typing import Final

__all__ = ["REFUSED", "REMOVED"]

REFUSED: Final = 3
"""Its instance, its keeper or its disk refuses it; its log says why."""
REMOVED: Final = 4
"""Its instance has let it go: it is no member any more, and nothing is wrong with the others."""
