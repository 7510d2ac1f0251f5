"""From a finished transfer to numbers: counted on the wire, timed by marks, nothing computed from the formula."""

from dataclasses import replace
from typing import Any

import pytest

from batonpass.authority.wire.hops import Trace
from batonpass.scenarios.judge.measure import Measured, case_result, read_transfer
from batonpass.scenarios.report.model import CaseResult, TickGap
from batonpass.scenarios.report.verdict import case_problems

MS = 1_000_000
BALL = "alpha.ball"


def case_2_trace() -> Trace:
    """Frozen at 0 ms, asked at 1-3, committed at 5, granted 6-7, active at 8, told back 9-10; the state 2-4 beside."""
    trace = Trace("transfer-1").mark("alpha.s1", "frozen", 0)
    trace = trace.leave("alpha.s1", "handoff", 1 * MS).arrive("alpha.h1", 3 * MS, 1000)
    trace = trace.mark("alpha.h1", "ruling", 3 * MS).mark("alpha.h1", "deciding", 3 * MS + MS // 2)
    trace = trace.mark("alpha.h1", "committed", 5 * MS)
    trace = trace.leave("alpha.h1", "grant", 6 * MS).arrive("alpha.s2", 7 * MS, 2000)
    trace = trace.mark("alpha.s2", "staged", 4 * MS).mark("alpha.s2", "activated", 8 * MS)
    trace = trace.leave("alpha.s2", "activated", 9 * MS).arrive("alpha.s1", 10 * MS, 500)
    return trace.mark("alpha.s1", "state_sent", 2 * MS).mark("alpha.s1", "retired", 11 * MS)


def view(trace: Trace | None = None, **changes: Any) -> dict[str, Any]:
    fields = {
        "transfer_id": "transfer-1",
        "entity": BALL,
        "epoch": 2,
        "sub": 0,
        "trace": (trace or case_2_trace()).to_data(),
        "off_path": {"state": 1, "http_reply": 1},
        "counters": {"requests": 1, "sealed_state_bytes": 4000, "state_bytes": 2000},
    }
    return fields | changes


def test_hops_are_counted_from_the_trace_by_kind() -> None:
    measured = read_transfer(view())
    assert measured.hops == 3
    assert measured.on_path == {"handoff": 1, "grant": 1, "activated": 1}
    assert measured.off_path == {"state": 1, "http_reply": 1}


def test_the_latency_is_from_the_freeze_to_the_activation() -> None:
    assert read_transfer(view()).latency_ms == 8.0


def test_phases_are_told_apart_from_the_latency() -> None:
    assert read_transfer(view()).phases_ms == {
        "request": 3.0,
        "rule": 0.5,
        "commit": 1.5,
        "state": 4.0,
        "activation": 3.0,
    }


def test_bytes_are_those_of_the_path_and_of_the_sealed_state() -> None:
    assert read_transfer(view()).size_bytes == 1000 + 2000 + 500 + 4000
    assert read_transfer(view(counters={})).size_bytes == 3500


@pytest.mark.parametrize(
    ("counters", "repeats"),
    [({}, 0), ({"requests": 1}, 0), ({"requests": 3}, 2), ({"requests": 2, "repeated_activate": 4}, 5)],
    ids=str,
)
def test_what_was_sent_again_is_counted(counters: dict[str, int], repeats: int) -> None:
    assert read_transfer(view(counters=counters)).repeats == repeats


@pytest.mark.parametrize("missing", ["frozen", "activated"])
def test_a_transfer_without_both_ends_is_no_measurement(missing: str) -> None:
    trace = case_2_trace()
    marks = tuple(mark for mark in trace.marks if mark.label != missing)
    assert not read_transfer(view()).repeated
    assert read_transfer(view(Trace(trace.transfer_id, trace.hops, marks))).repeated


def test_a_transfer_that_is_not_finished_has_no_trace() -> None:
    with pytest.raises(ValueError, match="a trace has exactly"):
        read_transfer(view() | {"trace": None})


# --- a case from its transfers ----------------------------------------------------------------------------------------


def slowed(factor: int, *, hops: int = 3, epoch: int = 2) -> Measured:
    """The transfer above, `factor` times as slow, with as many hops as wanted."""
    trace = Trace(f"transfer-{factor}")
    for hop in (case_2_trace().hops * 3)[:hops]:
        trace = trace.leave(hop.src, hop.kind, hop.sent_ns * factor).arrive(hop.dst, hop.received_ns * factor, 10)
    for mark in case_2_trace().marks:
        trace = trace.mark(mark.server, mark.label, mark.at_ns * factor)
    return read_transfer(view(trace, transfer_id=trace.transfer_id, epoch=epoch, counters={"requests": factor}))


def result(measured: list[Measured], **changes: Any) -> CaseResult:
    fields: dict[str, Any] = {
        "failures": {},
        "raft_rounds": 7,
        "gaps_ticks": {(BALL, 2, 0): 0, (BALL, 3, 0): 2, (BALL, 4, 0): 5, ("alpha.other", 2, 0): 99},
    }
    return case_result("2", None, "rest", "3", 3, measured, **fields | changes)


def test_a_case_summarises_its_transfers() -> None:
    case = result([slowed(1), slowed(2, epoch=3), slowed(3, epoch=4)])
    assert (case.transfers, case.failed, case.raft_rounds, case.retransmissions) == (3, 0, 7, 3)
    assert case.latencies_ms == (8.0, 16.0, 24.0)
    assert (case.latency_ms.p50, case.latency_ms.max) == (16.0, 24.0)
    assert case.phases_ms.commit == 3.0
    assert case.bytes_p50 == 30.0
    assert case.on_path == {"handoff": 1.0, "grant": 1.0, "activated": 1.0}
    assert case.off_path == {"state": 1.0, "http_reply": 1.0}


def test_hops_that_differ_from_the_formula_show() -> None:
    case = result([slowed(1), slowed(2, hops=5)])
    assert (case.expected_hops, case.measured_hops.min, case.measured_hops.max) == (3, 3, 5)


def repeated(factor: int, *, hops: int, epoch: int) -> Measured:
    """One of which home was asked again when it had decided."""
    return replace(slowed(factor, hops=hops, epoch=epoch), repeated=True)


def test_what_took_a_repetition_is_counted_and_in_no_number_of_hops_or_times() -> None:
    plain = [slowed(1), slowed(2, epoch=3)]
    case = result([*plain, repeated(1000, hops=1, epoch=4)])
    assert (case.transfers, case.repeated, case.failed) == (3, 1, 0)
    alone = result(plain)
    of_all = {"transfers": 3, "repeated": 1, "gap_ticks": TickGap(p50=2, max=5), "retransmissions": 1 + 999}
    assert case == alone.model_copy(update=of_all), "hops, latency, phases, messages and bytes are those of the others"


def test_wrong_hops_show_also_beside_repeated_transfers() -> None:
    case = result([slowed(1, hops=5), repeated(2, hops=3, epoch=3)])
    assert (case.measured_hops.min, case.measured_hops.max) == (5, 5)
    assert case_problems(case) == ("3 expects 3 hops, measured 5",)


def test_where_all_took_a_repetition_nothing_was_measured_and_the_run_has_not_passed() -> None:
    case = result([repeated(1, hops=3, epoch=2)])
    assert (case.transfers, case.repeated, case.measured_hops.min, case.latency_ms.p50) == (1, 1, None, None)
    (problem,) = case_problems(case)
    assert problem.startswith("all of 1 transfer took a repetition, so there is nothing to compare with 3")


def test_gaps_are_those_of_the_stints_that_these_transfers_began() -> None:
    assert result([slowed(1), slowed(2, epoch=3), slowed(3, epoch=4)]).gap_ticks == TickGap(p50=2, max=5)
    assert result([slowed(1, epoch=9)]).gap_ticks == TickGap(), "a stint of which no tick is known"


def test_failures_are_counted_by_reason() -> None:
    case = result([slowed(1)], failures={"rule_changed": 2, "not_done_in_time": 1})
    assert (case.transfers, case.failed) == (1, 3)
    assert case.failures == {"rule_changed": 2, "not_done_in_time": 1}


def test_a_case_without_a_single_transfer_has_no_numbers() -> None:
    case = result([], failures={"not_done_in_time": 4})
    assert (case.transfers, case.failed, case.sample, case.bytes_p50) == (0, 4, None, None)
    assert case.latency_ms.p50 is None
    assert case.measured_hops.min is None
    assert case.gap_ticks == TickGap()


# --- the transfer that is drawn ---------------------------------------------------------------------------------------


def test_the_transfer_of_median_latency_is_drawn() -> None:
    case = result([slowed(5), slowed(1), slowed(3)])
    assert case.sample is not None
    assert case.sample.transfer_id == "transfer-3"


def test_the_drawing_shows_the_hops_in_order_and_the_state_beside_them() -> None:
    sample = result([read_transfer(view())]).sample
    assert sample is not None
    assert [(hop.number, hop.src, hop.dst, hop.on_path) for hop in sample.hops] == [
        (1, "alpha.s1", "alpha.h1", True),
        (2, "alpha.h1", "alpha.s2", True),
        (3, "alpha.s2", "alpha.s1", True),
        (0, "alpha.s1", "alpha.s2", False),
    ]
    assert (sample.hops[-1].sent_ns, sample.hops[-1].received_ns) == (2 * MS, 4 * MS)
    assert [mark.label for mark in sample.marks] == ["frozen", "committed", "staged", "activated", "retired"]


def test_a_state_that_is_noted_as_sent_after_it_was_staged_is_drawn_as_instant() -> None:
    """The sender notes it when the link has taken it, which the receiver may overtake."""
    trace = case_2_trace()
    marks = tuple(mark for mark in trace.marks if mark.label != "state_sent")
    late = Trace(trace.transfer_id, trace.hops, marks).mark("alpha.s1", "state_sent", 6 * MS)
    sample = result([read_transfer(view(late))]).sample
    assert sample is not None
    assert (sample.hops[-1].sent_ns, sample.hops[-1].received_ns) == (4 * MS, 4 * MS)


def test_in_a_direct_pass_the_state_is_on_the_path_and_not_beside_it() -> None:
    trace = Trace("transfer-1").mark("alpha.s1", "frozen", 0)
    trace = trace.leave("alpha.s1", "direct", 1 * MS).arrive("alpha.s2", 3 * MS, 1000)
    trace = trace.mark("alpha.s2", "staged", 4 * MS).mark("alpha.s2", "activated", 6 * MS)
    trace = trace.leave("alpha.s2", "activated", 7 * MS).arrive("alpha.s1", 8 * MS, 500)
    measured = read_transfer(view(trace, sub=1, off_path={}))
    assert (measured.hops, measured.phases_ms) == (2, {"request": 3.0, "state": 4.0, "activation": 2.0})
    sample = result([measured]).sample
    assert sample is not None
    assert [hop.kind for hop in sample.hops] == ["direct", "activated"]
