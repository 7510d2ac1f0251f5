"""The run's end of the socket to a member process: many requests at a time, each with its own deadline."""

import json
from pathlib import Path
from typing import Any, Final

import trio

__all__ = ["MemberGone", "MemberLink", "MemberSilent", "NotAccepted"]

_CONNECT_RETRY_S: Final = 0.01


class MemberGone(Exception):
    """The member's process ended. What was asked of it may have been done."""


class MemberSilent(Exception):
    """The member did not answer in time. What was asked of it may have been done, or may yet be."""


class NotAccepted(Exception):
    """The member answered with an error.

    Attributes:
        code: `no_quorum` (certainly not done), `outcome_unknown` (as `MemberSilent`), `aborted` (refused, not done), or
            that of a refused change of the members.
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code: Final = code


class MemberLink:
    """A connection to one life of a member process. Run `serve`; `ask` from any number of tasks."""

    def __init__(self, name: str, socket: Path) -> None:
        self.name: Final = name
        self._socket: Final = socket
        self._stream: trio.SocketStream | None = None
        self._number = 0
        self._waiting: dict[int, tuple[trio.Event, list[dict[str, Any]]]] = {}
        self._outbox: list[bytes] = []
        self._wake = trio.Event()
        self.gone = False

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect, as soon as the member listens, and pass replies on until the connection ends."""
        try:
            stream = await self._connect()
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._send, stream)
                task_status.started()
                await self._receive(stream)
                nursery.cancel_scope.cancel()
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        """All that wait for an answer will get none."""
        self.gone = True
        for answered, _ in self._waiting.values():
            answered.set()

    async def ask(self, op: str, *, within_s: float, **arguments: Any) -> Any:
        """Ask the member and return its value.

        Raises:
            MemberGone: its process ended.
            NoAnswer: it did not answer within `within_s`.
            NotAccepted: it answered with an error.
        """
        if self.gone:
            raise MemberGone(self.name)
        self._number += 1
        number = self._number
        answered, replies = self._waiting[number] = (trio.Event(), [])
        self._outbox.append(json.dumps({"number": number, "op": op, **arguments}).encode() + b"\n")
        self._wake.set()
        try:
            with trio.move_on_after(within_s):
                await answered.wait()
        finally:
            del self._waiting[number]
        if replies:
            return _value_of(replies[0])
        if self.gone:
            raise MemberGone(self.name)
        raise MemberSilent(f"{self.name} did not answer {op} within {within_s} s")

    async def _connect(self) -> trio.SocketStream:
        while True:
            try:
                return await trio.open_unix_socket(str(self._socket))
            except OSError:
                await trio.sleep(_CONNECT_RETRY_S)

    async def _send(self, stream: trio.SocketStream) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                lines, self._outbox = self._outbox, []
                await stream.send_all(b"".join(lines))
        except trio.BrokenResourceError:
            self.hang_up()

    async def _receive(self, stream: trio.SocketStream) -> None:
        buffer = b""
        try:
            async for chunk in stream:
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    reply = json.loads(line)
                    waiting = self._waiting.get(reply["number"])
                    if waiting is not None:
                        waiting[1].append(reply)
                        waiting[0].set()
        except trio.BrokenResourceError:
            return


def _value_of(reply: dict[str, Any]) -> Any:
    if "error" in reply:
        raise NotAccepted(reply["error"], reply.get("message", ""))
    return reply["value"]
