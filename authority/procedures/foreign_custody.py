"""Entities whose authority is a simulation server of another instance than their home: what the log knows of them.

    crossings/<id>   the transfer by which an entity came from or to another instance, until a server has told its end

The lease of such a server stands in the log of its own home. So the record names the incarnation that was given the
entity, as that home has told it with the commit. No home takes the entity from it until that home says that the lease
of this incarnation is over. That stays so for ever, however late it is heard.

What the server had copied is with other servers of *its* instance, so these are asked for copies too. So are those of
the instance from which the entity came. As long as no server has said that the target has begun with it, it may be
frozen there with the only state. Later, what was durable there may be durable nowhere else, until a copy of what the
server made of it is kept.

In case 1 the old authority brings the log's word to the new one. If it dies before that, the home of the entity does:
`crossings` says of which entities that may be so.
"""

from collections.abc import Collection
from typing import Final

from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, Fence
from batonpass.authority.machines.replica_choice import Candidate
from batonpass.authority.model.records import EntityRecord, Phase, RecoveryRow, TransferRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.transfer_table import find_transfer
from batonpass.authority.wire.recovery import RaisedItem

__all__ = [
    "CROSSINGS",
    "asked_abroad",
    "asked_of",
    "counts_before",
    "crossed",
    "crossing",
    "has_begun",
    "is_abroad",
    "is_enough",
    "is_possible",
    "never_came",
    "on_its_way",
    "taken_over",
]

CROSSINGS: Final = "crossings"


def is_abroad(entity: str, server: str) -> bool:
    """Whether a server is of another instance than an entity."""
    return instance_of(server) != instance_of(entity)


def crossing(transfer: TransferRecord) -> str:
    """What a record keeps of the transfer that changes it: its id if one of the ends is of another instance."""
    home = instance_of(transfer.entity)
    return transfer.id if instance_of(transfer.source) != home or instance_of(transfer.target) != home else ""


def on_its_way(record: EntityRecord, transfer: TransferRecord) -> tuple[EntityRecord, TransferRecord]:
    """The record, with how it came to its authority by this commit, and the transfer, with what that has replaced.

    A way within its home changes nothing of where else copies are: from where it crossed last is kept then. Nor does
    one that leaves its home, where every server is asked anyway.
    """
    came_by = crossing(transfer)
    if not came_by or instance_of(transfer.source) == instance_of(record.id):
        return record.changed(came_by=came_by), transfer
    transfer = transfer.changed(came_from=record.came_from, came_epoch=record.came_epoch)
    return record.changed(came_by=came_by, came_from=instance_of(transfer.source), came_epoch=record.epoch), transfer


def never_came(record: EntityRecord, transfer: TransferRecord) -> EntityRecord:
    """The record, given back to the source of its last commit: the custody term to which that led never begins.

    So the last term is that of the source again. If its server died before there was any copy of it, what is left of
    the entity is where it had come from for that term. It is not where the commit would have had it come from.
    """
    record = record.changed(authority=transfer.source)
    if not crossing(transfer) or instance_of(transfer.source) == instance_of(record.id):
        return record
    return record.changed(came_from=transfer.came_from, came_epoch=transfer.came_epoch)


def taken_over(record: EntityRecord, row: RecoveryRow, target: str, of_epoch: int) -> EntityRecord:
    """The record, not given to `target` yet, with where it came from if a takeover has it leave an instance.

    As by a hand-over: the server that resumes it may die before any other has a copy. What is left of it is where it
    was, or was to be, until then. No server there has had it since the fence was raised. What is resumed may be a copy
    of before its last term (of the epoch `of_epoch`, 0 if that is not known). Then nothing is left of that term, and
    what there is is where it came from before.
    """
    is_before = 0 < of_epoch < row.stay_epoch
    if is_before and record.came_from not in ("", instance_of(record.id), instance_of(target)):
        return record
    left = (instance_of(server) for server in (row.last, *reversed(row.had)) if server)
    place = next((one for one in left if one not in (instance_of(record.id), instance_of(target))), "")
    return record.changed(came_from=place, came_epoch=record.epoch) if place else record


def crossed(rows: Rows, record: EntityRecord) -> None:
    """The log has given an entity to its authority: if that crosses between instances, its end is waited for."""
    if record.came_by:
        rows.put((CROSSINGS, record.id), record.came_by)


def has_begun(rows: Rows, record: EntityRecord) -> None:
    """Its authority has begun with an entity, or it is taken from it: the end of its way is not waited for any more."""
    if record.came_by and rows.get_or((CROSSINGS, record.id), None) is not None:
        rows.delete((CROSSINGS, record.id))


def asked_abroad(
    rows: Rows, record: EntityRecord, involved: tuple[str, ...], known: RecoveryRow | None
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """In which instances beside its own copies of an entity may be: `abroad`, `abroad_too` and `came_epoch` of the row.

    Args:
        involved: servers that had it, or were to have it.
        known: the recovery that this one continues, if there is one.
    """
    must = {instance_of(server) for server in involved if server}
    may: set[str] = set()
    came_epoch = 0 if known is None else known.came_epoch
    came_by = find_transfer(rows, record.came_by) if record.came_by else None
    committed = (record.id, record.fence, Phase.COMMITTED)
    if came_by is not None and (came_by.entity, came_by.fence, came_by.phase) == committed:
        # Until it has reported, it may have frozen the only state.
        must.add(instance_of(came_by.source))
    if record.came_from and record.came_from not in must:
        # Also if the fence was raised since, where it is: when it was refused to leave. The transfer may be forgotten.
        may.add(record.came_from)
        if known is None or record.came_from not in known.abroad:
            # Else all of it counts that is there, and what else was asked had the entity no longer than was known.
            came_epoch = record.came_epoch
    if known is not None:
        must.update(known.abroad)
        may.update(known.abroad_too)
    # Development versions wrote no instance for a while.
    own = {instance_of(record.id), ""}
    return tuple(sorted(must - own)), tuple(sorted(may - must - own)), came_epoch


def counts_before(row: RecoveryRow, holder: str) -> int:
    """Before which epoch copies of this holder count; instances are not trusted with others' entities.

    No server has one of the raised fence, and an instance that the entity has left none of those since. Excepted is
    what was staged there for a hand-over of which nothing came, which cannot be told from what is made up.
    """
    if instance_of(holder) not in row.abroad_too:
        return row.epoch
    return row.came_epoch or row.epoch - 1


def is_possible(row: RecoveryRow, holder: str, epoch: int, *, was_handed_on: bool = False) -> bool:
    """Whether a copy of this epoch counts (`counts_before`).

    What another history of the log gave does not, unless the entity `was_handed_on` by it. That is by the server that
    had it by this one, so that it is later. Else it is not known from what that history resumed.
    """
    is_of_another = row.own_epoch and row.own_epoch < epoch < row.epoch - row.epoch % EPOCHS_OF_A_HISTORY
    return epoch < counts_before(row, holder) and not (is_of_another and not was_handed_on)


def asked_of(row: RecoveryRow, holder: str, *, was_handed_on: bool = False) -> RaisedItem:
    """What a server is asked about an entity: a server with several says which copy is the best of those that count."""
    below = counts_before(row, holder)
    if row.own_epoch and Fence(row.epoch).begins_block and not was_handed_on:
        below = min(below, row.own_epoch + 1)
    later_count = was_handed_on and bool(row.own_epoch)
    fields = {"epoch": row.epoch, "sub": 0, "counts_before": below, "own_epoch": row.own_epoch}
    return RaisedItem(entity=row.entity, **fields, later_count=later_count)


def is_enough(row: RecoveryRow, best: Candidate | None, silent: Collection[str]) -> bool:
    """Whether what was found may be decided on, though these instances cannot be asked.

    A copy under the fence under which the entity came from there has all that it had there. An earlier one need not,
    and what is missing cannot be known. Where all are to be asked no silence is borne.
    """
    return not set(row.abroad_too) & set(silent) or (best is not None and best.fence.epoch >= row.came_epoch)
