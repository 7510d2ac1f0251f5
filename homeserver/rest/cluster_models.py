"""What requests and answers about the members of an instance look like."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field

from batonpass.actors.http.app import RequestBody, Text
from batonpass.authority.node.config import ServerName
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.tree.member.replica import Replica
from batonpass.tree.member.status import MemberStatus

__all__ = [
    "AlarmView",
    "ClockView",
    "ClusterView",
    "HeldBody",
    "HeldView",
    "LeaderBody",
    "LeaderView",
    "MemberBody",
    "MemberView",
    "OfficesView",
    "RefusalView",
    "cluster_view",
]


MAX_COMPARED: Final = 4096
"""Entities of one server in one question."""


class OfficesView(BaseModel):
    """The last offices of granting leases by a member's log, and the proof that it is one."""

    offices: dict[str, str] = Field(description="by their number: the random mark, and after which revision")
    proof: str


class ClockView(BaseModel):
    """What the clock of a member's host shows, and the proof that it is one."""

    now_ms: int = Field(description="Unix time in milliseconds, also if this member counts by another")
    proof: str


class AlarmView(BaseModel):
    """That the log was found to be an older one than it was."""

    why: str = Field(description="empty if there was no alarm")
    entities: int = Field(description="how many this log knows; all of them go on under another fence")


class HeldBody(RequestBody):
    """Entities that a simulation server says to have."""

    server: ServerName
    entities: Annotated[list[Name], Field(max_length=MAX_COMPARED)]


class HeldView(BaseModel):
    """How many of them this log says to be there, to be elsewhere, and does not know."""

    here: int
    elsewhere: int
    unknown: int


class MemberView(BaseModel):
    """A member of the instance's Raft."""

    name: str
    rest_url: str = Field(description="where its REST listens; empty while it is not known here")
    raft: str = Field(description="host:port of its Raft; empty if etcd keeps the tree")
    role: Literal["voter", "learner", "client"] = Field(
        description="a learner gets a vote when it has caught up; a client of etcd has none"
    )
    replaces: str | None = Field(description="the member that goes when this one votes")
    leads: bool
    connected: bool = Field(description="to the member that was asked, which is connected to itself")
    match_index: int | None = Field(description="up to here it has the log; only the leader knows")
    lag_entries: int | None = Field(description="how much it lacks of what the leader has; only the leader knows")
    clock_ahead_s: float | None = Field(
        description="by how much the clock of its host is ahead of the time of the instance; negative: behind; null: "
        "it has not said yet what it shows"
    )


class RefusalView(BaseModel):
    """A refused introduction between this member and one that would replicate with it."""

    peer: str = Field(description="who it said it is")
    code: str
    sentence: str
    by_us: bool = Field(description="whether this member refused, or was refused")


class LatencyView(BaseModel):
    """How long commands took that were submitted to this member lately."""

    count: int = Field(description="answered since it started")
    p50_ms: float
    p99_ms: float
    max_ms: float


class ClusterView(BaseModel):
    """The state of the instance's Raft as this member sees it, and the instances that it can reach."""

    instance: str
    name: str
    leader: str | None
    ready: bool = Field(description="knows a leader and has caught up with its log")
    term: int
    commit_index: int
    applied_index: int
    configuration_index: int = Field(description="entry of the log that made the members what they are; 0: the first")
    revision: int = Field(description="of the tree, as this member has it")
    rounds: int = Field(
        description="Raft rounds since this member started: append requests it sent that carried entries"
    )
    members: list[MemberView]
    latency: LatencyView
    refusals: list[RefusalView] = Field(description="would-be members that were refused lately, and why")
    log_went_back: str = Field(
        description="why this instance grants no leases and writes nothing: its log is older than it was; empty if not"
    )
    routes: dict[str, int] = Field(description="other instances and how many hops away they are (H)")


class MemberBody(RequestBody):
    """A member to let in. Start it with `join = true`, before or after."""

    name: ServerName
    host: Annotated[Text, Field(min_length=1, max_length=255)]
    raft_port: int = Field(ge=1, le=65535)
    replaces: Text | None = Field(default=None, max_length=255, description="the member that goes when this one votes")


class LeaderBody(RequestBody):
    """Who shall lead."""

    name: Text | None = Field(default=None, max_length=255, description="a voter; null: the best prepared one")


class LeaderView(BaseModel):
    """Who leads now."""

    leader: str


def cluster_view(node: HomeserverNode) -> ClusterView:
    """What this member sees now."""
    status = node.replica.status
    configured = {member.name: member.rest_url for member in node.config.members}

    def view(member: MemberStatus) -> MemberView:
        row = node.store.row(member.name)
        return MemberView(
            name=member.name,
            rest_url=configured.get(member.name, "") if row is None else row.rest_url,
            raft=f"{member.host}:{member.port}",
            role="learner" if member.role == "learner" else "voter",
            replaces=member.replaces,
            leads=member.name == status.leader,
            connected=member.connected,
            match_index=member.match_index,
            lag_entries=member.lag_entries,
            clock_ahead_s=_clock_ahead_s(node, member.name),
        )

    latency = status.latency
    return ClusterView(
        instance=node.config.instance,
        name=node.config.name,
        leader=status.leader,
        ready=status.ready,
        term=status.term,
        commit_index=status.commit_index,
        applied_index=status.applied_index,
        configuration_index=status.configuration_index,
        revision=node.replica.store.revision,
        rounds=status.rounds,
        members=[view(member) for member in status.members] if isinstance(node.replica, Replica) else _clients(node),
        latency=LatencyView(count=latency.count, p50_ms=latency.p50_ms, p99_ms=latency.p99_ms, max_ms=latency.max_ms),
        refusals=[RefusalView.model_validate(refusal) for refusal in node.refusals()],
        log_went_back=node.leases.went_back,
        routes=node.federation.reachable_instances(),
    )


def _clock_ahead_s(node: HomeserverNode, name: str) -> float | None:
    ahead_s = node.clocks.ahead_s.get(name)
    return None if ahead_s is None else round(ahead_s, 1)


def _clients(node: HomeserverNode) -> list[MemberView]:
    """The homeservers of an instance whose tree etcd keeps: its members are etcd's business."""
    return [
        MemberView(
            name=member.name,
            rest_url=member.rest_url,
            raft="",
            role="client",
            replaces=None,
            leads=False,
            connected=member.name == node.config.name and node.replica.status.ready,
            match_index=None,
            lag_entries=None,
            clock_ahead_s=_clock_ahead_s(node, member.name),
        )
        for member in node.config.members
    ]
