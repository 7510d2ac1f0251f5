"""What players and the authorities of their entities say to each other, and what an input is.

They are not about transfers, and there are thousands a second, so they travel as bare CBOR: the link's session has
encrypted and authenticated them.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from batonpass.authority.trust.certificates import Epoch, Name, OwnerName, TickNumber
from batonpass.authority.wire.base import MessageModel as _Message
from batonpass.authority.wire.base import ReasonText

__all__ = [
    "MAX_INPUTS",
    "MAX_INPUT_BYTES",
    "MAX_NOTICE_MS",
    "ImminentLoss",
    "Input",
    "InputAck",
    "InputItem",
    "Inputs",
    "LetGo",
    "NotHere",
    "NotOwner",
    "NoticeMs",
    "Present",
]

MAX_INPUTS: Final = 4096
MAX_INPUT_BYTES: Final = 4096
# The longest notice that is given before an entity leaves.
MAX_NOTICE_MS: Final = 10_000
NoticeMs = Annotated[int, Field(ge=0, le=MAX_NOTICE_MS)]


class InputItem(_Message):
    """One numbered input of one source. `owner_rev`, `base` and `floor` as in `Input`."""

    source: Name
    owner_rev: Epoch
    seq: Annotated[int, Field(ge=1, le=2**63 - 1)]
    data: Annotated[bytes, Field(max_length=MAX_INPUT_BYTES)]
    base: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    floor: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0


Inputs = Annotated[list[InputItem], Field(max_length=MAX_INPUTS)]


class Input(_Message):
    """Player → authority: one numbered input for an entity.

    `owner_rev` is the revision of the ownership under which it is given; see `authority.model.ownership`. Up to number
    `base` the player gives nothing again, because it is durable: an authority that does not know the player begins
    there. Numbers up to `floor` were used under ownerships of before. None of them is used again, whatever became of
    it, so an authority that knows of less continues with `floor` + 1. Above it numbers have no gaps.
    """

    type: Literal["input"] = "input"
    entity: Name
    owner_rev: Epoch
    seq: Annotated[int, Field(ge=1, le=2**63 - 1)]
    data: Annotated[bytes, Field(max_length=MAX_INPUT_BYTES)]
    base: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    floor: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0


class InputAck(_Message):
    """Authority → player: every input up to `applied` has been applied, and up to `durable` it will stay so.

    What is not durable may have to be given again, if the authority dies: a lower `applied` under a higher fence says
    from where on.
    """

    type: Literal["input_ack"] = "input_ack"
    entity: Name
    applied: Annotated[int, Field(ge=0, le=2**63 - 1)]
    durable: Annotated[int, Field(ge=0, le=2**63 - 1)]
    tick: TickNumber
    epoch: Epoch
    sub: Epoch


class NotHere(_Message):
    """Server → player: I have no authority over this entity; `moved_to` names who had it last, if I know."""

    type: Literal["not_here"] = "not_here"
    entity: Name
    moved_to: Annotated[str, Field(max_length=128)] = ""
    epoch: Epoch = 0
    sub: Epoch = 0


class NotOwner(_Message):
    """Authority → player: your inputs after `applied` are refused for `reason`; `owner` owns it under `owner_rev`.

    The player who is named there gives its inputs again, numbered from `applied` + 1 and under this revision. Any other
    has lost what was not applied.
    """

    type: Literal["not_owner"] = "not_owner"
    entity: Name
    reason: ReasonText
    owner: OwnerName
    owner_rev: Epoch
    applied: Annotated[int, Field(ge=0, le=2**63 - 1)]
    epoch: Epoch
    sub: Epoch


class ImminentLoss(_Message):
    """Authority → owner: in `within_ms` the entity is frozen for a moment and goes to `target`; finish what you do.

    `LetGo` says that you have finished, so that it may go earlier.
    """

    type: Literal["imminent_loss"] = "imminent_loss"
    entity: Name
    target: Name
    within_ms: NoticeMs
    epoch: Epoch
    sub: Epoch


class LetGo(_Message):
    """Owner → authority: I have finished; the entity may go."""

    type: Literal["let_go"] = "let_go"
    entity: Name


class Present(_Message):
    """Player → authority: I am here, though I give no inputs.

    A server that does not have the `entity` answers with `NotHere`; to an authority, or without an entity, it is only a
    sign of life.
    """

    type: Literal["present"] = "present"
    entity: OwnerName = ""
