"""From a finished transfer, as the API shows it, to numbers: hops, phases, latency. Pure.

Times come from the marks and hops of the trace, which every server stamped with the monotonic clock that all processes
of one machine share.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batonpass.authority.machines.source import Mode
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.phase_timings import timings_ms
from batonpass.scenarios.report import statistics
from batonpass.scenarios.report.model import CaseName, CaseResult, ReportedHop, ReportedMark, SampleTransfer, Transport

__all__ = ["Measured", "case_result", "read_transfer"]

_MARKS: Final = ("frozen", "staged", "committed", "activated", "retired")


@dataclass(frozen=True)
class Measured:
    """One transfer: what crossed the wire, and how long it took.

    Of a `repeated` one neither is known as a whole (`Trace.is_repeated`): it is counted, and left out of all else.
    """

    transfer_id: str
    entity: str
    epoch: int
    sub: int
    trace: Trace
    hops: int
    on_path: dict[str, int]
    off_path: dict[str, int]
    repeated: bool
    latency_ms: float
    phases_ms: dict[str, float]
    size_bytes: int
    repeats: int


def read_transfer(view: Mapping[str, Any]) -> Measured:
    """Read a finished transfer from `GET /v1/transfers/{id}`.

    Raises:
        ValueError: it is not finished.
    """
    trace = Trace.from_data_untrusted(view["trace"])
    phases_ms = timings_ms(trace)
    latency_ms = phases_ms.pop("total", 0.0)
    counters = Counter(view["counters"])
    return Measured(
        transfer_id=view["transfer_id"],
        entity=view["entity"],
        epoch=view["epoch"],
        sub=view["sub"],
        trace=trace,
        hops=len(trace.hops),
        on_path=dict(Counter(hop.kind for hop in trace.hops)),
        off_path=dict(view["off_path"]),
        repeated=trace.is_repeated,
        latency_ms=latency_ms,
        phases_ms=phases_ms,
        size_bytes=sum(hop.size_bytes for hop in trace.hops) + counters["sealed_state_bytes"],
        repeats=max(0, counters["requests"] - 1) + counters["repeated_activate"],
    )


def case_result(
    case: CaseName,
    h: int | None,
    transport: Transport,
    formula: str,
    expected_hops: int,
    measured: Sequence[Measured],
    failures: Mapping[str, int],
    raft_rounds: int,
    gaps_ticks: Mapping[tuple[str, int, int], int],
    mode: Mode = Mode.EAGER,
) -> CaseResult:
    """One row of the report from all transfers of one case."""
    done, measured = measured, [transfer for transfer in measured if not transfer.repeated]
    latencies = [transfer.latency_ms for transfer in measured]
    gaps = [gaps_ticks[key] for t in done if (key := (t.entity, t.epoch, t.sub)) in gaps_ticks]
    return CaseResult(
        case=case,
        h=h,
        mode="staged" if mode is Mode.STAGED else "eager",
        transport=transport,
        formula=formula,
        expected_hops=expected_hops,
        measured_hops=statistics.hop_range([transfer.hops for transfer in measured]),
        transfers=len(done),
        repeated=len(done) - len(measured),
        failed=sum(failures.values()),
        latency_ms=statistics.summarise(latencies),
        phases_ms=statistics.phase_medians([transfer.phases_ms for transfer in measured]),
        gap_ticks=statistics.tick_gap(gaps),
        on_path=statistics.messages_per_transfer([transfer.on_path for transfer in measured]),
        off_path=statistics.messages_per_transfer([transfer.off_path for transfer in measured]),
        retransmissions=sum(transfer.repeats for transfer in done),
        raft_rounds=raft_rounds,
        bytes_p50=statistics.median([float(transfer.size_bytes) for transfer in measured]),
        failures=dict(failures),
        sample=_sample(measured),
        latencies_ms=tuple(latencies),
    )


def _sample(measured: Sequence[Measured]) -> SampleTransfer | None:
    """The transfer of median latency, to be drawn."""
    if not measured:
        return None
    chosen = sorted(measured, key=lambda transfer: transfer.latency_ms)[(len(measured) - 1) // 2]
    hops = [
        ReportedHop(
            number=hop.number,
            kind=hop.kind,
            src=hop.src,
            dst=hop.dst,
            sent_ns=hop.sent_ns,
            received_ns=hop.received_ns,
            on_path=True,
        )
        for hop in chosen.trace.hops
    ]
    marks = [
        ReportedMark.model_validate({"server": mark.server, "label": mark.label, "at_ns": mark.at_ns})
        for mark in chosen.trace.marks
        if mark.label in _MARKS
    ]
    sent, staged = _mark(chosen.trace, "state_sent"), _mark(chosen.trace, "staged")
    if sent is not None and staged is not None:
        state = ReportedHop(
            number=0,
            kind="state",
            src=sent.server,
            dst=staged.server,
            sent_ns=min(sent.at_ns, staged.at_ns),
            received_ns=staged.at_ns,
            on_path=False,
        )
        hops.append(state)
    return SampleTransfer(transfer_id=chosen.transfer_id, hops=tuple(hops), marks=tuple(marks))


def _mark(trace: Trace, label: str) -> Any:
    return next((mark for mark in trace.marks if mark.label == label), None)
