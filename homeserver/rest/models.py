"""What requests and answers of the REST API look like."""

import json
from collections import Counter
from typing import Annotated, Any, Final, Literal, Self

from fastapi import Header
from pydantic import AfterValidator, BaseModel, Field, Strict, model_validator

from batonpass.actors.http.app import BodyBound, RequestBody, Text
from batonpass.authority.limits import MAX_BODY_BYTES
from batonpass.authority.model.leave_policy import MAX_OWNER_TIMEOUT_S, LeavePolicy
from batonpass.authority.model.records import (
    DirectoryRow,
    EntityRecord,
    LeaseRow,
    Phase,
    Role,
    Rule,
    TransferRecord,
    Want,
)
from batonpass.authority.model.standing import LeasePhase, OrphanPolicy
from batonpass.authority.node.config import InstanceName
from batonpass.authority.procedures.master_question import ASK_LIFETIME_S
from batonpass.authority.trust.certificates import Name, OwnerName, TransferId
from batonpass.authority.wire.envelope import WAIT_HEADER
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.phase_timings import PHASES, timings_ms
from batonpass.authority.wire.transfer import MAX_NOTICE_MS
from batonpass.crypto.continuity import MAX_REASON_CHARS, MAX_STATEMENT_CHARS, MAX_STATEMENTS, MAX_VERSION
from batonpass.crypto.public_keys import MAX_REVOKED
from batonpass.homeserver.node.standings import SeenAs, seen_by_log
from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import BadData

__all__ = [
    "POLICIES",
    "SEALED",
    "AnswerBody",
    "AskView",
    "DelegationBody",
    "DirectoryQuery",
    "EntityView",
    "FederationBody",
    "Health",
    "KeysBody",
    "KeysView",
    "NewEntity",
    "NewTransfer",
    "Nonce",
    "ParcelBody",
    "ParcelView",
    "RegisterBody",
    "ResetBody",
    "RightsBody",
    "RowsView",
    "ServerView",
    "TransferView",
    "WaitMs",
    "result_of",
]

# base64url twice makes a sealed body 16/9 of its payload. The longest trace has not even half as many values, and this
# is read of any caller.
SEALED: Final = BodyBound(2 * MAX_BODY_BYTES, max_values=2_000)
# A server that asks for directory rows chooses it anew each time; the proof that comes with the rows is about it.
Nonce = Annotated[str, Field(min_length=16, max_length=64)]
Kind = Annotated[Text, Field(min_length=1, max_length=64)]
MAX_WAIT_MS: Final = 600_000
WaitMs = Annotated[
    int | None,
    Header(
        alias=WAIT_HEADER,
        ge=0,
        le=MAX_WAIT_MS,
        description="for how many milliseconds the sender waits for the answer: later than that nothing is begun",
    ),
]
Proof = Annotated[
    str, Field(max_length=8192, description="compact JWS (ES256) of a statement, signed with a player's key")
]


def _each_once(names: list[str]) -> list[str]:
    """A validator of lists; raises `ValueError` if one is in it twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]} is named more than once")
    return names


NamesOnce = Annotated[list[Name], AfterValidator(_each_once), Field(json_schema_extra={"uniqueItems": True})]


def _plain(params: dict[str, Any]) -> dict[str, Any]:
    """JSON can spell what does not travel: half a surrogate pair, whole numbers of any size, any depth."""
    try:
        encode(params)
    except BadData as error:
        raise ValueError(error.message) from error
    return params


# What JSON can only write as something else: enumerations as text, tuples as lists.
_WRITTEN: Final = Strict(False)
AnyRule = Annotated[Rule, _WRITTEN]
AnyOrphanPolicy = Annotated[OrphanPolicy, _WRITTEN]
AnyLeavePolicy = Annotated[LeavePolicy, _WRITTEN]
AnyWant = Annotated[Want, _WRITTEN]

KeysVersion = Annotated[int, Field(ge=1, le=MAX_VERSION)]
Statements = Annotated[
    tuple[Annotated[str, Field(max_length=MAX_STATEMENT_CHARS)], ...], Field(max_length=MAX_STATEMENTS), _WRITTEN
]


# What may be said of an entity at its creation, and by its master later.
POLICIES: Final = {"orphans", "on_leave", "heir", "owner_timeout_s"}


class Health(BaseModel):
    """Whether a server is ready for work."""

    status: Literal["ok", "clock_off"] = Field(description="it works in any case; `clock_off`: look at its clock")
    name: str
    role: str
    clock: str = Field(default="", description="what is wrong with the clock of its host; empty if nothing is")


class LeaseView(BaseModel):
    """The lease of a simulation server, as the log has it."""

    incarnation: int = Field(description="which one of this server's lives has it")
    phase: LeasePhase = Field(
        description="alive; returning: it has come back and is given nothing yet; over: others are given what it had"
    )


class ServerView(BaseModel):
    """A server: what it is, where it listens, its public keys, and its lease if it is one that simulates."""

    name: str
    role: Role
    rest_url: str
    link_host: str
    link_port: int
    keys: dict[str, Any] = Field(description="JWK set (RFC 7517): current, retiring (`exp`) and `revoked` keys")
    version: int = Field(description="of its keys, from 1")
    statements: list[str] = Field(description="signed statements that lead to this version of the keys, oldest first")

    lease: LeaseView | None = None

    @classmethod
    def of(cls, row: DirectoryRow, lease: LeaseRow | None = None) -> "ServerView":
        """From its directory row and its lease."""
        shown = None if lease is None else LeaseView(**lease.model_dump(include=set(LeaseView.model_fields)))
        return cls(**row.model_dump(include=set(cls.model_fields)), lease=shown)


class LockView(BaseModel):
    """A lock: who holds it, and how often it was taken and not given back."""

    by: str
    count: int


class EntityView(BaseModel):
    """The three rights over an entity, their revisions, and the epoch that fences its authority."""

    id: str
    kind: str
    owner: str
    owner_rev: int
    master: str
    master_rev: int
    rule: Rule
    rule_rev: int
    authority: str
    epoch: int
    sub: int
    delegation: list[str]
    previous_owner: str = Field(description="who would own it again if its owner handed it back; empty: its master")
    locks: dict[str, LockView] = Field(description="what keeps others from becoming owner")
    locks_rev: int
    standing: SeenAs = Field(
        description="simulated; recovering: its authority died; lost: no copy is known; frozen: being handed over; "
        "quarantined: its world failed on it, or does not take it; suspended: its owner left, under the policy freeze; "
        "unleased: the lease of its server ran out; unreachable: its server does not answer this homeserver. "
        "GET /v1/entities/{entity_id}/why says more"
    )
    orphans: OrphanPolicy = Field(description="what becomes of it when its authority dies")
    on_leave: LeavePolicy = Field(description="what becomes of it when its owner leaves, or is silent for too long")
    heir: str = Field(description="who owns it then, if that is adopt; empty: its master")
    owner_timeout_s: int = Field(description="how long its owner may be silent; 0: as long as it likes")
    policies_rev: int = Field(description="of orphans, on_leave, heir and owner_timeout_s together")
    release_rev: int = Field(description="how often its master has released it, from 1")
    suspended: bool = Field(
        description="its owner left, under the policy freeze; until it has another, or its master releases it"
    )
    stands_still: bool = Field(
        deprecated=True, description="the former name of suspended; the next release does not have it"
    )
    parent: str = Field(description="what it moves with; empty for nothing")
    parent_rev: int
    children: list[str] = Field(description="what moves with it")

    @classmethod
    def of(cls, record: EntityRecord, standing: SeenAs | None = None) -> "EntityView":
        """From the record in the log; `standing` if more is known."""
        seen = standing or seen_by_log(record, is_over=False)
        return cls(**record.model_dump() | {"standing": seen, "suspended": record.stands_still})


class RecoveriesView(BaseModel):
    """What dead simulation servers left: what is not taken over yet, and what was, newest first."""

    waiting: list[dict[str, Any]] = Field(
        description="{entity, standing, last, epoch, held, disk, abroad, abroad_too, came_epoch, target, tick, "
        "state_hash, source, contested, had, stay_epoch, stay_sub, waits_for}. Without a target copies are looked for, "
        "also in the instances `abroad`; if `standing` is lost, there is none. With `disk` or `held` the server `last` "
        "is waited for. `contested`: no server can prove that it has it. `had`: servers that could still begin with it "
        "and are not to any more. `stay_*`: the fence of its last custody term. `waits_for`: servers that may have "
        "copies of it, while all that were found are of earlier terms (known to the member that grants leases)."
    )
    recent: list[dict[str, Any]] = Field(
        description="{entity, last, target, epoch, tick, source, at_s}, of the member that grants leases"
    )
    counts: dict[str, int] = Field(description="since this member started: taken, recovered, lost, from which source")
    log_went_back: str = Field(
        description="why nothing is recovered and no lease granted: the log is older than it was; empty if it is not"
    )
    foreign_custody: list[dict[str, Any]] = Field(
        description="{instance, entities by server, reason, silent_since_s} of other instances that have entities of "
        "this one, of the member that grants leases; with a reason no server takes over from there"
    )
    abroad: list[dict[str, Any]] = Field(
        deprecated=True, description="the former name of foreign_custody; the next release does not have it"
    )


class NewEntity(RequestBody):
    """Create an entity; its spawner becomes master and owner."""

    id: Name = Field(description="its instance must be this one, for example alpha.ball-1")
    kind: Kind = Field(description="what the world knows how to spawn, for example ball")
    spawner: Name = Field(description="the player who spawns it")
    server: Name = Field(description="the simulation server that simulates it first")
    rule: AnyRule = Rule.ASK
    orphans: AnyOrphanPolicy = OrphanPolicy.ADOPT
    on_leave: AnyLeavePolicy = LeavePolicy.KEEP
    heir: OwnerName = ""
    owner_timeout_s: int = Field(default=0, ge=0, le=MAX_OWNER_TIMEOUT_S)
    params: Annotated[dict[str, Any], AfterValidator(_plain)] = Field(
        default_factory=dict, description="handed to the world's spawn"
    )


class RightsBody(RequestBody):
    """Change rule, owner or master. Only the master may."""

    by: Name = Field(description="who asks: the master")
    proof: Proof = Field(
        description=(
            "statement {action: rights, entity, rule, owner, master, rule_rev, owner_rev, master_rev, expires_at_s}"
            " of the master, with the revisions as they are before the change; where it names policies (orphans,"
            " on_leave, heir, owner_timeout_s), also policies_rev"
        )
    )
    rule: AnyRule | None = None
    owner: Name | None = None
    master: Name | None = None
    orphans: AnyOrphanPolicy | None = Field(
        default=None, description="what becomes of it when its authority dies; if given, the statement names it too"
    )
    on_leave: AnyLeavePolicy | None = Field(
        default=None, description="what becomes of it when its owner leaves; if given, the statement names it too"
    )
    heir: OwnerName | None = Field(
        default=None, description="who owns it then; empty for its master; if given, the statement names it too"
    )
    owner_timeout_s: int | None = Field(
        default=None,
        ge=0,
        le=MAX_OWNER_TIMEOUT_S,
        description="how long its owner may be silent before it counts as gone, at least some 10 s; 0 for ever; if"
        " given, the statement names it too",
    )


class DelegationBody(RequestBody):
    """Let a group of simulation servers pass the entity among themselves (case 3)."""

    group: NamesOnce = Field(min_length=2, max_length=16)


class NewTransfer(RequestBody):
    """Move an entity to another simulation server."""

    to: Name = Field(description="the simulation server that shall have authority")
    requester: Name | None = Field(
        default=None, description="the player who wants it; without one it is a move for the system's own reasons"
    )
    proof: Proof | None = Field(
        default=None, description="statement {action: transfer, entity, to, transfer_id, expires_at_s} of the requester"
    )
    transfer_id: TransferId | None = Field(
        default=None, description="choose it to be able to repeat the request; with a requester it is required"
    )
    want: AnyWant = Field(
        default=Want.BY_RULE, description="if it is not by_rule, the statement names it too: {…, want}"
    )
    ask_timeout_s: int = Field(
        default=ASK_LIFETIME_S, ge=1, le=ASK_LIFETIME_S, description="how long the master may take, if it is asked"
    )
    mode: Literal["eager", "staged"] = "eager"
    notice_ms: int = Field(
        default=0, ge=0, le=MAX_NOTICE_MS, description="how long world and owner may go on before it is frozen"
    )
    freeze_budget_ms: int = Field(
        default=0,
        ge=0,
        le=MAX_NOTICE_MS,
        description="Give up, and resume it, if it is frozen for longer before the commit (not once a direct pass has"
        " been sent). A state that is too large to arrive within it goes in staged mode, or is refused. 0: as long as"
        " it takes. In staged mode it has two seconds then, more for large states, to be on the target's disk.",
    )
    path: Literal["home", "direct"] = Field(
        default="home",
        description="through the home instance (cases 1, 2), or, if the entity is delegated to both ends, server to"
        " server (case 3)",
    )
    transport: Literal["rest", "link"] = Field(
        default="rest", description="how the simulation server talks to its home: REST + JSON, or the sealed link"
    )

    @model_validator(mode="after")
    def _nothing_of_a_requester_without_one(self) -> Self:
        if self.requester is None:
            given = [name for name in ("proof", "want", "ask_timeout_s") if name in self.model_fields_set]
            # What is as it would be anyway does no harm: some programs write out everything.
            given = [name for name in given if getattr(self, name) != type(self).model_fields[name].default]
            if given:
                text = "is" if len(given) == 1 else "are"
                raise ValueError(
                    f"{' and '.join(given)} {text} of a request in a player's name, and no requester is given"
                )
        return self


class AnswerBody(RequestBody):
    """The master's answer to a request under the rule `ask`."""

    by: Name
    allow: bool
    master_rev: Annotated[int, Field(ge=1, le=2**63 - 1)] = Field(
        description="the revision of its mastership, as the question names it; under a later one the answer is refused"
    )
    proof: Proof = Field(
        description="statement {action: answer, transfer_id, allow, master_rev, expires_at_s} of the master"
    )


class AskView(BaseModel):
    """A request that waits for the answer of an entity's master (POST /v1/transfers/{transfer_id}/answer)."""

    transfer_id: str
    entity: str
    requester: str
    target: str
    stay: bool = Field(description="only ownership is asked for: the entity stays where it is")
    want: Want
    master_rev: int = Field(description="the present revision of the mastership, which the answer names")
    ask_expires_at_s: int = Field(description="Unix time in seconds until which the master may answer")

    @classmethod
    def of(cls, record: EntityRecord, transfer: TransferRecord) -> "AskView":
        """From the records in the log."""
        fields = transfer.model_dump(include=set(cls.model_fields))
        return cls(transfer_id=transfer.id, master_rev=record.master_rev, **fields)


def result_of(record: TransferRecord, *, is_left: bool) -> Literal["pending", "done", "refused"]:
    """How a transfer has ended, or that it has not. One that is committed and `is_left` has: no server reports it."""
    match record.phase:
        case Phase.DONE:
            return "done"
        case Phase.COMMITTED if is_left:
            return "done"
        case Phase.REFUSED:
            return "refused"
        case _:
            return "pending"


class TransferView(BaseModel):
    """A transfer: how far it is, and once it is done, its hops and timings."""

    transfer_id: str
    id: str = Field(description="the same as `transfer_id`, for programs that know it by this name")
    entity: str
    source: str
    target: str
    phase: Phase
    reason: str
    waits: str = Field(
        default="",
        description="Why it waits, while it is pending: the last word of the server whose turn it is, which is asked "
        "for it. Empty if that is not known, in lists, and with `local`.",
    )
    requester: str
    want: Want
    stay: bool = Field(description="only ownership was asked for: the entity stays where it is")
    owner: str = Field(description="who owned the entity when it was decided")
    owner_rev: int
    mode: str = Field(description="as it was asked for")
    mode_taken: Literal["eager", "staged"] | None = Field(
        description="how it went: staged also where a large state has a freeze budget; null until its old authority "
        "reports"
    )
    direct: bool = Field(description="server to server (case 3): it is to go so, or went so when it is decided")
    group: str = Field(description="the group of which it is a member: it moves with the others or not at all")
    transport: str
    ask_expires_at_s: int = Field(description="Unix time in seconds until which the master may answer; 0: not asked")
    successor: str = Field(description="the transfer under which the next master was asked anew (`master_changed`)")
    epoch: int
    sub: int
    hops: int | None = Field(
        description="numbered hops, counted on the wire; null until its old authority reports, and if it is `repeated`"
    )
    repeated: bool | None = Field(
        description="Messages were lost or late, and the decision was told in answer to a repetition. So `trace` is "
        "not that of one way, and its hops are not counted. Of its timings only state and total are known. Null until "
        "its old authority reports."
    )
    trace: dict[str, Any] | None = Field(description="every hop and mark with its time in ns (monotonic)")
    timings_ms: dict[str, float] | None = Field(
        description="; ".join(f"{phase}: {meaning}" for phase, meaning in PHASES.items())
    )
    off_path: dict[str, int] | None = Field(description="messages beside the numbered hops, by kind")
    counters: dict[str, int] | None
    result: Literal["pending", "done", "refused"]

    @classmethod
    def of(cls, record: TransferRecord, *, is_left: bool = False) -> "TransferView":
        """From the record in the log; `is_left` if it is committed and no server will report its end."""
        report = json.loads(record.report) if record.report else None
        fields = record.model_dump(include=set(cls.model_fields))
        data = None if report is None else report["trace"]
        trace = None if data is None else Trace.from_data_untrusted(data)
        return cls(
            **fields | {"direct": record.goes_directly},
            transfer_id=record.id,
            mode_taken=None if trace is None else _mode_taken(trace),
            hops=None if trace is None or trace.is_repeated else trace.count,
            repeated=None if trace is None else trace.is_repeated,
            trace=data,
            timings_ms=None if trace is None else timings_ms(trace),
            off_path=None if report is None else report["off_path"],
            counters=None if report is None else report["counters"],
            result=result_of(record, is_left=is_left),
        )


def _mode_taken(trace: Trace) -> Literal["eager", "staged"] | None:
    """In which mode an entity was handed over: in staged mode its state goes before the request, and is a hop."""
    if not trace.count:
        return None
    return "staged" if any(hop.kind == "stage" for hop in trace.hops) else "eager"


class KeysBody(RequestBody):
    """Public keys of a player: a JWK set (RFC 7517) with one P-256 key for signing and one for key agreement.

    Keys that take the place of others come with the statements that lead to them; see docs/reference/keys.md.
    """

    keys: list[dict[str, Any]] = Field(min_length=2, max_length=16)
    revoked: list[dict[str, Any]] | None = Field(default=None, max_length=MAX_REVOKED)
    version: KeysVersion = 1
    statements: Statements = ()


class KeysView(BaseModel):
    """The pinned keys of a player."""

    name: str
    keys: list[dict[str, Any]]
    revoked: list[dict[str, Any]] = Field(description="ids of keys that were revoked, and when")
    version: int = Field(description="of the keys, from 1")
    revision: int

    @classmethod
    def of(cls, row: DirectoryRow) -> Self:
        """What is shown of a player's keys."""
        keys: list[dict[str, Any]] = row.keys["keys"]
        revoked: list[dict[str, Any]] = row.keys.get("revoked", [])
        return cls(name=row.name, keys=keys, revoked=revoked, version=row.version, revision=row.revision)


class RegisterBody(RequestBody):
    """A server of this instance registers its public keys and addresses.

    `proof` shows that it knows the join token, `address_statement` that the addresses are its own.
    """

    role: Literal["simserver"]
    keys: dict[str, Any]
    rest_url: Annotated[Text, Field(max_length=256)]
    link_host: Annotated[Text, Field(max_length=256)]
    link_port: Annotated[int, Field(ge=1, le=65535)]
    version: KeysVersion = 1
    statements: Statements = ()
    protocol: Annotated[int, Field(ge=0, le=2**31)] = Field(
        default=0, description="the version of the messages that it speaks; 0 of a release that does not say"
    )
    address_statement: Annotated[Text, Field(max_length=MAX_STATEMENT_CHARS)] = Field(
        default="", description="its addresses and the next revision of its row, signed with its own key"
    )
    proof: Annotated[str, Field(max_length=128)]


class ResetBody(RequestBody):
    """New keys for a server or player that has lost its own, or whose keys were stolen."""

    keys: list[dict[str, Any]] = Field(
        min_length=2, max_length=16, description="JWK set: one signing, one agreement key"
    )
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON_CHARS, description="for all to read")]


class RowsView(BaseModel):
    """Directory rows, and the proof that they come from a server that knows the shared secret."""

    rows: list[dict[str, Any]]
    proof: str
    now_ms: int = Field(default=0, description="the time of the instance, in Unix milliseconds")
    clock_proof: str = Field(default="", description="that `now_ms` comes from the same, over the nonce as well")


class ParcelBody(RequestBody):
    """A sealed parcel; see docs/reference/protocol.md."""

    parcel: dict[str, Any]


class ParcelView(BaseModel):
    """The sealed answer to a parcel."""

    parcel: dict[str, Any]


class DirectoryQuery(RequestBody):
    """Which directory rows are wanted: those of all homeservers, or the one of a name."""

    query: Literal["members", "row"]
    name: Name | None = None
    nonce: Nonce


class FederationBody(RequestBody):
    """Something for another instance: either a sealed parcel for one of its homeservers, or a directory query."""

    to_instance: InstanceName
    to: Name | None = None
    parcel: dict[str, Any] | None = None
    query: DirectoryQuery | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.parcel is None) == (self.query is None):
            raise ValueError("exactly one of parcel and query is needed")
        if self.query is not None and (self.query.name is None) != (self.query.query == "members"):
            raise ValueError("a query for a row needs a name, one for members takes none")
        if self.parcel is not None and self.to is None:
            raise ValueError("a parcel needs to name the homeserver that it is for")
        return self
