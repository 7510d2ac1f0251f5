"""When the own disk of a server counts: while nobody else of its instance has a lease, and until others have copies.

What is durable must survive the death of one server. As a rule a backup replica does that. With one server left there
is none, and its disk does it only if no server resumes an older copy while it is dead, such as one that comes
back before it. So that its disk counts is decided by the log, and for as long as it stands there

1. the server may call durable what is on its disk, of entities that are at home in its own instance: another home does
   not know of this;
2. whatever is taken from it is resumed by no server before its disk was asked: by itself, when it has come back
   (`RecoveryRow.disk`). If it has come back without its disk, the others' copies count. If it never will, people say
   so, by removing it (`server.remove`).

It is set (`lease.sole`) while every other lease is over. It is taken back (`lease.shared`) only after the server has
said that it calls nothing durable any more by its disk, and that backup replicas keep a copy of everything that it ever
did, or that it has resumed. Renewals are numbered, and such a word counts only if it is later than the last decision
that the disk counts. What waits for the disk, or has not been resumed yet, waits also after that.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import LeaseRow
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.procedures.lease import find_lease, lease_office

__all__ = ["SOLE_PROCEDURES", "is_sole"]


def is_sole(rows: Rows, server: str) -> bool:
    """Whether something durable may be on the disk of this server alone."""
    row = rows.get_or(("leases", server), None) if server else None
    return row is not None and bool(row.get("sole", False))


def _checked(rows: Rows, args: Mapping[str, Any]) -> LeaseRow:
    """The lease that is renewed, if it is alive and the caller grants leases still. Raises `Refused`."""
    office = lease_office(rows)
    if office.number != args["office"]:
        raise Refused(Reason.STALE_REVISION, f"leases are granted by {office.holder} since", revision=office.number)
    row = find_lease(rows, args["server"])
    if row is None or row.incarnation != args["incarnation"] or row.phase is not LeasePhase.ALIVE:
        raise Refused(Reason.LEASE_OVER, f"{args['server']} is not alive as that incarnation", server=args["server"])
    return row


def _is_over(rows: Rows, server: str) -> bool:
    row = find_lease(rows, server)
    return row is not None and row.phase is LeasePhase.OVER


def lease_sole(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The disk of this server counts from its renewal `renewal` on: nobody else has a lease.

    The caller names all `others` that ever had one, each once; all of theirs are over.
    """
    row, others = _checked(rows, args), sorted({*args["others"]} - {args["server"]})
    are_all = rows.count_children(("leases",)) == len(others) + 1
    if not are_all or not all(_is_over(rows, other) for other in others):
        raise Refused(Reason.LEASE_HELD, f"another server has a lease beside {row.server}", server=row.server)
    return _save(rows, row.changed(sole=True, sole_at=max(row.sole_at, args["renewal"])))


def lease_shared(rows: Rows, args: Mapping[str, Any]) -> Any:
    """With its renewal `renewal` the server has said that backup replicas have all that its disk made durable."""
    row = _checked(rows, args)
    if args["renewal"] <= row.sole_at:
        raise Refused(Reason.TOO_LATE, f"the disk of {row.server} counts since a later renewal", server=row.server)
    return _save(rows, row.changed(sole=False))


def _save(rows: Rows, row: LeaseRow) -> Any:
    rows.put(("leases", row.server), row.to_data())
    return row.to_data()


SOLE_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "lease.shared": lease_shared,
    "lease.sole": lease_sole,
}
