"""What leads to a transfer, or to ownership alone: a player asks, the rule or the master answers; cancelling."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord, Want
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.rules import Decision, decide, is_locked_against
from batonpass.authority.procedures.authorization import granted_under, permitted_under
from batonpass.authority.procedures.delete import unless_gone
from batonpass.authority.procedures.drain import check_not_draining
from batonpass.authority.procedures.group_request import check_parent_is_there, with_those_below
from batonpass.authority.procedures.group_table import find_group, refuse_group, unless_group_expired
from batonpass.authority.procedures.master_question import ASK_LIFETIME_S, ask, unless_expired
from batonpass.authority.procedures.rate_limit import spent
from batonpass.authority.procedures.rights import (
    check_master,
    check_revisions,
    find_entity,
    is_master_gone,
    save_entity,
    with_owner,
)
from batonpass.authority.procedures.transfer_table import (
    DECIDED,
    check_room,
    find_transfer,
    known_transfer,
    save_transfer,
)

__all__ = ["REQUEST_PROCEDURES"]


def _is_the_same(
    existing: TransferRecord, record: EntityRecord, stay: bool, requester: str, want: Want, target: str
) -> bool:
    """Whether a request is the one that is known, again: of the same entity, by the same player, for the same."""
    known = (existing.entity, existing.stay, existing.requester, existing.want)
    return known == (record.id, stay, requester, want) and (stay or existing.target == target)


def transfer_propose(rows: Rows, args: Mapping[str, Any]) -> Any:
    """A player or operator wants an entity to move to `target`: apply the rule and record what became of it.

    Without a requester it is a move for the system's own reasons (placement, drain), which takes ownership from no
    player and so needs no player's leave.
    """
    record = find_entity(rows, args["entity"])
    stay, requester, want = bool(args.get("stay")), args.get("requester", ""), Want(args.get("want", Want.BY_RULE))
    existing = find_transfer(rows, args["transfer_id"])
    if existing is not None:
        if not _is_the_same(existing, record, stay, requester, want, args["target"]):
            to, whose = existing.target, existing.requester or "nobody"
            text = f"transfer {existing.id} is one of {existing.entity} to {to} for {whose}, {existing.want}"
            raise Refused(Reason.TRANSFER_ID_TAKEN, text, transfer=existing.id)
        return _as_it_is(rows, existing, args.get("now_s", 0.0)).to_data()
    if find_group(rows, args["transfer_id"]) is not None:
        # Either may be asked for and taken back by its id.
        text = f"there is a group {args['transfer_id']} already"
        raise Refused(Reason.TRANSFER_ID_TAKEN, text, group=args["transfer_id"])
    # Of one that waits for others it is not known yet where its entity is when its turn has come.
    if not stay and not args.get("waits") and args["target"] == record.authority:
        text = f"{record.authority} has authority over {record.id} already"
        raise Refused(Reason.SAME_SERVER, text, server=record.authority)
    if not stay:
        check_not_draining(rows, args["target"])
        check_parent_is_there(rows, record, args["target"])
    _check_owner_is_the_one_seen(record, args.get("owner_rev"))
    is_gone = is_master_gone(rows, record)
    decision = decide(record, requester, want, is_master_gone=is_gone) if requester else Decision.GRANTED
    if decision not in (Decision.GRANTED, Decision.ASKED):
        text = f"{record.id} is not to be had by {requester} ({want}): {decision} (its rule is {record.rule})"
        raise Refused(Reason(decision.value), text, entity=record.id, requester=requester)
    check_room(rows, args.get("now_s", 0.0))
    path = ("paces", record.id)
    paces = spent(rows.get_or(path, {}), requester, args.get("now_s", 0.0)) if requester else None
    transfer = TransferRecord(
        id=args["transfer_id"],
        entity=record.id,
        target=record.authority if stay else args["target"],
        source=record.authority,
        want=want,
        stay=stay,
        phase=Phase.PERMITTED if decision is Decision.GRANTED else Phase.ASKED,
        requester=requester,
        mode=args.get("mode", "eager"),
        notice_ms=args.get("notice_ms", 0),
        freeze_budget_ms=args.get("freeze_budget_ms", 0),
        direct=bool(args.get("direct", False)),
        transport=args.get("transport", "rest"),
        **granted_under(record, requester, args),
    )
    if decision is Decision.ASKED:
        transfer = ask(rows, transfer, args.get("now_s", 0.0), args.get("ask_timeout_s", ASK_LIFETIME_S))
    elif stay:
        transfer = _granted_where_it_is(rows, record, transfer)
    else:
        transfer = with_those_below(rows, transfer, args.get("now_s", 0.0))
    if paces is not None:
        rows.put(path, paces)
    save_transfer(rows, transfer, now_s=args.get("now_s", 0.0))
    return transfer.to_data()


def _as_it_is(rows: Rows, transfer: TransferRecord, now_s: float) -> TransferRecord:
    """A known transfer; one that waited too long, as a question or in a group, or for what is gone, is refused now."""
    transfer = unless_gone(rows, transfer)
    group = find_group(rows, transfer.group)
    if group is not None:
        unless_group_expired(rows, group, now_s)
        return known_transfer(rows, transfer.id)
    return unless_expired(rows, transfer, now_s)


def _check_owner_is_the_one_seen(record: EntityRecord, owner_rev: int | None) -> None:
    """Of two players who ask for what they saw a player own, the log's first gets it; the other is told who that is."""
    if owner_rev is not None and owner_rev != record.owner_rev:
        owner = record.owner or "nobody"
        if owner_rev > record.owner_rev:
            text = (
                f"the ownership of {record.id} has not had revision {owner_rev} yet: {owner} owns it, under owner_rev"
                f" {record.owner_rev}; take it from the entity, and sign anew"
            )
        else:
            text = f"{owner} owns {record.id} since, under revision {record.owner_rev}"
        raise Refused(Reason.OWNER_CHANGED, text, owner=record.owner, owner_rev=record.owner_rev)


def _granted_where_it_is(rows: Rows, record: EntityRecord, transfer: TransferRecord) -> TransferRecord:
    """Ownership alone was asked for, and is given: in this step of the log, without anything moving."""
    record = with_owner(record, transfer.requester)
    save_entity(rows, record)
    return transfer.changed(phase=Phase.DONE, target=record.authority, owner=record.owner, owner_rev=record.owner_rev)


def transfer_cancel(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The requester, or the master, takes back what is not decided yet; it is refused from then on.

    With an empty `by` it is the operator, who takes back what was asked for in no player's name.
    """
    transfer = known_transfer(rows, args["transfer_id"])
    record = find_entity(rows, transfer.entity)
    if args["by"] not in (transfer.requester, record.master):
        who = f"{transfer.requester}, who asked for it," if transfer.requester else "an operator"
        text = f"only {who} or {record.master}, the master of {record.id}, can take {transfer.id} back"
        raise Refused(Reason.NOT_REQUESTER, text, by=args["by"])
    if (transfer.phase, transfer.reason) == (Phase.REFUSED, Reason.CANCELLED):
        return transfer.to_data()
    if transfer.phase in DECIDED:
        raise Refused(Reason.TOO_LATE, f"transfer {transfer.id} is {transfer.phase} already", phase=transfer.phase)
    if transfer.group:
        refuse_group(rows, transfer, Reason.CANCELLED)
        return known_transfer(rows, transfer.id).to_data()
    transfer = transfer.changed(phase=Phase.REFUSED, reason=Reason.CANCELLED.value)
    save_transfer(rows, transfer)
    return transfer.to_data()


def transfer_expire(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Refuse a transfer whose master did not answer in time, whose group is incomplete, or whose entity is no more.

    Any other stays as it is.
    """
    return _as_it_is(rows, known_transfer(rows, args["transfer_id"]), args["now_s"]).to_data()


def transfer_answer(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The master answers what it was asked; an answer that comes too late finds the transfer refused.

    It names the `master_rev` under which it answers: under a later one it counts for nothing. Commands of before name
    none, and what they permit holds under any master.
    """
    transfer = known_transfer(rows, args["transfer_id"])
    record = find_entity(rows, transfer.entity)
    check_master(record, args["by"])
    is_of_before = transfer.permit_master_rev not in (0, record.master_rev)
    if _answered_alike(transfer, allow=args["allow"]) and not (is_of_before and transfer.phase is Phase.PERMITTED):
        return transfer.to_data()
    check_revisions(record, args)
    if is_of_before and args["allow"] and transfer.phase is Phase.PERMITTED:
        # A former master's yes would lapse at the commit. This is the present one's.
        transfer = transfer.changed(**permitted_under(record, by_master=True))
        save_transfer(rows, transfer)
        return transfer.to_data()
    if transfer.phase is not Phase.ASKED:
        text = f"transfer {transfer.id} is {transfer.phase} already"
        raise Refused(Reason.TOO_LATE, text, phase=transfer.phase.value)
    transfer = unless_expired(rows, transfer, args.get("now_s", 0.0))
    if transfer.phase is Phase.REFUSED:
        return transfer.to_data()
    if args["allow"] and is_locked_against(record, transfer.requester):
        text = f"{record.id} is locked by {', '.join(sorted(record.locks))}: unlock it first, or force the request"
        raise Refused(Reason.LOCKED, text, entity=record.id)
    if args["allow"] and transfer.stay:
        transfer = _granted_where_it_is(rows, record, transfer)
    elif args["allow"]:
        # The answer is the master's word on the request as things stand now.
        is_masters = args.get("master_rev") is not None
        transfer = transfer.changed(phase=Phase.PERMITTED, **permitted_under(record, by_master=is_masters))
        transfer = with_those_below(rows, transfer, args.get("now_s", 0.0))
    else:
        transfer = transfer.changed(phase=Phase.REFUSED, reason=Reason.DENIED.value)
    save_transfer(rows, transfer)
    return transfer.to_data()


def _answered_alike(transfer: TransferRecord, *, allow: bool) -> bool:
    """Whether the master gave this answer before; it repeats it when it did not hear what became of it."""
    if not transfer.ask_expires_at_s:
        return False
    denied = (transfer.phase, transfer.reason) == (Phase.REFUSED, Reason.DENIED)
    allowed = Phase.DONE if transfer.stay else Phase.PERMITTED
    return transfer.phase is allowed if allow else denied


REQUEST_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "transfer.answer": transfer_answer,
    "transfer.cancel": transfer_cancel,
    "transfer.expire": transfer_expire,
    "transfer.propose": transfer_propose,
}
