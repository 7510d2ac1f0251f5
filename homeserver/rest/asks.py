"""What waits for a master's answer, told when it is asked: so a question costs one round trip and no looking around.

`GET /v1/players/{player}/asks?wait_s=20&seen=…` is held until there is a question that is not among the `seen` ones, or
the time is up. This member wakes whoever waits here with each change of a question in its copy of the log, and looks by
itself from time to time: a question also becomes somebody's when the entity gets another master.
"""

from collections.abc import Collection
from contextlib import closing
from typing import Final

import trio

from homeserver.node import Node
from homeserver.rest.models import AskView
from tree.errors import WatcherCut
from tree.pattern import ANY_DEPTH

__all__ = ["MAX_SEEN", "MAX_SEEN_CHARACTERS", "MAX_WAITING", "MAX_WAIT_S", "Questions"]

MAX_WAIT_S: Final = 30.0
MAX_SEEN: Final = 100
MAX_SEEN_CHARACTERS: Final = MAX_SEEN * 65
MAX_WAITING: Final = 128
"""So many wait here at once, each with a connection, of which the server has 512; the others are answered at once."""
_LOOK_S: Final = 1.0
_PATTERN: Final = ("asks", ANY_DEPTH)


class Questions:
    """The questions that masters are asked here."""

    def __init__(self, node: Node) -> None:
        self._node: Final = node
        self._waiting = 0

    def of(self, master: str, limit: int) -> list[AskView]:
        """What this member knows that waits for this master's answer."""
        node = self._node
        return [AskView.of(*asked) for asked in node.store.asks_of(master, node.clock.unix_s(), limit)]

    async def new_ones(self, master: str, limit: int, seen: Collection[str], wait_s: float) -> list[AskView]:
        """The same, as soon as one of them is not among the `seen`, or when `wait_s` seconds are over."""
        found = self.of(master, limit)
        if wait_s == 0 or self._has_news(found, seen) or self._waiting >= MAX_WAITING:
            return found
        self._waiting += 1
        try:
            with trio.move_on_after(wait_s):
                await self._news(master, limit, seen)
        finally:
            self._waiting -= 1
        return self.of(master, limit)

    async def _news(self, master: str, limit: int, seen: Collection[str]) -> None:
        try:
            with closing(self._node.replica.watch(_PATTERN)) as watch:
                while not self._has_news(self.of(master, limit), seen):
                    with trio.move_on_after(_LOOK_S):
                        await watch.take()
        except WatcherCut:
            # A snapshot came, or there was too much at once: what there is now is told.
            return

    def _has_news(self, found: list[AskView], seen: Collection[str]) -> bool:
        return any(ask.transfer_id not in seen for ask in found)
