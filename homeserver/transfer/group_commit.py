"""How what messages ask for gets into the log: what came together is one command; what came alone is one of its own."""

import logging
from collections.abc import Sequence
from typing import Any, Final

from batonpass.authority.errors import Refused
from batonpass.authority.node.spans import BULK, SILENT, Spans
from batonpass.authority.procedures.table import answer_of
from batonpass.homeserver.log.store import InstanceStore
from batonpass.tree.data.errors import BadData, MalformedCommand
from batonpass.tree.raft.submissions import Aborted

__all__ = ["GroupCommit", "Step"]

_log = logging.getLogger("batonpass.homeserver.transfer.service")


Step = tuple[str, dict[str, Any]]
"""A procedure about transfers, and its arguments."""


class GroupCommit:
    """One member's way to the log for what its messages about transfers ask for."""

    def __init__(self, store: InstanceStore, spans: Spans = SILENT) -> None:
        self._store: Final = store
        self._spans: Final = spans

    async def submit_all(self, steps: Sequence[Step]) -> list[Any]:
        """What each of at most `MAX_STEPS` steps came to: its answer, or the exception that it deserves.

        Raises:
            NoQuorum, OutcomeUnknown: see `tree.raft.submissions`.
        """
        if len(steps) == 1:
            return [await self._submitted(*steps[0])]
        if not self._spans.wants(BULK):
            return (await self._submit_many(steps))[0]
        with self._spans.start(BULK, self._spans.now_ns()) as span:
            outcomes, is_one = await self._submit_many(steps)
            refused = sum(isinstance(outcome, Exception) for outcome in outcomes)
            how, counted = "done" if is_one else "one_by_one", {"steps": len(steps), "refused": refused}
            span.stop(self._spans.now_ns(), how, counted)
        return outcomes

    async def _submit_many(self, steps: Sequence[Step]) -> tuple[list[Any], bool]:
        """What each came to, and whether that was one command."""
        try:
            verdicts = await self._store.submit("transfer.each", steps=[list(step) for step in steps])
        except (Aborted, BadData, MalformedCommand) as error:
            # One of them cannot be carried out, or all of them are too large: that is nothing to the others.
            _log.warning("%d steps are submitted one by one: %s", len(steps), error)
            return [await self._submitted(*step) for step in steps], False
        return [_read(verdict) for verdict in verdicts], True

    async def _submitted(self, procedure: str, args: dict[str, Any]) -> Any:
        try:
            return await self._store.submit(procedure, **args)
        except (Refused, Aborted, BadData, MalformedCommand) as error:
            return error


def _read(verdict: dict[str, Any]) -> Any:
    try:
        return answer_of(verdict)
    except Refused as refused:
        return refused
