"""Every change of the replicated rows, as deterministic procedures over one tree transaction.

Homeservers submit them by name through the log; each runs on every member in the same order. A procedure that raises
`Refused` leaves the tree untouched. A *refused transfer*, in contrast, is itself recorded: the answer to a hand-over
request must stay the same however often, and however late, the request is repeated (FAILURES rows 2, 16, 23).

A refusal after the old authority froze raises the epoch and leaves authority where it was. The old authority resumes
under the new epoch, so no duplicate of the refused request that is still under way can ever succeed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from authority.asks import ask, unless_expired
from authority.epoch import Fence
from authority.errors import Reason, Refused
from authority.records import DirectoryRow, EntityRecord, Outcome, Phase, Role, TransferRecord
from authority.rules import Decision, Rule, decide

__all__ = ["MAX_PLAYERS", "MAX_SERVERS", "MAX_TRANSFERS", "PROCEDURES", "Rows"]

# Finished transfers are kept so that late repetitions get the same answer. Sealed requests expire after a minute, so
# this covers 160 transfers a second; older ones are forgotten first.
MAX_TRANSFERS: Final = 10_000
MAX_SERVERS: Final = 10_000
MAX_PLAYERS: Final = 1_000_000
MAX_DELEGATION: Final = 16
_QUEUE: Final = ("transfer_order",)


class Rows(Protocol):
    """What a procedure may do to the tree; paths are tuples of names."""

    def get_or(self, path: tuple[str, ...], default: Any) -> Any:
        """The data at `path`, or `default`."""

    def put(self, path: tuple[str, ...], data: Any) -> Any:
        """Set the data at `path`, making parents on the way."""

    def delete(self, path: tuple[str, ...]) -> Any:
        """Remove `path` and everything below it."""

    def count(self, path: tuple[str, ...]) -> int:
        """How many children `path` has; 0 when it does not exist."""


# --- rows ---------------------------------------------------------------------------------------------------------


def _entity(rows: Rows, entity_id: str) -> EntityRecord:
    data = rows.get_or(("entities", entity_id), None)
    if data is None:
        raise Refused(Reason.NOT_FOUND, f"there is no entity {entity_id}", entity=entity_id)
    return EntityRecord.from_data(data)


def _transfer(rows: Rows, transfer_id: str) -> TransferRecord | None:
    data = rows.get_or(("transfers", transfer_id), None)
    return None if data is None else TransferRecord.from_data(data)


def _known_transfer(rows: Rows, transfer_id: str) -> TransferRecord:
    transfer = _transfer(rows, transfer_id)
    if transfer is None:
        raise Refused(Reason.NOT_FOUND, f"there is no transfer {transfer_id}", transfer=transfer_id)
    return transfer


def _save_entity(rows: Rows, record: EntityRecord) -> None:
    rows.put(("entities", record.id), record.to_data())


def _save_transfer(rows: Rows, record: TransferRecord) -> None:
    """Write the row; a new one joins the queue of those to be forgotten, and pushes the oldest out when it is full."""
    path = ("transfers", record.id)
    if rows.get_or(path, None) is None:
        head, tail = rows.get_or(_QUEUE, [0, 0])
        rows.put((*_QUEUE, str(tail)), record.id)
        tail += 1
        if tail - head > MAX_TRANSFERS:
            oldest = rows.get_or((*_QUEUE, str(head)), None)
            rows.delete((*_QUEUE, str(head)))
            rows.delete(("transfers", oldest))
            head += 1
        rows.put(_QUEUE, [head, tail])
    rows.put(path, record.to_data())


# --- entities -----------------------------------------------------------------------------------------------------


def entity_create(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Make the record of a new entity: its spawner becomes master and owner, the rule is `ask` unless stated.

    Repeating the same creation answers with the record as it is (the first answer may have been lost).
    """
    entity_id, server, spawner = args["entity"], args["server"], args["spawner"]
    existing = rows.get_or(("entities", entity_id), None)
    if existing is not None:
        record = EntityRecord.from_data(existing)
        if (record.kind, record.master, record.authority) == (args["kind"], spawner, server):
            return record.to_data()
        raise Refused(Reason.ALREADY_EXISTS, f"entity {entity_id} exists already", entity=entity_id)
    if args.get("check_server", True):
        _server_row(rows, server)
    record = EntityRecord(
        id=entity_id,
        kind=args["kind"],
        master=spawner,
        owner=spawner,
        rule=Rule(args.get("rule", Rule.ASK)),
        authority=server,
    )
    _save_entity(rows, record)
    return record.to_data()


def entity_discard(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Take back an entity whose first server would not spawn it; once it has moved on it is nobody's to discard."""
    record = _entity(rows, args["entity"])
    if (record.authority, record.epoch, record.sub) != (args["server"], 1, 0):
        raise Refused(Reason.TOO_LATE, f"{record.id} has moved on to {record.authority}", epoch=record.epoch)
    rows.delete(("entities", record.id))
    if rows.get_or(("asks", record.id), None) is not None:
        rows.delete(("asks", record.id))
    return record.to_data()


def entity_change_rights(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The master sets rule, owner or master; each that changes gets a new revision."""
    record = _entity(rows, args["entity"])
    if args["by"] != record.master:
        raise Refused(
            Reason.NOT_MASTER, f"{args['by']} is not the master of {record.id}; {record.master} is", by=args["by"]
        )
    changes: dict[str, Any] = {}
    for right in ("rule", "owner", "master"):
        value = args.get(right)
        if value is not None and value != getattr(record, right):
            changes[right] = Rule(value) if right == "rule" else value
            changes[f"{right}_rev"] = getattr(record, f"{right}_rev") + 1
    record = record.changed(**changes)
    _save_entity(rows, record)
    return record.to_data()


def entity_delegate(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Let a group of this instance's simulation servers pass the entity among themselves, or end that (empty group).

    Ending or changing a group raises the epoch, so that certificates under the old one lose their force; while the log
    may be behind the passes of the old group that is only safe for the holder itself to ask, which the caller checks.
    """
    record = _entity(rows, args["entity"])
    group = tuple(sorted(set(args["group"])))
    if len(group) > MAX_DELEGATION:
        raise Refused(Reason.FULL, f"a delegation names at most {MAX_DELEGATION} servers, not {len(group)}")
    for server in group:
        _server_row(rows, server)
    if group == record.delegation:
        return record.to_data()
    if record.delegation:
        raise Refused(Reason.NO_DELEGATION, f"{record.id} is delegated already; hand it over through its home first")
    if group and record.authority not in group:
        raise Refused(
            Reason.NOT_HOLDER, f"{record.authority} has authority over {record.id} and is not in the group", group=group
        )
    record = record.changed(delegation=group)
    _save_entity(rows, record)
    return record.to_data()


# --- transfers ----------------------------------------------------------------------------------------------------


def transfer_propose(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Somebody wants an entity to move to `target`: apply the rule and record what became of it.

    Without a requester it is a move for the system's own reasons (placement, drain), which takes ownership from nobody
    and so needs nobody's leave.
    """
    record = _entity(rows, args["entity"])
    existing = _transfer(rows, args["transfer_id"])
    if existing is not None:
        if (existing.entity, existing.target) != (record.id, args["target"]):
            text = f"transfer {existing.id} is one of {existing.entity} to {existing.target}"
            raise Refused(Reason.TRANSFER_ID_TAKEN, text, transfer=existing.id)
        return unless_expired(rows, existing, args.get("now_s", 0.0)).to_data()
    if args["target"] == record.authority:
        text = f"{record.authority} has authority over {record.id} already"
        raise Refused(Reason.SAME_SERVER, text, server=record.authority)
    requester = args.get("requester", "")
    decision = (
        decide(record.rule, requester=requester, owner=record.owner, master=record.master)
        if requester
        else Decision.GRANTED
    )
    if decision is Decision.DENIED:
        raise Refused(Reason.DENIED, f"the rule of {record.id} is deny", entity=record.id, requester=requester)
    transfer = TransferRecord(
        id=args["transfer_id"],
        entity=record.id,
        target=args["target"],
        source=record.authority,
        phase=Phase.PERMITTED if decision is Decision.GRANTED else Phase.ASKED,
        requester=requester,
        mode=args.get("mode", "eager"),
        direct=bool(args.get("direct", False)),
        transport=args.get("transport", "rest"),
        permit_rule_rev=record.rule_rev,
        permit_owner_rev=record.owner_rev,
    )
    if decision is Decision.ASKED:
        transfer = ask(rows, transfer, args.get("now_s", 0.0))
    _save_transfer(rows, transfer)
    return transfer.to_data()


def transfer_expire(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Refuse a transfer whose master did not answer in time; any other stays as it is."""
    transfer = _known_transfer(rows, args["transfer_id"])
    return unless_expired(rows, transfer, args["now_s"]).to_data()


def transfer_answer(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The master answers what it was asked; an answer that comes too late finds the transfer refused."""
    transfer = _known_transfer(rows, args["transfer_id"])
    record = _entity(rows, transfer.entity)
    if args["by"] != record.master:
        text = f"{args['by']} is not the master of {record.id}; {record.master} is"
        raise Refused(Reason.NOT_MASTER, text, by=args["by"])
    if _answered_alike(transfer, allow=args["allow"]):
        return transfer.to_data()
    if transfer.phase is not Phase.ASKED:
        text = f"transfer {transfer.id} is {transfer.phase} already"
        raise Refused(Reason.TOO_LATE, text, phase=transfer.phase.value)
    transfer = unless_expired(rows, transfer, args.get("now_s", 0.0))
    if transfer.phase is Phase.REFUSED:
        return transfer.to_data()
    if args["allow"]:
        # The answer is the master's word on the request as things stand now.
        transfer = transfer.changed(
            phase=Phase.PERMITTED, permit_rule_rev=record.rule_rev, permit_owner_rev=record.owner_rev
        )
    else:
        transfer = transfer.changed(phase=Phase.REFUSED, reason=Reason.DENIED.value)
    _save_transfer(rows, transfer)
    return transfer.to_data()


def _answered_alike(transfer: TransferRecord, *, allow: bool) -> bool:
    """Whether the master gave this answer before; it repeats it when it did not hear what became of it."""
    if not transfer.ask_expires_at_s:
        return False
    denied = (transfer.phase, transfer.reason) == (Phase.REFUSED, Reason.DENIED)
    return transfer.phase is Phase.PERMITTED if allow else denied


def transfer_commit(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The commit point: (authority A, epoch e) → (authority B, epoch e + 1), or a recorded refusal.

    Passes under a delegation that the log has not seen yet are applied first (`passes`, verified by the caller).
    """
    existing = _transfer(rows, args["transfer_id"])
    if existing is not None and existing.phase in (Phase.COMMITTED, Phase.DONE, Phase.REFUSED):
        if (existing.entity, existing.target) != (args["entity"], args["target"]):
            raise Refused(Reason.TRANSFER_ID_TAKEN, f"transfer {existing.id} is one of {existing.entity}")
        return _answer(rows, existing)
    record = _apply_passes(rows, _entity(rows, args["entity"]), args.get("passes", ()))
    if (record.authority, record.fence) != (args["source"], Fence(args["epoch"], args["sub"])):
        # Whoever asks is not the authority (any more): there is nothing of its own to resume, so no epoch to raise.
        return _refuse(rows, record, existing, args, Reason.NOT_HOLDER)
    reason = _why_not(rows, record, existing, args)
    if reason is not None:
        fence = record.fence.raised()
        record = record.changed(epoch=fence.epoch, sub=fence.sub, delegation=())
        _save_entity(rows, record)
        return _refuse(rows, record, existing, args, reason)
    fence = record.fence.raised()
    changes: dict[str, Any] = {"authority": args["target"], "epoch": fence.epoch, "sub": fence.sub, "delegation": ()}
    if existing is not None and existing.requester and existing.requester != record.owner:
        changes |= {"owner": existing.requester, "owner_rev": record.owner_rev + 1}
    _save_entity(rows, record.changed(**changes))
    transfer = (existing or _begin(args)).changed(
        phase=Phase.COMMITTED,
        source=args["source"],
        epoch=fence.epoch,
        sub=fence.sub,
        tick=args["tick"],
        state_hash=args["state_hash"],
    )
    _save_transfer(rows, transfer)
    return _answer(rows, transfer)


def transfer_refuse(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Give a transfer up for `reason` (the target's home would not have it); same arguments as the commit."""
    existing = _transfer(rows, args["transfer_id"])
    if existing is not None and existing.phase in (Phase.COMMITTED, Phase.DONE, Phase.REFUSED):
        return _answer(rows, existing)
    record = _apply_passes(rows, _entity(rows, args["entity"]), args.get("passes", ()))
    if (record.authority, record.fence) != (args["source"], Fence(args["epoch"], args["sub"])):
        return _refuse(rows, record, existing, args, Reason.NOT_HOLDER)
    fence = record.fence.raised()
    record = record.changed(epoch=fence.epoch, sub=fence.sub, delegation=())
    _save_entity(rows, record)
    return _refuse(rows, record, existing, args, Reason(args["reason"]))


def transfer_passed(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Direct passes happened under a delegation (case 3): the log learns of them behind, in order, each once."""
    record = _apply_passes(rows, _entity(rows, args["entity"]), args["passes"])
    return record.to_data()


def transfer_report(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The old authority has retired: keep its report (hops, marks, counters) with the transfer."""
    transfer = _known_transfer(rows, args["transfer_id"])
    if transfer.phase not in (Phase.COMMITTED, Phase.DONE):
        raise Refused(Reason.TOO_LATE, f"transfer {transfer.id} is {transfer.phase}", phase=transfer.phase.value)
    if transfer.source != args["source"]:
        raise Refused(Reason.NOT_HOLDER, f"{args['source']} did not hand {transfer.entity} over")
    if transfer.phase is Phase.COMMITTED:
        transfer = transfer.changed(phase=Phase.DONE, report=args["report"])
        _save_transfer(rows, transfer)
    return transfer.to_data()


def _begin(args: Mapping[str, Any]) -> TransferRecord:
    return TransferRecord(
        id=args["transfer_id"],
        entity=args["entity"],
        target=args["target"],
        source=args["source"],
        phase=Phase.PERMITTED,
        transport=args.get("transport", "rest"),
    )


def _why_not(
    rows: Rows, record: EntityRecord, existing: TransferRecord | None, args: Mapping[str, Any]
) -> Reason | None:
    """Why the holder's request to hand over must be refused, or None."""
    if args["target"] == record.authority:
        return Reason.SAME_SERVER
    if args.get("check_target", True) and rows.get_or(("servers", args["target"]), None) is None:
        return Reason.UNKNOWN_TARGET
    if existing is None or not existing.requester:
        return None
    if existing.phase is not Phase.PERMITTED:
        return Reason.DENIED
    if existing.permit_rule_rev != record.rule_rev:
        return Reason.RULE_CHANGED
    if existing.permit_owner_rev != record.owner_rev:
        return Reason.OWNER_CHANGED
    return None


def _refuse(
    rows: Rows, record: EntityRecord, existing: TransferRecord | None, args: Mapping[str, Any], reason: Reason
) -> Any:
    # The refusal answers with the fence of that moment, so that a repetition resumes at the same epoch.
    transfer = (existing or _begin(args)).changed(
        phase=Phase.REFUSED, reason=reason.value, source=args["source"], epoch=record.epoch, sub=record.sub
    )
    _save_transfer(rows, transfer)
    return _answer(rows, transfer)


def _answer(rows: Rows, transfer: TransferRecord) -> dict[str, Any]:
    refused = transfer.phase is Phase.REFUSED
    record = _entity(rows, transfer.entity)
    return {
        "outcome": (Outcome.REFUSED if refused else Outcome.COMMITTED).value,
        "transfer": transfer.to_data(),
        "authority": record.authority,
        "epoch": record.epoch,
        "sub": record.sub,
    }


def _apply_passes(rows: Rows, record: EntityRecord, passes: Any) -> EntityRecord:
    """Bring the record up to date with direct passes; those it knows already are skipped, a gap is refused."""
    for item in passes:
        if item["epoch"] != record.epoch or item["sub"] <= record.sub:
            continue
        expected = record.fence.passed()
        if item["sub"] != expected.sub or item["source"] != record.authority:
            raise Refused(
                Reason.NOT_HOLDER,
                f"pass {item['sub']} of {record.id} by {item['source']} does not follow {record.fence}"
                f" of {record.authority}",
            )
        if item["source"] not in record.delegation or item["target"] not in record.delegation:
            raise Refused(
                Reason.NO_DELEGATION, f"{record.id} is not delegated to {item['source']} and {item['target']}"
            )
        record = record.changed(authority=item["target"], sub=item["sub"])
        transfer = (_transfer(rows, item["transfer_id"]) or _begin(item | {"entity": record.id})).changed(
            phase=Phase.COMMITTED,
            direct=True,
            source=item["source"],
            epoch=record.epoch,
            sub=record.sub,
            tick=item["tick"],
            state_hash=item["state_hash"],
        )
        _save_transfer(rows, transfer)
    _save_entity(rows, record)
    return record


# --- directory ----------------------------------------------------------------------------------------------------


def directory_register(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Pin a server's or player's public keys to its name; the same keys again only update its addresses.

    Other keys are refused: a name belongs to whoever registered it first.
    """
    row = DirectoryRow.from_data(args["row"])
    table, limit = ("players", MAX_PLAYERS) if row.role is Role.PLAYER else ("servers", MAX_SERVERS)
    existing = rows.get_or((table, row.name), None)
    if rows.get_or(("servers" if table == "players" else "players", row.name), None) is not None:
        # One name, one key: a signature by a name must never be that of two.
        raise Refused(Reason.KEY_CONFLICT, f"{row.name} is registered as something else", name=row.name)
    if existing is None:
        if rows.count((table,)) >= limit:
            raise Refused(Reason.FULL, f"the directory holds {limit} {table} already", limit=limit)
    else:
        old = DirectoryRow.from_data(existing)
        if (old.keys, old.role) != (row.keys, row.role):
            raise Refused(Reason.KEY_CONFLICT, f"other keys are registered for {row.name}", name=row.name)
        addresses = (row.rest_url, row.link_host, row.link_port)
        moved = addresses != (old.rest_url, old.link_host, old.link_port)
        row = row.changed(revision=old.revision + 1 if moved else old.revision)
    rows.put((table, row.name), row.to_data())
    return row.to_data()


def _server_row(rows: Rows, name: str) -> DirectoryRow:
    data = rows.get_or(("servers", name), None)
    if data is None or data["role"] != Role.SIMSERVER:
        raise Refused(Reason.UNKNOWN_TARGET, f"no simulation server {name} is registered here", server=name)
    return DirectoryRow.from_data(data)


PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "directory.register": directory_register,
    "entity.change_rights": entity_change_rights,
    "entity.create": entity_create,
    "entity.delegate": entity_delegate,
    "entity.discard": entity_discard,
    "transfer.answer": transfer_answer,
    "transfer.commit": transfer_commit,
    "transfer.expire": transfer_expire,
    "transfer.passed": transfer_passed,
    "transfer.propose": transfer_propose,
    "transfer.refuse": transfer_refuse,
    "transfer.report": transfer_report,
}
