"""What can go wrong between nodes, said so that it is clear who is guilty: the caller, the peer, or the world."""

from __future__ import annotations

from typing import Final

from batonpass.actors.core.exits import Exit

NOCONNECTION: Final = "noconnection"
"""Why a monitored or linked actor on another node counts as gone: its node does, or cannot be asked (OTP's word)."""


class NodeDown(Exit):
    """The other node does not answer, ended, or was lost while you waited (OTP: `{:nodedown, node}`).

    The request may have been handled, or not: that cannot be told. Calling again is safe if handling it twice is.
    """

    def __init__(self, actor: str, node: str) -> None:
        self.node = node
        super().__init__(("nodedown", node), actor)

    def _sentence(self) -> str:
        return f"{self.actor}: the node {self.node!r} does not answer or was lost; nobody knows whether it was handled"


class NodeBusy(Exit):
    """So much waits for the other node already that the call was refused at once instead of being queued."""

    def __init__(self, actor: str, node: str) -> None:
        self.node = node
        super().__init__(("nodebusy", node), actor)

    def _sentence(self) -> str:
        return f"{self.actor}: too much waits for the node {self.node!r} already; call less often, or wait for it"


class Unsendable(ValueError):
    """The message holds something that cannot travel to another node. The caller's mistake; nothing was sent."""


class Undecodable(ValueError):
    """The bytes are not a message, or of a type unknown here. The peer's mistake, or a missing `register`."""


class RemoteError(Exception):
    """An exception of another node: what it was called and what it said. It is never rebuilt as what it was.

    `type_name` is the name of its class there, `text` its sentence, `node` where it was raised.
    """

    def __init__(self, type_name: str, text: str, node: str) -> None:
        self.type_name = type_name
        self.text = text
        self.node = node
        super().__init__(f"{type_name} on {node}: {text}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemoteError):
            return NotImplemented
        return (self.type_name, self.text, self.node) == (other.type_name, other.text, other.node)

    def __hash__(self) -> int:
        return hash((self.type_name, self.text, self.node))
