"""One transaction on a store: the view of the tree that a procedure reads and writes through."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tree.conditions import Condition
from tree.errors import Abort
from tree.path import Path

if TYPE_CHECKING:
    from tree.store import NodeView, Store, Written

__all__ = ["Transaction", "TransactionEnded"]

T = TypeVar("T")


class TransactionEnded(RuntimeError):
    """A transaction was used after it was applied or rolled back; keep no reference to it outside the procedure."""


class Transaction:
    """The operations of a `Store`, for as long as the transaction is open. This is what procedures are given."""

    def __init__(self, store: Store) -> None:
        self._store: Store | None = store

    def get(self, path: Path) -> Any:
        """See `Store.get`."""
        return self._open().get(path)

    def get_or(self, path: Path, default: Any) -> Any:
        """See `Store.get_or`."""
        return self._open().get_or(path, default)

    def view(self, path: Path) -> NodeView | None:
        """See `Store.view`."""
        return self._open().view(path)

    def exists(self, path: Path) -> bool:
        """See `Store.exists`."""
        return self._open().exists(path)

    def children(self, path: Path) -> tuple[str, ...]:
        """See `Store.children`."""
        return self._open().children(path)

    def count(self, path: Path) -> int:
        """See `Store.count`."""
        return self._open().count(path)

    def count_below(self, path: Path) -> int:
        """See `Store.count_below`."""
        return self._open().count_below(path)

    def fold(self, path: Path, function: Callable[[Path, NodeView, T], T], initial: T) -> T:
        """See `Store.fold`."""
        return self._open().fold(path, function, initial)

    def put(self, path: Path, data: Any, condition: Condition | None = None) -> Written:
        """See `Store.put`."""
        return self._open().put(path, data, condition)

    def create(self, path: Path, data: Any) -> Written:
        """See `Store.create`."""
        return self._open().create(path, data)

    def update(self, path: Path, data: Any) -> Written:
        """See `Store.update`."""
        return self._open().update(path, data)

    def compare_and_swap(self, path: Path, expected: Any, data: Any) -> Written:
        """See `Store.compare_and_swap`."""
        return self._open().compare_and_swap(path, expected, data)

    def clear_payload(self, path: Path) -> Written:
        """See `Store.clear_payload`."""
        return self._open().clear_payload(path)

    def delete(self, path: Path, condition: Condition | None = None) -> int:
        """See `Store.delete`."""
        return self._open().delete(path, condition)

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
