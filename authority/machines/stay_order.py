"""Copies of earlier custody terms of an entity, and which servers are waited for before one of them counts.

A server keeps the copies of an entity that it has: also when the entity has been elsewhere for long since. Such a copy
is all that is found when those that had the entity last are only paused, cut off or about to be restarted, and a server
that resumed it would undo everything since, what was called durable included. So a recovery notes the fence of the
last term that the log gave (`RecoveryRow.stay`: a commit, a takeover, or a direct pass that was reported), and

1. a copy under that fence or a later one counts, as `authority.machines.replica_choice` says;
2. an earlier one counts only when no server is silent that may have a later one: the last authority, and those to which
   it may have sent copies, which are all of its instance. One that has answered has said what it has, and one that was
   removed from the directory has nothing (`server.remove`). A server that returns is asked, and what it has of the last
   term counts then;
3. a copy of before the term that preceded the last one waits for every silent server of all instances that are asked:
   the last term may never have begun, and what there was before it is with others then. Not for those instances that
   the entity came from before that copy was made (`RecoveryRow.came_epoch`): what they have is earlier;
4. what the last term was to begin with counts also while its authority alone is silent, if the server has it that has
   it frozen: that one was not told that the term has begun, and every server that could have been sent a copy of it
   says that it was not. So it does when the last authority is back with it on its disk (staged mode), and knows that it
   has not begun.

What another history of the log handed on from the last term (`was_handed_on`) is later than all that this log knows:
then a copy of that term, or none at all, waits for every server that is silent there, and any copy for those to which
it is known to have been handed on.

In a takeover the new authority has a term of its own from the moment the log gives it the entity, as it may have called
something durable before the log hears that it goes on. If it dies before there is any copy of that, the one from which
it was to go on, or the one that its predecessor has, is an earlier one: it counts when the new authority is back, or
removed.
"""

from collections.abc import Collection, Iterable
from typing import Final

from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Candidate
from batonpass.authority.model.records import RecoveryRow
from batonpass.authority.model.standing import CopySource
from batonpass.authority.names import instance_of

__all__ = ["UNKNOWN_STAY", "before", "never_began", "waited_for"]

UNKNOWN_STAY: Final = Fence(0, 0)
"""Of recoveries that began before stays were noted: every copy counts."""


def before(fence: Fence, jumped_from: int = 0) -> Fence:
    """The lowest fence of the stay from which a commit or a direct pass led to the one of this fence.

    That is of the epoch before, unless this one begins a block, to which it `jumped_from` another one.
    """
    if fence.sub:
        return Fence(fence.epoch, fence.sub - 1)
    return Fence(jumped_from if jumped_from and fence.begins_block else fence.epoch - 1, 0)


def _before_the_last(row: RecoveryRow) -> Fence:
    return before(row.stay, row.jumped_from)


def waited_for(
    row: RecoveryRow,
    best: Candidate | None,
    silent: Collection[str],
    *,
    has_begun: bool = True,
    was_handed_on: bool = False,
) -> tuple[str, ...]:
    """For whose word the best copy that was found has to wait; nobody's if it counts, or if there is none.

    Args:
        silent: servers in a directory that have not said what they have, of all instances that were asked.
        has_begun: whether the last stay may have begun; not, if its authority has said that (`never_began`).
        was_handed_on: whether somebody has, or had, a later stay than the last one that this log gave.
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
