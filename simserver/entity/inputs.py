"""Exactly-once inputs: each source numbers its inputs from 1, and an entity applies every number once, in order.

No number is ever used for two inputs. A player that owns an entity again may have given inputs under its former
ownership that were refused. All the same they may be in a state that is resumed later. So it begins with a number that
it has never used, and says from where on it counts (`floor`). A cursor below that begins anew there, with a new fold.

The receiving side is a cursor per source. Only the next number is kept: a lower one was applied before, a higher one
came through a gap. Its source will repeat everything after the last acknowledged number (go-back-N, as in TCP's
simplest form). So nothing needs reordering buffers that a peer could fill, and nothing is dropped for good.

The fold `digest` over everything applied makes the promise checkable. The source computes the same fold over what it
sent, and a lost, repeated or swapped input changes it.

The inputs that arrive while an entity is frozen: they go with it, or are taken when it is resumed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from batonpass.authority.model.input_fold import fold
from batonpass.authority.wire.transfer import MAX_INPUTS, InputItem
from batonpass.simserver.world.pending_input import PendingInput

__all__ = [
    "MAX_JOURNAL",
    "MAX_JOURNAL_BYTES",
    "MAX_PENDING",
    "MAX_PENDING_BYTES",
    "MAX_SOURCES",
    "Cursor",
    "EntityInbox",
    "FreezeJournal",
    "InputAdmission",
    "check_inbox",
]

# Inputs that wait for the next tick, per entity. At 20 ticks a second this is 40,000 inputs a second on one entity.
MAX_PENDING: Final = 2048
# They move with the entity, and a state that is longer than a parcel may be could never be handed over.
MAX_PENDING_BYTES: Final = 256 * 1024
MAX_SOURCES: Final = 64
_START: Final = b"\0" * 16
# As `authority.wire.transfer` takes them.
_MAX_SEQ: Final = 2**63


class InputAdmission(StrEnum):
    """What became of an input that arrived."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    GAP = "gap"
    FULL = "full"


@dataclass(slots=True)
class Cursor:
    """How far one source has come: the last number accepted, the last applied, and the fold over those applied."""

    accepted: int = 0
    applied: int = 0
    digest: bytes = _START


class EntityInbox:
    """The inputs of one entity: cursors and what waits for the next tick. Moves with the entity."""

    def __init__(self) -> None:
        self.cursors: dict[str, Cursor] = {}
        self.pending: list[PendingInput] = []
        self.has_forgotten = False
        """Whether a source may have been applied that has no cursor any more."""
        self.changes = 0
        """How often something may have changed in it."""
        self._pending_bytes = 0

    def offer(self, source: str, seq: int, data: bytes, base: int = 0, floor: int = 0) -> InputAdmission:
        """Accept an input if it is its source's next one and there is room.

        Numbers up to `floor` are of ownerships that are over: the next one after it may come, and what waits of
        those is refused.

        One that is not known begins after `base`, up to which it never gives anything again, if it may have been
        forgotten. Else this state is one of before its first input: what it believes to be durable is lost, and it has
        to hear of that. Of too many sources the one that is idle for the longest time is forgotten.
        """
        self.changes += 1
        cursor = self.cursors.get(source)
        if cursor is None:
            base = max(base, floor) if self.has_forgotten else floor
            if seq != base + 1:
                return InputAdmission.GAP
            if len(self.cursors) >= MAX_SOURCES and not self._forget_idle():
                return InputAdmission.FULL
            cursor = self.cursors[source] = Cursor(base, base)
        if cursor.accepted <= floor and seq == floor + 1:
            self._begin_anew(source, cursor, floor)
        if seq <= cursor.accepted:
            return InputAdmission.DUPLICATE
        if seq != cursor.accepted + 1:
            return InputAdmission.GAP
        if len(self.pending) >= MAX_PENDING or self._pending_bytes + len(data) > MAX_PENDING_BYTES:
            return InputAdmission.FULL
        cursor.accepted = seq
        self._pending_bytes += len(data)
        self.pending.append(PendingInput(source, seq, data))
        return InputAdmission.ACCEPTED

    def take(self) -> list[PendingInput]:
        """Everything that waits, now counted as applied; the caller applies it in this order, in one tick."""
        if not self.pending:
            return []
        self.changes += 1
        taken, self.pending, self._pending_bytes = self.pending, [], 0
        for source in {item.source: None for item in taken}:
            # The idle ones come to stand in front.
            self.cursors[source] = self.cursors.pop(source)
        for item in taken:
            cursor = self.cursors[item.source]
            cursor.applied = item.seq
            cursor.digest = fold(cursor.digest, item.seq, item.data)
        return taken

    def _begin_anew(self, source: str, cursor: Cursor, floor: int) -> None:
        """Count from `floor` on: what was given up to there was given under an ownership that is over."""
        if cursor.accepted > cursor.applied:
            self.pending = [item for item in self.pending if item.source != source]
            self._pending_bytes = sum(len(item.data) for item in self.pending)
        cursor.accepted = cursor.applied = floor
        cursor.digest = _START

    def _forget_idle(self) -> bool:
        """Forget a source of which nothing waits, the one that was applied the longest time ago; whether there is one.

        Only the owner's inputs are offered here, so it is never the owner that is forgotten. And who becomes owner
        again gives its inputs under a new ownership, so nothing from before can be taken for them.
        """
        waiting = {item.source for item in self.pending}
        idle = next((source for source in self.cursors if source not in waiting), None)
        if idle is not None:
            del self.cursors[idle]
            self.has_forgotten = True
        return idle is not None

    def withdraw(self, stays: str) -> list[str]:
        """Take back every input that waits but those of `stays`, as if it had never come; the sources, by name."""
        self.changes += 1
        withdrawn = sorted({item.source for item in self.pending} - {stays})
        self.pending = [item for item in self.pending if item.source == stays]
        self._pending_bytes = sum(len(item.data) for item in self.pending)
        for source in withdrawn:
            self.cursors[source].accepted = self.cursors[source].applied
        return withdrawn

    def heard(self) -> tuple[tuple[str, int, int], ...]:
        """Each source, what was accepted of it and what was applied; those in front are idle for the longest time."""
        return tuple((name, cursor.accepted, cursor.applied) for name, cursor in self.cursors.items())

    def sources_of(self, inputs: Iterable[PendingInput]) -> dict[str, int]:
        """The last number applied for each source that occurs in `inputs`."""
        return {item.source: self.cursors[item.source].applied for item in inputs}

    def to_data(self) -> dict[str, Any]:
        """As plain data that moves with the entity's state."""
        data: dict[str, Any] = {
            "cursors": {name: [c.accepted, c.applied, c.digest] for name, c in sorted(self.cursors.items())},
            "pending": [[p.source, p.seq, p.data] for p in self.pending],
        }
        return data | {"has_forgotten": True} if self.has_forgotten else data

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Read what `to_data` wrote; its integrity was checked with the state's hash."""
        inbox = cls()
        inbox.cursors = {name: Cursor(*fields) for name, fields in data["cursors"].items()}
        inbox.pending = [PendingInput(*fields) for fields in data["pending"]]
        inbox.has_forgotten = data.get("has_forgotten", False)
        inbox._pending_bytes = sum(len(item.data) for item in inbox.pending)
        return inbox


def check_inbox(data: Any) -> None:
    """See that this is what `EntityInbox.to_data` writes; raises `ValueError`, `TypeError` or `KeyError` if not.

    Its integrity is checked with the state's hash, but its author may be a server of another instance.
    """
    cursors, pending = data["cursors"], data["pending"]
    if type(cursors) is not dict or len(cursors) > MAX_SOURCES or not all(map(_is_cursor, cursors.items())):
        raise ValueError(f"cursors are those of at most {MAX_SOURCES} sources")
    if type(pending) is not list or len(pending) > MAX_PENDING:
        raise ValueError(f"at most {MAX_PENDING} inputs wait")
    if not all(_is_pending(item) and item[0] in cursors for item in pending):
        raise ValueError("an input that waits has a source that has a cursor, a number and data")
    if sum(len(item[2]) for item in pending) > MAX_PENDING_BYTES:
        raise ValueError(f"at most {MAX_PENDING_BYTES} bytes of inputs wait")


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_SEQ


def _is_cursor(named: tuple[object, object]) -> bool:
    name, cursor = named
    if type(name) is not str or type(cursor) is not list or len(cursor) != 3:
        return False
    accepted, applied, digest = cursor
    return _is_number(accepted) and _is_number(applied) and type(digest) is bytes and len(digest) == len(_START)


def _is_pending(item: object) -> bool:
    if type(item) is not list or len(item) != 3:
        return False
    source, seq, data = item
    return type(source) is str and _is_number(seq) and type(data) is bytes


# Counted from the freeze until the entity resumes or retires, also what was taken meanwhile. All of it must fit one
# message (2 MiB, with about 130 bytes around each input). A freeze lasts milliseconds; sources repeat what found no
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
