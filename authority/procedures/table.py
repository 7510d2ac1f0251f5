"""Every change of the replicated rows, as deterministic procedures over one tree transaction, by name.

Homeservers submit them through the log; each runs on every member in the same order. A procedure that raises `Refused`
leaves the tree untouched.

Many steps of hand-overs, or of creations, by one command of the log, with a verdict for each.

What leaves or begins together is asked for together. A command costs every member about as much as what it does: its
place in the log, its remembered answer, and the rows that all of its steps look at. Each step counts, or is refused, as
if it had been a command of its own, in this order (`authority.model.rows`).

A verdict is `{"answer": ...}`, or `{"refused": [reason, sentence, details]}`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.rows import Draft, Rows
from batonpass.authority.procedures.commit import TRANSFER_PROCEDURES
from batonpass.authority.procedures.delete import DELETION_PROCEDURES
from batonpass.authority.procedures.directory import DIRECTORY_PROCEDURES
from batonpass.authority.procedures.drain import DRAIN_PROCEDURES, PLACEMENT_PROCEDURES
from batonpass.authority.procedures.enrolment import ENROLMENT_PROCEDURES
from batonpass.authority.procedures.entity import ENTITY_PROCEDURES
from batonpass.authority.procedures.failover import RECOVERY_PROCEDURES
from batonpass.authority.procedures.group_request import GROUP_PROCEDURES
from batonpass.authority.procedures.hierarchy import HIERARCHY_PROCEDURES
from batonpass.authority.procedures.lease import LEASE_PROCEDURES, SOLE_PROCEDURES
from batonpass.authority.procedures.log_rollback import ALARM_PROCEDURES, HISTORY_PROCEDURES
from batonpass.authority.procedures.owner_absence import ABSENCE_PROCEDURES
from batonpass.authority.procedures.regions import REGION_PROCEDURES
from batonpass.authority.procedures.request import REQUEST_PROCEDURES
from batonpass.authority.procedures.rights import RIGHTS_PROCEDURES
from batonpass.authority.procedures.set_rights import RIGHTS_CHANGES

__all__ = ["BULK_PROCEDURES", "MACHINE_VERSION", "MAX_STEPS", "PROCEDURES", "answer_of"]

MAX_STEPS: Final = 128
"""With some 0.2 ms for each, no member is held up for long."""


_Procedure = Callable[[Rows, Mapping[str, Any]], Any]

_BIRTHS: Final = {name: ENTITY_PROCEDURES[name] for name in ("entity.create", "entity.confirm", "entity.discard")}


def transfer_each(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Run each of `steps`, which are pairs of a procedure about transfers and its arguments: their verdicts."""
    return _each(rows, args["steps"], TRANSFER_PROCEDURES)


def entity_each(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Run each of `steps`, by which entities are created, confirmed or taken back, as `transfer_each` does."""
    return _each(rows, args["steps"], _BIRTHS)


def _each(rows: Rows, steps: Any, procedures: Mapping[str, _Procedure]) -> list[dict[str, Any]]:
    if len(steps) > MAX_STEPS:
        raise Refused(Reason.FULL, f"{len(steps)} steps are more than {MAX_STEPS}", limit=MAX_STEPS)
    draft = Draft(rows)
    verdicts = [_verdict(draft, procedures[name], about) for name, about in steps]
    draft.write()
    return verdicts


def _verdict(draft: Draft, procedure: _Procedure, args: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": draft.run(procedure, args)}
    except Refused as refused:
        return {"refused": [refused.reason.value, refused.sentence, refused.details]}


def answer_of(verdict: Mapping[str, Any]) -> Any:
    """What a step came to. Raises `Refused`."""
    if "refused" not in verdict:
        return verdict["answer"]
    reason, sentence, details = verdict["refused"]
    raise Refused(Reason(reason), sentence, **details)


BULK_PROCEDURES: Final[Mapping[str, _Procedure]] = {"transfer.each": transfer_each, "entity.each": entity_each}


MACHINE_VERSION: Final = 14
"""Raise it with every change by which a procedure makes anything else of the same command, also between releases.

Homeservers of different versions do not connect to each other, because their states would differ and no operator be
told. `tests/authority/procedures/test_machine_version.py` notices when a source of the procedures was changed.
"""

PROCEDURES: Final[Mapping[str, _Procedure]] = {
    **ABSENCE_PROCEDURES,
    **ALARM_PROCEDURES,
    **BULK_PROCEDURES,
    **RIGHTS_PROCEDURES,
    **DELETION_PROCEDURES,
    **DIRECTORY_PROCEDURES,
    **DRAIN_PROCEDURES,
    **ENROLMENT_PROCEDURES,
    **ENTITY_PROCEDURES,
    **GROUP_PROCEDURES,
    **HIERARCHY_PROCEDURES,
    **HISTORY_PROCEDURES,
    **LEASE_PROCEDURES,
    **PLACEMENT_PROCEDURES,
    **RECOVERY_PROCEDURES,
    **REGION_PROCEDURES,
    **REQUEST_PROCEDURES,
    **RIGHTS_CHANGES,
    **SOLE_PROCEDURES,
    **TRANSFER_PROCEDURES,
}
