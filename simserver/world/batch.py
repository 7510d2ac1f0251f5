"""BatchStep worlds: all entities of a server in one call per tick, with their live state in the world's own arrays.

A world that has `step_all` is a batch world. It needs neither `step` nor `destination`; `spawn`, and what else a world
may have (`simserver.world.api`), mean the same. The server keeps no state of its entities then, but asks for it where
one is needed: for a hand-over, a copy, a checkpoint, a client. The contract:

1. `enter(entity, state)`: the entity is simulated from the next `step_all` on. `state` is the world's to keep.
2. `step_all` steps every entity that has entered and not left, and applies `batch.inputs` in their order. It returns
   the names of those that it may have changed; None stands for all. Those with inputs or a `batch.step` count anyway.
3. `encode(entity)` gives the state as it stands, as plain data. It changes nothing, and gives no part of an array that
   the next step writes into. `encode_all(entities)`, if there is one, gives the same of several, in their order.
4. `leave(entity)` gives the same, and forgets the entity. Frozen, quarantined, suspended or passivated entities have
   left; they enter again when they go on.
5. A `step_all` that raises has changed nothing that `encode` gives, or `undo()` takes back what it has changed. With
   `undo`, a tick that ends without the lease of its server is taken back too. Without, it counts, and no client is told
   of it before the server has its lease again.

A world with `position` follows the table of regions, if there is one, as any other does. `positions(entities)` gives
those of several at once, in their order. `Step.near` and `Step.ghosts` are there in `batch.step(entity)`.

A world that knows which entity it cannot step says so (`BatchStep.fail`), and steps the others. Where `step_all`
raises, the entity is searched for (`simserver.entity.bisection`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from batonpass.simserver.world.api import a_destination
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step

__all__ = ["BatchStep", "BatchWorld", "is_batch_world"]


class BatchWorld(Protocol):
    """The rules of a world that steps all its entities at once; the head of the module is the contract."""

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """As `World.spawn`; the entity enters with this state."""

    def enter(self, entity: str, state: Any) -> None:
        """Simulate it from the next step on."""

    def leave(self, entity: str) -> Any:
        """Its state, which it does not have here any more."""

    def encode(self, entity: str) -> Any:
        """Its state, as plain data."""

    def step_all(self, batch: "BatchStep", dt_s: float) -> Iterable[str] | None:
        """Step everything; the names of those that may have changed, or None for all."""


def is_batch_world(world: Any) -> bool:
    """Whether a world steps all its entities at once."""
    return hasattr(world, "step_all")


class BatchStep:
    """One step of all entities, as `step_all` is given it.

    `here` is the server, `tick` the number of the step on it. `inputs` has those that came, by entity, `due` the timers
    that end with this step. Entities that are `asleep` need no step; `woken` are those that were asleep until now.
    `leaving` are those that are about to leave this server, of which `step(entity).leaves_in_ms` says when. `addressed`
    are those with messages of other entities, or refused ones of their own: their `step` has them, in this step alone.
    """

    def __init__(
        self,
        here: str,
        tick: int,
        entities: Collection[str],
        inputs: Mapping[str, Sequence[PendingInput]],
        opened: Callable[[str], Step],
        ticks_here: Callable[[str], int],
        *,
        due: Collection[str] = (),
        asleep: Collection[str] = (),
        woken: Collection[str] = (),
        leaving: Collection[str] = (),
        addressed: Collection[str] = (),
    ) -> None:
        """`opened` begins the step of one entity, `ticks_here` says how many it has had on this server."""
        self.here: Final = here
        self.tick: Final = tick
        self.inputs: Final = inputs
        self.asleep: Final = asleep
        self.woken: Final = woken
        self.leaving: Final = leaving
        self.steps: Final[dict[str, Step]] = {}
        """Those that were asked for."""
        self.failed: Final[dict[str, BaseException]] = {}
        self.wishes: Final[dict[str, str]] = {}
        self.sleepers: Final[dict[str, None]] = {}
        self._entities: Final = entities
        self._opened: Final = opened
        self._ticks_here: Final = ticks_here
        self.addressed: Final = tuple(addressed)
        for entity in self.addressed:
            self.step(entity)
        self.due: Final = {entity: self.step(entity).due for entity in due}

    def step(self, entity: str) -> Step:
        """Tick, chance and timers of one entity in this step; raises `KeyError` if it is not here."""
        step = self.steps.get(entity)
        if step is None:
            self._require(entity)
            step = self.steps[entity] = self._opened(entity)
        return step

    def ticks_here(self, entity: str) -> int:
        """The number of this step among those of one entity on this server; raises `KeyError` if it is not here."""
        self._require(entity)
        return self._ticks_here(entity) + 1

    def wish(self, entity: str, server: str | None) -> None:
        """It should be simulated by that server; said anew with each step, as long as it is so.

        Raises:
            KeyError: the entity is not here.
            TypeError, ValueError: as `World.destination` must not say it.
        """
        self._require(entity)
        wanted = a_destination(server)
        if wanted is None or wanted == self.here:
            self.wishes.pop(entity, None)
        else:
            self.wishes[entity] = wanted

    def sleep(self, entity: str) -> None:
        """Steps without inputs leave it, its timers and its chance as they are: it needs none until it is woken.

        Whether it sleeps is said by `asleep` of the next step: one that is wanted elsewhere does not, say.
        """
        self._require(entity)
        self.sleepers[entity] = None

    def fail(self, entity: str, error: BaseException) -> None:
        """The world cannot step it, and has left it as it was: it is quarantined for that, and the others are not."""
        self._require(entity)
        self.failed[entity] = error

    def _require(self, entity: str) -> None:
        if entity not in self._entities:
            raise KeyError(f"{entity} is not in this batch")
