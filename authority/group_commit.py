"""Groups: several entities that change their authorities together, in one step of the log, or not at all.

Each member is a transfer of its own, from whichever server has it. When an old authority asks for the commit of one,
the log notes that it is frozen (`prepared`) and says that the answer is still to come; the old authority asks again,
as it does when nobody answers. With the last member all are committed in one procedure. If one is refused, is not
prepared in time, or would not be committed any more, all are refused, and the epoch of each that was frozen is
raised, so that its authority goes on. So no failure leaves a group half moved (FAILURES rows 34 and 35).

How a group comes about, or several transfers with one report, is in `authority.group_requests`.
"""

from collections.abc import Mapping
from typing import Any, Final

from authority.abroad import crossed, on_its_way
from authority.deletion import grave_of
from authority.drain_procedures import is_draining
from authority.errors import Reason, Refused
from authority.hierarchy import parts_from
from authority.histories import given_next
from authority.lease_procedures import incarnation_of, may_be_given
from authority.permits import asked_anew, why_lapsed
from authority.records import EntityRecord, GroupPhase, GroupRecord, Phase, TransferRecord
from authority.rights import find_entity, save_entity, with_owner
from authority.rows import Rows
from authority.transfer_rows import find_transfer, save_transfer

__all__ = [
    "GROUP_LIFETIME_S",
    "GROUP_ORDER",
    "MAX_GROUP",
    "MAX_GROUPS",
    "find_group",
    "prepare",
    "prepared_again",
    "refuse_group",
    "remember_group",
    "unless_group_expired",
]

# How many entities one step of the log moves: with some 0.2 ms for each it is not held up for long.
MAX_GROUP: Final = 1024
# Groups that are remembered; the oldest that are decided are forgotten first.
MAX_GROUPS: Final = 256
# How long the first that is frozen waits for the last.
GROUP_LIFETIME_S: Final = 10
GROUP_ORDER: Final = ("group_order",)
"""The ids of all groups that are remembered, oldest first."""


# --- rows -------------------------------------------------------------------------------------------------------------


def find_group(rows: Rows, group: str) -> GroupRecord | None:
    """The group of this id, or None if there is none (any more); a transfer of no group names none."""
    data = rows.get_or(("groups", group), None) if group else None
    return None if data is None else GroupRecord.from_data(data)


def _save(rows: Rows, group: GroupRecord) -> None:
    rows.put(("groups", group.id), group.to_data())


def remember_group(rows: Rows, group: GroupRecord) -> None:
    """Write a new group; of too many the oldest that is not open is forgotten. Raises `Refused` (`full`)."""
    order = [*rows.get_or(GROUP_ORDER, []), group.id]
    if len(order) > MAX_GROUPS:
        for known in order[:-1]:
            other = find_group(rows, known)
            if other is None or other.phase is not GroupPhase.OPEN:
                order.remove(known)
                rows.delete(("groups", known))
                break
        else:
            raise Refused(Reason.FULL, f"{MAX_GROUPS} groups are under way already", limit=MAX_GROUPS)
    rows.put(GROUP_ORDER, order)
    _save(rows, group)


# --- preparing, and the one commit ------------------------------------------------------------------------------------


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
        # Nobody waits for it any more: it goes on by itself.
        refuse_group(rows, transfer, Reason.GROUP_FAILED)
    else:
        group = group.changed(prepared=group.prepared + (not is_counted))
        _save(rows, group)
        if group.prepared == len(group.members):
            _commit(rows, group, args.get("now_s", 0.0))
    return find_transfer(rows, transfer.id) or transfer


def prepared_again(rows: Rows, transfer: TransferRecord, now_s: float) -> TransferRecord:
    """The authority of a frozen member asks again: the transfer, refused if the group's time is up."""
    group = find_group(rows, transfer.group)
    if group is None or now_s > group.expires_at_s:
        refuse_group(rows, transfer, Reason.GROUP_FAILED)
    return find_transfer(rows, transfer.id) or transfer


def _commit(rows: Rows, group: GroupRecord, now_s: float) -> None:
    members = [transfer for name in group.members if (transfer := find_transfer(rows, name)) is not None]
    if any(grave_of(rows, transfer.entity) is not None for transfer in members):
        _refuse(rows, group, Reason.GONE)
        return
    records = {transfer.id: find_entity(rows, transfer.entity) for transfer in members}
    reasons = [_why_not(rows, records[transfer.id], transfer) for transfer in members]
    reasons += [Reason.TARGET_DOWN for transfer in members if not may_be_given(rows, transfer.target)]
    moving = {transfer.entity for transfer in members}
    torn = [record for record in records.values() if parts_from(rows, record, moving, group.target)]
    reasons += [Reason.ATTACHED for _ in torn]
    reasons += [Reason.DRAINING for transfer in members if is_draining(rows, transfer.target)]
    if len(members) < len(group.members) or any(reasons):
        _refuse(rows, group, next((reason for reason in reasons if reason), Reason.GROUP_FAILED))
        for transfer in members:
            _ask_anew(rows, transfer.id, now_s)
        return
    for transfer in members:
        record = records[transfer.id]
        incarnation = incarnation_of(rows, transfer.target, transfer.incarnation)
        lives: dict[str, Any] = {"incarnation": incarnation, "source_incarnation": record.incarnation}
        record = given_next(rows, record, authority=transfer.target, incarnation=incarnation, delegation=())
        record = on_its_way(record, transfer)
        record = with_owner(record, transfer.requester) if transfer.requester else record
        save_entity(rows, record)
        crossed(rows, record)
        lives |= {"owner": record.owner, "owner_rev": record.owner_rev}
        save_transfer(rows, transfer.changed(phase=Phase.COMMITTED, epoch=record.epoch, sub=record.sub, **lives))
    _save(rows, group.changed(phase=GroupPhase.COMMITTED))


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


def unless_group_expired(rows: Rows, group: GroupRecord, now_s: float) -> GroupRecord:
    """The group; if its time is up, it is refused here and now."""
    if group.phase is GroupPhase.OPEN and now_s > group.expires_at_s:
        return _refuse(rows, group, Reason.GROUP_FAILED)
    return group


def refuse_group(rows: Rows, transfer: TransferRecord, reason: Reason) -> None:
    """One member is refused: so are all the others, and this one, if it was frozen."""
    group = find_group(rows, transfer.group)
    if group is not None and group.phase is GroupPhase.OPEN:
        _refuse(rows, group, reason)
    left = find_transfer(rows, transfer.id)
    if left is not None and left.phase is Phase.PREPARED:
        _refuse_member(rows, left, reason)


def _refuse(rows: Rows, group: GroupRecord, reason: Reason) -> GroupRecord:
    group = group.changed(phase=GroupPhase.REFUSED, reason=reason.value)
    _save(rows, group)
    for name in group.members:
        transfer = find_transfer(rows, name)
        if transfer is not None and transfer.phase in (Phase.PERMITTED, Phase.PREPARED):
            _refuse_member(rows, transfer, reason)
    return group


def _refuse_member(rows: Rows, transfer: TransferRecord, reason: Reason) -> None:
    """A frozen member goes on where it is, under the next epoch, as after any refusal."""
    data = rows.get_or(("entities", transfer.entity), None)
    record = None if data is None else EntityRecord.from_data(data)
    if transfer.phase is Phase.PREPARED and record is not None:
        if (record.authority, record.fence) == (transfer.source, transfer.fence):
            fence = record.fence.raised()
            save_entity(rows, record.changed(epoch=fence.epoch, sub=fence.sub, delegation=()))
        raised = transfer.fence.raised()
        transfer = transfer.changed(epoch=raised.epoch, sub=raised.sub)
    save_transfer(rows, transfer.changed(phase=Phase.REFUSED, reason=reason.value))
