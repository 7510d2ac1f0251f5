"""How the entities of this server stand, and why, for a homeserver that asks: in the order in which causes count.

A server without a lease simulates nothing, whatever else may be. One that is being handed over is frozen for that, and
only then for its world or its owner.
"""

from collections.abc import Callable, Iterable
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.machines.source import Case, OutgoingPhase
from batonpass.authority.wire.standing import MAX_WHY_CHARS, At, StandingInquiry, StandingRow, StandingWord
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.transfer.source.departure import Departure
from batonpass.simserver.transfer.source.departures import Departures

__all__ = ["StandingAnswers"]


class StandingAnswers:
    """One server's answers.

    Args:
        why_unleased: why nothing may be simulated at a moment of monotonic nanoseconds; empty if it may.
    """

    def __init__(
        self, holdings: Holdings, departures: Departures, clock: Clock, why_unleased: Callable[[int], str]
    ) -> None:
        self._holdings: Final = holdings
        self._departures: Final = departures
        self._clock: Final = clock
        self._why_unleased: Final = why_unleased

    def answer(self, inquiry: StandingInquiry) -> StandingWord:
        """What there is to say of each."""
        return StandingWord(number=inquiry.number, rows=list(self.rows(inquiry.entities)))

    def rows(self, entities: Iterable[str]) -> Iterable[StandingRow]:
        """One for each of these."""
        now_ns = self._clock.monotonic_ns()
        unleased = self._why_unleased(now_ns)
        for entity in entities:
            holding = self._holdings.get(entity)
            if holding is None:
                yield self._not_here(entity)
            elif unleased:
                yield StandingRow(entity=entity, at=At.UNLEASED, why=unleased[:MAX_WHY_CHARS])
            else:
                yield self._here(holding, now_ns)

    def _not_here(self, entity: str) -> StandingRow:
        gone = self._holdings.gone(entity)
        return StandingRow(entity=entity, at=At.NOT_HERE, moved_to="" if gone is None else gone.moved_to)

    def _here(self, holding: Holding, now_ns: int) -> StandingRow:
        entity, life = holding.id, holding.life
        if (departure := self._departures.departure_of(entity)) is not None:
            return StandingRow(
                entity=entity,
                at=At.FROZEN,
                why=_why_frozen(departure)[:MAX_WHY_CHARS],
                transfer_id=departure.plan.transfer_id,
                phase=departure.machine.phase.value,
                since_ms=max(0, now_ns - departure.frozen.frozen_ns) // 1_000_000,
            )
        if life.is_untaken:
            return StandingRow(entity=entity, at=At.UNTAKEN, why=life.quarantine_reason[:MAX_WHY_CHARS])
        if life.quarantine_reason:
            return StandingRow(entity=entity, at=At.QUARANTINED, why=life.quarantine_reason[:MAX_WHY_CHARS])
        if life.ownership.suspended:
            return StandingRow(entity=entity, at=At.SUSPENDED)
        if (wait := self._departures.waits.of(entity)) is None:
            return self._wants(holding) if life.wants else StandingRow(entity=entity, at=At.RUNS)
        since_ms = max(0, now_ns - wait.since_ns) // 1_000_000
        return StandingRow(entity=entity, at=At.RUNS, why=wait.why, transfer_id=wait.transfer_id, since_ms=since_ms)

    def _wants(self, holding: Holding) -> StandingRow:
        """Its world wants it elsewhere."""
        target = holding.life.wants
        why, since_ns = self._departures.why_it_stays(holding.id, target)
        text = f"its world wants it at {target}: {why or 'it is about to leave'}"
        return StandingRow(entity=holding.id, at=At.RUNS, why=text[:MAX_WHY_CHARS], since_ms=since_ns // 1_000_000)


def _why_frozen(departure: Departure) -> str:
    """The server it waits for, how often that was asked, and what was said last."""
    target, machine = departure.plan.target, departure.machine
    match machine.phase:
        case OutgoingPhase.STAGING:
            why = f"{target} has not put its state on its disk yet"
        case OutgoingPhase.ABORTING:
            why = "its home instance has not said yet whether it may be given up"
        case OutgoingPhase.REQUESTED if machine.case is not Case.DIRECT:
            why = f"its home instance has not decided yet whether {target} gets it"
        case _:
            why = f"it was given to {target}, which has not said yet that it simulates it"
    times = f" (asked {machine.attempt} times)" if machine.attempt > 1 else ""
    return f"{why}{times}" + (f"; last: {departure.last_word}" if departure.last_word else "")
