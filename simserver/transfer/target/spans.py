"""What the new authority tells of entities that come, while they do: one span for each transfer that is waited for.

An arrival waits for what its entity's machine holds: states that were offered, and permission to begin. It is looked at
after whatever may have changed it. So each span that has started stops when the machine holds nothing of it any more,
for whichever reason. `authority.node.spans` says what the spans mean.
"""

from collections.abc import Mapping
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.machines.source import Mode
from batonpass.authority.machines.target import Incoming, Offer, Permission
from batonpass.authority.node.spans import ARRIVAL, OpenSpan, Spans
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.transfer.target.offers import Context

__all__ = ["ArrivalSpans"]

_Numbers = Mapping[str, float]
_NOTHING: Final[_Numbers] = {}


class ArrivalSpans:
    """The open spans of one server's arrivals, by entity and transfer."""

    def __init__(self, spans: Spans, here: str, clock: Clock, holdings: Holdings) -> None:
        self._spans: Final = spans
        self._here: Final = here
        self._clock: Final = clock
        self._holdings: Final = holdings
        self._open: Final[dict[str, dict[str, OpenSpan]]] = {}

    def looked(self, entity: str, machine: Incoming | None) -> None:
        """What an entity's machine holds may have changed; None if there is no machine any more."""
        if not self._open and not self._spans.wants(ARRIVAL):
            return
        offers = {} if machine is None else {offer.transfer_id: offer for offer in machine.offers}
        permission = None if machine is None else machine.waits_with
        known = self._open.get(entity, {})
        permitted = set() if permission is None else {permission.transfer_id}
        for transfer_id in known.keys() - offers.keys() - permitted:
            self._stop(entity, transfer_id, self._clock.monotonic_ns(), "dropped")
        if not self._spans.wants(ARRIVAL):
            return
        for offer in offers.values():
            if offer.transfer_id not in known:
                self._start_with(entity, offer)
        if permission is not None and permission.transfer_id not in self._open.get(entity, {}):
            now_ns = self._clock.monotonic_ns()
            self._start(entity, permission.transfer_id, permission.source, permission.fence, now_ns)

    def all_looked(self, machines: Mapping[str, Incoming]) -> None:
        """What any machine holds may have changed."""
        for entity in list(self._open):
            self.looked(entity, machines.get(entity))

    def activated(self, entity: str, offer: Offer, permission: Permission, context: Context, mode: Mode) -> None:
        """It is simulated here, since the mark `activated` of the trace."""
        transfer_id = permission.transfer_id
        if transfer_id not in self._open.get(entity, {}):
            if not self._spans.wants(ARRIVAL):
                return
            self._start_with(entity, offer)
        trace, period_ns = context.trace, self._holdings.period_ns
        at_ns, frozen_ns = trace.at("activated") or self._clock.monotonic_ns(), trace.at("frozen")
        gap = {} if frozen_ns is None else {"gap_ticks": at_ns // period_ns - frozen_ns // period_ns}
        case = "" if context.case is None else context.case.value
        how = {"case": case, "mode": mode.value, "fence": permission.fence}
        self._stop(entity, transfer_id, at_ns, "activated", gap, **how)

    def _start_with(self, entity: str, offer: Offer) -> None:
        size = {"state_bytes": len(offer.state)}
        self._start(entity, offer.transfer_id, offer.source, offer.fence, offer.staged_ns, size)

    def _start(
        self, entity: str, transfer_id: str, source: str, fence: Fence, at_ns: int, size: _Numbers = _NOTHING
    ) -> None:
        metadata = {"transfer_id": transfer_id, "entity": entity, "source": source, "target": self._here}
        span = self._spans.start(ARRIVAL, at_ns, size, fence=fence, **metadata)
        self._open.setdefault(entity, {})[transfer_id] = span

    def _stop(
        self, entity: str, transfer_id: str, at_ns: int, outcome: str, gap: _Numbers = _NOTHING, **how: object
    ) -> None:
        known = self._open[entity]
        span = known.pop(transfer_id)
        if not known:
            del self._open[entity]
        span.stop(at_ns, outcome, gap, **how)
