"""The parts of an entity between two ticks: those with which it came, or was frozen, belong to that very tick.

A tick makes them void. `simserver.world.participants` says what parts are.
"""

from collections.abc import Callable, Mapping

from batonpass.simserver.world.participants import NO_PARTS, EntityParts, with_parts

__all__ = ["PartsAtRest"]


class PartsAtRest:
    """Of one entity; each method is given its present tick. `kept` is None if there are none, and after a tick."""

    __slots__ = ("kept",)

    def __init__(self, tick: int, parts: Mapping[str, bytes]) -> None:
        self.kept = EntityParts(tick, parts) if parts else None

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

    def ready(
        self, tick: int, dehydrated: Callable[[], Mapping[str, bytes]], instead: Mapping[str, bytes] | None
    ) -> Mapping[str, bytes]:
        """Those with which it is frozen if it is before its next tick: asked for once, however often that is tried.

        `instead` are those of an entity that its world cannot be asked about: an empty mapping for none.
        """
        parts = self.present(tick)
        shown, ready = (NO_PARTS, None) if parts is None else (parts.shown, parts.ready)
        if instead is not None:
            ready = instead
        elif ready is None:
            ready = dehydrated()
        self.kept = EntityParts(tick, shown, ready) if shown or ready else None
        return ready

    def frozen(self, tick: int) -> None:
        """It is frozen with those that were ready, and shows them from now on."""
        if self.kept is not None:
            self.kept = EntityParts(tick, self.kept.ready or NO_PARTS, self.kept.ready)
