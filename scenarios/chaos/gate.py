"""Holding servers still at named steps: the other end of `actors.base.breakpoints`."""

import json
import socket
from dataclasses import dataclass, field
from pathlib import Path

import trio

__all__ = ["Gate", "Hold"]

_MAX_LINE_BYTES = 4096


@dataclass
class Hold:
    """One server at one step. It is held from `reached` on, until it is let go."""

    step: str
    subject: str
    server: str = ""
    reached: trio.Event = field(default_factory=trio.Event)
    _let_go: trio.Event = field(default_factory=trio.Event)

    def let_go(self) -> None:
        """It continues, if it is alive."""
        self._let_go.set()


class Gate:
    """Where servers tell of the steps that they reach, and wait to be released. Serves on a Unix socket at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps: list[tuple[str, str, str]] = []
        """Every (server, step, subject) so far."""
        self._holds: dict[tuple[str, str], Hold] = {}

    def hold(self, step: str, subject: str) -> Hold:
        """The first server that reaches this step about this subject will be held there."""
        hold = self._holds[step, subject] = Hold(step, subject)
        return hold

    def reset(self) -> None:
        """Hold no connection any more."""
        for hold in self._holds.values():
            hold.let_go()
        self._holds.clear()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer servers, until cancelled; then all of them continue for ever."""
        with trio.socket.socket(socket.AF_UNIX) as listener:
            await listener.bind(str(self.path))
            listener.listen(64)
            task_status.started()
            async with trio.open_nursery() as nursery:
                while True:
                    connection, _ = await listener.accept()
                    nursery.start_soon(self._converse, trio.SocketStream(connection))

    async def _converse(self, stream: trio.SocketStream) -> None:
        waiting = b""
        async with stream:
            try:
                async for data in stream:
                    *lines, waiting = (waiting + data)[:_MAX_LINE_BYTES].split(b"\n")
                    for line in lines:
                        await self._pass(*json.loads(line))
                        await stream.send_all(b"\n")
            except trio.BrokenResourceError:
                # It was killed, as likely as not where it stood.
                return

    async def _pass(self, server: str, step: str, subject: str) -> None:
        self.steps.append((server, step, subject))
        hold = self._holds.pop((step, subject), None)
        if hold is not None:
            hold.server = server
            hold.reached.set()
            await hold._let_go.wait()
