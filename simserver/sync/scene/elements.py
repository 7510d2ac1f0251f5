"""One component of all entities, of which the last write wins.

A value is its bytes: what wins does not depend on what they mean, so nothing that is written can make a batch fail.
A change made here has no timestamp until it is flushed. Until then a received write that wins replaces it unseen, as
everywhere in this protocol: that is why a scene receives before it updates.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from batonpass.simserver.sync.scene.codec import MAX_U32, MessageKind, MessageRow, SceneRun, write_message
from batonpass.simserver.sync.scene.limits import VALUE_COST_BYTES
from batonpass.simserver.sync.scene.profiles import SDK_7_28, InteropProfile

__all__ = ["MAX_TIMESTAMP", "LwwElements", "MergeOutcome", "Provenance", "TimestampsUsedUp"]

MAX_TIMESTAMP: Final = MAX_U32 - 0xFFFF
"""A received timestamp above this is refused: what is left above it is for changes made here, which beat it."""


class TimestampsUsedUp(Exception):
    """A component was changed so often that no timestamp above the last is left."""


Provenance = tuple[str, int, str]
"""Where the state of a component is from. One is made for each chunk.

- the peer that wrote it
- the tick of the replica in which it was written or received
- the peer that took it, by its authority over the entity; the writer itself where there is no authority
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

    What an entity has is in several tables: objects of its own for each would be looked at by the collector of cycles,
    which takes longer than all the rest. A replica puts a write that is newer than what a known entity has into
    `stamps`, `values` and `origins` by itself, as `merge` would, while nothing is `dirty`.

    Args:
        component: its number.
        profile: which value wins, and what need not be sent.

    Attributes:
        stamps: the timestamp of the last write that was sent or received, by entity, of those that are in use.
        aside: the same of all others.
        values: by entity; None of one whose value was deleted.
        origins: where the values are from, by entity.
        dirty: the entities that were changed here since the last flush, in this order. With each, the value that peers
            have, if a change back to it is not worth a message; None if any is.
    """

    def __init__(self, component: int, profile: InteropProfile = SDK_7_28) -> None:
        self.component: Final = component
        self.stamps: Final[dict[int, int]] = {}
        self.aside: Final[dict[int, int]] = {}
        self.values: Final[dict[int, bytes | None]] = {}
        self.origins: Final[dict[int, Provenance]] = {}
        self.dirty: Final[dict[int, bytes | None]] = {}
        self._profile: Final = profile
        # Of entities that were outbid: the timestamp of the last write that was taken, and the one that stands for it.
        self._outbids: Final[dict[int, tuple[int, int]]] = {}

    def timestamp(self, entity: int) -> int | None:
        """Of the last write of `entity` that was sent or received; None if none was."""
        return self.stamps.get(entity, self.aside.get(entity))

    # ---------------------------------------------------------------- changes made here

    def _change(self, entity: int, data: bytes | None, sent: bytes | None, provenance: Provenance) -> None:
        if self.timestamp(entity) == MAX_U32:
            raise TimestampsUsedUp(f"component {self.component} of entity {entity} has no timestamp left: remove it")
        self._outbids.pop(entity, None)
        self.values[entity] = data
        self.origins[entity] = provenance
        self.dirty[entity] = sent

    def put(self, entity: int, data: bytes, provenance: Provenance) -> None:
        """Give `entity` a value, which is sent with the next flush even if it is the one that peers have.

        Raises:
            TimestampsUsedUp: if the entity has the last timestamp there is. Nothing is changed then.
        """
        self._change(entity, data, None, provenance)

    def mutate(self, entity: int, data: bytes, provenance: Provenance) -> bool:
        """Change the value of `entity`, which is sent unless peers have it already; errors are those of `put`.

        Returns:
            Whether there was a value to change.
        """
        old = self.values.get(entity)
        if old is None:
            return False
        sent = self.dirty.get(entity, old if self._profile.suppresses_equal else None)
        self._change(entity, data, sent, provenance)
        return True

    def delete(self, entity: int, provenance: Provenance) -> bool:
        """Take the value of `entity` away; errors are those of `put`.

        Returns:
            Whether there was one.
        """
        if self.values.get(entity) is None:
            return False
        self._change(entity, None, None, provenance)
        return True

    def entity_removed(self, entity: int, provenance: Provenance) -> None:
        """Take the value of an entity away that was removed, which peers are told besides."""
        if self.values.get(entity) is not None and self.timestamp(entity) != MAX_U32:
            self._change(entity, None, None, provenance)
        elif entity in self.values:
            self.values[entity] = None

    def outbid(self, entity: int, timestamp: int, provenance: Provenance) -> None:
        """Have the next flush send what `entity` has, with a timestamp above `timestamp` and above its own.

        Its writers know nothing of that yet. So what they have written meanwhile is measured by what they knew, and not
        by `timestamp`: else a peer that may not write could make them lose what is on its way.
        """
        old = self.stamps.get(entity, 0)
        self.stamps[entity] = max(old, timestamp)
        self._outbids[entity] = self._taken(entity, old), self.stamps[entity]
        self.values.setdefault(entity, None)
        self.origins.setdefault(entity, provenance)
        self.dirty[entity] = None

    def flush(self, is_known: Callable[[int], bool]) -> list[SceneRun]:
        """The messages that tell peers of all changes since the last flush, in the order of the changes.

        Args:
            is_known: whether an entity is in use.
        """
        if not self.dirty:
            return []
        dirty = dict(self.dirty)
        self.dirty.clear()
        runs: list[SceneRun] = []
        for entity, sent in dirty.items():
            data = self.values[entity]
            if data is not None and data == sent:
                continue
            old = self.timestamp(entity)
            timestamp = self._profile.first_timestamp if old is None else old + 1
            (self.aside if entity in self.aside or not is_known(entity) else self.stamps)[entity] = timestamp
            if entity in self._outbids and old is not None:
                self._outbids[entity] = self._taken(entity, old), timestamp
            kind, row = self._message(entity, timestamp, data)
            if not runs or runs[-1].kind != kind:
                runs.append(SceneRun(kind, [[] for _ in row]))
            for column, value in zip(runs[-1].columns, row, strict=True):
                column.append(value)
        return runs

    # ---------------------------------------------------------------- what peers write

    def merge(self, entity: int, timestamp: int, data: bytes | None, provenance: Provenance) -> MergeOutcome:
        """Take a write from a peer, if it wins; None deletes. The entity is known to be in use."""
        if timestamp > MAX_TIMESTAMP:
            return MergeOutcome.REFUSED
        old = self.stamps.get(entity)
        if old is not None and old >= timestamp:
            if timestamp > self._taken(entity, old):
                # It was written before its writer knew that it is outbid: it holds, above that.
                self._outbids[entity] = timestamp, old
                self.values[entity] = data
                self.origins[entity] = provenance
                self.dirty[entity] = None
                return MergeOutcome.UPDATED
            if old > timestamp:
                return MergeOutcome.OUTDATED
            value = self.values[entity]
            if value == data:
                return MergeOutcome.SAME
            if not self._profile.tie_break.wins(data, value):
                return MergeOutcome.OUTDATED
        self.force(entity, timestamp, data, provenance)
        return MergeOutcome.UPDATED

    def _taken(self, entity: int, stands: int) -> int:
        """The timestamp of the last write that was taken, of an entity for which `stands` stands."""
        taken, since = self._outbids.get(entity, (stands, stands))
        return taken if since == stands else stands

    def force(self, entity: int, timestamp: int, data: bytes | None, provenance: Provenance) -> None:
        """Take a write whatever is there, and its timestamp with it."""
        self.stamps[entity] = timestamp
        self.values[entity] = data
        self.origins[entity] = provenance
        if entity in self.dirty:
            self.dirty[entity] = data if self._profile.suppresses_equal else None

    # ---------------------------------------------------------------- entities

    def know(self, entity: int) -> None:
        """Count `entity` among those that are known to be in use."""
        if entity in self.aside:
            self.stamps[entity] = self.aside.pop(entity)

    def unknow(self, entity: int) -> None:
        """Count `entity` no more among those that are known to be in use."""
        if entity in self.stamps:
            self.aside[entity] = self.stamps.pop(entity)

    def forget(self, entity: int) -> None:
        """Forget all about `entity`."""
        for table in (self.stamps, self.aside, self.values, self.origins, self.dirty, self._outbids):
            table.pop(entity, None)

    def sweep(self) -> None:
        """Forget the entities that are not in use and have no value; what peers had to know of them is flushed."""
        for entity in [entity for entity in self.aside if self.values[entity] is None and entity not in self.dirty]:
            self.forget(entity)

    # ---------------------------------------------------------------- all of it

    def _message(self, entity: int, timestamp: int, data: bytes | None) -> tuple[MessageKind, MessageRow]:
        if data is None:
            return MessageKind.DELETE, (entity, self.component, timestamp)
        return MessageKind.PUT, (entity, self.component, timestamp, data)

    def cost_bytes(self) -> int:
        """What all values take, roughly."""
        return sum(len(data or b"") + VALUE_COST_BYTES for data in self.values.values())

    def state_message(self, entity: int) -> tuple[MessageKind, MessageRow] | None:
        """What is there, as the message that would tell of it; None if nothing was ever sent or received."""
        timestamp = self.stamps.get(entity)
        return None if timestamp is None else self._message(entity, timestamp, self.values[entity])

    def snapshot(self) -> bytes:
        """Messages that make an empty replica equal to this one, deletions with them."""
        return b"".join(
            write_message(*self._message(entity, timestamp, self.values[entity]))
            for entity, timestamp in self.stamps.items()
        )
