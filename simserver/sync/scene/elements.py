"""One component of all entities, of which the last write wins.

A value is its bytes: what wins does not depend on what they mean, so nothing that is written can make a batch fail.
A change made here has no timestamp until it is flushed. Until then a received write that wins replaces it unseen, as
everywhere in this protocol: that is why a scene receives before it updates.
"""

from enum import Enum, auto
from typing import Final

from batonpass.simserver.sync.scene.codec import MAX_U32, MessageKind, MessageRow, Run, write_run
from batonpass.simserver.sync.scene.limits import VALUE_COST_BYTES
from batonpass.simserver.sync.scene.profiles import SDK_7_28, InteropProfile

__all__ = ["MAX_TIMESTAMP", "NEVER_SENT", "Cell", "LwwElements", "MergeOutcome", "Provenance", "TimestampsUsedUp"]

MAX_TIMESTAMP: Final = MAX_U32 - 0xFFFF
"""A received timestamp above this is refused: what is left above it is for changes made here, which beat it."""

NEVER_SENT: Final = -1
"""The timestamp of a value that was neither sent nor received."""


class TimestampsUsedUp(Exception):
    """A component was changed so often that no timestamp above the last is left."""


Provenance = tuple[str, int, str]
"""Where the state of a component is from.

- the peer that wrote it
- the tick of the replica in which it was written or received
- the peer that took it, by its authority over the entity; the writer itself where nobody has any

A plain tuple, as `Cell` is: the collector of cycles leaves plain tuples of numbers, texts and bytes alone after a first
look. With named ones, it takes as long as all the rest.
"""

Cell = tuple[int, bytes | None, bytes | None, Provenance]
"""What one entity has of the component; a plain tuple, for one is made for every write.

- the timestamp of the last write that was sent or received; `NEVER_SENT` if none was
- the value; None if there is none
- the value that peers have, if a change back to it is not worth a message; None if any is
- the provenance of the value
"""


class MergeOutcome(Enum):
    """What became of a received write."""

    UPDATED = auto()
    SAME = auto()
    """It is what is there."""
    OUTDATED = auto()
    """What is there wins."""
    REFUSED = auto()
    """Its timestamp is above `MAX_TIMESTAMP`."""


class LwwElements:
    """A component whose values are a last-writer-wins element set.

    Args:
        component: its number.
        profile: which value wins, and what need not be sent.

    Attributes:
        cells: by entity, of those that are known to be in use. A received write that is newer than the cell of such an
            entity may be put there by hand, as `merge` would: that is the fast path of a replica.
        aside: by entity, of all others.
        dirty: the entities that were changed here since the last flush, in this order.
    """

    def __init__(self, component: int, profile: InteropProfile = SDK_7_28) -> None:
        self.component: Final = component
        self.cells: Final[dict[int, Cell]] = {}
        self.aside: Final[dict[int, Cell]] = {}
        self.dirty: Final[dict[int, None]] = {}
        self._profile: Final = profile

    def cell(self, entity: int) -> Cell | None:
        """What `entity` has, known or not."""
        return self.cells.get(entity) or self.aside.get(entity)

    def value(self, entity: int) -> bytes | None:
        """The value of `entity`; None if it has none."""
        cell = self.cell(entity)
        return None if cell is None else cell[1]

    def _store(self, entity: int, cell: Cell, known: bool) -> None:
        (self.cells if known else self.aside)[entity] = cell

    # ---------------------------------------------------------------- changes made here

    def put(self, entity: int, data: bytes, provenance: Provenance, *, known: bool = True) -> None:
        """Give `entity` a value, which is sent with the next flush even if it is the one that peers have."""
        old = self.cell(entity)
        self._store(entity, (NEVER_SENT if old is None else old[0], data, None, provenance), known)
        self.dirty[entity] = None

    def mutate(self, entity: int, data: bytes, provenance: Provenance, *, known: bool = True) -> bool:
        """Change the value of `entity`, which is sent unless peers have it already.

        Returns:
            Whether there was a value to change.
        """
        old = self.cell(entity)
        if old is None or old[1] is None:
            return False
        self._store(entity, (old[0], data, old[2], provenance), known)
        self.dirty[entity] = None
        return True

    def delete(self, entity: int, provenance: Provenance, *, known: bool = True) -> bool:
        """Take the value of `entity` away.

        Returns:
            Whether there was one.
        """
        old = self.cell(entity)
        if old is None:
            return False
        if old[1] is not None:
            self.dirty[entity] = None
        self._store(entity, (old[0], None, None, provenance), known)
        return old[1] is not None

    def outbid(self, entity: int, timestamp: int, provenance: Provenance) -> None:
        """Have the next flush send what `entity` has, with a timestamp above `timestamp` and above its own."""
        old = self.cell(entity) or (NEVER_SENT, None, None, provenance)
        self._store(entity, (max(old[0], timestamp), old[1], None, old[3]), known=True)
        self.dirty[entity] = None

    def flush(self) -> list[Run]:
        """The messages that tell peers of all changes since the last flush, in the order of the changes.

        Raises:
            TimestampsUsedUp: if an entity has the last timestamp there is.
        """
        runs: list[Run] = []
        for entity in self.dirty:
            cells = self.cells if entity in self.cells else self.aside
            old, data, sent, provenance = cells[entity]
            if data is not None and data == sent:
                continue
            if old >= MAX_U32:
                raise TimestampsUsedUp(f"component {self.component} of entity {entity} has timestamp {old}: remove it")
            timestamp = self._profile.first_timestamp if old == NEVER_SENT else old + 1
            if old == NEVER_SENT:
                # A snapshot has the entities in the order in which their timestamps began.
                del cells[entity]
            cells[entity] = (timestamp, data, data if self._profile.suppresses_equal else None, provenance)
            kind, row = self._message(entity, timestamp, data)
            if not runs or runs[-1].kind != kind:
                runs.append(Run(kind, []))
            runs[-1].rows.append(row)
        self.dirty.clear()
        return runs

    # ---------------------------------------------------------------- what peers write

    def merge(self, entity: int, timestamp: int, data: bytes | None, provenance: Provenance) -> MergeOutcome:
        """Take a write from a peer, if it wins; None deletes. The entity is known to be in use."""
        if timestamp > MAX_TIMESTAMP:
            return MergeOutcome.REFUSED
        old = self.cells.get(entity)
        if old is not None and old[0] >= timestamp:
            if old[0] > timestamp:
                return MergeOutcome.OUTDATED
            if old[1] == data:
                return MergeOutcome.SAME
            if not self._profile.tie_break.wins(data, old[1]):
                return MergeOutcome.OUTDATED
        self.force(entity, timestamp, data, provenance)
        return MergeOutcome.UPDATED

    def force(self, entity: int, timestamp: int, data: bytes | None, provenance: Provenance) -> None:
        """Take a write whatever is there, and its timestamp with it."""
        old = self.cells.get(entity)
        if old is not None and old[0] == NEVER_SENT:
            del self.cells[entity]
        self.cells[entity] = (timestamp, data, data if self._profile.suppresses_equal else None, provenance)

    # ---------------------------------------------------------------- entities

    def know(self, entity: int) -> None:
        """Count `entity` among those that are known to be in use."""
        if entity in self.aside:
            self.cells[entity] = self.aside.pop(entity)

    def unknow(self, entity: int) -> None:
        """Count `entity` no more among those that are known to be in use."""
        if entity in self.cells:
            self.aside[entity] = self.cells.pop(entity)

    def forget(self, entity: int) -> None:
        """Forget all about `entity`."""
        self.cells.pop(entity, None)
        self.aside.pop(entity, None)
        self.dirty.pop(entity, None)

    def sweep(self) -> None:
        """Forget the entities that are not in use and have no value; what peers had to know of them is flushed."""
        for entity in [entity for entity, cell in self.aside.items() if cell[1] is None and entity not in self.dirty]:
            del self.aside[entity]

    # ---------------------------------------------------------------- all of it

    def _message(self, entity: int, timestamp: int, data: bytes | None) -> tuple[MessageKind, MessageRow]:
        if data is None:
            return MessageKind.DELETE, (entity, self.component, timestamp)
        return MessageKind.PUT, (entity, self.component, timestamp, data)

    def cost_bytes(self) -> int:
        """What all values take, roughly."""
        return sum(
            len(data or b"") + VALUE_COST_BYTES
            for cells in (self.cells, self.aside)
            for _, data, _, _ in cells.values()
        )

    def state_message(self, entity: int) -> tuple[MessageKind, MessageRow] | None:
        """What is there, as the message that would tell of it; None if nothing was ever sent or received."""
        cell = self.cells.get(entity)
        return None if cell is None or cell[0] == NEVER_SENT else self._message(entity, cell[0], cell[1])

    def snapshot(self) -> bytes:
        """Messages that make an empty replica equal to this one, deletions with them."""
        return b"".join(
            write_run(kind, (row,))
            for entity, (timestamp, data, _, _) in self.cells.items()
            if timestamp != NEVER_SENT
            for kind, row in (self._message(entity, timestamp, data),)
        )
