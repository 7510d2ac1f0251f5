"""The store: a tree of nodes, each with an optional payload and versions that say whether it changed.

Semantics are Khepri's (https://github.com/rabbitmq/khepri); `docs/reference/tree.md` states them all, and where we
differ.

* Both versions of a node start at 1. `payload_version` rises by one with every *change* of the payload (writing an
  equal value changes nothing). `child_list_version` rises by one with every operation that adds or removes children,
  however many. A node deleted and made again starts over.
* Writing makes missing parents. Such parents have no payload, and go away with their last child unless they were
  given a payload.
* Deleting takes the whole subtree; deleting what does not exist is not an error. Deleting the root empties it.
* Operations for one node take a path, or a pattern that by its form can match only one node; `_many` forms take any.

Payloads are kept as canonical bytes. What a reader gets is its own copy, equality is exact, and the digest of two equal
trees is equal. Children are listed in the order of their names, so no result depends on history.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final, TypeVar

import cbor2

from batonpass.tree.data.errors import MismatchingNode, NodeNotFound
from batonpass.tree.data.node import Node, NodeView, view_of
from batonpass.tree.data.path import ROOT, Path, check_path
from batonpass.tree.data.payload import NO_PAYLOAD, encode_payload
from batonpass.tree.data.work_budget import MAX_STEPS, UNBOUNDED
from batonpass.tree.store.changes import Change, Commit, Effects, Observer, Touched, TouchReason, Written
from batonpass.tree.store.conditions import Condition, IfDataMatches, IfNodeExists, check_condition
from batonpass.tree.store.keep_while import KeepWhile, resolve_pairs
from batonpass.tree.store.mutable import Row
from batonpass.tree.store.pattern import Pattern, one_node
from batonpass.tree.store.queries import Queries
from batonpass.tree.store.rows import BuiltTree, FrozenTree, Remains
from batonpass.tree.store.transaction import ImportedNode, ReadTransaction, Transaction

__all__ = ["NodeView", "Store", "Written"]

log = logging.getLogger("batonpass.tree.store.store")

T = TypeVar("T")


class Store(Queries):
    """The tree itself. Operations take paths or patterns as tuples (or lists) and raise `TreeError`s.

    Every operation is atomic: if it raises, it has changed nothing. For several operations as one, use
    `transaction()`.

    `revision` rises by one with every operation, or transaction, that changed anything. `on_commit` is called once for
    each of them, after it is complete; what it raises is logged. Without it, and without observers, changes are not
    collected. `on_restore` is called with the new revision when the whole tree was replaced.
    """

    def __init__(self) -> None:
        super().__init__()
        self.revision = 0
        self.on_commit: Observer | None = None
        self.on_restore: Callable[[int], None] | None = None
        self.observers: Final[list[Observer]] = []
        # What the observers have to do about a change, in steps; `transact` counts it. None: nothing worth counting.
        self.steps_to_follow: Callable[[Change], int] | None = None
        # How many steps commands and reads have taken so far.
        self.steps_taken = 0

    @contextmanager
    def counting_each_child(self) -> Iterator[None]:
        """Meanwhile operations raise `child_list_version` with each child that comes or goes, as they did once.

        For commands of the log that were written when that was the rule.
        """
        self._tree.raises_lists_once = False
        try:
            yield
        finally:
            self._tree.raises_lists_once = True

    # --- writing one node -----------------------------------------------------------------------------------------

    def put(
        self, path: Pattern, data: Any, condition: Condition | None = None, *, keep_while: KeepWhile | None = None
    ) -> Written:
        """Set the payload at `path`, making the node and its parents if needed.

        `data` is plain data, a `StoredProcedure`, or `NO_PAYLOAD`: then the node stays without one. `keep_while`, if
        given, replaces what the node was kept while; an empty one keeps it unconditionally. Raises `NodeNotFound` or
        `MismatchingNode` if a condition does not hold, `PossiblyManyNodes`, `KeepWhileConditionsNotMet`, `BadPath`,
        `BadData`.
        """
        encoded = encode_payload(data)
        target, node = self._target(path)
        if condition is not None:
            self._require(condition, target, len(target), node)
        if keep_while is None and encoded is not None and self._tree.undo is not None and not self._tree.kept:
            return self._tree.write(target, node, encoded)
        return self._run(self._put_one, target, node, encoded, keep_while)

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
        return self._run(self._clear_one, target, node)

    def delete(self, path: Pattern, condition: Condition | None = None) -> Effects:
        """Remove the node and everything below it, and what that makes useless.

        A missing node, or one that does not meet a condition, is left alone. Deleting the root removes its payload
        and all children; the root itself and its versions stay.
        """
        if condition is not None:
            check_condition(condition)
        try:
            target, node = self._target(path)
        except (NodeNotFound, MismatchingNode):
            return Effects({}, ())
        if node is None:
            return Effects({}, ())
        if condition is None and target and not node.children and self._tree.undo is not None and not self._tree.kept:
            leaf = self._tree.take_leaf(target, node)
            if leaf is not None:
                return Effects({}, (leaf,))
        if condition is not None:
            self._tree.effort.take(condition.steps_on(node))
            if not condition.holds(node, target[-1] if target else ""):
                return Effects({}, ())
        return self._run(self._delete_all, [target])

    # --- writing many nodes ---------------------------------------------------------------------------------------

    def put_many(self, pattern: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Effects:
        """Set the payload of every node that matches; names at the end of the pattern are made where missing.

        So `*/foo` makes foo under every child of the root, and without a match nothing happens. Each node's version
        rises by at most one. Raises as `put` does.
        """
        return self._run(self._put_all, self._puts(pattern), encode_payload(data), keep_while)

    def update_many(self, pattern: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Effects:
        """As `put_many`, of nodes that exist only."""
        targets = [path for path, _ in self._matches(pattern)]
        return self._run(self._put_all, targets, encode_payload(data), keep_while)

    def clear_many_payloads(self, pattern: Pattern) -> Effects:
        """Remove the payload of every node that matches; each stays while it is of use."""
        targets = [path for path, _ in self._matches(pattern)]
        return self._run(self._put_all, targets, encode_payload(NO_PAYLOAD), None)

    def delete_many(self, pattern: Pattern) -> Effects:
        """Remove every node that matches with everything below it, and what that makes useless."""
        return self._run(self._delete_all, [path for path, _ in self._matches(pattern)])

    def import_nodes(
        self, nodes: Sequence[ImportedNode], without: Iterable[Path] = (), *, forget_keep_while: bool = False
    ) -> Effects:
        """Write all these nodes, and take those at the paths `without` away, as one operation.

        What keeps nodes is looked at when everything is there, and not in between. A node for which no `keep_while` is
        stated keeps what it had, or nothing with `forget_keep_while`. One that was made on the way is so again if there
        is a node below it. Raises as `put` does.
        """
        return self._run(self._import_all, nodes, list(without), forget_keep_while)

    # --- several operations as one --------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Several operations as one: all of them apply, or, if the block raises anything, none.

        What is written is seen by later reads of the same transaction. Transactions do not nest.
        """
        if self._tree.undo is not None:
            raise RuntimeError("a transaction is open already; transactions do not nest")
        self._begin()
        transaction = Transaction(self)
        try:
            yield transaction
        except BaseException:
            self._tree.roll_back(0)
            self._tree.end()
            raise
        else:
            self._commit(self._tree.changes())
        finally:
            transaction.end()

    def transact(self, procedure: Callable[[Transaction, Any], Any], args: Any, finish: Callable[[Any], T]) -> T:
        """`finish(procedure(transaction, args))` as one transaction of at most `MAX_STEPS` steps, and its result.

        What `with transaction()` does, without what a generator costs: half of a small transaction's time.
        """
        if self._tree.undo is not None:
            raise RuntimeError("a transaction is open already; transactions do not nest")
        self._begin()
        transaction = Transaction(self)
        effort = self._tree.effort
        effort.left = MAX_STEPS
        try:
            result = finish(procedure(transaction, args))
            changes = self._tree.changes()
            if changes is not None and self.steps_to_follow is not None:
                for change in changes:
                    effort.take(self.steps_to_follow(change))
        except BaseException:
            self._tree.roll_back(0)
            self._tree.end()
            raise
        finally:
            transaction.end()
            self.steps_taken += MAX_STEPS - max(effort.left, 0)
            effort.left = UNBOUNDED
        self._commit(changes)
        return result

    @contextmanager
    def reading(self) -> Iterator[ReadTransaction]:
        """A transaction that may only read: every write in it raises `ReadOnlyTransaction`.

        It takes at most `MAX_STEPS` steps; what goes beyond raises `TooMuch`. See `tree.data.work_budget`.
        """
        transaction = ReadTransaction(self)
        effort = self._tree.effort
        effort.left = MAX_STEPS
        try:
            yield transaction
        finally:
            transaction.end()
            self.steps_taken += MAX_STEPS - max(effort.left, 0)
            effort.left = UNBOUNDED

    # --- the whole tree -------------------------------------------------------------------------------------------

    def to_data(self) -> list[Any]:
        """The whole tree as plain data: one row per node, parents first, siblings in the order of their names.

        The revision is not part of it: equal trees have equal data, whatever their history.
        """
        return list(self._tree.to_rows())

    def restore(self, rows: Any, revision: int = 0) -> None:
        """Replace the whole tree by what `to_data` returned; raises `BadData` and changes nothing if it is not that."""
        self._tree.restore(rows)
        self._restored(revision)

    def install(self, built: BuiltTree, revision: int) -> Remains:
        """Replace the whole tree at once by one that was built beside it; the old one, to be taken apart in slices."""
        remains = self._tree.replace_all(built)
        self._restored(revision)
        return remains

    @property
    def node_count(self) -> int:
        """How many nodes there are, the root not counted."""
        return self._tree.node_count

    def _restored(self, revision: int) -> None:
        self.revision = revision
        if self.on_restore is not None:
            self.on_restore(revision)

    def freeze(self) -> FrozenTree:
        """A view of the tree as it is now, to be read in slices while the tree changes; one at a time. See `thaw`."""
        return self._tree.freeze()

    def thaw(self) -> None:
        """The view that `freeze` gave is not needed any more; what it kept is forgotten."""
        self._tree.thaw()

    def digest(self) -> bytes:
        """SHA-256 over the canonical bytes of the whole tree: equal for equal trees, whatever their history."""
        return sha256(cbor2.dumps(self.to_data(), canonical=True)).digest()

    def row(self, path: Path) -> Row | None:
        """Everything that is kept of the node at exactly this path, as plain data, or None: for mirrors of the tree."""
        return self._tree.row(path)

    def adopt(self, rows: Iterable[tuple[Path, Row | None]], revision: int) -> None:
        """Take over, as one commit, what another store's nodes are at these paths (None: gone), and its revision.

        No rule is applied: given every row that the other store's commit changed, this tree is equal to the other.
        Raises `BadData` and changes nothing if something is not a row or lacks its parent.
        """
        if self._tree.undo is not None:
            raise RuntimeError("a transaction is open; rows are adopted between transactions")
        self._begin()
        self._tree.begin_operation()
        try:
            self._tree.adopt(rows)
        except BaseException:
            self._tree.roll_back(0)
            self._tree.end()
            raise
        finally:
            self._tree.end_operation()
        changes = self._tree.changes()
        self._tree.end()
        self.revision = revision
        if changes:
            self._tell(Commit(revision, changes))

    # --- operations, inside `_run` --------------------------------------------------------------------------------

    def _run(self, operation: Callable[..., T], *arguments: Any) -> T:
        """Run an operation so that it applies as a whole or not at all; alone, it is a commit of its own."""
        tree = self._tree
        alone = tree.undo is None
        if alone:
            self._begin()
        mark = tree.begin_operation()
        try:
            result = operation(*arguments)
        except BaseException:
            tree.roll_back(mark)
            if alone:
                tree.end()
            raise
        finally:
            tree.end_operation()
        if alone:
            self._commit(tree.changes())
        return result

    def _put_one(self, path: Path, node: Node | None, encoded: bytes | None, keep_while: KeepWhile | None) -> Written:
        tree = self._tree
        written = tree.write(path, node, encoded)
        if keep_while is not None:
            tree.keep(path, keep_while, is_new=not written.existed)
        elif encoded is None:
            tree.stay(path)
        tree.settle()
        written.end(node, tree.removals())
        return written

    def _clear_one(self, path: Path, node: Node) -> Written:
        tree = self._tree
        written = tree.write(path, node, None)
        tree.reclaim(path)
        tree.settle()
        written.end(node, tree.removals())
        return written

    def _put_all(self, paths: list[Path], encoded: bytes | None, keep_while: KeepWhile | None) -> Effects:
        tree = self._tree
        before: dict[Path, NodeView | None] = {}
        for path in paths:
            node = tree.lookup(check_path(path))
            before[path] = None if node is None else view_of(node)
            tree.write(path, node, encoded)
        if keep_while is not None:
            for path, old in before.items():
                tree.keep(path, keep_while, is_new=old is None)
        if encoded is None and keep_while is None:
            for path in reversed(paths):
                tree.reclaim(path)
        tree.settle()
        touched = {}
        for path, old in before.items():
            node = tree.lookup(path)
            touched[path] = Touched(old, None if node is None else view_of(node), TouchReason.WRITTEN)
        return Effects(touched, tree.removals())

    def _delete_all(self, paths: list[Path]) -> Effects:
        tree = self._tree
        written: dict[Path, Touched] = {}
        for path in paths:
            if path == ROOT:
                before = view_of(tree.root)
                tree.write(ROOT, tree.root, None)
                for name in sorted(tree.root.children):
                    tree.remove((name,), TouchReason.EXPLICIT)
                written[ROOT] = Touched(before, view_of(tree.root), TouchReason.EXPLICIT)
            else:
                tree.remove(path, TouchReason.EXPLICIT)
                tree.reclaim(path[:-1])
        tree.settle()
        return Effects(written, tree.removals())

    def _import_all(self, nodes: Sequence[ImportedNode], without: list[Path], forget_keep_while: bool) -> Effects:
        tree = self._tree
        for path in without:
            tree.remove(path, TouchReason.EXPLICIT)
        existed = set()
        # Those that are on the way to others come last and from below: by then, others have made them.
        for path, payload, _, on_the_way in (
            *(node for node in nodes if not node.made_on_the_way),
            *(node for node in reversed(nodes) if node.made_on_the_way),
        ):
            node = tree.lookup(check_path(path))
            if node is not None:
                existed.add(path)
            encoded = encode_payload(payload)
            tree.write(path, node, encoded)
            is_parent = node is not None and bool(node.children)
            if encoded is None and not (on_the_way and is_parent):
                tree.stay(path)
        for path, _, keep_while, _ in nodes:
            before = tree.kept.pairs.get(path, ())
            if keep_while is not None:
                is_as_before = bool(before) and resolve_pairs(path, keep_while) == before
                tree.keep(path, keep_while, is_new=is_as_before or path not in existed)
            elif forget_keep_while and before:
                tree.keep(path, (), is_new=False)
        for path in without:
            tree.reclaim(path[:-1])
        tree.settle()
        return Effects({}, tree.removals())

    # --- commits --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._tree.begin(collect=self.on_commit is not None or bool(self.observers))

    def _commit(self, changes: tuple[Change, ...] | None) -> None:
        if not self._tree.end():
            return
        self.revision += 1
        if changes is not None:
            self._tell(Commit(self.revision, changes))

    def _tell(self, commit: Commit) -> None:
        for observer in (*self.observers, *(() if self.on_commit is None else (self.on_commit,))):
            try:
                observer(commit)
            except Exception:  # the commit is made; a watcher cannot change that
                log.exception("an observer of commits crashed at revision %d", commit.revision)
