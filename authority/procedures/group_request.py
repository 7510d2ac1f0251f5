"""Several entities that a player or operator wants moved: together, or each by itself, with one report about them.

*Together* they are a group as `authority.procedures.group_commit` has it. All must be to be had at once, and move in
one step or not at all. *Apart* each is a transfer like any other. What cannot be had is refused by itself, and the
others move; the report is the list of the transfers.

What is below an entity in its hierarchy always comes along. The members of a group bring theirs. The transfer of one
entity becomes a group of it and of what is below it, which has the transfer's id.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord, GroupPhase, GroupRecord, Phase, Rule, TransferRecord, Want
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.rules import Decision, decide
from batonpass.authority.procedures.authorization import granted_under, permitted_under
from batonpass.authority.procedures.directory import is_simserver
from batonpass.authority.procedures.drain import check_not_draining
from batonpass.authority.procedures.group_table import (
    GROUP_LIFETIME_S,
    GROUP_ORDER,
    MAX_GROUP,
    find_group,
    remember_group,
    time_for_s,
    unless_group_expired,
)
from batonpass.authority.procedures.hierarchy import is_held_elsewhere, level_of, parts_from, to_bring_along
from batonpass.authority.procedures.rights import find_entity, is_master_gone
from batonpass.authority.procedures.transfer_table import check_room, derived_id, find_transfer, save_transfer

__all__ = ["GROUP_PROCEDURES", "check_parent_is_there", "with_those_below"]


def group_propose(rows: Rows, args: Mapping[str, Any]) -> Any:
    """A player or operator wants several entities moved, together or `apart`; no master is asked.

    Repeating it answers with the group as it is.
    """
    existing = find_group(rows, args["group"])
    entities, apart = list(args["entities"]), bool(args.get("apart"))
    if existing is not None:
        named = [entity for name, entity in existing.members.items() if name not in existing.brought]
        is_same = sorted(named) == sorted(entities) and existing.target == args["target"]
        if not is_same or apart is not (existing.phase is GroupPhase.APART):
            raise Refused(Reason.TRANSFER_ID_TAKEN, f"group {existing.id} is another one", group=existing.id)
        return _as_it_is(rows, existing, args["now_s"]).to_data()
    if find_transfer(rows, args["group"]) is not None:
        text = f"there is a transfer {args['group']} already"
        raise Refused(Reason.TRANSFER_ID_TAKEN, text, transfer=args["group"])
    if not 1 <= len(entities) <= MAX_GROUP or len(set(entities)) != len(entities):
        raise Refused(Reason.FULL, f"a group is 1 to {MAX_GROUP} entities, each named once", limit=MAX_GROUP)
    if args.get("check_target", True) and not is_simserver(rows, args["target"]):
        text = f"no simulation server {args['target']} is registered here"
        raise Refused(Reason.UNKNOWN_TARGET, text, server=args["target"])
    check_not_draining(rows, args["target"])
    check_room(rows, args["now_s"])
    decided = _permitted_or_refused if apart else _permitted
    transfers = [decided(rows, args, number, entity) for number, entity in enumerate(entities)]
    group = GroupRecord(
        id=args["group"],
        target=args["target"],
        members={transfer.id: transfer.entity for transfer in transfers},
        expires_at_s=_expires_at_s(args),
        phase=GroupPhase.APART if apart else GroupPhase.OPEN,
    )
    if apart:
        transfers = _each_with_those_below(rows, transfers, args["now_s"])
    else:
        group, brought = _extended(rows, group, transfers)
        transfers += brought
    # After those of its members: a group apart is the first to be forgotten when there are too many.
    group = remember_group(rows, group)
    for transfer in transfers:
        save_transfer(rows, transfer, now_s=args["now_s"])
    return group.to_data()


def _expires_at_s(args: Mapping[str, Any]) -> int:
    """Until when the last member must be frozen, in Unix seconds, if the members are few (`_extended`)."""
    notice_s = -(-int(args.get("notice_ms", 0)) // 1000)
    return int(args["now_s"]) + GROUP_LIFETIME_S + notice_s


# --- what is below ----------------------------------------------------------------------------------------------------


def with_those_below(rows: Rows, transfer: TransferRecord, now_s: float) -> TransferRecord:
    """A permitted transfer of one entity, as one of a group with what is below it, if there is anything.

    The others are ordered like it, but in no player's name: who owns them stays so. The caller writes the transfer.

    Raises:
        Refused: its parent would stay behind (`attached`), there are too many groups, or an id is taken.
    """
    return _with_those_below(rows, transfer, {}, now_s)[0]


def _with_those_below(
    rows: Rows, transfer: TransferRecord, wanted: Mapping[str, TransferRecord], now_s: float
) -> list[TransferRecord]:
    """As `with_those_below`; what is `wanted` too, by entity, comes along by its own transfer: those that do follow."""
    record = find_entity(rows, transfer.entity)
    check_parent_is_there(rows, record, transfer.target)
    below = to_bring_along(rows, record, transfer.target)
    if not below:
        return [transfer]
    if find_group(rows, transfer.id) is not None:
        raise Refused(Reason.TRANSFER_ID_TAKEN, f"there is a group {transfer.id} already", group=transfer.id)
    together = [transfer, *(wanted[one.id] for one in below if one.id in wanted)]
    # A group goes through the log, whatever its members could have done alone.
    together = [one.changed(group=transfer.id, direct=False) for one in together]
    group = GroupRecord(
        id=transfer.id,
        target=transfer.target,
        members={one.id: one.entity for one in together},
        expires_at_s=_expires_at_s({"now_s": now_s, "notice_ms": transfer.notice_ms}),
    )
    group, brought = _extended(rows, group, together)
    remember_group(rows, group)
    for other in brought:
        save_transfer(rows, other, now_s=now_s)
    return together


def _each_with_those_below(rows: Rows, transfers: Sequence[TransferRecord], now_s: float) -> list[TransferRecord]:
    """As `with_those_below`, of several that are moved apart; each is refused by itself, if it cannot be.

    Of two that were named and belong together the upper one is the one that moves, and the other comes along.
    """
    wanted = {one.entity: one for one in transfers if one.phase is Phase.PERMITTED}
    decided = {one.id: one for one in transfers if one.phase is not Phase.PERMITTED}
    for entity in sorted(wanted, key=lambda name: level_of(rows, find_entity(rows, name))):
        transfer = wanted[entity]
        if transfer.id in decided:
            continue
        try:
            together = _with_those_below(rows, transfer, wanted, now_s)
        except Refused as refused:
            # It was never ordered, so nothing of it is still under way.
            together = [transfer.changed(phase=Phase.REFUSED, reason=refused.reason.value, permit_rule_rev=0)]
        decided |= {one.id: one for one in together}
    return [decided[one.id] for one in transfers]


def check_parent_is_there(rows: Rows, record: EntityRecord, target: str) -> None:
    """Raise `Refused` (`attached`) if the entity has a parent on another server than `target`."""
    if record.parent and is_held_elsewhere(find_entity(rows, record.parent), target):
        text = f"{record.id} is below {record.parent}, which is not on {target}: move that, or detach it first"
        raise Refused(Reason.ATTACHED, text, entity=record.id)


def _extended(
    rows: Rows, group: GroupRecord, transfers: Sequence[TransferRecord]
) -> tuple[GroupRecord, list[TransferRecord]]:
    """The group with what is below its members, and time for all of them, and the transfers that were added.

    Raises:
        Refused: an entity would be left behind (`attached`), or they are too many (`full`).
    """
    moving, added = set(group.members.values()), list[TransferRecord]()
    for transfer in transfers:
        for other in to_bring_along(rows, find_entity(rows, transfer.entity), group.target):
            if other.id not in moving:
                moving.add(other.id)
                added.append(_brought(rows, transfer, other, derived_id(group.id, str(len(transfers) + len(added)))))
    if len(moving) > MAX_GROUP:
        raise Refused(Reason.FULL, f"a group is {MAX_GROUP} entities at most, with those below", limit=MAX_GROUP)
    for name in sorted(moving):
        if left := parts_from(rows, find_entity(rows, name), moving, group.target):
            text = f"{name} would leave {left} behind: move that too, or detach them first"
            raise Refused(Reason.ATTACHED, text, entity=name)
    extra = {transfer.id: transfer.entity for transfer in added}
    expires_at_s = group.expires_at_s - GROUP_LIFETIME_S + time_for_s(len(moving))
    return group.changed(members=group.members | extra, brought=tuple(extra), expires_at_s=expires_at_s), added


def _brought(rows: Rows, transfer: TransferRecord, record: EntityRecord, transfer_id: str) -> TransferRecord:
    """The transfer of what comes along with the entity of `transfer`."""
    if find_transfer(rows, transfer_id) is not None:
        raise Refused(Reason.TRANSFER_ID_TAKEN, f"there is a transfer {transfer_id} already", transfer=transfer_id)
    return transfer.changed(
        id=transfer_id,
        entity=record.id,
        source=record.authority,
        requester="",
        want=Want.BY_RULE,
        ask_expires_at_s=0,
        **permitted_under(record, by_master=False),
    )


# --- one member -------------------------------------------------------------------------------------------------------


def _permitted_or_refused(rows: Rows, args: Mapping[str, Any], number: int, entity: str) -> TransferRecord:
    """A transfer of its own, which is refused at once if the entity is not to be had."""
    try:
        return _permitted(rows, args, number, entity).changed(group="")
    except Refused as refused:
        if refused.reason is Reason.TRANSFER_ID_TAKEN:
            raise
        transfer = _of(args, number, entity)
        return transfer.changed(phase=Phase.REFUSED, reason=refused.reason.value, group="")


def _permitted(rows: Rows, args: Mapping[str, Any], number: int, entity: str) -> TransferRecord:
    """The transfer of one member. Raises `Refused` if the entity is not to be had at once."""
    transfer, requester = _of(args, number, entity), args.get("requester", "")
    if find_transfer(rows, transfer.id) is not None:
        raise Refused(Reason.TRANSFER_ID_TAKEN, f"there is a transfer {transfer.id} already", transfer=transfer.id)
    record = find_entity(rows, entity)
    is_gone = is_master_gone(rows, record)
    decision = decide(record, requester, transfer.want, is_master_gone=is_gone) if requester else Decision.GRANTED
    if record.authority == args["target"]:
        raise Refused(Reason.SAME_SERVER, f"{entity} is on {record.authority} already", entity=entity)
    if decision is not Decision.GRANTED:
        reason = Reason.DENIED if decision is Decision.ASKED else Reason(decision.value)
        text = f"{entity} is not to be had by {requester} at once (its rule is {Rule(record.rule)})"
        raise Refused(reason, text, entity=entity)
    return transfer.changed(source=record.authority, **granted_under(record, requester, args))


def _of(args: Mapping[str, Any], number: int, entity: str) -> TransferRecord:
    return TransferRecord(
        id=derived_id(args["group"], str(number)),
        entity=entity,
        target=args["target"],
        want=Want(args.get("want", Want.BY_RULE)),
        phase=Phase.PERMITTED,
        requester=args.get("requester", ""),
        group=args["group"],
        mode=args.get("mode", "eager"),
        notice_ms=args.get("notice_ms", 0),
        freeze_budget_ms=args.get("freeze_budget_ms", 0),
        transport=args.get("transport", "rest"),
    )


def group_look(rows: Rows, args: Mapping[str, Any]) -> Any:
    """How a group is; one whose time is up is refused here and now."""
    group = find_group(rows, args["group"])
    if group is None:
        raise Refused(Reason.NOT_FOUND, f"there is no group {args['group']}", group=args["group"])
    return _as_it_is(rows, group, args["now_s"]).to_data()


def _as_it_is(rows: Rows, group: GroupRecord, now_s: float) -> GroupRecord:
    """The group; it, and what its members are the tops of, is refused here and now where the time is up."""
    for name in rows.get_or(GROUP_ORDER, []) if group.phase is GroupPhase.APART else ():
        inner = find_group(rows, name) if name in group.members else None
        if inner is not None:
            unless_group_expired(rows, inner, now_s)
    return unless_group_expired(rows, group, now_s)


GROUP_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "group.look": group_look,
    "group.propose": group_propose,
}
