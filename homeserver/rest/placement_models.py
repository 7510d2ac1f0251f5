"""Bodies and answers of /v1/servers/load, /v1/servers/balance/pause and /v1/servers/{name}/drain."""

from pydantic import BaseModel, Field

__all__ = ["DrainView", "LoadTable", "LoadView"]


class LoadView(BaseModel):
    """How much one simulation server has to do."""

    server: str
    tick_fraction: float = Field(description="part of the tick period that ticks take; above 1 ticks are skipped")
    entities: int
    leaving: int = Field(description="of these, how many are being handed over or wait for it")
    asleep: int = Field(description="of these, how many sleep: nothing changes about them, so they are not ticked")
    untaken: int = Field(
        description="of these, how many are stopped because its world does not take their kind, or the form of their "
        "state: they are passed on to a server that does"
    )
    quarantined: int = Field(
        description="of these, how many others are not simulated, because their world or their server failed on them"
    )
    schema_version: int = Field(description="of its world: the version of the form of its states")
    inputs_per_s: int
    bytes_per_s: int
    age_s: float = Field(description="how long ago it reported")
    draining: bool


class LoadTable(BaseModel):
    """The simulation servers of an instance that have reported to this member."""

    servers: list[LoadView]
    leads: bool = Field(description="whether this member leads, and so moves entities; the counts are its own")
    balancing: bool = Field(description="whether entities are moved from hot to cool servers; drains always work")
    paused_since_s: float | None = Field(
        description="Unix time since which an operator holds that still; None if no operator does"
    )
    counts: dict[str, int] = Field(
        description="moves, drain_moves, passed_on, held, immovable, over_budget, nonsense, oscillations, home_silent, "
        "policy_failed and policy_slow, since this member leads"
    )


class DrainView(BaseModel):
    """How far the drain of a simulation server is."""

    server: str
    draining: bool
    id: str | None = Field(description="which drain; None if it is not drained")
    since_s: float | None = Field(description="Unix time in seconds")
    entities: int = Field(description="of this instance, under its authority by the log")
    delegated: int = Field(
        description="held by others who may pass them to it directly; of a dead server, which home "
        "has them hand over through the log, 64 a second"
    )
    held: int | None = Field(description="what it holds by its own last report, of all instances; None if it is silent")
    leaving: int | None = Field(description="of these, how many are being handed over or wait for it")
    too_large: int | None = Field(
        description="of these, how many were found too large for a transfer lately (state_too_large): they stay"
    )
    waiting: int = Field(
        description="entities that it left when it died and no server has taken over yet: copies are looked for, or "
        "its disk or its return is waited for (GET /v1/recoveries)"
    )
    sole_replicas: int | None = Field(
        description="of how many entities elsewhere a drained server is the only backup replica, until another one has "
        "a copy; None while not all servers have said"
    )
    followed: int | None = Field(
        deprecated=True, description="the former name of sole_replicas; the next release does not have it"
    )
    targets: int = Field(description="how many other servers of this instance take entities now; 0: nothing can leave")
    full: int = Field(description="how many others would take some if they had room (`max_entities`)")
    stopped: str = Field(
        description="why nothing more is moved, because what was moved does not run where it went; empty while it is: "
        "release or move that, or end the drain and begin it again"
    )
    empty: bool = Field(
        description="It can be stopped, upgraded or removed: it is drained, and nothing is left by the log and its own "
        "report, or by the log alone if it has no lease and is silent (`held` is None). Nothing waits for it, nor is "
        "kept there alone (`sole_replicas`)."
    )
