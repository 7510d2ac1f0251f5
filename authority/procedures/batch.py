"""Many steps of hand-overs by one command of the log, with a verdict for each.

What leaves together is asked for together, and a command costs every member about as much as what it does: its place in
the log, its answer, which is remembered, and the rows that all of its steps look at. Each step counts, or is refused,
as if it had been a command of its own, in this order (`authority.model.drafts`).

A verdict is `{"answer": ...}`, or `{"refused": [reason, sentence, details]}`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.drafts import Draft
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.commit import TRANSFER_PROCEDURES

__all__ = ["BULK_PROCEDURES", "MAX_STEPS", "answer_of"]

MAX_STEPS: Final = 128
"""With some 0.2 ms for each, no member is held up for long."""


def transfer_each(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Run each of `steps`, which are pairs of a procedure about transfers and its arguments: their verdicts."""
    steps = args["steps"]
    if len(steps) > MAX_STEPS:
        raise Refused(Reason.FULL, f"{len(steps)} steps are more than {MAX_STEPS}", limit=MAX_STEPS)
    draft = Draft(rows)
    verdicts = [_verdict(draft, name, about) for name, about in steps]
    draft.write()
    return verdicts


def _verdict(draft: Draft, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": draft.run(TRANSFER_PROCEDURES[name], args)}
    except Refused as refused:
        return {"refused": [refused.reason.value, refused.sentence, refused.details]}


def answer_of(verdict: Mapping[str, Any]) -> Any:
    """What a step came to. Raises `Refused`."""
    if "refused" not in verdict:
        return verdict["answer"]
    reason, sentence, details = verdict["refused"]
    raise Refused(Reason(reason), sentence, **details)


BULK_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {"transfer.each": transfer_each}
