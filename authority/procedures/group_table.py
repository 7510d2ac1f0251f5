"""The rows of groups: which there are, which of them name the same entities, and how one is refused.

groups/<id>    a `GroupRecord`
group_order    the ids of all that are remembered, oldest first: the order of the log

What is done with them is in `authority.procedures.group_commit`.
"""

from collections.abc import Iterator
from typing import Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord, GroupPhase, GroupRecord, Phase, TransferRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.rights import save_entity
from batonpass.authority.procedures.transfer_table import find_transfer, save_transfer

__all__ = [
    "GROUP_LIFETIME_S",
    "GROUP_ORDER",
    "MAX_GROUP",
    "MAX_GROUPS",
    "MAX_RIVALS",
    "MEMBERS_IN_A_SECOND",
    "find_group",
    "is_behind",
    "refuse_group",
    "refuse_groups_of",
    "refuse_whole",
    "remember_group",
    "save_group",
    "save_prepared",
    "time_for_s",
    "unless_group_expired",
]

# How many entities one step of the log moves: with some 0.2 ms for each it is not held up for long.
MAX_GROUP: Final = 1024
# Groups that are remembered; the oldest that are decided are forgotten first.
MAX_GROUPS: Final = 256
# Open groups with some of the same entities before one: what is asked for of one entity waits for no more of them.
MAX_RIVALS: Final = 8
# How long the first that is frozen waits for the last. `MEMBERS_IN_A_SECOND` more members have a second more, for all
# servers together. On a machine where a thousand take a second and a half, a tenth of it has time for all of
# `MAX_GROUP`.
GROUP_LIFETIME_S: Final = 10
MEMBERS_IN_A_SECOND: Final = 100
GROUP_ORDER: Final = ("group_order",)
"""The ids of all groups that are remembered, oldest first."""


def find_group(rows: Rows, group: str) -> GroupRecord | None:
    """The group of this id, or None if there is none (any more); a transfer of no group names none."""
    data = rows.get_or(("groups", group), None) if group else None
    return None if data is None else GroupRecord.from_data(data)


def save_group(rows: Rows, group: GroupRecord) -> None:
    """Write a group."""
    rows.put(("groups", group.id), group.to_data())


def save_prepared(rows: Rows, group: GroupRecord) -> None:
    """Write how many are prepared. The row as it stands with another number: it has a place for each of its members."""
    path = ("groups", group.id)
    rows.put(path, rows.get_or(path, {}) | {"prepared": group.prepared})


def remember_group(rows: Rows, group: GroupRecord) -> GroupRecord:
    """Write a new group, and return it as it stands then; of too many the oldest that is not open is forgotten.

    Raises:
        Refused: too many groups are open, or too many of some of the same entities (`full`).
    """
    rivals = _open_rivals(rows, group)
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
    for rival in rivals:
        # Of one that waits long others may come and go.
        later = tuple(name for name in rival.later if _is_open(rows, name))
        save_group(rows, rival.changed(later=(*later, group.id)))
    group = _lined_up(group, rivals)
    save_group(rows, group)
    return group


def _open_rivals(rows: Rows, group: GroupRecord) -> list[GroupRecord]:
    """The open groups that name some of the same entities as a new one. Raises `Refused`, if they are too many."""
    if group.phase is not GroupPhase.OPEN:
        return []
    rivals = list(_open_groups_of(rows, set(group.members.values())))
    if len(rivals) > MAX_RIVALS:
        text = f"{len(rivals)} groups with some of the same entities are under way already"
        raise Refused(Reason.FULL, text, limit=MAX_RIVALS)
    return rivals


def _lined_up(group: GroupRecord, rivals: list[GroupRecord]) -> GroupRecord:
    """A new group behind its rivals: it has its own time when theirs is over, and none is frozen before its turn.

    What is left of that time then, is cut to its own by `authority.procedures.group_commit.prepare`.
    """
    own_s = time_for_s(len(group.members))
    expires_at_s = max([group.expires_at_s, *(rival.expires_at_s + own_s for rival in rivals)])
    earlier = tuple(rival.id for rival in rivals)
    return group.changed(begins_at_s=group.expires_at_s - own_s, expires_at_s=expires_at_s, earlier=earlier)


def _open_groups_of(rows: Rows, entities: set[str]) -> Iterator[GroupRecord]:
    """The groups that wait for their last member, and name some of these entities; in the order of the log."""
    for name in rows.get_or(GROUP_ORDER, ()):
        data = rows.get_or(("groups", name), None)
        # Nearly all are decided, or of others: to read them as records would take some 10 us each.
        if data is not None and data["phase"] == GroupPhase.OPEN and not entities.isdisjoint(data["members"].values()):
            yield GroupRecord.from_data(data)


def _is_open(rows: Rows, name: str) -> bool:
    data = rows.get_or(("groups", name), None)
    return data is not None and data["phase"] == GroupPhase.OPEN


def is_behind(group: GroupRecord, earlier: GroupRecord | None, now_s: float) -> bool:
    """Whether an `earlier` group goes first: it is open, its notice is over, and its time is not."""
    if earlier is None or earlier.id not in group.earlier or earlier.phase is not GroupPhase.OPEN:
        return False
    return earlier.begins_at_s <= now_s <= earlier.expires_at_s


def time_for_s(members: int) -> int:
    """How long the first that is frozen of this number waits for the last, in seconds; it may be a second less."""
    return GROUP_LIFETIME_S + members // MEMBERS_IN_A_SECOND


def unless_group_expired(rows: Rows, group: GroupRecord, now_s: float) -> GroupRecord:
    """The group; if its time is up, it is refused here and now."""
    if group.phase is GroupPhase.OPEN and now_s > group.expires_at_s:
        return refuse_whole(rows, group, Reason.GROUP_FAILED)
    return group


def refuse_group(rows: Rows, transfer: TransferRecord, reason: Reason) -> None:
    """One member is refused: so are all the others, and this one, if it was frozen."""
    group = find_group(rows, transfer.group)
    if group is not None and group.phase is GroupPhase.OPEN:
        refuse_whole(rows, group, reason)
    left = find_transfer(rows, transfer.id)
    if left is not None and left.phase is Phase.PREPARED:
        _refuse_member(rows, left, reason)


def refuse_groups_of(rows: Rows, entity: str, reason: Reason) -> None:
    """An entity can be in no group any more: those that it is in are refused."""
    for group in list(_open_groups_of(rows, {entity})):
        refuse_whole(rows, group, reason)


def refuse_whole(rows: Rows, group: GroupRecord, reason: Reason) -> GroupRecord:
    """All of a group are refused; those of it that are frozen are resumed where they are. The group after that."""
    group = group.changed(phase=GroupPhase.REFUSED, reason=reason.value)
    save_group(rows, group)
    for name in group.members:
        transfer = find_transfer(rows, name)
        if transfer is not None and transfer.phase in (Phase.PERMITTED, Phase.PREPARED):
            _refuse_member(rows, transfer, reason)
    return group


def _refuse_member(rows: Rows, transfer: TransferRecord, reason: Reason) -> None:
    """A frozen member is resumed where it is, under the next epoch, as after any refusal."""
    data = rows.get_or(("entities", transfer.entity), None)
    record = None if data is None else EntityRecord.from_data(data)
    if transfer.phase is Phase.PREPARED and record is not None:
        if (record.authority, record.fence) == (transfer.source, transfer.fence):
            save_entity(rows, record.under(record.fence.raised().epoch, delegation=()))
        raised = transfer.fence.raised()
        transfer = transfer.changed(epoch=raised.epoch, sub=raised.sub)
    save_transfer(rows, transfer.changed(phase=Phase.REFUSED, reason=reason.value))
