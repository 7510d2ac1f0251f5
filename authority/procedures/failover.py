"""Taking entities from a server whose lease is over, giving them to the one with the best copy, and declaring losses.

    recoveries/<id>   RecoveryRow of an entity that no server simulates since its authority died

`authority.machines.replica_choice` has the rules. An entity goes (A, e) → (no server, e + 1) → (B, e + 2). The first
step raises the fence, and only after it are servers asked for copies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, Fence
from batonpass.authority.machines.replica_choice import before
from batonpass.authority.model.records import EntityRecord, Phase, RecoveryRow
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.standing import CopySource, LeasePhase, OrphanPolicy, Standing
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.delete import bury, take_back
from batonpass.authority.procedures.foreign_custody import asked_abroad, has_begun, is_abroad, never_came, taken_over
from batonpass.authority.procedures.group_table import refuse_group
from batonpass.authority.procedures.lease import check_lease, find_lease, incarnation_of, is_sole
from batonpass.authority.procedures.log_rollback import given_next, lowest_epoch
from batonpass.authority.procedures.rights import find_entity, save_entity
from batonpass.authority.procedures.transfer_table import find_transfer, save_transfer

__all__ = ["RECOVERY_PROCEDURES", "is_unsure"]

MAX_HAD: Final = 64
"""Servers of one recovery that may have had its entity; a word that names more is not listened to."""


def recovery_begin(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Take entities from a server whose lease is over, or that is a later incarnation than the one that had them.

    Those that it has not, or has as what it is now, are left. What becomes of each is its policy's to say. The ids of
    those that are to be recovered.
    """
    server = args["server"]
    lease = find_lease(rows, server)
    if lease is None:
        raise Refused(Reason.LEASE_HELD, f"{server} has no lease: nothing can be taken from it", server=server)
    return [
        taken
        for item in _ending_last(rows, args["entities"])
        if (record := _left_with(rows, server, item)) is not None
        and lease.has_outlived(record.incarnation)
        and (taken := _taken(rows, record, is_back=lease.phase is not LeasePhase.OVER))
    ]


def recovery_begin_abroad(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Take entities from an incarnation of a server of another instance, whose home has said that its lease is over.

    That is so for ever: the caller need not say when it was told. As `recovery.begin` otherwise.
    """
    server, incarnation = args["server"], args["incarnation"]
    return [
        taken
        for item in _ending_last(rows, args["entities"])
        if (record := _left_with(rows, server, item)) is not None
        and is_abroad(record.id, server)
        and record.incarnation == incarnation
        and (taken := _taken(rows, record))
    ]


def recovery_contest_abroad(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Ask who has entities (id, epoch and sub-epoch) that servers of other instances have by this log.

    Of those alone that were given before it heard of another history, by which such a server may have handed one on. No
    server there would say so (`authority.procedures.log_rollback`). The ids of those that are to be recovered.
    """
    return [
        _begin(rows, record, record.authority, contested=True)
        for server, *item in args["entities"]
        if (record := _left_with(rows, server, item)) is not None and is_unsure(record, lowest_epoch(rows))
    ]


def is_unsure(record: EntityRecord, lowest: int) -> bool:
    """Whether an entity is abroad under a fence that another history of its log may have given, too."""
    return record.epoch < lowest and bool(record.authority) and is_abroad(record.id, record.authority)


def _ending_last(rows: Rows, items: Sequence[Any]) -> list[Any]:
    """Entities (id, epoch and sub-epoch), those at the end that are to end with their server.

    With one that ends its groups are refused, which raises the fences of others that are frozen for them here.
    """

    def is_to_end(item: Any) -> bool:
        data = rows.get_or(("entities", item[0]), None)
        return data is not None and EntityRecord.from_data(data).orphans is OrphanPolicy.DESPAWN

    return sorted(items, key=is_to_end)


def _left_with(rows: Rows, server: str, item: Any) -> EntityRecord | None:
    """The record of an entity (id, epoch and sub-epoch), if this server has it under this fence still."""
    entity_id, epoch, sub = item
    data = rows.get_or(("entities", entity_id), None)
    record = None if data is None else EntityRecord.from_data(data)
    is_left = record is not None and (record.authority, record.fence) == (server, Fence(epoch, sub))
    return record if is_left else None


def _taken(rows: Rows, record: EntityRecord, *, is_back: bool = False) -> str:
    """Its id if it is to be recovered; it ends if that is its policy.

    What may have been handed on by another history of the log is looked for whatever its policy is. That is about the
    death of the server that has it, and a live one may. Nor has a server died that `is_back` as another incarnation,
    after it has followed another history.
    """
    lowest = lowest_epoch(rows)
    if is_unsure(record, lowest):
        return _begin(rows, record, record.authority, contested=True)
    has_died = not (is_back and record.epoch < lowest)
    if record.orphans is OrphanPolicy.DESPAWN and has_died:
        if record.unconfirmed and record.fence == Fence(record.born):
            # It may never have begun: the client that created it repeats that, and was told of nothing that ended.
            take_back(rows, record)
        else:
            bury(rows, record)
        return ""
    return _begin(rows, record, record.authority)


def recovery_strand(rows: Rows, args: Mapping[str, Any]) -> Any:
    """A living authority has no state to begin with, and the source of the entity is dead; or it never will have one.

    Taken like any other: whatever state may come after all is one of the copies that are asked for.

    Of a source of another instance its home has said whether its lease is over (`source_over`).

    Raises `Refused`: `too_late` if the entity is not this server's (any more). `lease_held` if its source is alive, or
    it has no lease itself, here or in its own home. It would not be asked, and could begin after all.
    """
    record, transfer = find_entity(rows, args["entity"]), find_transfer(rows, args["transfer_id"])
    is_its = (record.authority, record.fence) == (args["target"], Fence(args["epoch"], args["sub"]))
    if not is_its or record.incarnation not in (0, args["incarnation"]):
        raise Refused(Reason.TOO_LATE, f"{record.id} is with {record.authority} now", epoch=record.epoch)
    if transfer is None or (transfer.entity, transfer.fence) != (record.id, record.fence):
        raise Refused(Reason.TOO_LATE, f"{args['transfer_id']} is not how {record.id} came", epoch=record.epoch)
    has_lease = record.incarnation if is_abroad(record.id, args["target"]) else find_lease(rows, args["target"])
    if not has_lease:
        text = f"{args['target']} is not asked for copies here, so nothing can be taken from it while it may be alive"
        raise Refused(Reason.LEASE_HELD, text, server=args["target"])
    lease = find_lease(rows, transfer.source)
    is_dead = args.get("source_over", False) and is_abroad(record.id, transfer.source)
    if lease is not None:
        is_dead = lease.has_outlived(transfer.source_incarnation)
    if not args["never"] and not is_dead:
        text = f"{transfer.source} is alive and has the state of {record.id}"
        raise Refused(Reason.LEASE_HELD, text, server=transfer.source)
    if record.orphans is OrphanPolicy.DESPAWN and not args["never"]:
        bury(rows, record)
        return ""
    # The custody term to which it led has not begun, and what was before it is with its source.
    stay = before(record.fence, record.jumped_from, record.sub_before)
    involved = transfer.source, transfer.target
    return _begin(rows, never_came(record, transfer), *involved, stay=stay, sub_before=transfer.sub_before)


def recovery_contest(rows: Rows, args: Mapping[str, Any]) -> Any:
    """A server of its delegation says that an entity was passed on, and cannot prove it: a key is not good any more.

    No server will be able to, and another server may have begun by that pass while the key was good. So the fence is
    raised, and the server that has the entity is asked for it like any other. The `transfers` that are open end
    (`unproven`). Nothing is done if the log knows of the pass (to the fence `epoch`, `sub`), or is beyond it. Whether
    the entity is being recovered then.

    Raises `Refused` (`no_delegation`) if `by` could not have been passed it.
    """
    data = rows.get_or(("entities", args["entity"]), None)
    record = None if data is None else EntityRecord.from_data(data)
    if record is None or record.epoch != args["epoch"] or args["sub"] <= record.sub:
        return record is not None and not record.authority
    if args["by"] not in record.delegation:
        raise Refused(Reason.NO_DELEGATION, f"{record.id} is not delegated to {args['by']}")
    for name in args["transfers"]:
        transfer = find_transfer(rows, name)
        if transfer is not None and transfer.entity == record.id and transfer.phase is Phase.PERMITTED:
            save_transfer(rows, transfer.changed(phase=Phase.REFUSED, reason=Reason.UNPROVEN.value))
            refuse_group(rows, transfer, Reason.UNPROVEN)
    _begin(rows, record, *record.delegation, contested=True)
    return True


def _begin(
    rows: Rows,
    record: EntityRecord,
    *involved: str,
    contested: bool = False,
    stay: Fence | None = None,
    sub_before: int = 0,
) -> str:
    """Raise the fence, and have copies looked for: here, and wherever these servers are at home.

    Its last custody term is that of the record, unless another one is named. `sub_before` is that of the named one, if
    it is of an earlier epoch.
    """
    known = rows.get_or(("recoveries", record.id), None)
    known = None if known is None else RecoveryRow.from_data(known)
    abroad, abroad_too, came_epoch = asked_abroad(rows, record, involved, known)
    has_begun(rows, record)
    stay = record.fence if stay is None else stay
    jumped_from, sub_before = (record.jumped_from, record.sub_before) if stay.epoch == record.epoch else (0, sub_before)
    if known is not None and known.stay == stay:
        jumped_from, sub_before = known.jumped_from, known.sub_before
    fields = {"authority": "", "incarnation": 0, "delegation": (), "standing": Standing.RECOVERING}
    raised = given_next(rows, record, _last_given(record, known), **fields)
    save_entity(rows, raised)
    # What was to be resumed from a disk, and was not yet, is there alone still.
    from_disk = known is not None and known.disk and known.target in ("", record.authority)
    row = RecoveryRow(
        entity=record.id,
        last=record.authority,
        epoch=raised.epoch,
        # Which server has died, if any, is not known of what is contested.
        held=record.orphans is OrphanPolicy.FREEZE and not contested,
        contested=contested,
        disk=from_disk or is_sole(rows, record.authority),
        abroad=abroad,
        abroad_too=abroad_too,
        came_epoch=came_epoch,
        had=tuple(dict.fromkeys((*(() if known is None else known.had), *involved))),
        stay_epoch=stay.epoch,
        stay_sub=stay.sub,
        jumped_from=jumped_from,
        sub_before=sub_before,
        own_epoch=raised.jumped_from,
    )
    rows.put(("recoveries", record.id), row.to_data())
    return record.id


def _last_given(record: EntityRecord, known: RecoveryRow | None) -> int:
    """The last epoch under which the log has given an entity to a server: under one that was raised none had it."""
    if known is None or known.target:
        return record.epoch
    return known.own_epoch if Fence(known.epoch).begins_block else known.epoch - 1


def _find(rows: Rows, entity_id: str, epoch: int) -> tuple[EntityRecord, RecoveryRow]:
    """An entity that is being recovered under the fence of this epoch; raises `Refused`."""
    record = find_entity(rows, entity_id)
    data = rows.get_or(("recoveries", entity_id), None)
    if data is None or record.epoch != epoch:
        raise Refused(Reason.TOO_LATE, f"{entity_id} is not being recovered under epoch {epoch}", epoch=record.epoch)
    return record, RecoveryRow.from_data(data)


def recovery_finish(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The compare-and-set of takeovers, each (no server, e + 1) → (target, e + 2), resuming from a copy of this hash.

    `of_epoch` is that of the copy. The ids of those that succeeded; the others are left as they are.
    """
    return _each(rows, args["items"], _finish)


def _each(rows: Rows, items: Any, do: Callable[[Rows, Mapping[str, Any]], str]) -> list[str]:
    done = []
    for item in items:
        try:
            done.append(do(rows, item))
        except Refused:
            # Nothing of it was written: what is refused is refused before.
            continue
    return done


def _finish(rows: Rows, args: Mapping[str, Any]) -> str:
    record, row = _find(rows, args["entity"], args["epoch"])
    if record.authority:
        raise Refused(Reason.TOO_LATE, f"{record.id} is with {record.authority} already", epoch=record.epoch)
    if args.get("held", row.held) != row.held:
        raise Refused(Reason.TOO_LATE, f"another policy was set for {record.id} since", epoch=record.epoch)
    _check_fence(rows, record)
    check_lease(rows, args["target"])
    told = args.get("incarnation", 0)
    incarnation = incarnation_of(rows, args["target"], told)
    if told not in (0, incarnation):
        raise Refused(Reason.TARGET_DOWN, f"{args['target']} has been killed since, perhaps with its copy")
    epoch = record.fence.raised().epoch
    of_epoch = args.get("of_epoch", 0)
    record = taken_over(record, row, args["target"], of_epoch)
    given = {"authority": args["target"], "incarnation": incarnation, "standing": Standing.SIMULATED}
    record = record.under(epoch, **given)
    if row.own_epoch < of_epoch < epoch - epoch % EPOCHS_OF_A_HISTORY:
        # Whatever gave it, from here on it is what this log went on from, and others may have copies of it.
        record = record.changed(jumped_from=of_epoch)
    save_entity(rows, record)
    found = {"tick": args["tick"], "state_hash": args["state_hash"], "source": CopySource(args["source"])}
    rows.put(("recoveries", record.id), row.changed(epoch=epoch, target=args["target"], **found).to_data())
    return record.id


def recovery_again(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The targets of these do not resume them, though they are alive: the copies may be gone. Look for others."""
    return _each(rows, args["items"], _again)


def _again(rows: Rows, args: Mapping[str, Any]) -> str:
    record, row = _find(rows, args["entity"], args["epoch"])
    if not row.target:
        raise Refused(Reason.TOO_LATE, f"{record.id} is looked for already", epoch=record.epoch)
    # The target is alive, and has said that it does not resume it: what it was given for that is no custody term.
    record = record.changed(authority=row.last)
    return _begin(rows, record, row.last, row.target, contested=row.contested, stay=row.stay)


def recovery_adopted(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The targets have taken these over: their recoveries are over, or were before."""
    return _each(rows, args["items"], _adopted)


def _adopted(rows: Rows, args: Mapping[str, Any]) -> str:
    # The entity may be elsewhere by now, under a later fence, which its recovery must not wait for.
    data = rows.get_or(("recoveries", args["entity"]), None)
    row = None if data is None else RecoveryRow.from_data(data)
    if row is None or (row.target, row.epoch) != (args["target"], args["epoch"]):
        raise Refused(Reason.TOO_LATE, f"{args['entity']} is not what {args['target']} is to take over")
    rows.delete(("recoveries", row.entity))
    return row.entity


def recovery_lost(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Every server that is alive was asked, and has no copy of these. One that comes later may have one."""
    return _each(rows, args["items"], _lost)


def _check_fence(rows: Rows, record: EntityRecord) -> None:
    """Refuse to decide under a fence that another history of the log may have given: see `recovery_anew`."""
    if record.epoch < lowest_epoch(rows):
        raise Refused(Reason.TOO_LATE, f"{record.id} is to be asked for anew", epoch=record.epoch)


def recovery_anew(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Ask every server again about these, which are looked for since before the log heard of another history of it.

    Another one may have given the fence that is next, and more may have copies that count.
    """
    return _each(rows, args["items"], _anew)


def _anew(rows: Rows, args: Mapping[str, Any]) -> str:
    record, row = _find(rows, args["entity"], args["epoch"])
    if record.authority or record.epoch >= lowest_epoch(rows):
        raise Refused(Reason.TOO_LATE, f"{record.id} need not be asked for anew", epoch=record.epoch)
    asked = (row.last, *row.had)
    return _begin(rows, record.changed(authority=row.last), *asked, contested=row.contested, stay=row.stay)


def recovery_handed_on(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Another history of the log had these handed on to these servers, whose instances are asked from now on, too."""
    return _each(rows, args["items"], _handed_on)


def _handed_on(rows: Rows, args: Mapping[str, Any]) -> str:
    record, row = _find(rows, args["entity"], args["epoch"])
    had = tuple(dict.fromkeys((*row.had, *args["servers"])))
    if record.authority or len(had) > MAX_HAD:
        raise Refused(Reason.TOO_LATE, f"{record.id} is not looked for any further", epoch=record.epoch)
    there = {instance_of(server) for server in args["servers"]} - {instance_of(record.id)}
    abroad = tuple(sorted(there | set(row.abroad)))
    too = tuple(one for one in row.abroad_too if one not in abroad)
    rows.put(("recoveries", record.id), row.changed(had=had, abroad=abroad, abroad_too=too).to_data())
    return record.id


def _lost(rows: Rows, args: Mapping[str, Any]) -> str:
    record, _ = _find(rows, args["entity"], args["epoch"])
    _check_fence(rows, record)
    if not record.authority:
        save_entity(rows, record.changed(standing=Standing.LOST))
    return record.id


RECOVERY_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "recovery.adopted": recovery_adopted,
    "recovery.again": recovery_again,
    "recovery.anew": recovery_anew,
    "recovery.begin": recovery_begin,
    "recovery.begin_abroad": recovery_begin_abroad,
    "recovery.contest": recovery_contest,
    "recovery.contest_abroad": recovery_contest_abroad,
    "recovery.finish": recovery_finish,
    "recovery.handed_on": recovery_handed_on,
    "recovery.lost": recovery_lost,
    "recovery.strand": recovery_strand,
}
