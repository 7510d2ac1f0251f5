"""What simulation servers say to each other that take part in a show: who is there, and the key of its datagrams.

None of it is a numbered hop. Both are sealed for their receiver; the frames themselves travel in datagrams of their own
(`simserver.sync.shows.datagram_port`), sealed with the key that is handed out here.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from batonpass.authority.trust.certificates import Epoch, Name
from batonpass.authority.wire.base import MessageModel

__all__ = ["GROUP_KEY_BYTES", "MAX_SHOW_NODES", "PUBLIC_KEY_BYTES", "ShowMember", "ShowMembers", "ShowNode"]

MAX_SHOW_NODES: Final = 512
GROUP_KEY_BYTES: Final = 32
PUBLIC_KEY_BYTES: Final = 32

Port = Annotated[int, Field(ge=1, le=65_535)]
PublicKey = Annotated[bytes, Field(min_length=PUBLIC_KEY_BYTES, max_length=PUBLIC_KEY_BYTES)]
Term = Annotated[int, Field(ge=1, le=10_000_000)]


class ShowNode(MessageModel):
    """A node of a show → the controller: I take part, my datagrams come from this port and are signed by this key.

    Repeated for as long as it takes part; `epoch` is the highest of the show that it has heard of.
    """

    type: Literal["show_node"] = "show_node"
    entity: Name
    epoch: Epoch
    port: Port
    public: PublicKey


class ShowMember(MessageModel):
    """A node of a show; no two of an epoch ever have the same `number`, which is in the nonces of its datagrams."""

    name: Name
    number: Annotated[int, Field(ge=0, le=2**32 - 1)]
    host: Annotated[str, Field(min_length=1, max_length=255)]
    port: Port
    public: PublicKey


class ShowMembers(MessageModel):
    """The controller of an epoch → a node: the nodes of the show, the key of their datagrams, and how it sends."""

    type: Literal["show_members"] = "show_members"
    entity: Name
    epoch: Epoch
    key: Annotated[bytes, Field(min_length=GROUP_KEY_BYTES, max_length=GROUP_KEY_BYTES)]
    revision: Annotated[int, Field(ge=0, le=2**63 - 1)]
    rate: Annotated[tuple[Term, Term], Field(strict=False)]
    mode: Literal["state", "delta", "inputs"]
    fence: Literal["none", "soft", "external"]
    nodes: Annotated[list[ShowMember], Field(min_length=1, max_length=MAX_SHOW_NODES)]
