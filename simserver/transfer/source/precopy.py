"""Entities with large states that are about to leave: their states go ahead while they are simulated.

`authority.machines.precopy` decides what is sent; this is the waiting for the target, round after round. A round that
is not answered is repeated, and given up when the target has said nothing for `PATIENCE_NS` and the time that its bytes
take: the entity stays simulated then, since nothing was frozen. So it does when to encode and to hash the state, as a
freeze does, takes more time than the freeze budget has. That is measured with the first round, and nothing is sent.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.machines.precopy import PRECOPY_BYTES, CopyAhead
from batonpass.authority.node.spans import PRECOPY, SILENT, OpenSpan, Spans
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Precopied, Precopy
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.net.outbox import Outbox
from batonpass.simserver.transfer.source.departure import DeparturePlan

__all__ = ["PrecopySender"]

PATIENCE_NS: Final = 5_000_000_000
PATIENCE_NS_PER_BYTE: Final = 100
REPEAT_NS: Final = 500_000_000
_OUTCOMES: Final = {"": "copied", Reason.TARGET_FAILED: "unanswered", Reason.FREEZE_BUDGET: "over_budget"}

Over = Callable[[DeparturePlan, str], None]
"""Is told the plan, with what has gone ahead, and why the entity may not be frozen for it, or nothing if it may."""


@dataclass
class _Copying:
    plan: DeparturePlan
    ahead: CopyAhead = field(repr=False)
    over: Over = field(repr=False)
    chunks: list[bytes] = field(default_factory=list, repr=False)
    given_up_ns: int = 0
    repeat_ns: int = 0
    span: OpenSpan | None = None


class PrecopySender:
    """The entities of one server whose states go ahead."""

    def __init__(
        self,
        holdings: Holdings,
        outbox: Outbox,
        clock: Clock,
        spawn: Callable[[Callable[..., Any], str], bool],
        least_bytes: int = PRECOPY_BYTES,
        spans: Spans = SILENT,
    ) -> None:
        """`spawn` runs what waits beside everything else, if it is served; states of `least_bytes` go ahead."""
        self._spawn = spawn
        self._least_bytes: Final = least_bytes
        self._spans: Final = spans
        self._holdings = holdings
        self._outbox = outbox
        self._clock = clock
        self._copying: dict[str, _Copying] = {}

    def __contains__(self, entity: str) -> bool:
        return entity in self._copying

    def begin(self, plan: DeparturePlan, holding: Holding, over: Over) -> None:
        """Copy an entity's state to the plan's target, if it is large; `over` is called once, perhaps at once."""
        # One that is too large, or cannot be written, is not carried at all, which the freeze finds out.
        if not self._least_bytes <= holding.life.state_bytes <= MAX_STATE_BYTES:
            over(plan, "")
            return
        ahead = CopyAhead()
        copying = self._copying[plan.entity] = _Copying(replace(plan, ahead=ahead), ahead, over)
        if self._spans.wants(PRECOPY):
            copying.span = self._started(plan, holding)
        self._next_round(copying)
        self._spawn(self._keep_time, plan.entity)

    def _started(self, plan: DeparturePlan, holding: Holding) -> OpenSpan:
        metadata = {"transfer_id": plan.transfer_id, "entity": plan.entity, "target": plan.target}
        metadata |= {"source": holding.life.stint.server, "mode": plan.mode.value}
        size = {"state_bytes": holding.life.state_bytes}
        return self._spans.start(PRECOPY, self._clock.monotonic_ns(), size, fence=holding.fence, **metadata)

    def go_on(self) -> None:
        """It is served again: keep the time of what is under way."""
        for entity in self._copying:
            self._spawn(self._keep_time, entity)

    async def _keep_time(self, entity: str) -> None:
        while (copying := self._copying.get(entity)) is not None:
            due_ns = min(copying.repeat_ns, copying.given_up_ns) - self._clock.monotonic_ns()
            await self._clock.sleep_s(max(0, due_ns) / 1e9)
            self._tick(entity)

    def answered(self, opened: OpenedMessage, message: Precopied) -> None:
        """The target has got the chunks of a round."""
        copying = self._copying.get(message.entity)
        if copying is None or copying.plan.transfer_id != message.transfer_id:
            return
        if opened.sender == copying.plan.target and message.round == copying.ahead.round:
            self._next_round(copying)

    def _tick(self, entity: str) -> None:
        copying, now_ns = self._copying.get(entity), self._clock.monotonic_ns()
        if copying is None:
            return
        if now_ns >= copying.given_up_ns:
            self._end(copying, Reason.TARGET_FAILED)
        elif now_ns >= copying.repeat_ns:
            self._send(copying)

    def _next_round(self, copying: _Copying) -> None:
        holding = self._holdings.get(copying.plan.entity)
        if holding is None or holding.life.frozen:
            self._end(copying)
            return
        # The participants' parts are asked for at the freeze.
        began_ns, is_first = self._clock.monotonic_ns(), not copying.ahead.round
        state = holding.life.encoded_if_portable()
        chunks = None if state is None or len(state) > MAX_STATE_BYTES else copying.ahead.next_round(state)
        if state is None or chunks is None:
            self._end(copying)
            return
        encoding_ns, plan = self._clock.monotonic_ns() - began_ns, copying.plan
        if is_first and plan.freeze_budget_ms and plan.within_budget(len(state), encoding_ns) is None:
            self._end(copying, Reason.FREEZE_BUDGET)
            return
        copying.chunks = chunks
        size_bytes = sum(map(len, chunks))
        copying.given_up_ns = self._clock.monotonic_ns() + PATIENCE_NS + PATIENCE_NS_PER_BYTE * size_bytes
        self._send(copying)

    def _send(self, copying: _Copying) -> None:
        plan, number = copying.plan, copying.ahead.round
        copying.repeat_ns = self._clock.monotonic_ns() + REPEAT_NS
        message = Precopy(
            transfer_id=plan.transfer_id,
            entity=plan.entity,
            round=number,
            lengths=[len(chunk) for chunk in copying.chunks],
            state=b"".join(copying.chunks),
        )
        # Not the transfer's own: what is large is not repeated under one id while it is on its way.
        name = hashlib.blake2b(f"{plan.transfer_id} {number}".encode(), digest_size=12).hexdigest()
        self._outbox.send(message, Trace(f"precopy-{name}"), plan.target, on_path=False)

    def _end(self, copying: _Copying, why_not: str = "") -> None:
        del self._copying[copying.plan.entity]
        copying.chunks = []
        if copying.span is not None:
            is_sent = why_not != Reason.FREEZE_BUDGET
            sent = {"state_bytes": copying.ahead.sent_bytes * is_sent, "rounds": copying.ahead.round * is_sent}
            copying.span.stop(self._clock.monotonic_ns(), _OUTCOMES[why_not], sent)
        copying.over(copying.plan, why_not)
