"""An entity as an actor: it ticks, and takes the inputs of its players.

The actor runs the world's code on the entity's `Life`, which outlives it. Whatever ends the actor, the next one resumes
from the last tick that was completed. It ticks while the life is not frozen; frozen, it only takes inputs, which the
life keeps in its journal.

A world that raises is no reason to crash: it would raise on this state on every server. The entity is quarantined then,
with its inputs, until people have looked at it. So it does if the world gives a state that could not travel: that is
not committed, and the entity has its last good one.
"""

from dataclasses import dataclass
from typing import Any

from batonpass.actors.base.errors import is_stopping
from batonpass.actors.core.ref import From
from batonpass.actors.core.server import IGNORE, Ignore, Reply, Server
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.mail_desk import mail_for_step, send
from batonpass.simserver.entity.sleep import may_sleep
from batonpass.simserver.entity.state import Life
from batonpass.simserver.world.messages import NO_MAIL
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Carried, Step

__all__ = ["Entity", "Inspect", "NewInput", "TickNow", "require_sendable", "step_of"]


@dataclass(frozen=True, slots=True)
class TickNow:
    """Cast: one tick of the server's 20 Hz has come."""


@dataclass(frozen=True, slots=True)
class NewInput:
    """Cast: an input arrived (from its player, or forwarded)."""

    source: str
    owner_rev: int
    seq: int
    data: bytes
    base: int = 0
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Inspect:
    """Call: how the entity is, as plain data; `with_state` adds the world's state as CBOR in hex."""

    with_state: bool = False


def step_of(environment: EntityEnvironment, life: Life) -> Step:
    """The next step of an entity, as its world is given it."""
    now_ns, at_ns = environment.monotonic_ns(), life.leaves_at_ns
    leaves_in_ms = max(0, at_ns - now_ns) // 1_000_000 if at_ns else None
    mail = mail_for_step(life) if environment.takes_messages else NO_MAIL
    return Step(life.carried, life.tick + 1, leaves_in_ms, life.id, environment.neighbourhood, mail)


def require_sendable(environment: EntityEnvironment, step: Step) -> None:
    """See that a step of a world that takes no messages has sent none; raises `TypeError` if it has."""
    if step.sent is not None and not environment.takes_messages:
        raise TypeError("the world sends a message, and does not say that it takes any: give it takes_messages = True")


class Entity(Server[Life]):
    """One entity; started with `(EntityEnvironment, Life)`, any number of times for one life."""

    _is_ready = False
    _sent: list[tuple[str, bytes]] | None = None
    _touched: tuple[str, ...] = ()

    def init(self, arg: tuple[EntityEnvironment, Life]) -> Life | Ignore:
        """Continue where the life is; a life that is over wants no actor."""
        self._env, life = arg
        if life.over:
            return IGNORE
        life.taken_up_by(self.ref)
        if life.owes_tick:
            # The round came before this did.
            life.owes_tick = False
            self.ref.cast(TickNow())
        return life

    def handle_cast(self, message: Any, state: Life) -> None:
        """Ticks and inputs."""
        if type(message) is TickNow:
            # By far the most of them.
            self._tick(state)
            return
        match message:
            case NewInput(source, owner_rev, seq, data, base, floor):
                state.take_input(source, owner_rev, seq, data, base, floor)
            case other:
                raise TypeError(f"an entity takes no {other!r}")

    def handle_call(self, request: Any, from_: From, state: Life) -> Reply[Life]:
        """Inspection."""
        match request:
            case Inspect(with_state):
                return Reply(state.inspected(with_state=with_state))
            case other:
                raise TypeError(f"an entity answers no {other!r}")

    def _tick(self, life: Life) -> None:
        # Without the properties of a life, as with every tick.
        if life.frozen or life.quarantine.why or life.acceptance.ownership.suspended:
            return
        if life.sleep is not None and not life.wakes_now():
            return
        now_ns = done_ns = life.enter()
        try:
            world, carried = self._step(life)
            life.require_portable(world)
            destination = self._env.regions.destination(
                self._env.world, world, self._env.server, life.ticks_here + 1, self._env.period_s
            )
            wants_sleep = may_sleep(self._env.world, world)
        except BaseException as error:
            if is_stopping(error):
                raise
            life.failed(error)
            return
        finally:
            done_ns = life.leave(now_ns)
        if not self._env.may_act(done_ns):
            # The lease ran out meanwhile: this tick has not happened, and is known nowhere else. If it was by the tick
            # itself, the entity may be stopped for it now.
            self._env.count("ticks_without_lease")
            return
        # The work after the commit may fail: the tick is done then all the same, and is not done again.
        if applied := life.commit(world, now_ns, carried, done_ns):
            self._acknowledge(life, applied)
        if self._sent is not None:
            send(life, self._sent, self._env.mail, self._env.count)
        if life.leaves_at_ns and self._is_ready:
            self._env.ready_to_leave(life.id)
        if self._touched:
            self._env.touched(life.id, self._touched)
        life.wants = "" if destination is None or destination == self._env.server else destination
        if life.wants:
            self._env.wants_to_go(life.id, life.wants)
        elif wants_sleep and not self._env.regions.is_held(life.ticks_here, self._env.period_s):
            life.fall_asleep()

    def _step(self, life: Life) -> tuple[Any, Carried | None]:
        """The world one tick later, and what the entity carries then if its world has any use for it."""
        pending, period_s = tuple(life.inbox.pending), self._env.period_s
        advance = getattr(self._env.world, "advance", None)
        if advance is None:
            return self._env.world.step(life.seen, pending, period_s), None
        step = step_of(self._env, life)
        world = advance(life.seen, pending, period_s, step)
        require_sendable(self._env, step)
        self._is_ready, self._sent, self._touched = step.is_ready, step.sent, step.touched
        return world, step.carried()

    def _acknowledge(self, life: Life, applied: list[PendingInput]) -> None:
        for source, upto in life.inbox.sources_of(applied).items():
            life.acceptance.acknowledge(life, source, upto)
