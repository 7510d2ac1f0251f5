"""Open dashboards, as a homeserver sees them: each has a stream, and asks for its page of entities once a second.

What comes is thrown away: browsers run on other machines, and what they do with it costs a cluster nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import trio

__all__ = ["DASHBOARDS", "dashboards_open", "until_told"]

DASHBOARDS: Final = 20
AGAIN_S: Final = 1.0
_CHUNK: Final = 64 * 1024


@asynccontextmanager
async def dashboards_open(url: str, count: int = DASHBOARDS) -> AsyncIterator[list[int]]:
    """Have dashboards open at a homeserver until the block ends; gives how many bytes each has had by then.

    The block begins when each has been told something.

    Raises:
        ConnectionError: a stream has ended meanwhile.
    """
    had = [0] * count
    async with trio.open_nursery() as nursery:
        for number in range(count):
            await nursery.start(_look_on, url, had, number)
            nursery.start_soon(_list, url)
        yield had
        nursery.cancel_scope.cancel()


async def until_told(url: str, word: bytes, do: Callable[[], Awaitable[object]]) -> float:
    """How many seconds after this was done somebody who looks on is told something with this word in it."""
    async with await _connected(url) as stream:
        await _ask(stream, url, "/v1/live")
        await _more(stream)
        await do()
        began_s, told = trio.current_time(), b""
        while word not in told:
            # A piece may come in parts.
            told = told[-len(word) :] + await _more(stream)
        return trio.current_time() - began_s


async def _look_on(
    url: str, had: list[int], number: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    async with await _connected(url) as stream:
        await _ask(stream, url, "/v1/live")
        head = b""
        while b"event: map" not in head:
            head += await _more(stream)
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(f"{url} lets nobody look on: {head[:100]!r}")
        task_status.started()
        while True:
            had[number] += len(await _more(stream))


async def _list(url: str) -> None:
    async with await _connected(url) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(_take, stream)
        with suppress(trio.BrokenResourceError):
            while True:
                await _ask(stream, url, "/v1/entities?limit=50")
                await trio.sleep(AGAIN_S)


async def _take(stream: trio.SocketStream) -> None:
    while await stream.receive_some(_CHUNK):
        pass


async def _connected(url: str) -> trio.SocketStream:
    parts = urlsplit(url)
    return await trio.open_tcp_stream(parts.hostname or "", parts.port or 80)


async def _ask(stream: trio.SocketStream, url: str, target: str) -> None:
    await stream.send_all(f"GET {target} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\n\r\n".encode())


async def _more(stream: trio.SocketStream) -> bytes:
    piece = await stream.receive_some(_CHUNK)
    if not piece:
        raise ConnectionError("the stream of a dashboard has ended")
    return bytes(piece)
