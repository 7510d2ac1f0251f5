"""Making the record of an entity, taking it back, and letting a group pass the entity among themselves."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.leave_policy import LeavePolicy
from batonpass.authority.model.records import EntityRecord, Rule
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.standing import OrphanPolicy, Standing
from batonpass.authority.procedures.delete import first_epoch, first_revision, grave_of, take_back
from batonpass.authority.procedures.directory import check_simserver, is_server
from batonpass.authority.procedures.drain import check_not_draining
from batonpass.authority.procedures.hierarchy import check_not_attached
from batonpass.authority.procedures.lease import check_lease, incarnation_of
from batonpass.authority.procedures.rights import find_entity, save_entity

__all__ = ["ENTITY_PROCEDURES", "MAX_DELEGATION"]

MIN_DELEGATION: Final = 2
MAX_DELEGATION: Final = 16


def entity_create(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Make the record of a new entity: its spawner becomes master and owner, the rule is `ask` unless stated.

    Repeating the same creation answers with the record as it is (the first answer may have been lost). On which server
    it began is not known of one that has moved on, or waits for another authority. So any is taken for that one then.

    One that `confirms` says later that the entity is kept (`entity.confirm`). If it was lost before that, no player was
    ever told that it lived, and the repetition creates it anew, under a higher epoch.
    """
    entity_id, server, spawner = args["entity"], args["server"], args["spawner"]
    existing = rows.get_or(("entities", entity_id), None)
    if existing is not None:
        record = EntityRecord.from_data(existing)
        moved_on = record.fence != Fence(record.born)
        if (record.kind, record.master) != (args["kind"], spawner) or not (moved_on or record.authority == server):
            raise Refused(Reason.ALREADY_EXISTS, f"entity {entity_id} exists already", entity=entity_id)
        if not _never_lived(rows, record):
            return record.to_data()
        take_back(rows, record)
    if is_server(rows, entity_id):
        raise Refused(Reason.ALREADY_EXISTS, f"{entity_id} is the name of a server", entity=entity_id)
    if rows.get_or(("players", entity_id), None) is not None:
        raise Refused(Reason.ALREADY_EXISTS, f"{entity_id} is the name of a player", entity=entity_id)
    if grave_of(rows, entity_id) is not None:
        raise Refused(Reason.GONE, f"there was an entity {entity_id}, and it was deleted", entity=entity_id)
    if args.get("check_server", True):
        check_simserver(rows, server)
        check_not_draining(rows, server)
        check_lease(rows, server)
    epoch, rev = first_epoch(rows, entity_id), first_revision(rows, entity_id)
    record = EntityRecord(
        id=entity_id,
        kind=args["kind"],
        master=spawner,
        master_rev=rev,
        owner=spawner,
        owner_rev=rev,
        rule_rev=rev,
        locks_rev=rev,
        parent_rev=rev,
        policies_rev=rev,
        release_rev=rev,
        rule=Rule(args.get("rule", Rule.ASK)),
        orphans=OrphanPolicy(args.get("orphans", OrphanPolicy.ADOPT)),
        on_leave=LeavePolicy(args.get("on_leave", LeavePolicy.KEEP)),
        heir=args.get("heir", ""),
        owner_timeout_s=args.get("owner_timeout_s", 0),
        authority=server,
        incarnation=incarnation_of(rows, server),
        epoch=epoch,
        born=epoch,
        unconfirmed=args.get("confirms", False),
    )
    save_entity(rows, record)
    return record.to_data()


def _never_lived(rows: Rows, record: EntityRecord) -> bool:
    """Whether nothing is left of it, no player was told that there ever was anything, and no server may begin yet.

    Its first server may not: its lease is over, which is known there, and that life of it was told to spawn it.
    """
    row = rows.get_or(("recoveries", record.id), None) or {"last": "", "had": ()}
    return record.unconfirmed and record.standing is Standing.LOST and {*row.get("had", ())} <= {row["last"]}


def entity_confirm(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Its first server has said that an entity, of the epoch `born`, would outlive that server: it counts from now on.

    Raises `NOT_FOUND` or `TOO_LATE` if it was deleted, or lost and created anew since.
    """
    record = find_entity(rows, args["entity"])
    if record.born != args["born"]:
        raise Refused(Reason.TOO_LATE, f"there is another {record.id} since", epoch=record.epoch)
    if record.unconfirmed:
        record = record.changed(unconfirmed=False)
        save_entity(rows, record)
    return record.to_data()


def entity_discard(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Take back an entity whose first server would not spawn it; once it has moved on it may not be discarded.

    Its name is free again, for an entity that begins under a higher epoch.
    """
    record = find_entity(rows, args["entity"])
    if (record.authority, record.fence) != (args["server"], Fence(args.get("epoch", record.born))):
        raise Refused(Reason.TOO_LATE, f"{record.id} has moved on to {record.authority}", epoch=record.epoch)
    take_back(rows, record)
    return record.to_data()


def entity_delegate(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Let a group of this instance's simulation servers pass the entity among themselves.

    A delegation ends with the next hand-over through the log, which raises the epoch, so that certificates under the
    old one lose their force. It cannot be changed or ended from outside: the log may be behind the passes of the group.
    """
    record = find_entity(rows, args["entity"])
    group = tuple(sorted(set(args["group"])))
    if len(group) > MAX_DELEGATION:
        raise Refused(Reason.FULL, f"a delegation names at most {MAX_DELEGATION} servers, not {len(group)}")
    if len(group) < MIN_DELEGATION:
        text = f"a delegation names at least {MIN_DELEGATION} servers, one to pass the entity and one to take it"
        raise Refused(Reason.NO_DELEGATION, text, group=group)
    for server in group:
        check_simserver(rows, server)
    if group == record.delegation:
        return record.to_data()
    check_not_attached(record)
    for server in group:
        check_not_draining(rows, server)
    if record.delegation:
        raise Refused(Reason.NO_DELEGATION, f"{record.id} is delegated already; hand it over through its home first")
    if record.authority not in group:
        text = f"{record.authority or 'nobody'} has authority over {record.id} and is not in the group"
        raise Refused(Reason.NOT_HOLDER, text, group=group)
    record = record.changed(delegation=group)
    save_entity(rows, record)
    return record.to_data()


ENTITY_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "entity.confirm": entity_confirm,
    "entity.create": entity_create,
    "entity.delegate": entity_delegate,
    "entity.discard": entity_discard,
}
