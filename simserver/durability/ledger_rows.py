"""The rows of a simulation server's ledger: what is noted of each entity, wherever it is written.

entities/<id>      where it lives or went, and under which fence
checkpoints/<id>   what it was when it was last written down, while it lives here
handed_over/<id>   what it was when it last left, for a while (`simserver.durability.retained_states`)
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from batonpass.authority.fence import Fence

__all__ = ["CHECKPOINTS", "ENTITIES", "HANDED_OVER", "MAX_WRITE_BYTES", "Interrupted", "LedgerRows"]

ENTITIES: Final = "entities"
CHECKPOINTS: Final = "checkpoints"
HANDED_OVER: Final = "handed_over"
# Of one write; a larger checkpoint is no row.
MAX_WRITE_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class Interrupted:
    """An entity that lived here when the server last stopped without handing it over."""

    entity: str
    kind: str
    epoch: int
    sub: int
    since: int
    """The epoch since which it had been here."""


class LedgerRows(ABC):
    """What is told to a ledger and asked of it. Whoever keeps the rows says how one is noted and found."""

    interrupted: tuple[Interrupted, ...] = ()
    """What lived here when the process began."""

    @abstractmethod
    def _note(self, entity: str, row: dict[str, Any] | None, table: str = ENTITIES) -> None:
        """Write this row before long, or that there is none."""

    @abstractmethod
    def _written_row(self, table: str, entity: str) -> dict[str, Any] | None:
        """A row as it is written."""

    @abstractmethod
    def _written_rows(self, table: str = ENTITIES) -> Iterator[tuple[str, Any]]:
        """Every entity that has a row in the table, with that row as it is written."""

    def lives(self, entity: str, kind: str, fence: Fence, since: int = 0) -> None:
        """It is simulated here from now on; as what has been here since that epoch, if that is not the fence's."""
        row = {"kind": kind, "epoch": fence.epoch, "sub": fence.sub}
        self._note(entity, {**row, "since": since} if since else row)

    def left(self, entity: str, moved_to: str, fence: Fence) -> None:
        """Somebody else has authority now, under this fence."""
        self._note(entity, {"moved_to": moved_to, "epoch": fence.epoch, "sub": fence.sub})
        self._note(entity, None, CHECKPOINTS)

    def forget(self, entity: str) -> None:
        """It left so long ago that nobody asks any more."""
        self._note(entity, None)

    def checkpoint(self, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        """Keep the state of an entity that lives here, to go on from after a restart; whether it is not too large."""
        if len(state) > MAX_WRITE_BYTES:
            return False
        self._note(entity, {"epoch": fence.epoch, "sub": fence.sub, "tick": tick, "state": state}, CHECKPOINTS)
        return True

    def checkpoint_of(self, entity: str) -> tuple[Fence, int, bytes] | None:
        """The last checkpoint of an entity: its fence, tick and state."""
        row = self._written_row(CHECKPOINTS, entity)
        return None if row is None else (Fence(row["epoch"], row["sub"]), row["tick"], row["state"])

    def handed_over(self, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        """Keep what an entity was when it left, until `let_go`; whether it is not too large."""
        if len(state) > MAX_WRITE_BYTES:
            return False
        self._note(entity, {"epoch": fence.epoch, "sub": fence.sub, "tick": tick, "state": state}, HANDED_OVER)
        return True

    def let_go(self, entity: str) -> None:
        """What an entity was when it left is not kept any more."""
        self._note(entity, None, HANDED_OVER)

    def all_handed_over(self) -> Iterator[tuple[str, Fence, int, bytes]]:
        """What is kept of entities that left: the fence, tick and state of each when it did."""
        for entity, row in self._written_rows(HANDED_OVER):
            yield entity, Fence(row["epoch"], row["sub"]), row["tick"], row["state"]

    def moved(self) -> Iterator[tuple[str, str, Fence]]:
        """The entities that left: who has each, under which fence."""
        for entity, row in self._written_rows():
            if "moved_to" in row:
                yield entity, row["moved_to"], Fence(row["epoch"], row["sub"])

    def all_lived(self) -> Iterator[tuple[str, Fence]]:
        """The entities that live here, or did when an earlier life of this server ended, under which fence each."""
        for entity, row in self._written_rows():
            if "kind" in row:
                yield entity, Fence(row["epoch"], row["sub"])

    def all_checkpoints(self) -> Iterator[tuple[str, Fence]]:
        """The entities of which there is a checkpoint, and the fence of each."""
        for entity, row in self._written_rows(CHECKPOINTS):
            yield entity, Fence(row["epoch"], row["sub"])

    def give_up(self, entities: Mapping[str, Collection[Fence]]) -> None:
        """Forget what is written of entities but for stays under the fences kept of each: nobody may go on by it."""
        for entity, kept in entities.items():
            row = self._written_row(ENTITIES, entity)
            if row is not None and ("moved_to" in row or Fence(row["epoch"], row["sub"]) not in kept):
                self._note(entity, self._later_stay(row, kept))
            checkpoint = self.checkpoint_of(entity)
            if checkpoint is not None and checkpoint[0] not in kept:
                self._note(entity, None, CHECKPOINTS)
        self.interrupted = tuple(
            one
            for one in self.interrupted
            if one.entity not in entities or Fence(one.epoch, one.sub) in entities[one.entity]
        )

    @staticmethod
    def _later_stay(row: Mapping[str, Any], kept: Collection[Fence]) -> dict[str, Any] | None:
        """The row of what lives here under a later fence, if that is kept: who stays after a refusal writes none.

        Without a row its checkpoint would not be found after a restart.
        """
        later = max(kept, default=Fence(0))
        if "moved_to" in row or later <= Fence(row["epoch"], row["sub"]):
            return None
        return {**row, "epoch": later.epoch, "sub": later.sub, "since": row.get("since", row["epoch"])}

    def _find_interrupted(self) -> tuple[Interrupted, ...]:
        rows = self._written_rows()
        return tuple(
            Interrupted(name, row["kind"], row["epoch"], row["sub"], row.get("since", row["epoch"]))
            for name, row in rows
            if "kind" in row
        )
