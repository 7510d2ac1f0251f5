"""Queries: what can be asked of a tree of nodes, and which nodes a path or a pattern means.

The reading half of `tree.store.store`, where the meaning of paths, patterns and versions is stated.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from batonpass.tree.data.data import decode
from batonpass.tree.data.errors import MismatchingNode, NodeNotFound
from batonpass.tree.data.node import Node, NodeView, view_of, walk
from batonpass.tree.data.path import Path, check_path, is_plain_path
from batonpass.tree.data.payload import has_data
from batonpass.tree.data.work_budget import FREE_BYTES, steps_of_bytes
from batonpass.tree.store.conditions import Condition, check_condition
from batonpass.tree.store.keep_while import Pairs
from batonpass.tree.store.matching import find_matches
from batonpass.tree.store.mutable import MutableTree
from batonpass.tree.store.pattern import Pattern, one_node, resolve

__all__ = ["Queries"]

T = TypeVar("T")


class Queries:
    """Operations that change nothing. They take paths or patterns as tuples (or lists) and raise `TreeError`s.

    Within a command or a read that is bounded, each counts its work; see `tree.data.work_budget`.
    """

    def __init__(self) -> None:
        self._tree = MutableTree()

    # --- reading one node -----------------------------------------------------------------------------------------

    def get(self, path: Pattern) -> Any:
        """The data at `path` (None if the node has none), a fresh copy.

        Raises `NodeNotFound`, `MismatchingNode`, `PossiblyManyNodes`.
        """
        node: Node | None = self._tree.root
        try:
            for name in path:
                node = node.children[name]  # type: ignore[index, union-attr]  # what is no name is not found either
        except (KeyError, TypeError):
            node = None
        encoded = (node if node is not None and type(path) is tuple else self._one(path)).encoded
        if encoded is None or not has_data(encoded):
            return None
        if len(encoded) > FREE_BYTES:
            self._tree.effort.take(steps_of_bytes(len(encoded)))
        return decode(encoded)

    def get_or(self, path: Pattern, default: Any) -> Any:
        """The data at `path`, or `default` if there is no such node or it has no data. Raises `PossiblyManyNodes`."""
        node = self._at(path)
        if node is None or node.encoded is None or not has_data(node.encoded):
            return default
        self._tree.effort.take(steps_of_bytes(len(node.encoded)))
        return decode(node.encoded)

    def _at(self, path: Pattern) -> Node | None:
        """As `_find`; of plain names, as most paths are, without a look at what else they could mean."""
        node: Node | None = self._tree.root
        if type(path) is tuple:
            try:
                for name in path:
                    node = node.children.get(name)  # type: ignore[arg-type, union-attr]  # as in `get`
                    if node is None:
                        break
                else:
                    return node
            except TypeError:
                pass
            if is_plain_path(path):
                return None
        return self._find(path)

    def view(self, path: Pattern) -> NodeView | None:
        """The node with its versions, or None. Raises `PossiblyManyNodes`."""
        node = self._find(path)
        return None if node is None else view_of(node)

    def children(self, path: Pattern) -> tuple[str, ...]:
        """The names of the children in order; raises as `get` does."""
        children = self._one(path).children
        self._tree.effort.take_sorting(len(children))
        return tuple(sorted(children))

    def count_children(self, path: Pattern) -> int:
        """How many children `path` has; 0 if it does not exist. Raises `PossiblyManyNodes`."""
        node = self._find(path)
        return 0 if node is None else len(node.children)

    def count_below(self, path: Pattern) -> int:
        """How many nodes there are below `path`, at any depth; 0 if it does not exist. Raises `PossiblyManyNodes`."""
        node = self._find(path)
        if node is self._tree.root:
            return self._tree.node_count
        if node is None:
            return 0
        return self._tree.count_below(node)

    def keep_while(self, path: Path) -> Pairs:
        """What the node at `path` is kept while: absolute patterns and conditions; empty if nothing was stated."""
        return self._tree.kept.pairs.get(tuple(path), ())

    def made_on_the_way(self, path: Path) -> bool:
        """Whether the node at exactly this path is there for the nodes below it alone."""
        node = self._tree.lookup(path)
        return node is not None and node.made_on_the_way and node.encoded is None

    # --- reading many nodes ---------------------------------------------------------------------------------------

    def exists(self, pattern: Pattern) -> bool:
        """Whether a node matches. The root always exists."""
        if type(pattern) is tuple:
            # As most are: names alone. It takes as many steps as the search would: one for each node on the way.
            node, depth = self._tree.root, 0
            try:
                for name in pattern:
                    node = node.children[name]  # type: ignore[index]  # as in `get`
                    depth += 1
            except (KeyError, TypeError):
                if is_plain_path(pattern):
                    self._tree.effort.take(depth)
                    return False
            else:
                self._tree.effort.take(depth)
                return True
        return next(self._matches(pattern), None) is not None

    def has_data(self, pattern: Pattern) -> bool:
        """Whether a node matches and all that match have data."""
        found = False
        for _, node in self._matches(pattern):
            found = True
            if not has_data(node.encoded):
                return False
        return found

    def count(self, pattern: Pattern) -> int:
        """How many nodes match: `**` counts everything but the root, the root's own path counts 1."""
        return sum(1 for _ in self._matches(pattern))

    def get_many(self, pattern: Pattern) -> dict[Path, Any]:
        """The data of every node that matches (None of those without), by path, in the order of paths."""
        return {path: view_of(node).data for path, node in self._matches(pattern)}

    def matches(self, pattern: Pattern, after: Path | None = None) -> Iterator[tuple[Path, NodeView]]:
        """Every node that matches, in the order of paths; with `after`, only those that come after that path.

        The tree must not change meanwhile.
        """
        for path, node in find_matches(self._tree.root, resolve(pattern), after, self._tree.effort):
            yield path, view_of(node)

    def every_match(self, pattern: Pattern) -> Iterator[tuple[Path, NodeView]]:
        """As `matches`, whatever it takes, also in a transaction: for what would be wrong if it missed a node."""
        for path, node in find_matches(self._tree.root, resolve(pattern)):
            yield path, view_of(node)

    def fold(self, pattern: Pattern, function: Callable[[Path, NodeView, T], T], initial: T) -> T:
        """Call `function(path, node, accumulator)` on every node that matches, in the order of paths.

        Without a match the answer is `initial`. The tree must not change meanwhile.
        """
        accumulator = initial
        for path, node in self._matches(pattern):
            accumulator = function(path, view_of(node), accumulator)
        return accumulator

    def for_each(self, pattern: Pattern, function: Callable[[Path, NodeView], None]) -> None:
        """Call `function(path, node)` on every node that matches, in the order of paths."""
        for path, node in self._matches(pattern):
            function(path, view_of(node))

    def fold_below(self, path: Path, function: Callable[[Path, NodeView, T], T], initial: T) -> T:
        """As `fold`, on the node at `path` and all below it. A missing node gives `initial`."""
        accumulator = initial
        start = self._find(path)
        if start is not None:
            for node_path, node in walk(check_path(path), start):
                self._tree.effort.take(1)
                accumulator = function(node_path, view_of(node), accumulator)
        return accumulator

    def spend(self, steps: int) -> None:
        """Count this work against what the command or read under way may take; raises `TooMuch`."""
        self._tree.effort.take(steps)

    # --- finding --------------------------------------------------------------------------------------------------

    def _matches(self, pattern: Pattern) -> Iterator[tuple[Path, Node]]:
        return find_matches(self._tree.root, resolve(pattern), None, self._tree.effort)

    def _find(self, path: Pattern) -> Node | None:
        """The one node that is meant, or None if it is missing or a condition does not hold."""
        try:
            return self._target(path)[1]
        except (NodeNotFound, MismatchingNode):
            return None

    def _one(self, path: Pattern) -> Node:
        target, node = self._target(path)
        if node is None:
            raise _not_found(target, self._depth_reached(target))
        return node

    def _depth_reached(self, path: Path) -> int:
        """The number of names up to and including the first that is missing."""
        node, depth = self._tree.root, 0
        while depth < len(path) and path[depth] in node.children:
            node = node.children[path[depth]]
            depth += 1
        return min(depth + 1, len(path))

    def _target(self, pattern: Pattern) -> tuple[Path, Node | None]:
        """The path that is meant and its node, if there is one; raises if a condition on the way does not hold."""
        node: Node | None = self._tree.root
        if type(pattern) is tuple:
            try:
                for name in pattern:
                    node = node.children[name]  # type: ignore[index, union-attr]  # as in `get`
            except (KeyError, TypeError):
                if is_plain_path(pattern):
                    return pattern, None
            else:
                return pattern, node  # type: ignore[return-value]  # all were names
        path, conditions = one_node(pattern)
        node = self._tree.root
        for depth, name in enumerate(path):
            node = None if node is None else node.children.get(name)
            condition = conditions[depth]
            if condition is not None:
                self._require(condition, path, depth + 1, node)
        return path, node

    def _puts(self, pattern: Pattern) -> list[Path]:
        """The paths that `put_many` writes: what matches up to the names at the end of the pattern, and those names."""
        resolved = resolve(pattern)
        names: list[str] = []
        while resolved and isinstance(resolved[-1], str):
            names.insert(0, resolved[-1])
            resolved = resolved[:-1]
        return [(*path, *names) for path, _ in find_matches(self._tree.root, resolved, None, self._tree.effort)]

    def _require(self, condition: Condition, path: Path, depth: int, node: Node | None) -> None:
        """Raises unless the condition holds of the node at `path[:depth]`, on the way to `path`."""
        check_condition(condition)
        self._tree.effort.take(condition.steps_on(node))
        if condition.holds(node, path[depth - 1] if depth else ""):
            return
        if node is None:
            raise _not_found(path, depth, condition)
        details = {**_where(path, depth), "condition": condition.to_data(), "node_props": view_of(node).to_data()}
        raise MismatchingNode(f"the node {'/'.join(path[:depth])} is not as expected", details)


# --- errors -------------------------------------------------------------------------------------------------------


def _where(path: Path, depth: int) -> dict[str, Any]:
    return {
        "node_name": path[depth - 1] if depth else "",
        "node_path": list(path[:depth]),
        "node_is_target": depth == len(path),
    }


def _not_found(path: Path, depth: int, condition: Condition | None = None) -> NodeNotFound:
    details = _where(path, depth)
    if condition is not None:
        details["condition"] = condition.to_data()
    return NodeNotFound(f"there is no node {'/'.join(path[:depth])}", details)
