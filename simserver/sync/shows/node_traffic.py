"""What goes between the machine of a node, its socket and its engine, under the key of one epoch."""

import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.actors.net.datagrams import is_loopback_path
from batonpass.simserver.sync.followers.mailbox import EngineMailbox
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.ports import CamerasReceived, FrameBegins
from batonpass.simserver.sync.followers.sealing import GroupSeal
from batonpass.simserver.sync.followers.structs import CameraData
from batonpass.simserver.sync.shows.datagram_port import DatagramPort
from batonpass.simserver.sync.shows.nodes import ShowPeer
from batonpass.simserver.sync.shows.ports import SocketOf

__all__ = ["NodeTraffic"]


class NodeTraffic:
    """Of one node of one show. Nothing is sent and nothing is opened before there is a machine and a key.

    Args:
        server: the name of this node.
        clock: by which the machine's time passes.
        wake: is called when the machine has something to do already: `pump` is to be called again, after other tasks.
        counts: `show_packets_early` and `show_packets_refused` are counted there, and what the port counts.
        may_send: whether the machine may act at this moment. A node without authority always may.
        make_port: makes the socket, from the arguments of `DatagramPort`.

    Attributes:
        machine: of this node, once it is known what the show is like.
        seal: with the key of the epoch.
        peers: the nodes of the show, this one included.
        cameras: of the streams that this node renders, by their handles; the same in all frames.
    """

    def __init__(
        self,
        server: str,
        mailbox: EngineMailbox,
        clock: Clock,
        wake: Callable[[], None],
        counts: Counter[str],
        may_send: Callable[[], bool],
        make_port: SocketOf = DatagramPort,
    ) -> None:
        self.mailbox: Final = mailbox
        self.port: Final = make_port(self._took, self.pump, counts)
        self.machine: NodeMachine | None = None
        self.seal: GroupSeal | None = None
        self.peers: Mapping[str, ShowPeer] = {}
        self.cameras: Mapping[int, CameraData] = {}
        self.heard_ns: Final[dict[str, int]] = {}
        """When each of the nodes was heard last."""
        self._server: Final = server
        self._clock: Final = clock
        self._wake: Final = wake
        self._may_send: Final = may_send
        self._counts: Final = counts
        self._names: Mapping[int, str] = {}

    def knows(self, peers: Mapping[str, ShowPeer]) -> None:
        """These nodes take part."""
        self.peers = dict(peers)
        self._names = {peer.number: name for name, peer in peers.items()}
        for gone in self.heard_ns.keys() - peers.keys():
            del self.heard_ns[gone]
        if self.machine is not None:
            # A port is needed to ask, and says nothing: one for each host.
            others = {peer.host: peer.port for name, peer in peers.items() if name != self._server}
            is_on_one_machine = all(is_loopback_path(socket.AF_INET, address) for address in others.items())
            publics = {name: peer.public for name, peer in peers.items()}
            self.machine.members(publics, is_on_one_machine=is_on_one_machine)

    def pump(self) -> None:
        """Let the machine act, and take from it what is to be sent and told."""
        machine = self.machine
        if machine is None:
            return
        if not self._may_send():
            if dropped := len(machine.take_outgoing()):
                self._counts["show_packets_without_authority"] += dropped
            return
        machine.tick(self._clock.monotonic_ns())
        for event in machine.take_events():
            if self.cameras and isinstance(event, FrameBegins):
                self.mailbox.put(CamerasReceived(event.frame, self.cameras))
            self.mailbox.put(event)
        outgoing = machine.take_outgoing()
        if self.seal is not None:
            self._send(outgoing, self.seal)
        due_ns = machine.next_due_ns
        if due_ns is not None and due_ns <= self._clock.monotonic_ns():
            self._wake()

    def _send(self, outgoing: list[tuple[tuple[str, ...], bytes]], seal: GroupSeal) -> None:
        by_receiver: dict[str, list[bytes]] = {}
        for receivers, datagram in outgoing:
            sealed = seal.seal(datagram)
            for name in receivers:
                by_receiver.setdefault(name, []).append(sealed)
        for name, packets in by_receiver.items():
            self._send_to(name, packets)

    def _took(self, packet: bytes) -> None:
        """A packet has arrived from anywhere: only what is sealed with the key of this epoch is looked into."""
        if self.machine is None or self.seal is None:
            self._counts["show_packets_early"] += 1
            return
        opened = self.seal.open_untrusted(packet)
        name = self._names.get(opened[0]) if opened is not None else None
        if opened is None or name is None or name == self._server:
            self._counts["show_packets_refused"] += 1
            return
        self.heard_ns[name] = now_ns = self._clock.monotonic_ns()
        for child in self.machine.relay_to(name, opened[1]):
            self._send_to(child, [packet])
        self.machine.receive(name, opened[1], now_ns)

    def _send_to(self, name: str, packets: list[bytes]) -> None:
        if (peer := self.peers.get(name)) is not None:
            address = (peer.host, peer.port)
            self.port.send([(packet, address) for packet in packets])
