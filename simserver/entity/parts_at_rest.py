"""The parts of an entity between two ticks: those with which it came, or was frozen, belong to that very tick.

A tick makes them void. `simserver.world.participants` says what parts are.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.quarantine import Quarantine
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.world.participants import NO_PARTS, EntityParts, dehydrated, rehydrate, with_parts

__all__ = ["PartsAtRest"]


class _Partitioned(Protocol):
    """What of an entity its parts have to do with."""

    id: str
    state_bytes: int
    quarantine: Quarantine

    @property
    def tick(self) -> int:
        """How many ticks it has had."""

    @property
    def seen(self) -> Any:
        """The state as its world is shown it."""

    def look(self) -> Any:
        """The state for the moment."""

    def at_work(self) -> AbstractContextManager[None]:
        """Around what its world does with it."""


class PartsAtRest:
    """Of one entity; each method is given it, or its present tick. `kept` is None without any, and after a tick."""

    __slots__ = ("_env", "kept")

    def __init__(self, environment: EntityEnvironment, snapshot: EntitySnapshot) -> None:
        self._env: Final = environment
        self.kept = EntityParts(snapshot.tick, snapshot.parts) if snapshot.parts else None

    def rehydrate(self, entity: _Partitioned) -> None:
        """Its world takes up those that came with it, before the first tick."""
        if (parts := self.kept) is not None:
            with entity.at_work():
                rehydrate(self._env.world, entity.id, entity.seen, parts.shown, self._env.count)

    def present(self, tick: int) -> EntityParts | None:
        """Those of this very tick: as they came, or as they were when it was frozen. They are part of what it is."""
        if self.kept is not None and self.kept.tick != tick:
            self.kept = None
        return self.kept

    def shown(self, tick: int) -> Mapping[str, bytes]:
        """What a snapshot has of them."""
        return NO_PARTS if (parts := self.present(tick)) is None else parts.shown

    def around(self, state: bytes, tick: int) -> bytes:
        """The encoded state with what a snapshot has of them."""
        return state if (parts := self.present(tick)) is None else with_parts(state, parts.shown)

    def ready(self, entity: _Partitioned, *, is_readable: bool) -> Mapping[str, bytes]:
        """Those with which it is frozen if it is before its next tick: asked for once, however often that is tried.

        Unless it `is_readable` here its parts stay as they came. What a world that failed has made of its parts is not
        known: none go along.
        """
        # Of this tick, also if that costs the lease and with it a tick.
        parts = self.present(tick := entity.tick)
        shown, ready = (NO_PARTS, None) if parts is None else (parts.shown, parts.ready)
        if not is_readable:
            ready = NO_PARTS if entity.quarantine.wherever else shown
        elif ready is None:
            with entity.at_work():
                ready = dehydrated(self._env.world, entity.id, entity.look, entity.state_bytes, self._env.count)
        self.kept = EntityParts(tick, shown, ready) if shown or ready else None
        return ready

    def frozen(self, tick: int) -> None:
        """It is frozen with those that were ready, and shows them from now on."""
        if self.kept is not None:
            self.kept = EntityParts(tick, self.kept.ready or NO_PARTS, self.kept.ready)
