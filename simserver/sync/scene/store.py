"""What a replica of a scene has, and what is changed here."""

from collections.abc import Iterable
from typing import Any, Final

from batonpass.simserver.sync.scene.codec import MessageKind, SceneRun
from batonpass.simserver.sync.scene.elements import LwwElements, Provenance
from batonpass.simserver.sync.scene.entity_ids import MAX_NUMBER, EntityNumbers, EntityState, Regime, regime_of
from batonpass.simserver.sync.scene.exchange import SetComponent
from batonpass.simserver.sync.scene.limits import SceneLimits
from batonpass.simserver.sync.scene.network_ids import NETWORK_ENTITY, NETWORK_PARENT, NetworkId, NetworkIds
from batonpass.simserver.sync.scene.profiles import InteropProfile
from batonpass.simserver.sync.scene.rights import WriteRights
from batonpass.simserver.sync.scene.value_sets import GrowOnlySets, SetValue

__all__ = ["TRANSFORM", "SceneStore"]

TRANSFORM: Final = 1
"""The component number of Transform."""


class SceneStore:
    """The entities and components of a scene, without peers; `replica.SceneReplica` has the arguments.

    Attributes:
        name: of the replica.
        profile: what peers agree on.
        tick: how often it was flushed.
        numbers: which entities there are.
    """

    def __init__(
        self,
        name: str,
        components: Iterable[int],
        sets: Iterable[SetComponent],
        profile: InteropProfile,
        limits: SceneLimits | None,
        *,
        keep_unknown: bool,
        rights: WriteRights | None,
    ) -> None:
        self.name: Final = name
        self.profile: Final = profile
        self.tick = 0
        self._limits: Final = limits or SceneLimits()
        self._keep_unknown: Final = keep_unknown
        self._rights: Final = rights
        self._named: Final = tuple(dict.fromkeys((TRANSFORM, NETWORK_ENTITY, NETWORK_PARENT, *components)))
        self._named_sets: Final = tuple(sets)
        for number, _, _ in self._named_sets:
            if number in self._named:
                raise ValueError(f"component {number} is both a set and one of which the last write wins: name it once")
        self._begin()

    def _begin(self) -> None:
        """Have nothing."""
        profile = self.profile
        self.numbers = EntityNumbers(profile.reserved)
        self._elements = {number: LwwElements(number, profile) for number in self._named}
        self._sets: dict[int, GrowOnlySets] = {}
        for number, max_values, order in self._named_sets:
            extra: dict[str, Any] = {} if order is None else {"order": order}
            self._sets[number] = GrowOnlySets(number, profile, max_values, **extra)
        self._names = NetworkIds(self._limits.max_gone_ids)
        # Entities that have left since the last flush.
        self._left: list[int] = []
        # Those whose names peers have deleted since: what is said of them until then is said under these.
        self._unnamed: list[int] = []

    def _load(self, runs: Iterable[SceneRun]) -> None:
        """Have what a snapshot has, or one and what changed after it, and nothing else."""
        self._begin()
        here = self._here
        for run in runs:
            for entity, *rest in run.rows:
                if run.kind == MessageKind.DELETE_ENTITY:
                    self._load_removal(entity)
                elif self._know(entity):
                    self._load_value(run.kind, entity, rest, here)
        for entity, data in self._elements[NETWORK_ENTITY].values.items():
            self._names.note(entity, data)

    def _load_removal(self, entity: int) -> None:
        """It may have had values in the messages before."""
        bearers = (*self.numbers.earlier(entity), entity)
        used = [bearer for bearer in bearers if self.numbers.state(bearer) is EntityState.USED]
        self.numbers.mark_removed(entity)
        for bearer in used:
            self._forget(bearer)

    def _load_value(self, kind: int, entity: int, rest: list[Any], here: Provenance) -> None:
        component, timestamp, *data = rest
        if kind == MessageKind.APPEND:
            sets = self._sets.get(component) or self._define_set(component)
            if sets is not None:
                sets.merge(entity, data[0], here)
        elif kind in (MessageKind.PUT, MessageKind.DELETE):
            elements = self._elements.get(component) or self._define(component)
            if elements is not None:
                elements.force(entity, timestamp, data[0] if data else None, here)

    def _know(self, entity: int) -> bool:
        """Whether `entity` is in use, as it is from its first message on."""
        state = self.numbers.state(entity)
        if state is EntityState.REMOVED or self.numbers.is_leaving(entity):
            return False
        if state is EntityState.UNKNOWN:
            if entity > MAX_NUMBER:
                for earlier in self.numbers.earlier(entity):
                    self._forget(earlier)
            self.numbers.mark_used(entity)
            for elements in self._elements.values():
                if elements.aside:
                    elements.know(entity)
        return True

    def _may_define(self, component: int) -> bool:
        known = component in self._elements or component in self._sets
        return not known and len(self._elements) + len(self._sets) < self._limits.max_components

    def _define(self, component: int) -> LwwElements | None:
        if not self._keep_unknown or not self._may_define(component):
            return None
        elements = self._elements[component] = LwwElements(component, self.profile)
        return elements

    def _define_set(self, component: int) -> GrowOnlySets | None:
        if not self._keep_unknown or not self._may_define(component):
            return None
        sets = self._sets[component] = GrowOnlySets(component, self.profile)
        return sets

    def define(self, component: int) -> None:
        """Keep a component of which the last write wins, if it is not kept already.

        Raises:
            ValueError: if it is a set, or more are kept than may be.
        """
        if component in self._elements:
            return
        if not self._may_define(component):
            raise ValueError(f"component {component} is a set, or {self._limits.max_components} others are kept")
        self._elements[component] = LwwElements(component, self.profile)

    # ---------------------------------------------------------------- a tick: changes made here

    @property
    def _here(self) -> Provenance:
        return (self.name, self.tick, self.name)

    def _is_known(self, entity: int) -> bool:
        """Whether `entity` is in use, as what the renderer has reserved is always."""
        return self.numbers.state(entity) in {EntityState.USED, EntityState.RESERVED}

    def create_entity(self) -> int:
        """Begin to use an entity.

        Raises:
            EntityNumbersUsedUp: if there is none.
        """
        entity = self.numbers.create()
        while self.numbers.is_leaving(entity):
            # As `@dcl/ecs` numbers them, it could be one that was removed in this tick: peers would be told so.
            self.numbers.remove(entity)
            entity = self.numbers.create()
        for earlier in self.numbers.earlier(entity):
            self._forget(earlier)
        for elements in self._elements.values():
            elements.know(entity)
        return entity

    def remove_entity(self, entity: int) -> bool:
        """Remove an entity and what it has. One that the renderer streams remains as it is.

        Returns:
            Whether it was the scene's to remove.
        """
        regime = regime_of(entity, self.profile.reserved)
        if regime is Regime.STREAMED:
            return False
        removed = self.numbers.remove(entity)
        self._purge(entity, self._here, named=regime is Regime.NAMED, by_peer=False)
        return removed

    def _remove(self, entity: int, provenance: Provenance) -> None:
        """Remove an entity that a peer has removed."""
        for earlier in self.numbers.earlier(entity):
            self._forget(earlier)
        scenes = self.numbers.mark_removed(entity)
        self._purge(entity, provenance, named=not scenes, by_peer=True)

    def _purge(self, entity: int, provenance: Provenance, *, named: bool, by_peer: bool) -> None:
        for elements in self._elements.values():
            # Network-Entity is what peers know a removed entity by, until it is flushed.
            if by_peer or elements.component != NETWORK_ENTITY:
                elements.entity_removed(entity, provenance)
            if not named:
                elements.unknow(entity)
        for sets in self._sets.values():
            sets.forget(entity)
        if not named:
            self._left.append(entity)
            if self._rights is not None:
                self._rights.take(entity)

    def _forget(self, entity: int) -> None:
        for elements in self._elements.values():
            elements.forget(entity)
        for sets in self._sets.values():
            sets.forget(entity)
        self._names.removed(entity)
        if self._rights is not None:
            self._rights.take(entity)

    def _of(self, component: int) -> LwwElements:
        try:
            return self._elements[component]
        except KeyError:
            raise KeyError(
                f"component {component} is none of which the last write wins: name it in `components`"
            ) from None

    def put(self, entity: int, component: int, data: bytes) -> None:
        """Give a component of an entity a value, which is sent in any case.

        Raises:
            KeyError: if the component is none of which the last write wins.
            TimestampsUsedUp: if it has the last timestamp there is.
        """
        self._of(component).put(entity, data, self._here)
        if component == NETWORK_ENTITY:
            self._names.note(entity, data)

    def mutate(self, entity: int, component: int, data: bytes) -> bool:
        """Change the value of a component, which is sent unless peers have it; errors are those of `put`.

        Returns:
            Whether there was a value to change.
        """
        changed = self._of(component).mutate(entity, data, self._here)
        if changed and component == NETWORK_ENTITY:
            self._names.note(entity, data)
        return changed

    def delete(self, entity: int, component: int) -> bool:
        """Take the value of a component away; errors are those of `put`.

        Returns:
            Whether there was one.
        """
        if component == NETWORK_ENTITY:
            self._names.note(entity, None)
        return self._of(component).delete(entity, self._here)

    def append(self, entity: int, component: int, data: bytes) -> None:
        """Add a value to a set.

        Raises:
            KeyError: if the component is no set.
        """
        self._sets[component].add(entity, data, self._here)

    # ---------------------------------------------------------------- what there is

    def value(self, entity: int, component: int) -> bytes | None:
        """The value of a component; None if there is none."""
        elements = self._elements.get(component)
        return None if elements is None else elements.values.get(entity)

    @property
    def component_numbers(self) -> list[int]:
        """Those of which the last write wins and that are kept here."""
        return list(self._elements)

    @property
    def has_rights(self) -> bool:
        """Whether it is the scene's authority, which takes no write of any other."""
        return self._rights is not None

    def owner(self, entity: int) -> str | None:
        """Who may write `entity`; None if all may."""
        return None if self._rights is None else self._rights.owner(entity, self._elements[TRANSFORM].values)

    def elements(self, component: int) -> LwwElements:
        """What all entities have of a component; it is not to be changed.

        Raises:
            KeyError: if the component is none of which the last write wins.
        """
        return self._of(component)

    def values(self, entity: int, component: int) -> tuple[SetValue, ...]:
        """The values of a set, oldest first."""
        return self._sets[component].values(entity) if component in self._sets else ()

    def entity_named(self, name: NetworkId) -> int | None:
        """The entity here that peers name so, which may be one that is no more; None if there never was any."""
        return self._names.entity(name)

    def cost_bytes(self) -> int:
        """What all values take, each with `VALUE_COST_BYTES`; it looks at every one."""
        of_elements = sum(elements.cost_bytes() for elements in self._elements.values())
        return of_elements + sum(sets.cost_bytes() for sets in self._sets.values())

    def name_of(self, entity: int) -> NetworkId | None:
        """The name of an entity among peers; None if it has none."""
        return self._names.name(entity)

    def gone(self) -> list[int]:
        """The removed entities of which nothing in a snapshot tells that their numbers were used."""
        told = {entity & MAX_NUMBER for elements in self._elements.values() for entity in elements.stamps}
        return [entity for entity in self.numbers.gone if entity & MAX_NUMBER not in told]

    def snapshot(self) -> bytes:
        """Messages that make an empty replica equal to this one, but for what `gone` has."""
        parts = [elements.snapshot() for elements in self._elements.values()]
        return b"".join(parts + [sets.snapshot() for sets in self._sets.values()])
