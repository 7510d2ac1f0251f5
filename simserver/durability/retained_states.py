"""Retained states: entities that left this server a moment ago, as they left: in memory, and in the ledger.

The next authority sends copies at once, and writes a checkpoint within an interval. Until then this may be the only
state there is. If that server dies before there is a copy, or if all servers lose power at once. So it is kept for a
while, which is several times as long as either takes. States that an earlier life of this server kept are kept for
longer: the authority of that time may take as long to come back, and is waited for
(`authority.machines.replica_choice`).

It is a copy of an earlier custody term by then. Later ones count before it, and it counts only when no server is silent
that may have one.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Copy
from batonpass.authority.model.standing import CopySource
from batonpass.simserver.durability.ledger import MAX_WRITE_BYTES, LedgerRows
from batonpass.simserver.entity.snapshot import Frozen, state_hash

__all__ = ["RetainedStates"]

# The first copy of its next authority follows at once, its first checkpoint within seconds. If that one dies before,
# no server asks for what is left until its lease is over. Later ones count, so it does no harm meanwhile.
HANDED_OVER_NS: Final = 20_000_000_000
# After a restart: in that time operators have the other servers back, or the next restart begins it anew.
OF_BEFORE_NS: Final = 3600 * 1_000_000_000
MAX_HANDED_OVER: Final = 16_384
MAX_HANDED_OVER_BYTES: Final = 64 * 1024 * 1024
# Files of large states are many megabytes, and those of small ones are rows of the ledger, which is kept in memory.
MAX_WRITTEN_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Written:
    """What the ledger has of one entity: until when, since when, and how many bytes."""

    until_ns: int
    written_ns: int
    size_bytes: int


class RetainedStates:
    """The last states of what has left. `sweep` lets go of what need not be kept any more.

    Args:
        checkpoint_ns: the time within which the next authority writes a checkpoint; 0: never, and nothing is written.
    """

    def __init__(self, ledger: LedgerRows, clock: Clock, counts: Counter[str], *, checkpoint_ns: int) -> None:
        self._ledger: Final = ledger
        self._clock: Final = clock
        self._counts: Final = counts
        self._checkpoint_ns: Final = checkpoint_ns
        # Both in the order in which they left: all are kept equally long, so the first is the first to be let go.
        self._kept: OrderedDict[str, tuple[int, Copy]] = OrderedDict()
        self._kept_bytes = 0
        self._written: OrderedDict[str, _Written] = OrderedDict()
        # How many bytes the ledger has of each that an earlier life wrote.
        self._of_before: dict[str, int] = {}
        # Of all that is written, by whichever life: a server that is often restarted begins the long time anew.
        self._written_bytes = 0
        self._of_before_until_ns = 0

    def keep(self, entity: str, frozen: Frozen) -> None:
        """Another server has begun with this: keep it, for the time until that has copies and a checkpoint of its own.

        It may have been the only backup replica: then what was durable here is durable nowhere but with itself.
        """
        known = self._kept.get(entity)
        if known is not None and known[1].fence > frozen.fence:
            return
        now_ns = self._clock.monotonic_ns()
        # Not its frozen state any more: there is a later custody term by now, and this is of an earlier one.
        copy = Copy(frozen.fence, frozen.tick, frozen.state, frozen.state_hash, CopySource.CHECKPOINT)
        self._forget(entity)
        self._kept[entity] = now_ns + HANDED_OVER_NS, copy
        self._kept_bytes += len(copy.state)
        while self._kept_bytes > MAX_HANDED_OVER_BYTES or len(self._kept) > MAX_HANDED_OVER:
            self._forget(next(iter(self._kept)))
        if self._checkpoint_ns:
            self._write(entity, copy, now_ns)

    def _write(self, entity: str, copy: Copy, now_ns: int) -> None:
        known, size_bytes, written_ns = self._written.get(entity), len(copy.state), now_ns
        if known is not None and size_bytes > MAX_WRITE_BYTES and now_ns - known.written_ns < self._checkpoint_ns:
            # A file that is written and synced as a whole: no more often than checkpoints are, and no older than they.
            size_bytes, written_ns = known.size_bytes, known.written_ns
        elif not self._ledger.handed_over(entity, copy.fence, copy.tick, copy.state):
            # What there is of an earlier custody term is still there, until it is its time.
            self._counts["handed_over_too_large"] += 1
            return
        self._written.pop(entity, None)
        self._written_bytes += size_bytes - self._of_before.pop(entity, 0) - (0 if known is None else known.size_bytes)
        self._written[entity] = _Written(now_ns + HANDED_OVER_NS, written_ns, size_bytes)
        while self._is_too_much():
            # The servers that took what an earlier life handed over have had time to write it down.
            self._let_go(next(iter(self._of_before or self._written)))

    def _is_too_much(self) -> bool:
        count = len(self._written) + len(self._of_before)
        return self._written_bytes > MAX_WRITTEN_BYTES or count > MAX_HANDED_OVER

    def keep_longer(self, entity: str) -> None:
        """The log may not know who has this: if that server dies, no other is asked for it until the log does.

        So the time for which it is kept, if it is, begins anew.
        """
        until_ns = self._clock.monotonic_ns() + HANDED_OVER_NS
        if (known := self._kept.pop(entity, None)) is not None:
            self._kept[entity] = until_ns, known[1]
        if (written := self._written.pop(entity, None)) is not None:
            self._written[entity] = replace(written, until_ns=until_ns)

    def of(self, entity: str) -> Copy | None:
        """What this server handed over a moment ago, if it was the last to do so."""
        until_ns, copy = self._kept.get(entity, (0, None))
        return copy if until_ns > self._clock.monotonic_ns() else None

    def sweep(self) -> None:
        """Let go of what was kept for long enough."""
        now_ns = self._clock.monotonic_ns()
        while self._kept and next(iter(self._kept.values()))[0] <= now_ns:
            self._forget(next(iter(self._kept)))
        while self._written and next(iter(self._written.values())).until_ns <= now_ns:
            self._let_go(next(iter(self._written)))
        if self._of_before and self._of_before_until_ns <= now_ns:
            for entity in sorted(self._of_before):
                self._let_go(entity)

    def of_before(self) -> Iterator[tuple[str, Copy]]:
        """After a restart: what the ledger has of an earlier life of this server, each a copy like any other.

        Of more than may be kept some is let go; which is the oldest is not known any more.
        """
        self._of_before_until_ns = self._clock.monotonic_ns() + OF_BEFORE_NS
        self._written_bytes -= sum(self._of_before.values())
        self._of_before = {}
        for entity, fence, tick, state in self._ledger.all_handed_over():
            if entity in self._written:
                continue
            # A small one of an earlier custody term may be beside a large one.
            self._of_before[entity] = self._of_before.get(entity, 0) + len(state)
            self._written_bytes += len(state)
            if self._is_too_much():
                self._let_go(entity)
            else:
                yield entity, Copy(fence, tick, state, state_hash(state), CopySource.CHECKPOINT)

    def give_up(self, is_ours: Callable[[str], bool], kept: Collection[tuple[str, Fence]]) -> None:
        """Keep nothing of these entities but custody terms that are among the `kept`."""
        stays = [(entity, copy.fence) for entity, (_, copy) in self._kept.items()]
        stays += [(entity, fence) for entity, fence, _, _ in self._ledger.all_handed_over()]
        for entity in {entity for entity, fence in stays if is_ours(entity) and (entity, fence) not in kept}:
            self._forget(entity)
            self._let_go(entity)

    def _forget(self, entity: str) -> None:
        known = self._kept.pop(entity, None)
        self._kept_bytes -= 0 if known is None else len(known[1].state)

    def _let_go(self, entity: str) -> None:
        known = self._written.pop(entity, None)
        self._written_bytes -= self._of_before.pop(entity, 0) if known is None else known.size_bytes
        self._ledger.let_go(entity)
