"""Hashes of states that clients report: the first tick at which they differ, and what most of them had.

The votes of a tick are kept while it is among the last `hash_window_ticks`. Of each client its first vote for a tick
counts. The clients of one vote are the bits of one number, by public id: a thousand clients are 125 bytes.

A *desync* is the earliest tick for which two hashes came. It is told while members of two of its groups are connected,
and is over when all of them that are connected have had the same hash at one later tick. Votes for ticks up to that one
begin no new desync.
"""

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final

from batonpass.simserver.sync.events.messages import DesyncNotice

__all__ = ["HashVotes"]

_TICK: Final = itemgetter(0)


class HashVotes:
    """Votes by tick, who was connected at each tick, and the desync with its dumps, if there was one."""

    def __init__(self, window_ticks: int) -> None:
        self._window_ticks: Final = window_ticks
        self._votes: Final[dict[int, dict[bytes, int]]] = {}
        # Who is connected from each of these ticks on.
        self._connected: Final[list[tuple[int, int]]] = [(0, 0)]
        self._floor = 0
        self._settled = 0
        self._desync: tuple[int, dict[bytes, int]] | None = None
        self.dumps: Final[dict[bytes, tuple[str, str]]] = {}
        """Of the desync: by hash, the public id of the client that gave it, and what it gave."""

    def connection(self, public_id: str, *, connected: bool, tick: int) -> None:
        """A client is connected, or is no more, from this tick on."""
        _, present = self._connected[-1]
        present = present | _bit(public_id) if connected else present & ~_bit(public_id)
        if self._connected[-1][0] == tick:
            self._connected.pop()
        self._connected.append((tick, present))

    def advance(self, tick: int) -> None:
        """Forget the votes that are too old at this tick."""
        floor = max(self._floor, tick - self._window_ticks)
        if floor - self._floor > len(self._votes):
            gone: Iterable[int] = [voted for voted in self._votes if voted <= floor]
        else:
            gone = range(self._floor + 1, floor + 1)
        for voted in gone:
            self._votes.pop(voted, None)
        self._floor = floor
        del self._connected[: self._index_at(floor)]

    def vote(self, public_id: str, tick: int, state_hash: bytes) -> None:
        """A client had this hash at this tick. One that is too old, or its second for the tick, does not count."""
        if tick <= self._floor:
            return
        groups = self._votes.setdefault(tick, {})
        bit = _bit(public_id)
        if not any(voters & bit for voters in groups.values()):
            groups[state_hash] = groups.get(state_hash, 0) | bit
            self._compare(tick, groups)

    def _compare(self, tick: int, groups: dict[bytes, int]) -> None:
        if len(groups) > 1:
            if tick > self._settled and (self._desync is None or tick < self._desync[0] or not self._is_on()):
                self._desync = tick, groups
                self.dumps.clear()
        elif self._desync is not None and tick > self._desync[0]:
            disagreed = self._connected[-1][1] & _union(self._desync[1].values())
            if disagreed & ~_union(groups.values()) == 0:
                self._settled = max(self._settled, tick)

    def _is_on(self) -> bool:
        if self._desync is None or self._desync[0] <= self._settled:
            return False
        connected = self._connected[-1][1]
        return sum(voters & connected != 0 for voters in self._desync[1].values()) > 1

    @property
    def notice(self) -> DesyncNotice | None:
        """What clients are told of a desync, while it is on."""
        return self.last_desync if self._is_on() else None

    @property
    def last_desync(self) -> DesyncNotice | None:
        """The desync, on or over; None if there was none."""
        if self._desync is None:
            return None
        tick, groups = self._desync
        return DesyncNotice(tick, {key.hex(): _public_ids(groups[key]) for key in sorted(groups)})

    def hash_in_desync(self, public_id: str) -> bytes | None:
        """With which hash a client is in the desync, if it is."""
        groups = self._desync[1] if self._desync is not None else {}
        return next((key for key, voters in groups.items() if voters & _bit(public_id)), None)

    def quorum(self, tick: int, state_hash: bytes) -> tuple[str, ...]:
        """The clients that had this hash, if they are a quorum, else none.

        A quorum is more than half of the clients that were connected at the tick, and at least two.
        """
        connected = self._connected[self._index_at(tick)][1]
        voters = self._votes.get(tick, {}).get(state_hash, 0) & connected
        enough = voters.bit_count() > max(1, connected.bit_count() // 2)
        return _public_ids(voters) if enough else ()

    def _index_at(self, tick: int) -> int:
        return max(0, bisect_right(self._connected, tick, key=_TICK) - 1)

    def as_data(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {
            "floor": self._floor,
            "settled": self._settled,
            "votes": [[tick, _written(groups)] for tick, groups in self._votes.items()],
            "connected": [[tick, _bytes(present)] for tick, present in self._connected],
            "desync": None if self._desync is None else [self._desync[0], _written(self._desync[1])],
            "dumps": [[key, *dump] for key, dump in self.dumps.items()],
        }

    def load(self, data: dict[str, Any]) -> None:
        """Take in what `as_data` gave, into votes that are empty."""
        self._floor, self._settled = data["floor"], data["settled"]
        self._votes.update((tick, _read(groups)) for tick, groups in data["votes"])
        self._connected[:] = [(tick, int.from_bytes(present, "little")) for tick, present in data["connected"]]
        if data["desync"] is not None:
            tick, groups = data["desync"]
            # The very groups that votes still come to.
            self._desync = tick, self._votes.get(tick) or _read(groups)
        self.dumps.update((key, (public_id, dump)) for key, public_id, dump in data["dumps"])


def _bit(public_id: str) -> int:
    return 1 << int(public_id)


def _public_ids(voters: int) -> tuple[str, ...]:
    found = []
    while voters:
        lowest = voters & -voters
        found.append(str(lowest.bit_length() - 1))
        voters ^= lowest
    return tuple(found)


def _union(groups: Iterable[int]) -> int:
    union = 0
    for voters in groups:
        union |= voters
    return union


def _bytes(voters: int) -> bytes:
    return voters.to_bytes((voters.bit_length() + 7) // 8, "little")


def _written(groups: dict[bytes, int]) -> list[Any]:
    return [[key, _bytes(voters)] for key, voters in groups.items()]


def _read(groups: list[Any]) -> dict[bytes, int]:
    return {key: int.from_bytes(voters, "little") for key, voters in groups}
