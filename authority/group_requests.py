"""Several entities that somebody wants moved: together, or each by itself, with one report about all of them.

*Together* they are a group as `authority.group_commit` has it: all must be to be had at once, and move in one step or
not at all. *Apart* each is a transfer like any other. What cannot be had is refused by itself, and the others move;
the report is the list of the transfers.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from authority.directory_procedures import is_simserver
from authority.drain_procedures import check_not_draining
from authority.errors import Reason, Refused
from authority.group_commit import (
    GROUP_LIFETIME_S,
    MAX_GROUP,
    find_group,
    remember_group,
    unless_group_expired,
)
from authority.records import GroupPhase, GroupRecord, Phase, TransferRecord
from authority.rights import find_entity
from authority.rows import Rows
from authority.rules import Decision, Rule, Want, decide
from authority.transfer_rows import find_transfer, save_transfer

__all__ = ["GROUP_PROCEDURES"]


def group_propose(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Somebody wants several entities moved, together or `apart`; no master is asked.

    Repeating it answers with the group as it is.
    """
    existing = find_group(rows, args["group"])
    entities, apart = list(args["entities"]), bool(args.get("apart"))
    if existing is not None:
        is_same = sorted(existing.members.values()) == sorted(entities) and existing.target == args["target"]
        if not is_same or apart is not (existing.phase is GroupPhase.APART):
            raise Refused(Reason.TRANSFER_ID_TAKEN, f"group {existing.id} is another one", group=existing.id)
        return unless_group_expired(rows, existing, args["now_s"]).to_data()
    if not 1 <= len(entities) <= MAX_GROUP or len(set(entities)) != len(entities):
        raise Refused(Reason.FULL, f"a group is 1 to {MAX_GROUP} entities, each named once", limit=MAX_GROUP)
    if args.get("check_target", True) and not is_simserver(rows, args["target"]):
        text = f"no simulation server {args['target']} is registered here"
        raise Refused(Reason.UNKNOWN_TARGET, text, server=args["target"])
    check_not_draining(rows, args["target"])
    decided = _permitted_or_refused if apart else _permitted
    transfers = [decided(rows, args, number, entity) for number, entity in enumerate(entities)]
    group = GroupRecord(
        id=args["group"],
        target=args["target"],
        members={transfer.id: transfer.entity for transfer in transfers},
        expires_at_s=int(args["now_s"]) + GROUP_LIFETIME_S + -(-args.get("notice_ms", 0) // 1000),
        phase=GroupPhase.APART if apart else GroupPhase.OPEN,
    )
    remember_group(rows, group)
    for transfer in transfers:
        save_transfer(rows, transfer)
    return group.to_data()


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
    decision = decide(record, requester, transfer.want) if requester else Decision.GRANTED
    if record.authority == args["target"]:
        raise Refused(Reason.SAME_SERVER, f"{entity} is on {record.authority} already", entity=entity)
    if decision is not Decision.GRANTED:
        reason = Reason.DENIED if decision is Decision.ASKED else Reason(decision.value)
        text = f"{entity} is not to be had by {requester} at once (its rule is {Rule(record.rule)})"
        raise Refused(reason, text, entity=entity)
    return transfer.changed(source=record.authority, permit_rule_rev=record.rule_rev, permit_owner_rev=record.owner_rev)


def _of(args: Mapping[str, Any], number: int, entity: str) -> TransferRecord:
    return TransferRecord(
        id=f"{args['group']}-{number}",
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
    return unless_group_expired(rows, group, args["now_s"]).to_data()


GROUP_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "group.look": group_look,
    "group.propose": group_propose,
}
