"""Deleting an entity: a compare-and-set like any other, after which its id is never given again while it is remembered.

What is left is a tombstone with the fence after the last one. Whoever asks for a commit later, because the entity was
on its way while it was deleted, hears `gone` under that fence, and ends its copy (FAILURES row 36).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from authority.epoch import Fence
from authority.hierarchy import cut_out
from authority.records import EntityRecord
from authority.rights import check_master, check_revision, find_entity
from authority.rows import Rows

__all__ = ["DELETION_PROCEDURES", "MAX_TOMBSTONES", "bury", "grave_of"]

# Deleted entities that are remembered; the oldest are forgotten first, and with them that their ids were taken.
MAX_TOMBSTONES: Final = 100_000
_QUEUE: Final = ("tombstone_order",)


def grave_of(rows: Rows, entity: str) -> Fence | None:
    """The fence under which an entity was deleted, or None if it was not, or so long ago that nobody remembers."""
    data = rows.get_or(("tombstones", entity), None)
    return None if data is None else Fence(data["epoch"])


def entity_delete(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The master, who names the revision of its mastership, deletes an entity; again, it hears the same.

    Answers with the authority that has to be told, and the fence after its last one.
    """
    grave = rows.get_or(("tombstones", args["entity"]), None)
    if grave is not None:
        return grave
    record = find_entity(rows, args["entity"])
    check_master(record, args["by"])
    check_revision(record, "master_rev", args["master_rev"])
    return bury(rows, record)


def bury(rows: Rows, record: EntityRecord) -> dict[str, Any]:
    """The entity ends, with everything that is kept of it but its tombstone, which is the answer."""
    fence = record.fence.raised()
    grave = {"entity": record.id, "authority": record.authority, "epoch": fence.epoch, "master": record.master}
    cut_out(rows, record)
    rows.delete(("entities", record.id))
    for table in ("asks", "paces", "recoveries", "crossings"):
        if rows.get_or((table, record.id), None) is not None:
            rows.delete((table, record.id))
    rows.put(("tombstones", record.id), grave)
    _forget_old(rows, record.id)
    return grave


def _forget_old(rows: Rows, entity: str) -> None:
    head, tail = rows.get_or(_QUEUE, [0, 0])
    rows.put((*_QUEUE, str(tail)), entity)
    tail += 1
    if tail - head > MAX_TOMBSTONES:
        rows.delete(("tombstones", rows.get_or((*_QUEUE, str(head)), "")))
        rows.delete((*_QUEUE, str(head)))
        head += 1
    rows.put(_QUEUE, [head, tail])


DELETION_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {"entity.delete": entity_delete}
