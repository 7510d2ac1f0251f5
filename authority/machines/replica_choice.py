"""What is left of an entity whose authority is dead: who keeps copies, which copy counts, and which server resumes it.

Rules:

1. An authority sends copies to backup replicas, chosen alike by all servers that know the same servers.
2. A takeover raises the fence in the log *before* it asks for copies (R5 in FAILURES). A server that is asked notes the
   raised fence first, and from then on keeps no copy under a lower one. What the old authority still sends comes too
   late, is not acknowledged, and so is no durable state. The word of a later authority is as good. A server keeps no
   copy under a lower fence if it has one under this fence. Nor if it had one that was too large, found no room for it,
   or had to make room.
3. Of all copies the one under the highest fence counts, and of those the one of the highest tick. Of equal ones it is
   what the authority itself had: since it sent a copy of its last tick there may have been other inputs and owners.
4. The decision waits for every server that has a lease. One that has none is dead; what only it had is lost, or comes
   back with it.
5. What was acknowledged is not pushed out by what comes later while an authority may rely on it: who is full refuses.

Copies of earlier custody terms of an entity, and which servers are waited for before one of them counts.

A server keeps the copies of an entity that it has: also when the entity has been elsewhere for long since. Such a copy
is all that is found when those that had the entity last are only paused, cut off or about to be restarted. A server
that resumed it would undo everything since, what was called durable included. So a recovery notes the fence of the last
term that the log gave (`RecoveryRow.stay`: a commit, a takeover, or a direct pass that was reported), and

1. a copy under that fence or a later one counts, as `authority.machines.replica_choice` says;
2. an earlier one counts only when no server is silent that may have a later one. These are the last authority, and
   those to which it may have sent copies, which are all of its instance. One that has answered has said what it has,
   and one that was removed from the directory has nothing (`server.remove`). A server that returns is asked, and what
   it has of the last term counts then;
3. a copy of before the term that preceded the last one waits for every silent server of all instances that are asked.
   The last term may never have begun, and what there was before it is with others then. Not for those instances that
   the entity came from before that copy was made (`RecoveryRow.came_epoch`): what they have is earlier;
4. what the last term was to begin with counts also while its authority alone is silent, if the server has it that has
   it frozen. That one was not told that the term has begun, and every server that could have been sent a copy of it
   says that it was not. So it does when the last authority is back with it on its disk (staged mode), and knows that it
   has not begun.

What another history of the log handed on from the last term (`was_handed_on`) is later than all that this log knows.
Then a copy of that term, or none at all, waits for every server that is silent there. Any copy waits for those to which
it is known to have been handed on.

In a takeover the new authority has a term of its own from the moment the log gives it the entity. It may have called
something durable before the log hears that it simulates. It may die before there is any copy of that. The copy from
which it was to begin, or the one that its predecessor has, is an earlier one. It counts when the new authority is back,
or removed.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import RecoveryRow
from batonpass.authority.model.standing import CopySource
from batonpass.authority.names import instance_of
from batonpass.crypto.bounded_tables import LruTable

__all__ = [
    "ASKED_NS",
    "UNKNOWN_STAY",
    "Candidate",
    "Copy",
    "CopyTable",
    "all_answered",
    "backup_replicas_of",
    "before",
    "choose",
    "may_follow",
    "never_began",
    "waited_for",
]

ASKED_NS: Final = 3600 * 1_000_000_000
"""For so long a copy that was asked for is kept as if its authority renewed it: by then operators have others back."""

_GAPS: Final = 4
"""A copy is fresh for this multiple of the longest time that its authority has let pass before it renewed it."""

_PREFERRED: Final = (CopySource.BACKUP_REPLICA, CopySource.CHECKPOINT, CopySource.STAGED, CopySource.OWN)


def backup_replicas_of(entity: str, authority: str, servers: Iterable[str], count: int) -> tuple[str, ...]:
    """The servers that keep copies of an entity: `count` of `servers`, by rendezvous hashing, never the authority.

    When a server comes or goes, only copies for which that one is chosen change their place.
    """
    others = [server for server in servers if server != authority]
    return tuple(sorted(others, key=lambda server: (_weight(entity, server), server), reverse=True)[:count])


def may_follow(server: str, peers: Sequence[str], aside: Collection[str]) -> tuple[str, ...]:
    """Of the servers that are alive those among which this one chooses backup replicas: none that is drained (`aside`).

    One that is drained may be stopped soon, and its memory is gone then. It keeps copies if no other would.
    """
    others = tuple(peer for peer in peers if peer not in aside)
    return others if any(peer != server for peer in others) else tuple(peers)


def _weight(entity: str, server: str) -> bytes:
    return hashlib.blake2b(f"{entity}\n{server}".encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A copy that some server has: of which fence and tick, and the hash of its state."""

    holder: str
    source: CopySource
    fence: Fence
    tick: int
    state_hash: str


def choose(candidates: Iterable[Candidate], *, last: str) -> Candidate | None:
    """The copy that counts, or None; of equal ones its authority's own, else that of `last`, where the entity was.

    Also of what waited for `last` to come back. That server may have been killed. Its checkpoint may be older than what
    its backup replicas have, and than what players were told to be durable by them.
    """
    order = {source: place for place, source in enumerate(_PREFERRED)}

    def rank(one: Candidate) -> tuple[Any, ...]:
        is_own = one.source is CopySource.OWN
        return (one.fence, one.tick, is_own, one.holder == last, order[one.source], one.holder)

    return max(candidates, key=rank, default=None)


def all_answered(asked: Mapping[str, int], answered: Collection[str], alive: Mapping[str, int]) -> bool:
    """Whether no server is left to wait for: each that was `asked` (by incarnation) has answered, or is gone."""
    return all(server in answered or alive.get(server) != incarnation for server, incarnation in asked.items())


@dataclass(frozen=True, slots=True)
class Copy:
    """An entity as it was at a tick, as its authority encoded it."""

    fence: Fence
    tick: int
    state: bytes
    state_hash: str
    source: CopySource = CopySource.BACKUP_REPLICA

    @property
    def rank(self) -> tuple[Fence, int]:
        """The higher one is the later state."""
        return (self.fence, self.tick)


@dataclass(slots=True)
class _CopyRow:
    """A copy, when it was last renewed, and until when it is kept for a server that has asked for it."""

    copy: Copy
    renewed_ns: int
    asked_until_ns: int = 0
    gap_ns: int = 0
    """The longest time that its authority has let pass, which may copy more seldom than this server."""


class CopyTable:
    """The copies that a server keeps, of entities that it does not simulate: the latest of each, and the raised fences.

    Bounded by the bytes of the states (`max_bytes`) and by the number of rows. Inputs are durable by what was kept, so
    no copy that was renewed within `fresh_ns` makes room for what is offered: that is refused. Others do, those first
    that were not renewed for the longest time; with a `fresh_ns` of 0, all. What this server itself had goes before.

    The times given are those of one clock, which does not go back.
    """

    def __init__(self, max_bytes: int, max_rows: int, fresh_ns: int = 0) -> None:
        self.max_bytes: Final = max_bytes
        self._max_rows: Final = max_rows
        self.fresh_ns = fresh_ns
        # In the order in which they were renewed.
        self._rows: OrderedDict[str, _CopyRow] = OrderedDict()
        self._raised: LruTable[str, Fence] = LruTable(max_rows)
        self.bytes = 0
        self.without_room = 0
        """How many were refused because they had no room."""
        self.evicted = 0
        """How many had to make room, though an authority may rely on them, or has asked for them."""

    def __len__(self) -> int:
        return len(self._rows)

    def offer(self, entity: str, copy: Copy, now_ns: int) -> bool:
        """Keep a copy, unless a higher fence was heard of, or it has no room; whether this, or a later one, is kept.

        Of an entity whose later copy has no room the earlier one stays: that is what was acknowledged.
        """
        row = self._rows.get(entity)
        if copy.fence < self._raised.get(entity, copy.fence) or (row is not None and copy.fence < row.copy.fence):
            return False
        if row is not None:
            if self.fresh_ns:
                row.gap_ns = max(row.gap_ns, min(now_ns - row.renewed_ns, ASKED_NS))
            self._renew(entity, row, now_ns)
            if row.copy.rank >= copy.rank:
                return True
        if self._makes_room(entity, copy, now_ns):
            self._put(entity, copy, now_ns)
            return True
        self.without_room += 1
        # What its authority has said counts all the same.
        self.raised(entity, copy.fence)
        return False

    def keep(self, entity: str, copy: Copy, now_ns: int) -> bool:
        """Keep what this server itself had, whatever fence was heard of: it is a copy like any other. As `offer`.

        There may be nothing else of it, so the oldest make room if all are fresh.
        """
        row = self._rows.get(entity)
        if row is not None:
            self._renew(entity, row, now_ns)
            if row.copy.rank >= copy.rank:
                return True
        if len(copy.state) > self.max_bytes:
            return False
        if not self._makes_room(entity, copy, now_ns):
            while self._lacks_room(entity, copy):
                self._push_out(next(iter(self._rows)))
                self.evicted += 1
        self._put(entity, copy, now_ns)
        return True

    def asked(self, entity: str, now_ns: int) -> None:
        """It is asked for: its authority is dead, so no server renews what may be all that is left, and has to wait."""
        row = self._rows.get(entity)
        if row is not None:
            self._renew(entity, row, now_ns)
            row.asked_until_ns = now_ns + ASKED_NS

    def raised(self, entity: str, fence: Fence) -> None:
        """The log, or a later authority, has raised the fence of an entity: copies under lower ones come too late."""
        self._raised[entity] = max(fence, self._raised.get(entity, fence))

    def get(self, entity: str) -> Copy | None:
        """The copy of an entity, if there is one."""
        row = self._rows.get(entity)
        return None if row is None else row.copy

    def stale(self, now_ns: int) -> list[str]:
        """The entities whose copies no authority has renewed in half the time after which they make room for others.

        Those that home has asked for are not among them.
        """
        found: list[str] = []
        for entity, row in self._rows.items():
            if now_ns - row.renewed_ns <= self.fresh_ns // 2:
                break
            if now_ns >= row.asked_until_ns:
                found.append(entity)
        return found

    def drop(self, entity: str) -> None:
        """Forget the copy of an entity."""
        row = self._rows.pop(entity, None)
        if row is not None:
            self.bytes -= len(row.copy.state)

    def forget(self, is_forgotten: Callable[[str], bool]) -> None:
        """Forget the copies of these entities, and what was heard of their fences."""
        for entity in [one for one in self._rows if is_forgotten(one)]:
            self.drop(entity)
        for entity in [one for one in self._raised if is_forgotten(one)]:
            del self._raised[entity]

    def _renew(self, entity: str, row: _CopyRow, now_ns: int) -> None:
        row.renewed_ns = now_ns
        self._rows.move_to_end(entity)

    def _put(self, entity: str, copy: Copy, now_ns: int) -> None:
        known = self._rows.get(entity)
        self.drop(entity)
        self._rows[entity] = _CopyRow(copy, now_ns, gap_ns=0 if known is None else known.gap_ns)
        self.bytes += len(copy.state)

    def _makes_room(self, entity: str, copy: Copy, now_ns: int) -> bool:
        """Push out what is not fresh for as long as it has to be; whether there is room for this copy then.

        If there is an earlier one of the entity, it was renewed just now: all others go before it.
        """
        if len(copy.state) > self.max_bytes:
            return False
        while self._lacks_room(entity, copy):
            oldest, row = next(iter(self._rows.items()))
            if now_ns - row.renewed_ns < max(self.fresh_ns, _GAPS * row.gap_ns):
                return False
            if now_ns < row.asked_until_ns and row.renewed_ns < now_ns:
                # Once in `fresh_ns` for each: a table full of them is not gone through for every offer.
                self._renew(oldest, row, now_ns)
            else:
                self._push_out(oldest)
        return True

    def _lacks_room(self, entity: str, copy: Copy) -> bool:
        """Whether there is too little for it in place of the copy that there is."""
        row = self._rows.get(entity)
        others, others_bytes = (
            (len(self), self.bytes) if row is None else (len(self) - 1, self.bytes - len(row.copy.state))
        )
        return others_bytes + len(copy.state) > self.max_bytes or others >= self._max_rows

    def _push_out(self, entity: str) -> None:
        self.raised(entity, self._rows[entity].copy.fence)
        self.drop(entity)


UNKNOWN_STAY: Final = Fence(0, 0)
"""Of recoveries that began before stays were noted: every copy counts."""


def before(fence: Fence, jumped_from: int = 0, sub_before: int = 0) -> Fence:
    """The fence of the stay from which a commit or a direct pass led to the one of this fence.

    That is of the epoch before, unless this one begins a block, to which it `jumped_from` another one. The last stay of
    that epoch is meant: those from which direct passes had led to it are over, as one of an earlier epoch is.
    """
    if fence.sub:
        return Fence(fence.epoch, fence.sub - 1)
    return Fence(jumped_from if jumped_from and fence.begins_block else fence.epoch - 1, sub_before)


def _before_the_last(row: RecoveryRow) -> Fence:
    return before(row.stay, row.jumped_from, row.sub_before)


def waited_for(
    row: RecoveryRow,
    best: Candidate | None,
    silent: Collection[str],
    *,
    has_begun: bool = True,
    was_handed_on: bool = False,
) -> tuple[str, ...]:
    """For whose word the best copy that was found has to wait; none if it counts, or if there is none.

    Args:
        silent: servers in a directory that have not said what they have, of all instances that were asked.
        has_begun: whether the last stay may have begun; not, if its authority has said that (`never_began`).
        was_handed_on: whether a server has, or had, a later stay than the last one that this log gave.
    """
    if was_handed_on:
        may_have = silent if best is None or best.fence.epoch <= row.own_epoch else set(silent).intersection(row.had)
        places = {instance_of(server) for server in (row.entity, row.last, *row.had) if server}
        return tuple(sorted(server for server in may_have if instance_of(server) in places))
    if best is None or best.fence >= row.stay:
        return ()
    if best.fence < _before_the_last(row):
        earlier = row.abroad_too if best.fence.epoch >= row.came_epoch else ()
        return tuple(sorted(server for server in silent if instance_of(server) not in earlier))
    if not has_begun:
        return ()
    places = {instance_of(server) for server in (row.last, *row.had) if server}
    may_have_later = tuple(sorted(server for server in silent if instance_of(server) in places))
    # What the server that had it before has frozen for a hand-over is what the last term was to begin with.
    return () if may_have_later == (row.last,) and best.source is CopySource.OWN else may_have_later


def never_began(row: RecoveryRow, candidates: Iterable[Candidate]) -> bool:
    """Whether the last authority says that it has what its stay was to begin with, and did not begin."""
    return any(
        one.holder == row.last and one.source is CopySource.STAGED and _before_the_last(row) <= one.fence < row.stay
        for one in candidates
    )
