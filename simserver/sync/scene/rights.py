"""Who may write what of a scene, and how a writer who may not is brought back to what holds.

The owners of a scene's entities form a tree, as the entities do by the parents of their Transforms: who owns an entity
owns what is below it, unless that has an owner of its own. So an owner can give a part away, by giving it a parent of
another, and no other can take one.
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from batonpass.simserver.sync.scene.codec import MessageKind, SceneRun
from batonpass.simserver.sync.scene.elements import MAX_TIMESTAMP, LwwElements, Provenance
from batonpass.simserver.sync.scene.entity_ids import MAX_VERSION, EntityNumbers, EntityState, version_of
from batonpass.simserver.sync.scene.schemas import TRANSFORM_BYTES

__all__ = ["MAX_DEPTH", "SceneCorrections", "WriteRights"]

MAX_DEPTH: Final = 64
"""An owner is looked for among this many ancestors at most; a circle of parents ends there."""

_PARENT: Final = struct.Struct("<I")
_PARENT_AT: Final = TRANSFORM_BYTES - _PARENT.size


class WriteRights:
    """The owners of a scene's entities.

    Args:
        scene_owner: of what has no other owner: a peer's name. None: all may write that.
    """

    def __init__(self, scene_owner: str | None) -> None:
        self._scene_owner: Final = scene_owner
        self._owners: Final[dict[int, str]] = {}
        self._changed: dict[int, None] = {}

    @property
    def owners(self) -> Mapping[int, str]:
        """By entity, those that have an owner of their own."""
        return MappingProxyType(self._owners)

    def give(self, entity: int, owner: str) -> None:
        """Have `owner` own `entity`, and what is below it and has no owner of its own."""
        self._owners[entity] = owner
        self._changed[entity] = None

    def take(self, entity: int) -> None:
        """Have `entity` belong to who owns what is above it."""
        if self._owners.pop(entity, None) is not None:
            self._changed[entity] = None

    def take_changed(self) -> list[tuple[int, str]]:
        """The entities whose own owner has changed since this was asked last, with that owner, or an empty name."""
        changed, self._changed = self._changed, {}
        return [(entity, self._owners.get(entity, "")) for entity in changed]

    def owner(self, entity: int, transforms: Mapping[int, bytes | None]) -> str | None:
        """Who owns `entity`; None if all may write it.

        Args:
            entity: of the scene.
            transforms: the values of Transform, by entity.
        """
        for _ in range(MAX_DEPTH):
            owner = self._owners.get(entity)
            if owner is not None:
                return owner
            transform = transforms.get(entity)
            if transform is None or len(transform) != TRANSFORM_BYTES:
                break
            (parent,) = _PARENT.unpack_from(transform, _PARENT_AT)
            if parent in (0, entity):
                break
            entity = parent
        return self._scene_owner

    def denied(self, peer: str, entities: list[int], transforms: Mapping[int, bytes | None]) -> list[int]:
        """The places in `entities` of those that `peer` may not write."""
        not_his = {entity for entity in set(entities) if self.owner(entity, transforms) not in (None, peer)}
        return [at for at, entity in enumerate(entities) if entity in not_his] if not_his else []


class SceneCorrections:
    """What refused writers are told with the next flush.

    Args:
        numbers: of the replica.
    """

    def __init__(self, numbers: EntityNumbers) -> None:
        self._numbers: Final = numbers
        # With each component of an entity, whether the peer is told by an AUTHORITATIVE_PUT.
        self._states: dict[str, dict[tuple[int, int], tuple[LwwElements, bool]]] = {}
        self._removals: dict[str, dict[int, None]] = {}
        self._astray: dict[str, str] = {}

    def take_astray(self) -> dict[str, str]:
        """The peers that no message can bring back, with why: they need a whole state. They are asked for once."""
        astray, self._astray = self._astray, {}
        return astray

    def lost(self, peer: str, why: str) -> None:
        """Note that no message can bring `peer` back; of several reasons the first is told."""
        self._astray.setdefault(peer, why)

    def forget(self, peer: str) -> None:
        """Forget a peer that has left."""
        self._states.pop(peer, None)
        self._removals.pop(peer, None)
        self._astray.pop(peer, None)

    def needs_state(self, peer: str, entity: int, *, by_ids: bool) -> bool:
        """Whether `entity`, which a refused write was about, is in use; if not, `peer` is told that there is none.

        Args:
            peer: who wrote.
            entity: about what.
            by_ids: whether the peer goes by the ids of this replica.
        """
        numbers = self._numbers
        state = numbers.state(entity)
        if state in {EntityState.USED, EntityState.RESERVED}:
            return True
        is_new = state is EntityState.UNKNOWN and not numbers.is_leaving(entity)
        if not by_ids or (is_new and (numbers.earlier(entity) or version_of(entity) > MAX_VERSION // 2)):
            # Nobody can remove what is in use so, or use numbers up.
            self.lost(peer, f"entity {entity} is not yours to create")
            return False
        if is_new:
            # The id is not given away here any more: the peer would not take it for a new entity.
            numbers.mark_removed(entity)
        self._removals.setdefault(peer, {})[entity] = None
        return False

    def correct(
        self,
        peer: str,
        entity: int,
        elements: LwwElements | None,
        timestamp: int,
        provenance: Provenance,
        *,
        forces: bool,
    ) -> None:
        """Bring back a peer whose write was refused.

        Args:
            peer: who wrote.
            entity: about what; it is in use.
            elements: of which component; None if it is not kept.
            timestamp: of the write.
            provenance: of this replica.
            forces: whether the peer takes an AUTHORITATIVE_PUT.
        """
        if elements is None:
            self.lost(peer, f"entity {entity} is not yours to write")
            return
        stamp = elements.stamps.get(entity)
        forced = forces and stamp is not None and elements.values.get(entity) is not None
        if forced or (stamp is not None and stamp > timestamp):
            self._states.setdefault(peer, {})[entity, elements.component] = elements, forced
        elif timestamp > MAX_TIMESTAMP:
            self.lost(peer, f"a timestamp of {timestamp} leaves none above it")
        else:
            # Peers that had the value with the old timestamp need the new one, too: all of them are told.
            elements.outbid(entity, timestamp, provenance)

    def take(self, peer: str) -> list[SceneRun]:
        """What `peer` is told, once."""
        runs: list[SceneRun] = []
        for (entity, _), (elements, forced) in self._states.pop(peer, {}).items():
            message = elements.state_message(entity)
            if message is None:
                continue
            kind, row = message
            if forced and kind is MessageKind.PUT:
                kind = MessageKind.AUTHORITATIVE_PUT
            runs.append(SceneRun(kind, [[value] for value in row]))
        removals = self._removals.pop(peer, {})
        if removals:
            runs.append(SceneRun(MessageKind.DELETE_ENTITY, [list(removals)]))
        return runs
