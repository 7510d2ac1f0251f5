"""A world without servers: its entities tick as fast as they can be computed, under the rules that servers have.

Each step is checked as a server would, and more. The state has to be able to travel, the former one may not be changed,
and the same step once more has to give the same. A hand-over is what it is for a world: the state written and read
again, on a server with another name. So a test sees in milliseconds what would take minutes on a cluster, and every
time the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from batonpass.simserver.entity.sleep import may_sleep
from batonpass.simserver.mail.entity_mail import EntityMail
from batonpass.simserver.mail.items import MailBudget
from batonpass.simserver.world.api import World, a_destination, migrated, require_kind, schema_version
from batonpass.simserver.world.batch import is_batch_world
from batonpass.simserver.world.messages import MessageRefusal, takes_messages
from batonpass.simserver.world.neighbourhood import NOBODY_NEAR
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.portability import NotPortable, a_state, copied, portable
from batonpass.simserver.world.step import Carried, Step
from batonpass.simserver.world.validation import flaw
from batonpass.testing.neighbourhood import SeenEntity, TickedNeighbours, looks_around

__all__ = ["TickedWorld", "WorldFault"]

HERE: Final = "alpha.s1"


class WorldFault(AssertionError):
    """The world does what no server could continue with; the sentence says what, and of which entity."""


def _new_mail() -> EntityMail:
    return EntityMail(MailBudget())


@dataclass
class _TickedEntity:
    kind: str
    state: Any
    server: str
    carried: Carried
    tick: int = 0
    ticks_here: int = 0
    waiting: list[PendingInput] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    mail: EntityMail = field(default_factory=_new_mail)
    touched: tuple[str, ...] = ()


class TickedWorld:
    """A world on virtual time.

    Args:
        world: of yours.
        tick_hz: how often its entities tick in a second.

    Raises:
        WorldFault: it is no world.
    """

    def __init__(self, world: World, tick_hz: float = 20.0) -> None:
        if why := flaw(world):
            raise WorldFault(f"{type(world).__name__}: {why}")
        if is_batch_world(world):
            raise WorldFault(f"{type(world).__name__} is a batch world: it is tested on a cluster, as `baton_cluster`")
        self._world: Any = world
        self.period_s: Final = 1.0 / tick_hz
        self.now_s = 0.0
        """How much virtual time has gone by."""
        self._entities: Final[dict[str, _TickedEntity]] = {}
        self._neighbours: TickedNeighbours | None = None

    def spawn(self, entity: str, kind: str, server: str = HERE, **params: Any) -> Any:
        """Create an entity: its first state. Raises ValueError as the world does, and WorldFault."""
        require_kind(self._world, kind)
        state = self._world.spawn(kind, params)
        self._written(entity, state, "spawn")
        self._entities[entity] = _TickedEntity(kind, state, server, Carried.of_new(entity))
        return state

    def give(self, entity: str, data: bytes, player: str = "alpha.ada") -> int:
        """Give an input, which the next tick applies: its number."""
        there = self._entities[entity]
        number = there.numbers[player] = there.numbers.get(player, 0) + 1
        there.waiting.append(PendingInput(player, number, data))
        return number

    def state(self, entity: str) -> Any:
        """The state of an entity."""
        return self._entities[entity].state

    def server(self, entity: str) -> str:
        """Where an entity is."""
        return self._entities[entity].server

    def seen(self, entity: str, player: str = "") -> Any:
        """What a player sees of an entity, or an observer (empty); None if it is hidden."""
        view = getattr(self._world, "view", None)
        return self.state(entity) if view is None else view(self.state(entity), player)

    def position(self, entity: str) -> Any:
        """Where it is, as the world says."""
        return self._world.position(self.state(entity))

    def may_sleep(self, entity: str) -> bool:
        """Whether a server would not tick it until something comes."""
        return may_sleep(self._world, self.state(entity))

    def tick(self, times: int = 1) -> None:
        """Have all entities tick, and those go that the world sends elsewhere. Raises WorldFault."""
        for _ in range(times):
            self.now_s += self.period_s
            self._look_around()
            for name, entity in self._entities.items():
                self._step(name, entity)
                # A world without it follows a table of regions, of which there is none here.
                destination = getattr(self._world, "destination", None)
                said = None if destination is None else destination(entity.state, entity.server, entity.ticks_here)
                if (target := a_destination(said)) and target != entity.server:
                    self.hand_over(name, target)
            for name, entity in self._entities.items():
                self._bring(name, entity)

    def _look_around(self) -> None:
        """What all of them see in this tick is how the last one has left them."""
        if not looks_around(self._world):
            return
        there = {name: SeenEntity(one.server, one.state, one.tick) for name, one in self._entities.items()}
        try:
            self._neighbours = TickedNeighbours(self._world, there)
        except (TypeError, ValueError) as error:
            raise WorldFault(f"the world says where its entities are, and how far it looks: {error}") from error

    def touched(self, entity: str) -> tuple[str, ...]:
        """The ghosts that an entity met in its last tick (`step.touch`), in the order in which its world said so."""
        return self._entities[entity].touched

    def run(self, seconds: float) -> None:
        """Have virtual time go by."""
        self.tick(round(seconds / self.period_s))

    def hand_over(self, entity: str, to: str) -> None:
        """Have an entity go to another server, as it goes over the wire."""
        there = self._entities[entity]
        there.state = copied(there.state)
        there.mail = EntityMail.from_data(copied(there.mail.to_data()), MailBudget(), there.tick)
        there.server, there.ticks_here = to, 0

    def upgrade(self, world: World) -> None:
        """Continue with a later version of the world, which takes the states of this one. Raises WorldFault."""
        former, self._world = schema_version(self._world), world
        for name, entity in self._entities.items():
            try:
                entity.state = migrated(world, entity.kind, copied(entity.state), former)
            except ValueError as error:
                raise WorldFault(f"{name}: {error}") from error
            self._written(name, entity.state, "migrate")

    def _step(self, name: str, entity: _TickedEntity) -> None:
        inputs, before = tuple(entity.waiting), self._written(name, entity.state, "state")
        state, carried, sent = self._stepped(name, entity, entity.state, inputs)
        after = self._written(name, state, "step")
        if self._written(name, entity.state, "state") != before:
            raise WorldFault(f"{name}: the step of tick {entity.tick + 1} has changed the state that it was given")
        again, _, sent_again = self._stepped(name, entity, copied(entity.state), inputs)
        if sent_again != sent:
            raise WorldFault(
                f"{name}: the same step of tick {entity.tick + 1} sent {sent!r:.200} and then {sent_again!r:.200}"
            )
        if self._written(name, again, "step") != after:
            raise WorldFault(
                f"{name}: the same step of tick {entity.tick + 1} gave {state!r:.200} and then {again!r:.200}: "
                "no other server could go on from there"
            )
        if self._neighbours is not None and (changed := self._neighbours.changed()):
            raise WorldFault(f"{name}: the step of tick {entity.tick + 1} has changed the state of {changed}")
        entity.waiting.clear()
        entity.state, entity.carried = state, carried
        entity.tick, entity.ticks_here = entity.tick + 1, entity.ticks_here + 1
        entity.mail.commit((1, 0, entity.tick))
        entity.mail.send(1, entity.tick, sent)

    def _bring(self, name: str, entity: _TickedEntity) -> None:
        """What it has sent is there for the receivers' next tick, and durable at once: nothing falls back here."""
        outbox = entity.mail.outbox
        entity.mail.made_durable(entity.tick)
        for to in list(outbox.out):
            receiver = self._entities.get(to)
            if receiver is None:
                outbox.no_receiver(to, MessageRefusal.NO_SUCH_ENTITY)
                continue
            receiver.mail.made_durable(receiver.tick)
            stamp = (1, 0, receiver.tick)
            items = outbox.next_items(to, receiver.server, 0) or []
            reply, _ = receiver.mail.received.offer(name, items, stamp, stamp, entity.server)
            outbox.answered(to, receiver.server, replace(reply, durable=reply.accepted), 0)

    def _stepped(
        self, name: str, entity: _TickedEntity, state: Any, inputs: Sequence[PendingInput]
    ) -> tuple[Any, Carried, list[tuple[str, bytes]]]:
        advance = getattr(self._world, "advance", None)
        if advance is None:
            return self._world.step(state, inputs, self.period_s), entity.carried, []
        around = NOBODY_NEAR if self._neighbours is None else self._neighbours.of(name)
        step = Step(entity.carried, entity.tick + 1, None, name, around, entity.mail.for_step(1))
        after = advance(state, inputs, self.period_s, step)
        entity.touched = step.touched
        if step.sent is not None and not takes_messages(self._world):
            raise WorldFault(f"{name}: it sends a message, and its world does not say takes_messages = True")
        return after, step.carried(), step.sent or []

    def _written(self, name: str, state: Any, what: str) -> bytes:
        try:
            return portable(a_state(what, state))
        except NotPortable as error:
            raise WorldFault(f"{name}: what `{what}` gave cannot travel: {error}") from error
