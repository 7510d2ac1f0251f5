"""Every message that servers exchange about entities, and the parcel they travel in.

A *parcel* is what crosses the wire: a hop trace in the open (relays extend it) and a sealed body (the seed's eight
steps: encrypted to the receiver, signed by the sender). The body is CBOR (RFC 8949) with a `type`. Input messages of
players are the exception. They are not about transfers, there are thousands a second, and the link session already
encrypts and authenticates them; they travel as bare CBOR.

`on_path` messages are numbered hops of the three cases. The others (state, retire, forwarded inputs, orders, reports)
are counted by kind and reported apart.
"""

from typing import Annotated, Any, Final, Literal

import cbor2
from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.limits import MAX_BODY_BYTES
from batonpass.authority.machines.precopy import MAX_RECIPE_BYTES
from batonpass.authority.trust.certificates import Epoch, Hash, Name, OwnerName, TickNumber, TransferId
from batonpass.authority.wire.ahead import MAX_SCHEMA_VERSION, Precopied, Precopy, Reserve, Reserved
from batonpass.authority.wire.base import Chain, ReasonText, Token
from batonpass.authority.wire.base import FencedTransferModel as _Fenced
from batonpass.authority.wire.base import MessageModel as _Message
from batonpass.authority.wire.batch import Batch
from batonpass.authority.wire.cbor import loads_plain_untrusted
from batonpass.authority.wire.entity import (
    Despawn,
    Despawned,
    OwnerHint,
    OwnerRequest,
    OwnerWord,
    Release,
    Spawn,
    Spawned,
)
from batonpass.authority.wire.envelope import KeyAhead, Manifest, Parcel
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import LeaseInquiry, LeaseWord, Renew, RenewReply
from batonpass.authority.wire.messages import AuthorityRequest, AuthorityWord, EntityMessageAnswers, EntityMessages
from batonpass.authority.wire.neighbours import ContactClaim, GhostInterest, Ghosts
from batonpass.authority.wire.placement import Census, CensusRequest, LoadReport, Moves
from batonpass.authority.wire.player import (
    MAX_INPUT_BYTES,
    MAX_INPUTS,
    MAX_NOTICE_MS,
    ImminentLoss,
    Input,
    InputAck,
    InputItem,
    Inputs,
    LetGo,
    NotHere,
    NoticeMs,
    NotOwner,
    Present,
)
from batonpass.authority.wire.queries import (
    HeldInquiry,
    HeldWord,
    LogInquiry,
    LogShown,
    LogWord,
    Passed,
    StageInquiry,
    StageWord,
    Stranded,
)
from batonpass.authority.wire.recovery import Adopt, Adopted, Collect, Collected, Copies, CopiesKept
from batonpass.authority.wire.regions import RegionReport, RegionWord
from batonpass.authority.wire.shows import ShowMembers, ShowNode
from batonpass.authority.wire.standing import StandingInquiry, StandingWord

__all__ = [
    "MAX_INPUTS",
    "MAX_INPUT_BYTES",
    "MAX_NOTICE_MS",
    "MAX_SCHEMA_VERSION",
    "Activate",
    "Activated",
    "AdmitReply",
    "AdmitRequest",
    "Adopt",
    "Adopted",
    "AuthorityRequest",
    "AuthorityWord",
    "Batch",
    "Census",
    "CensusRequest",
    "Collect",
    "Collected",
    "ContactClaim",
    "ContactHandoff",
    "Copies",
    "CopiesKept",
    "Decline",
    "Delegation",
    "Despawn",
    "Despawned",
    "DirectHandoff",
    "EntityMessageAnswers",
    "EntityMessages",
    "ForwardInputs",
    "GhostInterest",
    "Ghosts",
    "Grant",
    "HandoffAbort",
    "HandoffReply",
    "HandoffRequest",
    "HeldInquiry",
    "HeldWord",
    "ImminentLoss",
    "Input",
    "InputAck",
    "InputItem",
    "KeyAhead",
    "LeaseInquiry",
    "LeaseWord",
    "LetGo",
    "LinkMessage",
    "LoadReport",
    "LogInquiry",
    "LogShown",
    "LogWord",
    "Manifest",
    "Message",
    "Moves",
    "NoAnswer",
    "NotHere",
    "NotOwner",
    "Order",
    "OwnerHint",
    "OwnerRequest",
    "OwnerWord",
    "Parcel",
    "Passed",
    "Precopied",
    "Precopy",
    "Present",
    "RegionReport",
    "RegionWord",
    "Release",
    "Renew",
    "RenewReply",
    "Report",
    "ReportReply",
    "Reserve",
    "Reserved",
    "ShowMembers",
    "ShowNode",
    "Spawn",
    "Spawned",
    "StageDiscard",
    "StageInquiry",
    "StageState",
    "StageWord",
    "Staged",
    "StandingInquiry",
    "StandingWord",
    "StateTransfer",
    "Stranded",
    "decode_link_untrusted",
    "decode_message_untrusted",
    "encode_link",
    "encode_message",
]


def _read_trace(value: object) -> Trace:
    return value if isinstance(value, Trace) else Trace.from_data_untrusted(value)


# Reports are kept in the log, so what stands in them is checked and bounded before it gets there.
CarriedTrace = Annotated[Trace, PlainValidator(_read_trace), PlainSerializer(lambda trace: trace.to_data())]
Counts = Annotated[
    dict[Annotated[str, Field(max_length=32)], Annotated[int, Field(ge=0, le=2**63 - 1)]],
    Field(max_length=32),
]


# --- to a homeserver, and between homeservers ---------------------------------------------------------------------


class HandoffRequest(_Fenced):
    """Old authority → home: move my entity, frozen at `tick` under this fence, to `target`."""

    type: Literal["handoff"] = "handoff"
    source: Name
    target: Name
    tick: TickNumber
    state_hash: Hash
    transport: Literal["rest", "link"] = "rest"
    chain: Chain = Field(default_factory=list)


class ContactHandoff(HandoffRequest):
    """Old authority → home: as `handoff`, because my entity met the entity `contact`, which the target has."""

    type: Literal["contact_handoff"] = "contact_handoff"  # type: ignore[assignment]  # it is one, of another kind
    contact: Name


class HandoffAbort(_Fenced):
    """Old authority → home: give this hand-over up for `reason`; raise the epoch, so that I may resume."""

    type: Literal["handoff_abort"] = "handoff_abort"
    source: Name
    target: Name
    reason: ReasonText
    chain: Chain = Field(default_factory=list)


class HandoffReply(_Message):
    """Home → old authority: what the log decided. `epoch`/`sub` is the fence after it; no `authority`: it is gone."""

    type: Literal["handoff_reply"] = "handoff_reply"
    transfer_id: TransferId
    outcome: Literal["committed", "refused", "pending"]
    reason: ReasonText = ""
    authority: OwnerName
    epoch: Epoch
    sub: Epoch
    certificate: Token = ""
    given_epoch: Epoch = 0

    @property
    def fence(self) -> Fence:
        """The fence that the log holds after the decision."""
        return Fence(self.epoch, self.sub)

    def given(self, following: Fence) -> Fence:
        """The fence under which the target got the entity by this very transfer, if that was committed.

        It is the `following` one, or begins a block of epochs (`given_epoch`; see
        `authority.procedures.log_rollback`).
        """
        return Fence(self.given_epoch) if self.given_epoch else following


class AdmitRequest(_Message):
    """Record's home → target's home: will `target` take this entity?"""

    type: Literal["admit"] = "admit"
    transfer_id: TransferId
    entity: Name
    target: Name


class AdmitReply(_Message):
    """Target's home → record's home: yes, or why not.

    Yes is for `incarnation`, the present one of the target by its home's log; 0 if it never had a lease.
    """

    type: Literal["admit_reply"] = "admit_reply"
    transfer_id: TransferId
    accepted: bool
    reason: ReasonText = ""
    incarnation: Epoch = 0


class Report(_Message):
    """Old authority → home, after it retired: the whole trace and what it counted."""

    type: Literal["report"] = "report"
    transfer_id: TransferId
    entity: Name
    source: Name
    trace: CarriedTrace
    off_path: Counts
    counters: Counts
    chain: Chain = Field(default_factory=list)


class ReportReply(_Message):
    """Home → old authority: noted. A delegated entity's new holder gets its new grant apart from this."""

    type: Literal["report_reply"] = "report_reply"
    transfer_id: TransferId


class NoAnswer(_Message):
    """Home → simulation server, in the place of an answer in a batch of them.

    The answer takes another way (`elsewhere`), nothing was decided (`undecided`: repeat it), or it was refused.
    """

    type: Literal["no_answer"] = "no_answer"
    why: Literal["elsewhere", "undecided", "refused"]
    reason: ReasonText = ""


class Decline(_Message):
    """Old authority → home: I was told to begin this transfer and will not; nothing was frozen. See `Reason`."""

    type: Literal["decline"] = "decline"
    transfer_id: TransferId
    entity: Name
    source: Name
    target: Name
    reason: ReasonText


# --- homeserver → simulation server -------------------------------------------------------------------------------


class Grant(_Message):
    """Home → new authority (case 2, hop 2): the log gave you this entity."""

    type: Literal["grant"] = "grant"
    certificate: Token


class Order(_Message):
    """Home → old authority: begin this transfer (it was permitted).

    `epoch` and `sub` are the fence of the entity's record when that and the transfer, which had no result, were read
    together: what was passed directly up to there was not passed for this transfer. 0 says nothing.
    """

    type: Literal["order"] = "order"
    transfer_id: TransferId
    entity: Name
    target: Name
    direct: bool = False
    transport: Literal["rest", "link"] = "rest"
    mode: Literal["eager", "staged"] = "eager"
    grouped: bool = False
    notice_ms: NoticeMs = 0
    freeze_budget_ms: NoticeMs = 0
    epoch: Epoch = 0
    sub: Epoch = 0


class Delegation(_Message):
    """Home → holder: you may pass this entity on directly within the group of the grant."""

    type: Literal["delegation"] = "delegation"
    entity: Name
    grant: Token


# --- simulation server → simulation server ------------------------------------------------------------------------


class _WithState(_Fenced):
    """A message with an entity's frozen state: in `state`, or, if it is large and on the wire, beside the message."""

    kind: Annotated[str, Field(max_length=64)]
    tick: TickNumber
    state: bytes
    state_hash: Hash
    manifest: Manifest | None = None
    # If most of it went ahead: what the whole state is made of, and `state` is the rest (`authority.machines.precopy`).
    recipe: Annotated[bytes, Field(max_length=MAX_RECIPE_BYTES)] = b""


class StateTransfer(_WithState):
    """Old → new authority, while the request is on its way: the frozen state under the *old* fence."""

    type: Literal["state"] = "state"


class StageState(_WithState):
    """Old → new authority in staged mode: keep this on your disk and tell me when it is there. The *old* fence."""

    type: Literal["stage"] = "stage"


class Staged(_Fenced):
    """New → old authority: it is on my disk; or with a `reason`: I do not take it."""

    type: Literal["staged"] = "staged"
    state_hash: Hash
    reason: ReasonText = ""


class StageDiscard(_Fenced):
    """Old → new authority: nothing comes of the state that was staged under this fence."""

    type: Literal["stage_discard"] = "stage_discard"


class Activate(_Message):
    """Old → new authority (case 1, last hop): the log's certificate, and the inputs that came since the freeze."""

    type: Literal["activate"] = "activate"
    transfer_id: TransferId
    certificate: Token
    inputs: Inputs = Field(default_factory=list)


class DirectHandoff(_WithState):
    """Old → new authority (case 3): state and the chain of certificates whose last one names the receiver.

    The state is empty if the receiver has staged it.
    """

    type: Literal["direct"] = "direct"
    chain: Chain


class Activated(_Fenced):
    """New → old authority: I simulate it now, under this fence. Hop 3 of case 2, hop 2 of case 3, off-path in case 1.

    In case 1 it brings the trace home (`trace`), because the last numbered hop ended at its sender.
    """

    type: Literal["activated"] = "activated"
    trace: CarriedTrace | None = None


class ForwardInputs(_Fenced):
    """Old → new authority after the commit: inputs that still came to the old one. `forwards` bounds the chase."""

    type: Literal["forward"] = "forward"
    inputs: Inputs
    forwards: Annotated[int, Field(ge=1, le=4)] = 1


Message = Annotated[
    HandoffRequest
    | ContactHandoff
    | HandoffAbort
    | HandoffReply
    | AdmitRequest
    | AdmitReply
    | Report
    | ReportReply
    | Decline
    | Reserve
    | Reserved
    | Grant
    | Order
    | OwnerHint
    | OwnerRequest
    | OwnerWord
    | Renew
    | RenewReply
    | LeaseInquiry
    | LeaseWord
    | LogShown
    | HeldInquiry
    | HeldWord
    | LogInquiry
    | LogWord
    | Collect
    | Collected
    | Adopt
    | Adopted
    | Delegation
    | Spawn
    | Spawned
    | Despawn
    | Despawned
    | Release
    | Precopy
    | Precopied
    | StateTransfer
    | StageState
    | Staged
    | StageDiscard
    | StageInquiry
    | StageWord
    | Passed
    | Stranded
    | Activate
    | DirectHandoff
    | Activated
    | ForwardInputs
    | LoadReport
    | CensusRequest
    | Census
    | Moves
    | RegionReport
    | RegionWord
    | StandingInquiry
    | StandingWord
    | ShowNode
    | ShowMembers
    | EntityMessages
    | EntityMessageAnswers
    | AuthorityRequest
    | AuthorityWord
    | GhostInterest
    | ContactClaim
    | NoAnswer
    | Batch,
    Field(discriminator="type"),
]


LinkMessage = Annotated[
    Input | InputAck | NotHere | NotOwner | ImminentLoss | LetGo | Present | Copies | CopiesKept | Ghosts | KeyAhead,
    Field(discriminator="type"),
]


_MESSAGE: Final[TypeAdapter[Message]] = TypeAdapter(Message)
_LINK: Final[TypeAdapter[LinkMessage]] = TypeAdapter(LinkMessage)


# Of plain values, if there is neither a manifest nor a trace in them.
_FLAT: Final = frozenset({DirectHandoff, Activated})


def encode_message(message: Message) -> bytes:
    """A transfer message as the bytes to be sealed."""
    fields = vars(message)
    if type(message) in _FLAT and fields.get("manifest") is None and fields.get("trace") is None:
        # As they stand: an entity is frozen for these.
        return cbor2.dumps(fields)
    return cbor2.dumps(message.model_dump())


def decode_message_untrusted(body: bytes) -> Message:
    """Read an opened body.

    Raises:
        MessageError: it is not exactly one known message.
    """
    if len(body) > MAX_BODY_BYTES:
        raise MessageError(f"a body of {len(body)} bytes is longer than {MAX_BODY_BYTES}")
    try:
        return _MESSAGE.validate_python(_loads(body))
    except ValidationError as error:
        raise MessageError("not a known message") from error


def encode_link(message: LinkMessage | Parcel) -> bytes:
    """What travels over the link: a parcel, or a bare player message."""
    return cbor2.dumps(message.to_data() if isinstance(message, Parcel) else message.model_dump())


def decode_link_untrusted(body: bytes) -> Parcel | LinkMessage:
    """Read a message from the link.

    Raises:
        MessageError: it is neither a parcel nor a known player message.
    """
    data = _loads(body)
    if isinstance(data, dict) and "sealed" in data:
        return Parcel.from_data_untrusted(data)
    try:
        return _LINK.validate_python(data)
    except ValidationError as error:
        raise MessageError("not a player message") from error


def _loads(body: bytes) -> Any:
    try:
        return loads_plain_untrusted(body)
    except Exception as error:
        raise MessageError("not CBOR") from error
