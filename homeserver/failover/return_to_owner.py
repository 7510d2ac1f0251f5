"""Handing back what waited for the return of its server, when another one had the later copy.

An orphan that is to `freeze` waits for its server. When that is back, the latest copy counts all the same. What players
were told to be durable may be with a backup replica alone, and the server's own checkpoint is seconds old if it was
killed. A copy is resumed where it is. So the backup replica begins, and is told at once to hand the entity over to the
server that it belongs to, as in a drain.

Kept in memory, by the member that grants leases: if that dies meanwhile, the entity stays where it is. And if the
backup replica dies before the entity is home, it is its return that is waited for.
"""

import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.model.records import Phase, RecoveryRow
from batonpass.authority.model.standing import LeasePhase, OrphanPolicy
from batonpass.authority.names import instance_of
from batonpass.authority.wire.placement import MAX_MOVES, MoveItem, Moves
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.homeserver.backoff import Due
from batonpass.homeserver.log.store import InstanceStore

__all__ = ["FIRST_WAIT_NS", "MAX_HOMEWARD", "TIMES", "ReturnToOwner"]

# The hand-over has begun by then. After that twice as long, and so on: the last time is a minute after the first.
FIRST_WAIT_NS: Final = 2_000_000_000
TIMES: Final = 6
MAX_HOMEWARD: Final = 4096


@dataclass(frozen=True, slots=True)
class _Way:
    """From where to where, how often that was said, and when it is said again."""

    target: str
    last: str
    epoch: int
    times: int
    due: Due


class ReturnToOwner:
    """What was taken over elsewhere and belongs back.

    Args:
        tell: sends a message to a simulation server.
    """

    def __init__(self, store: InstanceStore, tell: Callable[[Moves, str], Awaitable[None]], clock: Clock) -> None:
        self._store: Final = store
        self._tell: Final = tell
        self._clock: Final = clock
        self._ways: FifoTable[str, _Way] = FifoTable(MAX_HOMEWARD)

    def __len__(self) -> int:
        return len(self._ways)

    def __contains__(self, entity: str) -> bool:
        return entity in self._ways

    def adopted(self, row: RecoveryRow) -> None:
        """A server has taken this over; only servers of the entity's own instance are told where it belongs."""
        if not row.held or row.target == row.last:
            return
        if {instance_of(row.target), instance_of(row.last)} != {instance_of(row.entity)}:
            return
        self._ways[row.entity] = _Way(
            row.target, row.last, row.epoch, 0, Due(self._clock.monotonic_ns(), FIRST_WAIT_NS)
        )

    def left_office(self) -> None:
        """This member grants no leases any more: it is not for it to say where entities go."""
        self._ways.clear()

    async def look(self) -> None:
        """Tell those whose time has come."""
        now_ns = self._clock.monotonic_ns()
        told: dict[str, list[MoveItem]] = defaultdict(list)
        for entity, way in [(entity, way) for entity, way in self._ways.items() if way.due.at_ns <= now_ns]:
            if way.times == TIMES or not self._is_still_away(entity, way):
                self._ways.pop(entity, None)
                continue
            again = Due(now_ns + way.due.wait_ns, 2 * way.due.wait_ns)
            self._ways[entity] = _Way(way.target, way.last, way.epoch, way.times + 1, again)
            if self._may_take(way.last):
                transfer_id = _transfer_id(entity, way.epoch, way.times)
                told[way.target].append(MoveItem(transfer_id=transfer_id, entity=entity, target=way.last))
        for target, items in told.items():
            for first in range(0, len(items), MAX_MOVES):
                await self._tell(Moves(moves=items[first : first + MAX_MOVES]), target)

    def _is_still_away(self, entity: str, way: _Way) -> bool:
        """Whether it is where it was taken over, has not been away since, and still belongs to its server."""
        record = self._store.entity(entity)
        if record is None or record.authority != way.target or record.orphans is not OrphanPolicy.FREEZE:
            return False
        return record.epoch in {way.epoch, *self._refused_under(entity, way)}

    def _refused_under(self, entity: str, way: _Way) -> Iterator[int]:
        """The epochs to which refusals of its way back have raised the fence."""
        for times in range(way.times):
            transfer = self._store.transfer(_transfer_id(entity, way.epoch, times))
            if transfer is not None and transfer.phase is Phase.REFUSED:
                yield transfer.epoch

    def _may_take(self, server: str) -> bool:
        lease = self._store.lease(server)
        return lease is not None and lease.phase is LeasePhase.ALIVE and self._store.drain(server) is None


def _transfer_id(entity: str, epoch: int, times: int) -> str:
    """Another one each time: what was refused once under an id is refused under it for good."""
    text = f"{entity}\n{epoch}\n{times}".encode()
    return f"back-{hashlib.blake2b(text, digest_size=12).hexdigest()}"
