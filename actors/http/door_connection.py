"""One connection of a door: what waits for its client, and how much that may be.

Frames of states wait nowhere: a client that has not taken the last message is told none, and later what it missed, once
(`simserver.players.topics`). Everything else is kept in order until it is sent. What replaces an earlier word about the
same, such as the next acknowledgement, takes its place; nothing else is ever left out. So a client for which more
waits than `DoorWaiting` allows is cut off.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import trio

from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.prompt import PromptSender

__all__ = ["MAX_WAITING", "MAX_WAITING_BYTES", "DoorConnection", "DoorWaiting"]

MAX_WAITING: Final = 1024
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024


class DoorWaiting(NamedTuple):
    """How much may wait for a client that does not take it: messages, and bytes in all of them."""

    messages: int = MAX_WAITING
    in_bytes: int = MAX_WAITING_BYTES


class DoorConnection:
    """A client that was let in. `player` is empty for an observer.

    Args:
        encode: makes of a message what is sent.
        caught_up: is called when the client has taken all that it was told, after it had not.
        bounds: of what waits for it.
    """

    def __init__(
        self,
        player: str,
        sender: PromptSender,
        encode: Callable[[Any], str | bytes],
        caught_up: Callable[[], None] | None = None,
        bounds: DoorWaiting | None = None,
    ) -> None:
        self.player: Final = player
        self._sender: Final = sender
        self._encode: Final = encode
        self._caught_up: Final = caught_up
        self._bounds: Final = bounds or DoorWaiting()
        self._waiting: Final[dict[object, str | bytes]] = {}
        self._waiting_bytes = 0
        self._refusal: DoorRefused | None = None
        self._needs_task = trio.Event()
        self.is_ready = True
        """Its client has taken all that it was told."""

    @property
    def waiting_bytes(self) -> int:
        """What waits for its client; of a text, its characters."""
        return self._waiting_bytes

    @property
    def is_refused(self) -> bool:
        """Its client is told nothing more."""
        return self._refusal is not None

    def tell_frame(self, frame: str | bytes) -> bool:
        """Send a frame of states, unless the client has not taken the last message; whether it is sent."""
        if not self.is_ready:
            return False
        self._send(frame)
        return True

    def tell(self, message: Any, about: object = None) -> None:
        """Send a message; `about` names what it is the latest word about, so that it replaces the one before."""
        if self._refusal is not None:
            return
        data = self._encode(message)
        if self.is_ready:
            self._send(data)
            return
        key = object() if about is None else about
        replaced = self._waiting.get(key)
        size_bytes = self._waiting_bytes + len(data) - len(replaced or b"")
        if (replaced is None and len(self._waiting) >= self._bounds.messages) or size_bytes > self._bounds.in_bytes:
            text = (
                f"{len(self._waiting)} messages of {self._waiting_bytes} bytes wait for this client, which takes none"
            )
            self.refuse(DoorRefused("too_slow", text))
            return
        self._waiting[key] = data
        self._waiting_bytes = size_bytes

    def refuse(self, refusal: DoorRefused) -> None:
        """Its client is told nothing more: `serve` raises this."""
        self._refusal = self._refusal or refusal
        self._waiting.clear()
        self._waiting_bytes = 0
        self._be_behind()

    def _send(self, data: str | bytes) -> None:
        try:
            is_sent = self._sender.send_now(data)
        except trio.BrokenResourceError:
            is_sent = False
        if not is_sent:
            self._be_behind()

    def _be_behind(self) -> None:
        """From now on it is told by `serve`, until it has taken all."""
        self.is_ready = False
        self._needs_task.set()

    async def serve(self) -> None:
        """Do what needs a wait, until the client is refused. Raises DoorRefused, and what sending raises."""
        while True:
            await self._needs_task.wait()
            await self._sender.flush()
            while self._waiting and self._refusal is None:
                data = self._waiting.pop(next(iter(self._waiting)))
                self._waiting_bytes -= len(data)
                if not self._sender.send_now(data):
                    await self._sender.flush()
            if self._refusal is not None:
                raise self._refusal
            self._needs_task = trio.Event()
            self.is_ready = True
            if self._caught_up is not None:
                self._caught_up()
