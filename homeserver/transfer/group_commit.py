"""How what a message asks for gets into the log, and its certificate signed: by itself, or with what came with it.

A message that came alone has a command of the log and a signature of its own, at once. Those that came in one parcel
wait for each other for one turn of the scheduler, and share both.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from batonpass.actors.base.batcher import Combiner
from batonpass.authority.errors import Refused
from batonpass.authority.model.records import TransferRecord
from batonpass.authority.node.spans import BULK, SILENT, Spans
from batonpass.authority.procedures.batch import MAX_STEPS, answer_of
from batonpass.homeserver.log.store import Store
from batonpass.homeserver.transfer.certificates import Certification
from batonpass.tree.data.errors import BadData, MalformedCommand
from batonpass.tree.raft.submissions import Aborted

__all__ = ["Alone", "Company", "Means", "Step"]

_log = logging.getLogger("batonpass.homeserver.transfer.service")


Step = tuple[str, dict[str, Any]]
"""A procedure about transfers, and its arguments."""


class Means(Protocol):
    """One of both ways."""

    async def submit(self, procedure: str, **args: Any) -> Any:
        """As `Store.submit`, for procedures about transfers."""

    async def certify(self, transfer: TransferRecord) -> str:
        """As `Certification.commit`."""


class Alone:
    """Waits for nobody."""

    def __init__(self, store: Store, certificates: Certification) -> None:
        self._store: Final = store
        self._certificates: Final = certificates

    async def submit(self, procedure: str, **args: Any) -> Any:
        """As `Means.submit`."""
        return await self._store.submit(procedure, **args)

    async def certify(self, transfer: TransferRecord) -> str:
        """As `Means.certify`."""
        return self._certificates.commit(transfer)


class Company:
    """Does it for all that wait at the same moment."""

    def __init__(self, store: Store, certificates: Certification, spans: Spans = SILENT) -> None:
        self._store: Final = store
        self._certificates: Final = certificates
        self._spans: Final = spans
        self._steps: Final[Combiner[Step, Any]] = Combiner(self.submit_all, most=MAX_STEPS)
        self._to_certify: Final[Combiner[TransferRecord, str]] = Combiner(self._certify_all, most=MAX_STEPS)

    async def submit(self, procedure: str, **args: Any) -> Any:
        """As `Means.submit`."""
        return await self._steps.do((procedure, args))

    async def certify(self, transfer: TransferRecord) -> str:
        """As `Means.certify`."""
        return await self._to_certify.do(transfer)

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

    async def _certify_all(self, transfers: Sequence[TransferRecord]) -> list[str]:
        return self._certificates.commit_all(transfers)


def _read(verdict: dict[str, Any]) -> Any:
    try:
        return answer_of(verdict)
    except Refused as refused:
        return refused
