"""One connection of the players' door: what waits for its client, and how much that may be.

Frames of states wait nowhere: a client that has not taken the last message is told none, and later what it missed, once
(`topics`). Everything else is kept in order until it is sent. What replaces an earlier word about the same, such as
the next acknowledgement, takes its place; so it is bounded by what a client asks for, and a client for which
`MAX_WAITING` messages wait is cut off.
"""

from collections.abc import Callable
from typing import Final

import trio

from batonpass.actors.http.prompt import PromptSender
from batonpass.authority.wire.door import FromDoor, encode_door

__all__ = ["MAX_WAITING", "DoorConnection", "DoorRefused"]

MAX_WAITING: Final = 1024


class DoorRefused(Exception):
    """A client may not have what it asks for, or not be here at all; `code` is stable (docs/players-door.md)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code: Final = code


class DoorConnection:
    """A client that was let in. `player` is empty for an observer.

    Args:
        caught_up: is called when the client has taken all that it was told, after it had not.
    """

    def __init__(self, player: str, sender: PromptSender, caught_up: Callable[[], None]) -> None:
        self.player: Final = player
        self._sender: Final = sender
        self._caught_up: Final = caught_up
        self._waiting: Final[dict[object, bytes]] = {}
        self._refusal: DoorRefused | None = None
        self._needs_task = trio.Event()

    @property
    def is_ready(self) -> bool:
        """Its client has taken all that it was told."""
        return not self._needs_task.is_set()

    def tell_frame(self, frame: bytes) -> bool:
        """Send a frame of states, unless the client has not taken the last message; whether it is sent."""
        if self._needs_task.is_set():
            return False
        self._send(frame)
        return True

    def tell(self, message: FromDoor, about: object = None) -> None:
        """Send a message; `about` names what it is the latest word about, so that it replaces the one before."""
        data = encode_door(message)
        if not self._needs_task.is_set():
            self._send(data)
            return
        key = object() if about is None else about
        if key not in self._waiting and len(self._waiting) >= MAX_WAITING:
            self.refuse(DoorRefused("too_slow", f"{MAX_WAITING} messages wait for this client, which takes none"))
            return
        self._waiting[key] = data

    def refuse(self, refusal: DoorRefused) -> None:
        """Its client is told nothing more: `serve` raises this."""
        self._refusal = self._refusal or refusal
        self._needs_task.set()

    def _send(self, data: bytes) -> None:
        try:
            is_sent = self._sender.send_now(data)
        except trio.BrokenResourceError:
            is_sent = False
        if not is_sent:
            self._needs_task.set()

    async def serve(self) -> None:
        """Do what needs a wait, until the client is refused. Raises DoorRefused, and what sending raises."""
        while True:
            await self._needs_task.wait()
            await self._sender.flush()
            while self._waiting and self._refusal is None:
                key = next(iter(self._waiting))
                if not self._sender.send_now(self._waiting.pop(key)):
                    await self._sender.flush()
            if self._refusal is not None:
                raise self._refusal
            self._needs_task = trio.Event()
            self._caught_up()
