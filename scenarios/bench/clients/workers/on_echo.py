"""A bare WebSocket by wsproto: what clients send is echoed, and every tick they are all told the time.

What the operating system, Python and wsproto ask for the same bytes, in messages as long as the door's. Nothing that
speaks WebSockets in Python by wsproto could be below it.
"""

import selectors
import socket
import sys
import time
from contextlib import suppress
from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request

from batonpass.scenarios.bench.clients.workers.door_load import TICK_HZ, BareDialect, LoadedServer, figures_of
from batonpass.scenarios.bench.events.workers.stream_load import served_by
from batonpass.scenarios.bench.loops import arguments, tell_all

__all__ = ["main"]

MODULE: Final = "batonpass.scenarios.bench.clients.workers.on_echo"
MESSAGE_BYTES: Final = 900
"""About what a door tells of 100 robots."""


def serve(port: int) -> None:
    """Serve until killed."""
    selector, listener = selectors.DefaultSelector(), socket.create_server(("127.0.0.1", port), backlog=1024)
    selector.register(listener, selectors.EVENT_READ, None)
    wires: dict[socket.socket, WSConnection] = {}
    began_s, tick = time.monotonic(), 0
    while True:
        for key, _ in selector.select(max(0.0, began_s + (tick + 1) / TICK_HZ - time.monotonic())):
            if key.data is None:
                peer, _address = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wires[peer] = WSConnection(ConnectionType.SERVER)
                selector.register(peer, selectors.EVENT_READ, peer)
                continue
            peer = key.data
            if not _goes_on(peer, wires[peer]):
                selector.unregister(peer)
                del wires[peer]
                peer.close()
        if time.monotonic() >= began_s + (tick + 1) / TICK_HZ:
            tick += 1
            message = BytesMessage(data=(b"@%020d" % time.monotonic_ns()).ljust(MESSAGE_BYTES, b" "))
            for peer, wire in [each for each in wires.items() if each[1].state is ConnectionState.OPEN]:
                # One that has closed meanwhile is noticed when it is read.
                with suppress(OSError):
                    peer.sendall(wire.send(message))


def _goes_on(peer: socket.socket, wire: WSConnection) -> bool:
    """Answer what came; whether the connection continues."""
    try:
        came = peer.recv(65536)
        return bool(came) and _answer(peer, wire, came)
    except OSError:
        return False


def _answer(peer: socket.socket, wire: WSConnection, came: bytes) -> bool:
    wire.receive_data(came)
    for event in wire.events():
        match event:
            case Request():
                peer.sendall(wire.send(AcceptConnection()))
            case BytesMessage(data=data):
                peer.sendall(wire.send(BytesMessage(data=bytes(data))))
            case Ping():
                peer.sendall(wire.send(event.response()))
            case CloseConnection():
                return False
            case _:
                pass
    return True


def main() -> None:
    """As `side_by_side` asks."""
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    work, seconds = arguments("wsproto")
    with served_by((sys.executable, "-m", MODULE, "serve")) as (port, pid):
        clients = int(work.rpartition("-")[2])
        tell_all(figures_of(LoadedServer.measured(BareDialect(port), pid, clients, 5 * seconds, steers=True)))


if __name__ == "__main__":
    main()
