"""Groups: several entities that change their authorities together, in one step of the log, or not at all.

Each member is a transfer of its own, from whichever server has it. When an old authority asks for the commit of one,
the log notes that it is frozen (`prepared`) and says that the answer is still to come. The old authority asks again, as
it does when it is not answered. With the last member all are committed in one procedure. If one is refused, is not
prepared in time, or would not be committed any more, all are refused. The epoch of each that was frozen is raised, so
that its authority resumes it. So no failure leaves a group half moved (FAILURES rows 34 and 35).

Two groups that name some of the same entities could each wait for what the other has frozen, until the time of both is
up. So the order of the log decides: a later group is not ordered while an earlier one is about to freeze an entity
(`is_behind`). Where both have begun, the later one gives way when it holds what an earlier one waits for, of which one
is frozen already. The one that came first is never refused for that. So there is always one that gets on (the "wound"
half of wound-wait: Rosenkrantz, Stearns, Lewis 1978).

How a group comes about, or several transfers with one report, is in `authority.procedures.group_request`.
"""

from collections.abc import Mapping
from typing import Any

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import EntityRecord, GroupPhase, GroupRecord, Phase, TransferRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.authorization import asked_anew, why_lapsed
from batonpass.authority.procedures.delete import grave_of
from batonpass.authority.procedures.drain import is_draining
from batonpass.authority.procedures.foreign_custody import crossed, on_its_way
from batonpass.authority.procedures.group_table import (
    find_group,
    refuse_group,
    refuse_whole,
    save_group,
    save_prepared,
    time_for_s,
    unless_group_expired,
)
from batonpass.authority.procedures.hierarchy import parts_from
from batonpass.authority.procedures.lease import incarnation_of, may_be_given
from batonpass.authority.procedures.log_rollback import given_next
from batonpass.authority.procedures.rights import find_entity, save_entity, with_owner
from batonpass.authority.procedures.transfer_table import find_transfer, save_transfer

__all__ = ["prepare", "prepared_again"]


def prepare(rows: Rows, transfer: TransferRecord, record: EntityRecord, args: Mapping[str, Any]) -> TransferRecord:
    """The authority of a member has frozen it; with the last one all are committed. The transfer after that."""
    group = find_group(rows, transfer.group)
    # Its authority may have died since it was prepared, and another one has it now.
    is_counted = transfer.phase is Phase.PREPARED
    transfer = transfer.changed(
        phase=Phase.PREPARED,
        source=args["source"],
        epoch=record.epoch,
        sub=record.sub,
        tick=args["tick"],
        state_hash=args["state_hash"],
        incarnation=args.get("incarnation", 0),
    )
    save_transfer(rows, transfer)
    if group is None or group.phase is not GroupPhase.OPEN or args.get("now_s", 0.0) > group.expires_at_s:
        # It is not waited for any more: it moves by itself.
        refuse_group(rows, transfer, Reason.GROUP_FAILED)
    else:
        if not group.prepared and group.earlier:
            # It has had the time of others beside its own.
            expires_at_s = min(group.expires_at_s, int(args.get("now_s", 0.0)) + time_for_s(len(group.members)))
            group = group.changed(expires_at_s=expires_at_s)
            save_group(rows, group)
        group = group.changed(prepared=group.prepared + (not is_counted))
        if not is_counted:
            save_prepared(rows, group)
        if group.prepared == len(group.members):
            _commit(rows, group, args.get("now_s", 0.0))
        else:
            _make_way(rows, group, transfer.entity, args.get("now_s", 0.0))
    return find_transfer(rows, transfer.id) or transfer


def _make_way(rows: Rows, group: GroupRecord, entity: str, now_s: float) -> None:
    """A member has been frozen: of two groups of which both have begun, the later gives up what the other waits for."""
    for name in group.earlier:
        earlier = find_group(rows, name)
        if earlier is not None and earlier.phase is GroupPhase.OPEN:
            earlier = unless_group_expired(rows, earlier, now_s)
            if earlier.phase is GroupPhase.OPEN and earlier.prepared and entity in earlier.members.values():
                refuse_whole(rows, group, Reason.GROUP_FAILED)
                return
    wanted = set(group.members.values()) if group.later else ()
    for name in group.later:
        later = find_group(rows, name)
        if later is not None and later.phase is GroupPhase.OPEN and later.prepared:
            shared = [member for member, other in later.members.items() if other in wanted]
            if any(_is_prepared(rows, member) for member in shared):
                refuse_whole(rows, later, Reason.GROUP_FAILED)


def _is_prepared(rows: Rows, transfer_id: str) -> bool:
    transfer = find_transfer(rows, transfer_id)
    return transfer is not None and transfer.phase is Phase.PREPARED


def prepared_again(rows: Rows, transfer: TransferRecord, now_s: float) -> TransferRecord:
    """The authority of a frozen member asks again: the transfer, refused if the group's time is up."""
    group = find_group(rows, transfer.group)
    if group is None or now_s > group.expires_at_s:
        refuse_group(rows, transfer, Reason.GROUP_FAILED)
    return find_transfer(rows, transfer.id) or transfer


def _commit(rows: Rows, group: GroupRecord, now_s: float) -> None:
    members = [transfer for name in group.members if (transfer := find_transfer(rows, name)) is not None]
    if any(grave_of(rows, transfer.entity) is not None for transfer in members):
        refuse_whole(rows, group, Reason.GONE)
        return
    records = {transfer.id: find_entity(rows, transfer.entity) for transfer in members}
    reasons = [_why_not(rows, records[transfer.id], transfer) for transfer in members]
    reasons += [Reason.TARGET_DOWN for transfer in members if not may_be_given(rows, transfer.target)]
    moving = {transfer.entity for transfer in members}
    torn = [record for record in records.values() if parts_from(rows, record, moving, group.target)]
    reasons += [Reason.ATTACHED for _ in torn]
    reasons += [Reason.DRAINING for transfer in members if is_draining(rows, transfer.target)]
    if len(members) < len(group.members) or any(reasons):
        refuse_whole(rows, group, next((reason for reason in reasons if reason), Reason.GROUP_FAILED))
        for transfer in members:
            _ask_anew(rows, transfer.id, now_s)
        return
    for transfer in members:
        record = records[transfer.id]
        incarnation = incarnation_of(rows, transfer.target, transfer.incarnation)
        lives: dict[str, Any] = {"incarnation": incarnation, "source_incarnation": record.incarnation}
        lives["sub_before"] = record.sub_before
        record = given_next(rows, record, authority=transfer.target, incarnation=incarnation, delegation=())
        record, noted = on_its_way(record, transfer)
        if transfer.requester and not transfer.keeps_owner:
            record = with_owner(record, transfer.requester)
        save_entity(rows, record)
        crossed(rows, record)
        lives |= {"owner": record.owner, "owner_rev": record.owner_rev}
        save_transfer(rows, noted.changed(phase=Phase.COMMITTED, epoch=record.epoch, sub=record.sub, **lives))
    save_group(rows, group.changed(phase=GroupPhase.COMMITTED))


def _why_not(rows: Rows, record: EntityRecord, transfer: TransferRecord) -> Reason | None:
    """Why a member cannot be committed any more, though it was when it was prepared."""
    if transfer.phase is not Phase.PREPARED or (record.authority, record.fence) != (transfer.source, transfer.fence):
        return Reason.NOT_HOLDER
    return why_lapsed(rows, record, transfer)


def _ask_anew(rows: Rows, transfer_id: str, now_s: float) -> None:
    """A member was refused: if that is because a former master had permitted it, the present one is asked."""
    refused = find_transfer(rows, transfer_id)
    if refused is not None and refused.reason == Reason.MASTER_CHANGED:
        save_transfer(rows, asked_anew(rows, refused, find_entity(rows, refused.entity), now_s))
