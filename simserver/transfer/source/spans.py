"""What the old authority tells of one departure while it is under way: the open spans, and how they end.

`authority.node.spans` says what they mean. There is one of these for a departure if spans are wanted when it begins.
"""

from collections.abc import Sequence
from typing import Any, Final

from batonpass.authority.machines import source as machine
from batonpass.authority.machines.source import Mode, OutgoingPhase
from batonpass.authority.node.spans import DEPARTURE, FREEZE, STAGING, OpenSpan, Spans
from batonpass.simserver.transfer.source.departure import Departure

__all__ = ["DepartureSpans", "begin_spans"]

_OUTCOMES: Final = {
    OutgoingPhase.RETIRED: "retired",
    OutgoingPhase.RESUMED: "resumed",
    OutgoingPhase.LOST: "stepped_down",
}


class DepartureSpans:
    """The open spans of one departure."""

    def __init__(self, spans: Spans, departure: Departure) -> None:
        frozen, plan = departure.frozen, departure.plan
        self._departure: Final = departure
        self._retransmissions = 0
        metadata: dict[str, Any] = {
            "transfer_id": plan.transfer_id,
            "entity": plan.entity,
            "source": departure.source,
            "target": plan.target,
            "case": departure.machine.case.value,
            "mode": plan.mode.value,
            "fence": frozen.fence,
        }
        self._whole: OpenSpan | None = None
        self._freeze: OpenSpan | None = None
        self._staging: OpenSpan | None = None
        if spans.wants(DEPARTURE):
            size = {"state_bytes": len(frozen.state)}
            self._whole = spans.start(DEPARTURE, frozen.frozen_ns, size, **metadata)
        if spans.wants(FREEZE):
            self._freeze = spans.start(FREEZE, frozen.frozen_ns, **metadata)
        if plan.mode is Mode.STAGED and spans.wants(STAGING):
            self._staging = spans.start(STAGING, frozen.frozen_ns, **metadata)

    def decided(self, now_ns: int) -> None:
        """The machine has decided, and nothing of that is done: home may be asked, and answer, before all of it is."""
        phase = self._departure.machine.phase
        if self._staging is not None and phase is not OutgoingPhase.STAGING:
            self._staging.stop(now_ns, _how_staged(phase))
            self._staging = None

    def performed(self, effects: Sequence[machine.Effect], now_ns: int, period_ns: int) -> None:
        """The machine has decided this, and it has been done."""
        self._retransmissions += sum(getattr(effect, "attempt", 1) > 1 for effect in effects)
        phase = self._departure.machine.phase
        if phase in _OUTCOMES:
            self._end(_OUTCOMES[phase], _reason(effects), now_ns, period_ns)

    def _end(self, outcome: str, reason: str, now_ns: int, period_ns: int) -> None:
        departure = self._departure
        frozen_ns, trace, counters = departure.frozen.frozen_ns, departure.trace, departure.counters
        if outcome == "resumed" and departure.stays_nowhere:
            outcome = "dropped"
        goes_on_ns = now_ns if outcome == "resumed" else trace.at("activated")
        if self._freeze is not None:
            gap = {} if goes_on_ns is None else {"gap_ticks": goes_on_ns // period_ns - frozen_ns // period_ns}
            self._freeze.stop(trace.at("retired") or now_ns, outcome, gap, reason=reason)
        if self._whole is not None:
            measurements = {
                "state_bytes": counters["state_bytes"],
                "retransmissions": self._retransmissions,
                "forwarded_inputs": counters["forwarded_inputs"],
            }
            if not trace.is_repeated:
                measurements["hops"] = trace.count
            self._whole.stop(now_ns, outcome, measurements, reason=reason)


def begin_spans(spans: Spans, departure: Departure) -> DepartureSpans | None:
    """The spans of a departure that begins, or None if none are wanted."""
    if not (spans.wants(DEPARTURE) or spans.wants(FREEZE) or spans.wants(STAGING)):
        return None
    return DepartureSpans(spans, departure)


def _how_staged(phase: OutgoingPhase) -> str:
    """Where it went from staging."""
    if phase is OutgoingPhase.REQUESTED:
        return "staged"
    return "given_up" if phase is OutgoingPhase.ABORTING else "superseded"


def _reason(effects: Sequence[machine.Effect]) -> str:
    return next((effect.reason for effect in effects if isinstance(effect, machine.Resume)), "")
