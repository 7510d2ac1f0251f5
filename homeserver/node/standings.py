"""How entities stand, as a homeserver can know it: by the log, and by the word of the server that has authority.

The log knows which server is to simulate an entity. Whether that server does is known there alone, so it is asked.
Nothing is decided by what it says; where no answer comes in time, that is said.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import trio

from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.model.standing import LeasePhase, Standing
from batonpass.authority.names import instance_of
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.standing import MAX_STANDINGS, At, StandingRow
from batonpass.authority.wire.transfer import Message, StandingInquiry, StandingWord
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.placement.balancer import FRESH_S, Reported
from batonpass.homeserver.transfer.parcels import NOT_TOLD

__all__ = ["ASK_S", "MAX_QUESTIONS", "SeenAs", "StandingQuestions", "seen_by_log"]

_log = logging.getLogger("batonpass.homeserver.node.standings")

# Newest first: the one that counts is the last that was committed.
_LOOKED_AT: Final = 16
ASK_S: Final = 1.0
"""A server that has not answered by then is called unreachable."""
MAX_QUESTIONS: Final = 256
"""Under way at one time; what is asked beyond that is answered by the log alone."""


class SeenAs(StrEnum):
    """How an entity stands, for people and programs."""

    SIMULATED = "simulated"
    RECOVERING = "recovering"
    LOST = "lost"
    FROZEN = "frozen"
    QUARANTINED = "quarantined"
    SUSPENDED = "suspended"
    UNLEASED = "unleased"
    UNREACHABLE = "unreachable"


_SEEN: Final[Mapping[At, SeenAs]] = {
    At.RUNS: SeenAs.SIMULATED,
    At.FROZEN: SeenAs.FROZEN,
    At.QUARANTINED: SeenAs.QUARANTINED,
    At.UNTAKEN: SeenAs.QUARANTINED,
    At.SUSPENDED: SeenAs.SUSPENDED,
    At.UNLEASED: SeenAs.UNLEASED,
}


class QuestionPost(Protocol):
    """Tells a simulation server something; `homeserver.transfer.parcels.Post.post`."""

    async def __call__(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        """Raises `NOT_TOLD`."""


class LatestReport(Protocol):
    """What a server of this instance reported last, or None; `Balancer.report`."""

    def __call__(self, server: str, /) -> Reported | None:
        """Look it up."""


@dataclass(slots=True)
class _StandingQuestion:
    """Which server was asked, and what it has said."""

    server: str
    answered: trio.Event = field(default_factory=trio.Event)
    rows: Sequence[StandingRow] = ()


def seen_by_log(record: EntityRecord, *, is_over: bool) -> SeenAs:
    """How the log alone sees it; `is_over` if the lease of its authority is."""
    if record.standing is not Standing.SIMULATED:
        return SeenAs(record.standing.value)
    if is_over:
        return SeenAs.UNLEASED
    return SeenAs.SUSPENDED if record.stands_still else SeenAs.SIMULATED


class StandingQuestions:
    """One member's questions and what it knows without asking."""

    def __init__(self, store: InstanceStore, post: QuestionPost, report: LatestReport, instance: str) -> None:
        self._store: Final = store
        self._post: Final = post
        self._report: Final = report
        self._instance: Final = instance
        self._number = 0
        self._questions: Final[dict[int, _StandingQuestion]] = {}

    def heard(self, word: StandingWord, sender: str) -> bool:
        """A server answers; whether it was asked that."""
        question = self._questions.get(word.number)
        if question is None or question.server != sender or question.answered.is_set():
            return False
        question.rows = word.rows
        question.answered.set()
        return True

    def known(self, record: EntityRecord) -> SeenAs:
        """How it stands by the log, and by whether its server reports at all; no server is asked."""
        seen = seen_by_log(record, is_over=self.is_over(record))
        return SeenAs.UNREACHABLE if seen is SeenAs.SIMULATED and self._is_silent(record.authority) else seen

    async def of(self, record: EntityRecord) -> SeenAs:
        """How it stands by the word of its server, if that can be asked."""
        return (await self.of_each([record]))[record.id]

    async def of_each(self, records: Sequence[EntityRecord]) -> dict[str, SeenAs]:
        """As `of`, by the ids of these; each server is asked once."""
        seen = {record.id: self.known(record) for record in records}
        asked = [record for record in records if self._is_worth_asking(record, seen[record.id])]
        rows = await self.ask(asked)
        for record in asked:
            row = rows.get(record.id)
            seen[record.id] = SeenAs.UNREACHABLE if row is None else self._seen(record, row)
        return seen

    async def ask(self, records: Iterable[EntityRecord]) -> dict[str, StandingRow]:
        """What their servers say of these; nothing of those whose server does not answer in time."""
        by_server: defaultdict[str, list[str]] = defaultdict(list)
        for record in records:
            if record.authority:
                by_server[record.authority].append(record.id)
        found: dict[str, StandingRow] = {}
        with trio.move_on_after(ASK_S):
            async with trio.open_nursery() as nursery:
                for server, entities in by_server.items():
                    for first in range(0, len(entities), MAX_STANDINGS):
                        nursery.start_soon(self._ask, server, entities[first : first + MAX_STANDINGS], found)
        return found

    async def why_waits(self, transfer: TransferRecord) -> str:
        """Why a transfer without a result waits, by the last word of the server whose turn it is; empty if unknown.

        It is in the words of people, and of this moment.
        """
        record = self._store.entity(transfer.entity)
        if record is None:
            return ""
        if transfer.phase is Phase.ASKED:
            return f"its master {record.master} has not answered yet"
        source = transfer.source if transfer.phase in (Phase.PREPARED, Phase.COMMITTED) else record.authority
        if not source:
            return f"no server has authority over {record.id} now: it is {record.standing}"
        row = (await self.ask([record.changed(authority=source)])).get(record.id)
        if row is None:
            return f"{source} does not answer"
        if row.transfer_id == transfer.id:
            return row.why
        if row.at is At.NOT_HERE:
            return f"{source} does not have {record.id}" + (f", which went to {row.moved_to}" if row.moved_to else "")
        if row.at is At.FROZEN:
            return f"{source} is handing it over for transfer {row.transfer_id} first: {row.why}"
        return f"{source} has not begun with it" + (f": it is {row.at} ({row.why})" if row.at is not At.RUNS else "")

    def came_by(self, record: EntityRecord) -> TransferRecord | None:
        """The transfer that gave an entity to its present authority, if no server has reported the end of it."""
        transfers = self._store.transfers_of(record.id, _LOOKED_AT)
        return next((one for one in transfers if one.phase is Phase.COMMITTED and one.fence == record.fence), None)

    def is_over(self, record: EntityRecord) -> bool:
        """Whether the lease under which its authority has it is over, so that it may not simulate it."""
        lease = self._store.lease(record.authority) if record.authority else None
        return lease is not None and lease.has_outlived(record.incarnation) and lease.phase is LeasePhase.OVER

    def _is_silent(self, server: str) -> bool:
        """Whether a server of this instance has reported to this member, and does not any more."""
        report = self._report(server)
        return report is not None and report.age_s > FRESH_S

    def _is_worth_asking(self, record: EntityRecord, seen: SeenAs) -> bool:
        """Not about what the log alone knows, nor a server that has never had a lease."""
        if seen not in (SeenAs.SIMULATED, SeenAs.SUSPENDED):
            return False
        has_lease = self._store.lease(record.authority) is not None
        return has_lease or instance_of(record.authority) != self._instance

    def _seen(self, record: EntityRecord, row: StandingRow) -> SeenAs:
        if row.at is not At.NOT_HERE:
            return _SEEN[row.at]
        if row.moved_to:
            # It was passed on directly, of which the log learns behind.
            return SeenAs.SIMULATED
        # The log has given it to a server to which its state is on the way, from where it is frozen.
        return SeenAs.UNREACHABLE if self.came_by(record) is None else SeenAs.FROZEN

    async def _ask(self, server: str, entities: list[str], found: dict[str, StandingRow]) -> None:
        if len(self._questions) >= MAX_QUESTIONS:
            return
        self._number += 1
        number, question = self._number, _StandingQuestion(server)
        self._questions[number] = question
        inquiry = StandingInquiry(number=number, entities=entities)
        try:
            await self._post(inquiry, Trace("standing"), server, on_path=False)
            await question.answered.wait()
        except NOT_TOLD as error:
            _log.info("%s was not asked how its entities stand: %s", server, error)
        finally:
            del self._questions[number]
        wanted = {*entities}
        found.update({row.entity: row for row in question.rows if row.entity in wanted})
