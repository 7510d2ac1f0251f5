"""The tree as rows, in slices: a view of one moment that is read while the tree keeps changing, and the way back.

A row is a node as plain data: depth, name, payload bytes, both versions, made on the way, and its keep_while if it has
one. Parents come before their children, so a depth and a name say where a node belongs.

`FrozenTree` copies on the first write, as Redis does with the pages of its forked child, but node by node. While it is
being read, the store tells it of the first change of each node, and it keeps what the node was. A node's row is kept
before its payload changes; its children one by one, as each is added or removed for the first time. Nodes made since
are in no child list that the view knows. Reading costs the same however much changes, and a write costs two lookups in
a dict more; without a view it costs one comparison.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from batonpass.tree.data.errors import BadData, TreeError
from batonpass.tree.data.node import NO_CHILDREN, Node
from batonpass.tree.data.path import MAX_DEPTH, Path, check_path
from batonpass.tree.store.keep_while import (
    KeepWhileIndex,
    Pairs,
    keep_while_from_data_untrusted,
    keep_while_to_data,
    resolve_pairs,
)

__all__ = ["BuiltTree", "FrozenTree", "Remains", "TreeBuilder"]

Row = list[Any]


class FrozenTree:
    """The tree as it was when this was made, for the one reader of `rows`. `keep_*` are called by the store."""

    def __init__(self, root: Node, node_count: int, kept: dict[Path, Pairs]) -> None:
        """`kept` is this view's own; `node_count` is the number of nodes below the root."""
        self._root: Final = root
        self._kept: Final = kept
        self._fields: Final[dict[Node, tuple[Any, ...]]] = {}
        self._children: Final[dict[Node, dict[str, Node | None]]] = {}
        self.node_count: Final = node_count

    def keep_fields(self, node: Node) -> None:
        """The node is about to change."""
        if node not in self._fields:
            self._fields[node] = _fields(node)

    def keep_child(self, parent: Node, name: str) -> None:
        """The child of this name is about to be added or removed."""
        self.keep_fields(parent)
        self._children.setdefault(parent, {}).setdefault(name, parent.children.get(name))

    def rows(self) -> Iterator[Row]:
        """All rows, the root's first. To be taken in slices, with any changes of the tree between two of them."""
        changed, kept = self._fields, self._kept
        yield self._with_kept([0, "", *_fields_of(self._root, changed)], ())
        names: list[str] = []
        levels = [self._children_of(self._root)]
        while levels:
            depth = len(levels)
            for name, node in levels[-1]:
                fields = changed.get(node)
                if fields is None:
                    fields = (node.encoded, node.payload_version, node.child_list_version, node.made_on_the_way)
                row = [depth, name, *fields]
                yield self._with_kept(row, (*names, name)) if kept else row
                if node.children or node in self._children:
                    names.append(name)
                    levels.append(self._children_of(node))
                    break
            else:
                levels.pop()
                del names[-1:]

    def _children_of(self, node: Node) -> Iterator[tuple[str, Node]]:
        """The children at the moment of the view. Taken now as a whole: what is added or removed later is not seen."""
        touched = self._children.get(node)
        if touched is None:
            return zip(list(node.children), list(node.children.values()), strict=True)
        children = [(name, child) for name, child in node.children.items() if name not in touched]
        children.extend((name, child) for name, child in touched.items() if child is not None)
        return iter(children)

    def _with_kept(self, row: Row, path: Path) -> Row:
        pairs = self._kept.get(path)
        return row if pairs is None else [*row, keep_while_to_data(pairs)]


def _fields(node: Node) -> tuple[Any, ...]:
    return (node.encoded, node.payload_version, node.child_list_version, node.made_on_the_way)


def _fields_of(node: Node, changed: dict[Node, tuple[Any, ...]]) -> tuple[Any, ...]:
    return changed[node] if node in changed else _fields(node)


class BuiltTree(NamedTuple):
    """What a store consists of; `node_count` is without the root."""

    root: Node
    node_count: int
    keep_while: KeepWhileIndex


class TreeBuilder:
    """Makes a tree of rows, as they come. After an error it must not be used any more."""

    def __init__(self) -> None:
        self._branch: list[Node] = []  # the nodes from the root down to the row read last
        self._names: list[str] = []
        self._keep_while: Final = KeepWhileIndex()
        self._count = 0

    def add_untrusted(self, rows: Any) -> None:
        """Take the next rows; raises `BadData` for anything that no tree has in this place."""
        if not isinstance(rows, list):
            raise BadData("the rows of a tree are a list")
        try:
            for row in rows:
                self._add(row)
        except (TypeError, ValueError) as error:
            raise BadData(f"not the row of a node: {error}") from error
        except TreeError as error:
            raise BadData(error.message) from error

    @property
    def count(self) -> int:
        """How many rows were taken."""
        return self._count

    def finish(self) -> BuiltTree:
        """The tree; raises `BadData` if there was no row."""
        if not self._branch:
            raise BadData("a tree has at least the row of its root")
        return BuiltTree(self._branch[0], self._count - 1, self._keep_while)

    def _add(self, row: Any) -> None:
        depth, name, encoded, payload_version, list_version, way, *kept = row
        branch = self._branch
        if not (
            type(depth) is int
            and type(name) is str
            and (encoded is None or type(encoded) is bytes)
            and type(payload_version) is int
            and type(list_version) is int
            and type(way) is bool
            and len(kept) <= 1
        ):
            raise BadData(f"not the row of a node: {row!r:.100}")
        if not (0 < depth <= len(branch) or (depth == 0 and not branch)) or depth > MAX_DEPTH:
            raise BadData(f"the row of {name!r} does not follow its parent")
        node = Node(made_on_the_way=way)
        node.encoded, node.payload_version, node.child_list_version = encoded, payload_version, list_version
        if branch:
            check_path((name,))
            del branch[depth:], self._names[depth - 1 :]
            parent = branch[-1]
            if name in parent.children:
                raise BadData(f"two rows for {name!r} under one parent")
            if parent.children is NO_CHILDREN:
                parent.children = {}
            parent.children[name] = node
            self._names.append(name)
        branch.append(node)
        self._count += 1
        if kept:
            path = tuple(self._names)
            self._keep_while.replace(path, resolve_pairs(path, keep_while_from_data_untrusted(kept[0])))


class Remains:
    """A tree that is not needed any more, taken apart in slices: a million nodes at once would take too long to
    free.
    """

    def __init__(self, root: Node) -> None:
        """No other may need `root` or anything below it."""
        self._pending = [root.children]

    def take_apart(self, at_most: int) -> bool:
        """Free about `at_most` nodes; whether there are more."""
        pending = self._pending
        for _ in range(at_most):
            if not pending:
                return False
            children = pending[-1]
            if children:
                _, node = children.popitem()
                if node.children:
                    pending.append(node.children)
            else:
                pending.pop()
        return True
