"""Interaction data of a follower on their way to the controller: in order, each until it is acknowledged."""

from collections import deque
from typing import Final

from batonpass.simserver.sync.followers.board import NodeBoard
from batonpass.simserver.sync.followers.datagrams import pack_interaction

__all__ = ["InteractionOutbox"]

MAX_INTERACTION_BYTES: Final = 1_024
MAX_UNACKNOWLEDGED: Final = 256
REPEAT_NS: Final = 50_000_000


class InteractionOutbox:
    """Lives as long as its node. What no controller has acknowledged goes to the next one, too."""

    def __init__(self, board: NodeBoard) -> None:
        self._board: Final = board
        self._number = 0
        self._kept: Final[deque[tuple[int, bytes]]] = deque()
        self._again_ns: int | None = None

    def add(self, payload: bytes) -> None:
        """Take data; too large ones, and those beyond the bound, are refused and counted."""
        if len(payload) > MAX_INTERACTION_BYTES or len(self._kept) >= MAX_UNACKNOWLEDGED:
            self._board.counters["interaction_refused"] += 1
            return
        self._number += 1
        self._kept.append((self._number, payload))
        self._again_ns = 0

    def acknowledged(self, number: int, incarnation: int) -> None:
        """The controller has all up to this number."""
        if incarnation == self._board.incarnation:
            while self._kept and self._kept[0][0] <= number:
                self._kept.popleft()

    def take_all(self) -> list[bytes]:
        """Return what no controller has acknowledged: this node is the controller now."""
        kept = [payload for _, payload in self._kept]
        self._kept.clear()
        return kept

    def next_due_ns(self) -> int | None:
        """Return when `tick` is to be called."""
        return self._again_ns if self._kept else None

    def tick(self, controller: str, epoch: int, now_ns: int) -> None:
        """Send what waits."""
        if not self._kept or self._again_ns is None or now_ns < self._again_ns:
            return
        self._again_ns = now_ns + REPEAT_NS
        oldest = self._kept[0][0]
        for number, payload in self._kept:
            self._board.send((controller,), pack_interaction(epoch, number, self._board.incarnation, oldest, payload))
