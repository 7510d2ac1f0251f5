"""An owner's player leaves, or is not heard of any more: the log does what the entity's policy says (FAILURES row 40).

That a player left is its own word, under the revision of its ownership. That it is silent is the word of the authority,
which its inputs go to. How long it may be is in the record (`owner_timeout_s`, 0 for ever).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.leave_policy import LeavePolicy
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.delete import bury
from batonpass.authority.procedures.rights import (
    check_owner,
    check_revision,
    find_entity,
    player_only,
    save_entity,
    with_owner,
)

__all__ = ["ABSENCE_PROCEDURES"]


def entity_owner_left(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The owner's player leaves. The record after that, and the grave if the entity ended with it."""
    record = find_entity(rows, args["entity"])
    check_owner(record, args["by"])
    check_revision(record, "owner_rev", args["owner_rev"])
    return _left(rows, record)


def entity_owner_silent(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The authority has heard nothing of the owner for `silent_s`; answers as of one who leaves, or with no change."""
    record = find_entity(rows, args["entity"])
    if args["source"] != record.authority:
        raise Refused(Reason.NOT_HOLDER, f"{record.authority} has authority over {record.id}, not {args['source']}")
    is_over = 0 < record.owner_timeout_s <= args["silent_s"]
    if not record.owner or args["owner_rev"] != record.owner_rev or not is_over:
        return {"record": record.to_data(), "grave": None}
    return _left(rows, record)


def _left(rows: Rows, record: EntityRecord) -> dict[str, Any]:
    match record.on_leave:
        case LeavePolicy.DESPAWN:
            return {"record": record.to_data(), "grave": bury(rows, record)}
        case LeavePolicy.ADOPT:
            record = with_owner(record, _heir(rows, record))
            save_entity(rows, record)
        case LeavePolicy.DIVEST:
            record = with_owner(record, "")
            save_entity(rows, record)
        case LeavePolicy.FREEZE:
            record = with_owner(record, "").changed(stands_still=True)
            save_entity(rows, record)
        case LeavePolicy.KEEP:
            pass
    return {"record": record.to_data(), "grave": None}


def _heir(rows: Rows, record: EntityRecord) -> str:
    """The player who is to own it; not the player who leaves, nor one who came before and has perhaps left too."""
    name = record.heir or player_only(rows, record.master)
    return "" if name == record.owner else name


ABSENCE_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "entity.owner_left": entity_owner_left,
    "entity.owner_silent": entity_owner_silent,
}
