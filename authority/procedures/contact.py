"""Hand-overs because an entity met another one: whether the entity's rule lets the other's server have it.

A contact is no player's request, and moves authority alone: the owner stays who it is. Whose wish it is counts all the
same. It is that of the player who owns the entity that was met, if its record is here and is with the target; else that
of the target itself. The rule, locks and the master's rights say what becomes of it, as of any request
(`authority.model.rules`). Under `ask` the master gets one question, and the entity stays until the answer.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.rules import Decision, decide
from batonpass.authority.procedures.authorization import permitted_under
from batonpass.authority.procedures.master_question import ask, waiting
from batonpass.authority.procedures.rights import find_entity
from batonpass.authority.procedures.transfer_table import derived_id, find_transfer, save_transfer

__all__ = ["ASK_FOR_S", "asked_by_contact", "why_not_by_contact"]

ASK_FOR_S: Final = 60
"""For so long the master of an entity may answer: after that the contact is over."""
_ASKED: Final = "asked"


def why_not_by_contact(rows: Rows, record: EntityRecord, args: Mapping[str, Any]) -> Reason | None:
    """Why a contact does not move the entity, or None; `asked` if its master has to be asked."""
    match decide(record, _requester(rows, args)):
        case Decision.GRANTED:
            return None
        case Decision.ASKED:
            return Reason.ASKED
        case other:
            return Reason(other.value)


def _requester(rows: Rows, args: Mapping[str, Any]) -> str:
    """In whose name the contact asks."""
    target: str = args["target"]
    try:
        met = find_entity(rows, args["contact"])
    except Refused:
        # It is at home elsewhere, or has ended.
        return target
    return met.owner if met.authority == target and met.owner else target


def asked_by_contact(
    rows: Rows, refused: TransferRecord, record: EntityRecord, args: Mapping[str, Any]
) -> TransferRecord:
    """Put the question to the entity's master, unless it waits already; the refused transfer, with its successor.

    Without a successor no master is asked: too many questions wait.
    """
    if refused.reason != Reason.ASKED or not args.get("contact"):
        return refused
    requester, now_s = _requester(rows, args), args.get("now_s", 0.0)
    for other in waiting(rows, record.id, now_s):
        if (other.requester, other.target, other.keeps_owner) == (requester, refused.target, True):
            return refused.changed(successor=other.id)
    name = derived_id(refused.id, _ASKED)
    if find_transfer(rows, name) is not None:
        return refused
    question = TransferRecord(
        id=name,
        entity=record.id,
        target=refused.target,
        source=record.authority,
        phase=Phase.ASKED,
        requester=requester,
        keeps_owner=True,
        transport=refused.transport,
        **permitted_under(record, by_master=False),
    )
    with suppress(Refused):
        save_transfer(rows, ask(rows, question, now_s, ASK_FOR_S), is_new=True, now_s=now_s)
        refused = refused.changed(successor=name)
    return refused
