"""Which parts of the tree belong to the rows of authority, and that others do not write there.

The procedures of `authority.procedures.table` keep their invariants among these rows. A client that could write one of
them by its path could make itself the owner of everything. So writes of clients are checked before they become
commands, by the form of their patterns alone, whatever the tree holds. The first component must be a name, and not one
of these. Conditions of a keep_while are held to the same. Each is looked at again with every write of what it watches,
and rows of authority are written all the time.
"""

from collections.abc import Mapping
from typing import Final

from batonpass.tree.data.path import MAX_DEPTH, Path
from batonpass.tree.store.conditions import Condition, only_name
from batonpass.tree.store.keep_while import KeepWhile
from batonpass.tree.store.pattern import Pattern, resolve

__all__ = ["RESERVED_ROOTS", "PathReserved", "check_keep_while", "check_write", "is_reserved"]

RESERVED_ROOTS: Final = frozenset(
    {
        "asks",
        "balance_pause",
        "crossings",
        "departed",
        "drains",
        "enrolled",
        "entities",
        "farewells",
        "fence_floor",
        "group_order",
        "groups",
        "invitation_order",
        "invitations",
        "lease_office",
        "leases",
        "log_accepted",
        "log_alarm",
        "office_marks",
        "paces",
        "players",
        "recoveries",
        "regions",
        "servers",
        "tombstone_order",
        "tombstones",
        "transfer_order",
        "transfers",
    }
)


class PathReserved(Exception):
    """A client's write could touch rows of authority; `root` is the name at fault, None if it could be any."""

    def __init__(self, root: str | None, sentence: str) -> None:
        super().__init__(sentence)
        self.root: Final = root
        self.sentence: Final = sentence


def is_reserved(path: Path) -> bool:
    """Whether the node at this path is the root, or one of authority's."""
    return not path or path[0] in RESERVED_ROOTS


def check_write(pattern: Pattern) -> None:
    """Refuse a write to whatever matches, if that could be a row of authority.

    Raises:
        PathReserved: it could. BadPath, BadPattern: as `tree.store.pattern.resolve`.
    """
    _check(pattern, "written by clients")


def check_keep_while(target: Pattern, keep_while: KeepWhile) -> None:
    """Refuse conditions that watch rows of authority, for any node that `target`, which was checked, can match.

    Raises:
        PathReserved: one could. BadPath, BadPattern: as `tree.store.pattern.resolve`.
    """
    bases = _possible_bases(target)
    for pattern, _ in keep_while.items() if isinstance(keep_while, Mapping) else keep_while:
        for base in bases:
            _check(resolve(pattern, base), "watched by keep_while")


def _check(pattern: Pattern, done: str) -> None:
    resolved = resolve(pattern)
    root = None
    if resolved:
        first = resolved[0]
        root = first if isinstance(first, str) else only_name(first)
    if root is None:
        text = "the first component must be a name, so that it is certain that the rows of authority are left alone"
        raise PathReserved(None, text)
    if root in RESERVED_ROOTS:
        raise PathReserved(root, f"what is under {root!r} belongs to authority and cannot be {done}; use another root")


def _possible_bases(target: Pattern) -> list[Path]:
    """Paths of every depth that a node matching `target` can have: relative patterns go up from there."""
    resolved = resolve(target)
    first = resolved[0]
    root = first if isinstance(first, str) else only_name(first) or ""
    recursive = any(isinstance(component, Condition) and component.recursive for component in resolved)
    depths = range(len(resolved), MAX_DEPTH + 1) if recursive else [len(resolved)]
    return [(root, *["x"] * (depth - 1)) for depth in depths]
