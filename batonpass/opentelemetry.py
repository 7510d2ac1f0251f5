"""Spans of hand-overs for OpenTelemetry: one move is one trace, whichever servers have a part in it.

```toml
[telemetry]
handlers = ["batonpass.opentelemetry:export"]
```

The extra `otel` installs what it needs. Where the spans go, the environment says, as the specification of OpenTelemetry
has it: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER` and the others. They leave by
OTLP over HTTP, from a thread of their own.

Nothing travels between servers for this: the ids of a trace and of its root follow from the id of the transfer
(`authority.node.spans.trace_id`). The root is the departure.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from batonpass.actors.core.telemetry import Event, Telemetry
from batonpass.authority.node.config import ConfigError
from batonpass.authority.node.spans import DEPARTURE, SPANS, span_id, trace_id

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    from opentelemetry.sdk.trace.sampling import Decision
except ImportError:  # pragma: no cover  # the extra is not installed
    RandomIdGenerator = object  # type: ignore[assignment,misc]  # the module is there all the same
    _IS_INSTALLED = False
else:
    _IS_INSTALLED = True

__all__ = ["SpanExport", "export"]

_HANDLER: Final = "batonpass.opentelemetry"
# After these outcomes nobody has the entity, or nothing was decided: tracing tools show such spans as failed.
_FAILED: Final = frozenset({"lost", "failed", "unreadable"})


def export(telemetry: Telemetry, name: str) -> None:
    """Have the spans of the server `name` leave by OTLP.

    Raises:
        ConfigError: the extra `otel` is not installed.
    """
    if not _IS_INSTALLED:
        raise ConfigError("spans for OpenTelemetry need the extra otel: pip install 'batonpass[otel]'")
    SpanExport(telemetry, name, BatchSpanProcessor(OTLPSpanExporter()), time.time_ns() - time.monotonic_ns())


class _Ids(RandomIdGenerator):
    """Ids of a departure follow from its transfer, so that every server can compute its parent; all else is random."""

    transfer_id = ""

    def generate_trace_id(self) -> int:
        return trace_id(self.transfer_id) if self.transfer_id else int(super().generate_trace_id())

    def generate_span_id(self) -> int:
        return span_id(self.transfer_id) if self.transfer_id else int(super().generate_span_id())


class SpanExport:
    """The spans of one server that have started, and the way out for those that stop."""

    def __init__(self, telemetry: Telemetry, name: str, out: "SpanProcessor", to_unix_ns: int) -> None:
        """`to_unix_ns` is what the server's monotonic clock lacks to Unix time."""
        self._to_unix_ns: Final = to_unix_ns
        self._ids: Final = _Ids()
        resource = Resource.create({"service.name": "batonpass", "service.instance.id": name})
        provider = TracerProvider(resource=resource, id_generator=self._ids)
        provider.add_span_processor(out)
        self._sampler: Final = provider.sampler
        self._tracer: Final = provider.get_tracer("batonpass")
        # No more than `authority.node.spans.MAX_OPEN`: of each the stop is told.
        self._open: Final[dict[int, trace.Span]] = {}
        telemetry.attach(f"{_HANDLER}.start", [(*span, "start") for span in SPANS], self._started)
        telemetry.attach(f"{_HANDLER}.stop", [(*span, "stop") for span in SPANS], self._stopped)

    def _started(self, event: Event, measurements: Mapping[str, float], metadata: Mapping[str, Any], _: object) -> None:
        transfer_id, span = metadata["transfer_id"], event[:-1]
        is_root = span == DEPARTURE
        parent = trace.INVALID_SPAN
        if transfer_id and not is_root:
            parent = trace.NonRecordingSpan(self._root(transfer_id))
        self._ids.transfer_id = transfer_id if is_root else ""
        self._open[metadata["span"]] = self._tracer.start_span(
            ".".join(span),
            trace.set_span_in_context(parent),
            attributes=_attributes(measurements, metadata),
            start_time=self._unix_ns(measurements),
        )

    def _root(self, transfer_id: str) -> "trace.SpanContext":
        """What the departure is known by. Another server samples it, as this one would: by its trace id."""
        whole = trace_id(transfer_id)
        decision = self._sampler.should_sample(None, whole, ".".join(DEPARTURE)).decision
        kept = decision is Decision.RECORD_AND_SAMPLE
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if kept else trace.TraceFlags.DEFAULT)
        return trace.SpanContext(whole, span_id(transfer_id), is_remote=True, trace_flags=flags)

    def _stopped(self, _: Event, measurements: Mapping[str, float], metadata: Mapping[str, Any], __: object) -> None:
        span = self._open.pop(metadata["span"], None)
        if span is None:
            return
        span.set_attributes(_attributes(measurements, metadata))
        if metadata["outcome"] in _FAILED:
            span.set_status(trace.StatusCode.ERROR, metadata["reason"])
        span.end(self._unix_ns(measurements))

    def _unix_ns(self, measurements: Mapping[str, float]) -> int:
        return round(measurements["monotonic_time_s"] * 1e9) + self._to_unix_ns


def _attributes(measurements: Mapping[str, float], metadata: Mapping[str, Any]) -> dict[str, Any]:
    told = {**metadata, **measurements, "fence": list(metadata["fence"])}
    return {f"batonpass.{key}": value for key, value in told.items() if value != ""}
