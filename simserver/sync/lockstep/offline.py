"""A stream without a server: for games of one player, for tests, and for trying out what a connection does.

It answers requests of followers as a server does, by the same rules of ticks, ids and incarnations. It keeps its whole
log, counts no votes, and disconnects clients only when it is told to.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from batonpass.simserver.sync.lockstep.driver import SimEvent

__all__ = ["OfflineStream"]


class OfflineStream:
    """A stream that is kept in memory.

    Args:
        seed: the body of its first event.
        incarnation: its name; by default made from the seed.
        events: with which it begins, in order, in place of the first one.
    """

    def __init__(self, seed: str, *, incarnation: str | None = None, events: Iterable[SimEvent] | None = None) -> None:
        self.tick = 0
        self.incarnation: Final = incarnation or hashlib.sha256(seed.encode()).hexdigest()[:32]
        self.log: Final = [SimEvent(1, "_a", "_", seed)] if events is None else list(events)
        self._told = 0
        self._public_ids: Final[dict[str, str]] = {}
        self._connected: Final[set[str]] = set()
        self._acked: Final[dict[str, int]] = {}

    def advance(self, ticks: int = 1) -> None:
        """Let time pass."""
        self.tick += ticks

    def leave(self, private_id: str) -> None:
        """Disconnect a client, as after 10 s of silence."""
        if private_id in self._connected:
            self._connected.remove(private_id)
            self._append("_d", "_", self._public_ids[private_id])

    def answer(self, private_id: str, known: int, body: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a sync of a client that knows the tick `known`."""
        public_id = self._public_ids.setdefault(private_id, str(len(self._public_ids) + 1))
        if private_id not in self._connected:
            self._connected.add(private_id)
            self._append("_c", "_", public_id)
        theirs = body.get("Incarnation", self.incarnation)
        for event in body.get("Events", ()) if theirs == self.incarnation else ():
            if event["Id"] > self._acked.get(private_id, 0):
                self._append(event["Type"], public_id, event["Body"])
                self._acked[private_id] = event["Id"]
        is_reset = theirs != self.incarnation or known > self.tick
        since = 0 if is_reset else known
        if body.get("Leave"):
            self.leave(private_id)
        self._told = self.tick
        rows = [
            {"T": event.tick, "Type": event.type, "Origin": event.origin, "Body": event.body}
            for event in self.log
            if since < event.tick <= self.tick
        ]
        return {
            "T": self.tick,
            "Events": rows,
            "States": [],
            "ProxyId": public_id,
            "Incarnation": self.incarnation,
            "Acked": self._acked.get(private_id, 0),
            "Oldest": 0,
            **({"Reset": True} if is_reset else {}),
        }

    def _append(self, type: str, origin: str, body: str) -> None:
        self.log.append(SimEvent(self._told + 1, type, origin, body))
