"""What is watched of hosted scenes: one state for all members in the end, and nothing that was told or kept is lost.

What members see is compared from one generation of a scene to the next. Between two of them without a failover nothing
may be missing that a member was told. Whatever has failed, nothing may be missing of which a copy was kept, and no
entity comes back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.fence import Fence
from batonpass.scenarios.simulation.servers.scenes import COUNTER, SceneVisitor, counter_of
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.sync.scene.membership import generation_of
from batonpass.simserver.sync.scene.network_ids import NetworkId
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scenes.world import KIND, held_scene

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["SceneMembers", "SceneWatch"]

_Contents = dict[NetworkId, dict[int, tuple[int, bytes]]]


def contents_of(scene: SceneReplica) -> _Contents:
    """What a replica has, under names: of each entity the components, with their timestamps and values."""
    found: _Contents = {name: {} for entity in scene.numbers.used if (name := scene.name_of(entity)) is not None}
    for component in scene.component_numbers:
        elements = scene.elements(component)
        for entity, value in elements.values.items():
            name = scene.name_of(entity)
            if value is not None and name in found:
                found[name][component] = elements.timestamp(entity) or 0, value
    return found


def counts_of(scene: SceneReplica) -> dict[int, int]:
    """How often each member says that it has written, by its network id."""
    found: dict[int, int] = {}
    if COUNTER in scene.component_numbers:
        for entity, value in scene.elements(COUNTER).values.items():
            name = scene.name_of(entity)
            if name is not None and entity in scene.numbers.used:
                found[name.network] = max(found.get(name.network, 0), counter_of(value))
    return found


def _raise(counts: dict[int, int], others: dict[int, int]) -> None:
    for network, count in others.items():
        counts[network] = max(counts.get(network, 0), count)


@dataclass(slots=True)
class _Generation:
    """What members have seen under one generation of a scene."""

    first: dict[int, int] | None = None
    """The counts in the first state that a member was given."""
    names: set[NetworkId] = field(default_factory=set)
    """The entities in that state."""
    told: dict[int, int] = field(default_factory=dict)
    """How often each member had written, as others were told."""
    gone: set[NetworkId] = field(default_factory=set)
    """The entities that others were told to be no more."""
    kept: dict[int, int] = field(default_factory=dict)
    """The counts in the copies of which the authority has heard that they are kept."""


class SceneWatch:
    """The judge of all scenes of a cluster.

    Args:
        violated: takes a kind and a sentence.
        newest: by which server, and under which fence, an entity was taken up last.
        resumed: the fences under which it was taken up after its server had died.
        was_set_back: whether ticks of it were lost of which a copy was kept, with more servers than may die.
    """

    def __init__(
        self,
        violated: Callable[[str, str], None],
        newest: Callable[[str], tuple[str, Fence]],
        resumed: Callable[[str], Sequence[Fence]],
        was_set_back: Callable[[str], bool],
    ) -> None:
        self._violated: Final = violated
        self._newest: Final = newest
        self._resumed: Final = resumed
        self._was_set_back: Final = was_set_back
        self._generations: Final[dict[str, dict[int, _Generation]]] = {}
        self._copies: Final[dict[tuple[str, Fence, int], dict[int, int]]] = {}
        self.states = 0
        self.meddled = 0

    def _of(self, entity: str, generation: int) -> _Generation:
        return self._generations.setdefault(entity, {}).setdefault(generation, _Generation())

    # --- copies ----------------------------------------------------------------------------------------------------

    def copied(self, entity: str, fence: Fence, tick: int, state: bytes) -> None:
        """A server keeps this copy of another server's."""
        if f".{KIND}-" in entity:
            world = EntitySnapshot.decode(state).world
            self._copies[entity, fence, tick] = counts_of(held_scene(world).scene)

    def heard_of_copy(self, entity: str, fence: Fence, tick: int) -> None:
        """The authority has heard that a copy is kept: what is in it is not lost with that server."""
        if fence >= self._newest(entity)[1]:
            counts = self._copies.get((entity, fence, tick), {})
            _raise(self._of(entity, generation_of(fence)).kept, counts)

    # --- what members see ------------------------------------------------------------------------------------------

    def has_state(self, visitor: SceneVisitor) -> None:
        """A member has taken a whole state."""
        self.states += 1
        generation, counts, names = visitor.generation, counts_of(visitor.scene), set(contents_of(visitor.scene))
        if generation < visitor.seen_generation:
            self._violated("went-back", f"{visitor.name} has generation {generation} after {visitor.seen_generation}")
        if generation > visitor.seen_generation:
            visitor.told.clear()
            visitor.gone.clear()
        visitor.seen, visitor.seen_generation = names, generation
        if self._was_set_back(visitor.entity):
            return
        # What it has heard itself was before it asked; what others have may be after this state was made.
        self._require(visitor, counts, visitor.told, "it was told before")
        self._require_gone(visitor, names & visitor.gone)
        here = self._of(visitor.entity, generation)
        if here.first is None:
            here.first, here.names = counts, names
        for earlier, seen in self._generations[visitor.entity].items():
            if earlier >= generation:
                continue
            self._require(visitor, counts, seen.kept, f"is in a copy of generation {earlier}")
            if not self._is_resumed(visitor.entity, earlier, generation):
                self._require(visitor, counts, seen.told, f"was told under generation {earlier}")
                self._require_gone(visitor, names & seen.gone)

    def _is_resumed(self, entity: str, earlier: int, later: int) -> bool:
        return any(earlier < generation_of(fence) <= later for fence in self._resumed(entity))

    def _require(self, visitor: SceneVisitor, counts: dict[int, int], least: dict[int, int], why: str) -> None:
        for network, count in least.items():
            if (has := counts.get(network, 0)) < count:
                sentence = (
                    f"{visitor.name} is given {visitor.entity} with write {has} of {network}; write {count} {why}"
                )
                self._violated("write-lost", sentence)

    def _require_gone(self, visitor: SceneVisitor, back: set[NetworkId]) -> None:
        if back:
            self._violated("ghost", f"{visitor.name} sees {sorted(back)[0]} of {visitor.entity}, which was removed")

    def is_told(self, visitor: SceneVisitor) -> None:
        """A member has applied what it was told."""
        if self._was_set_back(visitor.entity):
            return
        here, names = self._of(visitor.entity, visitor.generation), set(contents_of(visitor.scene))
        # What it removes itself is gone once others are told.
        gone = {name for name in visitor.seen - names if name.network != visitor.network} - visitor.removed
        self._require_gone(visitor, names & visitor.gone)
        visitor.seen = names
        counts = {one: count for one, count in counts_of(visitor.scene).items() if one != visitor.network}
        visitor.gone.update(gone)
        here.gone |= gone
        _raise(visitor.told, counts)
        _raise(here.told, counts)
        for later, seen in self._generations[visitor.entity].items():
            is_next = later > visitor.generation and seen.first is not None
            if is_next and not self._is_resumed(visitor.entity, visitor.generation, later):
                self._require(visitor, seen.first or {}, here.told, f"was told before generation {later}")
                self._require_gone(visitor, seen.names & here.gone)

    def not_corrected(self, visitor: SceneVisitor, name: NetworkId) -> None:
        """A member still has what it wrote to an entity of another, and all that this tick tells was told."""
        self._violated("not-corrected", f"{visitor.name} still has its own value of {name}, after a round trip")

    def lost_own(self, visitor: SceneVisitor, count: int) -> None:
        """A member's write to its own entity is gone."""
        self._violated("owner-lost", f"write {count} of {visitor.name} to its own entity was heard and is gone")


class SceneMembers:
    """All members of all scenes, and what they must have in the end."""

    def __init__(self, cluster: "ServersCluster", entities: list[str]) -> None:
        self._cluster: Final = cluster
        each = range(cluster.mix.scene_members)
        self.visitors: Final = [SceneVisitor(cluster, one, f"member-{one[-1]}-{at}") for one in entities for at in each]

    def decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        """The log does nothing with scenes but with other entities."""

    def unsettled(self) -> str:
        """Which member has not what the scene's authority has, in a sentence."""
        cluster = self._cluster
        for visitor in self.visitors:
            if cluster.left_out(visitor.entity):
                continue
            record = cluster.record(visitor.entity)
            holding = None if record is None else cluster.servers[record.authority].holding(visitor.entity)
            if record is None or holding is None:
                return f"nobody has {visitor.entity}"
            if not visitor.member.is_in_step:
                return f"{visitor.name} is not in step with {visitor.entity} on {record.authority}"
            if visitor.generation != generation_of(record.fence):
                return f"{visitor.name} has generation {visitor.generation}, and the log says {record.fence}"
            here = contents_of(held_scene(holding.life.seen).scene)
            if (has := contents_of(visitor.scene)) != here:
                parting = {name: (has.get(name), here.get(name)) for name in has.keys() | here.keys()}
                differs = next((name, *both) for name, both in parting.items() if both[0] != both[1])
                return f"{visitor.name} and {record.authority} differ in {visitor.entity}: {differs}"
        return ""
