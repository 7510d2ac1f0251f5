"""What runs of the synchronisation systems on a server, in one form for all of them: for pages.

Timelines are not among them: a `TimeSteward` runs in a program of its user. Its events go by an event stream, which is.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, Literal

from pydantic import BaseModel, Field

from batonpass.actors.http.routes import Routes
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.sync.scene.exchange import SceneRefusal

__all__ = ["MAX_SYNCHRONISED", "sync_routes"]

MAX_SYNCHRONISED: Final = 200
"""Of one answer."""
MAX_PARTS: Final = 100


class SynchronisedPart(BaseModel):
    """A node of a show."""

    name: str
    position: int | None = Field(description="the newest frame that it has whole, as the controller knows it")
    lag: int | None = Field(description="how many frames that is behind the newest one")
    heard_ms: int | None = Field(description="how long ago it was heard of; null: never")


class SynchronisedEntity(BaseModel):
    """An entity by which clients or nodes are kept in step, as this server knows it."""

    entity: str
    system: Literal["followers", "scene", "event stream"]
    role: str = Field(description="`authority`; of a show `controller` or `node`")
    members: int = Field(description="clients, members or nodes that take part here")
    position: int | None = Field(description="its tick, or of a show its newest frame")
    lag: int | None = Field(description="ticks that cannot be told yet, or frames of the slowest node")
    counters: dict[str, int]
    parts: list[SynchronisedPart]


class LocalSynchronisation(BaseModel):
    """All of them on this server."""

    synchronised: list[SynchronisedEntity] = Field(description="at most 200")


def sync_routes(node: SimserverNode) -> Routes:
    """The route."""
    routes = Routes(tags=["synchronisation"])

    @routes.get("/v1/local/synchronisation")
    async def synchronisation() -> LocalSynchronisation:
        """The shows, scenes and event streams of this server: who takes part, how far they are, what was counted."""
        rows = (row for rows in (_shows(node), _scenes(node), _streams(node)) for row in rows)
        return LocalSynchronisation(synchronised=list(islice(rows, MAX_SYNCHRONISED)))

    return routes


def _shows(node: SimserverNode) -> Iterator[SynchronisedEntity]:
    for show in () if node.shows is None else node.shows.inspect(drops=0):
        newest = show.newest
        parts = [
            SynchronisedPart(
                name=each.name,
                position=each.acknowledged,
                lag=None if newest is None or each.acknowledged is None else max(0, newest - each.acknowledged),
                heard_ms=each.heard_ms,
            )
            for each in show.nodes[:MAX_PARTS]
        ]
        yield SynchronisedEntity(
            entity=show.entity,
            system="followers",
            role="controller" if show.is_controller else "node",
            members=len(show.nodes),
            position=newest,
            lag=max((each.lag for each in parts if each.lag is not None), default=None),
            counters=show.counters | {"frames_not_applied": show.not_applied},
            parts=parts,
        )


def _scenes(node: SimserverNode) -> Iterator[SynchronisedEntity]:
    scenes = node.scenes
    if scenes is None:
        return
    for entity, members in dict(scenes.members()).items():
        try:
            tick, merged = scenes.merges(entity)
        except SceneRefusal:
            # It has just gone.
            continue
        yield SynchronisedEntity(
            entity=entity,
            system="scene",
            role="authority",
            members=members,
            position=tick,
            lag=None,
            counters={f"writes_{name}": count for name, count in sorted(merged.items())},
            parts=[],
        )


def _streams(node: SimserverNode) -> Iterator[SynchronisedEntity]:
    for entity, told, stream in () if node.streams is None else node.streams.followed():
        yield SynchronisedEntity(
            entity=entity,
            system="event stream",
            role="authority",
            members=stream.connected,
            position=stream.tick,
            lag=max(0, stream.tick - told),
            counters={
                "events_kept": len(stream),
                "oldest_tick": stream.oldest,
                "events_untold": len(stream.untold),
                "desync": int(stream.desync is not None),
            },
            parts=[],
        )
