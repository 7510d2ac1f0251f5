"""The inputs that arrive while an entity is frozen: they go with it, or are taken when it goes on."""

from collections.abc import Iterator
from typing import Final

from batonpass.authority.wire.transfer import MAX_INPUTS, InputItem

__all__ = ["MAX_JOURNAL", "MAX_JOURNAL_BYTES", "FreezeJournal"]

# Counted from the freeze until the entity resumes or retires, whether it was taken meanwhile or not: all of it must fit
# one message (2 MiB, with about 130 bytes around each input). A freeze lasts milliseconds; sources repeat what found no
# room.
MAX_JOURNAL: Final = MAX_INPUTS
MAX_JOURNAL_BYTES: Final = 1024 * 1024


class FreezeJournal:
    """Of one freeze of one entity."""

    __slots__ = ("_count", "_items", "_size_bytes")

    def __init__(self) -> None:
        self._items: list[InputItem] = []
        self._count = 0
        self._size_bytes = 0

    def __iter__(self) -> Iterator[InputItem]:
        return iter(self._items)

    def keep(self, item: InputItem) -> bool:
        """Keep an input, if there is room; whether there was."""
        if self._count >= MAX_JOURNAL or self._size_bytes + len(item.data) > MAX_JOURNAL_BYTES:
            return False
        self._count += 1
        self._size_bytes += len(item.data)
        self._items.append(item)
        return True

    def take(self) -> list[InputItem]:
        """What arrived since the freeze, or since the last time."""
        taken, self._items = self._items, []
        return taken
