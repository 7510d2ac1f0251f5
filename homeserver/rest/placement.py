"""Routes for operators: the load of simulation servers, holding the balancer still, drains, and taking servers out.

A drain continues by itself, on whichever homeserver leads. It is not waited for, and an operator who waited and is gone
has left nothing half done.
"""

import secrets

from fastapi import Depends

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import RecoveryRow, Role
from batonpass.authority.model.standing import LeasePhase, Standing
from batonpass.authority.trust.certificates import Name
from batonpass.authority.wire.placement import Load
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.placement.balancer import FRESH_S
from batonpass.homeserver.rest.access import check_home
from batonpass.homeserver.rest.models import ServerView
from batonpass.homeserver.rest.placement_models import DrainView, LoadTable, LoadView
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["placement_routes", "see_the_change"]


def placement_routes(node: HomeserverNode) -> Routes:
    """Looking is open; changing takes the operator token."""
    routes = Routes(prefix="/v1/servers", tags=["placement"])
    operator = Depends(operator_access(node.tokens))

    @routes.get("/load")
    async def load() -> LoadTable:
        """How much every simulation server of this instance has to do, as it reported to this member."""
        return _load_table(node)

    @routes.post("/balance/pause", dependencies=[operator])
    async def pause() -> LoadTable:
        """Move nothing from hot to cool servers from now on, whichever member leads; drains run on. May be repeated."""
        await node.store.submit("placement.pause", now_s=node.clock.unix_s())
        await see_the_change(node)
        return _load_table(node)

    @routes.delete("/balance/pause", dependencies=[operator])
    async def resume() -> LoadTable:
        """Balance again, if the configuration says so. May be repeated."""
        await node.store.submit("placement.resume")
        await see_the_change(node)
        return _load_table(node)

    @routes.post("/{name}/drain", status_code=202, dependencies=[operator])
    async def drain(name: Name) -> DrainView:
        """Move everything away from a server, and nothing to it, from now on. May be repeated."""
        check_home(node.config.instance, name)
        await node.store.submit("server.drain", server=name, drain_id=secrets.token_hex(12), now_s=node.clock.unix_s())
        await see_the_change(node)
        return _drain_view(node, name)

    @routes.get("/{name}/drain")
    async def drained(name: Name) -> DrainView:
        """How far the drain of a server is, and whether there is one."""
        check_home(node.config.instance, name)
        await node.store.fresh()
        return _drain_view(node, name)

    @routes.delete("/{name}/drain", dependencies=[operator])
    async def open_again(name: Name) -> DrainView:
        """End a drain: the server takes entities again. What has left does not come back by itself."""
        check_home(node.config.instance, name)
        await node.store.submit("server.open", server=name)
        await see_the_change(node)
        return _drain_view(node, name)

    @routes.delete("/{name}", dependencies=[operator])
    async def remove(name: Name) -> ServerView:
        """Take a server that is drained and empty out of the directory; then it is not known any more."""
        check_home(node.config.instance, name)
        return await _remove(node, name)

    return routes


def _load_table(node: HomeserverNode) -> LoadTable:
    draining = {drain.server for drain in node.store.drains()}
    views = []
    for name in node.store.simserver_names():
        report = node.balancer.report(name)
        if report is not None:
            load = report.load
            views.append(
                LoadView(
                    server=name,
                    tick_fraction=load.tick_ppm / 1_000_000,
                    entities=load.entities,
                    leaving=load.leaving,
                    asleep=load.asleep,
                    untaken=load.untaken,
                    quarantined=load.quarantined,
                    schema_version=load.schema_version,
                    inputs_per_s=load.inputs_per_s,
                    bytes_per_s=load.bytes_per_s,
                    age_s=round(report.age_s, 3),
                    draining=name in draining,
                )
            )
    counts = dict(node.balancer.placement_limits.counts)
    return LoadTable(
        servers=views,
        leads=node.leads,
        balancing=node.balancer.balancing,
        paused_since_s=node.store.balance_paused_since_s(),
        counts=counts,
    )


async def see_the_change(node: HomeserverNode) -> None:
    """Have local reads see what was just put into the log.

    Raises:
        OutcomeUnknown: no majority can be asked any more. `NoQuorum` would say that nothing was changed.
    """
    try:
        await node.store.fresh()
    except NoQuorum as error:
        raise OutcomeUnknown(str(error), None) from error


def _drain_view(node: HomeserverNode, name: str) -> DrainView:
    row = node.store.row(name)
    if row is None or row.role is not Role.SIMSERVER:
        raise ApiError(404, Reason.NOT_FOUND, f"no simulation server {name} is registered", name)
    record = node.store.drain(name)
    entities, delegated = node.store.named_by(name)
    load = _fresh_load(node, name)
    waiting = sum(_waits_for(node, name, row) for row in node.store.takeovers())
    sole_replicas = 0 if _has_no_lease(node, name) else _sole_replicas(node)
    others = [other.name for other in node.balancer.loads() if other.name != name and not other.draining]
    full = sum((other := _fresh_load(node, one)) is not None and other.is_full for one in others)
    return DrainView(
        server=name,
        draining=record is not None,
        id=None if record is None else record.id,
        since_s=None if record is None else record.since_s,
        entities=entities,
        delegated=delegated,
        held=None if load is None else load.entities,
        leaving=None if load is None else load.leaving,
        too_large=None if load is None else load.too_large,
        waiting=waiting,
        sole_replicas=sole_replicas,
        followed=sole_replicas,
        targets=len(others) - full,
        full=full,
        stopped="" if record is None else node.balancer.why_stopped(record),
        empty=record is not None
        and not (entities or delegated or waiting or _why_missed(node, name, load, sole_replicas)),
    )


def _fresh_load(node: HomeserverNode, name: str) -> Load | None:
    """What a server has reported lately, or None."""
    report = node.balancer.report(name)
    return None if report is None or report.age_s > FRESH_S else report.load


def _why_missed(node: HomeserverNode, name: str, load: Load | None, sole_replicas: int | None) -> str:
    """Why a server that nothing in the log names would be missed all the same; empty if it would not be.

    One that is gone cannot say that it is empty; the log can.
    """
    if load is None:
        return "" if _has_no_lease(node, name) else "it has a lease, and does not report"
    if load.entities:
        return f"{load.entities} entities are on it"
    if sole_replicas is None:
        return "it is not known yet whether others keep the copies that it keeps"
    return f"it is the only backup replica of {sole_replicas} entities of others" if sole_replicas else ""


def _sole_replicas(node: HomeserverNode) -> int | None:
    """How many entities have their copies with servers that are drained, though others may have them; None if unknown.

    Every server says so a second or two after it has heard who is drained, and has sent copies to others.
    """
    alive, told = node.leases.believed_by_all()
    loads = [load for server in alive if (load := _fresh_load(node, server)) is not None]
    is_known = len(loads) == len(alive) and all(load.knows == told for load in loads)
    return sum(load.leaning for load in loads) if is_known else None


def _waits_for(node: HomeserverNode, name: str, row: RecoveryRow) -> bool:
    """Whether what a server left waits for it, or for copies: not what is lost, if it is there and was asked."""
    if row.last != name or row.target:
        return False
    lease, entity = node.store.lease(name), node.store.entity(row.entity)
    is_there = lease is not None and lease.phase is LeasePhase.ALIVE
    return not (is_there and entity is not None and entity.standing is Standing.LOST)


def _has_no_lease(node: HomeserverNode, name: str) -> bool:
    """Whether a server may simulate nothing now, so that the log alone says what it has; such as one that is dead."""
    lease = node.store.lease(name)
    return lease is None or lease.phase is LeasePhase.OVER


async def _remove(node: HomeserverNode, name: str) -> ServerView:
    await node.store.fresh()
    view = _drain_view(node, name)
    row = node.store.row(name)
    load = _fresh_load(node, name)
    # What waits for it is no reason: that it is removed is what ends the waiting.
    named = view.entities + view.delegated
    why = f"{named} entities are left" if named else _why_missed(node, name, load, view.sole_replicas)
    if row is None or view.id is None or why:
        how = f"drained, but {why}" if view.draining else "not drained"
        text = f"{name} is {how}: drain it, and remove it when it is empty"
        raise ApiError(409, Reason.NOT_DRAINED, text, name)
    await node.store.submit("server.remove", server=name, drain_id=view.id)
    return ServerView.of(row)
