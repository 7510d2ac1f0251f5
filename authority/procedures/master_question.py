"""Questions to masters: transfers that wait because the rule is `ask`, until the master answers or time is up.

`asks/<entity>` names the transfers of one entity whose phase may be `asked`, oldest first. It is an index only. What a
transfer's phase is stands in its own row, and entries that are answered, forgotten or too old are dropped when the next
question comes. Time is an argument, so that every member decides alike.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.authority.model.rows import Rows

__all__ = ["ASK_LIFETIME_S", "MAX_ASKS", "MAX_ASKS_EACH", "ask", "fair_order", "unless_expired", "waiting"]

Row = TypeVar("Row", bound=Mapping[str, Any])

# How many questions about one entity wait for its master at one time, and how long each may.
MAX_ASKS: Final = 32
# How many of them may be of one requester, so that no player fills the table for all.
MAX_ASKS_EACH: Final = 4
ASK_LIFETIME_S: Final = 3600


def ask(rows: Rows, transfer: TransferRecord, now_s: float, timeout_s: int = ASK_LIFETIME_S) -> TransferRecord:
    """Put the question whether `transfer` may be to the entity's master; the transfer, with its time limit.

    The master has `timeout_s` seconds, at most `ASK_LIFETIME_S`.

    Raises:
        Refused: too many questions about this entity wait already.
    """
    path = ("asks", transfer.entity)
    others = waiting(rows, transfer.entity, now_s)
    if len(others) >= MAX_ASKS:
        text = f"{MAX_ASKS} requests for {transfer.entity} wait for its master's answer already"
        raise Refused(Reason.FULL, text, limit=MAX_ASKS)
    if sum(other.requester == transfer.requester for other in others) >= MAX_ASKS_EACH:
        text = f"{MAX_ASKS_EACH} requests of {transfer.requester} for {transfer.entity} wait already: cancel one"
        raise Refused(Reason.FULL, text, limit=MAX_ASKS_EACH)
    rows.put(path, [*(other.id for other in others), transfer.id])
    # In whole seconds, and no earlier than was said.
    return transfer.changed(phase=Phase.ASKED, ask_expires_at_s=math.ceil(now_s) + min(timeout_s, ASK_LIFETIME_S))


def waiting(rows: Rows, entity_id: str, now_s: float) -> list[TransferRecord]:
    """The requests for an entity that wait for its master's answer, oldest first."""
    found = [rows.get_or(("transfers", known), None) for known in rows.get_or(("asks", entity_id), ())]
    transfers = [TransferRecord.from_data(data) for data in found if data is not None]
    return [t for t in transfers if t.phase is Phase.ASKED and now_s <= t.ask_expires_at_s]


def fair_order(asked: Sequence[Row]) -> list[Row]:
    """Rows of requests as a master should see them: the first of every requester, then the second, and on.

    Within a round they stay as they came, so a single requester's many cannot keep others waiting.
    """
    seen: Counter[str] = Counter()
    rounds = []
    for transfer in asked:
        rounds.append(seen[transfer["requester"]])
        seen[transfer["requester"]] += 1
    order = sorted(range(len(asked)), key=lambda index: (rounds[index], index))
    return [asked[index] for index in order]


def unless_expired(rows: Rows, transfer: TransferRecord, now_s: float) -> TransferRecord:
    """The transfer; if its question has waited too long, it is refused here and now."""
    if transfer.phase is not Phase.ASKED or now_s <= transfer.ask_expires_at_s:
        return transfer
    transfer = transfer.changed(phase=Phase.REFUSED, reason=Reason.ASK_EXPIRED.value)
    rows.put(("transfers", transfer.id), transfer.to_data())
    return transfer
