"""`hibernate_after_s`: an actor without messages for a while gives back what it can.

Messages are not counted, since that would cost every message something. The runtime asks an actor before each message
for one thing, its idle timer, and cancels that. A `HibernationTimer` sits in that place: as long as it does, nothing
has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import trio

from batonpass.actors.core.server import HIBERNATE, NoReply

if TYPE_CHECKING:
    from batonpass.actors.core.server_process import ServerProcess


@final
class HibernationTimer:
    """Watches one actor whose class has a `hibernate_after_s`; with no timer of its own while the actor hibernates."""

    __slots__ = ("_after_s", "_asleep", "_process")

    def __init__(self, process: ServerProcess, after_s: float) -> None:
        self._process = process
        self._after_s = after_s
        self._asleep = False
        self._look_later()

    def _look_later(self) -> None:
        process = self._process
        process.system.timers.at(trio.current_time() + self._after_s, self._look, process)

    def _look(self) -> None:
        """After each `hibernate_after_s`: hibernate if the actor was left alone during the whole of it."""
        if self._process.left_alone(self):
            self._process.request_hibernation(self)
        else:
            self._look_later()

    def serve(self, process: ServerProcess) -> NoReply[Any] | None:
        """As a request to the runtime part of the actor: what it does now."""
        if process.suspended or not process.left_alone(self):
            self._look_later()
            return None
        self._asleep = True
        return NoReply(then=HIBERNATE)

    def cancel(self) -> None:
        """A message has come."""
        if self._asleep:
            self._asleep = False
            self._look_later()
