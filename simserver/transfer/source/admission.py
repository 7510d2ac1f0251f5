"""Asking other servers for room before an entity is frozen for them, and answering such questions.

What is asked and how long answers count is decided by `authority.machines.capacity`. This is the waiting. A question is
repeated until it is answered, and given up after `PATIENCE_NS`, while the entity is simulated as if nothing were.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason
from batonpass.authority.machines.capacity import MAX_PLACES, Need, Places, Vacancies
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Reserve, Reserved
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.outbox import Outbox
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.world.api import World, takes

__all__ = ["MAX_UNSURE", "PATIENCE_NS", "Reception", "TargetAdmission", "TargetAdmissions"]

_log = logging.getLogger("batonpass.simserver.transfer.source.admission")

# Longer than a server takes to restart: the entity is simulated meanwhile, so there is no hurry to give up.
PATIENCE_NS: Final = 5_000_000_000
FIRST_REPEAT_NS: Final = 250_000_000
MAX_REPEAT_NS: Final = 1_000_000_000
# Questions without an answer after which the target may have been started again elsewhere: 1.75 s after the first. Its
# link says so after five seconds of silence only, which is when the question is given up.
DOUBTED_AFTER: Final = 3
# Questions that wait for home to say whether this server is drained still: a few kinds and sizes of each other server.
MAX_UNSURE: Final = 1_000
_TRACE: Final = Trace("reservation")

Decided = Callable[[str], None]
"""Is told the reason of a refusal, or an empty text."""


class TargetAdmission(Protocol):
    """Says whether a target would take an entity; see `TargetAdmissions`."""

    def ask(self, target: str, need: Need, decided: Decided, *, afresh: bool = False) -> None:
        """Find out whether `target` has a place for this; `decided` hears it once, perhaps before this returns.

        With `afresh` that it was drained a moment ago does not count: home names it, and so its drain has ended.
        """

    def incarnation_of(self, target: str) -> int:
        """The incarnation as which `target` answered last; 0 if it did not say."""


@dataclass
class _PlacesQuestion:
    target: str
    need: Need
    asked_ns: int
    repeat_ns: int
    attempt: int = 1
    waiting: list[Decided] = field(default_factory=list)


class TargetAdmissions:
    """The side of the old authority: places on other servers."""

    def __init__(self, outbox: Outbox, clock: Clock, counts: Counter[str]) -> None:
        self._outbox = outbox
        self._clock = clock
        self._counts = counts
        self._places = Places()
        # Bounded by the entities that want to go, each to one target.
        self._questions: dict[tuple[str, Need], _PlacesQuestion] = {}
        # Bounded by the servers to which entities want to go.
        self._incarnations: dict[str, int] = {}
        self._wake = clock.bell()

    def ask(self, target: str, need: Need, decided: Decided, *, afresh: bool = False) -> None:
        """As `TargetAdmission.ask`."""
        now_ns = self._clock.monotonic_ns()
        answer = self._places.take(target, need, now_ns)
        if afresh and answer == Reason.DRAINING.value:
            answer = None
        if answer is None or (not answer and self._places.are_few(target, need)):
            question = self._question(target, need, now_ns)
            if answer is None:
                question.waiting.append(decided)
                return
        decided(answer)

    def incarnation_of(self, target: str) -> int:
        """As `TargetAdmission.incarnation_of`."""
        return self._incarnations.get(target, 0)

    def answered(self, opened: OpenedMessage, message: Reserved) -> None:
        """A target says how many it takes, or why none."""
        now_ns = self._clock.monotonic_ns()
        need = Need(message.kind, message.schema_version, message.state_bytes)
        question = self._questions.pop((opened.sender, need), None)
        if question is None:
            self._counts["late_reserved"] += 1
            return
        self._incarnations[opened.sender] = message.incarnation
        reason = message.reason or ("" if message.places else Reason.CAPACITY.value)
        self._places.answered(opened.sender, need, message.places, reason, now_ns)
        for number, decided in enumerate(question.waiting):
            taken = self._places.take(opened.sender, need, now_ns)
            if taken is None:
                # More wait than there were places: ask for the rest.
                self._question(opened.sender, need, now_ns).waiting = question.waiting[number:]
                return
            decided(taken)

    def _question(self, target: str, need: Need, now_ns: int) -> _PlacesQuestion:
        question = self._questions.get((target, need))
        if question is None:
            question = _PlacesQuestion(target, need, now_ns, now_ns + FIRST_REPEAT_NS)
            self._questions[target, need] = question
            self._send(question)
            self._wake.ring()
        return question

    def _send(self, question: _PlacesQuestion) -> None:
        need = question.need
        wanted = self._places.wanted(question.target, need, self._clock.monotonic_ns())
        message = Reserve(
            kind=need.kind,
            schema_version=need.schema_version,
            state_bytes=need.state_bytes,
            places=min(MAX_PLACES, max(wanted, len(question.waiting))),
        )
        self._outbox.send(message, _TRACE, question.target, on_path=False)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Repeat what is not answered, and give up what is not answered at all, until cancelled."""
        task_status.started()
        while True:
            if not self._questions:
                await self._wake.wait()
                continue
            due_ns = min(question.repeat_ns for question in self._questions.values())
            await self._clock.sleep_s(max(0, due_ns - self._clock.monotonic_ns()) / 1e9)
            self._repeat(self._clock.monotonic_ns())

    def _repeat(self, now_ns: int) -> None:
        for key, question in list(self._questions.items()):
            if question.repeat_ns > now_ns:
                continue
            if now_ns - question.asked_ns >= PATIENCE_NS:
                del self._questions[key]
                self._give_up(question, now_ns)
                continue
            if question.attempt >= DOUBTED_AFTER:
                self._outbox.doubt(question.target)
            question.repeat_ns = now_ns + min(FIRST_REPEAT_NS << question.attempt, MAX_REPEAT_NS)
            question.attempt += 1
            self._send(question)

    def _give_up(self, question: _PlacesQuestion, now_ns: int) -> None:
        _log.info("%s does not say whether it takes a %s", question.target, question.need.kind)
        self._counts["reserve_unanswered"] += 1
        self._places.silent(question.target, question.need, now_ns)
        for decided in question.waiting:
            decided(Reason.TARGET_FAILED.value)


class Reception:
    """The side of the target: what this server takes.

    The drain may be over when a source asks, and the operator that ended it was told that the server takes entities
    again. So home is asked before a source is refused for it.

    Args:
        lease: says whether this server is drained, and as which incarnation it takes them.
        max_state_bytes: the longest encoded state.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        world: World,
        holdings: Holdings,
        vacancies: Vacancies,
        max_state_bytes: int,
    ) -> None:
        self._world = world
        self._outbox = ports.outbox
        self._holdings = holdings
        self._clock = ports.clock
        self._lease = lease
        self._vacancies = vacancies
        self._max_state_bytes = max_state_bytes
        self._unsure: set[tuple[str, Need]] = set()

    def asked(self, opened: OpenedMessage, message: Reserve) -> None:
        """Another server wants to hand entities over."""
        if not self._lease.is_drained:
            self._answer(opened, message)
            return
        need = Need(message.kind, message.schema_version, message.state_bytes)
        key = opened.sender, need
        # A question that finds no room, or waits already, is repeated, and the entity simulated.
        if key not in self._unsure and len(self._unsure) < MAX_UNSURE:
            self._unsure.add(key)
            self._lease.once_renewed(partial(self._answer_surely, opened, message, key))

    def _answer_surely(self, opened: OpenedMessage, message: Reserve, key: tuple[str, Need]) -> None:
        self._unsure.discard(key)
        self._answer(opened, message)

    def _answer(self, opened: OpenedMessage, message: Reserve) -> None:
        reason = self.why_not(message.kind, message.schema_version, message.state_bytes // 2 + 1)
        incarnation = self._lease.told_incarnation
        if incarnation is None:
            # It can promise nothing yet, and will in a moment: the question is repeated, and the entity simulated.
            return
        if self._lease.is_drained:
            reason = Reason.DRAINING.value
        places = 0
        if not reason:
            now_ns = self._clock.monotonic_ns()
            places = self._vacancies.promise(opened.sender, message.places, len(self._holdings), now_ns)
            reason = "" if places else Reason.CAPACITY.value
        answer = Reserved(
            kind=message.kind,
            schema_version=message.schema_version,
            state_bytes=message.state_bytes,
            places=places,
            reason=reason,
            incarnation=incarnation,
        )
        self._outbox.send(answer, _TRACE, opened.sender, on_path=False)

    def why_not(self, kind: str, schema_version: int, state_bytes: int) -> str:
        """Why an entity of this kind, form and size would not be taken however empty the server is; or nothing."""
        if not takes(self._world, kind, schema_version):
            return Reason.INCOMPATIBLE.value
        return Reason.CAPACITY.value if state_bytes > self._max_state_bytes else ""

    def is_full(self) -> bool:
        """Whether there is no place for one entity more."""
        return len(self._holdings) >= self._vacancies.max_entities

    def arrived(self, source: str) -> None:
        """An entity has come from this server."""
        self._vacancies.arrived(source)
