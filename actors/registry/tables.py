"""The tables behind a registry: who is entered under which key, with which value. Pure.

Both are indexed by key and by owner, so that an owner's entries go in time proportional to their number, however many
others there are: a hundred thousand owners end in linear time, also when all are entered under one key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

if TYPE_CHECKING:
    from batonpass.actors.core.ref import Ref


class Entry(NamedTuple):
    """Who is registered under a key, and the value that belongs to this registration."""

    ref: Ref
    value: Any


class Row(NamedTuple):
    """One registration, with its key."""

    key: Hashable
    ref: Ref
    value: Any


class Table(Protocol):
    """What a registry needs of its table. Entries are listed in the order in which they were added."""

    def add(self, key: Hashable, ref: Ref, value: Any) -> Ref | None:
        """Enter `ref`; None. If another entry is in the way: nothing happens, and whose it is."""

    def remove(self, key: Hashable, ref: Ref, where: Callable[[Any], bool] | None) -> int:
        """Remove the entries of `ref` under `key` (whose values satisfy `where`); how many there were."""

    def remove_owner(self, ref: Ref) -> list[Hashable]:
        """Remove all entries of `ref`; their keys, one for each entry."""

    def entries(self, key: Hashable) -> list[Entry]:
        """The entries under `key`."""

    def keys(self, ref: Ref) -> list[Hashable]:
        """The keys under which `ref` is entered, one for each entry."""

    def owners(self) -> list[Ref]:
        """Everybody who has an entry, once."""

    def rows(self) -> Iterator[Row]:
        """All entries."""

    def __len__(self) -> int:
        """How many entries there are."""


@final
class UniqueTable:
    """At most one entry under each key."""

    __slots__ = ("_entries", "_keys")

    def __init__(self) -> None:
        self._entries: dict[Hashable, Entry] = {}
        self._keys: dict[Ref, dict[Hashable, None]] = {}

    def add(self, key: Hashable, ref: Ref, value: Any) -> Ref | None:
        """Enter `ref`, unless somebody has the key."""
        entry = Entry(ref, value)
        holder = self._entries.setdefault(key, entry)
        if holder is not entry:
            return holder.ref
        self._keys.setdefault(ref, {})[key] = None
        return None

    def replace_value(self, key: Hashable, ref: Ref, value: Any) -> None:
        """Give the entry of `ref` under `key`, which must be there, another value."""
        self._entries[key] = Entry(ref, value)

    def remove(self, key: Hashable, ref: Ref, where: Callable[[Any], bool] | None = None) -> int:
        """Remove the entry of `ref` under `key`."""
        entry = self._entries.get(key)
        if entry is None or entry.ref is not ref or (where is not None and not where(entry.value)):
            return 0
        del self._entries[key]
        keys = self._keys[ref]
        del keys[key]
        if not keys:
            del self._keys[ref]
        return 1

    def remove_owner(self, ref: Ref) -> list[Hashable]:
        """Remove all entries of `ref`; their keys."""
        keys = list(self._keys.pop(ref, ()))
        for key in keys:
            del self._entries[key]
        return keys

    def entries(self, key: Hashable) -> list[Entry]:
        """The entry under `key`, in a list."""
        entry = self._entries.get(key)
        return [] if entry is None else [entry]

    def whereis(self, key: Hashable) -> Ref | None:
        """Who has the key."""
        entry = self._entries.get(key)
        return None if entry is None else entry.ref

    def keys(self, ref: Ref) -> list[Hashable]:
        """The keys that `ref` has."""
        return list(self._keys.get(ref, ()))

    def owners(self) -> list[Ref]:
        """Everybody who has a key, once."""
        return list(self._keys)

    def rows(self) -> Iterator[Row]:
        """All entries."""
        for key, (ref, value) in self._entries.items():
            yield Row(key, ref, value)

    def __len__(self) -> int:
        return len(self._entries)


@final
class DuplicateTable:
    """Any number of entries under each key, also several of one owner."""

    __slots__ = ("_count", "_keys", "_values")

    def __init__(self) -> None:
        self._values: dict[Hashable, dict[Ref, list[Any]]] = {}
        self._keys: dict[Ref, dict[Hashable, None]] = {}
        self._count = 0

    def add(self, key: Hashable, ref: Ref, value: Any) -> Ref | None:
        """Enter `ref`; nothing is ever in the way."""
        self._values.setdefault(key, {}).setdefault(ref, []).append(value)
        self._keys.setdefault(ref, {})[key] = None
        self._count += 1
        return None

    def remove(self, key: Hashable, ref: Ref, where: Callable[[Any], bool] | None = None) -> int:
        """Remove the entries of `ref` under `key` (whose values satisfy `where`); how many there were."""
        values = self._values.get(key, {}).get(ref, [])
        kept = [] if where is None else [value for value in values if not where(value)]
        removed = len(values) - len(kept)
        if not removed:
            return 0
        self._count -= removed
        if kept:
            self._values[key][ref] = kept
            return removed
        self._drop(key, ref)
        keys = self._keys[ref]
        del keys[key]
        if not keys:
            del self._keys[ref]
        return removed

    def remove_owner(self, ref: Ref) -> list[Hashable]:
        """Remove all entries of `ref`; their keys, one for each entry."""
        keys = self.keys(ref)
        for key in self._keys.pop(ref, ()):
            self._drop(key, ref)
        self._count -= len(keys)
        return keys

    def _drop(self, key: Hashable, ref: Ref) -> None:
        owners = self._values[key]
        del owners[ref]
        if not owners:
            del self._values[key]

    def entries(self, key: Hashable) -> list[Entry]:
        """The entries under `key`, owner by owner."""
        return [Entry(ref, value) for ref, values in self._values.get(key, {}).items() for value in values]

    def keys(self, ref: Ref) -> list[Hashable]:
        """The keys under which `ref` is entered, one for each entry."""
        return [key for key in self._keys.get(ref, ()) for _ in self._values[key][ref]]

    def owners(self) -> list[Ref]:
        """Everybody who has an entry, once."""
        return list(self._keys)

    def rows(self) -> Iterator[Row]:
        """All entries, key by key."""
        for key, owners in self._values.items():
            for ref, values in owners.items():
                for value in values:
                    yield Row(key, ref, value)

    def __len__(self) -> int:
        return self._count
