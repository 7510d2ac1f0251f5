"""The map of an instance as one member sees it: who is there, how each is, and why."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, Field

from batonpass.authority.model.records import LeaseRow, Role
from batonpass.authority.model.standing import LeasePhase
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.placement.balancer import Reported
from batonpass.tree.member.replica import Replica
from batonpass.tree.member.status import MemberStatus

__all__ = [
    "SILENT_S",
    "HealthState",
    "MapView",
    "MappedInstance",
    "MappedMember",
    "MappedServer",
    "judge_member",
    "judge_server",
    "map_of",
]

SILENT_S: Final = 1.6
"""Simulation servers report once a second; one that has been silent for this long is shown as down."""
MAX_LAG: Final = 1000
"""Entries that a member may lack of the leader's log and be well."""
_PPM: Final = 1_000_000


class HealthState(StrEnum):
    """How a server is, as this member can tell."""

    OK = "ok"
    WARNING = "warning"
    DOWN = "down"
    UNKNOWN = "unknown"


Judgement = tuple[HealthState, str]
"""A state, and the reason for people; empty if all is well."""


class _Judged(BaseModel):
    name: str
    health: HealthState
    why: str = Field(description="the reason, for people; empty if it is well")


class MappedMember(_Judged):
    """A homeserver of this instance."""

    leads: bool
    rest_url: str = Field(description="where its REST listens; empty while it is not known here")


class MappedServer(_Judged):
    """A simulation server of this instance; what it has to do is what it reported last."""

    rest_url: str
    lease: LeasePhase | None = Field(description="by the log; null if it has never had one")
    incarnation: int
    draining: bool
    entities: int
    leaving: int
    asleep: int
    not_running: int = Field(description="of its entities those that are quarantined or not taken by its world")
    tick_fraction: float = Field(description="the part of the tick period that ticks take")
    inputs_per_s: int
    bytes_per_s: int


class MappedInstance(BaseModel):
    """Another instance."""

    name: str
    hops: int = Field(description="how far it is (H)")


class MapView(BaseModel):
    """An instance as one of its homeservers sees it."""

    instance: str
    told_by: str = Field(description="the homeserver that says so: another one may see more")
    health: HealthState
    why: str
    leader: str | None
    term: int
    entities: int
    log_went_back: str = Field(description="why the log is known to be older than it was; empty if it is not")
    recovering: int = Field(description="entities of dead servers that no server has taken over yet")
    members: list[MappedMember]
    servers: list[MappedServer]
    others: list[MappedInstance]


def judge_member(member: MemberStatus, told_by: str) -> Judgement:
    """How another member is, by what the one that is asked knows of it."""
    if not member.connected:
        return HealthState.DOWN, f"{told_by} has no connection to it: it is dead or cut off"
    if member.role == "learner":
        return HealthState.WARNING, "it has no vote yet"
    if (member.lag_entries or 0) > MAX_LAG:
        return HealthState.WARNING, f"it lacks more than {MAX_LAG:,} entries of the leader's log"
    return HealthState.OK, ""


def judge_server(report: Reported | None, lease: LeaseRow | None, told_by: str, *, draining: bool) -> Judgement:
    """How a simulation server is, by its lease and its last report."""
    if lease is not None and lease.phase is LeasePhase.OVER:
        return HealthState.DOWN, "its lease is over: others are given its entities"
    if report is None:
        return HealthState.UNKNOWN, f"it has not reported to {told_by} yet"
    if report.age_s > SILENT_S:
        return HealthState.DOWN, f"it has not reported for over {SILENT_S:g} s: it is dead, cut off or overloaded"
    load, reasons = report.load, []
    if lease is None:
        reasons.append("it has no lease yet")
    elif lease.phase is LeasePhase.RETURNING:
        reasons.append("it has come back and is given nothing yet")
    if load.quarantined:
        reasons.append(f"{load.quarantined:,} of its entities are quarantined")
    if load.untaken:
        reasons.append(f"its world does not take {load.untaken:,} of its entities")
    if draining:
        reasons.append("it is drained")
    if load.is_full:
        reasons.append("it takes no entity more")
    if load.tick_ppm > _PPM:
        reasons.append("its ticks take longer than their period")
    return (HealthState.WARNING, "; ".join(reasons)) if reasons else (HealthState.OK, "")


def _server(node: HomeserverNode, name: str, *, draining: bool) -> MappedServer:
    row, lease, report = node.store.row(name), node.store.lease(name), node.balancer.report(name)
    health, why = judge_server(report, lease, node.config.name, draining=draining)
    load = None if report is None else report.load
    return MappedServer(
        name=name,
        health=health,
        why=why,
        rest_url="" if row is None else row.rest_url,
        lease=None if lease is None else lease.phase,
        incarnation=0 if lease is None else lease.incarnation,
        draining=draining,
        entities=0 if load is None else load.entities,
        leaving=0 if load is None else load.leaving,
        asleep=0 if load is None else load.asleep,
        not_running=0 if load is None else load.quarantined + load.untaken,
        tick_fraction=0.0 if load is None else round(load.tick_ppm / _PPM, 2),
        inputs_per_s=0 if load is None else load.inputs_per_s,
        bytes_per_s=0 if load is None else load.bytes_per_s,
    )


def _members(node: HomeserverNode) -> list[MappedMember]:
    urls = {row.name: row.rest_url for row in node.store.servers(Role.HOMESERVER)}
    own, leader = node.config.name, node.replica.status.leader
    judged: dict[str, Judgement] = {}
    if isinstance(node.replica, Replica):
        judged = {member.name: judge_member(member, own) for member in node.replica.status.members}
    else:
        # etcd keeps the rows of this instance, and has members of its own.
        silent = HealthState.UNKNOWN, f"etcd keeps the log: {own} knows nothing of it"
        judged = {name: (HealthState.OK, "") if name == own else silent for name in urls}
    return [
        MappedMember(name=name, health=health, why=why, leads=name == leader, rest_url=urls.get(name, ""))
        for name, (health, why) in sorted(judged.items())
    ]


def _judge_instance(node: HomeserverNode, parts: Sequence[_Judged], recovering: int) -> Judgement:
    status = node.replica.status
    if node.leases.went_back:
        return HealthState.DOWN, node.leases.went_back
    if status.cannot_write:
        return HealthState.DOWN, f"nothing can be written: {status.cannot_write}"
    if not status.leader:
        return HealthState.DOWN, node.why_no_leader()
    down = [one.name for one in parts if one.health is HealthState.DOWN]
    reasons = [f"down: {', '.join(down)}"] if down else []
    if recovering:
        reasons.append(f"{recovering:,} entities of dead servers wait for another one")
    if node.clock.why:
        reasons.append(node.clock.why)
    return (HealthState.WARNING, "; ".join(reasons)) if reasons else (HealthState.OK, "")


def map_of(node: HomeserverNode) -> MapView:
    """What this member sees now. It takes longer with more servers, and not with more entities."""
    draining = {drain.server for drain in node.store.drains()}
    servers = [_server(node, name, draining=name in draining) for name in node.store.simserver_names()]
    members = _members(node)
    view = node.store.tree.view(("recoveries",))
    recovering = 0 if view is None else view.child_count
    view = node.store.tree.view(("entities",))
    health, why = _judge_instance(node, [*members, *servers], recovering)
    reachable = node.federation.reachable_instances()
    return MapView(
        instance=node.config.instance,
        told_by=node.config.name,
        health=health,
        why=why,
        leader=node.replica.status.leader,
        term=node.replica.status.term,
        entities=0 if view is None else view.child_count,
        log_went_back=node.leases.went_back,
        recovering=recovering,
        members=members,
        servers=servers,
        others=[MappedInstance(name=name, hops=hops) for name, hops in sorted(reachable.items())],
    )
