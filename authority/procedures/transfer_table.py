"""The table of transfers: finding and writing its rows, and which are forgotten when there are too many.

Rows stand in a queue as they come. One that is pushed out of it by later ones is forgotten, or *kept*:

- *open*, a commit that was not reported, while the entity's authority, or what is looked for since that died, comes
  from it: the old authority may be cut off with the only copy of the state. Were that forgotten, the log would answer
  its repeated request with "you are not the holder", it would step down, and the entity would be lost.
- *late*, for `LATE_S`, as long as it has no result: forgotten, it would be begun and committed without what it was
  permitted under, or its question would vanish. What no server has begun with by then is never begun, as a rule: it is
  refused (`expired`). And for `LATE_S` more after that, or after any other result, if a server signed for it, or it
  was ordered and then refused: what was signed, or an order, may still come, and would be a new request.

What is done in no player's name (a drain, balance) is forgotten as soon as it is over. Each of the three queues is
looked at from its head, a few places for each new row. What is open goes to the end of its queue again. While too many
are late, new requests are refused (`check_room`); what is open always finds room, as there is one for each entity.

The time is that of the commands, which the members that submit them set. A clock that is a little behind changes
nothing. Two that differ by more than `LATE_S` less the lifetime of a proof may have something forgotten too early.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, Phase, RecoveryRow, TransferRecord
from batonpass.authority.model.rows import Rows

__all__ = [
    "DECIDED",
    "LATE_S",
    "MAX_KEPT",
    "MAX_TRANSFERS",
    "check_room",
    "derived_id",
    "find_transfer",
    "is_recovering",
    "known_transfer",
    "newest_transfers",
    "recovered",
    "save_transfer",
]

# Transfers are remembered so that late repetitions get the same answer; beyond this number only those that are kept.
MAX_TRANSFERS: Final = 10_000
MAX_KEPT: Final = 100_000
"""How many are kept when new requests are refused: what 160 signed requests a second come to."""
LATE_S: Final = 600
"""What a player signed is good for 300 s at most. An order is begun after 10 s of notice, or repeated until then."""
DECIDED: Final = (Phase.COMMITTED, Phase.DONE, Phase.REFUSED)
_SETTLED: Final = (Phase.DONE.value, Phase.REFUSED.value)
_QUEUE: Final = ("transfer_order",)
# Of the 64 characters of a transfer's id, seven are for what tells those from each other that are derived from one.
MAX_STEM: Final = 56
# How many places at the head of a queue one new transfer looks at for rows to forget.
_QUEUE_LOOKS: Final = 4
# A clock that is further behind than this is right, and the one before was wrong.
_PATIENCE_S: Final = 3600


class _KeptTransfers(Enum):
    OPEN = auto()
    UNDECIDED = auto()
    """Among those that are late, until it is refused."""
    LATE = auto()


@dataclass(slots=True)
class _Queues:
    """Where the queues begin and end, and the last time that is known. Logs of before have the first two alone."""

    head: int = 0
    tail: int = 0
    open_head: int = 0
    open_tail: int = 0
    late_head: int = 0
    late_tail: int = 0
    now_s: int = 0

    @classmethod
    def read(cls, rows: Rows, now_s: float) -> "_Queues":
        """The queues at this time; 0 if it is not known."""
        queues = cls(*rows.get_or(_QUEUE, ()))
        if now_s and not queues.now_s - _PATIENCE_S <= now_s <= queues.now_s:
            queues.now_s = int(now_s)
        return queues

    def write(self, rows: Rows) -> None:
        """As `read` finds them."""
        places = [self.head, self.tail, self.open_head, self.open_tail, self.late_head, self.late_tail]
        rows.put(_QUEUE, [*places, self.now_s])

    @property
    def late(self) -> int:
        """How many are late."""
        return self.late_tail - self.late_head

    @property
    def are_many_kept(self) -> bool:
        """Whether what is kept is worth looking at: a few hold up no request."""
        return self.late + self.open_tail - self.open_head > MAX_TRANSFERS // 10

    def take(self, rows: Rows) -> str:
        """The oldest, which is in this queue no longer."""
        path = (*_QUEUE, str(self.head))
        self.head += 1
        name: str = _taken(rows, path)
        return name

    def take_open(self, rows: Rows) -> str:
        """The first of those that are open."""
        path = (*_QUEUE, f"open-{self.open_head}")
        self.open_head += 1
        name: str = _taken(rows, path)
        return name

    def take_late(self, rows: Rows) -> tuple[str, str]:
        """The first of those that are late, and the phase that it was put there in; empty if it had its result."""
        name, _, phase = self.first_late(rows)
        rows.delete((*_QUEUE, f"late-{self.late_head}"))
        self.late_head += 1
        return name, phase

    def first_late(self, rows: Rows) -> tuple[str, int | None, str]:
        """The first of those that are late, as `take_late`, and until when it is kept, or None if there is none."""
        name, until_s, *phase = rows.get_or((*_QUEUE, f"late-{self.late_head}"), ("", None))
        return name, until_s, "".join(phase)

    def add(self, rows: Rows, name: str) -> None:
        """A new one."""
        rows.put((*_QUEUE, str(self.tail)), name)
        self.tail += 1

    def keep(self, rows: Rows, name: str) -> None:
        """One that is open."""
        rows.put((*_QUEUE, f"open-{self.open_tail}"), name)
        self.open_tail += 1

    def keep_late(self, rows: Rows, name: str, phase: str) -> None:
        """One that is late from now on for `LATE_S`, or from when the time is known; see `take_late`."""
        rows.put((*_QUEUE, f"late-{self.late_tail}"), [name, self.now_s and self.now_s + LATE_S, phase])
        self.late_tail += 1


def _taken(rows: Rows, path: tuple[str, ...]) -> Any:
    entry = rows.get_or(path, None)
    rows.delete(path)
    return entry


def derived_id(name: str, ending: str) -> str:
    """The id of a transfer that comes of another one, or of a group: `NAME-ending`, unless that would be too long."""
    stem = name if len(name) <= MAX_STEM else hashlib.blake2b(name.encode(), digest_size=20).hexdigest()
    return f"{stem}-{ending}"


def find_transfer(rows: Rows, transfer_id: str) -> TransferRecord | None:
    """The transfer of this id, or None if there is none (any more)."""
    data = rows.get_or(("transfers", transfer_id), None)
    return None if data is None else TransferRecord.from_data(data)


def newest_transfers(get_or: Callable[[tuple[str, ...], Any], Any], limit: int) -> list[str]:
    """The ids of the last `limit` transfers that came, newest first, as far as they are in the queue of all.

    `get_or` reads a row, as that of `Rows`: this is for who only looks.
    """
    head, tail, *_ = get_or(_QUEUE, (0, 0))
    places = range(tail - 1, max(head, tail - limit) - 1, -1)
    names = (get_or((*_QUEUE, str(place)), "") for place in places)
    return [name for name in names if name]


def known_transfer(rows: Rows, transfer_id: str) -> TransferRecord:
    """The transfer of this id; raises `Refused` (`not_found`)."""
    transfer = find_transfer(rows, transfer_id)
    if transfer is None:
        raise Refused(Reason.NOT_FOUND, f"there is no transfer {transfer_id}", transfer=transfer_id)
    return transfer


def is_recovering(rows: Rows, record: EntityRecord) -> bool:
    """Whether no server has said that it resumes an entity since its authority died."""
    row = rows.get_or(("recoveries", record.id), None)
    return row is not None and row["epoch"] == record.epoch


def recovered(rows: Rows, record: EntityRecord) -> None:
    """Its authority has acted under its fence: it has gone on, and the target may have missed that."""
    if rows.get_or(("recoveries", record.id), None) is not None:
        rows.delete(("recoveries", record.id))


def check_room(rows: Rows, now_s: float) -> None:
    """Raise `Refused` (`full`) if that many transfers are kept that a new request would have others forgotten."""
    queues = _Queues.read(rows, now_s)
    _, until_s, _ = queues.first_late(rows)
    # If that is over, or of a clock that was wrong, the new one has it looked at.
    if queues.late < MAX_KEPT or _is_late_over(queues, until_s) or _is_to_be_dated(queues, until_s):
        return
    after_s = 60.0 if until_s is None else float(min(max(1, until_s - queues.now_s), LATE_S))
    text = f"{MAX_KEPT} transfers are under way, or may be asked for again: try again in {after_s:.0f} s"
    raise Refused(Reason.FULL, text, limit=MAX_KEPT, retry_after_s=after_s)


def save_transfer(
    rows: Rows, record: TransferRecord, *, is_new: bool | None = None, now_s: float = 0.0
) -> dict[str, Any]:
    """Write the row, and return it; a new one joins the queue of those to be forgotten, and pushes the oldest out when
    it is full.

    A caller that knows says whether it `is_new`, and what the time is (Unix seconds).
    """
    path, data = ("transfers", record.id), record.to_data()
    is_new = rows.get_or(path, None) is None if is_new is None else is_new
    rows.put(path, data)
    if is_new:
        queues = _Queues.read(rows, now_s)
        queues.add(rows, record.id)
        _forget_oldest(rows, queues)
        if queues.are_many_kept:
            _forget_kept(rows, queues)
        queues.write(rows)
    elif data["phase"] in _SETTLED:
        # While new requests are refused, this is what makes room.
        queues = _Queues.read(rows, now_s)
        if queues.are_many_kept:
            _forget_kept(rows, queues)
            queues.write(rows)
    return data


def _forget_oldest(rows: Rows, queues: _Queues) -> None:
    """Take rows out of a queue that is too long, oldest first; each is forgotten or kept."""
    for _ in range(_QUEUE_LOOKS):
        if queues.tail - queues.head <= MAX_TRANSFERS:
            break
        _forget_or_keep(rows, queues, queues.take(rows))


def _forget_kept(rows: Rows, queues: _Queues) -> None:
    """Look at the first of those that are kept: one that is open no more, or has been late for long enough."""
    for _ in range(min(_QUEUE_LOOKS, queues.open_tail - queues.open_head)):
        _forget_or_keep(rows, queues, queues.take_open(rows))
    for _ in range(min(_QUEUE_LOOKS, queues.late)):
        name, until_s, phase = queues.first_late(rows)
        is_over = _is_late_over(queues, until_s)
        if phase and (is_over or rows.get_or(("transfers", name), {}).get("phase") != phase):
            queues.take_late(rows)
            if is_over:
                _expire(rows, name, phase)
            _forget_or_keep(rows, queues, name)
        elif is_over:
            rows.delete(("transfers", queues.take_late(rows)[0]))
        elif _is_to_be_dated(queues, until_s):
            queues.keep_late(rows, *queues.take_late(rows))
        else:
            break


def _expire(rows: Rows, transfer_id: str, phase: str) -> None:
    """Refuse what has been in this phase all the time, if it is permitted: no server has begun with it, or ended it.

    Not what is frozen for a group: the server that has it asks for the result. Nor what may have been passed directly:
    the log learns of that behind.
    """
    row = rows.get_or(("transfers", transfer_id), None)
    if row is None or row["phase"] != phase or phase == Phase.ASKED.value or _has_perhaps_begun(rows, row):
        return
    refused = TransferRecord.from_data(row).changed(phase=Phase.REFUSED, reason=Reason.EXPIRED.value)
    rows.put(("transfers", transfer_id), refused.to_data())


def _has_perhaps_begun(rows: Rows, row: Mapping[str, Any]) -> bool:
    entity = rows.get_or(("entities", row["entity"]), None)
    if entity is None:
        return False
    record = EntityRecord.from_data(entity)
    is_frozen = row["phase"] == Phase.PREPARED.value and record.fence == TransferRecord.from_data(row).fence
    return is_frozen or bool(row.get("direct") and row["target"] in record.delegation)


def _is_to_be_dated(queues: _Queues, until_s: int | None) -> bool:
    """Whether the time was not known when it was put there, or was that of a clock far ahead."""
    return bool(queues.now_s) and (not until_s or until_s > queues.now_s + LATE_S)


def _is_late_over(queues: _Queues, until_s: int | None) -> bool:
    return until_s is not None and 0 < until_s < queues.now_s


def _forget_or_keep(rows: Rows, queues: _Queues, transfer_id: str) -> None:
    match _why_kept(rows, transfer_id, queues.now_s):
        case _KeptTransfers.OPEN:
            queues.keep(rows, transfer_id)
        case _KeptTransfers.UNDECIDED:
            queues.keep_late(rows, transfer_id, rows.get_or(("transfers", transfer_id), {})["phase"])
        case _KeptTransfers.LATE:
            queues.keep_late(rows, transfer_id, "")
        case None:
            rows.delete(("transfers", transfer_id))


def _why_kept(rows: Rows, transfer_id: str, now_s: int) -> _KeptTransfers | None:
    """Why a transfer is not forgotten, or None. Every new one asks, so that rows are not read as records here."""
    row = rows.get_or(("transfers", transfer_id), None)
    if row is None:
        return None
    phase, is_signed = row["phase"], bool(row.get("requester"))
    if phase in _SETTLED:
        # Only what was permitted in no player's name was ever ordered.
        was_ordered = phase == Phase.REFUSED.value and row.get("permit_rule_rev", 0) > 0
        return _KeptTransfers.LATE if is_signed or was_ordered else None
    if phase == Phase.ASKED.value:
        return _KeptTransfers.UNDECIDED if now_s <= row["ask_expires_at_s"] else _KeptTransfers.LATE
    entity = rows.get_or(("entities", row["entity"]), None)
    if phase != Phase.COMMITTED.value:
        return _KeptTransfers.LATE if entity is None else _KeptTransfers.UNDECIDED
    if entity is not None and _comes_from(rows, EntityRecord.from_data(entity), TransferRecord.from_data(row).fence):
        return _KeptTransfers.OPEN
    return _KeptTransfers.LATE if is_signed else None


def _comes_from(rows: Rows, record: EntityRecord, fence: Fence) -> bool:
    """Whether an entity is where a commit to this fence has brought it, or is looked for since it was there."""
    if record.fence == fence:
        return True
    row = rows.get_or(("recoveries", record.id), None)
    return row is not None and RecoveryRow.from_data(row).stay <= fence
