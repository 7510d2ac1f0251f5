"""What the adapter of a show asks of its pure parts: the machine of a node, and the seal of its datagrams."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from batonpass.simserver.sync.followers.ports import EngineEvent

__all__ = ["DatagramSeal", "ShowMachine", "ShowParts"]


class ShowMachine(Protocol):
    """One show at one node (`simserver.sync.followers.node.NodeMachine`)."""

    next_due_ns: int | None

    def granted(self, epoch: int, first_frame: int, now_ns: int) -> None:
        """This node is the controller from now on, and sends no frame before this one."""

    def may_send_below(self, limit: int) -> None:
        """Frames below this number may be sent."""

    def follow(self, controller: str, epoch: int, now_ns: int) -> None:
        """Another node is the controller; none is known if it is empty."""

    def members(self, nodes: Mapping[str, bytes]) -> None:
        """The nodes of the show, with the Ed25519 keys by which they sign."""

    def receive(self, peer: str, datagram: bytes, now_ns: int) -> None:
        """A datagram of an authenticated node."""

    def tick(self, now_ns: int) -> None:
        """Time has passed."""

    def take_outgoing(self) -> list[tuple[tuple[str, ...], bytes]]:
        """Datagrams to be sent, with their receivers."""

    def take_events(self) -> Sequence[EngineEvent]:
        """What the engine is to be told."""

    def submit_state(self, frame: int, payload: bytes, version: int, inputs: bytes | None, now_ns: int) -> None:
        """The controller's engine has computed a frame."""

    def submit_hash(self, frame: int, digest: bytes) -> None:
        """A follower's engine has computed a frame from inputs."""

    def submit_interaction(self, payload: bytes) -> None:
        """Interaction data of a follower's engine."""

    def engine_dropped(self, frames: Sequence[int]) -> None:
        """Frames that this node's engine did not render."""

    def quit(self) -> None:
        """Tell all that the show ends, if this node is the controller; else that this node leaves."""


class DatagramSeal(Protocol):
    """The key of one epoch of one show, as one node uses it."""

    def seal(self, datagram: bytes) -> bytes:
        """Sealed once, for all receivers."""

    def open_untrusted(self, packet: bytes) -> tuple[int, bytes] | None:
        """The sender's number and the datagram; None if it is anything else, or is not of this epoch."""


class ShowParts(Protocol):
    """Makes the parts of one show at one node that are others in a simulation."""

    public: bytes
    """The Ed25519 key by which this node signs."""

    def thread(self) -> int:
        """A number of the thread that calls."""

    def machine(self, server: str, state: Mapping[str, Any], more: Mapping[str, Any], now_ns: int) -> ShowMachine:
        """`state` has the rate, mode and fence of the show, `more` further fields of `ShowSettings`."""

    def seal(self, key: bytes, epoch: int, number: int) -> DatagramSeal:
        """`number` is that of this node in this epoch."""
