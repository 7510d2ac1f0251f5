"""A simulation server's local HTTP face: health, what it holds, its custody log, its actors. For people and tools.

All of it only reads, except that an operator may hold actors still and end them (`actors.observe.observation`),
release quarantined entities, and hold nodes of shows (`show_routes`).
"""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from pydantic import BaseModel, Field

from batonpass.actors import CallTimeout, Exit
from batonpass.actors.http.app import ERROR_RESPONSES, ApiError, RequestBody, document_once, prepare_app
from batonpass.actors.http.callers import check_callers
from batonpass.actors.http.key_routes import key_routes
from batonpass.actors.http.metrics_route import metrics_routes
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.actors.http.tokens import TokenGate
from batonpass.actors.net.key_service import KeyService
from batonpass.actors.observe.observation import actor_routes
from batonpass.actors.observe.supervision import supervision_routes
from batonpass.authority.model.records import Role
from batonpass.authority.node.metrics import Metrics
from batonpass.authority.trust.certificates import Name
from batonpass.simserver.server.callers import SIMSERVER_CALLERS
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.server.door_routes import door_routes
from batonpass.simserver.server.ghost_routes import ghost_routes
from batonpass.simserver.server.position_routes import position_routes
from batonpass.simserver.server.scene_routes import scene_routes
from batonpass.simserver.server.show_routes import show_routes
from batonpass.simserver.server.sync_routes import sync_routes

__all__ = ["make_status_app"]


class SimserverHealth(BaseModel):
    """Whether this server is ready for work."""

    status: str = Field(description="`ok`; or `clock_off`: it works, and its clock is to be looked at")
    name: str
    role: str
    clock: str = Field(default="", description="what is wrong with the clock of its host; empty if nothing is")


class SimserverStats(BaseModel):
    """Counters since the start."""

    name: str
    entities: int
    leaving: int
    asleep: int = Field(description="how many of the entities sleep, so that they are not ticked")
    passivated: int = Field(description="how many of the entities have slept so long that their memory was given back")
    passive: int = Field(
        deprecated=True, description="the former name of passivated; the next release does not have it"
    )
    without_copy: int = Field(
        description="how many of the entities would wait for this server if it died now: no backup replica has a "
        "copy of them since they came here, or the home instance has not heard yet that there are copies"
    )
    ticks: int
    unwritten: int = Field(description="how many notes of its ledger wait for the disk")
    counts: dict[str, int] = Field(description="what was dropped, refused, repeated, and why")
    link: dict[str, int] = Field(description="the link's own counters")
    lease: dict[str, Any] = Field(description="incarnation, phase, and how long it lasts if it is not renewed")


class Quarantined(BaseModel):
    """An entity that is quarantined: the world fails on it, or servers died of it."""

    entity: str
    kind: str
    epoch: int
    sub: int
    tick: int = Field(description="the last one that was completed")
    pending_inputs: int = Field(description="how many wait for the next tick, which they may have made fail")
    error: str = Field(description="what went wrong, or why it is not tried any more")


class SimserverReleaseBody(RequestBody):
    """Simulate it again."""

    discard_inputs: bool = Field(
        default=False, description="the inputs that wait count as applied, and are not: they may be what is wrong"
    )


def _quarantine_routes(node: SimserverNode, tokens: TokenGate) -> Routes:
    routes = Routes(tags=["quarantine"])

    @routes.get("/v1/local/quarantine")
    async def quarantine() -> list[Quarantined]:
        """The quarantined entities, and why; their states are at /v1/local/entities/{entity_id}?state=true."""
        found = []
        for holding in node.holdings:
            if (life := holding.life).quarantine_reason:
                row = Quarantined(
                    entity=life.id,
                    kind=life.kind,
                    epoch=life.fence.epoch,
                    sub=life.fence.sub,
                    tick=life.tick,
                    pending_inputs=len(life.inbox.pending),
                    error=life.quarantine_reason,
                )
                found.append(row)
        return sorted(found, key=lambda row: row.entity)

    @routes.post("/v1/local/entities/{entity_id}/release", dependencies=[Depends(operator_access(tokens))])
    async def release(entity_id: Name, body: SimserverReleaseBody) -> dict[str, bool]:
        """An operator has looked at it: simulate it again. If the world fails again, it is quarantined again.

        One that sleeps is woken by this for a tick.
        """
        if not node.release(entity_id, discard_inputs=body.discard_inputs):
            raise ApiError(404, "not_here", f"{entity_id} is not quarantined on {node.config.name}", entity_id)
        return {"released": True}

    return routes


def _why_not_ready(node: SimserverNode) -> tuple[str, str]:
    """What keeps it from simulating, as a stable code and a sentence; empty if nothing does."""
    home, lease, why = f"its home instance {node.config.instance}", node.lease, ""
    if not node.registered:
        why = f"not registered with {home} yet"
    elif lease.log_went_back:
        return "log_went_back", lease.log_went_back
    elif lease.other_release:
        return "other_release", lease.other_release
    elif not lease.is_alive:
        why = f"{home} gives it no entities yet"
    elif not lease.may_act(node.clock.monotonic_ns()):
        # A server that was removed, and was not stopped, gets here too.
        why = f"its lease has run out, so it simulates nothing; it was not renewed: {lease.why_not}"
    return "not_ready" if why else "", why


def make_status_app(
    node: SimserverNode, keys: KeyService, tokens: TokenGate, metrics: Metrics | None = None
) -> FastAPI:
    """The status API of one simulation server; without `metrics`, its route says how to have them."""
    app = FastAPI(
        title="batonpass simulation server", version="1", docs_url=None, redoc_url=None, responses=ERROR_RESPONSES
    )
    prepare_app(app)

    @app.get("/healthz")
    async def healthz() -> SimserverHealth:
        """Ready when it is registered with its home instance, has its lease, and can be given entities by it."""
        code, reason = _why_not_ready(node)
        off = node.clock.why
        if code:
            raise ApiError(503, code, f"{reason}; {off}" if off else reason)
        return SimserverHealth(
            status="clock_off" if off else "ok", name=node.config.name, role=Role.SIMSERVER, clock=off
        )

    @app.get("/v1/local/stats")
    async def stats() -> SimserverStats:
        """Counters."""
        return SimserverStats(
            name=node.config.name,
            entities=len(node.holdings),
            leaving=len(node.departures),
            asleep=node.holdings.asleep,
            passivated=node.holdings.passive,
            passive=node.holdings.passive,
            without_copy=node.replication.waiting(),
            ticks=node.ticks,
            unwritten=node.ledger.unwritten,
            counts=dict(node.counts),
            link=dict(node.link.stats),
            lease=node.lease.to_data(),
        )

    @app.get("/v1/local/entities")
    async def entities() -> list[str]:
        """The entities that live here, running or frozen."""
        return sorted(holding.id for holding in node.holdings)

    @app.get("/v1/local/entities/{entity_id}")
    async def entity(
        entity_id: Name, state: Annotated[bool, Query(description="add the world's state, CBOR in hex")] = False
    ) -> dict[str, Any]:
        """One entity: fence, tick, and how far each source's inputs have been applied."""
        not_here = ApiError(404, "not_here", f"{entity_id} does not live on {node.config.name}", entity_id)
        holding = node.holdings.get(entity_id)
        if holding is None:
            raise not_here
        try:
            return await holding.inspect(with_state=state)
        except CallTimeout as error:
            text = f"{entity_id} lives here and does not answer; see the log of {node.config.name}"
            raise ApiError(504, "entity_busy", text, entity_id) from error
        except Exit as error:
            # It retired between the look-up and the question.
            raise not_here from error

    door_routes(node).add_to(app)
    _quarantine_routes(node, tokens).add_to(app)
    show_routes(node, tokens).add_to(app)
    scene_routes(node).add_to(app)
    ghost_routes(node).add_to(app)
    position_routes(node).add_to(app)
    sync_routes(node).add_to(app)

    @app.get("/v1/local/interrupted")
    async def interrupted() -> list[dict[str, Any]]:
        """The entities that lived here when this server last stopped without handing them over.

        Rows {entity, kind, epoch, sub} of the server's own tree. They are not simulated until handed over again.
        """
        return [asdict(row) for row in node.ledger.interrupted if node.holdings.get(row.entity) is None]

    @app.get("/v1/local/custody")
    async def custody(after: Annotated[int, Query(ge=0)] = 0) -> dict[str, Any]:
        """The custody log from stint number `after` on."""
        return {
            "server": node.config.name,
            "period_ns": round(1e9 / node.config.tick_hz),
            "stints": node.custody.to_data(after),
        }

    key_routes(keys, node.home.pins, tokens).add_to(app)
    actor_routes(lambda: node.system, tokens).add_to(app)
    supervision_routes(lambda: node.system).add_to(app)
    metrics_routes(metrics).add_to(app)
    check_callers(app, SIMSERVER_CALLERS)
    document_once(app)
    return app
