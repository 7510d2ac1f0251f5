"""One component of all entities whose values are only ever added: what happened, not what is."""

from bisect import insort_right
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple

from batonpass.simserver.sync.scene.codec import MessageKind, MessageRow, SceneRun, write_message
from batonpass.simserver.sync.scene.elements import Provenance
from batonpass.simserver.sync.scene.limits import VALUE_COST_BYTES
from batonpass.simserver.sync.scene.profiles import SDK_7_28, InteropProfile, SetOverflow

__all__ = ["GrowOnlySets", "SetValue"]


class SetValue(NamedTuple):
    """A value of a set: where it stands among the others, its bytes, and where it is from."""

    order: Any
    data: bytes
    provenance: Provenance


def _as_received(data: bytes) -> int:
    return 0


class GrowOnlySets:
    """A component whose values are a grow-only set with room for the newest.

    Args:
        component: its number.
        profile: what becomes of a full set.
        max_values: of one entity; None takes the profile's.
        order: of a value, by its bytes; equal ones remain in the order in which they came. It must take any bytes.
    """

    def __init__(
        self,
        component: int,
        profile: InteropProfile = SDK_7_28,
        max_values: int | None = None,
        order: Callable[[bytes], Any] = _as_received,
    ) -> None:
        self.component: Final = component
        self._profile: Final = profile
        self._max: Final = profile.max_values if max_values is None else max_values
        self._order: Final = order
        self._sets: Final[dict[int, list[SetValue]]] = {}
        self._added: list[MessageRow] = []

    def values(self, entity: int) -> tuple[SetValue, ...]:
        """The values of `entity`, oldest first."""
        return tuple(self._sets.get(entity, ()))

    def merge(self, entity: int, data: bytes, provenance: Provenance) -> bool:
        """Take a value from a peer.

        Returns:
            Whether the set has it now and had it not before.
        """
        values = self._sets.setdefault(entity, [])
        value = SetValue(self._order(data), data, provenance)
        if self._profile.drops_equal_values and any(value[:2] == other[:2] for other in values):
            return False
        if self._profile.overflow is SetOverflow.EMPTY and len(values) >= self._max:
            values.clear()
        insort_right(values, value, key=itemgetter(0))
        dropped = values[: max(0, len(values) - self._max)]
        del values[: len(dropped)]
        return not any(value is other for other in dropped)

    def add(self, entity: int, data: bytes, provenance: Provenance) -> None:
        """Add a value here; the next flush tells peers of it."""
        self.merge(entity, data, provenance)
        self._added.append((entity, self.component, 0, data))

    def flush(self) -> list[SceneRun]:
        """The messages that tell peers of what was added here since the last flush."""
        added, self._added = self._added, []
        return [SceneRun(MessageKind.APPEND, [list(column) for column in zip(*added, strict=True)])] if added else []

    def forget(self, entity: int) -> None:
        """Forget the values of an entity that is no more."""
        self._sets.pop(entity, None)

    def cost_bytes(self) -> int:
        """What all values take, roughly."""
        return sum(len(value.data) + VALUE_COST_BYTES for values in self._sets.values() for value in values)

    def snapshot(self) -> bytes:
        """Messages that make an empty replica equal to this one."""
        return b"".join(
            write_message(MessageKind.APPEND, (entity, self.component, 0, value.data))
            for entity, values in self._sets.items()
            for value in values
        )
