"""A store whose truth is elsewhere: commands are rehearsed on it, and what happened elsewhere is taken over as rows.

A *row* is one node as bytes, without its children: the CBOR of `Store.row`. The rows of all nodes are the tree. Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import cbor2

from batonpass.tree.data.data import decode_untrusted
from batonpass.tree.data.errors import BadData, TreeError
from batonpass.tree.data.node import Node, NodeView
from batonpass.tree.data.path import ROOT, Path
from batonpass.tree.data.payload import check_payload_untrusted
from batonpass.tree.data.work_budget import MAX_STEPS, UNBOUNDED
from batonpass.tree.store.changes import Change
from batonpass.tree.store.keep_while import keep_while_to_data
from batonpass.tree.store.mutable import MutableTree, Row
from batonpass.tree.store.store import Store
from batonpass.tree.store.transaction import Transaction

__all__ = ["MirroredStore", "Rehearsal"]

T = TypeVar("T")

_MAX_VERSION: Final = 2**63 - 1
_ELSEWHERE: Final = "the truth of this tree is elsewhere; submit a command instead"


class _RehearsedTree(MutableTree):
    """A tree that knows which nodes were touched since it was last asked, and can go back to any moment."""

    def __init__(self) -> None:
        super().__init__()
        self._dirty: set[Path] = set()
        self.is_rehearsing = False

    def _note(self, path: Path, node: Node | None) -> None:
        super()._note(path, node)
        if self.is_rehearsing:
            self._dirty.add(path)

    def take_dirty(self) -> set[Path]:
        dirty, self._dirty = self._dirty, set()
        return dirty

    def touched(self) -> Mapping[Path, NodeView | None]:
        return self._before or {}

    def changes(self) -> tuple[Change, ...]:
        return tuple(self._changes(self._before or {}))

    def mark(self) -> tuple[int, int]:
        return len(self.undo or ()), len(self._before or ())

    def back_to(self, mark: tuple[int, int]) -> None:
        self.roll_back(mark[0])
        before = self._before
        while before is not None and len(before) > mark[1]:
            before.popitem()  # the last one touched

    def forget(self) -> None:
        """Undo everything, as if there had been no transaction."""
        self.roll_back(0)
        self.undo = self._before = None
        self._dirty = set()

    def become(self, other: MutableTree) -> None:
        self.root, self.node_count, self.kept = other.root, other.node_count, other.kept


class Rehearsal:
    """What the transactions since its beginning would change; see `MirroredStore.rehearsal`."""

    def __init__(self, tree: _RehearsedTree) -> None:
        self._tree: Final = tree

    @property
    def touched(self) -> Mapping[Path, NodeView | None]:
        """The paths of all nodes whose row may be another one than before, in the order in which that happened.

        The value is None for those that did not exist before.
        """
        return self._tree.touched()

    def changes(self) -> tuple[Change, ...]:
        """What the commit would say if all of it were one."""
        return self._tree.changes()

    def row(self, path: Path) -> bytes | None:
        """The node's row as it would be; None if it would not exist."""
        row = self._tree.row(path)
        # Not `encode`, which reads back what it wrote: all of it is plain by construction.
        return None if row is None else cbor2.dumps(row)

    def size_bytes(self, path: Path) -> int:
        """About how many bytes the row would have, at most 48 too few; 0 if the node would not exist."""
        node = self._tree.lookup(path)
        size = 0 if node is None or node.encoded is None else len(node.encoded)
        pairs = self._tree.kept.pairs.get(path)
        return size if pairs is None else size + len(cbor2.dumps(keep_while_to_data(pairs)))

    def take_dirty(self) -> set[Path]:
        """The paths of the nodes whose row may have changed since the last time this was asked."""
        return self._tree.take_dirty()

    def mark(self) -> tuple[int, int]:
        """Where the rehearsal is now, for `back_to`."""
        return self._tree.mark()

    def back_to(self, mark: tuple[int, int]) -> None:
        """Take back every transaction since this mark."""
        self._tree.back_to(mark)


class MirroredStore(Store):
    """A store that is written by rehearsing and by taking rows over only; reading is that of any store."""

    def __init__(self) -> None:
        super().__init__()
        self._mirrored: Final = _RehearsedTree()
        self._tree = self._mirrored

    # --- rehearsing -----------------------------------------------------------------------------------------------

    @contextmanager
    def rehearsal(self) -> Iterator[Rehearsal]:
        """Transactions inside the block apply, are seen by each other, and are all taken back at its end.

        No observer is told, and the revision stays. Nothing may wait inside: readers would see what never happened.
        """
        tree = self._mirrored
        if tree.undo is not None:
            raise RuntimeError("a rehearsal or a transaction is open already")
        tree.begin(collect=True)
        tree.is_rehearsing = True
        try:
            yield Rehearsal(tree)
        finally:
            tree.is_rehearsing = False
            tree.forget()

    def transact(self, procedure: Callable[[Transaction, Any], Any], args: Any, finish: Callable[[Any], T]) -> T:
        """See `Store.transact`; only inside a rehearsal."""
        tree = self._mirrored
        if not tree.is_rehearsing:
            raise RuntimeError(_ELSEWHERE)
        mark = tree.mark()
        transaction = Transaction(self)
        tree.effort.left = MAX_STEPS
        try:
            return finish(procedure(transaction, args))
        except BaseException:
            tree.back_to(mark)
            raise
        finally:
            transaction.end()
            tree.effort.left = UNBOUNDED

    def transaction(self) -> NoReturn:
        """Not on a mirror."""
        raise RuntimeError(_ELSEWHERE)

    # --- rows -----------------------------------------------------------------------------------------------------

    def take_rows_untrusted(self, rows: Mapping[Path, bytes | None], revision: int) -> None:
        """Become the tree with these rows instead of the present ones (None: without the node), as one commit.

        Observers are told of the net effect. Raises `BadData` naming the node, and changes nothing, if a row cannot be
        read, or if a node would be without its parent.
        """
        if ROOT in rows and rows[ROOT] is None:
            raise BadData("the root cannot be deleted")
        self.adopt(
            ((path, None if row is None else _read_row_untrusted(path, row)) for path, row in rows.items()), revision
        )

    def add_row_untrusted(self, path: Path, row: bytes) -> None:
        """Build a tree from its rows, parents before their children; for a store that is not read yet.

        Raises `BadData` naming the node.
        """
        self._mirrored.adopt([(path, _read_row_untrusted(path, row))])

    def become(self, built: "MirroredStore", revision: int) -> None:
        """Replace the whole tree by one that was built with `add_row_untrusted`, at this revision."""
        self._mirrored.become(built._mirrored)
        self.revision = revision
        if self.on_restore is not None:
            self.on_restore(revision)


def _read_row_untrusted(path: Path, row: bytes) -> Row:
    """The row as plain data, checked; raises `BadData` naming the path."""
    try:
        match decode_untrusted(row):
            case [bytes() | None as encoded, int(payload_version), int(list_version), bool(), *kept] as read if (
                0 < payload_version <= _MAX_VERSION and 0 < list_version <= _MAX_VERSION and len(kept) <= 1
            ):
                if encoded is not None:
                    check_payload_untrusted(encoded)
                return list(read)
            case other:
                raise BadData(f"not the row of a node: {other!r:.100}")
    except TreeError as error:
        raise BadData(f"the row of the node {path} cannot be read: {error.message}", {"path": list(path)}) from error
