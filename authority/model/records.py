"""The ownership record of an entity and the other rows that homeservers replicate.

Where things stand in the tree:

    entities/<id>    EntityRecord
    asks/<id>        ids of the transfers of this entity that wait for the master's answer
    paces/<id>       how many requests each requester of this entity has left, and since when
    transfers/<id>   TransferRecord
    servers/<name>   DirectoryRow of a homeserver, relay or simulation server
    players/<name>   DirectoryRow of a player
    drains/<name>    DrainRecord of a simulation server that is drained
    crossings/<id>   id of the transfer by which an entity came from or to another instance, until its end is known
    recoveries/<id>  RecoveryRow of an entity whose authority is dead
    leases/<name>    LeaseRow of a simulation server
    lease_office     LeaseOffice
    office_marks     by which positions of the log are recognised; see `authority.trust.signed_positions`
    regions          RegionTable, which server has which part of space; see `authority.model.regions`
    balance_pause    since when nothing is balanced, in Unix seconds; see `authority.procedures.drain`
"""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from batonpass.authority.fence import Fence
from batonpass.authority.model.leave_policy import LeavePolicy
from batonpass.authority.model.standing import CopySource, LeasePhase, OrphanPolicy, Standing
from batonpass.crypto.continuity import MAX_STATEMENT_CHARS, MAX_STATEMENTS, MAX_VERSION

__all__ = [
    "MAX_UNKNOWN_CHARS",
    "DirectoryRow",
    "DrainRecord",
    "EntityRecord",
    "LeaseOffice",
    "LeaseRow",
    "Lock",
    "Outcome",
    "Phase",
    "RecoveryRow",
    "Role",
    "Rule",
    "TransferRecord",
    "Want",
    "report_text",
]

MAX_UNKNOWN_CHARS: Final = 2048
"""Of JSON, in the members of a directory row that this version does not know: rows of others are kept by thousands."""


_set: Final = object.__setattr__
# `json.dumps` makes one for each text.
_WRITER: Final = json.JSONEncoder(separators=(",", ":"))


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def to_data(self) -> dict[str, Any]:
        """As plain data for the tree."""
        return self.model_dump(mode="json")

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Read what `to_data` wrote."""
        return cls.model_validate(data)

    def changed(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return self.model_copy(update=changes)


class _Compact(_Record):
    """A row that is written without what is at its default, and read and written by every member with every hand-over.

    What the log holds was checked before it was put there, so it is taken as it stands: a quarter of the work. It looks
    as if pydantic had read or written it.
    """

    _READ: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """How fields are read that plain data holds otherwise than rows do."""
    _WRITTEN: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """How the same fields are written."""
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _required: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = cls.model_fields
        cls._required = frozenset(name for name, field in fields.items() if field.is_required())
        cls._defaults = {name: None if field.is_required() else field.default for name, field in fields.items()}

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Read what was written; what has other fields is read with all care."""
        if not cls._required <= data.keys() <= cls._defaults.keys():
            return cls.model_validate(data)
        values = {**cls._defaults, **data}
        for name in cls._READ.keys() & data.keys():
            values[name] = cls._READ[name](values[name])
        return cls._of(values, set(data))

    @classmethod
    def _of(cls, values: dict[str, Any], given: set[str]) -> Self:
        row = cls.__new__(cls)
        _set(row, "__dict__", values)
        _set(row, "__pydantic_fields_set__", given)
        _set(row, "__pydantic_extra__", None)
        _set(row, "__pydantic_private__", None)
        return row

    def changed(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return self._of(self.__dict__ | changes, self.__pydantic_fields_set__)

    def to_row(self) -> dict[str, Any]:
        """As plain data for the tree, without what is at its default."""
        defaults = self._defaults
        row = {
            name: value
            for name, value in self.__dict__.items()
            if (default := defaults[name]) is not value and default != value
        }
        for name in self._WRITTEN.keys() & row.keys():
            row[name] = self._WRITTEN[name](row[name])
        return row


class Rule(StrEnum):
    """What the master wants done when another asks for ownership."""

    ASK = "ask"
    DENY = "deny"
    ALLOW = "allow"


class Want(StrEnum):
    """What kind of request for ownership it is."""

    BY_RULE = "by_rule"
    """As the rule says."""
    IF_AVAILABLE = "if_available"
    """Only if the entity has no owner; the master is not asked."""
    FORCED = "forced"
    """The master takes it, whatever the rule, the owner and the locks say."""


class Lock(_Record):
    """A lock on who owns an entity: who holds it, and how often it was taken and not given back."""

    by: str
    count: int


class EntityRecord(_Compact):
    """Who may do what with one entity; each right has a revision of its own, which guards compare-and-sets.

    `authority` simulates, `owner` gives inputs, `master` changes the rule and the owner. `delegation` names the servers
    that may pass the entity among themselves directly (case 3); `sub` is how far the log has learned of such passes. An
    empty `owner` is no player. An empty `authority` is no server: it died, and none has taken the entity over yet
    (`standing`). `orphans` says what is to become of it then. `locks`, by their names, keep others from becoming owner.
    `on_leave`, `heir` and `owner_timeout_s` say what becomes of it when its owner leaves, or is silent for too long.
    `policies_rev` counts the changes of these and of `orphans`, `release_rev` the releases by its master.
    `stands_still`: it is suspended, because its owner left; it is of one `owner_rev`, and over with the next one.
    `parent`, empty for none, and `children` are its place in a hierarchy; see `authority.procedures.hierarchy`.
    `incarnation` is the one of the authority to which the entity was given; 0 if it had no lease, or none is known.
    `came_by` is the transfer that gave it to its authority, if that or its source is of another instance. `came_from`
    is the instance of the source of the last one whose source was of another instance, and `came_epoch` the epoch that
    it led to. They stay when the entity has been handed on at home since, and the transfer is forgotten. Or they are
    the instance that a takeover had it leave since, and the epoch that was raised for that. `jumped_from` is the last
    epoch that the log gave before the block of epochs that it is in (`authority.procedures.log_rollback`); 0 in the
    first one. `sub_before` is how many direct passes the log knew of the epoch before this one. `born` is the epoch
    under which it began; see `authority.procedures.delete.first_epoch`. It is `unconfirmed` until its first server has
    said that it would outlive that server; until then no client was told that there is one.
    """

    id: str
    kind: str
    master: str
    master_rev: int = 1
    owner: str
    owner_rev: int = 1
    stands_still: bool = False
    rule: Rule = Rule.ASK
    rule_rev: int = 1
    authority: str
    incarnation: int = 0
    came_by: str = ""
    came_from: str = ""
    came_epoch: int = 0
    epoch: int = 1
    sub: int = 0
    jumped_from: int = 0
    # For the log alone: what is told of an entity has not got it.
    sub_before: int = Field(default=0, exclude=True)
    born: int = 1
    unconfirmed: bool = False
    delegation: tuple[str, ...] = ()
    previous_owner: str = ""
    locks: dict[str, Lock] = {}
    locks_rev: int = 1
    orphans: OrphanPolicy = OrphanPolicy.ADOPT
    standing: Standing = Standing.SIMULATED
    on_leave: LeavePolicy = LeavePolicy.KEEP
    heir: str = ""
    owner_timeout_s: int = 0
    policies_rev: int = 1
    release_rev: int = 1
    parent: str = ""
    parent_rev: int = 1
    children: tuple[str, ...] = ()

    _READ = {
        "rule": Rule,
        "delegation": tuple,
        "locks": lambda locks: {name: Lock.from_data(lock) for name, lock in locks.items()},
        "orphans": OrphanPolicy,
        "standing": Standing,
        "on_leave": LeavePolicy,
        "children": tuple,
    }
    _WRITTEN = {
        "rule": str,
        "delegation": list,
        "locks": lambda locks: {name: lock.to_data() for name, lock in locks.items()},
        "orphans": str,
        "standing": str,
        "on_leave": str,
        "children": list,
    }

    @property
    def fence(self) -> Fence:
        """The fence of the authority that the log knows."""
        return Fence(self.epoch, self.sub)

    def under(self, epoch: int, **changes: Any) -> Self:
        """The record with these `changes`, under a higher epoch, which begins without direct passes."""
        return self.changed(epoch=epoch, sub=0, sub_before=self.sub, **changes)


class Phase(StrEnum):
    """How far the log knows a transfer to be."""

    ASKED = "asked"
    """The master has been asked and has not answered."""
    PERMITTED = "permitted"
    """The rule allows it; the old authority has been told to begin."""
    PREPARED = "prepared"
    """One of a group: its authority has frozen it, and waits for the others."""
    COMMITTED = "committed"
    """The compare-and-set succeeded: the target has authority."""
    REFUSED = "refused"
    """It will never happen; the reason says why."""
    DONE = "done"
    """The target simulates, the old authority has retired, the report is in."""


class Outcome(StrEnum):
    """What the log answers to a request to hand over."""

    COMMITTED = "committed"
    REFUSED = "refused"
    PENDING = "pending"
    """It is one of a group of which others are not frozen yet."""


class GroupPhase(StrEnum):
    """How far a group is."""

    APART = "apart"
    """It is none: its members are moved each by itself, and only reported together."""
    OPEN = "open"
    COMMITTED = "committed"
    REFUSED = "refused"


class GroupRecord(_Record):
    """Entities that move together, or apart: for each transfer its entity, and how many of them are prepared.

    `brought` are the transfers of entities that were not named: they are below others, and come along. `earlier` and
    `later` are the groups that were open when the later one of the two was proposed, and name some of the same
    entities. Their order is that of the log, which is who goes first (`authority.procedures.group_commit`). At
    `begins_at_s` its notice is over; 0 is not known.
    """

    id: str
    target: str
    members: dict[str, str]
    brought: tuple[str, ...] = ()
    expires_at_s: int
    prepared: int = 0
    phase: GroupPhase = GroupPhase.OPEN
    reason: str = ""
    earlier: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    begins_at_s: int = 0


def report_text(report: Any) -> str:
    """The report of a transfer as the log keeps it: one text of JSON, which costs the members less than its parts do.

    Rows and commands of before have it as plain data.
    """
    return report if isinstance(report, str) else "" if report is None else _WRITER.encode(report)


class TransferRecord(_Compact):
    """One transfer as the log knows it. `epoch` and `sub` are the fence that the transfer leads to, once committed.

    `owner` and `owner_rev` are who owns the entity from the commit on, `incarnation` is that of the target then, and
    `source_incarnation` that of the source. With `stay` only ownership is asked for: the entity stays with its
    authority, `target`. `direct` are those that are to be passed directly because the entity is delegated to both ends;
    see `goes_directly`. `group` is the one that it is a member of, if it is. `notice_ms` is how long world and owner
    have before the freeze. `freeze_budget_ms` is how long it may be frozen after that until the commit (0: as long as
    it takes). `permit_*` are the revisions under which a requester was permitted. The commit fails when one of them has
    moved on (`permit_master_rev` is 0 if it was not the master who permitted it). `ask_expires_at_s` is the Unix time
    in seconds until which the master may answer, when it was asked. With `keeps_owner` the requester does not become
    the entity's owner: its entity met this one, and wants it near. `successor` is the transfer under which another
    master was asked anew (`authority.procedures.authorization`). `came_from` and `came_epoch` are what those of the
    entity's record were before, if this transfer has changed them. `sub_before` is what that of the record was before
    the commit. `report` is that of the old authority, as JSON, once it is in.
    """

    id: str
    entity: str
    target: str
    source: str = ""
    phase: Phase
    reason: str = ""
    requester: str = ""
    want: Want = Want.BY_RULE
    stay: bool = False
    keeps_owner: bool = False
    group: str = ""
    mode: str = "eager"
    notice_ms: int = 0
    freeze_budget_ms: int = 0
    direct: bool = False
    transport: str = "rest"
    permit_rule_rev: int = 0
    permit_owner_rev: int = 0
    permit_master_rev: int = 0
    ask_expires_at_s: int = 0
    successor: str = ""
    epoch: int = 0
    sub: int = 0
    owner: str = ""
    owner_rev: int = 0
    incarnation: int = 0
    source_incarnation: int = 0
    tick: int = 0
    state_hash: str = ""
    came_from: str = ""
    came_epoch: int = 0
    sub_before: int = 0
    report: Annotated[str, BeforeValidator(report_text)] = ""

    _READ = {"phase": Phase, "want": Want, "report": report_text}
    _WRITTEN = {"phase": str, "want": str}

    def to_data(self) -> dict[str, Any]:
        """As plain data for the tree: its row."""
        return self.to_row()

    @property
    def fence(self) -> Fence:
        """The fence that the target holds after this transfer."""
        return Fence(self.epoch, self.sub)

    @property
    def goes_directly(self) -> bool:
        """Whether it was passed directly, or is to be. A commit of the log begins a new epoch, so its `sub` is 0."""
        return self.sub > 0 if self.phase in (Phase.COMMITTED, Phase.DONE) and not self.stay else self.direct


class DrainRecord(_Record):
    """A simulation server is drained since `since_s` (Unix time); `id` tells this drain from earlier and later ones."""

    server: str
    id: str
    since_s: float


class Role(StrEnum):
    """What a name in the key directory stands for."""

    HOMESERVER = "homeserver"
    SIMSERVER = "simserver"
    PLAYER = "player"


class DirectoryRow(_Record):
    """The public keys of one server or player, pinned to its name, and where a server listens.

    `keys` is a JWK set (RFC 7517): the current signing and agreement key, retiring ones, and what was revoked. Keys
    have versions, counted from 1; `statements` (`crypto.continuity`) lead from earlier ones to this, oldest first.
    `revision` counts the changes of the row, addresses included.

    Members that this version does not know are kept and passed on as they are, within bounds. A row may come from, and
    go to, a later version. What must not be ignored is therefore never said in a new member of a row.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    role: Role
    keys: dict[str, Any]
    rest_url: str = ""
    link_host: str = ""
    link_port: int = 0
    revision: int = 1
    version: int = Field(default=1, ge=1, le=MAX_VERSION)
    statements: tuple[Annotated[str, Field(max_length=MAX_STATEMENT_CHARS)], ...] = Field(
        default=(), max_length=MAX_STATEMENTS
    )

    @property
    def address(self) -> tuple[str, str, int]:
        """Where it is: its REST, and host and port of its link."""
        return self.rest_url, self.link_host, self.link_port

    @model_validator(mode="after")
    def _check_unknown_members(self) -> Self:
        if self.model_extra:
            try:
                size_chars = len(json.dumps(self.model_extra, allow_nan=False))
            except (TypeError, RecursionError) as error:
                raise ValueError("a member of a directory row is no JSON") from error
            if size_chars > MAX_UNKNOWN_CHARS:
                raise ValueError(f"the members of a directory row that are not known here take {size_chars} characters")
        return self


class LeaseOffice(_Record):
    """Which homeserver grants leases: the holder of the office of the highest number; see `machines.lease`."""

    holder: str = ""
    number: int = 0
    kept: int = 0


class LeaseRow(_Record):
    """The lease of one simulation server: which incarnation has it, and whether it is over.

    `nonce` is the incarnation's own secret, by which the next one shows that it comes after it. `swept` means that
    nothing is left that an earlier incarnation simulated, nor this one if its lease is over. `late` counts what the log
    learned to have been given to one that had been outlived by then. A member that has looked around must not have
    missed it.

    With `sole` the server's own disk counts (`authority.procedures.lease`), since its renewal number
    `sole_at`. With `addressed` the incarnation has said where it is, which counts; another process that registers the
    name changes nothing of it.
    """

    server: str
    incarnation: int
    nonce: str
    phase: LeasePhase = LeasePhase.RETURNING
    swept: bool = False
    late: int = 0
    sole: bool = False
    sole_at: int = 0
    addressed: bool = False

    def has_outlived(self, incarnation: int) -> bool:
        """Whether no server acts any more by what was given to this incarnation of the server (0: unknown which).

        What a returning server has of an unknown one is an earlier one's: it is given nothing before it is alive.
        """
        if self.phase is LeasePhase.OVER:
            return incarnation <= self.incarnation
        if not incarnation:
            return self.phase is LeasePhase.RETURNING
        return incarnation < self.incarnation


class RecoveryRow(_Record):
    """An entity whose authority died: where it was, and, once that is decided, which server resumes it from which copy.

    `epoch` is that of the raised fence, later of the target's. With `held` no server resumes it before `last` is back,
    and then it goes there if another one has the latest copy. With `disk` none does before the disk of `last` was
    asked: something durable may be there alone. Neither waits for a server of this instance that was removed. Beside
    the servers of this instance those of the instances `abroad` are asked for copies, and waited for. Those of
    `abroad_too` had the entity before, and have told that they handed it on. They are asked too, and waited for as long
    as no other server has a copy of `came_epoch` or later, under which the entity came from there. With `contested` no
    server can prove that it has it. Another may have begun by a pass of `last`, or of the one that was passed it. If
    `last` has simulated it until now there was no such pass, and what it had counts. Of the servers in `had` one or
    another may begin with it yet, though it is not to any more. `stay_epoch` and `stay_sub` are the fence of the last
    custody term; see `authority.machines.replica_choice`. `jumped_from` is the epoch before that, if it begins a block
    of epochs and this is known. `sub_before` is the sub-epoch with which the epoch before it ended. `own_epoch`, in a
    block that is not the first, is the last epoch that the log gave before it. What is between was given by another
    history of the log.
    """

    entity: str
    last: str
    epoch: int
    held: bool = False
    disk: bool = False
    contested: bool = False
    abroad: tuple[str, ...] = ()
    abroad_too: tuple[str, ...] = ()
    came_epoch: int = 0
    had: tuple[str, ...] = ()
    target: str = ""
    tick: int = 0
    state_hash: str = ""
    source: CopySource | None = None
    stay_epoch: int = 0
    stay_sub: int = 0
    jumped_from: int = 0
    sub_before: int = 0
    own_epoch: int = 0

    @property
    def stay(self) -> Fence:
        """The fence of the last custody term that the log gave; below it a copy is of an earlier one."""
        return Fence(self.stay_epoch, self.stay_sub)
