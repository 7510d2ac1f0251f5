"""Inputs of a player for one entity, as a program gives them."""

from collections.abc import Callable
from typing import Final

import anyio

from batonpass.authority.wire.player import MAX_INPUT_BYTES
from batonpass.client.input_stream import WINDOW, EntityGone, InputStream

__all__ = ["InputRefused", "Steering"]


class InputRefused(PermissionError):
    """An input is not applied, and no input will be; `code` is stable.

    `not_owner`: another owns the entity. `steered_elsewhere`: another program of this player steers it; to steer
    it anew takes it over.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code: Final = code


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
        self.is_taken_over = False
        """Whether another program of this player steers the entity now."""
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

    async def give(self, data: bytes | bytearray | memoryview) -> int:
        """Give an input; its number. Waits while too many are not acknowledged.

        Raises:
            TypeError: it is not bytes.
            ValueError: it has more than `MAX_INPUT_BYTES`.
            EntityGone: the entity was deleted.
            InputRefused: another program of this player steers it.
        """
        # Before it has a number: what no door takes would be repeated for ever.
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"an input is bytes, not {type(data).__name__}")
        data = bytes(data)
        if len(data) > MAX_INPUT_BYTES:
            raise ValueError(f"an input has at most {MAX_INPUT_BYTES} bytes, not {len(data)}")
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
            InputRefused: the player does not own it any more, so that input was not applied. Or another program of this
                player steers it, and whether that input was applied is not known.
        """
        while self._stream.acknowledged < number:
            if self._stream.owner:
                text = f"{self.entity} is owned by {self._stream.owner}: input {number} was not applied"
                raise InputRefused("not_owner", text)
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
        if self.is_taken_over:
            text = f"another program of this player steers {self.entity}: steer it anew to take it over"
            raise InputRefused("steered_elsewhere", text)

    async def _wait(self) -> None:
        self._require_there()
        await self._news.wait()

    # --- for the client --------------------------------------------------------------------------------------------

    async def begun(self) -> None:
        """Wait until inputs can be given. Raises EntityGone."""
        while not self.has_begun:
            await self._wait()

    def hears(self, applied: int, fence: tuple[int, int], apart: int) -> None:
        """An authority says how far the entity is. `apart` is used with the first word, as of `InputStream.begin`."""
        if not self.has_begun:
            self._stream.begin(applied, fence, apart)
            self.has_begun = True
        elif self._stream.is_of_another(applied, fence):
            self.is_taken_over = True

    def has_news(self) -> None:
        """Something has changed of the stream."""
        news, self._news = self._news, anyio.Event()
        news.set()
