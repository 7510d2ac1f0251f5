"""The commit point of transfers, and what the log learns behind them: direct passes and reports.

A *refused transfer* is itself recorded. The answer to a hand-over request must stay the same however often, and however
late, the request is repeated (FAILURES rows 2, 16, 23).

A refusal after the old authority froze raises the epoch and leaves authority where it was. The old authority resumes
under the new epoch, so no duplicate of the refused request that is still under way can ever succeed.

A request of a server that is not the holder at the fence that it names changes nothing and is not recorded. Fences
never come back, so the answer stays the same by itself. No server can use up a transfer's id, or a place in the table,
that is another's.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, Outcome, Phase, TransferRecord, report_text
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.authorization import asked_anew, why_lapsed
from batonpass.authority.procedures.contact import asked_by_contact, why_not_by_contact
from batonpass.authority.procedures.delete import grave_of, unless_gone
from batonpass.authority.procedures.directory import is_simserver
from batonpass.authority.procedures.drain import is_draining
from batonpass.authority.procedures.foreign_custody import CROSSINGS, crossed, crossing, has_begun, on_its_way
from batonpass.authority.procedures.group_commit import prepare, prepared_again
from batonpass.authority.procedures.group_table import refuse_group
from batonpass.authority.procedures.hierarchy import parts_from
from batonpass.authority.procedures.lease import given_late, incarnation_of, may_be_given
from batonpass.authority.procedures.log_rollback import given_next
from batonpass.authority.procedures.rights import find_entity, save_entity, with_owner
from batonpass.authority.procedures.transfer_table import (
    DECIDED,
    find_transfer,
    is_recovering,
    known_transfer,
    recovered,
    save_transfer,
)

__all__ = ["TRANSFER_PROCEDURES"]

_NONE: Final[Mapping[str, Any]] = {}
# Of decided and prepared transfers; all others that are answered about are committed.
_OUTCOMES: Final = {Phase.REFUSED: Outcome.REFUSED, Phase.PREPARED: Outcome.PENDING}


def transfer_commit(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The commit point: (authority A, epoch e) → (authority B, epoch e + 1), or a recorded refusal.

    Where another history of the log may have given e + 1, it is a higher one (`authority.procedures.log_rollback`).

    Passes under a delegation that the log has not seen yet are applied first (`passes`, verified by the caller).
    `incarnation` is that of a target of another instance, as its home has told at this moment.
    """
    return _decide(rows, args, None)


def transfer_refuse(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Give a transfer up for `reason` (the target's home would not have it); same arguments as the commit.

    The reason comes from another instance; a code that is not known here is recorded as `denied`.
    """
    return _decide(rows, args, _known_reason(args["reason"]))


def _decide(rows: Rows, args: Mapping[str, Any], refusal: Reason | None) -> Any:
    """Answer a request to hand over: as before, if it is a repetition; else commit it, or refuse it."""
    if (grave := grave_of(rows, args["entity"])) is not None:
        return _answer_gone(rows, args, grave)
    record = _apply_passes(rows, find_entity(rows, args["entity"]), args.get("passes", ()))
    existing = find_transfer(rows, args["transfer_id"])
    asked_at = Fence(args["epoch"], args["sub"])
    if existing is not None and _is_repeated(existing, args, asked_at):
        return _answer(rows, existing)
    if existing is not None and _is_prepared(existing, args, asked_at):
        if refusal is not None:
            # It was frozen for the group, and does not wait any longer: so none of them goes.
            refuse_group(rows, existing, refusal)
        return _answer(rows, prepared_again(rows, existing, args.get("now_s", 0.0)))
    if (record.authority, record.fence) != (args["source"], asked_at):
        # The server that asks is not the authority (any more): there is nothing of its own to resume, so no epoch to
        # raise.
        return _answer(rows, _refused(_begin(args), record, args, Reason.NOT_HOLDER))
    recovered(rows, record)
    has_begun(rows, record)
    reason = refusal or _why_not(rows, record, existing, args)
    if reason is None and existing is not None and existing.group:
        return _answer(rows, prepare(rows, existing, record, args))
    if reason is not None:
        record = record.under(record.fence.raised().epoch, delegation=())
        save_entity(rows, record)
        mine = existing is None or _is_open_for(existing, args)
        transfer = _refused((existing if mine else None) or _begin(args), record, args, reason)
        if mine:
            if refusal is None:
                # Found here, in the log. What others say of masters means nothing.
                transfer = asked_anew(rows, transfer, record, args.get("now_s", 0.0))
                transfer = asked_by_contact(rows, transfer, record, args)
            save_transfer(rows, transfer, now_s=args.get("now_s", 0.0))
            refuse_group(rows, transfer, reason)
        return _answer(rows, transfer)
    incarnation = incarnation_of(rows, args["target"], args.get("incarnation", 0))
    transfer, before = existing or _begin(args), record
    if transfer.source != args["source"]:
        transfer = transfer.changed(source=args["source"])
    given = {"authority": args["target"], "incarnation": incarnation, "delegation": ()}
    record = given_next(rows, record, **given)
    record, transfer = on_its_way(record, transfer)
    record = _with_requester_as_owner(record, existing)
    save_entity(rows, record)
    crossed(rows, record)
    transfer = _committed(transfer, record, args, before)
    row = save_transfer(rows, transfer, is_new=existing is None, now_s=args.get("now_s", 0.0))
    return _answer(rows, transfer, record, row)


def _answer_gone(rows: Rows, args: Mapping[str, Any], grave: Fence) -> dict[str, Any]:
    """No server has authority over what was deleted, and none will: a transfer that was open ends with it."""
    existing = find_transfer(rows, args["transfer_id"])
    if existing is not None and existing.entity == args["entity"]:
        unless_gone(rows, existing)
        if (existing.phase, existing.source) == (Phase.COMMITTED, args["source"]):
            # The server that handed it over did not hear of the commit, lets go of the entity now, and reports nothing.
            save_transfer(rows, existing.changed(phase=Phase.DONE), is_new=False)
    gone = _begin(args).changed(phase=Phase.REFUSED, reason=Reason.GONE.value, epoch=grave.epoch)
    answer = {"outcome": Outcome.REFUSED.value, "transfer": gone.to_data(), "authority": ""}
    return answer | {"epoch": grave.epoch, "sub": grave.sub}


def transfer_decline(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The old authority will not begin a permitted transfer: nothing was frozen, so no fence is raised.

    A transfer that has its result stays as it is.
    """
    transfer = known_transfer(rows, args["transfer_id"])
    record = find_entity(rows, transfer.entity)
    if record.authority != args["source"]:
        raise Refused(Reason.NOT_HOLDER, f"{record.authority} has authority over {record.id}, not {args['source']}")
    if (transfer.entity, transfer.target) != (args["entity"], args["target"]) or transfer.stay:
        raise Refused(Reason.TRANSFER_ID_TAKEN, f"transfer {transfer.id} is one of {transfer.entity}")
    if transfer.phase is Phase.PERMITTED:
        transfer = transfer.changed(phase=Phase.REFUSED, reason=_known_reason(args["reason"]).value)
        save_transfer(rows, transfer)
        refuse_group(rows, transfer, Reason(transfer.reason))
    return transfer.to_data()


def _known_reason(text: str) -> Reason:
    """A reason that a server gave; a code that is not known here counts as `denied`."""
    return Reason(text) if text in {reason.value for reason in Reason} else Reason.DENIED


def transfer_passed(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Direct passes happened under a delegation (case 3): the log learns of them behind, in order, each once."""
    record = _apply_passes(rows, find_entity(rows, args["entity"]), args["passes"])
    return record.to_data()


def transfer_report(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The old authority has retired: keep its report (hops, marks, counters) with the transfer.

    The direct passes that led to it (`passes` of `entity`, verified by the caller) are learned first.
    """
    if args.get("passes"):
        _apply_passes(rows, find_entity(rows, args["entity"]), args["passes"], args)
    # Read as it stands: a server that repeats a report, or brings its pass with it, finds it done.
    row = rows.get_or(("transfers", args["transfer_id"]), _NONE)
    if row.get("phase") == Phase.DONE.value and row.get("source") == args["source"]:
        return _noted(row)
    transfer = known_transfer(rows, args["transfer_id"])
    if transfer.phase not in (Phase.COMMITTED, Phase.DONE):
        raise Refused(Reason.TOO_LATE, f"transfer {transfer.id} is {transfer.phase}", phase=transfer.phase.value)
    if transfer.source != args["source"]:
        raise Refused(Reason.NOT_HOLDER, f"{args['source']} did not hand {transfer.entity} over")
    transfer = transfer.changed(phase=Phase.DONE, report=report_text(args["report"]))
    row = save_transfer(rows, transfer, is_new=False)
    if crossing(transfer) and rows.get_or((CROSSINGS, transfer.entity), None) == transfer.id:
        rows.delete((CROSSINGS, transfer.entity))
    return _noted(row)


def _noted(row: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a report: of the transfer what the server may not know. Every member keeps it for a while."""
    return {name: row[name] for name in ("id", "entity", "target", "phase", "owner_rev") if name in row}


def _begin(args: Mapping[str, Any]) -> TransferRecord:
    row = {"id": args["transfer_id"], "phase": Phase.PERMITTED, "transport": args.get("transport", "rest")}
    return TransferRecord.from_data(row | {name: args[name] for name in ("entity", "target", "source")})


def _is_repeated(existing: TransferRecord, args: Mapping[str, Any], asked_at: Fence) -> bool:
    """Whether this very request was decided before, or tells of a pass that the log has taken note of."""
    return (
        existing.phase in DECIDED
        and (existing.entity, existing.target, existing.source) == (args["entity"], args["target"], args["source"])
        and existing.fence.may_follow(asked_at)
    )


def _is_prepared(existing: TransferRecord, args: Mapping[str, Any], asked_at: Fence) -> bool:
    """Whether this request is one of a group's that waits for the others."""
    about = (existing.entity, existing.target, existing.source) == (args["entity"], args["target"], args["source"])
    return existing.phase is Phase.PREPARED and about and existing.fence == asked_at


def _is_open_for(existing: TransferRecord, args: Mapping[str, Any]) -> bool:
    """Whether the recorded transfer is the one that is asked for, and has no result yet."""
    about = (existing.entity, existing.target) == (args["entity"], args["target"])
    return about and not existing.stay and existing.phase not in DECIDED


def _why_not(
    rows: Rows, record: EntityRecord, existing: TransferRecord | None, args: Mapping[str, Any]
) -> Reason | None:
    """Why the holder's request to hand over must be refused, or None."""
    if existing is not None and not _is_open_for(existing, args):
        # A late order for a transfer that is long over, or the id of another one: this was not permitted.
        return Reason.TOO_LATE if existing.entity == record.id else Reason.TRANSFER_ID_TAKEN
    if args["target"] == record.authority:
        return Reason.SAME_SERVER
    if args.get("check_target", True) and not is_simserver(rows, args["target"]):
        return Reason.UNKNOWN_TARGET
    if is_draining(rows, args["target"]):
        return Reason.DRAINING
    if not may_be_given(rows, args["target"]):
        return Reason.TARGET_DOWN
    # The members of a group are looked at together, when the last of them is frozen.
    if not (existing is not None and existing.group) and parts_from(rows, record, (), args["target"]):
        return Reason.ATTACHED
    if existing is None:
        return why_not_by_contact(rows, record, args) if args.get("contact") else None
    return _why_not_owner(rows, record, existing)


def _why_not_owner(rows: Rows, record: EntityRecord, transfer: TransferRecord) -> Reason | None:
    """Why what the requester was permitted does not hold any more, or None."""
    if not transfer.requester:
        return None
    return why_lapsed(rows, record, transfer) if transfer.phase is Phase.PERMITTED else Reason.DENIED


def _with_requester_as_owner(record: EntityRecord, transfer: TransferRecord | None) -> EntityRecord:
    """The player who was permitted to have the entity moved owns it from then on."""
    if transfer is None or not transfer.requester or transfer.keeps_owner:
        return record
    return with_owner(record, transfer.requester)


def _committed(
    transfer: TransferRecord, record: EntityRecord, args: Mapping[str, Any], before: EntityRecord
) -> TransferRecord:
    return transfer.changed(
        source_incarnation=before.incarnation,
        sub_before=before.sub_before,
        phase=Phase.COMMITTED,
        source=args["source"],
        epoch=record.epoch,
        sub=record.sub,
        owner=record.owner,
        owner_rev=record.owner_rev,
        incarnation=record.incarnation,
        tick=args["tick"],
        state_hash=args["state_hash"],
    )


def _refused(transfer: TransferRecord, record: EntityRecord, args: Mapping[str, Any], reason: Reason) -> TransferRecord:
    return transfer.changed(
        phase=Phase.REFUSED, reason=reason.value, source=args["source"], epoch=record.epoch, sub=record.sub
    )


def _answer(
    rows: Rows, transfer: TransferRecord, record: EntityRecord | None = None, row: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What became of the transfer, and the authority now (`record` and `row`, if they were just written), or later.

    While the entity is being recovered, no server has it. The server that handed it over may have the only state that
    is left. A later fence would tell it that this state is not needed any more. It gets the answer of the time of the
    commit.
    """
    outcome, record = _OUTCOMES.get(transfer.phase, Outcome.COMMITTED), record or find_entity(rows, transfer.entity)
    authority, fence = record.authority, record.fence
    if outcome is Outcome.COMMITTED and is_recovering(rows, record):
        authority, fence = transfer.target, transfer.fence
    return {
        "outcome": str(outcome),
        "transfer": transfer.to_data() if row is None else row,
        "authority": authority,
        "epoch": fence.epoch,
        "sub": fence.sub,
    }


def _apply_passes(rows: Rows, record: EntityRecord, passes: Any, report: Mapping[str, Any] = _NONE) -> EntityRecord:
    """Bring the record up to date with direct passes; those it knows already are skipped, a gap is refused.

    One that a `report` (arguments of `transfer.report`) is about is written down with it at once.
    """
    for item in passes:
        if item["epoch"] != record.epoch or item["sub"] <= record.sub:
            continue
        expected = record.fence.passed()
        if item["sub"] != expected.sub or item["source"] != record.authority:
            raise Refused(
                Reason.NOT_HOLDER,
                f"pass {item['sub']} of {record.id} by {item['source']} does not follow {record.fence}"
                f" of {record.authority}",
            )
        if item["source"] not in record.delegation or item["target"] not in record.delegation:
            raise Refused(
                Reason.NO_DELEGATION, f"{record.id} is not delegated to {item['source']} and {item['target']}"
            )
        recovered(rows, record)
        before, incarnation = record, item.get("incarnation", 0)
        record = record.changed(authority=item["target"], incarnation=incarnation, sub=item["sub"])
        existing = find_transfer(rows, item["transfer_id"])
        # The pass counts all the same, since it has happened: under the id of another transfer, or of one that is over.
        # So it does under that of a group, which moves in one step or not at all.
        mine = existing is None or (_is_open_for(existing, item) and not existing.group)
        if mine and existing is not None and _why_not_owner(rows, record, existing) is None:
            record = _with_requester_as_owner(record, existing)
        save_entity(rows, record)
        if mine:
            known = (existing or _begin(item)).changed(direct=True)
            transfer = _committed(known, record, item, before)
            if (report.get("transfer_id"), report.get("source")) == (transfer.id, transfer.source):
                transfer = transfer.changed(phase=Phase.DONE, report=report_text(report["report"]))
            save_transfer(rows, transfer, is_new=existing is None)
        given_late(rows, record.authority, incarnation)
    return record


TRANSFER_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "transfer.commit": transfer_commit,
    "transfer.decline": transfer_decline,
    "transfer.passed": transfer_passed,
    "transfer.refuse": transfer_refuse,
    "transfer.report": transfer_report,
}
