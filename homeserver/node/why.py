"""Why an entity does not run: one cause, in words, with the remedy; from what is known, without looking anything up.

The first row of `explain` that fits is the cause, so what stands above another one is what has to be seen to first. A
server that says that it simulates the entity is believed: then it runs, whatever its homeservers cannot do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from batonpass.authority.model.records import EntityRecord, RecoveryRow, TransferRecord
from batonpass.authority.model.standing import Standing
from batonpass.authority.wire.standing import At, StandingRow

__all__ = ["Cause", "Facts", "Why", "explain"]


class Cause(StrEnum):
    """What keeps an entity from running. The codes are stable."""

    RUNS = "runs"
    FROZEN = "frozen"
    ON_ITS_WAY = "on_its_way"
    QUARANTINED = "quarantined"
    UNTAKEN = "untaken"
    SUSPENDED = "suspended"
    UNLEASED = "unleased"
    UNREACHABLE = "unreachable"
    NOT_THERE = "not_there"
    RECOVERING = "recovering"
    WAITS_FOR_DISK = "waits_for_disk"
    WAITS_FOR_RETURN = "waits_for_return"
    WAITS_FOR_COPIES = "waits_for_copies"
    LOST = "lost"
    LOG_WENT_BACK = "log_went_back"
    NO_MAJORITY = "no_majority"
    DELETED = "deleted"
    NOT_KNOWN = "not_known"


@dataclass(frozen=True, slots=True)
class Facts:
    """What one homeserver knows of an entity.

    `no_majority` says why this member cannot decide anything, `log_went_back` why its log is not believed; empty if
    that is not so. `has_grave`: there was such an entity, and it was deleted. `is_over`: the lease of its authority is
    over. `row` is the word of its authority and `source_row` that of the server that is handing it over by `came_by`.
    It is None if that server did not answer, or there was nothing to ask. `waits_for` are servers that may have later
    copies of it.
    """

    entity: str
    record: EntityRecord | None
    no_majority: str = ""
    log_went_back: str = ""
    has_grave: bool = False
    is_over: bool = False
    row: StandingRow | None = None
    came_by: TransferRecord | None = None
    source_row: StandingRow | None = None
    recovery: RecoveryRow | None = None
    waits_for: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Why:
    """The cause in one line, and what to do about it in another; which transfer it is about, and since when."""

    cause: Cause
    text: str
    remedy: str
    transfer_id: str = ""
    phase: str = ""
    since_ms: int | None = None


_NOTHING: Final = "nothing is to be done"
_WANTS: Final = "see to what is named there, or have `destination` of its world name another server"
_MAJORITY: Final = "start the homeservers that are down, or look at the network between them (baton cluster status)"
_RESTORE: Final = (
    "put the newer log back, or if it is gone for good: baton cluster accept-loss"
    " (docs/reference/operations.md, Restoring homeservers)"
)


def explain(facts: Facts) -> Why:
    """What keeps this entity from running, and what to do."""
    record, row = facts.record, facts.row
    if row is not None and row.at is At.RUNS and record is not None:
        return _runs(facts, record, row)
    if facts.log_went_back:
        return Why(Cause.LOG_WENT_BACK, f"nothing is decided: {facts.log_went_back}", _RESTORE)
    if record is None:
        return _no_record(facts)
    if record.standing is not Standing.SIMULATED and not facts.no_majority:
        return _no_server_has_it(facts, record)
    if row is None or row.at in (At.UNLEASED, At.FROZEN, At.NOT_HERE):
        if facts.no_majority:
            # Whatever it waits for, no homeserver can decide that.
            return Why(Cause.NO_MAJORITY, facts.no_majority, _MAJORITY)
        return _none_resumes_it(facts, record, row)
    return _not_running(record, row)


def _runs(facts: Facts, record: EntityRecord, row: StandingRow) -> Why:
    text, remedy = f"{record.authority} simulates it", _NOTHING
    if row.transfer_id:
        text += f"; transfer {row.transfer_id} waits: {row.why}"
    elif row.why:
        text, remedy = f"{text}; {row.why}", _WANTS
    if facts.log_went_back:
        return Why(Cause.RUNS, f"{text}; but nothing is decided: {facts.log_went_back}", _RESTORE)
    if facts.no_majority:
        return Why(Cause.RUNS, f"{text}, until its lease is over: {facts.no_majority}", _MAJORITY)
    since_ms = row.since_ms if row.why else None
    return Why(Cause.RUNS, text, remedy, row.transfer_id, row.phase, since_ms)


def _no_record(facts: Facts) -> Why:
    if facts.no_majority:
        text = f"this homeserver does not know it, and cannot ask the others: {facts.no_majority}"
        return Why(Cause.NO_MAJORITY, text, _MAJORITY)
    if facts.has_grave:
        text = "it was deleted, by its master, an operator, or the policy for when its owner leaves"
        remedy = "create another one, if it is wanted (POST /v1/entities): its id is not given again"
        return Why(Cause.DELETED, text, remedy)
    text = f"there is no entity {facts.entity} in this instance, and none is remembered that was deleted"
    return Why(Cause.NOT_KNOWN, text, "look at the spelling, and at whether its creation was answered (201)")


def _no_server_has_it(facts: Facts, record: EntityRecord) -> Why:
    recovery = facts.recovery
    if recovery is None:
        text = "the server that had it died, and no other one has taken it over yet"
        return Why(Cause.RECOVERING, text, "wait some seconds; then look at baton recoveries")
    last = recovery.last
    removal = f"start {last}, or if it never comes back: baton server remove {last}"
    died = f"its server {last} died"
    if recovery.target:
        target, tick = recovery.target, recovery.tick
        text = f"{died}; {target} was told to simulate it from tick {tick} on, and has not said yet that it does"
        return Why(Cause.RECOVERING, text, f"wait some seconds; then look at {target} (baton observe, its log)")
    if record.standing is Standing.LOST:
        # Whatever its policy is: all that could have it have answered.
        text = f"its server {last} died or gave it up, and no server that is alive has a copy of it"
        remedy = f"if {last} is not running: {removal}; else delete it: POST /v1/entities/{record.id}/delete"
        return Why(Cause.LOST, text, remedy)
    if recovery.held:
        text = f"{died}, and by its policy (orphans = freeze) it waits for the return of that server"
        return Why(Cause.WAITS_FOR_RETURN, text, f"{removal}; or set another policy (PATCH /v1/entities/{record.id})")
    if recovery.disk:
        text = f"{died} as the last one alive, so something that counts may be on its disk alone"
        return Why(Cause.WAITS_FOR_DISK, text, removal)
    if facts.waits_for:
        servers = ", ".join(facts.waits_for)
        text = f"{died}; the copies that were found are older than what {servers} may have"
        return Why(Cause.WAITS_FOR_COPIES, text, f"start {servers}, or remove those that never come back")
    abroad = sorted({*recovery.abroad, *recovery.abroad_too})
    text = f"{died}; copies of it are looked for" + (f", here and in {', '.join(abroad)}" if abroad else "")
    remedy = "wait some seconds; then look at baton recoveries"
    return Why(Cause.RECOVERING, text, remedy + (f", and whether {', '.join(abroad)} can be reached" if abroad else ""))


def _none_resumes_it(facts: Facts, record: EntityRecord, row: StandingRow | None) -> Why:
    server = record.authority
    if facts.is_over:
        text = f"the lease of its server {server} is over: it is about to be taken over from a copy"
        return Why(Cause.UNLEASED, text, f"wait some seconds; then look at baton recoveries, and start {server} again")
    if row is None:
        text = f"its server {server} does not answer its home instance"
        remedy = f"look at whether {server} runs, and at the network to it; if its lease runs out it is taken over"
        return Why(Cause.UNREACHABLE, text, remedy)
    if row.at is At.UNLEASED:
        text = f"the lease of its server {server} ran out: {row.why}"
        remedy = f"look at the way from {server} to its homeservers, and at them (baton cluster status)"
        return Why(Cause.UNLEASED, text, remedy)
    if row.at is At.FROZEN:
        text = f"{server} hands it over, phase {row.phase}: {row.why}"
        remedy = "it waits for the server that is named there: see to that server, or to the way to it"
        return Why(Cause.FROZEN, text, remedy, row.transfer_id, row.phase, row.since_ms)
    return _not_there(facts, record, row)


def _not_there(facts: Facts, record: EntityRecord, row: StandingRow) -> Why:
    server, came_by, source_row = record.authority, facts.came_by, facts.source_row
    if row.moved_to:
        text = f"{server} has passed it on to {row.moved_to}, of which the log has not heard yet"
        return Why(Cause.ON_ITS_WAY, text, f"ask again in a second; then look at {row.moved_to}")
    if came_by is None:
        text = f"{server} has it by the log and does not simulate it: it was started anew, or the spawn has not come"
        remedy = f"wait some seconds; then repeat the request that created it, or read the log of {server}"
        return Why(Cause.NOT_THERE, text, remedy)
    if source_row is None:
        said = f"{came_by.source}, which has its state, does not answer"
    else:
        said = source_row.why or f"{came_by.source} says: {source_row.at}"
    text = f"it was given to {server}, where its state has not come from {came_by.source}: {said}"
    remedy = f"see to {came_by.source} and to the way from there to {server}"
    since_ms = source_row.since_ms if source_row is not None and source_row.transfer_id == came_by.id else None
    return Why(Cause.ON_ITS_WAY, text, remedy, came_by.id, came_by.phase.value, since_ms)


def _not_running(record: EntityRecord, row: StandingRow) -> Why:
    server = record.authority
    if row.at is At.QUARANTINED:
        remedy = (
            f"mend the world, then release it: POST /v1/local/entities/{record.id}/release at {server} (operator),"
            f" or POST /v1/entities/{record.id}/release (its master)"
        )
        return Why(Cause.QUARANTINED, f"its world failed on it at {server}: {row.why}", remedy)
    if row.at is At.UNTAKEN:
        text = f"the world of {server} does not take it: {row.why}"
        remedy = "start a server whose world takes it: it is passed on to that (docs/reference/failover.md, Takeover)"
        return Why(Cause.UNTAKEN, text, remedy)
    text = "its owner left, and by its policy (on_leave = freeze) it waits until it has another"
    remedy = f"have a player own it (PATCH /v1/entities/{record.id}), or its master release it"
    return Why(Cause.SUSPENDED, text, remedy)
