"""The replicated rows as procedures see them: one tree transaction."""

from typing import Any, Protocol

__all__ = ["Rows"]


class Rows(Protocol):
    """What a procedure may do to the tree; paths are tuples of names."""

    @property
    def revision(self) -> int:
        """Of the tree before this transaction: the last one that is without it."""

    def get_or(self, path: tuple[str, ...], default: Any) -> Any:
        """The data at `path`, or `default`."""

    def put(self, path: tuple[str, ...], data: Any) -> Any:
        """Set the data at `path`, making parents on the way."""

    def delete(self, path: tuple[str, ...]) -> Any:
        """Remove `path` and everything below it."""

    def count_children(self, path: tuple[str, ...]) -> int:
        """How many children `path` has; 0 when it does not exist."""
