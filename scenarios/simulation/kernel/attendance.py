"""Entities' actors that are always there and never wait, for simulations without a runtime of actors."""

from typing import Any, cast

from batonpass.simserver.entity.actor import Entity
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.state import Life

__all__ = ["Attendant"]


class _Callbacks(Entity):
    """What an entity's actor does, without a process that does it."""

    def __init__(self, environment: EntityEnvironment) -> None:
        self._env = environment


class _Idle:
    """In place of an actor's process: nothing ever waits for it."""

    scheduled = False


class _Actor:
    """The actor of one life."""

    alive = True
    process = _Idle()

    def __init__(self, entity: Entity, life: Life) -> None:
        self._entity, self._life = entity, life

    def cast(self, message: Any) -> None:
        self._entity.handle_cast(message, self._life)

    def exit(self, reason: object) -> None:
        self.alive = False


class Attendant:
    """In place of `simserver.entity.actor_keeper`: gives every new life its actor at once."""

    def __init__(self, environment: EntityEnvironment) -> None:
        self.entity = _Callbacks(environment)

    def cast(self, life: Life) -> None:
        """A life has begun; one of a batch has no actor."""
        if life.is_batched:
            return
        life.taken_up_by(cast(Any, _Actor(self.entity, life)))
