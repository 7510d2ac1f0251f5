"""Rights over an entity that are changed in the log at once: revisions, locks, giving up and handing back.

What the master sets is in `authority.procedures.set_rights`.

Rule, owner, master, locks, policies and releases each have a revision. A change names the revisions that its author saw
(`*_rev`, where given), and is refused with `stale_revision` when one has moved on. Nothing is changed then. So the same
signed words, sent twice or late, count once at most.
"""

from collections.abc import Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.master_question import waiting

__all__ = [
    "MAX_LOCKS",
    "RIGHTS_PROCEDURES",
    "check_master",
    "check_owner",
    "check_revision",
    "check_revisions",
    "find_entity",
    "player_only",
    "save_entity",
    "with_owner",
]

# Names of locks on one entity, and how often one may be taken before it is given back.
MAX_LOCKS: Final = 16
MAX_LOCK_COUNT: Final = 1024
_REVISIONS: Final = ("rule_rev", "owner_rev", "master_rev", "locks_rev", "policies_rev", "release_rev")


def find_entity(rows: Rows, entity_id: str) -> EntityRecord:
    """The record of an entity; raises `Refused` (`not_found`)."""
    data = rows.get_or(("entities", entity_id), None)
    if data is None:
        raise Refused(Reason.NOT_FOUND, f"there is no entity {entity_id}", entity=entity_id)
    return EntityRecord.from_data(data)


def save_entity(rows: Rows, record: EntityRecord) -> None:
    """Write the record."""
    rows.put(("entities", record.id), record.to_row())


def player_only(rows: Rows, master: str) -> str:
    """The master as an owner: none, if it is, or was, a server of this instance. That takes no part as a player."""
    return "" if any(rows.get_or((table, master), None) for table in ("servers", "departed")) else master


def is_master_gone(rows: Rows, record: EntityRecord) -> bool:
    """Whether its master is a server that was removed, and is not registered again."""
    return rows.get_or(("departed", record.master), None) is not None


def with_owner(record: EntityRecord, owner: str) -> EntityRecord:
    """`owner` owns it from now on (no player if empty); locks of the former owner go with its ownership."""
    if owner == record.owner:
        return record
    locks = {key: lock for key, lock in record.locks.items() if lock.by in (owner, record.master)}
    return record.changed(
        owner=owner,
        owner_rev=record.owner_rev + 1,
        stands_still=False,
        previous_owner=record.owner or record.previous_owner,
        locks=locks,
        locks_rev=record.locks_rev + (locks != record.locks),
    )


def check_revision(record: EntityRecord, name: str, expected: int) -> None:
    """Raise `Refused` (`stale_revision`) unless the right whose revision is called `name` has the expected one."""
    if expected != getattr(record, name):
        text = f"{name} of {record.id} is {getattr(record, name)}, not {expected}: look again and repeat"
        raise Refused(Reason.STALE_REVISION, text, revision=getattr(record, name))


def check_revisions(record: EntityRecord, args: Mapping[str, Any]) -> None:
    """Raise `Refused` (`stale_revision`) unless those revisions are still so that `args` names."""
    for name in _REVISIONS:
        if args.get(name) is not None:
            check_revision(record, name, args[name])


def check_master(record: EntityRecord, by: str) -> None:
    """Raise `Refused` (`not_master`) unless `by` is the entity's master."""
    if by != record.master:
        raise Refused(Reason.NOT_MASTER, f"{by} is not the master of {record.id}; {record.master} is", by=by)


def check_owner(record: EntityRecord, by: str) -> None:
    """Raise `Refused` (`not_owner`) unless `by` owns the entity."""
    if by != record.owner:
        raise Refused(Reason.NOT_OWNER, f"{by} does not own {record.id}; {record.owner or 'nobody'} does", by=by)


def entity_divest(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The owner gives the entity up: no player owns it then. With `if_wanted`, only if a request awaits the master."""
    record = find_entity(rows, args["entity"])
    check_owner(record, args["by"])
    check_revisions(record, args)
    if args.get("if_wanted") and not waiting(rows, record.id, args["now_s"]):
        raise Refused(Reason.NOT_WANTED, f"no player waits for {record.id}", entity=record.id)
    record = with_owner(record, "")
    save_entity(rows, record)
    return record.to_data()


def entity_hand_back(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The owner gives the entity back to its former owner, or to its master, unless others' locks forbid it."""
    record = find_entity(rows, args["entity"])
    check_owner(record, args["by"])
    check_revisions(record, args)
    owner = record.previous_owner or player_only(rows, record.master)
    locks = sorted(name for name, lock in record.locks.items() if lock.by not in (record.owner, owner))
    if locks and owner:
        text = f"{record.id} is locked by {', '.join(locks)}: {owner} cannot own it, but divest gives it up"
        raise Refused(Reason.LOCKED, text, entity=record.id)
    record = with_owner(record, owner)
    save_entity(rows, record)
    return record.to_data()


def entity_release(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The master releases an entity; that counts also where only its authority knows that it is quarantined.

    If it is suspended because its owner left, it still has no owner. That is a later revision of that: one that hears
    of both goes by the later one, in whichever order they come.
    """
    record = find_entity(rows, args["entity"])
    check_master(record, args["by"])
    check_revisions(record, args)
    if record.stands_still:
        record = record.changed(owner_rev=record.owner_rev + 1, stands_still=False)
    record = record.changed(release_rev=record.release_rev + 1)
    save_entity(rows, record)
    return record.to_data()


def entity_lock(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Owner or master takes the lock of this name, once more if it holds it already."""
    record = find_entity(rows, args["entity"])
    by, name = args["by"], args["name"]
    if by not in (record.owner, record.master):
        raise Refused(Reason.NOT_OWNER, f"{by} neither owns {record.id} nor is its master", by=by)
    check_revisions(record, args)
    lock = record.locks.get(name)
    if lock is not None and lock.by != by:
        raise Refused(Reason.LOCKED, f"{lock.by} holds the lock {name} of {record.id}", name=name)
    if (lock is None and len(record.locks) >= MAX_LOCKS) or (lock is not None and lock.count >= MAX_LOCK_COUNT):
        text = f"{record.id} takes {MAX_LOCKS} locks, each {MAX_LOCK_COUNT} times"
        raise Refused(Reason.FULL, text, limit=MAX_LOCKS)
    return _with_lock(rows, record, name, by, 1 if lock is None else lock.count + 1)


def entity_unlock(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The holder of a lock gives it back once; the master may too, for a player who is gone."""
    record = find_entity(rows, args["entity"])
    by, name = args["by"], args["name"]
    check_revisions(record, args)
    lock = record.locks.get(name)
    if lock is None:
        raise Refused(Reason.NOT_FOUND, f"{record.id} has no lock {name}", name=name)
    if by not in (lock.by, record.master):
        raise Refused(Reason.LOCKED, f"{lock.by} holds the lock {name} of {record.id}", name=name)
    return _with_lock(rows, record, name, lock.by, lock.count - 1)


def _with_lock(rows: Rows, record: EntityRecord, name: str, by: str, count: int) -> Any:
    data = {key: lock.model_dump() for key, lock in record.locks.items()}
    data |= {name: {"by": by, "count": count}}
    if count == 0:
        del data[name]
    record = EntityRecord.from_data(record.to_data() | {"locks": data, "locks_rev": record.locks_rev + 1})
    save_entity(rows, record)
    return record.to_data()


RIGHTS_PROCEDURES: Final = {
    "entity.divest": entity_divest,
    "entity.hand_back": entity_hand_back,
    "entity.lock": entity_lock,
    "entity.release": entity_release,
    "entity.unlock": entity_unlock,
}
