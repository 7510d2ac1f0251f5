"""The alarm of an instance whose log was restored from an older copy, in that log, so that all its members know.

    log_alarm    {by, office, lost, why}; `lost` is the office under which the log was elsewhere

The homeserver that grants leases is shown that the log was where it has never been
(`authority.trust.signed_positions`), and says so here. From then on no member grants leases, decides anything, or takes
the office. That holds after a restart too, since the log that is to be put back is another one and has no such row.
Only an operator takes it away. One may accept the loss. Or the newest log is in place, which a server holds against it
that was granted a lease by the older one.

What of all that a server has an entity's log has given it.

Asked by a server that followed another history of that log, and now and then by all with entities of other instances.

A log that was restored from an older copy gives fences again that were given before. A server that it granted a lease
has taken entities up by it, and has written them down. It did so under fences that the newest log, when that is put
back, has given to others, or not at all. Fences do not tell the two apart: of equal ones the later tick would win,
whichever server it is from. So such a server keeps what the log says that it has, or had last, and nothing else
(`is_given`).

A server of another instance that was given an entity by it hears nothing of all that: its own home's log is as it was.
So it asks from time to time whether what it simulates is its own. It shows the last words of the other instance's log
that it has heard. A log that has never been there, and was not accepted, answers nothing
(`homeserver.transfer.ownership_check`).

Fences that two histories of one log cannot share.

    fence_floor    {epoch}: where the log gives an entity to a server, it does so under this epoch at least

A log that was restored from an older copy gives fences again that were given before. Of two claims under one fence it
cannot be said which counts. A server may remember the fences of one history, as a server of another instance or a
player may. It takes what the other one gives for what it has already, or for old. So as soon as a log knows that there
was another history beside it, it leaves all fences behind that this may have given. Epochs are counted in blocks of
`EPOCHS_OF_A_HISTORY`. The log takes a block that is numbered above all offices of granting leases that either of the
two is known to have had (`authority.trust.signed_positions`). The office of that number begins with it, and no
homeserver holds it. All that is sealed from then on shows it, and the next granter shows a later one. So a third
history, which has not heard of it, takes a block above it, too. It knows that when a loss is accepted (`log.accept`),
and when a server says that it has followed another log (`is_given`).

So are the revisions of who owns an entity, with its fence. An authority, and players, take the highest one that they
have heard of for the last word, and what they have may be of the other history.

What stays where it is keeps its fence. No entity is given again for that, and what is refused to leave is resumed under
the next epoch, as ever.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, MAX_EPOCH, Fence
from batonpass.authority.machines.replica_choice import before
from batonpass.authority.model.records import EntityRecord, RecoveryRow
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.lease import lease_office
from batonpass.authority.trust.signed_positions import ACCEPTED, MAX_OFFICE, ReadableTree, mark_office, skip_offices

__all__ = [
    "ALARM",
    "ALARM_PROCEDURES",
    "FENCE_FLOOR",
    "HISTORY_PROCEDURES",
    "alarm_of",
    "given_next",
    "is_given",
    "is_staged",
    "lowest_epoch",
    "part_from",
]

FENCE_FLOOR: Final = "fence_floor"
_LAST_BLOCK: Final = MAX_EPOCH // EPOCHS_OF_A_HISTORY


def lowest_epoch(copy: ReadableTree) -> int:
    """Below which epoch the log gives no server anything now."""
    row: Mapping[str, int] | None = copy.get_or((FENCE_FLOOR,), None)
    return 0 if row is None else row["epoch"]


def given_next(rows: Rows, record: EntityRecord, last_given: int | None = None, **changes: Any) -> EntityRecord:
    """The record with these `changes`, and the fence under which the log gives its entity to a server.

    That is the next one, unless it is too low; then its owner has a revision that no other history has given either.

    Args:
        last_given: the last epoch under which a server had it, if not that of the record.
    """
    epoch = record.fence.raised().epoch
    if epoch >= (lowest := lowest_epoch(rows)):
        return record.under(epoch, **changes)
    jumped_from = record.epoch if last_given is None else last_given
    owner_rev = max(record.owner_rev + 1, lowest)
    return record.under(lowest, owner_rev=owner_rev, jumped_from=jumped_from, **changes)


def part_from(rows: Rows, office: int, mark: str) -> None:
    """Leave all fences behind that another history of this log may have given, which went up to this office.

    The homeserver that grants leases has lost the office by that: the next one, of this random `mark`, has no holder.
    """
    if lowest_epoch(rows) > office * EPOCHS_OF_A_HISTORY:
        return
    before = lease_office(rows)
    number = min(max(office, before.number) + 1, MAX_OFFICE)
    rows.put((FENCE_FLOOR,), {"epoch": min(number, _LAST_BLOCK) * EPOCHS_OF_A_HISTORY})
    skip_offices(rows, before.number, number - 1 if mark else number)
    rows.put(("lease_office",), before.changed(holder="", number=number).to_data())
    mark_office(rows, number, mark)


def log_parted(rows: Rows, args: Mapping[str, Any]) -> Any:
    """A server has followed another history of this log, which had the office `office`; again, nothing changes.

    `mark` is random, and is the mark of the office that begins with that.
    """
    part_from(rows, args["office"], args.get("mark", ""))
    return lowest_epoch(rows)


HISTORY_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {"log.parted": log_parted}


ALARM: Final = "log_alarm"
MAX_WHY_CHARS: Final = 512


def alarm_of(copy: ReadableTree) -> str:
    """Why this log is not the one that it was, for people; empty if that was not shown."""
    row: Mapping[str, Any] | None = copy.get_or((ALARM,), None)
    return "" if row is None else str(row["why"])


def raise_alarm(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The holder of the office `office` was shown that the log went back. A later one has to be shown that itself."""
    row = rows.get_or((ALARM,), None)
    if row is None and lease_office(rows).number == args["office"]:
        row = {"by": args["by"], "office": args["office"], "lost": args["lost"], "why": args["why"][:MAX_WHY_CHARS]}
        rows.put((ALARM,), row)
    return row


def accept_loss(rows: Rows, args: Mapping[str, Any]) -> Any:
    """An operator accepts this log as it is. Answers with the alarm that there was, or None.

    `mark` is random, and is the mark of the office that begins with that.

    What proves the other history is nothing from then on: a server that has it may show it for as long as it lives. The
    next office has a higher number than any under which that is so. Should this log be restored from an older copy once
    more, what was signed since proves it. Nor does it give fences that the other one may have given.
    """
    row = rows.get_or((ALARM,), None)
    if row is not None:
        rows.delete((ALARM,))
        office, before = lease_office(rows), rows.get_or((ACCEPTED,), {})
        last = max(before.get("office", 0), row["lost"], office.number)
        rows.put((ACCEPTED,), {**before, "office": last, "within": office.number})
        part_from(rows, last, args.get("mark", ""))
    return row


ALARM_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "log.alarm": raise_alarm,
    "log.accept": accept_loss,
}


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

    Or one that it may have been passed since, of which the log need not have heard. Of one that `is_astray` that is so
    only if it is of the group that may be passed it now. An earlier one is not: no server can say whether it is of this
    history. `recovery` is how that of an entity stands whose authority died.

    Or what came of that stay. `went_on` are epochs of earlier stays of the server's own which it knows to have led to
    this one, by whichever history. So did all from the epoch `since` on. Of one that never left the server, which was
    restarted or refused to let it go, the other history has raised the fence, and nothing else.
    """
    if record is None:
        return False
    stays = [(record.authority, record.fence, server in record.delegation or not is_astray)]
    if recovery is not None:
        # To which server its last authority may have passed it on is not known any more.
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
