"""A server that does nothing: it tells every WebSocket the time in ticks, and answers every request with it.

What the operating system and Python ask for the same bytes: nothing could be below it.
"""

import base64
import hashlib
import re
import selectors
import socket
import struct
import sys
import time
from typing import Final

from batonpass.scenarios.bench.events.workers.stream_load import TICK_S, loaded, served_by
from batonpass.scenarios.bench.loops import arguments, tell_all

__all__ = ["main"]

MODULE: Final = "batonpass.scenarios.bench.events.workers.on_ideal"
_ACCEPTS: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY: Final = re.compile(rb"sec-websocket-key:\s*(\S+)", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)


def _reply(tick: int) -> bytes:
    text = f'{{"T":{tick},"Events":[],"States":[],"ProxyId":"1","Incarnation":"{0:032x}","Acked":0,"Oldest":1}}'
    return text.encode()


def serve(port: int) -> None:
    """Serve until killed."""
    selector, listener = selectors.DefaultSelector(), socket.create_server(("127.0.0.1", port), backlog=1024)
    selector.register(listener, selectors.EVENT_READ, None)
    buffers: dict[socket.socket, bytearray] = {}
    pushed: set[socket.socket] = set()
    began_s, tick = time.monotonic(), 0
    while True:
        for key, _ in selector.select(max(0.0, began_s + (tick + 1) * TICK_S - time.monotonic())):
            if key.data is None:
                peer, _address = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                buffers[peer] = bytearray()
                selector.register(peer, selectors.EVENT_READ, peer)
                continue
            peer = key.data
            came = peer.recv(65536)
            if not came:
                selector.unregister(peer)
                pushed.discard(peer)
                del buffers[peer]
                peer.close()
            elif peer not in pushed:
                buffers[peer] += came
                _answer(peer, buffers[peer], pushed, tick)
        if time.monotonic() >= began_s + (tick + 1) * TICK_S:
            tick += 1
            text = _reply(tick)
            size = bytes((len(text),)) if len(text) < 126 else struct.pack("!BH", 126, len(text))
            frame = b"\x81" + size + text
            for peer in pushed:
                peer.sendall(frame)


def _answer(peer: socket.socket, buffer: bytearray, pushed: set[socket.socket], tick: int) -> None:
    end = buffer.find(b"\r\n\r\n") + 4
    if end < 4:
        return
    if (found := _KEY.search(buffer, 0, end)) is not None:
        accepts = base64.b64encode(hashlib.sha1(found[1] + _ACCEPTS, usedforsecurity=False).digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        peer.sendall(head + b"Sec-WebSocket-Accept: " + accepts + b"\r\n\r\n")
        buffer.clear()
        pushed.add(peer)
        return
    found = _LENGTH.search(buffer, 0, end)
    if len(buffer) >= end + (int(found[1]) if found else 0):
        del buffer[:]
        text = _reply(tick)
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)


def main() -> None:
    """As `side_by_side` asks."""
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    work, seconds = arguments("batonpass")
    tell_all(loaded(work, seconds, served_by((sys.executable, "-m", MODULE, "serve"))))


if __name__ == "__main__":
    main()
