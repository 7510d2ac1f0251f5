"""The parts of an entity between two ticks: those with which it came, or was frozen, belong to that very tick.

A tick makes them void. `simserver.world.participants` says what parts are.
"""

from collections.abc import Callable, Mapping

from batonpass.simserver.world.participants import NO_PARTS, Parts, with_parts

__all__ = ["PartsAtRest"]


class PartsAtRest:
    """Of one entity; each method is given its present tick."""

    __slots__ = ("_parts",)

    def __init__(self, tick: int, parts: Mapping[str, bytes]) -> None:
        self._parts = Parts(tick, parts) if parts else None

    def present(self, tick: int) -> Parts | None:
        """Those of this very tick: as they came, or as they were when it was frozen. They are part of what it is."""
        if self._parts is not None and self._parts.tick != tick:
            self._parts = None
        return self._parts

    def shown(self, tick: int) -> Mapping[str, bytes]:
        """What a snapshot has of them."""
        return NO_PARTS if (parts := self.present(tick)) is None else parts.shown

    @property
    def brought(self) -> Mapping[str, bytes] | None:
        """Those with which it came, or was frozen; None if there are none."""
        return None if self._parts is None else self._parts.shown

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
        self._parts = Parts(tick, shown, ready) if shown or ready else None
        return ready

    def frozen(self, tick: int) -> None:
        """It is frozen with those that were ready, and shows them from now on."""
        if self._parts is not None:
            self._parts = Parts(tick, self._parts.ready or NO_PARTS, self._parts.ready)

    def stepped(self) -> None:
        """It has had a tick."""
        self._parts = None
