"""The way home over a door that is open anyhow: what this client and a homeserver say to each other goes over it.

So a client that sees something, or steers something, has one connection for all: states, inputs, requests and events.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

import anyio

from batonpass.authority.wire.door import HomeOver, HomeWord
from batonpass.client.socket import DoorClosed

__all__ = ["HomeChannel", "WayOverDoor"]


class WayOverDoor(Protocol):
    """A door over which a homeserver may be reached."""

    def open_home(self) -> "HomeChannel":
        """Talk to a homeserver over it, the next one each time. Raises DoorClosed: it is not open."""

    def leads_nowhere(self) -> None:
        """No homeserver was reached over it."""


class HomeChannel:
    """A conversation with a homeserver over a door, used as a socket of its own (`DoorSocket`).

    Args:
        say: sends a message over the door; whether it was sent.
    """

    def __init__(self, say: Callable[[HomeWord | HomeOver], bool]) -> None:
        self._say: Final = say
        self._has_begun = False
        self._heard: Final[deque[bytes]] = deque()
        self._has_news = anyio.Event()
        self._ended: DoorClosed | None = None
        if not say(HomeWord()):
            raise DoorClosed("the door is not open")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Say that it is over."""
        await self.break_off()

    async def break_off(self) -> None:
        """End it; the door stays open."""
        if self._ended is None:
            self._say(HomeOver())
            self.end(DoorClosed("it was ended here"))

    async def send(self, data: bytes) -> None:
        """Send a message. Raises DoorClosed."""
        if self._ended is not None or not self._say(HomeWord(data=data)):
            raise self._ended or DoorClosed("the door is not open")

    async def receive(self) -> bytes:
        """The next message. Raises DoorClosed: there is none any more."""
        while not self._heard:
            if self._ended is not None:
                raise self._ended
            self._has_news = anyio.Event()
            await self._has_news.wait()
        return self._heard.popleft()

    @property
    def waiting(self) -> int:
        """How many messages have come and were not received."""
        return len(self._heard)

    # --- for the door ----------------------------------------------------------------------------------------------

    def take(self, message: HomeWord | HomeOver) -> None:
        """The door says this."""
        match message:
            case HomeOver(code=code, message=text):
                self.end(DoorClosed(text, code))
            case HomeWord(data=b""):
                self._has_begun = True
            case HomeWord(data=data) if self._has_begun:
                self._heard.append(data)
                self._has_news.set()
            case _:
                # Of a conversation of before.
                pass

    def end(self, why: DoorClosed) -> None:
        """There is nothing more to be heard."""
        self._ended = self._ended or why
        self._has_news.set()
