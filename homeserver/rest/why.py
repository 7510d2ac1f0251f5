"""`GET /v1/entities/{entity_id}/why`: what keeps an entity from running, for an operator who has two minutes."""

from typing import TYPE_CHECKING

import trio
from pydantic import BaseModel, Field

from batonpass.actors.http.routes import Routes
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.wire.standing import At, StandingRow
from batonpass.homeserver.node.why import Cause, Facts, explain
from batonpass.homeserver.rest.access import check_home
from batonpass.homeserver.rest.rights import EntityId
from batonpass.tree.raft.submissions import NoQuorum

if TYPE_CHECKING:
    from batonpass.homeserver.node.dispatch import HomeserverNode

__all__ = ["why_routes"]

# A member that cannot ask a majority says what it knows itself.
MAJORITY_S = 2.0


class WhyView(BaseModel):
    """Whether an entity runs, and if not, the one cause that is to be seen to first."""

    entity: str
    runs: bool
    cause: Cause = Field(description="a stable code; docs/reference/operations.md has all of them")
    text: str = Field(description="the cause, for people")
    remedy: str = Field(description="what to do about it, for people")
    authority: str = Field(
        description="the server that has authority by the log; empty if none has, or it is not known"
    )
    epoch: int
    sub: int
    transfer_id: str = Field(description="the transfer that it is frozen for, or waits with; empty if there is none")
    phase: str = Field(description="how far that is")
    since_s: float | None = Field(description="for how long, in seconds; null if that is not known")
    told_by: str = Field(description="the homeserver that says so: another one may know more")


def why_routes(node: "HomeserverNode") -> Routes:
    """Open to all, like all that only looks."""
    routes = Routes(tags=["entities"])

    @routes.get("/v1/entities/{entity_id}/why")
    async def why(entity_id: EntityId) -> WhyView:
        """Why an entity does not run, and what to do; answered also without a majority, and for what is not known."""
        check_home(node.config.instance, entity_id)
        facts = await _facts(node, entity_id)
        found, record = explain(facts), facts.record
        return WhyView(
            entity=entity_id,
            runs=found.cause is Cause.RUNS,
            cause=found.cause,
            text=found.text,
            remedy=found.remedy,
            authority="" if record is None else record.authority,
            epoch=0 if record is None else record.epoch,
            sub=0 if record is None else record.sub,
            transfer_id=found.transfer_id,
            phase=found.phase,
            since_s=None if found.since_ms is None else found.since_ms / 1000,
            told_by=node.config.name,
        )

    return routes


async def _facts(node: "HomeserverNode", entity_id: str) -> Facts:
    no_majority = await _no_majority(node)
    record, store = node.store.entity(entity_id), node.store
    row, came_by, source_row = None, None, None
    if record is not None and record.authority:
        row = (await node.standings.ask([record])).get(entity_id)
        if row is not None and row.at is At.NOT_HERE and (came_by := node.standings.came_by(record)) is not None:
            source_row = await _row_of(node, record, came_by.source)
    waits_for: list[str] = []
    recovery = store.recovery(entity_id)
    if recovery is not None:
        waits_for = node.takeovers.waits_for(recovery)
    return Facts(
        entity=entity_id,
        record=record,
        no_majority=no_majority,
        log_went_back=node.leases.went_back,
        has_grave=store.grave(entity_id) is not None,
        is_over=record is not None and node.standings.is_over(record),
        row=row,
        came_by=came_by,
        source_row=source_row,
        recovery=recovery,
        waits_for=waits_for,
    )


async def _row_of(node: "HomeserverNode", record: EntityRecord, server: str) -> StandingRow | None:
    """What another server than its authority says of it."""
    return (await node.standings.ask([record.changed(authority=server)])).get(record.id)


async def _no_majority(node: "HomeserverNode") -> str:
    """Why this member cannot know what the log says now; empty if it can."""
    try:
        with trio.fail_after(MAJORITY_S):
            await node.store.fresh()
    except (NoQuorum, trio.TooSlowError) as error:
        reason = str(error) or f"no majority of the homeservers answered within {MAJORITY_S:g} s"
        return node.why_no_leader() if not node.replica.status.leader else reason
    return ""
