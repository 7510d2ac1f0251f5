"""What a simulation server holds: the entities that live here, and where those that left have gone."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from actors.ref import Ref
from actors.system import System
from authority.epoch import Fence
from simserver.entity import Entity, EntityEnvironment, Snapshot

__all__ = ["Holding", "Holdings", "Notes", "Tombstone"]

# One row per entity that ever left; a source that comes later than the last 100,000 departures asks the home instance.
MAX_TOMBSTONES: Final = 100_000


@dataclass(slots=True)
class Holding:
    """An entity that lives here (running or frozen): its actor and its fence.

    If it is delegated, `chain` is the verified chain of certificates (a grant, then passes) by which it came, and
    `group` the servers to which it may be passed on directly.
    """

    id: str
    ref: Ref
    fence: Fence
    chain: tuple[str, ...] = ()
    group: tuple[str, ...] = ()

    def delegated(self, chain: tuple[str, ...], group: tuple[str, ...]) -> None:
        """From now on it may be passed on directly within `group`."""
        self.chain, self.group = chain, group

    def stays(self, fence: Fence) -> None:
        """It was not handed over after all: it goes on under a fence of the log's, which ends every delegation."""
        self.fence, self.chain, self.group = fence, (), ()


@dataclass(frozen=True, slots=True)
class Tombstone:
    """An entity that lived here: who had it next, and under which fence."""

    moved_to: str
    fence: Fence


class Notes(Protocol):
    """Where it is written down what lives here; see `simserver.ledger`."""

    def lives(self, entity: str, kind: str, fence: Fence) -> None:
        """It is simulated here from now on."""

    def left(self, entity: str, moved_to: str, fence: Fence) -> None:
        """Somebody else has authority now."""

    def forget(self, entity: str) -> None:
        """It left so long ago that nobody asks any more."""


class Holdings:
    """The entities of one simulation server."""

    def __init__(self, system: System, environment: EntityEnvironment, notes: Notes) -> None:
        self._system = system
        self._environment = environment
        self._notes = notes
        self._living: dict[str, Holding] = {}
        self._gone: OrderedDict[str, Tombstone] = OrderedDict()

    def __iter__(self) -> Iterator[Holding]:
        return iter(list(self._living.values()))

    def __len__(self) -> int:
        return len(self._living)

    def get(self, entity: str) -> Holding | None:
        """The entity, if it lives here."""
        return self._living.get(entity)

    def gone(self, entity: str) -> Tombstone | None:
        """Where the entity went, if it lived here."""
        return self._gone.get(entity)

    def spawn(self, entity: str, kind: str, params: dict[str, Any], fence: Fence) -> Holding:
        """Begin a new entity.

        Raises:
            ValueError: the world would not have it; the text says why.
        """
        world = self._environment.world.spawn(kind, params)
        return self.start(entity, fence, Snapshot(kind, 0, world, {"cursors": {}, "pending": []}))

    def start(self, entity: str, fence: Fence, snapshot: Snapshot) -> Holding:
        """Simulate an entity here from now on."""
        ref = self._system.start_nowait(Entity, (self._environment, entity, fence, snapshot), name=("entity", entity))
        holding = self._living[entity] = Holding(entity, ref, fence)
        self._gone.pop(entity, None)
        self._notes.lives(entity, snapshot.kind, fence)
        return holding

    def leave(self, entity: str, moved_to: str, fence: Fence) -> None:
        """Note that an entity's actor has ended because somebody else has authority now, under `fence`.

        Does nothing when the entity has come back already, under a higher fence: retiring takes time, and the way back
        may be shorter.
        """
        living = self._living.get(entity)
        if living is not None and living.fence > fence:
            return
        self._living.pop(entity, None)
        self._notes.left(entity, moved_to, fence)
        self.remember(entity, Tombstone(moved_to, fence))

    def remember(self, entity: str, tombstone: Tombstone) -> None:
        """Know where an entity went that left now or in an earlier life of this server; the oldest are forgotten."""
        self._gone[entity] = tombstone
        self._gone.move_to_end(entity)
        while len(self._gone) > MAX_TOMBSTONES:
            forgotten, _ = self._gone.popitem(last=False)
            self._notes.forget(forgotten)
