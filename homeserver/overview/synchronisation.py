"""What runs of the synchronisation systems in an instance, by the word of the simulation servers."""

from typing import Annotated, Final

from pydantic import BaseModel, Field

from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.overview.surveys import ask_all, surveyed

__all__ = ["SynchronisationView", "surveyed_synchronisation"]

_PATH: Final = "/v1/local/synchronisation"
_MAX_ROWS: Final = 200

ShortText = Annotated[str, Field(max_length=200)]


class _SaidPart(BaseModel):
    """A node of a show, as its controller says it."""

    name: ShortText
    position: int | None = Field(description="the newest frame that it has whole")
    lag: int | None = Field(description="how many frames that is behind the newest one")
    heard_ms: int | None = Field(description="how long ago it was heard of; null: never")


class _SaidSynchronised(BaseModel):
    """A row of a simulation server."""

    entity: ShortText
    system: ShortText = Field(description="`followers`, `scene` or `event stream`")
    role: ShortText = Field(description="`authority`; of a show `controller` or `node`")
    members: int = Field(description="clients, members or nodes that take part there")
    position: int | None = Field(description="its tick, or of a show its newest frame")
    lag: int | None = Field(description="ticks that cannot be told yet, or frames of the slowest node")
    counters: dict[ShortText, int] = Field(max_length=200)
    parts: list[_SaidPart] = Field(max_length=100)


class _SaidSynchronisation(BaseModel):
    synchronised: list[_SaidSynchronised] = Field(max_length=_MAX_ROWS)


class SynchronisedAt(_SaidSynchronised):
    """An entity by which clients or nodes are kept in step, as one server knows it."""

    server: str


class SynchronisationView(BaseModel):
    """All of them in an instance."""

    synchronised: list[SynchronisedAt] = Field(description="by entity and server; at most 200")
    more: int = Field(description="how many more there are")
    silent: list[str] = Field(description="simulation servers that did not say it")


async def surveyed_synchronisation(node: HomeserverNode) -> SynchronisationView:
    """Ask all simulation servers."""
    said = await ask_all(node, _PATH, _SaidSynchronisation)
    rows = [SynchronisedAt(server=name, **each.model_dump()) for name, one in said.items() for each in one.synchronised]
    rows.sort(key=_place)
    return SynchronisationView(
        synchronised=rows[:_MAX_ROWS],
        more=max(0, len(rows) - _MAX_ROWS),
        silent=[row.name for row in surveyed(node) if row.name not in said],
    )


def _place(row: SynchronisedAt) -> tuple[str, str, str]:
    return row.system, row.entity, row.server
