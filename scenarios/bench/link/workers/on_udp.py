"""Plain UDP, the floor: nothing is secret, nothing is sure to arrive.

`blocking-...` with blocking sockets, `trio-...` with trio's. Datagrams that are lost on the way are made up for by the
next burst. The window is kept by what comes back, and a pause of 50 ms sends it anew.
"""

import socket
import sys

import trio

from batonpass.scenarios.bench.link.workers.conversation import (
    COUNTED,
    COUNTED_WINDOWS,
    SMALL,
    WINDOW,
    Stopwatch,
    answer_to,
    async_rtt,
    other_end,
    ready,
    rtt,
)
from batonpass.scenarios.bench.loops import arguments, tell

MODULE = "batonpass.scenarios.bench.link.workers.on_udp"
_BUFFER_BYTES = 4 * 1024 * 1024
_PAUSE_S = 0.05


def opened() -> socket.socket:
    """A socket on a port of its own."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    udp.bind(("127.0.0.1", 0))
    return udp


def serve_blocking() -> None:
    """Send back what comes, until the process is ended."""
    with opened() as udp:
        ready(udp.getsockname()[1])
        while True:
            data, source = udp.recvfrom(2048)
            answer = answer_to(data)
            if answer is not None:
                udp.sendto(answer, source)


async def serve_trio() -> None:
    """Send back what comes, until the process is ended."""
    udp = trio.socket.from_stdlib_socket(opened())
    ready(udp.getsockname()[1])
    while True:
        data, source = await udp.recvfrom(2048)
        answer = answer_to(data)
        if answer is not None:
            await udp.sendto(answer, source)


def one_way_blocking(udp: socket.socket, watch: Stopwatch) -> float:
    """Counted messages. Without an answer, some of a window were lost."""
    for _ in range((COUNTED_WINDOWS - 1) * WINDOW):
        udp.send(COUNTED)
    while True:
        for _ in range(WINDOW):
            udp.send(COUNTED)
        try:
            udp.recv(2048)
            came = WINDOW
        except TimeoutError:
            came = 0
        if not watch.count(came):
            return watch.per_second


async def one_way_trio(udp: trio.socket.SocketType, watch: Stopwatch) -> float:
    """As `one_way_blocking`."""
    for _ in range((COUNTED_WINDOWS - 1) * WINDOW):
        await udp.send(COUNTED)
    while True:
        for _ in range(WINDOW):
            await udp.send(COUNTED)
        with trio.move_on_after(_PAUSE_S) as pause:
            await udp.recv(2048)
        if not watch.count(0 if pause.cancelled_caught else WINDOW):
            return watch.per_second


def measure_blocking(work: str, seconds: float) -> float:
    """Round trips, echoes, or messages one way."""
    with other_end(MODULE, "blocking") as (port,), opened() as udp:
        udp.connect(("127.0.0.1", int(port)))
        if work == "rtt":

            def there_and_back() -> None:
                udp.send(SMALL)
                udp.recv(2048)

            return rtt(there_and_back, seconds)
        udp.settimeout(_PAUSE_S)
        watch = Stopwatch(seconds)
        if work == "messages":
            return one_way_blocking(udp, watch)
        while True:
            for _ in range(WINDOW):
                udp.send(SMALL)
            came = 0
            try:
                while came < WINDOW:
                    udp.recv(2048)
                    came += 1
            except TimeoutError:
                pass
            if not watch.count(came):
                return watch.per_second


async def measure_trio(work: str, seconds: float) -> float:
    """Round trips, echoes, or messages one way."""
    with other_end(MODULE, "trio") as (port,):
        udp = trio.socket.from_stdlib_socket(opened())
        await udp.connect(("127.0.0.1", int(port)))
        if work == "rtt":

            async def there_and_back() -> None:
                await udp.send(SMALL)
                await udp.recv(2048)

            return await async_rtt(there_and_back, seconds)
        watch = Stopwatch(seconds)
        if work == "messages":
            return await one_way_trio(udp, watch)
        while True:
            for _ in range(WINDOW):
                await udp.send(SMALL)
            came = 0
            with trio.move_on_after(_PAUSE_S):
                while came < WINDOW:
                    await udp.recv(2048)
                    came += 1
            if not watch.count(came):
                return watch.per_second


if __name__ == "__main__":
    todo, duration_s = arguments("trio")
    if todo == "serve":
        serve_blocking() if sys.argv[3] == "blocking" else trio.run(serve_trio)
    else:
        kind, _, what = todo.partition("-")
        tell(measure_blocking(what, duration_s) if kind == "blocking" else trio.run(measure_trio, what, duration_s))
