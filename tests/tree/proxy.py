"""A TCP proxy on loopback that can misbehave: cut connections, hold back answers, fall silent, lead elsewhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

__all__ = ["Proxy", "running_proxy"]

_BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class _Period:
    """The connections that were made between two disturbances."""

    def __init__(self) -> None:
        self.answers_flow = trio.Event()
        self.answers_flow.set()
        self.scopes: set[trio.CancelScope] = set()

    async def forward(self, source: trio.SocketStream, target: trio.SocketStream, *, is_answer: bool) -> None:
        async for data in source:
            if is_answer:
                await self.answers_flow.wait()
            await target.send_all(data)


class Proxy:
    """Forwards to `target_port`. What is asked for applies at once."""

    def __init__(self, port: int, target_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.target_port = target_port
        self._refuses = False
        self._period = _Period()

    def cut(self) -> None:
        """Close every connection, and new ones as soon as they come."""
        self._refuses = True
        self.forget_answers()

    def mend(self) -> None:
        """After `cut`: let new connections through."""
        self._refuses = False

    def hold_answers(self) -> None:
        """Let requests through and keep what comes back, without closing anything."""
        self._period.answers_flow = trio.Event()

    def serve_new_connections(self) -> None:
        """After `hold_answers`: new connections are as usual, the others stay silent for ever."""
        self._period = _Period()

    def forget_answers(self) -> None:
        """Close all connections, with what was held back; new ones are as usual."""
        period, self._period = self._period, _Period()
        for scope in period.scopes:
            scope.cancel()

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection."""
        if self._refuses:
            return
        period = self._period
        with suppress(OSError):
            async with await trio.open_tcp_stream("127.0.0.1", self.target_port) as server:
                async with trio.open_nursery() as nursery:
                    period.scopes.add(nursery.cancel_scope)

                    async def forward(source: trio.SocketStream, target: trio.SocketStream, is_answer: bool) -> None:
                        with suppress(*_BROKEN):
                            await period.forward(source, target, is_answer=is_answer)
                        nursery.cancel_scope.cancel()

                    nursery.start_soon(forward, client, server, False)
                    nursery.start_soon(forward, server, client, True)
                period.scopes.discard(nursery.cancel_scope)


@asynccontextmanager
async def running_proxy(target_port: int) -> AsyncIterator[Proxy]:
    """A proxy until the block ends."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy = Proxy(listener.socket.getsockname()[1], target_port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, proxy.serve, [listener])
        yield proxy
        nursery.cancel_scope.cancel()
