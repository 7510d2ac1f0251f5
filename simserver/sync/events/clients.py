"""The clients of one stream: who is connected, since when each is silent, and which public id each has.

Of a private id only its SHA-256 is kept: it is the only secret that a client has, and a stream's data travels.
A public id is that of the same private id for as long as the stream lives, whether connected or not.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import StateRow

__all__ = ["ClientRecord", "StreamClients", "gained", "key_of"]

_MILLI: Final = 1_000


def key_of(private_id: str) -> bytes:
    """Under which a private id is kept."""
    return hashlib.sha256(private_id.encode()).digest()


def gained(allowance: int, since_ms: int, now_ms: int, per_s: int) -> int:
    """The thousandths of an event that may be sent now: what was left at `since_ms`, and `per_s` a second since."""
    return min(per_s * _MILLI, allowance + (now_ms - since_ms) * per_s)


@dataclass(slots=True)
class ClientRecord:
    """What a stream keeps of one client.

    Attributes:
        public_id: by which all others know it.
        heard_ms: when it was last heard of, on the stream's clock.
        acked: the highest `Id` of its events that was taken.
        offset: how many ticks later than they are it is told everything: its stream was lost, and it cannot know.
        allowance: how many thousandths of an event it may send, as of `allowance_ms`.
    """

    public_id: str
    heard_ms: int
    acked: int = 0
    offset: int = 0
    allowance: int = 0
    allowance_ms: int = 0

    def allowance_at(self, now_ms: int, per_s: int) -> int:
        """The thousandths of an event that it may send now: it gains `per_s` events a second, up to `per_s`."""
        return gained(self.allowance, self.allowance_ms, now_ms, per_s)

    def as_data(self) -> list[Any]:
        """Its fields in their order."""
        return [self.public_id, self.heard_ms, self.acked, self.offset, self.allowance, self.allowance_ms]


class StreamClients:
    """Connected clients by how long they are silent, disconnected ones by how long they are gone, and their states."""

    def __init__(self, limits: StreamLimits) -> None:
        self.connected: Final[OrderedDict[bytes, ClientRecord]] = OrderedDict()
        self._gone: Final[LruTable[bytes, ClientRecord]] = LruTable(limits.max_remembered)
        # By the tick at which each was stored, the latest last.
        self._states: Final[OrderedDict[bytes, StateRow]] = OrderedDict()
        self._limits: Final = limits
        self._next_public_id = 1

    @property
    def has_had_any(self) -> bool:
        """Whether there ever was a client."""
        return self._next_public_id > 1

    def find(self, key: bytes) -> ClientRecord | None:
        """The client, connected or not; None if the stream does not know it."""
        return self.connected.get(key) or self._gone.get(key)

    def new(self, now_ms: int) -> ClientRecord:
        """What a client begins with that is not known yet."""
        allowance = self._limits.max_events_per_s * _MILLI
        return ClientRecord(str(self._next_public_id), now_ms, allowance=allowance, allowance_ms=now_ms)

    def connect(self, key: bytes, client: ClientRecord) -> None:
        """It is connected from now on, known before or not."""
        if self._gone.pop(key, None) is None:
            self._next_public_id += 1
        self.connected[key] = client

    def hear(self, key: bytes, now_ms: int) -> None:
        """A connected client was heard of."""
        self.connected[key].heard_ms = now_ms
        self.connected.move_to_end(key)

    def disconnect(self, key: bytes) -> ClientRecord:
        """It is disconnected from now on; its state is gone, its public id stays its own."""
        client = self.connected.pop(key)
        self._states.pop(key, None)
        self._gone[key] = client
        return client

    def silent(self, now_ms: int, but: bytes | None) -> list[bytes]:
        """The connected clients that are silent for too long, the most silent first; never `but`."""
        last_ms = now_ms - self._limits.silence_ms
        if not self.connected or next(iter(self.connected.values())).heard_ms >= last_ms:
            return []
        found = takewhile(lambda item: item[1].heard_ms < last_ms, self.connected.items())
        return [key for key, _ in found if key != but]

    def store(self, key: bytes, row: StateRow) -> None:
        """Replace the state of a connected client."""
        self._states[key] = row
        self._states.move_to_end(key)

    def states_after(self, tick: int) -> tuple[StateRow, ...]:
        """The states that were stored for a tick above this, in the order in which they were stored."""
        if not self._states:
            return ()
        newest = takewhile(lambda row: row.tick > tick, reversed(self._states.values()))
        return tuple(reversed(list(newest)))

    def as_data(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {
            "next": self._next_public_id,
            "connected": _rows(self.connected.items()),
            "gone": _rows(self._gone.items()),
            "states": [[key, row.tick, row.origin, dict(row.data)] for key, row in self._states.items()],
        }

    def load(self, data: dict[str, Any]) -> None:
        """Take in what `as_data` gave, into a table that is empty."""
        self._next_public_id = data["next"]
        for table, rows in ((self.connected, data["connected"]), (self._gone, data["gone"])):
            for key, *fields in rows:
                table[key] = ClientRecord(*fields)
        for key, tick, origin, state in data["states"]:
            self._states[key] = StateRow(tick, origin, state)


def _rows(items: Any) -> list[Any]:
    return [[key, *client.as_data()] for key, client in items]
