"""Inputs of a player for one entity, as a program gives them."""

from collections.abc import Callable
from typing import Final

import anyio

from batonpass.client.input_stream import WINDOW, EntityGone, InputStream

__all__ = ["Steering"]


class Steering:
    """An entity that this player steers. Inputs are applied once and in order, whatever becomes of servers.

    `tick` is the tick of the entity by which the last input known to be applied was applied.
    """

    def __init__(self, stream: InputStream, now_s: Callable[[], float], send: Callable[["Steering"], None]) -> None:
        self._stream: Final = stream
        self._now_s: Final = now_s
        self._send: Final = send
        self._news = anyio.Event()
        self.has_begun = False
        """Whether it is known how far the entity is, so that inputs can be numbered."""
        self.tick = 0

    @property
    def entity(self) -> str:
        """The entity's name."""
        return self._stream.entity

    @property
    def stream(self) -> InputStream:
        """What was given, acknowledged and is durable, by number."""
        return self._stream

    @property
    def owner(self) -> str:
        """Who owns the entity instead of this player; empty while it does itself."""
        return self._stream.owner

    async def give(self, data: bytes) -> int:
        """Give an input; its number. Waits while too many are not acknowledged.

        Raises:
            EntityGone: the entity was deleted.
        """
        while self._stream.sent - self._stream.acknowledged >= WINDOW:
            await self._wait()
        self._require_there()
        self._stream.add(data, self._now_s())
        self._send(self)
        return self._stream.sent

    async def applied(self, number: int) -> int:
        """Wait until the input of this number is applied; the tick at which the entity was then, at the latest.

        Raises:
            EntityGone: the entity was deleted.
            PermissionError: the player does not own it any more, so that input was not applied.
        """
        while self._stream.acknowledged < number:
            if self._stream.owner:
                raise PermissionError(f"{self.entity} is owned by {self._stream.owner}: input {number} was not applied")
            await self._wait()
        return self.tick

    async def durable(self, number: int) -> None:
        """Wait until no failure of a server can take the input of this number back. Raises as `applied`."""
        await self.applied(number)
        while self._stream.durable < number:
            await self._wait()

    def _require_there(self) -> None:
        if self._stream.is_gone:
            raise EntityGone(f"{self.entity} was deleted")

    async def _wait(self) -> None:
        self._require_there()
        await self._news.wait()

    # --- for the client --------------------------------------------------------------------------------------------

    async def begun(self) -> None:
        """Wait until inputs can be given. Raises EntityGone."""
        while not self.has_begun:
            await self._wait()

    def begin(self, applied: int, fence: tuple[int, int]) -> None:
        """An authority says how far the entity is."""
        if not self.has_begun:
            self._stream.begin(applied, fence)
            self.has_begun = True

    def has_news(self) -> None:
        """Something has changed of the stream."""
        news, self._news = self._news, anyio.Event()
        news.set()
