"""The tree as something that changes: primitive changes with their inverses, and what follows from them.

`Store` decides whether an operation may go ahead; what it does is done here. Every primitive change logs its exact
inverse, so any beginning of the work can be undone. If a listener wants to know what a commit changed, what each node
was before is remembered when it is first touched; otherwise nothing is.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from batonpass.tree.data.errors import BadData, BadPath
from batonpass.tree.data.node import Node, NodeView, rows_of, view_of, walk
from batonpass.tree.data.path import ROOT, Path, check_path
from batonpass.tree.data.work_budget import STEPS_PER_ROW, WorkBudget
from batonpass.tree.store.changes import Change, Kind, Removal, TouchReason, Written
from batonpass.tree.store.keep_while import (
    KeepWhile,
    KeepWhileIndex,
    Pairs,
    keep_while_from_data_untrusted,
    keep_while_to_data,
    refuse_unmet,
    resolve_pairs,
    steps_of_pairs,
    unmet,
)
from batonpass.tree.store.rows import BuiltTree, FrozenTree, Remains, TreeBuilder

__all__ = ["MutableTree", "Row"]

# Payload bytes, both versions, made on the way, and what the node is kept while if anything: what a node is on disk.
Row = list[Any]


class MutableTree:
    """Nodes, what keeps them, and the undo log of the transaction that is open, if one is."""

    def __init__(self) -> None:
        self.root = Node(made_on_the_way=False)
        self.node_count = 0  # without the root
        self.kept: KeepWhileIndex = KeepWhileIndex()
        self.undo: list[tuple[Any, ...]] | None = None
        # What the command or read under way may still take; all that a program does on its own is unbounded.
        self.effort = WorkBudget()
        # While a commit is collected: what each node was before it was first touched.
        self._before: dict[Path, NodeView | None] | None = None
        # Of the operation under way: the paths it changed and the nodes it kept, for keep_while, and what went away.
        self._changed: list[Path] = []
        self._removals: list[Removal] = []
        self._just_kept: set[Path] = set()
        # What nodes were before the operation changed them, of those that may go away in consequence.
        self._views: dict[Path, NodeView] = {}
        # Whether an operation raises the version of a list of children once. Before, each child that came or went did.
        self.raises_lists_once = True
        # The nodes whose list an operation has raised; None where every child counts. What takes one step needs none.
        self._raised: set[Node] | None = None
        # While a view of an earlier moment is read: it is told of every node before its first change.
        self._frozen: FrozenTree | None = None

    def lookup(self, path: Path) -> Node | None:
        """The node at exactly this path."""
        node = self.root
        for name in path:
            child = node.children.get(name)
            if child is None:
                return None
            node = child
        return node

    def count_below(self, node: Node) -> int:
        """How many nodes there are below this one, each counted before it is looked at; raises `TooMuch`."""
        size, pending = 0, [node]
        while pending:
            children = pending.pop().children
            if children:
                self.effort.take(len(children))
                size += len(children)
                pending.extend(children.values())
        return size

    # --- transactions and operations ------------------------------------------------------------------------------

    def begin(self, *, collect: bool) -> None:
        """Open a transaction; with `collect`, remember what will be needed to tell its changes."""
        self.undo = []
        self._before = {} if collect else None

    def begin_operation(self) -> int:
        """Where to roll back to if the operation that begins now fails."""
        self._changed, self._removals, self._just_kept, self._views = [], [], set(), {}
        self._raised = set() if self.raises_lists_once else None
        return 0 if self.undo is None else len(self.undo)

    def end_operation(self) -> None:
        """The operation is over, or was rolled back: what comes raises lists of children anew."""
        self._raised = None

    def roll_back(self, mark: int) -> None:
        """Undo everything since then."""
        undo = self.undo
        while undo is not None and len(undo) > mark:
            inverse, *arguments = undo.pop()
            inverse(*arguments)

    def changes(self) -> tuple[Change, ...] | None:
        """What the open transaction comes to; None if nothing changed, or it was not collected."""
        return None if self._before is None or not self.undo else tuple(self._changes(self._before))

    def end(self) -> bool:
        """Close the transaction: whether anything changed."""
        undo, self.undo, self._before = self.undo, None, None
        return bool(undo)

    def removals(self) -> tuple[Removal, ...]:
        """What went away since the operation began."""
        return tuple(self._removals)

    def _changes(self, before: dict[Path, NodeView | None]) -> Iterator[Change]:
        for path in sorted(before) if len(before) > 1 else before:
            old, node = before[path], self.lookup(path)
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

    # --- the steps of operations ----------------------------------------------------------------------------------

    def write(self, path: Path, node: Node | None, encoded: bytes | None) -> Written:
        """Set the payload of the node at `path`, which is `node`, or make it; raises `TooMuch`, as all that changes."""
        if node is None:
            self._make(path, encoded)
            return Written(path, False, None, 0, encoded, 1, 1, 0)
        self.effort.take(STEPS_PER_ROW)
        previous, version = node.encoded, node.payload_version
        if previous != encoded:
            self._set_payload(path, node, encoded, version + 1)
        children = len(node.children)
        return Written(path, True, previous, version, encoded, node.payload_version, node.child_list_version, children)

    def keep(self, path: Path, keep_while: KeepWhile, *, is_new: bool) -> None:
        """State what the node is kept while; raises if that does not hold now, see `refuse_unmet`."""
        if path == ROOT:
            raise BadPath("the root is always kept; keep_while is for other nodes")
        pairs = resolve_pairs(path, keep_while)
        self.effort.take(steps_of_pairs(pairs))
        refuse_unmet(self.root, path, pairs, self.effort, is_new=is_new)
        node = self.lookup(path)
        if node is not None and (node.made_on_the_way or pairs != self.kept.pairs.get(path, ())):
            self._remember(path, node)
            self.stay(path)
            self._set_kept(path, pairs)
        # Just looked at, and what may not hold yet is not to be looked at before something else changes.
        self._just_kept.add(path)

    def stay(self, path: Path) -> None:
        """The node was asked for explicitly: the implicit rule for parents made on the way is not for it any more."""
        node = self.lookup(path)
        if node is not None and node.made_on_the_way:
            self._remember(path, node)
            if self._frozen is not None:
                self._frozen.keep_fields(node)
            self._log(_undo_made_on_the_way, node, True)
            node.made_on_the_way = False

    def remove(self, path: Path, reason: TouchReason) -> None:
        """Take the node at `path` away with everything below it, if it exists."""
        parent = self.lookup(path[:-1])
        if parent is not None and path[-1] in parent.children:
            child, size = self._remove_child(path, parent)
            self._removals.append(Removal(path, child, reason, self._views, size))

    def take_leaf(self, path: Path, node: Node) -> Removal | None:
        """As `remove` of a node without children, where nothing follows from that; None, and nothing done, if it does.

        Where nothing is kept while something else holds, that is all it takes: most rows go like this.
        """
        above = path[:-1]
        parent = self.lookup(above)
        if parent is None or len(parent.children) < 2:
            return None
        self.effort.take(STEPS_PER_ROW)
        self._note(above, parent)
        self._note(path, node)
        if self._frozen is not None:
            self._frozen.keep_child(parent, path[-1])
        self._log(self._undo_remove, parent, path[-1], node, 1, parent.child_list_version)
        parent.detach(path[-1])
        self._raise_list(parent)
        self.node_count -= 1
        return Removal(path, node, TouchReason.EXPLICIT, {}, 1)

    def reclaim(self, path: Path) -> None:
        """Remove the node at `path` if it is a useless parent, then its parent if that became one."""
        while path:
            node = self.lookup(path)
            if node is None or not node.made_on_the_way or node.encoded is not None or node.children:
                return
            self.remove(path, TouchReason.KEEP_WHILE)
            path = path[:-1]

    def settle(self) -> None:
        """Remove what keep_while does not keep any more, until nothing changes. Each round removes a node, or ends."""
        while self.kept and self._changed:
            changed, self._changed = self._changed, []
            concerned = self.kept.concerned(changed, self.effort) - self._just_kept
            self._just_kept = set()
            for watcher in sorted(concerned):
                pairs = self.kept.pairs.get(watcher)
                if pairs is not None and unmet(self.root, pairs, self.effort) is not None:
                    self.remove(watcher, TouchReason.KEEP_WHILE)
                    self.reclaim(watcher[:-1])

    # --- the primitive changes, each with its inverse -------------------------------------------------------------

    def _log(self, inverse: Callable[..., object], *arguments: Any) -> None:
        if self.undo is not None:
            self.undo.append((inverse, *arguments))

    def _remember(self, path: Path, node: Node | None) -> None:
        """Remember what the node was before this commit, if a listener will want to know."""
        if self._before is not None and path not in self._before:
            self._before[path] = None if node is None else view_of(node)

    def _note(self, path: Path, node: Node | None) -> None:
        """The node is about to change in a way that readers and conditions can see."""
        self._remember(path, node)
        if self.kept:
            self._changed.append(path)

    def _view_before(self, path: Path, node: Node) -> None:
        """Remember what the node was before this operation."""
        if path not in self._views:
            self._views[path] = view_of(node)

    def _set_payload(self, path: Path, node: Node, encoded: bytes | None, version: int) -> None:
        if self.kept:
            self._view_before(path, node)
        self._note(path, node)
        if self._frozen is not None:
            self._frozen.keep_fields(node)
        self._log(_undo_payload, node, node.encoded, node.payload_version)
        node.encoded, node.payload_version = encoded, version

    def _make(self, path: Path, encoded: bytes | None) -> None:
        """A new node at `path`. Missing parents are made with their child in place, so all versions begin at 1."""
        parent, depth = self.root, 0
        while path[depth] in parent.children:
            parent = parent.children[path[depth]]
            depth += 1
        self.effort.take(STEPS_PER_ROW * (len(path) - depth))
        if self.kept:
            self._view_before(path[:depth], parent)
        self._note(path[:depth], parent)
        for level in range(depth + 1, len(path) + 1):
            self._note(path[:level], None)
        top = made = Node(made_on_the_way=depth + 1 < len(path))
        for level in range(depth + 1, len(path)):
            child = Node(made_on_the_way=level + 1 < len(path))
            made.attach(path[level], child)
            made = child
        made.encoded = encoded
        size = len(path) - depth
        if self._frozen is not None:
            self._frozen.keep_child(parent, path[depth])
        self._log(self._undo_make, parent, path[depth], size, parent.child_list_version)
        parent.attach(path[depth], top)
        self._raise_list(parent)
        self.node_count += size

    def _undo_make(self, parent: Node, name: str, size: int, list_version: int) -> None:
        parent.detach(name)
        parent.child_list_version = list_version
        self.node_count -= size

    def _raise_list(self, parent: Node) -> None:
        """A child of this node came or went: one version more, unless this operation has raised it already."""
        if self._raised is None:
            parent.child_list_version += 1
        elif parent not in self._raised:
            self._raised.add(parent)
            parent.child_list_version += 1

    def _size_of(self, node: Node) -> int:
        """How many nodes there are in this subtree, each paid for before it is looked at; raises `TooMuch`."""
        size = 1 + self.count_below(node)
        self.effort.take((STEPS_PER_ROW - 1) * size + 1)
        return size

    def _remove_child(self, path: Path, parent: Node) -> tuple[Node, int]:
        """Take this subtree out: its root, and how many nodes it has. Counted as a whole before anything is done."""
        name = path[-1]
        child = parent.children[name]
        size = self._size_of(child)
        self._view_before(path[:-1], parent)
        self._note(path[:-1], parent)
        if self._before is not None or self.kept:
            for node_path, node in walk(path, child):
                self._note(node_path, node)
                if node_path in self.kept.pairs:
                    self._set_kept(node_path, ())
        if self._frozen is not None:
            self._frozen.keep_child(parent, name)
        self._log(self._undo_remove, parent, name, child, size, parent.child_list_version)
        parent.detach(name)
        self._raise_list(parent)
        self.node_count -= size
        return child, size

    def _undo_remove(self, parent: Node, name: str, child: Node, size: int, list_version: int) -> None:
        parent.attach(name, child)
        parent.child_list_version = list_version
        self.node_count += size

    def _set_kept(self, path: Path, pairs: Pairs) -> None:
        self.effort.take(steps_of_pairs(pairs) + steps_of_pairs(self.kept.pairs.get(path, ())))
        before = self.kept.replace(path, pairs)
        self._log(self.kept.replace, path, before)

    # --- rows -----------------------------------------------------------------------------------------------------

    def to_rows(self) -> Iterator[list[Any]]:
        """One row per node, parents first, siblings by name."""
        return rows_of(self.root, {path: keep_while_to_data(pairs) for path, pairs in self.kept.pairs.items()})

    def restore(self, rows: Any) -> None:
        """Replace everything by what `to_rows` gave; raises `BadData` and changes nothing if it is not that."""
        builder = TreeBuilder()
        builder.add_untrusted(rows)
        self.replace_all(builder.finish())

    def replace_all(self, built: BuiltTree) -> Remains:
        """Replace everything at once; what is left of the old tree. A frozen view must be thawed before."""
        remains = Remains(self.root)
        self.root, self.node_count, self.kept = built
        self.undo = self._before = self._frozen = None
        return remains

    def freeze(self) -> FrozenTree:
        """A view of the tree as it is now, to be read in slices while the tree changes; one at a time. See `thaw`."""
        if self.undo is not None or self._frozen is not None:
            raise RuntimeError("the tree cannot be frozen within a transaction, or twice at a time")
        self._frozen = FrozenTree(self.root, self.node_count, dict(self.kept.pairs))
        return self._frozen

    def thaw(self) -> None:
        """The view that `freeze` gave is not needed any more; what it kept is forgotten."""
        self._frozen = None

    def row(self, path: Path) -> Row | None:
        """Everything that is kept of the node at `path`, as plain data; None if there is none."""
        node = self.lookup(path)
        if node is None:
            return None
        row: Row = [node.encoded, node.payload_version, node.child_list_version, node.made_on_the_way]
        return [*row, keep_while_to_data(self.kept.pairs[path])] if path in self.kept.pairs else row

    def adopt(self, rows: Iterable[tuple[Path, Row | None]]) -> None:
        """Make the nodes at these paths what another tree says they are (None: gone), without any rule applied.

        Raises `BadData` for what is not a row, or a row without its parent.
        """
        for path, row in sorted(rows, key=lambda item: item[0]):
            if row is None:
                self._drop(path)
            else:
                self._set_row(check_path(path), row)

    def _drop(self, path: Path) -> None:
        parent = self.lookup(path[:-1])
        if path and parent is not None and path[-1] in parent.children:
            version = parent.child_list_version
            self._remove_child(path, parent)
            parent.child_list_version = version  # the parent's own row says what it is now

    def _set_row(self, path: Path, row: Row) -> None:
        match row:
            case [bytes() | None as encoded, int(payload_version), int(child_list_version), bool(on_the_way), *kept]:
                pairs = resolve_pairs(path, keep_while_from_data_untrusted(kept[0])) if kept else ()
            case _:
                raise BadData(f"not the row of a node: {row!r:.100}")
        node = self.lookup(path)
        if node is None:
            parent = self.lookup(path[:-1])
            if parent is None:
                raise BadData(f"the row of {'/'.join(path)} does not follow its parent")
            version = parent.child_list_version
            self._make(path, None)
            parent.child_list_version = version
            node = parent.children[path[-1]]
        self._note(path, node)
        if self._frozen is not None:
            self._frozen.keep_fields(node)
        self._log(_undo_payload, node, node.encoded, node.payload_version)
        self._log(_undo_child_list_version, node, node.child_list_version)
        self._log(_undo_made_on_the_way, node, node.made_on_the_way)
        node.encoded, node.payload_version, node.child_list_version = encoded, payload_version, child_list_version
        node.made_on_the_way = on_the_way
        if pairs != self.kept.pairs.get(path, ()):
            self._set_kept(path, pairs)


def _undo_payload(node: Node, encoded: bytes | None, version: int) -> None:
    node.encoded, node.payload_version = encoded, version


def _undo_child_list_version(node: Node, version: int) -> None:
    node.child_list_version = version


def _undo_made_on_the_way(node: Node, made_on_the_way: bool) -> None:
    node.made_on_the_way = made_on_the_way
