"""The UDP socket of a node of a show: frames are too many for the link, and each leaves once for all its receivers.

What arrives is read within bounds at each wake, and handed on sealed as it is. What the kernel does not take at once
waits within a bound; beyond that it is lost as if on the way, and counted.
"""

import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

import trio

from batonpass.actors.net.datagrams import ARRIVALS, DatagramSocket, Outbound, segments_of

__all__ = ["MAX_PACKET_BYTES", "MAX_WAITING_BYTES", "DatagramPort"]

READS_PER_WAKE: Final = 16
"""System calls, after which the other tasks of the server have their turn."""
MAX_WAITING_BYTES: Final = 128 * 1024 * 1024
"""Of what the kernel has not taken yet: a state of the largest size for two receivers."""
MAX_PACKET_BYTES: Final = 65_507
_BUFFER_BYTES: Final = 8 * 1024 * 1024


class DatagramPort:
    """One bound socket.

    Args:
        took: called with each packet that has arrived.
        turn_over: called after the packets of a wake.
        counts: `show_packets_in`, `show_packets_out`, `show_packets_dropped`, and those of `DatagramSocket`.
    """

    def __init__(self, took: Callable[[bytes], None], turn_over: Callable[[], None], counts: Counter[str]) -> None:
        self._took: Final = took
        self._turn_over: Final = turn_over
        self._counts: Final = counts
        self._socket: DatagramSocket | None = None
        self._closing = ExitStack()
        self._waiting: Final[deque[Outbound]] = deque()
        self._waiting_bytes = 0
        self._has_waiting = trio.Event()
        self.address: tuple[str, int] = ("", 0)
        """Where it is bound, once it is."""

    def bind(self, host: str) -> None:
        """Take a free port of this host; `close` frees it. Raises OSError: it cannot be bound."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with ExitStack() as closing:
            udp = closing.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            udp.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                udp.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            udp.bind((host, 0))
            self.address = udp.getsockname()[:2]
            self._socket = DatagramSocket(udp, self._counts)
            self._closing = closing.pop_all()

    async def serve(self) -> None:
        """Receive, and send what waits, until cancelled. Also after that `send` sends, until `close`."""
        if self._socket is None:
            raise RuntimeError("the socket of this node is not bound: call `bind` first")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_waiting)
            await self._receive(self._socket)

    def close(self) -> None:
        """Close the socket, once `serve` has ended; nothing happens if it is not bound."""
        self._socket = None
        self._closing.close()

    def send(self, packets: Iterable[Outbound]) -> None:
        """Send these, in order; those for one address that follow each other leave together."""
        if self._socket is None:
            return
        batch = list(packets)
        self._counts["show_packets_out"] += len(batch)
        sent = 0 if self._waiting else self._socket.send(batch)
        for packet in batch[sent:]:
            if self._waiting_bytes + len(packet[0]) > MAX_WAITING_BYTES:
                self._counts["show_packets_dropped"] += 1
                continue
            self._waiting.append(packet)
            self._waiting_bytes += len(packet[0])
        if self._waiting:
            self._has_waiting.set()

    async def _receive(self, udp: DatagramSocket) -> None:
        while True:
            await trio.lowlevel.wait_readable(udp)
            for _ in range(READS_PER_WAKE):
                arrived = udp.receive_several()
                for view, segment_bytes, _source in arrived:
                    packets = segments_of(bytes(view), segment_bytes)
                    self._counts["show_packets_in"] += len(packets)
                    for packet in packets:
                        self._took(packet)
                if len(arrived) < ARRIVALS:
                    break
            self._turn_over()

    async def _send_waiting(self) -> None:
        while True:
            await self._has_waiting.wait()
            while self._waiting and self._socket is not None:
                await trio.lowlevel.wait_writable(self._socket)
                some = [self._waiting[at] for at in range(min(len(self._waiting), 64))]
                for _ in range(self._socket.send(some)):
                    self._waiting_bytes -= len(self._waiting.popleft()[0])
            self._has_waiting = trio.Event()
