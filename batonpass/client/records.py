"""What home answers, typed: the members that docs/reference/rest.md describes, as they come in JSON."""

from typing import Any, Literal, TypedDict

__all__ = [
    "DeletedEntity",
    "EntityRights",
    "LeftEntity",
    "LockData",
    "MasterQuestion",
    "OwnedEntity",
    "RegisteredKeys",
    "RegisteredServer",
    "ReleasedEntity",
    "ReportedLoad",
    "ReportedLoads",
    "ServerLease",
    "TransferProgress",
    "WhyNotRunning",
]


class LockData(TypedDict):
    """A lock: who holds it, and how often it was taken and not given back."""

    by: str
    count: int


class EntityRights(TypedDict):
    """The record of an entity: where it is, whose it is, and what may become of it."""

    id: str
    kind: str
    owner: str
    owner_rev: int
    master: str
    master_rev: int
    rule: str
    rule_rev: int
    authority: str
    epoch: int
    sub: int
    delegation: list[str]
    previous_owner: str
    locks: dict[str, LockData]
    locks_rev: int
    standing: str
    orphans: str
    on_leave: str
    heir: str
    owner_timeout_s: int
    policies_rev: int
    release_rev: int
    suspended: bool
    stands_still: bool
    parent: str
    parent_rev: int
    children: list[str]


class TransferProgress(TypedDict):
    """A transfer: how far it is, and once it is done, its hops and timings."""

    transfer_id: str
    id: str
    entity: str
    source: str
    target: str
    phase: str
    reason: str
    waits: str
    requester: str
    want: str
    stay: bool
    owner: str
    owner_rev: int
    mode: str
    mode_taken: Literal["eager", "staged"] | None
    direct: bool
    group: str
    transport: str
    ask_expires_at_s: int
    successor: str
    epoch: int
    sub: int
    hops: int | None
    repeated: bool | None
    trace: dict[str, Any] | None
    timings_ms: dict[str, float] | None
    off_path: dict[str, int] | None
    counters: dict[str, int] | None
    result: Literal["pending", "done", "refused"]


class MasterQuestion(TypedDict):
    """What a player is asked as a master: whether an entity may be another one's."""

    transfer_id: str
    entity: str
    requester: str
    target: str
    stay: bool
    want: str
    master_rev: int
    ask_expires_at_s: int


class OwnedEntity(TypedDict):
    """An entity that a player owns."""

    entity: str
    owner_rev: int
    authority: str
    on_leave: str
    standing: str


class LeftEntity(TypedDict):
    """What became of an entity whose owner left."""

    entity: str
    on_leave: str
    owner: str
    owner_rev: int
    ended: bool


class DeletedEntity(TypedDict):
    """An entity that was deleted, and the epoch after its last one."""

    entity: str
    epoch: int


class ReleasedEntity(TypedDict):
    """An entity that was released, and the server that was told."""

    entity: str
    authority: str


class WhyNotRunning(TypedDict):
    """Whether an entity runs, and if not, the one cause that is to be seen to first."""

    entity: str
    runs: bool
    cause: str
    text: str
    remedy: str
    authority: str
    epoch: int
    sub: int
    transfer_id: str
    phase: str
    since_s: float | None
    told_by: str


class ServerLease(TypedDict):
    """The lease of a simulation server, as the log has it."""

    incarnation: int
    phase: str


class RegisteredServer(TypedDict):
    """A server: what it is, where it listens, its public keys, and its lease if it simulates."""

    name: str
    role: str
    rest_url: str
    link_host: str
    link_port: int
    keys: dict[str, Any]
    version: int
    statements: list[str]
    lease: ServerLease | None


class ReportedLoad(TypedDict):
    """How much one simulation server has to do."""

    server: str
    tick_fraction: float
    entities: int
    leaving: int
    asleep: int
    untaken: int
    quarantined: int
    schema_version: int
    inputs_per_s: int
    bytes_per_s: int
    age_s: float
    draining: bool


class ReportedLoads(TypedDict):
    """The simulation servers that have reported to the homeserver that was asked."""

    servers: list[ReportedLoad]
    leads: bool
    balancing: bool
    paused_since_s: float | None
    counts: dict[str, int]


class RegisteredKeys(TypedDict):
    """The public keys of a player."""

    name: str
    keys: list[dict[str, Any]]
    revoked: list[dict[str, Any]]
    version: int
    revision: int
