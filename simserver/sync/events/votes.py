"""Hashes of states that clients report: the first tick at which they differ, and what most of them had.

The votes of a tick are kept while it is among the last `hash_window_ticks`, those of a checkpoint while it is among the
last `checkpoint_window_ticks`: slow clients tell few ticks, and late, so all of them tell these. Of each client its
first vote for a tick counts. The clients of one vote are the bits of one number, by *seat*: a thousand clients are
125 bytes. A seat is kept when its client has left, until a new client needs it; then the votes of the client that is
gone longest are forgotten.

A *desync* is the earliest tick for which two hashes came. It is told while members of two of its groups are connected,
and is over when all of them that are connected have had the same hash at one later tick. Votes for ticks before that
one begin no new desync. One that is over is told until two groups have given a dump, while they still can: a difference
may be gone a tick later, before any client was told of it.

Votes for the 19 ticks before a desync are taken however late they come. Clients tell the hashes of these when they are
told of it: the first tick at which they differ may be one that they had not told.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final

from batonpass.simserver.sync.events.limits import CHECKPOINT_TICKS, StreamLimits
from batonpass.simserver.sync.events.messages import DesyncNotice

__all__ = ["HashVotes"]

_TICK: Final = itemgetter(0)


class HashVotes:
    """Votes by tick, who was connected at each tick, and the desync with its dumps, if there was one."""

    def __init__(self, limits: StreamLimits) -> None:
        self._window_ticks: Final = limits.hash_window_ticks
        self._checkpoint_window_ticks: Final = limits.checkpoint_window_ticks
        # More than can be connected: there is always one of a client that has left.
        self._max_seats: Final = 2 * limits.max_clients
        self._seats: Final[dict[str, int]] = {}
        self._holders: Final[list[str]] = []
        self._left: Final[OrderedDict[str, None]] = OrderedDict()
        self._votes: Final[dict[int, dict[bytes, int]]] = {}
        # Who is connected from each of these ticks on.
        self._connected: Final[list[tuple[int, int]]] = [(0, 0)]
        # Up to here votes are forgotten: of ticks, and of checkpoints.
        self._floor = 0
        self._oldest = 0
        self._settled = 0
        # What was settled before the desync of now began.
        self._former = 0
        self._desync: tuple[int, dict[bytes, list[str]]] | None = None
        self.dumps: Final[dict[bytes, tuple[str, str]]] = {}
        """Of the desync: by hash, the public id of the client that gave it, and what it gave."""

    def connect(self, public_id: str, tick: int) -> None:
        """A client is connected from this tick on."""
        self._left.pop(public_id, None)
        if public_id not in self._seats:
            self._seats[public_id] = self._take_seat(public_id)
        self._set_connected(self._connected[-1][1] | self._bit(public_id), tick)

    def disconnect(self, public_id: str, tick: int) -> None:
        """A client is connected no more, from this tick on."""
        self._left[public_id] = None
        self._set_connected(self._connected[-1][1] & ~self._bit(public_id), tick)

    def _set_connected(self, present: int, tick: int) -> None:
        if self._connected[-1][0] == tick:
            self._connected.pop()
        self._connected.append((tick, present))

    def _take_seat(self, public_id: str) -> int:
        if len(self._holders) < self._max_seats:
            self._holders.append(public_id)
            return len(self._holders) - 1
        former = next(iter(self._left))
        del self._left[former]
        others = ~self._bit(former)
        for groups in self._votes.values():
            for state_hash in list(groups):
                groups[state_hash] &= others
                if not groups[state_hash]:
                    del groups[state_hash]
        self._connected[:] = [(tick, present & others) for tick, present in self._connected]
        seat = self._seats.pop(former)
        self._holders[seat] = public_id
        return seat

    def advance(self, tick: int) -> None:
        """Forget the votes that are too old at this tick."""
        floor, oldest = self._floor, self._oldest
        self._floor = max(floor, tick - self._window_ticks)
        self._oldest = max(oldest, min(self._floor, tick - self._checkpoint_window_ticks))
        if self._floor - floor > len(self._votes):
            self._forget(list(self._votes))
        else:
            self._forget(range(floor + 1, self._floor + 1))
            self._forget(range(oldest - oldest % CHECKPOINT_TICKS, self._oldest + 1, CHECKPOINT_TICKS))
        del self._connected[: self._index_at(self._oldest)]

    def _forget(self, ticks: Iterable[int]) -> None:
        for voted in ticks:
            if not self._is_kept(voted):
                self._votes.pop(voted, None)

    def _is_kept(self, tick: int) -> bool:
        is_checkpoint = tick % CHECKPOINT_TICKS == 0
        return tick > (self._oldest if is_checkpoint else self._floor) or self._is_searched(tick)

    def _is_searched(self, tick: int) -> bool:
        """Whether clients may have differed at this tick before they did at that of the desync."""
        if self._desync is None:
            return False
        return max(self._former, self._desync[0] - CHECKPOINT_TICKS) < tick <= self._desync[0]

    def vote(self, public_id: str, tick: int, state_hash: bytes) -> None:
        """A connected client had this hash at this tick. If it is too old, or its second for it, it does not count."""
        if not self._is_kept(tick):
            return
        groups, bit = self._votes.setdefault(tick, {}), self._bit(public_id)
        if any(voters & bit for voters in groups.values()):
            return
        groups[state_hash] = groups.get(state_hash, 0) | bit
        if self._desync is not None and self._desync[0] == tick:
            self._desync[1].setdefault(state_hash, []).append(public_id)
        self._compare(tick, groups)

    def _compare(self, tick: int, groups: dict[bytes, int]) -> None:
        if len(groups) > 1:
            if tick > self._settled and not self._is_on():
                self._former = self._settled
            elif self._desync is None or not self._former < tick < self._desync[0]:
                return
            self._desync = tick, {key: self._public_ids(voters) for key, voters in groups.items()}
            self.dumps.clear()
            self._forget(list(self._votes))
        elif self._desync is not None and self._settled < self._desync[0] < tick:
            (voters,) = groups.values()
            disagreed = (public_id for group in self._desync[1].values() for public_id in group)
            if all(voters & self._bit(public_id) for public_id in disagreed if self._is_connected(public_id)):
                self._settled = tick - 1

    def _is_on(self) -> bool:
        if self._desync is None or self._desync[0] <= self._settled:
            return False
        return sum(any(map(self._is_connected, group)) for group in self._desync[1].values()) > 1

    def _is_connected(self, public_id: str) -> bool:
        return public_id in self._seats and self._connected[-1][1] & self._bit(public_id) != 0

    def _bit(self, public_id: str) -> int:
        return 1 << self._seats[public_id]

    def _public_ids(self, voters: int) -> list[str]:
        return [self._holders[seat] for seat in range(voters.bit_length()) if voters >> seat & 1]

    @property
    def notice(self) -> DesyncNotice | None:
        """What clients are told of a desync: while it is on, and until there are two dumps to compare."""
        return self.last_desync if self._is_on() or self._lacks_dumps() else None

    def _lacks_dumps(self) -> bool:
        if self._desync is None or self._desync[0] <= self._oldest or len(self.dumps) > 1:
            return False
        groups = self._desync[1].items()
        return sum(key in self.dumps or any(map(self._is_connected, group)) for key, group in groups) > 1

    @property
    def last_desync(self) -> DesyncNotice | None:
        """The desync, on or over; None if there was none."""
        if self._desync is None:
            return None
        tick, groups = self._desync
        return DesyncNotice(tick, {key.hex(): tuple(groups[key]) for key in sorted(groups)})

    def hash_in_desync(self, public_id: str) -> bytes | None:
        """With which hash a client is in the desync, if it is."""
        groups = self._desync[1] if self._desync is not None else {}
        return next((key for key, group in groups.items() if public_id in group), None)

    def quorum(self, tick: int, state_hash: bytes) -> tuple[str, ...]:
        """The clients that had this hash, if they are a quorum, else none.

        A quorum is more than half of the clients that were connected at the tick, and at least two.
        """
        connected, voters = self._of(tick, state_hash)
        enough = voters.bit_count() > max(1, connected.bit_count() // 2)
        return tuple(self._public_ids(voters)) if enough else ()

    def lone(self, tick: int, state_hash: bytes) -> tuple[str, ...]:
        """The client that had this hash, if it was the only one that was connected at the tick, and is it now."""
        connected, voters = self._of(tick, state_hash)
        is_lone = voters == connected == self._connected[-1][1] and voters.bit_count() == 1
        return tuple(self._public_ids(voters)) if is_lone else ()

    def _of(self, tick: int, state_hash: bytes) -> tuple[int, int]:
        """Who was connected at a tick, and who of these had this hash; none, if that is forgotten."""
        if tick <= self._oldest:
            return 0, 0
        connected = self._connected[self._index_at(tick)][1]
        return connected, self._votes.get(tick, {}).get(state_hash, 0) & connected

    def _index_at(self, tick: int) -> int:
        return max(0, bisect_right(self._connected, tick, key=_TICK) - 1)

    def as_data(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {
            "floor": self._floor,
            "oldest": self._oldest,
            "settled": self._settled,
            "former": self._former,
            "seats": list(self._holders),
            "left": list(self._left),
            "votes": [
                [tick, [[key, _bytes(group)] for key, group in row.items()]] for tick, row in self._votes.items()
            ],
            "connected": [[tick, _bytes(present)] for tick, present in self._connected],
            "desync": None if self._desync is None else [self._desync[0], list(map(list, self._desync[1].items()))],
            "dumps": [[key, *dump] for key, dump in self.dumps.items()],
        }

    def load(self, data: dict[str, Any]) -> None:
        """Take in what `as_data` gave, into votes that are empty."""
        self._floor, self._settled = data["floor"], data["settled"]
        # Not in the data of earlier releases.
        self._oldest, self._former = data.get("oldest", self._floor), data.get("former", self._settled)
        self._holders.extend(data["seats"])
        self._seats.update((public_id, seat) for seat, public_id in enumerate(self._holders))
        self._left.update((public_id, None) for public_id in data["left"])
        self._votes.update((tick, {key: _whole(group) for key, group in row}) for tick, row in data["votes"])
        self._connected[:] = [(tick, _whole(present)) for tick, present in data["connected"]]
        if data["desync"] is not None:
            tick, groups = data["desync"]
            self._desync = tick, {key: list(group) for key, group in groups}
        self.dumps.update((key, (public_id, dump)) for key, public_id, dump in data["dumps"])


def _bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _whole(data: bytes) -> int:
    return int.from_bytes(data, "little")
