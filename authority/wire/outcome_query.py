"""What a simulation server asks its home instance when a hand-over did not come to its end by itself.

None of it is a numbered hop.
"""

from typing import Literal

from batonpass.authority.trust.certificates import Epoch, Name, TransferId
from batonpass.authority.wire.base import Chain, FencedTransferModel, MessageModel, Token

__all__ = ["Passed", "StageInquiry", "StageWord", "Stranded"]


class StageInquiry(FencedTransferModel):
    """Target → home: I have had this state on my disk for a while, frozen under this fence; what became of it?"""

    type: Literal["stage_inquiry"] = "stage_inquiry"
    target: Name


class StageWord(MessageModel):
    """Home → target: it is yours (with the certificate), nothing will come of it, or nobody has decided yet."""

    type: Literal["stage_word"] = "stage_word"
    transfer_id: TransferId
    word: Literal["committed", "void", "open"]
    certificate: Token = ""


class Passed(MessageModel):
    """New authority → home: I have this entity by this chain, and was not given a new grant since; do you know?"""

    type: Literal["passed"] = "passed"
    transfer_id: TransferId
    entity: Name
    chain: Chain


class Stranded(FencedTransferModel):
    """Target → home: the log gave me this, as incarnation `incarnation`, and no state for it has come.

    With `never` none can come any more that it would begin with. Answered by `StageWord`: `void` if it is nobody's
    that this is asked by (any more), `open` otherwise.
    """

    type: Literal["stranded"] = "stranded"
    target: Name
    incarnation: Epoch
    never: bool = False
