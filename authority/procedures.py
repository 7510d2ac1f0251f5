"""Every change of the replicated rows, as deterministic procedures over one tree transaction.

Homeservers submit them by name through the log; each runs on every member in the same order. A procedure that raises
`Refused` leaves the tree untouched. A *refused transfer*, in contrast, is itself recorded: the answer to a hand-over
request must stay the same however often, and however late, the request is repeated (FAILURES rows 2, 16, 23).

A refusal after the old authority froze raises the epoch and leaves authority where it was. The old authority resumes
under the new epoch, so no duplicate of the refused request that is still under way can ever succeed.

A request of somebody who is not the holder at the fence that it names changes nothing and is not recorded: fences never
come back, so the answer stays the same by itself, and nobody can use up a transfer's id, or a place in the table, that
is another's.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from authority.asks import ASK_LIFETIME_S, ask, unless_expired
from authority.epoch import Fence
from authority.errors import Reason, Refused
from authority.pacing import spent
from authority.records import DirectoryRow, EntityRecord, Outcome, Phase, Role, TransferRecord
from authority.rights import RIGHTS_PROCEDURES, find_entity, save_entity, with_owner
from authority.rules import Decision, Rule, Want, decide, is_locked_against

__all__ = ["MAX_PLAYERS", "MAX_SERVERS", "MAX_TRANSFERS", "PROCEDURES", "Rows"]

# Finished transfers are kept so that late repetitions get the same answer. Sealed requests expire after a minute, so
# this covers 160 transfers a second; older ones are forgotten first. Beyond this number stay only those that somebody
# still needs (`_still_needed`), at most one for each entity.
MAX_TRANSFERS: Final = 10_000
MAX_SERVERS: Final = 10_000
MAX_PLAYERS: Final = 1_000_000
MIN_DELEGATION: Final = 2
MAX_DELEGATION: Final = 16
_QUEUE: Final = ("transfer_order",)
# How many places at the head of the queue one new transfer looks at for rows to forget.
_QUEUE_LOOKS: Final = 4
_DECIDED: Final = (Phase.COMMITTED, Phase.DONE, Phase.REFUSED)


class Rows(Protocol):
    """What a procedure may do to the tree; paths are tuples of names."""

    def get_or(self, path: tuple[str, ...], default: Any) -> Any:
        """The data at `path`, or `default`."""

    def put(self, path: tuple[str, ...], data: Any) -> Any:
        """Set the data at `path`, making parents on the way."""

    def delete(self, path: tuple[str, ...]) -> Any:
        """Remove `path` and everything below it."""

    def count_children(self, path: tuple[str, ...]) -> int:
        """How many children `path` has; 0 when it does not exist."""


# --- rows ---------------------------------------------------------------------------------------------------------


def _transfer(rows: Rows, transfer_id: str) -> TransferRecord | None:
    data = rows.get_or(("transfers", transfer_id), None)
    return None if data is None else TransferRecord.from_data(data)


def _known_transfer(rows: Rows, transfer_id: str) -> TransferRecord:
    transfer = _transfer(rows, transfer_id)
    if transfer is None:
        raise Refused(Reason.NOT_FOUND, f"there is no transfer {transfer_id}", transfer=transfer_id)
    return transfer


def _save_transfer(rows: Rows, record: TransferRecord) -> None:
    """Write the row; a new one joins the queue of those to be forgotten, and pushes the oldest out when it is full."""
    path = ("transfers", record.id)
    is_new = rows.get_or(path, None) is None
    rows.put(path, record.to_data())
    if is_new:
        head, tail = rows.get_or(_QUEUE, [0, 0])
        rows.put((*_QUEUE, str(tail)), record.id)
        rows.put(_QUEUE, _forget_old_transfers(rows, head, tail + 1))


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
    transfer = _transfer(rows, transfer_id)
    if transfer is None or transfer.phase is not Phase.COMMITTED:
        return False
    data = rows.get_or(("entities", transfer.entity), None)
    return data is not None and EntityRecord.from_data(data).fence == transfer.fence


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
        _check_simserver(rows, server)
    record = EntityRecord(
        id=entity_id,
        kind=args["kind"],
        master=spawner,
        owner=spawner,
        rule=Rule(args.get("rule", Rule.ASK)),
        authority=server,
    )
    save_entity(rows, record)
    return record.to_data()


def entity_discard(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Take back an entity whose first server would not spawn it; once it has moved on it is nobody's to discard."""
    record = find_entity(rows, args["entity"])
    if (record.authority, record.epoch, record.sub) != (args["server"], 1, 0):
        raise Refused(Reason.TOO_LATE, f"{record.id} has moved on to {record.authority}", epoch=record.epoch)
    rows.delete(("entities", record.id))
    for table in ("asks", "paces"):
        if rows.get_or((table, record.id), None) is not None:
            rows.delete((table, record.id))
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
        _check_simserver(rows, server)
    if group == record.delegation:
        return record.to_data()
    if record.delegation:
        raise Refused(Reason.NO_DELEGATION, f"{record.id} is delegated already; hand it over through its home first")
    if record.authority not in group:
        raise Refused(
            Reason.NOT_HOLDER, f"{record.authority} has authority over {record.id} and is not in the group", group=group
        )
    record = record.changed(delegation=group)
    save_entity(rows, record)
    return record.to_data()


# --- transfers ----------------------------------------------------------------------------------------------------


def transfer_propose(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Somebody wants an entity to move to `target`: apply the rule and record what became of it.

    Without a requester it is a move for the system's own reasons (placement, drain), which takes ownership from nobody
    and so needs nobody's leave.
    """
    record = find_entity(rows, args["entity"])
    stay, requester, want = bool(args.get("stay")), args.get("requester", ""), Want(args.get("want", Want.BY_RULE))
    existing = _transfer(rows, args["transfer_id"])
    if existing is not None:
        about = (existing.entity, existing.stay, existing.requester if existing.stay else existing.target)
        if about != (record.id, stay, requester if stay else args["target"]):
            text = f"transfer {existing.id} is one of {existing.entity} to {existing.target}"
            raise Refused(Reason.TRANSFER_ID_TAKEN, text, transfer=existing.id)
        return unless_expired(rows, existing, args.get("now_s", 0.0)).to_data()
    if not stay and args["target"] == record.authority:
        text = f"{record.authority} has authority over {record.id} already"
        raise Refused(Reason.SAME_SERVER, text, server=record.authority)
    _check_owner_is_the_one_seen(record, args.get("owner_rev"))
    decision = decide(record, requester, want) if requester else Decision.GRANTED
    if decision not in (Decision.GRANTED, Decision.ASKED):
        text = f"{record.id} is not to be had by {requester} ({want}): {decision} (its rule is {record.rule})"
        raise Refused(Reason(decision.value), text, entity=record.id, requester=requester)
    path = ("paces", record.id)
    paces = spent(rows.get_or(path, {}), requester, args.get("now_s", 0.0)) if requester else None
    transfer = TransferRecord(
        id=args["transfer_id"],
        entity=record.id,
        target=record.authority if stay else args["target"],
        source=record.authority,
        want=want,
        stay=stay,
        phase=Phase.PERMITTED if decision is Decision.GRANTED else Phase.ASKED,
        requester=requester,
        mode=args.get("mode", "eager"),
        direct=bool(args.get("direct", False)),
        transport=args.get("transport", "rest"),
        permit_rule_rev=record.rule_rev,
        permit_owner_rev=record.owner_rev,
    )
    if decision is Decision.ASKED:
        transfer = ask(rows, transfer, args.get("now_s", 0.0), args.get("ask_timeout_s", ASK_LIFETIME_S))
    elif stay:
        transfer = _granted_where_it_is(rows, record, transfer)
    if paces is not None:
        rows.put(path, paces)
    _save_transfer(rows, transfer)
    return transfer.to_data()


def _check_owner_is_the_one_seen(record: EntityRecord, owner_rev: int | None) -> None:
    """Of two who ask for what they saw somebody own, the log's first gets it and the other is told who that is."""
    if owner_rev is not None and owner_rev != record.owner_rev:
        text = f"{record.owner or 'nobody'} owns {record.id} since, under revision {record.owner_rev}"
        raise Refused(Reason.OWNER_CHANGED, text, owner=record.owner, owner_rev=record.owner_rev)


def _granted_where_it_is(rows: Rows, record: EntityRecord, transfer: TransferRecord) -> TransferRecord:
    """Ownership alone was asked for, and is given: in this step of the log, without anything moving."""
    record = with_owner(record, transfer.requester)
    save_entity(rows, record)
    return transfer.changed(phase=Phase.DONE, target=record.authority, owner=record.owner, owner_rev=record.owner_rev)


def transfer_cancel(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The requester, or the master, takes back what is not decided yet; it is refused from then on."""
    transfer = _known_transfer(rows, args["transfer_id"])
    record = find_entity(rows, transfer.entity)
    if args["by"] not in (transfer.requester, record.master):
        text = f"{transfer.id} is a request of {transfer.requester or 'the system'}, not of {args['by']}"
        raise Refused(Reason.NOT_MASTER, text, by=args["by"])
    if (transfer.phase, transfer.reason) == (Phase.REFUSED, Reason.CANCELLED):
        return transfer.to_data()
    if transfer.phase in _DECIDED:
        raise Refused(Reason.TOO_LATE, f"transfer {transfer.id} is {transfer.phase} already", phase=transfer.phase)
    transfer = transfer.changed(phase=Phase.REFUSED, reason=Reason.CANCELLED.value)
    _save_transfer(rows, transfer)
    return transfer.to_data()


def transfer_expire(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Refuse a transfer whose master did not answer in time; any other stays as it is."""
    transfer = _known_transfer(rows, args["transfer_id"])
    return unless_expired(rows, transfer, args["now_s"]).to_data()


def transfer_answer(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The master answers what it was asked; an answer that comes too late finds the transfer refused."""
    transfer = _known_transfer(rows, args["transfer_id"])
    record = find_entity(rows, transfer.entity)
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
    if args["allow"] and is_locked_against(record, transfer.requester):
        text = f"{record.id} is locked by {', '.join(sorted(record.locks))}: unlock it first, or force the request"
        raise Refused(Reason.LOCKED, text, entity=record.id)
    if args["allow"] and transfer.stay:
        transfer = _granted_where_it_is(rows, record, transfer)
    elif args["allow"]:
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
    allowed = Phase.DONE if transfer.stay else Phase.PERMITTED
    return transfer.phase is allowed if allow else denied


def transfer_commit(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The commit point: (authority A, epoch e) → (authority B, epoch e + 1), or a recorded refusal.

    Passes under a delegation that the log has not seen yet are applied first (`passes`, verified by the caller).
    """
    return _decide(rows, args, None)


def transfer_refuse(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Give a transfer up for `reason` (the target's home would not have it); same arguments as the commit.

    The reason comes from another instance; a code that is not known here is recorded as `denied`.
    """
    known = args["reason"] in {reason.value for reason in Reason}
    return _decide(rows, args, Reason(args["reason"]) if known else Reason.DENIED)


def _decide(rows: Rows, args: Mapping[str, Any], refusal: Reason | None) -> Any:
    """Answer a request to hand over: as before, if it is a repetition; else commit it, or refuse it."""
    record = _apply_passes(rows, find_entity(rows, args["entity"]), args.get("passes", ()))
    existing = _transfer(rows, args["transfer_id"])
    asked_at = Fence(args["epoch"], args["sub"])
    if existing is not None and _is_repeated(existing, args, asked_at):
        return _answer(rows, existing)
    if (record.authority, record.fence) != (args["source"], asked_at):
        # Whoever asks is not the authority (any more): there is nothing of its own to resume, so no epoch to raise.
        return _answer(rows, _refused(_begin(args), record, args, Reason.NOT_HOLDER))
    reason = refusal or _why_not(rows, record, existing, args)
    fence = record.fence.raised()
    record = record.changed(epoch=fence.epoch, sub=fence.sub, delegation=())
    if reason is not None:
        save_entity(rows, record)
        mine = existing is None or _is_open_for(existing, args)
        transfer = _refused((existing if mine else None) or _begin(args), record, args, reason)
        if mine:
            _save_transfer(rows, transfer)
        return _answer(rows, transfer)
    record = _with_requester_as_owner(record.changed(authority=args["target"]), existing)
    save_entity(rows, record)
    transfer = _committed(existing or _begin(args), record, args)
    _save_transfer(rows, transfer)
    return _answer(rows, transfer)


def transfer_passed(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Direct passes happened under a delegation (case 3): the log learns of them behind, in order, each once."""
    record = _apply_passes(rows, find_entity(rows, args["entity"]), args["passes"])
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


def _is_repeated(existing: TransferRecord, args: Mapping[str, Any], asked_at: Fence) -> bool:
    """Whether this very request, by this server under this fence, was decided before."""
    return (
        existing.phase in _DECIDED
        and (existing.entity, existing.target, existing.source) == (args["entity"], args["target"], args["source"])
        and existing.fence == asked_at.raised()
    )


def _is_open_for(existing: TransferRecord, args: Mapping[str, Any]) -> bool:
    """Whether the recorded transfer is the one that is asked for, and has no result yet."""
    about = (existing.entity, existing.target) == (args["entity"], args["target"])
    return about and not existing.stay and existing.phase not in _DECIDED


def _why_not(
    rows: Rows, record: EntityRecord, existing: TransferRecord | None, args: Mapping[str, Any]
) -> Reason | None:
    """Why the holder's request to hand over must be refused, or None."""
    if existing is not None and not _is_open_for(existing, args):
        # A late order for a transfer that is long over, or the id of another one: nobody permitted this.
        return Reason.TOO_LATE if existing.entity == record.id else Reason.TRANSFER_ID_TAKEN
    if args["target"] == record.authority:
        return Reason.SAME_SERVER
    if args.get("check_target", True) and not _is_simserver(rows, args["target"]):
        return Reason.UNKNOWN_TARGET
    return None if existing is None else _why_not_owner(record, existing)


def _why_not_owner(record: EntityRecord, transfer: TransferRecord) -> Reason | None:
    """Why what the requester was permitted does not hold any more, or None."""
    if not transfer.requester:
        return None
    if transfer.phase is not Phase.PERMITTED:
        return Reason.DENIED
    if transfer.want is Want.FORCED:
        return None if transfer.requester == record.master else Reason.NOT_MASTER
    if is_locked_against(record, transfer.requester):
        return Reason.LOCKED
    if transfer.permit_rule_rev != record.rule_rev:
        return Reason.RULE_CHANGED
    if transfer.permit_owner_rev != record.owner_rev:
        return Reason.OWNER_CHANGED
    return None


def _with_requester_as_owner(record: EntityRecord, transfer: TransferRecord | None) -> EntityRecord:
    """Whoever was permitted to have the entity moved owns it from then on."""
    return record if transfer is None or not transfer.requester else with_owner(record, transfer.requester)


def _committed(transfer: TransferRecord, record: EntityRecord, args: Mapping[str, Any]) -> TransferRecord:
    return transfer.changed(
        phase=Phase.COMMITTED,
        source=args["source"],
        epoch=record.epoch,
        sub=record.sub,
        owner=record.owner,
        owner_rev=record.owner_rev,
        tick=args["tick"],
        state_hash=args["state_hash"],
    )


def _refused(transfer: TransferRecord, record: EntityRecord, args: Mapping[str, Any], reason: Reason) -> TransferRecord:
    return transfer.changed(
        phase=Phase.REFUSED, reason=reason.value, source=args["source"], epoch=record.epoch, sub=record.sub
    )


def _answer(rows: Rows, transfer: TransferRecord) -> dict[str, Any]:
    """What became of the transfer, and who has authority now, which may be later than that."""
    refused = transfer.phase is Phase.REFUSED
    record = find_entity(rows, transfer.entity)
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
        existing = _transfer(rows, item["transfer_id"])
        # Under the id of another transfer, or of one that is over, the pass counts all the same: it has happened.
        mine = existing is None or _is_open_for(existing, item)
        if mine and existing is not None and _why_not_owner(record, existing) is None:
            record = _with_requester_as_owner(record, existing)
        save_entity(rows, record)
        if mine:
            _save_transfer(rows, _committed((existing or _begin(item)).changed(direct=True), record, item))
    return record


# --- directory ----------------------------------------------------------------------------------------------------


def directory_register(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Pin a server's or player's public keys to its name; the same keys again only update its addresses.

    A name belongs to whoever registered it first. Other keys are a later version of them, and `follows` is the version
    from which the caller has seen that they follow (`crypto.continuity`), which must still be the one that stands here;
    anything else is refused. Signatures are not checked here: what the log decides must not depend on a library.
    """
    row = DirectoryRow.from_data(args["row"])
    table, limit = ("players", MAX_PLAYERS) if row.role is Role.PLAYER else ("servers", MAX_SERVERS)
    existing = rows.get_or((table, row.name), None)
    if rows.get_or(("servers" if table == "players" else "players", row.name), None) is not None:
        # One name, one key: a signature by a name must never be that of two.
        raise Refused(Reason.KEY_CONFLICT, f"{row.name} is registered as something else", name=row.name)
    if existing is None:
        if rows.count_children((table,)) >= limit:
            raise Refused(Reason.FULL, f"the directory holds {limit} {table} already", limit=limit)
    else:
        old = DirectoryRow.from_data(existing)
        if (old.keys, old.role) != (row.keys, row.role) and not _follows(old, row, args.get("follows")):
            text = f"other keys are registered for {row.name}: version {old.version}"
            raise Refused(Reason.KEY_CONFLICT, text, name=row.name)
        addresses = (row.rest_url, row.link_host, row.link_port)
        moved = addresses != (old.rest_url, old.link_host, old.link_port)
        changed = moved or old.keys != row.keys
        row = row.changed(revision=old.revision + 1 if changed else old.revision)
        if old.keys == row.keys:
            row = row.changed(version=old.version, statements=old.statements)
    rows.put((table, row.name), row.to_data())
    return row.to_data()


def _follows(old: DirectoryRow, row: DirectoryRow, follows: Any) -> bool:
    return old.role is row.role and follows == old.version and row.version > old.version


def _is_simserver(rows: Rows, name: str) -> bool:
    data = rows.get_or(("servers", name), None)
    return data is not None and DirectoryRow.from_data(data).role is Role.SIMSERVER


def _check_simserver(rows: Rows, name: str) -> None:
    if not _is_simserver(rows, name):
        raise Refused(Reason.UNKNOWN_TARGET, f"no simulation server {name} is registered here", server=name)


PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    **RIGHTS_PROCEDURES,
    "directory.register": directory_register,
    "entity.create": entity_create,
    "entity.delegate": entity_delegate,
    "entity.discard": entity_discard,
    "transfer.answer": transfer_answer,
    "transfer.cancel": transfer_cancel,
    "transfer.commit": transfer_commit,
    "transfer.expire": transfer_expire,
    "transfer.passed": transfer_passed,
    "transfer.propose": transfer_propose,
    "transfer.refuse": transfer_refuse,
    "transfer.report": transfer_report,
}
