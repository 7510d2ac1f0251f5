"""The store: a tree of nodes, each with an optional payload and versions that say whether it changed.

Semantics are Khepri's (https://github.com/rabbitmq/khepri); `docs/tree.md` states them all, and where we differ.

* Both versions of a node start at 1. `payload_version` rises by one with every *change* of the payload (writing an
  equal value changes nothing); `child_list_version` rises by one with every child added or removed. A node deleted
  and made again starts over.
* Writing makes missing parents. Such parents have no payload, and go away with their last child unless they were
  given a payload.
* Deleting takes the whole subtree; deleting what does not exist is not an error. Deleting the root empties it.
* Operations for one node take a path, or a pattern that by its form can match only one node; `_many` forms take any.

Payloads are kept as canonical bytes: what a reader gets is its own copy, equality is exact, and the digest of two
equal trees is equal. Children are listed in the order of their names, so no result depends on history.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final, TypeVar

import cbor2

from tree.changes import Change, Commit, Effects, Kind, Observer, Reason, Removal, Touched, Written
from tree.conditions import Condition, IfDataMatches, IfNodeExists
from tree.data import decode
from tree.errors import BadPath, MismatchingNode, NodeNotFound
from tree.keep_while import (
    KeepWhile,
    KeepWhileIndex,
    Pairs,
    keep_while_from_data_untrusted,
    keep_while_to_data,
    refuse_unmet,
    resolve_pairs,
    unmet,
)
from tree.matching import find_matches
from tree.node import Node, NodeView, rows_of, size_of, tree_from_rows, view_of, walk
from tree.path import ROOT, Path, check_path
from tree.pattern import Pattern, one_node, resolve
from tree.payload import NO_PAYLOAD, encode_payload, has_data
from tree.transaction import ReadTransaction, Transaction

__all__ = ["NodeView", "Store", "Written"]

log = logging.getLogger("tree.store")

T = TypeVar("T")
Row = list[Any]


class Store:
    """The tree itself. Operations take paths or patterns as tuples (or lists) and raise `TreeError`s.

    Every operation is atomic: if it raises, it has changed nothing. For several operations as one, use
    `transaction()`.

    `revision` rises by one with every operation, or transaction, that changed anything. `on_commit` is called once for
    each of them, after it is complete; what it raises is logged. Without it, and without observers, changes are not
    collected. `on_restore` is called with the new revision when the whole tree was replaced.
    """

    def __init__(self) -> None:
        self._root = Node(made_on_the_way=False)
        self._node_count = 0  # without the root
        self._keep_while = KeepWhileIndex()
        self._undo: list[tuple[Any, ...]] | None = None
        # While a commit is collected: what each node was before it was first touched.
        self._before: dict[Path, NodeView | None] | None = None
        # Paths changed by the operation under way, for keep_while.
        self._changed: list[Path] = []
        self._removals: list[Removal] = []
        self.revision = 0
        self.on_commit: Observer | None = None
        self.on_restore: Callable[[int], None] | None = None
        self.observers: Final[list[Observer]] = []

    # --- reading one node -----------------------------------------------------------------------------------------

    def get(self, path: Pattern) -> Any:
        """The data at `path` (None if the node has none), a fresh copy.

        Raises `NodeNotFound`, `MismatchingNode`, `PossiblyManyNodes`.
        """
        node: Node | None = self._root
        try:
            for name in path:
                node = node.children[name]  # type: ignore[index, union-attr]  # what is no name is not found either
        except (KeyError, TypeError):
            node = None
        encoded = (node if node is not None and type(path) is tuple else self._one(path)).encoded
        return decode(encoded) if encoded is not None and has_data(encoded) else None

    def get_or(self, path: Pattern, default: Any) -> Any:
        """The data at `path`, or `default` if there is no such node or it has no data. Raises `PossiblyManyNodes`."""
        node = self._find(path)
        if node is None or node.encoded is None or not has_data(node.encoded):
            return default
        return decode(node.encoded)

    def view(self, path: Pattern) -> NodeView | None:
        """The node with its versions, or None. Raises `PossiblyManyNodes`."""
        node = self._find(path)
        return None if node is None else view_of(node)

    def children(self, path: Pattern) -> tuple[str, ...]:
        """The names of the children in order; raises as `get` does."""
        return tuple(sorted(self._one(path).children))

    def count_children(self, path: Pattern) -> int:
        """How many children `path` has; 0 if it does not exist. Raises `PossiblyManyNodes`."""
        node = self._find(path)
        return 0 if node is None else len(node.children)

    def count_below(self, path: Pattern) -> int:
        """How many nodes there are below `path`, at any depth; 0 if it does not exist. Raises `PossiblyManyNodes`."""
        node = self._find(path)
        if node is self._root:
            return self._node_count
        return 0 if node is None else size_of(node) - 1

    def keep_while(self, path: Path) -> Pairs:
        """What the node at `path` is kept while: absolute patterns and conditions; empty if nothing was stated."""
        return self._keep_while.pairs.get(tuple(path), ())

    # --- reading many nodes ---------------------------------------------------------------------------------------

    def exists(self, pattern: Pattern) -> bool:
        """Whether a node matches. The root always exists."""
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
        for path, node in find_matches(self._root, resolve(pattern), after):
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
                accumulator = function(node_path, view_of(node), accumulator)
        return accumulator

    # --- writing one node -----------------------------------------------------------------------------------------

    def put(
        self, path: Pattern, data: Any, condition: Condition | None = None, *, keep_while: KeepWhile | None = None
    ) -> Written:
        """Set the payload at `path`, making the node and its parents if needed.

        `data` is plain data, a `StoredProcedure`, or `NO_PAYLOAD`. `keep_while`, if given, replaces what the node was
        kept while; an empty one keeps it unconditionally. Raises `NodeNotFound` or `MismatchingNode` if a condition
        does not hold, `PossiblyManyNodes`, `KeepWhileConditionsNotMet`, `BadPath`, `BadData`.
        """
        encoded = encode_payload(data)
        target, node = self._target(path)
        if condition is not None:
            _require(condition, target, len(target), node)
        if keep_while is None and self._undo is not None and not self._keep_while:
            return self._write(target, node, encoded)
        return self._run(self._put_and_settle, target, node, encoded, keep_while)

    def create(self, path: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Written:
        """As `put`, of a node that must not exist yet; raises `MismatchingNode` if it does."""
        return self.put(path, data, IfNodeExists(False), keep_while=keep_while)

    def update(self, path: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Written:
        """As `put`, of a node that must exist; raises `NodeNotFound` if it does not."""
        return self.put(path, data, IfNodeExists(True), keep_while=keep_while)

    def compare_and_swap(
        self, path: Pattern, expected: Any, data: Any, *, keep_while: KeepWhile | None = None
    ) -> Written:
        """As `put`, if the data equals `expected` (or meets it, if it is a `Condition`)."""
        condition = expected if isinstance(expected, Condition) else IfDataMatches(expected)
        return self.put(path, data, condition, keep_while=keep_while)

    def clear_payload(self, path: Pattern) -> Written:
        """Remove the payload but keep the node while it is of use; a missing node stays missing (version 0).

        Raises `MismatchingNode` if the node exists and a condition of the pattern does not hold.
        """
        try:
            target, node = self._target(path)
        except NodeNotFound:
            target, node = one_node(path)[0], None
        if node is None:
            return Written(target, False, None, 0, None, 0, 0, 0)
        return self._run(self._clear_and_settle, target, node)

    def delete(self, path: Pattern, condition: Condition | None = None) -> Effects:
        """Remove the node and everything below it, and what that makes useless.

        A missing node, or one that does not meet a condition, is left alone. Deleting the root removes its payload
        and all children; the root itself and its versions stay.
        """
        try:
            target, node = self._target(path)
        except (NodeNotFound, MismatchingNode):
            return Effects({}, ())
        if node is None or (condition is not None and not condition.holds(node, target[-1] if target else "")):
            return Effects({}, ())
        return self._run(self._delete_all, [target])

    # --- writing many nodes ---------------------------------------------------------------------------------------

    def put_many(self, pattern: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Effects:
        """Set the payload of every node that matches; names at the end of the pattern are made where missing.

        So `*/foo` makes foo under every child of the root, and without a match nothing happens. Each node's version
        rises by at most one. Raises as `put` does.
        """
        return self._run(self._put_many, self._puts(pattern), encode_payload(data), keep_while)

    def update_many(self, pattern: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Effects:
        """As `put_many`, of nodes that exist only."""
        targets = [path for path, _ in self._matches(pattern)]
        return self._run(self._put_many, targets, encode_payload(data), keep_while)

    def clear_many_payloads(self, pattern: Pattern) -> Effects:
        """Remove the payload of every node that matches; each stays while it is of use."""
        targets = [path for path, _ in self._matches(pattern)]
        return self._run(self._put_many, targets, encode_payload(NO_PAYLOAD), None)

    def delete_many(self, pattern: Pattern) -> Effects:
        """Remove every node that matches with everything below it, and what that makes useless."""
        return self._run(self._delete_all, [path for path, _ in self._matches(pattern)])

    # --- several operations as one --------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Several operations as one: all of them apply, or, if the block raises anything, none.

        What is written is seen by later reads of the same transaction. Transactions do not nest.
        """
        if self._undo is not None:
            raise RuntimeError("a transaction is open already; transactions do not nest")
        self._begin()
        transaction = Transaction(self)
        try:
            yield transaction
        except BaseException:
            self._roll_back(0)
            self._undo = self._before = None
            raise
        else:
            self._commit()
        finally:
            transaction.end()

    def transact(self, procedure: Callable[[Transaction, Any], Any], args: Any, finish: Callable[[Any], T]) -> T:
        """`finish(procedure(transaction, args))` as one transaction, and its result.

        What `with transaction()` does, without what a generator costs: half of a small transaction's time.
        """
        if self._undo is not None:
            raise RuntimeError("a transaction is open already; transactions do not nest")
        self._begin()
        transaction = Transaction(self)
        try:
            result = finish(procedure(transaction, args))
        except BaseException:
            self._roll_back(0)
            self._undo = self._before = None
            raise
        finally:
            transaction.end()
        self._commit()
        return result

    @contextmanager
    def reading(self) -> Iterator[ReadTransaction]:
        """A transaction that may only read: every write in it raises `ReadOnlyTransaction`."""
        transaction = ReadTransaction(self)
        try:
            yield transaction
        finally:
            transaction.end()

    # --- the whole tree -------------------------------------------------------------------------------------------

    def to_data(self) -> list[Any]:
        """The whole tree as plain data: one row per node, parents first, siblings in the order of their names.

        The revision is not part of it: equal trees have equal data, whatever their history.
        """
        kept = {path: keep_while_to_data(pairs) for path, pairs in self._keep_while.pairs.items()}
        return list(rows_of(self._root, kept))

    def restore(self, rows: Any, revision: int = 0) -> None:
        """Replace the whole tree by what `to_data` returned; raises `BadData` and changes nothing if it is not that."""
        root, count, kept = tree_from_rows(rows)
        index = KeepWhileIndex()
        for path, data in kept.items():
            index.replace(path, resolve_pairs(path, keep_while_from_data_untrusted(data)))
        self._root, self._node_count, self._keep_while = root, count, index
        self._undo, self._before, self.revision = None, None, revision
        if self.on_restore is not None:
            self.on_restore(revision)

    def digest(self) -> bytes:
        """SHA-256 over the canonical bytes of the whole tree: equal for equal trees, whatever their history."""
        return sha256(cbor2.dumps(self.to_data())).digest()

    # --- finding --------------------------------------------------------------------------------------------------

    def _matches(self, pattern: Pattern) -> Iterator[tuple[Path, Node]]:
        return find_matches(self._root, resolve(pattern))

    def _lookup(self, path: Path) -> Node | None:
        node = self._root
        for name in path:
            child = node.children.get(name)
            if child is None:
                return None
            node = child
        return node

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
        node, depth = self._root, 0
        while depth < len(path) and path[depth] in node.children:
            node = node.children[path[depth]]
            depth += 1
        return min(depth + 1, len(path))

    def _target(self, pattern: Pattern) -> tuple[Path, Node | None]:
        """The path that is meant and its node, if there is one; raises if a condition on the way does not hold."""
        node: Node | None = self._root
        if type(pattern) is tuple:
            try:
                for name in pattern:
                    node = node.children[name]  # type: ignore[index, union-attr]  # as in `get`
            except (KeyError, TypeError):
                pass
            else:
                return pattern, node  # type: ignore[return-value]  # all were names
        path, conditions = one_node(pattern)
        node = self._root
        for depth, name in enumerate(path):
            node = None if node is None else node.children.get(name)
            condition = conditions[depth]
            if condition is not None:
                _require(condition, path, depth + 1, node)
        return path, node

    def _puts(self, pattern: Pattern) -> list[Path]:
        """The paths that `put_many` writes: what matches up to the names at the end of the pattern, and those names."""
        resolved = resolve(pattern)
        names: list[str] = []
        while resolved and isinstance(resolved[-1], str):
            names.insert(0, resolved[-1])
            resolved = resolved[:-1]
        return [(*path, *names) for path, _ in find_matches(self._root, resolved)]

    # --- operations, inside `_run` --------------------------------------------------------------------------------

    def _run(self, operation: Callable[..., T], *arguments: Any) -> T:
        """Run an operation so that it applies as a whole or not at all; alone, it is a commit of its own."""
        alone = self._undo is None
        if alone:
            self._begin()
        undo = self._undo
        mark = 0 if undo is None else len(undo)
        self._changed, self._removals = [], []
        try:
            result = operation(*arguments)
        except BaseException:
            self._roll_back(mark)
            if alone:
                self._undo = self._before = None
            raise
        if alone:
            self._commit()
        return result

    def _put_and_settle(
        self, path: Path, node: Node | None, encoded: bytes | None, keep_while: KeepWhile | None
    ) -> Written:
        written = self._write(path, node, encoded)
        if keep_while is not None:
            self._keep(path, keep_while, is_new=not written.existed)
        self._settle()
        written.removals = tuple(self._removals)
        return written

    def _clear_and_settle(self, path: Path, node: Node) -> Written:
        written = self._write(path, node, None)
        self._reclaim(path)
        self._settle()
        written.removals = tuple(self._removals)
        return written

    def _put_many(self, paths: list[Path], encoded: bytes | None, keep_while: KeepWhile | None) -> Effects:
        touched: dict[Path, Touched] = {}
        for path in paths:
            node = self._lookup(check_path(path))
            before = None if node is None else view_of(node)
            written = self._write(path, node, encoded)
            if keep_while is not None:
                self._keep(path, keep_while, is_new=not written.existed)
            touched[path] = Touched(before, None, Reason.WRITTEN)
        if encoded is None:
            for path in reversed(paths):
                self._reclaim(path)
        self._settle()
        for path, (before, _, reason) in touched.items():
            node = self._lookup(path)
            touched[path] = Touched(before, None if node is None else view_of(node), reason)
        return Effects(touched, tuple(self._removals))

    def _delete_all(self, paths: list[Path]) -> Effects:
        written: dict[Path, Touched] = {}
        for path in paths:
            node = self._lookup(path)
            if path == ROOT and node is not None:
                before = view_of(node)
                self._write(ROOT, node, None)
                for name in sorted(node.children):
                    self._remove((name,), Reason.EXPLICIT)
                written[ROOT] = Touched(before, view_of(node), Reason.EXPLICIT)
            elif node is not None:
                self._remove(path, Reason.EXPLICIT)
                # Now, so that a parent that goes away is not deleted twice; its reason is not the operation's.
                self._reclaim(path[:-1])
        self._settle()
        return Effects(written, tuple(self._removals))

    def _write(self, path: Path, node: Node | None, encoded: bytes | None) -> Written:
        if node is None:
            node = self._make(path, encoded)
            return Written(path, False, None, 0, encoded, 1, 1, 0)
        previous, version = node.encoded, node.payload_version
        if previous != encoded:
            self._set_payload(path, node, encoded, version + 1)
        return Written(
            path,
            True,
            previous,
            version,
            encoded,
            node.payload_version,
            node.child_list_version,
            len(node.children),
        )

    def _make(self, path: Path, encoded: bytes | None) -> Node:
        """A new node at `path`. Missing parents are made with their child in place, so all versions begin at 1."""
        parent, depth = self._root, 0
        while path[depth] in parent.children:
            parent = parent.children[path[depth]]
            depth += 1
        top = made = Node(made_on_the_way=depth + 1 < len(path))
        for level in range(depth + 1, len(path)):
            child = Node(made_on_the_way=level + 1 < len(path))
            made.attach(path[level], child)
            made = child
        made.encoded = encoded
        self._add_child(path, depth, parent, top)
        return made

    def _keep(self, path: Path, keep_while: KeepWhile, *, is_new: bool) -> None:
        if path == ROOT:
            raise BadPath("the root is always kept; keep_while is for other nodes")
        pairs = resolve_pairs(path, keep_while)
        refuse_unmet(self._root, path, pairs, is_new=is_new)
        node = self._lookup(path)
        if node is not None:
            self._note(path, node)
            self._log(_undo_made_on_the_way, node, node.made_on_the_way)
            # What was asked for explicitly takes the place of the implicit rule for parents made on the way.
            node.made_on_the_way = False
        self._set_keep_while(path, pairs)

    def _reclaim(self, path: Path) -> None:
        """Remove the node at `path` if it is a useless parent, then its parent if that became one."""
        while path:
            node = self._lookup(path)
            if node is None or not node.made_on_the_way or node.encoded is not None or node.children:
                return
            self._remove(path, Reason.KEEP_WHILE)
            path = path[:-1]

    def _remove(self, path: Path, reason: Reason) -> None:
        parent = self._lookup(path[:-1])
        if parent is None:
            return
        child = self._remove_child(path, parent)
        self._removals.append(Removal(path, child, reason))

    def _settle(self) -> None:
        """Remove what keep_while does not keep any more, until nothing changes. Each round removes a node, or ends."""
        while self._keep_while and self._changed:
            changed, self._changed = self._changed, []
            for watcher in sorted(self._keep_while.concerned(changed)):
                pairs = self._keep_while.pairs.get(watcher)
                if pairs is not None and unmet(self._root, pairs) is not None:
                    self._remove(watcher, Reason.KEEP_WHILE)
                    self._reclaim(watcher[:-1])

    # --- the primitive changes; each logs its exact inverse, which is all that a rollback needs ------------------

    def _log(self, inverse: Callable[..., object], *arguments: Any) -> None:
        if self._undo is not None:
            self._undo.append((inverse, *arguments))

    def _note(self, path: Path, node: Node | None) -> None:
        """Remember what the node was before this commit, if somebody will want to know."""
        if self._before is not None and path not in self._before:
            self._before[path] = None if node is None else view_of(node)
        if self._keep_while:
            self._changed.append(path)

    def _set_payload(self, path: Path, node: Node, encoded: bytes | None, version: int) -> None:
        self._note(path, node)
        self._log(_undo_payload, node, node.encoded, node.payload_version)
        node.encoded, node.payload_version = encoded, version

    def _add_child(self, path: Path, depth: int, parent: Node, child: Node) -> None:
        """Attach `child`, which holds the new nodes from `path[: depth + 1]` down to `path`."""
        self._note(path[:depth], parent)
        for level in range(depth + 1, len(path) + 1):
            self._note(path[:level], None)
        size = len(path) - depth
        parent.attach(path[depth], child)
        parent.child_list_version += 1
        self._node_count += size
        self._log(self._undo_add, parent, path[depth], size)

    def _undo_add(self, parent: Node, name: str, size: int) -> None:
        parent.detach(name)
        parent.child_list_version -= 1
        self._node_count -= size

    def _remove_child(self, path: Path, parent: Node) -> Node:
        name = path[-1]
        child = parent.children[name]
        self._note(path[:-1], parent)
        if self._before is not None or self._keep_while:
            size = size_of(child)
            for node_path, node in walk(path, child):
                self._note(node_path, node)
                if node_path in self._keep_while.pairs:
                    self._set_keep_while(node_path, ())
        else:
            size = size_of(child)
        parent.detach(name)
        parent.child_list_version += 1
        self._node_count -= size
        self._log(self._undo_remove, parent, name, child, size)
        return child

    def _undo_remove(self, parent: Node, name: str, child: Node, size: int) -> None:
        parent.attach(name, child)
        parent.child_list_version -= 1
        self._node_count += size

    def _set_keep_while(self, path: Path, pairs: Pairs) -> None:
        before = self._keep_while.replace(path, pairs)
        self._log(self._keep_while.replace, path, before)

    # --- commits --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._undo = []
        if self.on_commit is not None or self.observers:
            self._before = {}

    def _roll_back(self, mark: int) -> None:
        undo = self._undo
        while undo is not None and len(undo) > mark:
            inverse, *arguments = undo.pop()
            inverse(*arguments)

    def _commit(self) -> None:
        undo, before = self._undo, self._before
        self._undo = self._before = None
        if not undo:
            return
        self.revision += 1
        if before is None:
            return
        changes = tuple(self._changes(before))
        commit = Commit(self.revision, changes)
        for observer in (*self.observers, *(() if self.on_commit is None else (self.on_commit,))):
            try:
                observer(commit)
            except Exception:  # the commit is made; whoever looks on cannot change that
                log.exception("an observer of commits crashed at revision %d", self.revision)

    def _changes(self, before: dict[Path, NodeView | None]) -> Iterator[Change]:
        for path in sorted(before):
            old, node = before[path], self._lookup(path)
            new = None if node is None else view_of(node)
            if old is None:
                if new is not None:
                    yield Change(path, Kind.CREATED, None, new)
            elif new is None:
                yield Change(path, Kind.DELETED, old, None)
            elif (old.payload_version, old.encoded) != (new.payload_version, new.encoded):
                yield Change(path, Kind.UPDATED, old, new)
            else:
                yield Change(path, Kind.CHILDREN, old, new)


def _undo_payload(node: Node, encoded: bytes | None, version: int) -> None:
    node.encoded, node.payload_version = encoded, version


def _undo_made_on_the_way(node: Node, made_on_the_way: bool) -> None:
    node.made_on_the_way = made_on_the_way


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


def _require(condition: Condition, path: Path, depth: int, node: Node | None) -> None:
    """Raises unless the condition holds of the node at `path[:depth]`, on the way to `path`."""
    if condition.holds(node, path[depth - 1] if depth else ""):
        return
    if node is None:
        raise _not_found(path, depth, condition)
    details = {**_where(path, depth), "condition": condition.to_data(), "node_props": view_of(node).to_data()}
    raise MismatchingNode(f"the node {'/'.join(path[:depth])} is not as expected", details)
