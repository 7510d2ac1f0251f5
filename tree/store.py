"""The store: a tree of nodes, each with an optional payload and versions that say whether it changed.

Semantics are Khepri's (https://github.com/rabbitmq/khepri), where they are stated:

* Both versions of a node start at 1. `payload_version` rises by one with every *change* of the payload (writing an
  equal value changes nothing); `child_list_version` rises by one with every child added or removed. A node deleted
  and made again starts over.
* Writing makes missing parents. Such parents have no payload, and go away with their last child unless they were
  given a payload.
* Deleting takes the whole subtree; deleting what does not exist is not an error. Deleting the root empties it.

Where we differ: a condition on a missing node is evaluated like any other (everything about its contents is false),
instead of being refused by its form; so `not if_payload_version(3)` may create.

Payloads are kept as canonical bytes: what a reader gets is its own copy, equality is exact, and the digest of two
equal trees is equal. Children are listed in the order of their names, so no result depends on history.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

from tree.conditions import Condition, IfDataMatches, IfNodeExists
from tree.data import decode, encode
from tree.errors import BadData, MismatchingNode, NodeNotFound
from tree.path import ROOT, Path, check_path
from tree.transaction import Transaction

__all__ = ["NodeView", "Store", "Written"]

T = TypeVar("T")


class _Node:
    """One node. `made_on_the_way` marks a parent that nobody asked for: it is reclaimed when it becomes useless."""

    __slots__ = ("child_list_version", "children", "encoded", "made_on_the_way", "payload_version")

    def __init__(self, *, made_on_the_way: bool) -> None:
        self.encoded: bytes | None = None
        self.payload_version = 1
        self.child_list_version = 1
        self.children: dict[str, _Node] = {}
        self.made_on_the_way = made_on_the_way


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as a reader sees it, at one moment."""

    encoded: bytes | None
    payload_version: int
    child_list_version: int
    child_count: int

    @property
    def has_data(self) -> bool:
        """Whether the node has a payload."""
        return self.encoded is not None

    @property
    def data(self) -> Any:
        """The payload, a fresh copy; None if there is none."""
        return None if self.encoded is None else decode(self.encoded)

    def to_data(self) -> dict[str, Any]:
        """As plain data: `data` (absent without payload), `payload_version`, `child_list_version`, `child_count`."""
        view: dict[str, Any] = {
            "payload_version": self.payload_version,
            "child_list_version": self.child_list_version,
            "child_count": self.child_count,
        }
        return {**view, "data": self.data} if self.has_data else view


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did to its node."""

    existed: bool
    previous_encoded: bytes | None
    payload_version: int

    @property
    def previous(self) -> Any:
        """The payload before the write; None if there was none."""
        return None if self.previous_encoded is None else decode(self.previous_encoded)


Undo = Callable[[], None]


class Store:
    """The tree itself. Operations take paths as tuples (or lists) of names and raise `TreeError`s.

    Every operation is atomic: it raises before it has changed anything. For several operations as one, use
    `transaction()`.
    """

    def __init__(self) -> None:
        self._root = _Node(made_on_the_way=False)
        self._node_count = 0  # without the root
        self._undo: list[Undo] | None = None

    # --- reading --------------------------------------------------------------------------------------------------

    def get(self, path: Path) -> Any:
        """The payload at `path` (None if the node has none), a fresh copy; raises `NodeNotFound`."""
        encoded = self._existing(path).encoded
        return None if encoded is None else decode(encoded)

    def get_or(self, path: Path, default: Any) -> Any:
        """The payload at `path`, or `default` if there is no such node or it has no payload."""
        node = self._find(path)
        return default if node is None or node.encoded is None else decode(node.encoded)

    def view(self, path: Path) -> NodeView | None:
        """The node with its versions, or None."""
        node = self._find(path)
        return None if node is None else _view(node)

    def exists(self, path: Path) -> bool:
        """Whether there is a node at `path`. The root always exists."""
        return self._find(path) is not None

    def children(self, path: Path) -> tuple[str, ...]:
        """The names of the children in order; raises `NodeNotFound`."""
        return tuple(sorted(self._existing(path).children))

    def count(self, path: Path) -> int:
        """How many children `path` has; 0 if it does not exist."""
        node = self._find(path)
        return 0 if node is None else len(node.children)

    def count_below(self, path: Path) -> int:
        """How many nodes there are below `path`, at any depth; 0 if it does not exist."""
        node = self._find(path)
        if node is self._root:
            return self._node_count
        return 0 if node is None else _size(node) - 1

    def fold(self, path: Path, function: Callable[[Path, NodeView, T], T], initial: T) -> T:
        """Call `function(path, node, accumulator)` on the node at `path` and all below it, parents before children.

        Siblings come in the order of their names. A missing node gives `initial`. The tree must not change meanwhile.
        """
        accumulator = initial
        start = self._find(path)
        if start is not None:
            for node_path, node in _walk(check_path(path), start):
                accumulator = function(node_path, _view(node), accumulator)
        return accumulator

    # --- writing --------------------------------------------------------------------------------------------------

    def put(self, path: Path, data: Any, condition: Condition | None = None) -> Written:
        """Set the payload at `path`, making the node and its parents if needed.

        Raises `NodeNotFound` or `MismatchingNode` if the condition does not hold.
        """
        path, encoded = check_path(path), encode(data)
        node = self._find(path)
        if condition is not None:
            _require(condition, path, node)
        return self._write(path, node, encoded)

    def create(self, path: Path, data: Any) -> Written:
        """Set the payload of a node that must not exist yet; raises `MismatchingNode`."""
        return self.put(path, data, IfNodeExists(False))

    def update(self, path: Path, data: Any) -> Written:
        """Set the payload of a node that must exist; raises `NodeNotFound`."""
        return self.put(path, data, IfNodeExists(True))

    def compare_and_swap(self, path: Path, expected: Any, data: Any) -> Written:
        """Replace the payload if it equals `expected`; raises `NodeNotFound` or `MismatchingNode`."""
        return self.put(path, data, IfDataMatches(expected))

    def clear_payload(self, path: Path) -> Written:
        """Remove the payload but keep the node while it is of use; a missing node stays missing (version 0)."""
        path = check_path(path)
        node = self._find(path)
        if node is None:
            return Written(existed=False, previous_encoded=None, payload_version=0)
        written = self._write(path, node, None)
        self._reclaim(path)
        return written

    def delete(self, path: Path, condition: Condition | None = None) -> int:
        """Remove the node and everything below it; how many nodes went away, useless parents included.

        A missing node, or one that does not meet the condition, is left alone and 0 is the answer. Deleting the root
        removes its payload and all children; the root itself and its versions stay.
        """
        path = check_path(path)
        node = self._find(path)
        if node is None or (condition is not None and not condition.holds(_view(node))):
            return 0
        before = self._node_count
        if path == ROOT:
            self._write(ROOT, node, None)
            for name in sorted(node.children):
                self._remove_child(node, name)
        else:
            self._remove_child(self._existing(path[:-1]), path[-1])
            self._reclaim(path[:-1])
        return before - self._node_count

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Several operations as one: all of them apply, or, if the block raises anything, none.

        What is written is seen by later reads of the same transaction. Transactions do not nest.
        """
        if self._undo is not None:
            raise RuntimeError("a transaction is open already; transactions do not nest")
        undo = self._undo = []
        transaction = Transaction(self)
        try:
            yield transaction
        except BaseException:
            while undo:
                undo.pop()()
            raise
        finally:
            self._undo = None
            transaction.end()

    # --- the whole tree -------------------------------------------------------------------------------------------

    def to_data(self) -> list[Any]:
        """The whole tree as plain data: one row per node, parents first, siblings in the order of their names."""
        return [[len(path), path[-1] if path else "", *_row(node)] for path, node in _walk(ROOT, self._root)]

    def restore(self, rows: Any) -> None:
        """Replace the whole tree by what `to_data` returned; raises `BadData` and changes nothing if it is not that."""
        root, count = _tree_from_rows(rows)
        self._root, self._node_count, self._undo = root, count, None

    def digest(self) -> bytes:
        """SHA-256 over the canonical bytes of the whole tree: equal for equal trees, whatever their history."""
        return sha256(encode(self.to_data())).digest()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _find(self, path: Path) -> _Node | None:
        node = self._root
        for name in path:
            child = node.children.get(name)
            if child is None:
                return None
            node = child
        return node

    def _existing(self, path: Path) -> _Node:
        node = self._find(path)
        if node is None:
            raise NodeNotFound(f"there is no node {'/'.join(path)}", {"path": list(path)})
        return node

    def _write(self, path: Path, node: _Node | None, encoded: bytes | None) -> Written:
        existed = node is not None
        if node is None:
            node = self._make(path)
        previous = node.encoded
        if previous != encoded:
            # The first payload of a new node is its version 1, not a change.
            self._set_payload(node, encoded, node.payload_version + 1 if existed else 1)
        return Written(existed=existed, previous_encoded=previous, payload_version=node.payload_version)

    def _make(self, path: Path) -> _Node:
        """A new node at `path`. Missing parents are made with their child in place, so all versions begin at 1."""
        parent, depth = self._root, 0
        while path[depth] in parent.children:
            parent = parent.children[path[depth]]
            depth += 1
        top = made = _Node(made_on_the_way=depth + 1 < len(path))
        for level in range(depth + 1, len(path)):
            child = _Node(made_on_the_way=level + 1 < len(path))
            made.children[path[level]] = child
            made = child
        self._add_child(parent, path[depth], top, len(path) - depth)
        return made

    def _reclaim(self, path: Path) -> None:
        """Remove the node at `path` if it is a useless parent, then its parent if that became one."""
        while path:
            node = self._find(path)
            if node is None or not node.made_on_the_way or node.encoded is not None or node.children:
                return
            self._remove_child(self._existing(path[:-1]), path[-1])
            path = path[:-1]

    # The three primitive changes; each knows its exact inverse, which is all that a rollback needs.

    def _set_payload(self, node: _Node, encoded: bytes | None, version: int) -> None:
        if self._undo is not None:
            old_encoded, old_version = node.encoded, node.payload_version

            def undo() -> None:
                node.encoded, node.payload_version = old_encoded, old_version

            self._undo.append(undo)
        node.encoded, node.payload_version = encoded, version

    def _add_child(self, parent: _Node, name: str, child: _Node, size: int) -> None:
        parent.children[name] = child
        parent.child_list_version += 1
        self._node_count += size
        if self._undo is not None:

            def undo() -> None:
                del parent.children[name]
                parent.child_list_version -= 1
                self._node_count -= size

            self._undo.append(undo)

    def _remove_child(self, parent: _Node, name: str) -> None:
        child = parent.children.pop(name)
        size = _size(child)
        parent.child_list_version += 1
        self._node_count -= size
        if self._undo is not None:

            def undo() -> None:
                parent.children[name] = child
                parent.child_list_version -= 1
                self._node_count += size

            self._undo.append(undo)


def _view(node: _Node) -> NodeView:
    return NodeView(node.encoded, node.payload_version, node.child_list_version, len(node.children))


def _require(condition: Condition, path: Path, node: _Node | None) -> None:
    view = None if node is None else _view(node)
    if condition.holds(view):
        return
    details: dict[str, Any] = {"path": list(path), "condition": condition.to_data()}
    if view is None:
        raise NodeNotFound(f"there is no node {'/'.join(path)}", details)
    raise MismatchingNode(f"the node {'/'.join(path)} is not as expected", {**details, "node": view.to_data()})


def _walk(path: Path, node: _Node) -> Iterator[tuple[Path, _Node]]:
    """The node and all below it, parents first, siblings by name; with a stack of its own instead of recursion."""
    pending = [(path, node)]
    while pending:
        path, node = pending.pop()
        yield path, node
        if node.children:
            pending.extend(((*path, name), node.children[name]) for name in sorted(node.children, reverse=True))


def _size(node: _Node) -> int:
    if not node.children:
        return 1
    return sum(1 for _ in _walk(ROOT, node))


# --- rows: the tree as plain data ---------------------------------------------------------------------------------


def _row(node: _Node) -> tuple[bytes | None, int, int, bool]:
    return (node.encoded, node.payload_version, node.child_list_version, node.made_on_the_way)


def _tree_from_rows(rows: Any) -> tuple[_Node, int]:
    """The root and the number of nodes below it; raises `BadData`."""
    branch: list[_Node] = []  # the nodes from the root down to the row read last
    if not isinstance(rows, list) or not rows:
        raise BadData("a tree has at least the row of its root")
    for row in rows:
        match row:
            case [int(depth), str(name), bytes() | None as encoded, int(payload_version), int(list_version), bool(way)]:
                if depth > len(branch) or (depth == 0) is not (not branch):
                    raise BadData(f"the row of {name!r} does not follow its parent")
            case _:
                raise BadData(f"not the row of a node: {row!r:.100}")
        node = _Node(made_on_the_way=way)
        node.encoded, node.payload_version, node.child_list_version = encoded, payload_version, list_version
        del branch[depth:]
        if branch:
            parent = branch[-1]
            check_path((name,))
            if name in parent.children:
                raise BadData(f"two rows for {name!r} under one parent")
            parent.children[name] = node
        branch.append(node)
    return branch[0], len(rows) - 1
