"""What the master of an entity sets: rule, owner and master, and the policies.

A policy for the death of the authority counts from the step in which it is set. That holds also if the authority has
died before and no server has taken the entity over yet. Its recovery waits for the return of its server or no longer
does, or the entity ends.
"""

from collections.abc import Mapping
from typing import Any, Final

from batonpass.authority.model.leave_policy import LeavePolicy
from batonpass.authority.model.records import EntityRecord, RecoveryRow, Rule
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.standing import OrphanPolicy
from batonpass.authority.procedures.delete import bury
from batonpass.authority.procedures.rights import (
    check_master,
    check_revisions,
    find_entity,
    is_master_gone,
    save_entity,
    with_owner,
)

__all__ = ["RIGHTS_CHANGES"]

_POLICIES: Final = ("orphans", "on_leave", "heir", "owner_timeout_s")


def entity_change_rights(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The master sets rule, owner or master, which get a new revision each, or the policies, which have one together.

    Where the master is a server that was removed, the owner may: no other player ever could.
    """
    before = record = find_entity(rows, args["entity"])
    if args["by"] != record.owner or not is_master_gone(rows, record):
        check_master(record, args["by"])
    check_revisions(record, args)
    if args.get("master") is not None and args["master"] != record.master:
        record = record.changed(master=args["master"], master_rev=record.master_rev + 1)
    if args.get("owner") is not None:
        record = with_owner(record, args["owner"])
    if record.master != before.master:
        record = _without_locks_of(record, before.master)
    if args.get("rule") is not None and args["rule"] != record.rule:
        record = record.changed(rule=Rule(args["rule"]), rule_rev=record.rule_rev + 1)
    if args.get("orphans") is not None:
        record = record.changed(orphans=OrphanPolicy(args["orphans"]))
    if args.get("on_leave") is not None:
        record = record.changed(on_leave=LeavePolicy(args["on_leave"]))
    for name in ("heir", "owner_timeout_s"):
        if args.get(name) is not None:
            record = record.changed(**{name: args[name]})
    if any(getattr(record, name) != getattr(before, name) for name in _POLICIES):
        record = record.changed(policies_rev=record.policies_rev + 1)
    save_entity(rows, record)
    if record.orphans is not before.orphans:
        _treat_orphan(rows, record)
    return record.to_data()


def _without_locks_of(record: EntityRecord, former: str) -> EntityRecord:
    """A former master's locks go with its mastership, unless it owns the entity."""
    locks = {key: lock for key, lock in record.locks.items() if lock.by != former or former == record.owner}
    return record.changed(locks=locks, locks_rev=record.locks_rev + (locks != record.locks))


def _treat_orphan(rows: Rows, record: EntityRecord) -> None:
    """The policy was changed. Where no server is to take the entity over yet, that is what becomes of it now."""
    data = rows.get_or(("recoveries", record.id), None)
    if data is None or record.authority:
        return
    row = RecoveryRow.from_data(data)
    if row.contested:
        # No server has died, as far as is known.
        return
    if record.orphans is OrphanPolicy.DESPAWN:
        bury(rows, record)
        return
    row = row.changed(held=record.orphans is OrphanPolicy.FREEZE)
    rows.put(("recoveries", record.id), row.to_data())


RIGHTS_CHANGES: Final = {"entity.change_rights": entity_change_rights}
