"""Fences that two histories of one log cannot share.

    fence_floor    {epoch}: where the log gives an entity to somebody, it does so under this epoch at least

A log that was restored from an older copy gives fences again that were given before. Of two claims under one fence
it cannot be said which counts, and a server that remembers the fences of one history, as a server of another instance
or a player may, takes what the other one gives for what it has already, or for old. So as soon as a log knows that
there was another history beside it, it leaves all fences behind that this may have given: epochs are counted in blocks
of `EPOCHS_OF_A_HISTORY`, and the log takes a block that is numbered above all offices of granting leases that
either of the two is known to have had (`authority.trust.signed_positions`). The office of that number begins with it,
and no homeserver holds it: all that is sealed from then on shows it, and the next granter shows a later one, so that
a third history, which has not heard of it, takes a block above it, too.
It knows that when a loss is accepted (`log.accept`), and when a server says that it has followed another log
(`authority.procedures.ownership_check`).

So are the revisions of who owns an entity, with its fence: an authority, and players, take the highest one that they
have heard of for the last word, and what they have may be of the other history.

What stays where it is keeps its fence: no entity is given again for that, and what is refused to leave goes on under
the next epoch, as ever.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, MAX_EPOCH
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.lease import lease_office
from batonpass.authority.trust.signed_positions import MAX_OFFICE, ReadableTree, mark_office, skip_offices

__all__ = ["FENCE_FLOOR", "HISTORY_PROCEDURES", "given_next", "lowest_epoch", "part_from"]

FENCE_FLOOR: Final = "fence_floor"
_LAST_BLOCK: Final = MAX_EPOCH // EPOCHS_OF_A_HISTORY


def lowest_epoch(copy: ReadableTree) -> int:
    """Below which epoch the log gives nobody anything now."""
    row: Mapping[str, int] | None = copy.get_or((FENCE_FLOOR,), None)
    return 0 if row is None else row["epoch"]


def given_next(rows: Rows, record: EntityRecord, last_given: int | None = None, **changes: Any) -> EntityRecord:
    """The record with these `changes`, and the fence under which the log gives its entity to somebody.

    That is the next one, unless it is too low; then its owner has a revision that no other history has given either.

    Args:
        last_given: the last epoch under which somebody had it, if not that of the record.
    """
    fence = record.fence.raised()
    if fence.epoch >= (lowest := lowest_epoch(rows)):
        return record.changed(epoch=fence.epoch, sub=fence.sub, **changes)
    jumped_from = record.epoch if last_given is None else last_given
    owner_rev = max(record.owner_rev + 1, lowest)
    return record.changed(epoch=lowest, sub=0, owner_rev=owner_rev, jumped_from=jumped_from, **changes)


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
