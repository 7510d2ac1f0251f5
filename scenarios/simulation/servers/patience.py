"""Groups that wait for their last member for seconds less than real ones do, as leases are shorter, too.

A group of which one member is never frozen keeps the others frozen until its time is over. With the ten seconds of real
ones that is most of what a run would wait for in the end. It is longer than all of its faults last.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.procedures.group_table import GROUP_LIFETIME_S

__all__ = ["GROUP_S", "impatient"]

GROUP_S: Final = 4
"""A few retries of the servers that are to freeze its members; a notice before is added to it."""
_LESS_S: Final = GROUP_LIFETIME_S - GROUP_S
# A move of several is begun by the player who asks for it, or, with the rule `ask`, by the master who says yes.
_PROPOSING: Final = ("group.propose", "transfer.propose", "transfer.answer")

_Procedure = Callable[[Any, Any], Any]


class _ImpatientRows:
    """A transaction in which groups that are made have less time."""

    def __init__(self, rows: Any) -> None:
        self._rows: Final = rows
        self.get_or: Final = rows.get_or
        self.delete: Final = rows.delete
        self.count_children: Final = rows.count_children

    def put(self, path: tuple[str, ...], data: Any) -> Any:
        """As `Rows.put`."""
        if path[0] == "groups" and self.get_or(path, None) is None:
            data = {**data, "expires_at_s": data["expires_at_s"] - _LESS_S}
        return self._rows.put(path, data)


def impatient(procedures: Mapping[str, _Procedure]) -> dict[str, _Procedure]:
    """The same procedures, of which those that make groups give them `GROUP_S`."""

    def hurried(procedure: _Procedure) -> _Procedure:
        return lambda rows, args: procedure(_ImpatientRows(rows), args)

    return {name: hurried(one) if name in _PROPOSING else one for name, one in procedures.items()}
