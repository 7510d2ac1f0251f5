"""Leases in the log: which homeserver grants them, which incarnation of each server is present, and which are over.

    lease_office     LeaseOffice
    office_marks/…   see `authority.trust.signed_positions`
    leases/<server>  LeaseRow

The rules of `authority.machines.lease` say when these are to be called. A server that has no row is one that never had
a lease (the log is older than leases, or they are not used). Nothing is refused because of it.

When the own disk of a server counts: while no other server of its instance has a lease, and until others have copies.

What is durable must survive the death of one server. As a rule a backup replica does that. With one server left there
is none. Its disk does it only if no server resumes an older copy while it is dead, such as one that comes back before
it. So that its disk counts is decided by the log, and for as long as it stands there

1. the server may call durable what is on its disk, of entities that are at home in its own instance. Another home does
   not know of this;
2. whatever is taken from it is resumed by no server before its disk was asked: by itself, when it has come back
   (`RecoveryRow.disk`). If it has come back without its disk, the others' copies count. If it never will, people say
   so, by removing it (`server.remove`).

It is set (`lease.sole`) while every other lease is over. It is taken back (`lease.shared`) only after the server has
said that it calls nothing durable any more by its disk. It must also have said that backup replicas keep a copy of
everything that it ever did, or that it has resumed. Renewals are numbered, and such a word counts only if it is later
than the last decision that the disk counts. What waits for the disk, or has not been resumed yet, waits also after
that.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import DirectoryRow, LeaseOffice, LeaseRow
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.procedures.directory import check_simserver
from batonpass.authority.trust.signed_positions import mark_office

__all__ = [
    "LEASE_PROCEDURES",
    "SOLE_PROCEDURES",
    "check_lease",
    "disk_is_gone",
    "find_lease",
    "given_late",
    "incarnation_of",
    "is_sole",
    "lease_office",
    "may_be_given",
]


def lease_office(rows: Rows) -> LeaseOffice:
    """The homeserver that grants leases now."""
    data = rows.get_or(("lease_office",), None)
    return LeaseOffice() if data is None else LeaseOffice.from_data(data)


def find_lease(rows: Rows, server: str) -> LeaseRow | None:
    """The lease of a simulation server, or None if it never had one."""
    data = rows.get_or(("leases", server), None)
    return None if data is None else LeaseRow.from_data(data)


def incarnation_of(rows: Rows, server: str, told: int = 0) -> int:
    """The present incarnation of a simulation server; 0 if it never had a lease.

    Of one of another instance, what that instance has `told`: its lease is not in this log.
    """
    row = rows.get_or(("leases", server), None)
    return told if row is None else int(row["incarnation"])


def may_be_given(rows: Rows, server: str) -> bool:
    """Whether a server can be given an entity: not if its lease is over, nor when it has just come back.

    So whatever such a server simulated can be taken from it once and for all, with nothing added meanwhile.
    """
    row = rows.get_or(("leases", server), None)
    # Not read as a whole: every hand-over asks.
    return row is None or row["phase"] == LeasePhase.ALIVE.value


def given_late(rows: Rows, server: str, incarnation: int) -> None:
    """The log learns that a server was given an entity as this incarnation: if that is dead, it is swept once more.

    Also if it is being swept just now: the member that does that may have looked before.
    """
    row = find_lease(rows, server)
    if row is not None and row.has_outlived(incarnation):
        _save(rows, row.changed(swept=False, late=row.late + 1))


def check_lease(rows: Rows, server: str) -> None:
    """Refuse (`target_down`) what `may_be_given` says no to."""
    if not may_be_given(rows, server):
        text = f"{server} can be given nothing now: its lease is over, or it has just come back"
        raise Refused(Reason.TARGET_DOWN, text, server=server)


def _save(rows: Rows, row: LeaseRow) -> Any:
    rows.put(("leases", row.server), row.to_data())
    return row.to_data()


def office_take(rows: Rows, args: Mapping[str, Any]) -> Any:
    """A homeserver takes the office of granting leases, as the successor of the office number `after`.

    A member that names an older one has not heard of the present one, and gets what there is instead. `mark` is random,
    and tells this office from any other of the same number; see `authority.trust.signed_positions`.
    """
    office = lease_office(rows)
    if office.number == args["after"]:
        office = LeaseOffice(holder=args["by"], number=office.number + 1)
        rows.put(("lease_office",), office.to_data())
        mark_office(rows, office.number, args.get("mark", ""))
    return office.to_data()


def office_keep(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The holder of the office shows that it is there, where no leader of the log does that for it."""
    office = lease_office(rows)
    if office.number == args["office"]:
        office = office.changed(kept=office.kept + 1)
        rows.put(("lease_office",), office.to_data())
    return office.to_data()


def lease_claim(rows: Rows, args: Mapping[str, Any]) -> Any:
    """A simulation server begins an incarnation: the one after the last, whose lease must be over.

    It is over without having been ended if the server knows the secret of the last incarnation. That stands in its own
    directory, which one process holds at a time, and which the operating system frees when that is gone.

    `addresses`, if they are there, are the incarnation's own; the one that has the lease may say others at any time.
    """
    server, incarnation, nonce = args["server"], args["incarnation"], args["nonce"]
    check_simserver(rows, server)
    row = find_lease(rows, server)
    addressed = bool(args.get("addresses"))
    if row is None or (row.incarnation, row.nonce) == (incarnation, nonce):
        claimed = row or LeaseRow(server=server, incarnation=incarnation, nonce=nonce)
        claimed = claimed.changed(addressed=claimed.addressed or addressed)
        _move(rows, args)
        return claimed.to_data() if claimed == row else _save(rows, claimed)
    if incarnation != row.incarnation + 1:
        text = f"the lease of {server} is that of incarnation {row.incarnation}, not {incarnation}"
        raise Refused(Reason.LEASE_OVER, text, incarnation=row.incarnation)
    if row.phase is not LeasePhase.OVER and args["previous_nonce"] != row.nonce:
        text = f"another process has the lease of {server} (incarnation {row.incarnation}) until it is over"
        raise Refused(Reason.LEASE_HELD, text, incarnation=row.incarnation)
    _move(rows, args)
    # Its disk is the same.
    begun = LeaseRow(server=server, incarnation=incarnation, nonce=nonce, sole=row.sole, addressed=addressed)
    return _save(rows, begun)


def _move(rows: Rows, args: Mapping[str, Any]) -> None:
    """The directory has where this incarnation is, if it says so: REST, and host and port of its link."""
    if not args.get("addresses"):
        return
    rest_url, link_host, link_port = args["addresses"]
    row = DirectoryRow.from_data(rows.get_or(("servers", args["server"]), None))
    if row.address != (rest_url, link_host, link_port):
        row = row.changed(rest_url=rest_url, link_host=link_host, link_port=link_port, revision=row.revision + 1)
        rows.put(("servers", row.name), row.to_data())


def lease_expire(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The holder of the office `office` ends a lease that was not renewed. Nothing makes it good again."""
    office = lease_office(rows)
    if office.number != args["office"]:
        text = f"leases are granted by {office.holder} since: office {office.number}, not {args['office']}"
        raise Refused(Reason.STALE_REVISION, text, revision=office.number)
    row = find_lease(rows, args["server"])
    if row is None or row.incarnation != args["incarnation"]:
        raise Refused(Reason.LEASE_OVER, f"{args['server']} has another incarnation since", server=args["server"])
    return _save(rows, row.changed(phase=LeasePhase.OVER, swept=row.swept and row.phase is LeasePhase.OVER))


def lease_swept(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Nothing is left of what earlier incarnations simulated: the returning server is alive again.

    `late` and `phase` are those of the row before it was looked at. If they are others now, the log has learned since
    of something that may be left, or ended the lease of this incarnation too. The row stays as it is, to be swept
    again.
    """
    row = find_lease(rows, args["server"])
    if row is None or row.incarnation != args["incarnation"]:
        raise Refused(Reason.LEASE_OVER, f"{args['server']} has another incarnation since", server=args["server"])
    # A log of before they were told may be applied again.
    if (row.late, row.phase) != (args.get("late", row.late), LeasePhase(args.get("phase", row.phase))):
        return row.to_data()
    phase = LeasePhase.ALIVE if row.phase is LeasePhase.RETURNING else row.phase
    return _save(rows, row.changed(phase=phase, swept=True))


def disk_is_gone(rows: Rows, server: str) -> None:
    """A server was removed: its disk is not waited for any more.

    Its row stays, with the number of its last incarnation. Other instances may have to ask whether that is over, and a
    server that is registered under its name later comes after it.
    """
    row = find_lease(rows, server)
    if row is not None and row.sole:
        _save(rows, row.changed(sole=False))


LEASE_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "lease.claim": lease_claim,
    "lease.expire": lease_expire,
    "lease.keep_office": office_keep,
    "lease.swept": lease_swept,
    "lease.take_office": office_take,
}


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
    """The disk of this server counts from its renewal `renewal` on: no other one has a lease.

    The caller names all `others` that ever had one, each once; all of theirs are over.
    """
    row, others = _checked(rows, args), sorted({*args["others"]} - {args["server"]})
    are_all = rows.count_children(("leases",)) == len(others) + 1
    if not are_all or not all(_is_over(rows, other) for other in others):
        raise Refused(Reason.LEASE_HELD, f"another server has a lease beside {row.server}", server=row.server)
    return _save_survivor(rows, row.changed(sole=True, sole_at=max(row.sole_at, args["renewal"])))


def lease_shared(rows: Rows, args: Mapping[str, Any]) -> Any:
    """With its renewal `renewal` the server has said that backup replicas have all that its disk made durable."""
    row = _checked(rows, args)
    if args["renewal"] <= row.sole_at:
        raise Refused(Reason.TOO_LATE, f"the disk of {row.server} counts since a later renewal", server=row.server)
    return _save_survivor(rows, row.changed(sole=False))


def _save_survivor(rows: Rows, row: LeaseRow) -> Any:
    rows.put(("leases", row.server), row.to_data())
    return row.to_data()


SOLE_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "lease.shared": lease_shared,
    "lease.sole": lease_sole,
}
