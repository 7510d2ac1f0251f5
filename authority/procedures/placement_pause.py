"""Whether entities are moved from hot to cool servers just now: an operator may hold that still for the whole instance.

It is a row of the log, so it outlives the client that asked for it, and any leader. Drains, and moves that an owner, a
master or the world asks for, go on.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.model.rows import Rows

__all__ = ["BALANCE_PAUSE", "PLACEMENT_PROCEDURES"]

BALANCE_PAUSE: Final = "balance_pause"
"""The row with the Unix time in seconds since which nothing is balanced; there is none while it is."""


def placement_pause(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Balance nothing from `now_s` on; a pause that there is already stays as it is. Answers since when it lasts."""
    since_s = rows.get_or((BALANCE_PAUSE,), None)
    if since_s is None:
        since_s = args["now_s"]
        rows.put((BALANCE_PAUSE,), since_s)
    return since_s


def placement_resume(rows: Rows, args: Mapping[str, Any]) -> Any:
    """End the pause, if there is one. Answers since when it lasted, None if there was none."""
    since_s = rows.get_or((BALANCE_PAUSE,), None)
    if since_s is not None:
        rows.delete((BALANCE_PAUSE,))
    return since_s


PLACEMENT_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "placement.pause": placement_pause,
    "placement.resume": placement_resume,
}
