"""What a world is told that looks around: this server's entities, as the last round of ticks left them, and ghosts.

The commit feed says what has changed. It is followed between two rounds only, so within a round all steps see the same,
whichever entity ticks first. An entity of which the world does not say where it is, is nowhere.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from math import ceil, isfinite
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.wire.cbor import loads_state_untrusted
from batonpass.simserver.entity.feed import Committed, EntityChange, FeedBatch
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.neighbours.ghost_table import BadGhost, Ghost, GhostTable
from batonpass.simserver.neighbours.spatial_index import SpatialIndex, ordered
from batonpass.simserver.players.cells import a_position
from batonpass.simserver.world.api import World, schema_version
from batonpass.simserver.world.neighbourhood import Neighbour

__all__ = ["MAX_AGE_NS", "Surroundings", "ghost_hz", "surroundings_of"]

_log = logging.getLogger("batonpass.simserver.neighbours.surroundings")

MAX_AGE_NS: Final = 1_000_000_000
"""For so long a ghost is shown of whose server nothing is heard."""
DRIVEN_ROUNDS: Final = 20
"""For so long after its last input an entity counts as driven by a player."""
_MOST: Final = 2**31 - 1


def ghost_hz(world: World, tick_hz: float) -> float:
    """How often in a second a world's ghosts are to be sent; as often as entities tick, if it does not say.

    Raises:
        ValueError: it has a `ghost_hz` that is no number above 0.
    """
    wanted = getattr(world, "ghost_hz", None)
    if wanted is None:
        return tick_hz
    _require_positive("ghost_hz", wanted)
    return min(float(wanted), tick_hz)


def _require_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0 or not isfinite(value):
        raise ValueError(f"the {name} of a world is a number above 0, not {value!r}")


class Surroundings:
    """As `NeighbourLookup`, of one server.

    Args:
        world: with `position` and `reach`.
        holdings: gives what lives here; asked for once there is any.
        period_ns: of a tick.
        count: notes faults of the world by name.
    """

    def __init__(
        self, world: World, holdings: Callable[[], Holdings], period_ns: int, count: Callable[[str], None]
    ) -> None:
        self._world: Final[Any] = world
        self._holdings: Final = holdings
        self._period_ns: Final = period_ns
        self._count: Final = count
        self.reach: Final = float(getattr(world, "reach"))  # noqa: B009 — optional
        self.own: Final = SpatialIndex(self.reach)
        self.table: Final = GhostTable(self.reach, self._read_state, self._is_past, schema_version(world), MAX_AGE_NS)
        self.changed: set[str] = set()
        """The entities of this server that changed since the set was emptied, or left."""
        self._moved_in: Final[dict[str, int]] = {}
        self._driven_until: Final[dict[str, int]] = {}
        self._round = 0
        self._now_ms = 0
        self._has_failed = False

    # --- for worlds ------------------------------------------------------------------------------------------------

    def near(self, position: Sequence[float], radius: float, but: str = "") -> tuple[Neighbour, ...]:
        """As `NeighbourLookup.near`."""
        return ordered(self.own.near(position, radius), but)

    def ghosts(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        """As `NeighbourLookup.ghosts`; none of an entity that is here as well, because it is on its way."""
        own = self.own
        return tuple([self._aged(one) for one in self.table.near(position, radius) if own.get(one.entity) is None])

    def _aged(self, ghost: Neighbour) -> Neighbour:
        return ghost._replace(age_ticks=self.age_ticks(ghost.server))

    def age_ticks(self, server: str) -> int:
        """How many ticks ago what is shown of a server's entities was so, at least 1, by the time of the instance."""
        return max(1, ceil((self._now_ms - self.table.at_ms(server)) * 1_000_000 / self._period_ns))

    def ghost(self, entity: str) -> Ghost | None:
        """The ghost of an entity that is not here."""
        return None if self.own.get(entity) is not None else self.table.get(entity)

    # --- between rounds --------------------------------------------------------------------------------------------

    def begins(self, number: int, now_ms: int) -> None:
        """Round `number` begins at `now_ms` of the instance's time."""
        self._round, self._now_ms = number, now_ms

    def follow(self, batch: FeedBatch) -> None:
        """What has happened since."""
        if batch.missed:
            self.read_again()
            return
        for event in batch.events:
            if isinstance(event, Committed):
                if event.inputs:
                    self._driven_until[event.entity] = batch.round + DRIVEN_ROUNDS
                if event.after is not event.before or self.own.get(event.entity) is None:
                    self._put(event.entity, event.fence, event.tick, event.after, batch.round)
            elif event.change is EntityChange.ENDED:
                self._end(event.entity)
            elif (holding := self._holdings().get(event.entity)) is not None:
                self._put_life(holding.life)

    def read_again(self) -> None:
        """Read the whole table of entities: what has happened is not known any more."""
        self.changed.update(one.entity for one in self.own)
        self.own.clear()
        for holding in self._holdings():
            self._put_life(holding.life)

    def _put_life(self, life: Life) -> None:
        self.table.lives_here(life.id, life.fence)
        self._put(life.id, life.fence, life.tick, life.look())

    def _put(self, entity: str, fence: Fence, tick: int, state: Any, number: int | None = None) -> None:
        self.changed.add(entity)
        position, before = self._position(entity, state), self.own.get(entity)
        if before is None or before.position != position:
            self._moved_in[entity] = self._round if number is None else number
        if position is None:
            self.own.remove(entity)
        else:
            self.own.put(Neighbour(entity, position, state, fence, tick))

    def _end(self, entity: str) -> None:
        # It may have come back within the same round.
        if (holding := self._holdings().get(entity)) is not None:
            self._put_life(holding.life)
            return
        self.changed.add(entity)
        self.own.remove(entity)
        self._driven_until.pop(entity, None)
        self._moved_in.pop(entity, None)

    def _position(self, entity: str, state: Any) -> tuple[float, ...] | None:
        try:
            said = self._world.position(state)
            return None if said is None else a_position(said)
        except Exception as error:
            self._failed("position", entity, error)
            return None

    def _failed(self, what: str, entity: str, error: Exception) -> None:
        self._count(f"{what}_failed")
        if not self._has_failed:
            self._has_failed = True
            _log.error(
                "the world fails on the %s of %s; that is counted and not said again", what, entity, exc_info=error
            )

    # --- what is said of an entity ---------------------------------------------------------------------------------

    def is_driven(self, entity: str) -> bool:
        """Whether a player has given it inputs a moment ago."""
        return self._driven_until.get(entity, -1) >= self._round

    def moved_in(self, entity: str) -> int:
        """The last round in which an entity of this server was somewhere else than before."""
        return self._moved_in.get(entity, 0)

    def priority(self, entity: str) -> int:
        """What the world's `contact_priority` says of an entity of this server; 0 if it says nothing."""
        asked, known = getattr(self._world, "contact_priority", None), self.own.get(entity)
        if asked is None or known is None:
            return 0
        try:
            return max(-_MOST, min(_MOST, int(asked(known.state))))
        except Exception as error:
            self._failed("priority", entity, error)
            return 0

    def no_longer_driven(self) -> Iterable[str]:
        """The entities that count as driven no more, since this was asked last."""
        over = [entity for entity, until in self._driven_until.items() if until < self._round]
        for entity in over:
            del self._driven_until[entity]
        return over

    # --- what comes from peers -------------------------------------------------------------------------------------

    def _read_state(self, state: bytes) -> tuple[tuple[float, ...] | None, Any]:
        try:
            value = loads_state_untrusted(state)
        except Exception as error:
            raise BadGhost(f"a state that cannot be read: {error}") from error
        return self._position("a ghost", value), value

    def _is_past(self, entity: str, fence: Fence) -> bool:
        return self._holdings().is_past(entity, fence)


def surroundings_of(
    world: World, holdings: Callable[[], Holdings], period_ns: int, count: Callable[[str], None]
) -> Surroundings | None:
    """Of a server whose world has entities near each other; None of others.

    Raises:
        ValueError: it has a `reach` that is no number above 0.
    """
    reach = getattr(world, "reach", None)
    if reach is None or not hasattr(world, "position"):
        return None
    _require_positive("reach", reach)
    return Surroundings(world, holdings, period_ns, count)
