"""What permits a transfer in a requester's name, and whether it still does when it is to be committed.

A permission holds under the revisions of that moment (`permit_*` of the transfer). These are of the rule, of the owner,
and of the master if that one's word permitted it. When one has moved on the commit is refused (FAILURES rows 5 to 7). A
former master's yes counts for nothing under the next one. What waited for it is asked anew, under an id of its own, for
as long as the requester was ready to wait (`asked_anew`). Under the old id it could be begun by a late order of before.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord, Want
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.rules import Decision, decide, locks_out
from batonpass.authority.procedures.master_question import ask
from batonpass.authority.procedures.rights import is_master_gone
from batonpass.authority.procedures.transfer_table import derived_id, find_transfer, save_transfer

__all__ = ["asked_anew", "granted_under", "permitted_under", "why_lapsed"]

_ANEW: Final = "anew"


def permitted_under(record: EntityRecord, *, by_master: bool) -> dict[str, Any]:
    """The revisions under which something is permitted now, as fields of its transfer.

    `by_master` is whether it is the master's word that permits it.
    """
    return {
        "permit_rule_rev": record.rule_rev,
        "permit_owner_rev": record.owner_rev,
        "permit_master_rev": record.master_rev if by_master else 0,
    }


def granted_under(record: EntityRecord, requester: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """As `permitted_under`, of what is granted without a question; a master that is not the owner permits it itself.

    Commands of before do not say `binds_master`: what they permitted holds under any master, on every member.
    """
    is_masters_own = requester == record.master != record.owner
    return permitted_under(record, by_master=is_masters_own and bool(args.get("binds_master")))


def why_lapsed(rows: Rows, record: EntityRecord, transfer: TransferRecord) -> Reason | None:
    """Why what the requester was permitted does not hold any more, or None."""
    if not transfer.requester:
        return None
    if transfer.want is Want.FORCED:
        return None if transfer.requester == record.master else Reason.NOT_MASTER
    if locks_out(record, transfer.requester, transfer.want, is_master_gone=is_master_gone(rows, record)):
        return Reason.LOCKED
    if transfer.permit_rule_rev != record.rule_rev:
        return Reason.RULE_CHANGED
    if transfer.permit_owner_rev != record.owner_rev:
        return Reason.OWNER_CHANGED
    # 0: no master had a say in it.
    return None if transfer.permit_master_rev in (0, record.master_rev) else Reason.MASTER_CHANGED


def asked_anew(rows: Rows, refused: TransferRecord, record: EntityRecord, now_s: float) -> TransferRecord:
    """Put the question that a former master had answered to the present one; the refused transfer, with its successor.

    It stays without one if no master had been asked, the requester's time is up, the present master need not be asked,
    or too many questions wait. A player who wants the entity still asks again then.
    """
    left_s, name = refused.ask_expires_at_s - math.ceil(now_s), derived_id(refused.id, _ANEW)
    would_ask = decide(record, refused.requester, refused.want) is Decision.ASKED
    if refused.reason != Reason.MASTER_CHANGED or left_s <= 0 or not would_ask or find_transfer(rows, name) is not None:
        return refused
    question = TransferRecord(
        id=name,
        entity=refused.entity,
        target=refused.target,
        source=record.authority,
        phase=Phase.ASKED,
        requester=refused.requester,
        want=refused.want,
        mode=refused.mode,
        notice_ms=refused.notice_ms,
        freeze_budget_ms=refused.freeze_budget_ms,
        transport=refused.transport,
        **permitted_under(record, by_master=False),
    )
    with suppress(Refused):
        save_transfer(rows, ask(rows, question, now_s, left_s), is_new=True, now_s=now_s)
        refused = refused.changed(successor=name)
    return refused
