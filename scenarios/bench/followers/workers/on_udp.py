"""Bare UDP: each state in pieces to one receiver after the other, who join them. What is lost stays lost.

The socket is the same as ours, so that the kernel is asked the same way. There is no repair, no seal, no signature, no
digest and no acknowledgement.
"""

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from batonpass.actors.net.datagrams import DatagramSocket, segments_of
from batonpass.scenarios.bench.followers.course import ShowShape
from batonpass.scenarios.bench.followers.workers.processes import (
    CONTROLLER,
    HOST,
    FrameNotes,
    NodeAddress,
    NodeLine,
    StateOfFrame,
    run_worker,
)
from batonpass.simserver.sync.followers.settings import LOOPBACK_PIECE_BYTES

__all__ = ["main"]

MODULE: Final = "batonpass.scenarios.bench.followers.workers.on_udp"
_HEADER: Final = struct.Struct("<QII")
_PIECE_BYTES: Final = LOOPBACK_PIECE_BYTES
_BUFFER_BYTES: Final = 8 * 1024 * 1024
_OPEN_FRAMES: Final = 8


def _node(number: int, shape: ShowShape, line: NodeLine) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            udp.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        udp.bind((HOST, 0))
        addresses = line.exchange(NodeAddress(udp.getsockname()[1]))
        datagrams, notes, state = DatagramSocket(udp, Counter()), FrameNotes(), StateOfFrame(shape.state_bytes)
        if number == CONTROLLER:
            _send_frames(datagrams, shape, state, notes, line, addresses[1:])
        else:
            _receive_frames(datagrams, state, notes, line)
        line.report(notes)


def _send_frames(
    datagrams: DatagramSocket,
    shape: ShowShape,
    state: StateOfFrame,
    notes: FrameNotes,
    line: NodeLine,
    followers: Sequence[NodeAddress],
) -> None:
    began_ns, frame = time.monotonic_ns(), 0
    while True:
        # A number whose time is over is passed over, as a show does.
        frame = max(frame + 1, (time.monotonic_ns() - began_ns) * shape.rate // 1_000_000_000)
        due_ns = began_ns + frame * 1_000_000_000 // shape.rate
        if select.select((line,), (), (), max(0.0, (due_ns - time.monotonic_ns()) / 1e9))[0]:
            return
        payload = state(frame)
        notes.note(frame, time.monotonic_ns())
        count = -(-len(payload) // _PIECE_BYTES)
        pieces = [
            _HEADER.pack(frame, at, count) + payload[at * _PIECE_BYTES : (at + 1) * _PIECE_BYTES] for at in range(count)
        ]
        for follower in followers:
            address = (HOST, follower.port)
            left = [(piece, address) for piece in pieces]
            while left := left[datagrams.send(left) :]:
                select.select((), (datagrams,), ())


def _receive_frames(datagrams: DatagramSocket, state: StateOfFrame, notes: FrameNotes, line: NodeLine) -> None:
    frames: dict[int, list[bytes | None]] = {}
    left: Counter[int] = Counter()
    while True:
        select.select((datagrams.fileno(), line.fileno()), (), ())
        if select.select((line.fileno(),), (), (), 0.0)[0]:
            return
        for view, segment_bytes, _ in datagrams.receive_several():
            for datagram in segments_of(bytes(view), segment_bytes):
                frame, at, count = _HEADER.unpack_from(datagram)
                parts = frames.get(frame)
                if parts is None:
                    parts = frames[frame] = [None] * count
                    left[frame] = count
                    for old in [number for number in frames if number <= frame - _OPEN_FRAMES]:
                        del frames[old], left[old]
                parts[at] = datagram[_HEADER.size :]
                left[frame] -= 1
                if not left[frame]:
                    state.check(frame, b"".join(part for part in parts if part is not None))
                    notes.note(frame, time.monotonic_ns())
                    del frames[frame], left[frame]


def main() -> None:
    """As `side_by_side` asks."""
    run_worker(MODULE, _node)


if __name__ == "__main__":
    main()
