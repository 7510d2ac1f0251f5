"""The routes by which entities are created: one, or many that share what one costs.

Many are created as each would be by itself, at the same time. Each is confirmed when its server simulates it and a copy
of it is kept. Each fails for a reason of its own. What they share is told in `homeserver.transfer.creation`.
"""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final

import trio
from fastapi import Depends
from pydantic import AfterValidator, BaseModel, Field

from batonpass.actors.http.app import ApiError, BodyBound, RequestBody
from batonpass.actors.http.routes import Routes
from batonpass.authority.errors import Reason
from batonpass.authority.model.enrolment import PLAYER_MARK
from batonpass.authority.names import instance_of
from batonpass.homeserver.rest.access import (
    AtDoor,
    PlayerAtDoor,
    check_home,
    check_players,
    client_access,
    player_access,
)
from batonpass.homeserver.rest.errors import error_of, not_told
from batonpass.homeserver.rest.models import POLICIES, EntityView, NewEntity
from batonpass.homeserver.transfer.creation import SpawnNotTold, SpawnUnconfirmed

if TYPE_CHECKING:
    from batonpass.homeserver.node.dispatch import HomeserverNode

__all__ = ["MANY_BOUND", "MAX_MANY", "creation_routes"]

MAX_MANY: Final = 1024
"""How many entities one request creates: eight steps of the log, and what one server begins in a second or less."""
MAX_UNDER_WAY: Final = 512
"""How many creations of such requests a member has under way at one time, so that all else has its turn."""
MAX_CHARS: Final = 500
"""Of the message about one of many, as of any error."""
MANY_BOUND: Final = BodyBound(4 * 1024 * 1024)
"""Four kilobytes for each of them, and a hundred values of JSON."""


def _each_once(entities: list[NewEntity]) -> list[NewEntity]:
    if twice := [name for name, count in Counter(one.id for one in entities).items() if count > 1]:
        raise ValueError(f"{twice[0]} is there twice")
    return entities


class NewEntities(RequestBody):
    """Create many entities, each as `POST /v1/entities` would."""

    entities: Annotated[list[NewEntity], AfterValidator(_each_once)] = Field(min_length=1, max_length=MAX_MANY)


class NotCreated(BaseModel):
    """Why one of many was not created, or is not known to be: what its own request would have been answered."""

    id: str
    status: int = Field(description="from 500 on: to repeat it tells what became of it")
    code: str
    message: str


class CreatedView(BaseModel):
    """What became of many."""

    created: int = Field(description="how many live, each kept by another server and on its own server's disk")
    failed: list[NotCreated] = Field(description="the others, in the order in which they were given")


def creation_routes(node: "HomeserverNode") -> Routes:
    """`POST /v1/entities` and `POST /v1/entities/many`."""
    routes = Routes(prefix="/v1/entities", tags=["entities"])
    under_way = trio.CapacityLimiter(MAX_UNDER_WAY)
    client = Depends(client_access(node.tokens))
    player = Depends(player_access(node))

    @routes.post("", status_code=201, dependencies=[player])
    async def create_entity(body: NewEntity, at_door: AtDoor = None) -> EntityView:
        """Create an entity and have it simulated. Repeat the same request when its answer was lost."""
        return await _create(node, body, at_door)

    @routes.post("/many", dependencies=[client])
    async def create_many(body: NewEntities) -> CreatedView:
        """Create many entities, each by itself. To repeat those that failed, or all, creates none twice."""
        failures: dict[str, ApiError] = {}

        async def create(one: NewEntity) -> None:
            async with under_way:
                try:
                    await _create(node, one, None)
                except Exception as error:
                    failures[one.id] = error_of(error)

        async with trio.open_nursery() as nursery:
            for one in body.entities:
                nursery.start_soon(create, one)
        failed = [(one.id, failures[one.id]) for one in body.entities if one.id in failures]
        return CreatedView(
            created=len(body.entities) - len(failed),
            failed=[
                NotCreated(id=name, status=e.status, code=e.code, message=e.message[:MAX_CHARS]) for name, e in failed
            ],
        )

    return routes


def _check_may_spawn(node: "HomeserverNode", body: NewEntity, at_door: PlayerAtDoor) -> None:
    """Raise ApiError unless a player at the door may create this; that it may create some was looked at before."""
    player, grant = at_door.name, at_door.grant
    if body.spawner != player:
        raise ApiError(403, "not_permitted", f"{player} spawns in its own name, not in that of {body.spawner}", player)
    if not grant.takes_kind(body.kind):
        raise ApiError(403, "not_permitted", f"{player} may not spawn entities of this kind", body.kind)
    if not grant.takes_entity(player, body.id):
        text = f"{player} spawns entities whose names are like {grant.entities.replace(PLAYER_MARK, player)}"
        raise ApiError(403, "not_permitted", text, body.id)
    node.request_gate.admit(player, body.id, f"spawn {body.id}")
    # Said again, one that is there takes no more room.
    if node.store.entity(body.id) is None and node.store.count_mastered(player) >= grant.most_entities:
        text = f"{player} is the master of {grant.most_entities} entities already, which is all that it may spawn"
        raise ApiError(403, "not_permitted", text, grant.most_entities)


async def _create(node: "HomeserverNode", body: NewEntity, at_door: PlayerAtDoor | None) -> EntityView:
    check_home(node.config.instance, body.id)
    if at_door is not None:
        _check_may_spawn(node, body, at_door)
    if instance_of(body.server) != node.config.instance:
        text = f"{body.server} belongs to another instance; spawn here, then transfer"
        raise ApiError(422, Reason.UNKNOWN_TARGET, text, body.server)
    await check_players(node.directory, node.config.instance, body.model_dump(include={"spawner", "heir"}))
    wanted: dict[str, Any] = {"entity": body.id, "kind": body.kind, "spawner": body.spawner, "server": body.server}
    policies = body.model_dump(mode="json", include=POLICIES)
    try:
        record, reason = await node.births.create(body.params, **wanted, rule=body.rule.value, **policies)
    except SpawnUnconfirmed as error:
        text = f"{body.id} may live or not: {error}; repeat the request to learn the outcome"
        raise ApiError(504, "spawn_unconfirmed", text, body.server) from None
    except SpawnNotTold as error:
        raise not_told(error, body.server) from error
    if reason:
        raise ApiError(422, "spawn_refused", reason, body.kind)
    return EntityView.of(record)
