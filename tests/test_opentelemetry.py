"""Spans that leave for OpenTelemetry: one move is one trace, over all servers, and whole or not at all."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from batonpass import opentelemetry
from batonpass.actors.core.telemetry import Telemetry
from batonpass.authority.node.config import ConfigError
from batonpass.authority.node.spans import ARRIVAL, DECISION, DEPARTURE, TAKEOVER, Spans, span_id, trace_id
from batonpass.opentelemetry import SpanExport, export

TO_UNIX_NS = 1_700_000_000_000_000_000


class Servers:
    """Servers that tell their spans, and what has left of them."""

    def __init__(self) -> None:
        self._out = InMemorySpanExporter()
        self._now_ns = count(0, 1_000_000)

    def start(self, name: str) -> Spans:
        telemetry = Telemetry(lambda: 0.0)
        spans = Spans(telemetry, name, self._now_ns.__next__)
        SpanExport(telemetry, name, SimpleSpanProcessor(self._out), TO_UNIX_NS)
        return spans

    def move(self, transfer_id: str, outcome: str = "retired") -> None:
        """One move, as the three servers tell it that have a part in it."""
        source, home, target = map(self.start, ("alpha.s1", "alpha.h1", "alpha.s2"))
        departure = source.start(DEPARTURE, next(self._now_ns), transfer_id=transfer_id)
        arrival = target.start(ARRIVAL, next(self._now_ns), transfer_id=transfer_id)
        decision = home.start(DECISION, next(self._now_ns), transfer_id=transfer_id)
        for span, result in ((decision, "committed"), (arrival, "activated"), (departure, outcome)):
            span.stop(next(self._now_ns), result)

    @property
    def left(self) -> tuple[ReadableSpan, ...]:
        return self._out.get_finished_spans()


def of_one_trace(spans: Iterable[ReadableSpan]) -> dict[int, list[ReadableSpan]]:
    found: dict[int, list[ReadableSpan]] = defaultdict(list)
    for span in spans:
        assert span.context is not None
        found[span.context.trace_id].append(span)
    return found


def test_the_spans_of_a_move_are_one_trace_whose_root_is_the_departure() -> None:
    servers = Servers()
    servers.move("t-1")
    (decision, arrival, departure) = servers.left
    assert [span.name for span in servers.left] == ["handover.decision", "handover.arrival", "handover.departure"]
    assert set(of_one_trace(servers.left)) == {trace_id("t-1")}
    assert departure.parent is None
    assert departure.context is not None
    assert departure.context.span_id == span_id("t-1")
    assert {span.parent.span_id for span in (decision, arrival) if span.parent} == {span_id("t-1")}
    assert [span.resource.attributes["service.instance.id"] for span in servers.left] == [
        "alpha.h1",
        "alpha.s2",
        "alpha.s1",
    ]
    assert departure.start_time is not None
    assert departure.start_time >= TO_UNIX_NS
    assert departure.attributes is not None
    assert departure.attributes["batonpass.outcome"] == "retired"
    assert departure.attributes["batonpass.fence"] == (0, 0)


@given(ids=st.sets(st.text(min_size=1), min_size=1, max_size=20), ratio=st.floats(0, 1))
def test_a_sampler_that_goes_by_the_trace_keeps_moves_whole(ids: set[str], ratio: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
        patch.setenv("OTEL_TRACES_SAMPLER_ARG", str(ratio))
        servers = Servers()
        for each in ids:
            servers.move(each)
        kept = of_one_trace(servers.left)
        assert all(len(spans) == 3 for spans in kept.values())
        assert set(kept) <= {trace_id(each) for each in ids}
        assert ratio > 0 or not kept
        assert ratio < 1 or len(kept) == len(ids)


def test_what_was_lost_is_shown_as_failed() -> None:
    servers = Servers()
    home = servers.start("alpha.h1")
    home.start(TAKEOVER, 0, transfer_id="takeover alpha.e1 2").stop(1, "lost", reason="no_copy")
    home.start(TAKEOVER, 2, transfer_id="takeover alpha.e1 3").stop(3, "adopted")
    assert [span.status.status_code for span in servers.left] == [StatusCode.ERROR, StatusCode.UNSET]
    assert servers.left[0].status.description == "no_copy"


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opentelemetry, "_IS_INSTALLED", False)
    with pytest.raises(ConfigError, match=r"pip install 'batonpass\[otel\]'"):
        export(Telemetry(lambda: 0.0), "alpha.s1")
