"""One UDP socket that carries many datagrams per system call where the kernel can: segmentation offload both ways.

**Out** (GSO, `UDP_SEGMENT`, Linux 4.18): datagrams of one size for one place leave as a *train*, in one call; the last
may be shorter. The kernel refuses trains in some places: a path without checksum offload, a datagram above the MTU of
the path, an old kernel. Then the same datagrams leave one by one, which is counted. After a refusal that will not
change no train is tried any more.

**In** (GRO, `UDP_GRO`, Linux 5.0): datagrams of one sender arrive glued together. They are cut by the size that the
kernel reports beside them and never by lengths that they contain. So nothing a peer writes moves a cut.

Without either, everything works the same, one datagram at a time: 1.5 us each instead of 0.3 us at 1200 bytes.
"""

import errno
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Final

from batonpass.actors.link import Address

__all__ = [
    "MAX_TRAIN_BYTES",
    "MAX_TRAIN_DATAGRAMS",
    "Arrival",
    "DatagramSocket",
    "Outbound",
    "is_loopback_path",
    "segments_of",
]

Outbound = tuple[bytes, Address]
"""A datagram and where it goes."""

_DATAGRAM_OF: Final = itemgetter(0)
_ADDRESS_OF: Final = itemgetter(1)

MAX_TRAIN_DATAGRAMS: Final = 64
"""Linux takes 64 segments (128 since 6.9) in one call..."""

MAX_TRAIN_BYTES: Final = 65_000
"""...and as many bytes as one IP packet has, headers included (65,535)."""

_MOST_IN_TRAIN_BYTES: Final = MAX_TRAIN_BYTES // 2

Arrival = tuple[memoryview, int, Address]
"""What has arrived, the size of each datagram in it (0: it is one), and who sent it."""

ARRIVALS: Final = 8
"""Taken from the kernel before the first of them is opened: what stays in a core's own cache until then."""

RECEIVE_BYTES: Final = 65_536
"""A train that arrives is not longer than one IP packet either."""

_SOL_UDP: Final = 17
_UDP_SEGMENT: Final = 103  # linux/udp.h; the socket module names neither
_UDP_GRO: Final = 104
_IP_MTU: Final = 14  # linux/in.h
_LOOPBACK_MTU_BYTES: Final = 65_535
_SEGMENT: Final = struct.Struct("=H")
_REPORTED: Final = struct.Struct("=i")
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_REPORTED.size)

_REFUSED: Final = frozenset({errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.ENOPROTOOPT, errno.EOPNOTSUPP})
"""What a kernel says that does not take this train. EIO: the interface cannot compute the checksums."""

_LASTING: Final = frozenset({errno.EIO, errno.ENOPROTOOPT, errno.EOPNOTSUPP})
"""Of these: what it will say to every train."""


class DatagramSocket:
    """A bound, non-blocking UDP socket. `counters` counts `trains_out`, `trains_in`, `trains_refused` and
    `socket_errors`.

    Made from a socket that the caller owns and closes.
    """

    def __init__(self, udp: socket.socket, counters: Counter[str]) -> None:
        self._udp = udp
        self._counters = counters
        self._trains = _knows_trains(udp)
        buffers = [bytearray(RECEIVE_BYTES) for _ in range(ARRIVALS)]
        self._batch = [([buffer], memoryview(buffer)) for buffer in buffers]
        self._buffers, self._view = self._batch[0]
        try:
            udp.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        except OSError:  # before Linux 5.0: every datagram arrives alone, and nothing is reported beside it
            counters["gro_refused"] += 1

    @property
    def sends_trains(self) -> bool:
        """Whether the kernel has not refused them for good."""
        return self._trains

    def fileno(self) -> int:
        """For `trio.lowlevel.wait_readable` and `wait_writable`."""
        return self._udp.fileno()

    # In

    def receive(self) -> Arrival:
        """What has arrived, the size of each datagram in it (0: it is one), and who sent it. Budget: 2 us.

        The view is good until the next call. Raises BlockingIOError when there is nothing, OSError when the kernel
        tells that something sent earlier could not be delivered.
        """
        size_bytes, ancillary, _, source = self._udp.recvmsg_into(self._buffers, _ANCILLARY_BYTES)
        if len(source) != 2:
            source = source[:2]  # IPv6 has a flow and a scope, too
        if ancillary:
            return self._view[:size_bytes], _reported_bytes(ancillary), source
        return self._view[:size_bytes], 0, source

    def receive_several(self, most: int = ARRIVALS) -> list[Arrival]:
        """What has arrived, as much as `most` calls get, at most `ARRIVALS`; fewer: there is no more. Budget: 1.5 us
        each.

        The views are good until the next call. An error of something sent earlier is counted, and ends it.
        """
        arrived: list[Arrival] = []
        receive = self._udp.recvmsg_into
        try:
            for buffers, view in self._batch[:most]:
                size_bytes, ancillary, _, source = receive(buffers, _ANCILLARY_BYTES)
                if len(source) != 2:
                    source = source[:2]  # as above
                arrived.append((view[:size_bytes], _reported_bytes(ancillary) if ancillary else 0, source))
        except BlockingIOError:
            pass
        except OSError:
            self._counters["socket_errors"] += 1
        return arrived

    # Out

    def send(self, datagrams: Sequence[Outbound]) -> int:
        """Give these to the kernel, in order; returns how many it took before its buffer was full.

        What it refuses for another reason (no route, too long for the path) counts as sent: it is lost on the way like
        any other. Budget: 2 us for one datagram, 0.4 us for each of a train.
        """
        if len(datagrams) == 1:
            return int(self.send_one(*datagrams[0]))
        at = 0
        end = len(datagrams)
        while at < end:
            datagram, address = datagrams[at]
            # Of the largest there is one in each call anyway.
            count = train_length(datagrams, at) if self._trains and len(datagram) <= _MOST_IN_TRAIN_BYTES else 1
            if not (self._send_train(datagrams[at : at + count]) if count > 1 else self.send_one(datagram, address)):
                return at
            at += count
        return at

    def send_one(self, datagram: bytes, address: Address) -> bool:
        """As `send`, for one; whether the kernel took it."""
        try:
            self._udp.sendto(datagram, address)
        except BlockingIOError:
            return False
        except OSError:
            self._counters["socket_errors"] += 1
        return True

    def _send_train(self, train: Sequence[Outbound]) -> bool:
        """All of it or nothing, as the kernel does."""
        segment = _SEGMENT.pack(len(train[0][0]))
        try:
            self._udp.sendmsg(list(map(_DATAGRAM_OF, train)), ((_SOL_UDP, _UDP_SEGMENT, segment),), 0, train[0][1])
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _REFUSED:
                self._counters["socket_errors"] += 1
                return True
            self._counters["trains_refused"] += 1
            self._trains = error.errno not in _LASTING
            # Full in between: what is left counts as lost on the way, since part of the train has left.
            sent = [self.send_one(*datagram) for datagram in train]
            self._counters["dropped_send_buffer"] += sent.count(False)
        else:
            self._counters["trains_out"] += 1
        return True


def _knows_trains(udp: socket.socket) -> bool:
    """A kernel that does not know them would send a train as one datagram, so it is asked."""
    try:
        udp.getsockopt(_SOL_UDP, _UDP_SEGMENT)
    except OSError:
        return False
    return True


def train_length(datagrams: Sequence[Outbound], at: int) -> int:
    """How many datagrams from `at` on can leave in one call: one place, one size, the last not longer."""
    first, address = datagrams[at]
    size_bytes = len(first)
    if not size_bytes:
        return 1
    room = min(MAX_TRAIN_DATAGRAMS, MAX_TRAIN_BYTES // size_bytes, len(datagrams) - at)
    some = datagrams[at : at + room]
    if [*map(len, map(_DATAGRAM_OF, some))].count(size_bytes) == room == [*map(_ADDRESS_OF, some)].count(address):
        return room
    count = 1
    while count < room:
        datagram, destination = datagrams[at + count]
        if destination is not address and destination != address:
            break
        if len(datagram) != size_bytes:
            # A shorter one ends the train, and an empty one would not be a datagram of it.
            return count + (0 < len(datagram) < size_bytes)
        count += 1
    return count


def segments_of(arrived: bytes, segment_bytes: int) -> list[bytes]:
    """Cut what arrived every `segment_bytes`, the size that the kernel reports; 0, or one not in it: one datagram."""
    if not 0 < segment_bytes < len(arrived):
        return [arrived]
    return [arrived[at : at + segment_bytes] for at in range(0, len(arrived), segment_bytes)]


def _reported_bytes(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == _SOL_UDP and kind == _UDP_GRO and len(data) == _REPORTED.size:
            (size_bytes,) = _REPORTED.unpack(data)
            return int(size_bytes)
    return 0


def is_loopback_path(family: socket.AddressFamily, address: Address) -> bool:
    """Whether the kernel's MTU for the way to `address` is that of loopback."""
    if family != socket.AF_INET:
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return probe.getsockopt(socket.IPPROTO_IP, _IP_MTU) >= _LOOPBACK_MTU_BYTES
    except OSError:
        return False


_LARGEST_KEPT_BYTES: Final = 16 * 1024 * 1024


@cache
def keep_freed_memory() -> None:
    """Let the C library keep what is freed for the next message, instead of giving it back to the kernel each time.

    Sealed datagrams and messages come and go, 2 MiB at a time. glibc returns the end of the heap to the kernel when
    more than 128 KiB of it are free. Getting it back costs one page fault for 4 KiB: half of the time of a message of 1
    MiB, measured. glibc learns from the first large block that is freed (the dynamic threshold in mallopt(3)). Blocks
    of up to its size are then recycled, and up to twice its size stays free. So one is made and freed, never touched,
    so that it costs 10 us and no memory. Elsewhere this does nothing. Once is enough: a second block would be recycled
    memory, which is cleared, and that takes 15 ms.
    """
    bytes(_LARGEST_KEPT_BYTES)
