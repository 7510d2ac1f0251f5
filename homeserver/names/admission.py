"""Asking the home of a target in another instance whether it would have an entity, in case 1, and for how long.

What is asked is about the target. So one question is for all that came together and go there: those of a group most of
all. By itself each would cost both homes milliseconds. The entities are frozen meanwhile. Their own home alone decides,
and without an admission it has committed nothing. So it may give a transfer up when the other home says nothing,
whatever that says later (FAILURES rows 11 and 21).

Whether a server of this instance would take an entity of another one: what its home asks here, in case 1.
"""

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import DirectoryRow, LeaseRow, Role
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import AdmitReply, AdmitRequest, HandoffRequest, Message
from batonpass.crypto.bounded_tables import LruTable
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.federation import Federation, InstanceUnreachable

__all__ = [
    "GIVEN_UP_NS",
    "PATIENCE_S",
    "PAUSE_NS",
    "TRY_S",
    "ForeignAdmissions",
    "LocalAdmission",
    "UnansweredQuestions",
]

_log = logging.getLogger("batonpass.homeserver.transfer.service")

# As long as a link waits for its peer: a homeserver is restarted, or another member found, in less.
PATIENCE_S: Final = 5.0
# A server that asks waits for two seconds (`simserver.net.home_client.REQUEST_TIMEOUT_S`) before it turns to another
# member, and repeats.
TRY_S: Final = 1.5
# While the old authority waits, it asks about a transfer every four seconds at least. It asks the members in turn, so
# each of nine hears of it every 36 s, or every 50 s where each takes its time. After a longer pause it is waited for
# anew.
PAUSE_NS: Final = 120_000_000_000
MAX_UNANSWERED: Final = 65_536
# A target that was given up is tried once for each transfer after that, not waited for, whatever it says in between.
# Else one that comes and goes would have an entity frozen for the whole time with each move that is ordered.
GIVEN_UP_NS: Final = 30_000_000_000


class UnansweredQuestions:
    """Since when the answer about each transfer is awaited, as far as one member knows; without clocks."""

    def __init__(self) -> None:
        self._asked: LruTable[str, tuple[int, int]] = LruTable(MAX_UNANSWERED)

    def since_ns(self, transfer_id: str, now_ns: int) -> int:
        """It is asked about now: when it was for the first time."""
        first_ns, last_ns = self._asked.get(transfer_id, (now_ns, now_ns))
        if now_ns - last_ns > PAUSE_NS:
            first_ns = now_ns
        self._asked[transfer_id] = (first_ns, now_ns)
        return first_ns

    def over(self, transfer_id: str) -> None:
        """It is answered, or given up."""
        self._asked.pop(transfer_id, None)


class ForeignAdmissions:
    """One member's questions to the homes of targets.

    Args:
        federation: the way to them.
        clock: monotonic time.
        patience_s: how long one of them may be silent about a transfer, before that is refused for `home_unreachable`.
    """

    def __init__(self, federation: Federation, clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._federation: Final = federation
        self._clock: Final = clock
        self._patience_ns: Final = round(patience_s * 1e9)
        self._unanswered: Final = UnansweredQuestions()
        # Until when each instance is not waited for; of those that there is a way to.
        self._given_up: Final[dict[str, int]] = {}

    async def ask_each(
        self, home: str, asked: Sequence[tuple[HandoffRequest, Trace]], left_s: float = math.inf
    ) -> list[tuple[AdmitReply, Trace] | InstanceUnreachable]:
        """Whether the `home` of their targets would have each of these there, and by which incarnation.

        Or `InstanceUnreachable`: it does not answer, and has not been silent for long enough for that to be an answer.
        Their sender waits for `left_s` yet. There is one question for each target, since that is what it is about.
        """
        if self._federation.hops_to(home) is None:
            return [(_no(request, Reason.UNKNOWN_TARGET), trace) for request, trace in asked]
        now_ns, within_s = self._clock.monotonic_ns(), min(TRY_S, left_s)
        since_ns = {request.transfer_id: self._unanswered.since_ns(request.transfer_id, now_ns) for request, _ in asked}
        words = await self._words_of(home, asked, within_s)
        now_ns = self._clock.monotonic_ns()
        # A home that has had less than its time is not to be given up at once for being silent.
        is_given_up = now_ns < self._given_up.get(home, 0) and within_s >= TRY_S
        is_refused = False
        answers: list[tuple[AdmitReply, Trace] | InstanceUnreachable] = []
        for request, trace in asked:
            word = words[request.target]
            if not isinstance(word, InstanceUnreachable):
                answers.append(word.about(request, trace))
            elif now_ns - since_ns[request.transfer_id] < self._patience_ns and not is_given_up:
                answers.append(word)
                continue
            else:
                is_refused = True
                _log.warning("%s is refused: %s", request.transfer_id, word)
                answers.append((_no(request, Reason.HOME_UNREACHABLE), trace))
            self._unanswered.over(request.transfer_id)
        if is_refused:
            self._given_up[home] = now_ns + GIVEN_UP_NS
        return answers

    async def _words_of(
        self, home: str, asked: Sequence[tuple[HandoffRequest, Trace]], within_s: float
    ) -> dict[str, "_Word | InstanceUnreachable"]:
        """What is said of each target, or why nothing is. The first that goes there asks for all that do."""
        first = {request.target: (request, trace) for request, trace in reversed(asked)}
        letters = [Letter(_question(request), trace, on_path=True) for request, trace in first.values()]
        outcomes = await self._federation.exchange_all(home, letters, within_s=within_s)
        counts = Counter(request.target for request, _ in asked)
        return {
            target: _read(home, request, trace, outcome, counts[target])
            for (target, (request, trace)), outcome in zip(first.items(), outcomes, strict=True)
        }


@dataclass(frozen=True, slots=True)
class _Word:
    """What the home of a target has said, and how it came; for the first of `asked`, whose trace was `since` before."""

    reply: AdmitReply
    trace: Trace
    since: Trace
    asked: int

    def about(self, request: HandoffRequest, trace: Trace) -> tuple[AdmitReply, Trace]:
        """What that is to one of them."""
        if request.transfer_id == self.reply.transfer_id:
            return self.reply, self.trace
        reply = self.reply.model_copy(update={"transfer_id": request.transfer_id})
        return reply, trace.shared(self.trace, self.since, self.asked)


def _question(request: HandoffRequest) -> AdmitRequest:
    return AdmitRequest(transfer_id=request.transfer_id, entity=request.entity, target=request.target)


def _read(
    home: str,
    request: HandoffRequest,
    trace: Trace,
    outcome: tuple[Message, Trace] | InstanceUnreachable,
    asked: int,
) -> _Word | InstanceUnreachable:
    if isinstance(outcome, InstanceUnreachable):
        return outcome
    reply, by_way = outcome
    if not isinstance(reply, AdmitReply) or reply.transfer_id != request.transfer_id:
        # As if it had said nothing: it must not be able to have the entity frozen for ever either.
        return InstanceUnreachable(f"{home} answered an admission with something else")
    return _Word(reply, by_way, trace, asked)


def _no(request: HandoffRequest, reason: Reason) -> AdmitReply:
    return AdmitReply(transfer_id=request.transfer_id, accepted=False, reason=reason.value)


class LocalAdmission:
    """One member's answers to the homes of entities that are to come here."""

    def __init__(self, name: str, store: InstanceStore, clock: Clock) -> None:
        """`name` is that of this homeserver."""
        self._name: Final = name
        self._store: Final = store
        self._clock: Final = clock

    async def answer(self, request: AdmitRequest, trace: Trace) -> Letter:
        """Whether its target can be given it now, and by which incarnation. Raises `NoQuorum`."""
        row, lease = self._store.row(request.target), self._store.lease(request.target)
        if row is None or lease is None:
            # Perhaps since, and this copy is behind.
            await self._store.confirmed()
            row, lease = self._store.row(request.target), self._store.lease(request.target)
        reason = self._why_not(row, lease)
        reply = AdmitReply(
            transfer_id=request.transfer_id,
            accepted=reason is None,
            reason="" if reason is None else reason.value,
            incarnation=0 if lease is None else lease.incarnation,
        )
        return Letter(reply, trace.mark(self._name, "admitted", self._clock.monotonic_ns()), on_path=True)

    def _why_not(self, row: DirectoryRow | None, lease: LeaseRow | None) -> Reason | None:
        """Why a server of this instance can be given nothing now, or None; as the log looks at its own targets."""
        if row is None or row.role is not Role.SIMSERVER:
            return Reason.UNKNOWN_TARGET
        if self._store.drain(row.name) is not None:
            return Reason.DRAINING
        return None if lease is None or lease.phase is LeasePhase.ALIVE else Reason.TARGET_DOWN
