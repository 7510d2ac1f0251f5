"""Transactions on a store: the view of the tree that a procedure reads and writes through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from batonpass.tree.data.errors import Abort, ReadOnlyTransaction
from batonpass.tree.data.path import Path
from batonpass.tree.store.conditions import Condition
from batonpass.tree.store.pattern import Pattern

if TYPE_CHECKING:
    from batonpass.tree.data.node import NodeView
    from batonpass.tree.store.changes import Effects, Written
    from batonpass.tree.store.keep_while import KeepWhile, Pairs
    from batonpass.tree.store.store import Store

__all__ = ["ImportedNode", "ReadTransaction", "Transaction", "TransactionEnded"]

T = TypeVar("T")


class TransactionEnded(RuntimeError):
    """A transaction was used after it was applied or rolled back; keep no reference to it outside the procedure."""


class ImportedNode(NamedTuple):
    """A node as an import states it; `keep_while` is None where nothing is stated.

    `made_on_the_way`: it has no payload and is there for the nodes below it alone.
    """

    path: Path
    payload: Any
    keep_while: KeepWhile | None = None
    made_on_the_way: bool = False


class Transaction:
    """The operations of a `Store`, for as long as the transaction is open. This is what procedures are given."""

    def __init__(self, store: Store) -> None:
        self._store: Store | None = store

    @property
    def revision(self) -> int:
        """Of the store before this transaction; it rises by one when this is applied, if it changes anything."""
        return self._open().revision

    # --- reading --------------------------------------------------------------------------------------------------

    def get(self, path: Pattern) -> Any:
        """See `Store.get`."""
        return self._open().get(path)

    def get_or(self, path: Pattern, default: Any) -> Any:
        """See `Store.get_or`."""
        return self._open().get_or(path, default)

    def view(self, path: Pattern) -> NodeView | None:
        """See `Store.view`."""
        return self._open().view(path)

    def children(self, path: Pattern) -> tuple[str, ...]:
        """See `Store.children`."""
        return self._open().children(path)

    def count_children(self, path: Pattern) -> int:
        """See `Store.count_children`."""
        return self._open().count_children(path)

    def count_below(self, path: Pattern) -> int:
        """See `Store.count_below`."""
        return self._open().count_below(path)

    def keep_while(self, path: Path) -> Pairs:
        """See `Store.keep_while`."""
        return self._open().keep_while(path)

    def made_on_the_way(self, path: Path) -> bool:
        """See `Store.made_on_the_way`."""
        return self._open().made_on_the_way(path)

    def exists(self, pattern: Pattern) -> bool:
        """See `Store.exists`."""
        return self._open().exists(pattern)

    def has_data(self, pattern: Pattern) -> bool:
        """See `Store.has_data`."""
        return self._open().has_data(pattern)

    def count(self, pattern: Pattern) -> int:
        """See `Store.count`."""
        return self._open().count(pattern)

    def get_many(self, pattern: Pattern) -> dict[Path, Any]:
        """See `Store.get_many`."""
        return self._open().get_many(pattern)

    def matches(self, pattern: Pattern, after: Path | None = None) -> Iterator[tuple[Path, NodeView]]:
        """See `Store.matches`."""
        return self._open().matches(pattern, after)

    def fold(self, pattern: Pattern, function: Callable[[Path, NodeView, T], T], initial: T) -> T:
        """See `Store.fold`."""
        return self._open().fold(pattern, function, initial)

    def fold_below(self, path: Path, function: Callable[[Path, NodeView, T], T], initial: T) -> T:
        """See `Store.fold_below`."""
        return self._open().fold_below(path, function, initial)

    # --- writing --------------------------------------------------------------------------------------------------

    def put(
        self, path: Pattern, data: Any, condition: Condition | None = None, *, keep_while: KeepWhile | None = None
    ) -> Written:
        """See `Store.put`."""
        return self._writable().put(path, data, condition, keep_while=keep_while)

    def create(self, path: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Written:
        """See `Store.create`."""
        return self._writable().create(path, data, keep_while=keep_while)

    def update(self, path: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Written:
        """See `Store.update`."""
        return self._writable().update(path, data, keep_while=keep_while)

    def compare_and_swap(
        self, path: Pattern, expected: Any, data: Any, *, keep_while: KeepWhile | None = None
    ) -> Written:
        """See `Store.compare_and_swap`."""
        return self._writable().compare_and_swap(path, expected, data, keep_while=keep_while)

    def clear_payload(self, path: Pattern) -> Written:
        """See `Store.clear_payload`."""
        return self._writable().clear_payload(path)

    def delete(self, path: Pattern, condition: Condition | None = None) -> Effects:
        """See `Store.delete`."""
        return self._writable().delete(path, condition)

    def put_many(self, pattern: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Effects:
        """See `Store.put_many`."""
        return self._writable().put_many(pattern, data, keep_while=keep_while)

    def update_many(self, pattern: Pattern, data: Any, *, keep_while: KeepWhile | None = None) -> Effects:
        """See `Store.update_many`."""
        return self._writable().update_many(pattern, data, keep_while=keep_while)

    def clear_many_payloads(self, pattern: Pattern) -> Effects:
        """See `Store.clear_many_payloads`."""
        return self._writable().clear_many_payloads(pattern)

    def delete_many(self, pattern: Pattern) -> Effects:
        """See `Store.delete_many`."""
        return self._writable().delete_many(pattern)

    def import_nodes(
        self, nodes: Sequence[ImportedNode], without: Iterable[Path] = (), *, forget_keep_while: bool = False
    ) -> Effects:
        """See `Store.import_nodes`."""
        return self._writable().import_nodes(nodes, without, forget_keep_while=forget_keep_while)

    # --- its bounds -----------------------------------------------------------------------------------------------

    def spend(self, steps: int) -> None:
        """Count work of the procedure itself against what one command may take; raises `TooMuch`. See `effort`."""
        self._open().spend(steps)

    # --- its end --------------------------------------------------------------------------------------------------

    def abort(self, code: str, message: str = "", details: Any = None) -> NoReturn:
        """Give up: nothing of this transaction applies, and the caller gets this error."""
        raise Abort(code, message, details)

    def end(self) -> None:
        """Refuse all further use; the store calls this when the transaction is over."""
        self._store = None

    def _open(self) -> Store:
        if self._store is None:
            raise TransactionEnded("this transaction is over; start another one")
        return self._store

    def _writable(self) -> Store:
        return self._open()


class ReadTransaction(Transaction):
    """A transaction that may only read; every write raises `ReadOnlyTransaction`."""

    def _writable(self) -> Store:
        self._open()
        raise ReadOnlyTransaction("this transaction may only read; submit a procedure that is not read-only to write")
