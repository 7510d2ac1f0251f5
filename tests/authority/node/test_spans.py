"""Spans of hand-overs: each start has one stop, what nobody wants to know costs nothing, and ids need no message."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.core.telemetry import HANDLER_FAILED, Event, Telemetry
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.node import spans as module
from batonpass.authority.node.spans import (
    ARRIVAL,
    DECISION,
    DEPARTURE,
    SILENT,
    SPANS,
    OpenSpan,
    Spans,
    reason_of,
    span_id,
    takeover_id,
    trace_id,
)

EVENTS = [(*prefix, word) for prefix in SPANS for word in ("start", "stop")]


class Ear:
    """Somebody who listens to the spans of `alpha.s1`, whose clock stands at `now_ns`."""

    def __init__(self, events: list[Event] | None = None) -> None:
        self.now_ns = 0
        self.telemetry = Telemetry(lambda: self.now_ns / 1e9)
        self.heard: list[tuple[Event, Mapping[str, float], Mapping[str, Any]]] = []
        self.spans = Spans(self.telemetry, "alpha.s1", lambda: self.now_ns)
        if events != []:
            self.telemetry.attach("ear", events or EVENTS, self.hear)

    def hear(self, event: Event, measurements: Mapping[str, float], metadata: Mapping[str, Any], _: Any) -> None:
        self.heard.append((event, measurements, metadata))

    def outcomes(self) -> list[str]:
        return [metadata["outcome"] for event, _, metadata in self.heard if event[-1] == "stop"]


def test_a_span_tells_start_and_stop_with_all_its_metadata() -> None:
    ear = Ear()
    span = ear.spans.start(DEPARTURE, 2_000_000_000, {"state_bytes": 3}, transfer_id="t-1", fence=Fence(4, 1))
    span.stop(2_500_000_000, "retired", {"hops": 3}, case="2")
    (start, stop) = ear.heard
    common = {"server": "alpha.s1", "span": 1, "transfer_id": "t-1", "entity": "", "source": "", "target": ""}
    common |= {"mode": "", "reason": "", "fence": Fence(4, 1)}
    assert start == (
        ("handover", "departure", "start"),
        {"monotonic_time_s": 2.0, "state_bytes": 3},
        common | {"case": "", "outcome": ""},
    )
    assert stop == (
        ("handover", "departure", "stop"),
        {"monotonic_time_s": 2.5, "duration_s": 0.5, "hops": 3},
        common | {"case": "2", "outcome": "retired"},
    )


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["start", "stop", "again", "raise", "close"]))))
def test_whatever_is_done_with_it_each_start_has_one_stop(steps: list[tuple[int, str]]) -> None:
    ear, spans = Ear(), dict[int, OpenSpan]()
    for which, what in steps:
        span = spans.get(which)
        if what == "close":
            ear.spans.close()
        elif span is None or what == "start":
            spans.setdefault(which, ear.spans.start(ARRIVAL, 0))
        elif what == "raise":
            with pytest.raises(ZeroDivisionError), span:
                _ = 1 / 0
        else:
            span.stop(1, "activated")
    ear.spans.close()
    starts = [metadata["span"] for event, _, metadata in ear.heard if event[-1] == "start"]
    stops = Counter(metadata["span"] for event, _, metadata in ear.heard if event[-1] == "stop")
    assert stops == Counter(starts)
    assert ear.spans.open == 0


def test_a_block_that_fails_stops_its_span_with_the_reason() -> None:
    ear = Ear()
    with pytest.raises(Refused), ear.spans.start(DECISION, 0):
        raise Refused(Reason.LOCKED, "no")
    span = ear.spans.start(DECISION, 0)
    with pytest.raises(ZeroDivisionError), span:
        span.stop(1 // 1, "committed", {"steps": 1 // 0})
    with pytest.raises(KeyError), span:
        raise KeyError
    assert ear.outcomes() == ["failed", "failed"], "the second once"
    assert ear.heard[1][2]["reason"] == "locked"
    assert (reason_of(None), reason_of(KeyError("x"))) == ("", "KeyError")


def test_nobody_is_asked_for_what_nobody_wants_to_know() -> None:
    ear = Ear([])
    assert not any(ear.spans.wants(prefix) for prefix in SPANS)
    ear.telemetry.attach("stops", (*ARRIVAL, "stop"), ear.hear)
    ear.telemetry.attach("starts", (*ARRIVAL, "start"), ear.hear)
    assert [prefix for prefix in SPANS if ear.spans.wants(prefix)] == [ARRIVAL]
    ear.telemetry.detach("stops")
    assert ear.spans.wants(ARRIVAL), "of its starts"
    ear.telemetry.detach("starts")
    assert not ear.spans.wants(ARRIVAL)
    assert not any(SILENT.wants(prefix) for prefix in SPANS)


def test_who_was_attached_before_there_were_spans_is_heard() -> None:
    telemetry = Telemetry(lambda: 0.0)
    telemetry.attach("early", (*DECISION, "start"), lambda *_: None)
    assert Spans(telemetry, "alpha.h1", lambda: 0).wants(DECISION)


def test_a_listener_that_raises_is_detached_and_the_hand_over_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    ear = Ear([])
    failed: list[Any] = []
    ear.telemetry.attach("wrong", EVENTS, lambda *_: 1 / 0)
    ear.telemetry.attach("failures", HANDLER_FAILED, lambda _e, _m, metadata, _c: failed.append(metadata["handler_id"]))
    span = ear.spans.start(DEPARTURE, 0)
    span.stop(0, "retired")
    assert (failed, ear.spans.open, ear.spans.wants(DEPARTURE)) == (["wrong"], 0, False)
    assert "detached" in caplog.text


def test_of_too_many_the_oldest_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    ear = Ear()
    spans = [ear.spans.start(ARRIVAL, 0, transfer_id=str(number)) for number in range(3)]
    assert ear.outcomes() == ["forgotten"]
    for span in spans:
        span.stop(0, "activated")
    assert ear.outcomes() == ["forgotten", "activated", "activated"]


def test_the_ids_of_a_trace_follow_from_the_transfer() -> None:
    # Written down: servers of two releases must agree, and so must whoever computes them elsewhere.
    assert f"{trace_id('transfer-1'):032x}" == "9fda5e517a028c1815956dc3bd2a2e5f"
    assert f"{span_id('transfer-1'):016x}" == "88a2e79526436e92"
    assert takeover_id("alpha.ball", 7) == "takeover alpha.ball 7"


@given(st.text(max_size=64), st.text(max_size=64))
def test_ids_fit_and_differ(one: str, other: str) -> None:
    assert 0 < trace_id(one) < 2**128
    assert 0 < span_id(one) < 2**64
    assert (one == other) == (trace_id(one) == trace_id(other)) == (span_id(one) == span_id(other))
