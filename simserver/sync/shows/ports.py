"""What the shows of a server have of the world outside: sockets, threads, keys and dice. A simulation gives others."""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from batonpass.actors.net.datagrams import Outbound
from batonpass.authority.wire.shows import ShowMembers, ShowNode
from batonpass.simserver.sync.followers.mailbox import EngineMailbox
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.shows.datagram_port import DatagramPort
from batonpass.simserver.sync.shows.engine_thread import EngineProgram, EngineThread
from batonpass.simserver.sync.shows.own_parts import OwnParts

__all__ = ["SHIPPED", "NodeParts", "NodeSocket", "RunningEngine", "ShowLinks", "ShowPorts", "SocketOf"]


class NodeSocket(Protocol):
    """The socket of a node, as `DatagramPort`."""

    address: tuple[str, int]

    def bind(self, host: str) -> None:
        """Take a free port of this host. Raises OSError: it cannot be bound."""

    async def serve(self) -> None:
        """Receive, until cancelled."""

    def close(self) -> None:
        """Close it, once it is served no more."""

    def send(self, packets: Iterable[Outbound]) -> None:
        """Send these, in order."""


class RunningEngine(Protocol):
    """The engine of a node, as `EngineThread`."""

    error: str
    """What ended it, as one line; empty if that was no error."""

    @property
    def counters(self) -> Mapping[str, int]:
        """As `EngineNode.counters`, at this moment."""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Tell it to end."""


class NodeParts(Protocol):
    """What a process has of its own in a show, as `OwnParts`."""

    @property
    def public(self) -> bytes:
        """The key by which others verify what this node signs."""

    def thread(self) -> int:
        """A number of the thread that calls."""

    def machine(self, server: str, state: Mapping[str, Any], now_ns: int) -> NodeMachine:
        """The machine of this node, for a show in this state."""


SocketOf = Callable[[Callable[[bytes], None], Callable[[], None], Counter[str]], NodeSocket]
EngineOf = Callable[[str, str, EngineProgram, EngineMailbox, Callable[[bool], None]], RunningEngine]


def _own_parts(_entity: str, more: Mapping[str, Any]) -> NodeParts:
    return OwnParts(more)


@dataclass(frozen=True, kw_only=True)
class ShowPorts:
    """The ways out of the shows of one server. The defaults are what is shipped.

    Attributes:
        random_bytes: returns this number of bytes, for keys.
        own_parts: of a show, given its entity and the fields of `ShowSettings` that the world is configured with.
        socket: as `DatagramPort` is called.
        engine: as `EngineThread` is called.
    """

    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    own_parts: Callable[[str, Mapping[str, Any]], NodeParts] = _own_parts
    socket: SocketOf = DatagramPort
    engine: EngineOf = EngineThread


@dataclass(frozen=True, kw_only=True)
class ShowLinks:
    """What a server has for its shows beside its entities.

    Attributes:
        server, instance: the names of this server and of its instance.
        host: on which the sockets for datagrams are bound.
        send: sends a message to another server, sealed, over the link.
        ports: sockets, threads, keys and dice.
    """

    server: str
    instance: str
    host: str
    send: Callable[[ShowNode | ShowMembers, str], object]
    ports: ShowPorts


SHIPPED: Final = ShowPorts()
