"""Deleting an entity: a compare-and-set like any other, after which its id is never given again while it is remembered.

    tombstones/<id>        what is left of it: the fence after its last one, and which server had authority
    tombstone_order/floor  the highest epoch and revision of those that were forgotten
    farewells/<id>         the servers that may simulate it still, and have not said that they have heard

A server may ask for a commit later, because the entity was on its way while it was deleted. It hears `gone` under that
fence, and ends its copy (FAILURES row 36). Each that may have it is told until it says that it has heard, or is dead.

An entity that its first server would not have leaves its name behind as free. The next one of that name begins under a
higher epoch.

Servers may remember what the log has forgotten: they would refuse every copy of an entity that began again below what
they know. So all names without a tombstone begin above the floor, whatever had them before.

Transfers of entities that are no more: they end with them.

Nothing leads from an entity to its open transfers but its questions (`authority.procedures.master_question`). So the
deletion refuses those, and a member that looks at one of the others later finds here that there is nothing left to
move.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.group_table import refuse_group, refuse_groups_of
from batonpass.authority.procedures.hierarchy import cut_out
from batonpass.authority.procedures.lease import incarnation_of
from batonpass.authority.procedures.log_rollback import lowest_epoch
from batonpass.authority.procedures.rights import check_master, check_revision, find_entity
from batonpass.authority.procedures.transfer_table import DECIDED, find_transfer, known_transfer, save_transfer

__all__ = [
    "DELETION_PROCEDURES",
    "FAREWELLS",
    "MAX_TOMBSTONES",
    "bury",
    "first_epoch",
    "first_revision",
    "free_name",
    "grave_of",
    "take_back",
    "unless_gone",
]

# Deleted entities that are remembered; the oldest are forgotten first, and with them that their ids were taken.
MAX_TOMBSTONES: Final = 100_000
FAREWELLS: Final = "farewells"
_QUEUE: Final = ("tombstone_order",)
# Among the places, which are numbers: below a root that has always been reserved, so that no client has written it.
_FLOOR: Final = (*_QUEUE, "floor")
_NO_FLOOR: Final = {"epoch": 0, "rev": 0}
_NOT_TOLD: Final = ("place", "rev")


def grave_of(rows: Rows, entity: str) -> Fence | None:
    """The fence under which an entity was deleted, or None if it was not, or so long ago that it is forgotten."""
    data = _grave(rows, entity)
    return None if data is None else Fence(data["epoch"])


def _grave(rows: Rows, entity: str) -> dict[str, Any] | None:
    data: dict[str, Any] | None = rows.get_or(("tombstones", entity), None)
    return None if data is None or data.get("free") else data


def first_epoch(rows: Rows, entity: str) -> int:
    """The epoch under which an entity of this name begins: above all that the log has forgotten, at least 1.

    Nor below what another history of the log may have given one of this name.
    """
    data = rows.get_or(("tombstones", entity), None)
    epoch = _floor(rows)["epoch"] + 1 if data is None else int(data["epoch"])
    return max(epoch, lowest_epoch(rows))


def first_revision(rows: Rows, entity: str) -> int:
    """With which revision all its rights and its parent begin: what one that was before it permitted stays past."""
    data = rows.get_or(("tombstones", entity), None)
    return _floor(rows)["rev"] + 1 if data is None else int(data.get("rev", 1))


def _floor(rows: Rows) -> dict[str, int]:
    found: dict[str, int] = rows.get_or(_FLOOR, _NO_FLOOR)
    return found


def _rev_after(record: EntityRecord) -> int:
    rights = (record.rule_rev, record.owner_rev, record.master_rev, record.locks_rev, record.parent_rev)
    return 1 + max(*rights, record.policies_rev, record.release_rev)


def free_name(rows: Rows, record: EntityRecord) -> None:
    """Nothing came of the entity: its name may be given again.

    However often that happens, the name has one place, so that it pushes no other name out.
    """
    free = {"entity": record.id, "epoch": record.fence.raised().epoch, "rev": _rev_after(record), "free": True}
    before = rows.get_or(("tombstones", record.id), None)
    if before is None:
        _dig(rows, free)
    else:
        rows.put(("tombstones", record.id), before | free)
    _end_questions(rows, record.id)


def entity_delete(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The master, who names the revision of its mastership, deletes an entity; again, it hears the same.

    Answers with the authority that has to be told, and the fence after its last one.
    """
    grave = _grave(rows, args["entity"])
    if grave is not None:
        return {name: value for name, value in grave.items() if name not in _NOT_TOLD}
    record = find_entity(rows, args["entity"])
    check_master(record, args["by"])
    check_revision(record, "master_rev", args["master_rev"])
    return bury(rows, record)


def take_back(rows: Rows, record: EntityRecord) -> None:
    """No player was told of the entity: its name is free again, for one that begins under a higher epoch."""
    cut_out(rows, record)
    free_name(rows, record)
    rows.delete(("entities", record.id))
    refuse_groups_of(rows, record.id, Reason.GONE)
    for table in ("asks", "paces", "recoveries", "crossings"):
        if rows.get_or((table, record.id), None) is not None:
            rows.delete((table, record.id))


def bury(rows: Rows, record: EntityRecord) -> dict[str, Any]:
    """The entity ends, with everything that is kept of it but its tombstone, which is the answer."""
    fence = record.fence.raised()
    grave = {"entity": record.id, "authority": record.authority, "epoch": fence.epoch, "master": record.master}
    servers = _who_may_have_it(rows, record)
    cut_out(rows, record)
    rows.delete(("entities", record.id))
    _end_questions(rows, record.id)
    refuse_groups_of(rows, record.id, Reason.GONE)
    for table in ("asks", "paces", "recoveries", "crossings"):
        if rows.get_or((table, record.id), None) is not None:
            rows.delete((table, record.id))
    _dig(rows, grave | {"rev": _rev_after(record)})
    if servers:
        rows.put((FAREWELLS, record.id), {"epoch": fence.epoch, "servers": servers})
    return grave


def _end_questions(rows: Rows, entity: str) -> None:
    """No master is left who could answer; of transfers that are permitted, see `unless_gone`."""
    for name in rows.get_or(("asks", entity), ()):
        transfer = find_transfer(rows, name)
        if transfer is not None and transfer.phase is Phase.ASKED:
            save_transfer(rows, transfer.changed(phase=Phase.REFUSED, reason=Reason.GONE.value), is_new=False)


def _who_may_have_it(rows: Rows, record: EntityRecord) -> dict[str, int]:
    """Servers, with the incarnations of them that may simulate it or begin to, as far as the log knows; 0 is any.

    Servers that may pass it among themselves may have done so. Until they have heard, they may pass it to a server that
    comes back as another incarnation. A server that was to take it over after a death may do that yet, though the log
    has looked for another one since. It was told as which incarnation.
    """
    servers = dict.fromkeys(record.delegation, 0)
    if (row := rows.get_or(("recoveries", record.id), None)) is not None:
        servers |= {name: incarnation_of(rows, name) for name in row.get("had", ()) if name not in servers}
    if record.authority:
        servers[record.authority] = record.incarnation
    return servers


def _dig(rows: Rows, grave: dict[str, Any]) -> None:
    """A tombstone is put up, and the oldest one forgotten if there are too many."""
    entity = grave["entity"]
    head, tail = rows.get_or(_QUEUE, [0, 0])
    rows.put(("tombstones", entity), grave | {"place": tail})
    rows.put((*_QUEUE, str(tail)), entity)
    tail += 1
    if tail - head > MAX_TOMBSTONES:
        _forget(rows, head)
        head += 1
    rows.put(_QUEUE, [head, tail])


def _forget(rows: Rows, place: int) -> None:
    name = rows.get_or((*_QUEUE, str(place)), "")
    rows.delete((*_QUEUE, str(place)))
    # A name that was free and is now that of a tombstone has a later place too.
    if (grave := rows.get_or(("tombstones", name), None)) is not None and grave.get("place", place) == place:
        rows.delete(("tombstones", name))
        floor = _floor(rows)
        # Tombstones of entities that were deleted before machine version 2 have no revision.
        highest = {"epoch": max(floor["epoch"], grave["epoch"]), "rev": max(floor["rev"], grave.get("rev", 0))}
        if highest != floor:
            rows.put(_FLOOR, highest)
        if rows.get_or((FAREWELLS, name), None) is not None:
            rows.delete((FAREWELLS, name))


def entity_farewell(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Servers have said that they have heard of the end of entities, or cannot have them any more.

    `told` are [entity, epoch, server]; what is known already, or is of another end, changes nothing.
    """
    for entity, epoch, server in args["told"]:
        row = rows.get_or((FAREWELLS, entity), None)
        if row is None or row["epoch"] > epoch or server not in row["servers"]:
            continue
        left = {name: incarnation for name, incarnation in row["servers"].items() if name != server}
        if left:
            rows.put((FAREWELLS, entity), row | {"servers": left})
        else:
            rows.delete((FAREWELLS, entity))


DELETION_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "entity.delete": entity_delete,
    "entity.farewell": entity_farewell,
}


_NOT_FROZEN: Final = (Phase.ASKED, Phase.PERMITTED)


def unless_gone(rows: Rows, transfer: TransferRecord) -> TransferRecord:
    """The transfer; if it has no result yet and its entity is no more, it is refused here and now, with its group."""
    if transfer.phase in DECIDED or rows.get_or(("entities", transfer.entity), None) is not None:
        return transfer
    if transfer.phase in _NOT_FROZEN:
        save_transfer(rows, transfer.changed(phase=Phase.REFUSED, reason=Reason.GONE.value), is_new=False)
    refuse_group(rows, transfer, Reason.GONE)
    return known_transfer(rows, transfer.id)
