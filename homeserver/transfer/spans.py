"""What a homeserver tells of its decisions about hand-overs while they are made; see `authority.node.spans`."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from batonpass.authority.fence import Fence
from batonpass.authority.machines.source import Case
from batonpass.authority.model.records import GroupRecord, Phase, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.authority.node.spans import DECISION, GROUP, OpenSpan, Spans, reason_of
from batonpass.authority.wire.transfer import HandoffAbort, HandoffRequest

__all__ = ["UNTOLD", "Deciding", "DecisionSpans"]


class Deciding:
    """One decision that is being made; the block in which it is made is a context."""

    def __init__(self, span: OpenSpan | None, began_ns: int) -> None:
        """Of `None` nothing is told."""
        self._span: Final = span
        self._began_ns: Final = began_ns
        self._ruled_ns = began_ns

    def ruled(self, at_ns: int) -> None:
        """It may be; from here on the log decides."""
        self._ruled_ns = at_ns

    def decided(self, at_ns: int, decided: Mapping[str, Any], steps: int = 1) -> None:
        """The log has answered, to this number of steps at once."""
        if self._span is None:
            return
        measurements = {
            "rule_s": (self._ruled_ns - self._began_ns) / 1e9,
            "commit_s": (at_ns - self._ruled_ns) / 1e9,
            "steps": steps,
        }
        transfer = decided["transfer"]
        # A row has only what is not at its default.
        known = {"mode": str(transfer.get("mode", "eager")), "reason": transfer.get("reason", "")}
        fence = Fence(decided["epoch"], decided["sub"])
        self._span.stop(at_ns, str(decided["outcome"]), measurements, fence=fence, **known)

    def ended(self, at_ns: int, outcome: str, error: BaseException | None = None) -> None:
        """Nothing was decided; no more than the first end counts."""
        if self._span is not None:
            self._span.stop(at_ns, outcome, reason=reason_of(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.__exit__(kind, error, traceback)


UNTOLD: Final = Deciding(None, 0)


class DecisionSpans:
    """The decisions of one homeserver."""

    def __init__(self, spans: Spans) -> None:
        self._spans: Final = spans

    def of(self, request: HandoffRequest | HandoffAbort, at_ns: int) -> Deciding:
        """Begin with what is asked here."""
        if not self._spans.wants(DECISION):
            return UNTOLD
        if request.chain and isinstance(request, HandoffRequest):
            case = Case.DIRECT
        else:
            names = (request.source, request.entity, request.target)
            case = Case.SAME_HOME if len({instance_of(name) for name in names}) == 1 else Case.DIFFERENT_HOMES
        span = self._spans.start(
            DECISION,
            at_ns,
            transfer_id=request.transfer_id,
            entity=request.entity,
            source=request.source,
            target=request.target,
            case=case.value,
            fence=Fence(request.epoch, request.sub),
        )
        return Deciding(span, at_ns)

    def of_group(self, transfer: TransferRecord, group: GroupRecord) -> Deciding:
        """Servers that wait for a group are to hear what was decided with this transfer, which was the last of it."""
        if not self._spans.wants(GROUP):
            return UNTOLD
        now_ns = self._spans.now_ns()
        span = self._spans.start(
            GROUP,
            now_ns,
            {"members": len(group.members)},
            transfer_id=transfer.id,
            entity=transfer.entity,
            source=transfer.source,
            target=transfer.target,
            mode=transfer.mode,
        )
        return Deciding(span, now_ns)

    def group_told(self, told: Deciding, transfer: TransferRecord) -> None:
        """All of them were, or cannot be."""
        told.ended(self._spans.now_ns(), "committed" if transfer.phase is Phase.COMMITTED else "refused")
