"""How what messages ask for gets into the log: what came together is one command; what came alone is one of its own."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, Protocol

from batonpass.authority.errors import Refused
from batonpass.authority.node.spans import BULK, SILENT, Spans
from batonpass.authority.procedures.table import answer_of
from batonpass.homeserver.log.store import InstanceStore
from batonpass.tree.data.errors import BadData, MalformedCommand
from batonpass.tree.raft.submissions import Aborted

__all__ = ["Gather", "GroupCommit", "Step", "StepsTogether"]

_log = logging.getLogger("batonpass.homeserver.transfer.service")


Step = tuple[str, dict[str, Any]]
"""A procedure that may be a step of many, and its arguments."""


class StepsTogether(Protocol):
    """Has what several want at the same moment done in one go (`actors.base.batcher.Batcher`)."""

    async def do(self, item: Step) -> Any:
        """Have it done, perhaps with others: what it came to."""


Gather = Callable[[Callable[[list[Step]], Awaitable[Sequence[Any]]]], StepsTogether]
"""Makes one of what does at most `MAX_STEPS` of them."""


class GroupCommit:
    """One member's way to the log for steps of one sort; `each` is the procedure that takes many of them."""

    def __init__(
        self,
        store: InstanceStore,
        spans: Spans = SILENT,
        *,
        each: Literal["transfer.each", "entity.each"] = "transfer.each",
    ) -> None:
        self._store: Final = store
        self._spans: Final = spans
        self._each: Final = each

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
            verdicts = await self._store.submit(self._each, steps=[list(step) for step in steps])
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
