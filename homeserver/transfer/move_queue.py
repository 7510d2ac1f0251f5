"""Moves of one entity that were asked for while another one is under way: done in the order in which they were asked.

An authority that is told of a second move while its entity leaves does nothing with it, and a repetition comes seconds
later. So the member that was asked keeps what waits, and has the next begun as soon as the one before is over. That is
refused, or done, with the new authority simulating. What members keep is their own: of moves that different members
were asked for, each member orders its own. What a member that ends has not begun is found by the search of
`order_retry`.

Groups are ordered by the log (`authority.procedures.group_table`), and wait here for nothing.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Refused
from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.homeserver.transfer.parcels import NOT_TOLD

__all__ = ["MAX_MOVES", "MoveQueues"]

_log = logging.getLogger("batonpass.homeserver.transfer.move_queue")

MAX_MOVES: Final = 16
"""Of one entity, the one that is under way among them."""
MAX_ENTITIES: Final = 4096
LOOK_S: Final = 0.02
# A report of the end may be lost with the server that was to make it: what is committed counts as over then.
COMMITTED_NS: Final = 1_000_000_000
# How long this member's copy of the log may lack what the log has taken.
UNKNOWN_NS: Final = 5_000_000_000


@dataclass(slots=True)
class _MovesOfOne:
    """Of one entity; the first of them has been ordered, at `since_ns`, or was seen committed then."""

    names: deque[str] = field(default_factory=deque)
    since_ns: int = 0
    was_committed: bool = False


class Orders(Protocol):
    """What has old authorities begin: `OrderRetry`."""

    async def order(self, transfer: TransferRecord) -> None:
        """Tell the old authority to begin a permitted transfer."""


class MoveQueues:
    """One member's part.

    Args:
        find: the transfer of an id as this member's copy of the log has it.
        orders: has the old authority begin.
    """

    def __init__(self, find: Callable[[str], TransferRecord | None], orders: Orders, clock: Clock) -> None:
        self._find: Final = find
        self._orders: Final = orders
        self._clock: Final = clock
        self._moves: FifoTable[str, _MovesOfOne] = FifoTable(MAX_ENTITIES)
        self._more: Final = clock.bell()

    def waiting(self, entity: str) -> int:
        """How many moves of an entity are not over, as this member knows it."""
        moves = self._moves.get(entity)
        if moves is None:
            return 0
        self._drop_what_is_over(moves)
        return len(moves.names)

    async def begin(self, transfer: TransferRecord) -> None:
        """Have a permitted transfer begun, or keep it until those before it are over.

        Raises:
            NOT_TOLD: its turn has come, and its authority cannot be told now; it is told later.
        """
        if transfer.group:
            await self._orders.order(transfer)
            return
        moves = self._moves.setdefault(transfer.entity, _MovesOfOne())
        if transfer.id not in moves.names:
            self._drop_what_is_over(moves)
            moves.names.append(transfer.id)
            if len(moves.names) == 1:
                moves.since_ns, moves.was_committed = self._clock.monotonic_ns(), False
        if moves.names[0] == transfer.id:
            await self._orders.order(transfer)
        self._more.ring()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Have those begun whose turn has come, until cancelled."""
        task_status.started()
        while True:
            await self._more.wait()
            while any(len(moves.names) > 1 for moves in self._moves.values()):
                await self._clock.sleep_s(LOOK_S)
                for entity in [one for one, moves in self._moves.items() if len(moves.names) > 1]:
                    await self._look(entity)
            for entity in [one for one, moves in self._moves.items() if self._is_over(moves)]:
                del self._moves[entity]

    async def _look(self, entity: str) -> None:
        moves = self._moves.get(entity)
        if moves is None or not self._drop_what_is_over(moves):
            return
        transfer = self._find(moves.names[0]) if moves.names else None
        if transfer is not None and transfer.phase is Phase.PERMITTED:
            try:
                await self._orders.order(transfer)
            except (*NOT_TOLD, Refused) as error:
                _log.info("%s is not told to begin %s yet: %s", entity, transfer.id, error)

    def _drop_what_is_over(self, moves: _MovesOfOne) -> bool:
        """Whether another one is the first now."""
        dropped = False
        while moves.names and self._is_over(moves):
            moves.names.popleft()
            moves.since_ns, moves.was_committed = self._clock.monotonic_ns(), False
            dropped = True
        return dropped

    def _is_over(self, moves: _MovesOfOne) -> bool:
        """Whether the first of them is over; so it is where there is none."""
        if not moves.names:
            return True
        known, now_ns = self._find(moves.names[0]), self._clock.monotonic_ns()
        if known is None:
            return now_ns - moves.since_ns > UNKNOWN_NS
        if known.phase is Phase.COMMITTED:
            if not moves.was_committed:
                moves.since_ns, moves.was_committed = now_ns, True
            return now_ns - moves.since_ns > COMMITTED_NS
        return known.phase in (Phase.DONE, Phase.REFUSED)
