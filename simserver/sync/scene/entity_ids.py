"""Ids of a scene's entities: a number that is used again, and the version that tells its bearers apart.

Who may give a number away depends on its regime. The renderer owns the numbers that are reserved, at every version: a
scene neither creates nor removes such an entity.
"""

import heapq
from enum import IntEnum
from typing import Final

__all__ = [
    "MAX_NUMBER",
    "MAX_VERSION",
    "NAMED_NUMBERS",
    "RESERVED_NUMBERS",
    "EntityNumbers",
    "EntityNumbersUsedUp",
    "EntityState",
    "Regime",
    "entity_id",
    "number_of",
    "regime_of",
    "version_of",
]

MAX_NUMBER: Final = 0xFFFF
MAX_VERSION: Final = 0xFFFF

NAMED_NUMBERS: Final = 3
"""The first numbers have names: 0 is the root, 1 the player, 2 the camera."""

RESERVED_NUMBERS: Final = 512
"""How many numbers the scene does not give away, the named ones with them."""


class EntityState(IntEnum):
    """What is known of an entity; the numbers are those of `@dcl/ecs`."""

    UNKNOWN = 0
    USED = 1
    REMOVED = 2
    RESERVED = 3


class Regime(IntEnum):
    """Whose an entity is, by its number."""

    NAMED = 0
    """Root, player, camera: a scene that removes it deletes its components, and the entity remains."""
    STREAMED = 1
    """The renderer sends it, for a player as a rule: a scene that removes it changes nothing at all."""
    SCENE = 2
    """The scene creates and removes it."""


class EntityNumbersUsedUp(Exception):
    """Every number has been given to an entity, and none can be used again."""


def entity_id(number: int, version: int) -> int:
    """The id of an entity, a u32."""
    return version << 16 | number


def number_of(entity: int) -> int:
    """What an id has in common with those that bore its number before."""
    return entity & MAX_NUMBER


def version_of(entity: int) -> int:
    """How often the number of an id had been used before."""
    return entity >> 16


def regime_of(entity: int, reserved: int = RESERVED_NUMBERS) -> Regime:
    """Whose `entity` is; at every version."""
    number = entity & MAX_NUMBER
    if number >= reserved:
        return Regime.SCENE
    return Regime.NAMED if number < NAMED_NUMBERS else Regime.STREAMED


class EntityNumbers:
    """Which entities there are, which there were, and which id the next one gets.

    The ids are those that `@dcl/ecs` would give after the same calls. Each call takes constant time, or logarithmic in
    how many numbers are free; there, it takes time in proportion to them, or to the version.

    Args:
        reserved: the numbers below this are not given away.
    """

    def __init__(self, reserved: int = RESERVED_NUMBERS) -> None:
        self._reserved: Final = reserved
        self._next = reserved
        self._used: dict[int, None] = {}
        # By number: which versions are used, one as a rule. One that is removed here and used elsewhere in the same
        # tick remains beside its successor.
        self._versions: dict[int, list[int]] = {}
        self._removed: dict[int, int] = {}
        self._leaving: list[int] = []
        self._leaving_set: set[int] = set()
        # The numbers that can be used again go in the order in which they were first removed.
        self._place: dict[int, int] = {}
        self._number_at: list[int] = []
        self._free: list[int] = []
        self._waiting: set[int] = set()

    @property
    def used(self) -> list[int]:
        """The ids in use, in the order in which that began."""
        return list(self._used)

    @property
    def gone(self) -> list[int]:
        """Of each number, the highest id that was removed."""
        return [entity_id(number, version) for number, version in self._removed.items()]

    def earlier(self, entity: int) -> list[int]:
        """The ids in use that bore the number of `entity` before it."""
        number, version = entity & MAX_NUMBER, entity >> 16
        return [entity_id(number, other) for other in self._versions.get(number, ()) if other < version]

    def state(self, entity: int) -> EntityState:
        """What is known of `entity`. One that `remove` has taken is unknown until `release`."""
        number, version = entity & MAX_NUMBER, entity >> 16
        if number < self._reserved:
            return EntityState.RESERVED
        if entity in self._used:
            return EntityState.USED
        return EntityState.REMOVED if self._removed.get(number, -1) >= version else EntityState.UNKNOWN

    def is_leaving(self, entity: int) -> bool:
        """Whether `remove` has taken `entity` since the last `release`."""
        return entity in self._leaving_set

    def create(self) -> int:
        """Begin to use an id: that of the number that was removed first, else a new one.

        Raises:
            EntityNumbersUsedUp: if there is none.
        """
        if len(self._used) + self._reserved < self._next:
            while self._free:
                number = self._number_at[heapq.heappop(self._free)]
                self._waiting.discard(number)
                version = self._removed[number] + 1
                entity = entity_id(number, version)
                # What stands in the way of these puts the number back when it ends: `release`, or the removal.
                if version <= MAX_VERSION and entity not in self._used and entity not in self._leaving_set:
                    self._use(entity)
                    return entity
        while self._next < MAX_NUMBER:
            number = self._next
            self._next += 1
            version = self._removed.get(number, -1) + 1
            entity = entity_id(number, version)
            if version <= MAX_VERSION and entity not in self._used:
                self._use(entity)
                return entity
        raise EntityNumbersUsedUp(f"there is no entity number below {MAX_NUMBER} left: remove entities before")

    def _use(self, entity: int) -> None:
        if entity not in self._used:
            self._used[entity] = None
            self._versions.setdefault(entity & MAX_NUMBER, []).append(entity >> 16)

    def _leave(self, number: int, below: int, at_least: int = 0) -> None:
        """Let the versions of `number` from `at_least` and below `below` not be used any more."""
        versions = self._versions.get(number, [])
        for version in [version for version in versions if at_least <= version < below]:
            versions.remove(version)
            del self._used[entity_id(number, version)]
            self._offer(number)
        if not versions:
            self._versions.pop(number, None)

    def _end(self, number: int, version: int) -> None:
        """Note that `version` of `number` has been."""
        if self._removed.get(number, -1) < version:
            self._removed[number] = version
        if number not in self._place:
            self._place[number] = len(self._number_at)
            self._number_at.append(number)
        self._offer(number)

    def _offer(self, number: int) -> None:
        if number in self._place and number not in self._waiting:
            self._waiting.add(number)
            heapq.heappush(self._free, self._place[number])

    def remove(self, entity: int) -> bool:
        """Stop using `entity`; its number is used again after the next `release` at the earliest.

        Returns:
            Whether it was the scene's to remove.
        """
        number, version = entity & MAX_NUMBER, entity >> 16
        if number < self._reserved:
            return False
        if entity in self._used:
            self._leave(number, version + 1, version)
            self._leaving.append(entity)
            self._leaving_set.add(entity)
        else:
            self.mark_removed(entity)
        return True

    def release(self) -> list[int]:
        """End a tick: what was removed in it, in that order. Their numbers are free now."""
        leaving, self._leaving = self._leaving, []
        self._leaving_set.clear()
        for entity in leaving:
            self._end(entity & MAX_NUMBER, entity >> 16)
        return leaving

    def mark_removed(self, entity: int) -> bool:
        """Note that `entity`, and every earlier bearer of its number, was removed elsewhere.

        Returns:
            Whether it was the scene's to remove.
        """
        number, version = entity & MAX_NUMBER, entity >> 16
        if number < self._reserved:
            return False
        self._leave(number, version + 1)
        self._end(number, version)
        return True

    def mark_used(self, entity: int) -> bool:
        """Note that `entity` is used elsewhere, so that every earlier bearer of its number was removed.

        Returns:
            Whether it is in use now; it is not if it was removed before, or is not the scene's.
        """
        number, version = entity & MAX_NUMBER, entity >> 16
        if number < self._reserved or self._removed.get(number, -1) >= version:
            return False
        if version:
            self._leave(number, version)
            self._end(number, version - 1)
        self._use(entity)
        return True
