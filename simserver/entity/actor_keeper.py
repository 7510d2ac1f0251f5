"""Sees to it that every entity that is held has an actor.

The entities' supervisor restarts an actor that crashed or was killed. It cannot begin with an entity that has just
arrived. Nor can it with all of them when it has itself been restarted, because a supervisor of children that come and
go remembers none of them. `Holdings` does; so the actor keeper starts what is missing, whenever it starts itself, and
whenever it is told of a new life.
"""

import logging
from collections.abc import Awaitable, Hashable, Iterable
from typing import Final

import trio

from batonpass.actors.core.children import ActorSpec, SupervisorError
from batonpass.actors.core.exits import AlreadyStarted, Exit, StartError
from batonpass.actors.core.restart import Restart
from batonpass.actors.core.server import Continue, Ok, Server
from batonpass.actors.core.shutdown import BREATHER
from batonpass.actors.supervision.dynamic_supervisor import DynamicSupervisor
from batonpass.simserver.entity.actor import Entity
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holdings

__all__ = ["ENTITIES", "ActorKeeper", "entity_name"]

_log = logging.getLogger("batonpass.simserver")

ENTITIES: Final = "entities"
"""The name of the supervisor of all entities' actors."""


def entity_name(entity: str) -> Hashable:
    """The name under which the actor of an entity is registered."""
    return ("entity", entity)


class _AttendNow:
    """Cast to itself: the entities that have begun since the last one want an actor."""


class ActorKeeper(Server[None]):
    """Started with `(EntityEnvironment, Holdings)`, after the supervisor called `ENTITIES`."""

    def init(self, arg: tuple[EntityEnvironment, Holdings]) -> Ok[None]:
        """Listen for new lives from here on, and begin with those that are there."""
        self._env, self._holdings = arg
        # Bounded by how many live here; what is left in it when this crashes is found among them.
        self._waiting: list[Life] = []
        self._holdings.actor_keeper = self.ref
        return Ok(None, then=Continue(None))

    async def handle_continue(self, value: None, state: None) -> None:
        """Give an actor to each entity without one."""
        await self._attend_all(holding.life for holding in self._holdings)

    def handle_cast(self, message: Life | _AttendNow, state: None) -> Awaitable[None] | None:
        """A life has begun. Those of one parcel are attended to together, in one task and not in one for each."""
        if isinstance(message, _AttendNow):
            waiting, self._waiting = self._waiting, []
            return self._attend_all(waiting)
        if not self._waiting:
            # Comes after those that are in the mailbox already.
            self.ref.cast(_AttendNow())
        self._waiting.append(message)
        return None

    async def _attend_all(self, lives: Iterable[Life]) -> None:
        for number, life in enumerate(lives, 1):
            await self._attend(life)
            if number % BREATHER == 0:
                await trio.lowlevel.checkpoint()

    async def _attend(self, life: Life) -> None:
        if life.over or life.has_actor or life.passive is not None or life.is_batched:
            return
        # Transient: it is restarted unless it ended in order, which it does when the entity has left.
        spec = ActorSpec(
            life.id, Entity, (self._env, life), restart=Restart.TRANSIENT, shutdown_s=0, name=entity_name(life.id)
        )
        try:
            await DynamicSupervisor.start_child(self.system.named(ENTITIES), spec)
        except AlreadyStarted:
            # Its supervisor was faster: it had crashed a moment ago.
            if not life.has_actor:
                raise
        except (StartError, SupervisorError, Exit) as error:
            if self.system.closing:
                # The server stops: no entity gets an actor any more.
                return
            # The cause that keeps it from starting is over when the supervisor, and this, have been restarted.
            _log.error("%s has no actor: %s", life.id, error)
            raise
