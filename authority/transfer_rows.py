"""The table of transfers: finding and writing its rows, and which are forgotten when there are too many."""

import hashlib
from typing import Any, Final

from authority.errors import Reason, Refused
from authority.records import EntityRecord, Phase, TransferRecord
from authority.rows import Rows

__all__ = [
    "DECIDED",
    "MAX_TRANSFERS",
    "derived_id",
    "find_transfer",
    "is_recovering",
    "known_transfer",
    "recovered",
    "save_transfer",
]

# Finished transfers are kept so that late repetitions get the same answer. Sealed requests expire after a minute, so
# this covers 160 transfers a second; older ones are forgotten first. Beyond this number stay only those that somebody
# still needs (`_still_needed`), at most one for each entity.
MAX_TRANSFERS: Final = 10_000
DECIDED: Final = (Phase.COMMITTED, Phase.DONE, Phase.REFUSED)
_SETTLED: Final = (Phase.DONE.value, Phase.REFUSED.value)
_QUEUE: Final = ("transfer_order",)
# Of the 64 characters of a transfer's id, seven are for what tells those from each other that are derived from one.
MAX_STEM: Final = 56
# How many places at the head of the queue one new transfer looks at for rows to forget.
_QUEUE_LOOKS: Final = 4


def derived_id(name: str, ending: str) -> str:
    """The id of a transfer that comes of another one, or of a group: `NAME-ending`, unless that would be too long."""
    stem = name if len(name) <= MAX_STEM else hashlib.blake2b(name.encode(), digest_size=20).hexdigest()
    return f"{stem}-{ending}"


def find_transfer(rows: Rows, transfer_id: str) -> TransferRecord | None:
    """The transfer of this id, or None if there is none (any more)."""
    data = rows.get_or(("transfers", transfer_id), None)
    return None if data is None else TransferRecord.from_data(data)


def known_transfer(rows: Rows, transfer_id: str) -> TransferRecord:
    """The transfer of this id; raises `Refused` (`not_found`)."""
    transfer = find_transfer(rows, transfer_id)
    if transfer is None:
        raise Refused(Reason.NOT_FOUND, f"there is no transfer {transfer_id}", transfer=transfer_id)
    return transfer


def is_recovering(rows: Rows, record: EntityRecord) -> bool:
    """Whether nobody has said that he goes on with an entity since its authority died."""
    row = rows.get_or(("recoveries", record.id), None)
    return row is not None and row["epoch"] == record.epoch


def recovered(rows: Rows, record: EntityRecord) -> None:
    """Its authority has acted under its fence: it has gone on, and whoever was to hear of that may have missed it."""
    if rows.get_or(("recoveries", record.id), None) is not None:
        rows.delete(("recoveries", record.id))


def save_transfer(rows: Rows, record: TransferRecord, *, is_new: bool | None = None) -> dict[str, Any]:
    """Write the row, and return it; a new one joins the queue of those to be forgotten, and pushes the oldest out when
    it is full.

    Whoever knows says whether it `is_new`.
    """
    path, data = ("transfers", record.id), record.to_data()
    is_new = rows.get_or(path, None) is None if is_new is None else is_new
    rows.put(path, data)
    if is_new:
        head, tail = rows.get_or(_QUEUE, [0, 0])
        rows.put((*_QUEUE, str(tail)), record.id)
        rows.put(_QUEUE, _forget_old_transfers(rows, head, tail + 1))
    return data


def _forget_old_transfers(rows: Rows, head: int, tail: int) -> list[int]:
    """Take rows out of a queue that is too long, oldest first; those that are still needed go to its end again."""
    for _ in range(_QUEUE_LOOKS):
        if tail - head <= MAX_TRANSFERS:
            break
        oldest = rows.get_or((*_QUEUE, str(head)), None)
        rows.delete((*_QUEUE, str(head)))
        head += 1
        if _still_needed(rows, oldest):
            rows.put((*_QUEUE, str(tail)), oldest)
            tail += 1
        else:
            rows.delete(("transfers", oldest))
    return [head, tail]


def _still_needed(rows: Rows, transfer_id: str) -> bool:
    """Whether the target may still have to hear of it: its authority comes from this transfer, and nobody reported yet.

    The old authority may be cut off with the only copy of the state. Were this forgotten, the log would answer its
    repeated request with "you are not the holder", it would step down, and the entity would be lost.
    """
    row = rows.get_or(("transfers", transfer_id), None)
    # Most are done, and every new one asks: these are not read as records.
    if row is None or row["phase"] in _SETTLED:
        return False
    transfer = TransferRecord.from_data(row)
    if transfer.phase is not Phase.COMMITTED:
        # One of a group: forgotten, it would be committed without the others.
        return bool(transfer.group) and transfer.phase in (Phase.PERMITTED, Phase.PREPARED)
    data = rows.get_or(("entities", transfer.entity), None)
    return data is not None and EntityRecord.from_data(data).fence == transfer.fence
