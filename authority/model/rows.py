"""The replicated rows as procedures see them: one tree transaction.

Rows as several procedures one after the other would leave them, written only when all are through.

Each procedure is a *step*. What it wrote is kept when it is through, and thrown away when it is refused. So one that is
refused leaves nothing behind and keeps no other from counting. A row that several steps change is written once, and one
that several look at (the lease of the target they all go to) is read once.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

__all__ = ["Draft", "Rows"]


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


_Path = tuple[str, ...]
_GONE: Final = object()
_UNREAD: Final = object()


class Draft:
    """`Rows` over other rows. What it deletes must have nothing below it."""

    def __init__(self, rows: Rows) -> None:
        self._rows: Final = rows
        # What a step finds: what was read, what earlier steps have left, and what it has written itself.
        self._found: Final[dict[_Path, Any]] = {}
        self._kept: Final[dict[_Path, Any]] = {}
        # What the step under way has written, and what it found there before.
        self._step: dict[_Path, Any] = {}
        self._before: dict[_Path, Any] = {}

    def run(self, procedure: Callable[[Rows, Mapping[str, Any]], Any], args: Mapping[str, Any]) -> Any:
        """One step: the procedure's answer. What it raises undoes what it wrote, and nothing else."""
        self._step, self._before = {}, {}
        try:
            answer = procedure(self, args)
        except BaseException:
            self._undo()
            raise
        kept = self._kept
        for path, data in self._step.items():
            # In the order of the last writing, as if each had been written by itself.
            kept.pop(path, None)
            kept[path] = data
        return answer

    def _undo(self) -> None:
        for path, data in self._before.items():
            if data is _UNREAD:
                del self._found[path]
            else:
                self._found[path] = data
        self._step = {}

    def write(self) -> None:
        """Write what the steps that were through have left."""
        rows = self._rows
        for path, data in self._kept.items():
            if data is not _GONE:
                rows.put(path, data)
            else:
                rows.delete(path)

    @property
    def revision(self) -> int:
        """As `Rows.revision`."""
        return self._rows.revision

    def get_or(self, path: _Path, default: Any) -> Any:
        """As `Rows.get_or`."""
        data = self._found.get(path, _UNREAD)
        if data is _UNREAD:
            data = self._found[path] = self._rows.get_or(path, _GONE)
        return default if data is _GONE else data

    def put(self, path: _Path, data: Any) -> None:
        """As `Rows.put`."""
        if path not in self._step:
            self._before[path] = self._found.get(path, _UNREAD)
        self._step[path] = self._found[path] = data

    def delete(self, path: _Path) -> None:
        """As `Rows.delete`."""
        self.put(path, _GONE)

    def count_children(self, path: _Path) -> int:
        """As `Rows.count_children`."""
        count = self._rows.count_children(path)
        written = self._kept | self._step
        for child, data in written.items():
            if child[:-1] == path:
                count += (data is not _GONE) - (self._rows.get_or(child, _GONE) is not _GONE)
        return count
