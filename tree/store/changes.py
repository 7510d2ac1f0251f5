"""Changes: what an operation did to its nodes, and what a commit did to the tree."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from batonpass.tree.data.data import decode, encode, encode_count
from batonpass.tree.data.node import Node, NodeView, view_of, walk
from batonpass.tree.data.path import Path
from batonpass.tree.data.payload import has_data

__all__ = ["Change", "Commit", "Effects", "Kind", "Observer", "Removal", "TouchReason", "Touched", "Written"]


class Kind(StrEnum):
    """What happened to a node. Watchers are told of all but `CHILDREN`."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    # Only its bookkeeping changed: the list of its children, or its keep_while.
    CHILDREN = "children"


class Change(NamedTuple):
    """The net effect of a commit on one node; `before` is None if it was made, `after` is None if it went away."""

    path: Path
    kind: Kind
    before: NodeView | None
    after: NodeView | None


class Commit(NamedTuple):
    """One operation, or one transaction, that changed something. Changes are in the order of their paths."""

    revision: int
    changes: tuple[Change, ...]


Observer = Callable[[Commit], None]


class TouchReason(StrEnum):
    """Why a node was touched by an operation: it was written, removed by it, or removed as a consequence."""

    WRITTEN = "written"
    EXPLICIT = "explicit"
    KEEP_WHILE = "keep_while"


class Touched(NamedTuple):
    """A node that an operation wrote or removed: `before` (None: it was made) and `after` (None: it is gone)."""

    before: NodeView | None
    after: NodeView | None
    reason: TouchReason

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "reason": str(self.reason),
            "before": None if self.before is None else self.before.to_data(),
            "after": None if self.after is None else self.after.to_data(),
        }


class Removal(NamedTuple):
    """A subtree that was taken out of the tree. Nothing changes it any more, so it is looked at when asked for."""

    path: Path
    node: Node
    reason: TouchReason
    # What those were before the operation that it changed before they went away.
    before: Mapping[Path, NodeView]
    # How many nodes went away.
    size: int

    def nodes(self) -> Iterator[tuple[Path, NodeView]]:
        """All that went away, as it was before the operation, parents first."""
        for path, node in walk(self.path, self.node):
            yield path, self.before.get(path) or view_of(node)


@dataclass(slots=True)
class Effects:
    """What an operation on any number of nodes did."""

    written: dict[Path, Touched]
    removals: tuple[Removal, ...]

    @property
    def touched(self) -> dict[Path, Touched]:
        """Every node written or removed, useless parents and what keep_while took included. Made when asked for."""
        touched = dict(self.written)
        for removal in self.removals:
            for path, view in removal.nodes():
                before = touched[path].before if path in touched else view
                touched[path] = Touched(before, None, removal.reason)
        return dict(sorted(touched.items()))

    @property
    def removed_count(self) -> int:
        """How many nodes went away."""
        return sum(removal.size for removal in self.removals)

    @property
    def touched_at_least(self) -> int:
        """How many nodes `touched` tells of, or less; known without making it."""
        return max(len(self.written), self.removed_count)

    @property
    def is_empty(self) -> bool:
        """Whether no node was meant by the operation."""
        return not self.written and not self.removals


# The fixed parts of a write's answer: a map of three, and its keys.
_EXISTED: Final = b"\xa3" + encode("existed")
_PREVIOUS: Final = encode("previous")
_PAYLOAD_VERSION: Final = encode("payload_version")


@dataclass(slots=True)
class Written:
    """What a write did to its one node, before anything that it caused. Versions are 0 where there was no node."""

    path: Path
    existed: bool
    previous_encoded: bytes | None
    previous_version: int
    encoded: bytes | None
    payload_version: int
    child_list_version: int
    child_count: int
    removals: tuple[Removal, ...] = ()
    # What became of its list of children until the operation was over: its version, and how many there are.
    list_after: tuple[int, int] | None = None

    def end(self, node: Node | None, removals: tuple[Removal, ...]) -> None:
        """The operation is over; `node` is the one that was written, None if it was made, without children."""
        self.removals = removals
        if node is not None and removals:
            self.list_after = (node.child_list_version, node.child_count)

    @property
    def previous(self) -> Any:
        """The data before the write; None if there was none."""
        encoded = self.previous_encoded
        return decode(encoded) if encoded is not None and has_data(encoded) else None

    def to_data(self) -> dict[str, Any]:
        """As plain data: {existed, previous, payload_version}."""
        return {"existed": self.existed, "previous": self.previous, "payload_version": self.payload_version}

    def to_bytes(self) -> bytes:
        """The bytes of `to_data`, put together around those of the previous data: an eighth of the work."""
        previous = self.previous_encoded
        return b"%b%b%b%b%b%b" % (
            _EXISTED,
            b"\xf5" if self.existed else b"\xf4",
            _PREVIOUS,
            previous if previous is not None and has_data(previous) else b"\xf6",
            _PAYLOAD_VERSION,
            encode_count(self.payload_version),
        )

    @property
    def touched_at_least(self) -> int:
        """How many nodes `touched` tells of, or less; known without making it."""
        return sum(removal.size for removal in self.removals)

    @property
    def touched(self) -> dict[Path, Touched]:
        """The node, and every node that went away in consequence. Made when asked for."""
        if not self.existed and self.payload_version == 0:
            return {}
        before = after = None
        if self.existed:
            before = NodeView(self.previous_encoded, self.previous_version, self.child_list_version, self.child_count)
        list_after = self.list_after or (self.child_list_version, self.child_count)
        after = NodeView(self.encoded, self.payload_version, *list_after)
        return Effects({self.path: Touched(before, after, TouchReason.WRITTEN)}, self.removals).touched
