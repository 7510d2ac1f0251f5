"""What of all that a server has an entity's log has given it.

Asked by a server that followed another history of that log, and now and then by all with entities of other instances.

A log that was restored from an older copy gives fences again that were given before. A server that it granted a lease
has taken entities up by it, and has written them down, under fences that the newest log, when that is put back, has
given to others, or not at all. Fences do not tell the two apart: of equal ones the later tick would win, whichever
server it is from. So such a server keeps what the log says that it has, or had last, and nothing else (`is_given`).

A server of another instance that was given an entity by it hears nothing of all that: its own home's log is as it was.
So it asks from time to time whether what it simulates is its own, and shows the last words of the other instance's log
that it has heard: a log that has never been there, and was not accepted, answers nothing
(`homeserver.transfer.ownership_check`).
"""

from collections.abc import Collection

from batonpass.authority.fence import Fence
from batonpass.authority.machines.stay_order import before
from batonpass.authority.model.records import EntityRecord, RecoveryRow

__all__ = ["is_given", "is_staged"]


def is_given(
    server: str,
    fence: Fence,
    record: EntityRecord | None,
    recovery: RecoveryRow | None,
    *,
    is_astray: bool,
    went_on: Collection[int] = (),
    since: int = 0,
) -> bool:
    """Whether what `server` has of an entity, simulated by itself under `fence`, is the last custody term that the log
    knows.

    Or one that it may have been passed since, of which the log need not have heard: of one that `is_astray` only if it
    is of the group that may be passed it now. An earlier one is not: no server can say whether it is of this history.
    `recovery` is how that of an entity stands whose authority died.

    Or what came of that stay: `went_on` are epochs of earlier stays of the server's own which it knows to have led to
    this one, by whichever history, and so did all from the epoch `since` on. Of one that never left the server, which
    was restarted or refused to let it go, the other history has raised the fence, and nothing else.
    """
    if record is None:
        return False
    stays = [(record.authority, record.fence, server in record.delegation or not is_astray)]
    if recovery is not None:
        # Whom its last authority may have passed it on to is not known any more.
        stays.append((recovery.last, recovery.stay, True))
    led_here = (stay.epoch for authority, stay, _ in stays if server == authority)
    came_of_it = any(epoch in went_on or 0 < since <= epoch < fence.epoch for epoch in led_here)
    return came_of_it or any(_is_of(server, fence, *stay) for stay in stays)


def is_staged(
    server: str, source: str, fence: Fence, record: EntityRecord | None, recovery: RecoveryRow | None
) -> bool:
    """Whether a state that `source` has frozen under `fence`, and `server` has on its disk, is of the last custody
    term.

    Or of the one before it, if the last one is the server's own: it may be what that is to begin with.
    """
    if is_given(source, fence, record, recovery, is_astray=True):
        return True
    stays = [(one.epoch, one.jumped_from) for one in (record,) if one is not None]
    stays += [(one.stay_epoch, one.jumped_from) for one in (recovery,) if one is not None]
    led_to = [Fence(epoch) for epoch, jumped_from in stays if before(Fence(epoch), jumped_from).epoch == fence.epoch]
    return any(is_given(server, stay, record, recovery, is_astray=True) for stay in led_to)


def _is_of(server: str, fence: Fence, authority: str, stay: Fence, may_be_passed: bool) -> bool:
    if fence.epoch != stay.epoch or fence.sub < stay.sub:
        return False
    return server == authority if fence.sub == stay.sub else may_be_passed
