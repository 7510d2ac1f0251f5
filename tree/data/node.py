"""Nodes: what the tree is made of, what readers see of them, and their rows as plain data."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from batonpass.tree.data.data import decode
from batonpass.tree.data.path import ROOT, Path
from batonpass.tree.data.payload import has_data, procedure_name

__all__ = ["NO_CHILDREN", "Node", "NodeView", "rows_of", "view_of", "walk"]

# What every leaf has instead of a dict of its own; never written to.
NO_CHILDREN: Final[dict[str, "Node"]] = {}


class Node:
    """One node. `made_on_the_way` marks a parent that no command asked for: it is reclaimed when it becomes useless."""

    __slots__ = ("child_list_version", "children", "encoded", "made_on_the_way", "payload_version")

    def __init__(self, *, made_on_the_way: bool) -> None:
        self.encoded: bytes | None = None
        self.payload_version = 1
        self.child_list_version = 1
        self.children = NO_CHILDREN
        self.made_on_the_way = made_on_the_way

    @property
    def child_count(self) -> int:
        """How many children there are."""
        return len(self.children)

    def attach(self, name: str, child: "Node") -> None:
        """Put a child in its place; versions are the caller's business."""
        if self.children is NO_CHILDREN:
            self.children = {}
        self.children[name] = child

    def detach(self, name: str) -> "Node":
        """Take a child out; a node without children has no dict."""
        child = self.children.pop(name)
        if not self.children:
            self.children = NO_CHILDREN
        return child


class NodeView(NamedTuple):
    """A node as a reader sees it, at one moment."""

    encoded: bytes | None
    payload_version: int
    child_list_version: int
    child_count: int

    @property
    def has_payload(self) -> bool:
        """Whether the node has data or a stored procedure."""
        return self.encoded is not None

    @property
    def has_data(self) -> bool:
        """Whether the node has data."""
        return has_data(self.encoded)

    @property
    def data(self) -> Any:
        """The data, a fresh copy; None if there is none."""
        return decode(self.encoded) if self.encoded is not None and has_data(self.encoded) else None

    @property
    def procedure(self) -> str | None:
        """The name of the stored procedure; None if the payload is not one."""
        return procedure_name(self.encoded)

    def to_data(self) -> dict[str, Any]:
        """As plain data: `data` or `procedure` (neither without payload), the two versions, `child_count`."""
        view: dict[str, Any] = {
            "payload_version": self.payload_version,
            "child_list_version": self.child_list_version,
            "child_count": self.child_count,
        }
        if self.has_data:
            view["data"] = self.data
        elif self.has_payload:
            view["procedure"] = self.procedure
        return view


def view_of(node: Node) -> NodeView:
    """The node as it is now."""
    return NodeView(node.encoded, node.payload_version, node.child_list_version, len(node.children))


def walk(path: Path, node: Node) -> Iterator[tuple[Path, Node]]:
    """The node and all below it, parents first, siblings by name; with a stack of its own instead of recursion."""
    pending = [(path, node)]
    while pending:
        path, node = pending.pop()
        yield path, node
        if node.children:
            pending.extend(((*path, name), node.children[name]) for name in sorted(node.children, reverse=True))


# --- rows: nodes as plain data ------------------------------------------------------------------------------------


def rows_of(root: Node, keep_while: dict[Path, Any]) -> Iterator[list[Any]]:
    """One row per node: depth, name, payload bytes, both versions, made on the way, and keep_while if it has one."""
    for path, node in walk(ROOT, root):
        row = [
            len(path),
            path[-1] if path else "",
            node.encoded,
            node.payload_version,
            node.child_list_version,
            node.made_on_the_way,
        ]
        if path in keep_while:
            row.append(keep_while[path])
        yield row
