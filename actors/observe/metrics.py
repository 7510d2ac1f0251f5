"""Metrics from telemetry: which events are counted, and how, said once, as data (the contract of `Telemetry.Metrics`).

    metrics = TelemetryMetrics(
        system.telemetry,
        [
            CounterMetric("orders", "Orders that were paid.", ("shop", "order", "paid"), tags=("country",)),
            DistributionMetric("order_duration_seconds", "How long.", ("shop", "order", "stop"), "duration_s"),
        ],
    )
    text, content_type = metrics.exposition()  # what Prometheus reads: `actors.http.metrics_route` serves it

====================  ==================================================  =================
metric                what is kept                                        for Prometheus
====================  ==================================================  =================
`CounterMetric`       how often the event was told                        counter
`SumMetric`           the sum of the measurement, which may fall          gauge
`LastValueMetric`     the measurement that was told last                  gauge
`SummaryMetric`       how many there were, and their sum                  summary
`DistributionMetric`  how many were at most so much, for each bound       histogram
====================  ==================================================  =================

`measurement` is the name of a number of the event, or a function of the event's measurements and metadata. `tags` are
the names of those metadata that become labels; `tag_values` makes them of the metadata first. An event without the
number or a tag, or for which `keep` says no, is not counted. Nor is a negative one in a summary, or in a distribution
without negative bounds: Prometheus takes a sum there that falls for a restart. A function that raises is detached and
reported, with its metric alone, as any handler of telemetry.

It needs the library prometheus-client, which the extra `metrics` installs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from batonpass.actors.core.checks import several
from batonpass.actors.core.telemetry import Event, Telemetry

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
    from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
except ImportError:  # pragma: no cover  # the extra is not installed
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

__all__ = [
    "IS_INSTALLED",
    "SECONDS",
    "CounterMetric",
    "DistributionMetric",
    "LastValueMetric",
    "SumMetric",
    "SummaryMetric",
    "TelemetryMetric",
    "TelemetryMetrics",
]

SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0)
"""Bounds from what a message on a local network takes to when everything has long been given up."""

Measure: TypeAlias = Callable[[Mapping[str, float], Mapping[str, Any]], float | None]


@dataclass(frozen=True, slots=True)
class TelemetryMetric:
    """What all kinds have in common; see the head of the module."""

    name: str
    help: str
    event: Event
    measurement: str | Measure = ""
    tags: Sequence[str] = ()
    tag_values: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    keep: Callable[[Mapping[str, Any]], object] | None = None

    def open(self, name: str, registry: CollectorRegistry) -> Any:
        """The library's object for all values of the tags."""
        raise NotImplementedError(f"{type(self).__name__} is no kind of metric: take one of the five")

    def record(self, child: Any, value: float) -> None:
        """Tell the library's object for one set of tags."""
        raise NotImplementedError

    def value_of(self, measurements: Mapping[str, float], metadata: Mapping[str, Any]) -> float | None:
        """The number to record, if the event has it."""
        measure = self.measurement
        value = measurements.get(measure) if isinstance(measure, str) else measure(measurements, metadata)
        return value if isinstance(value, int | float) and value == value else None  # noqa: PLR0124  # NaN is none


@final
class CounterMetric(TelemetryMetric):
    """How often the event was told, whatever it measures."""

    __slots__ = ()

    def open(self, name: str, registry: CollectorRegistry) -> Any:
        """A counter."""
        return Counter(name, self.help, self.tags, registry=registry)

    def record(self, child: Any, value: float) -> None:
        """One more."""
        child.inc()

    def value_of(self, measurements: Mapping[str, float], metadata: Mapping[str, Any]) -> float:
        """1."""
        return 1.0


@final
class SumMetric(TelemetryMetric):
    """The sum of all measurements."""

    __slots__ = ()

    def open(self, name: str, registry: CollectorRegistry) -> Any:
        """A gauge: a measurement may be negative."""
        return Gauge(name, self.help, self.tags, registry=registry)

    def record(self, child: Any, value: float) -> None:
        """So much more."""
        child.inc(value)


@final
class LastValueMetric(TelemetryMetric):
    """The last measurement."""

    __slots__ = ()

    def open(self, name: str, registry: CollectorRegistry) -> Any:
        """A gauge."""
        return Gauge(name, self.help, self.tags, registry=registry)

    def record(self, child: Any, value: float) -> None:
        """This, from now on."""
        child.set(value)


@final
class SummaryMetric(TelemetryMetric):
    """How many measurements there were, and their sum."""

    __slots__ = ()

    def open(self, name: str, registry: CollectorRegistry) -> Any:
        """A summary."""
        return Summary(name, self.help, self.tags, registry=registry)

    def record(self, child: Any, value: float) -> None:
        """One more, and so much."""
        if value >= 0:
            child.observe(value)


@final
@dataclass(frozen=True, slots=True)
class DistributionMetric(TelemetryMetric):
    """How many measurements were at most so much; `bounds` rise."""

    bounds: Sequence[float] = SECONDS

    def open(self, name: str, registry: CollectorRegistry) -> Any:
        """A histogram."""
        return Histogram(name, self.help, self.tags, buckets=self.bounds, registry=registry)

    def record(self, child: Any, value: float) -> None:
        """One more, within its bounds."""
        if value >= 0 or self.bounds[0] < 0:
            child.observe(value)


@final
class TelemetryMetrics:
    """Metrics of one hub, counted from now on; `registry` is the library's, for what is read rather than told."""

    def __init__(self, telemetry: Telemetry, metrics: Sequence[TelemetryMetric], *, prefix: str = "") -> None:
        """`prefix` comes before every name. Raises `TypeError`, `ValueError` for what the library takes for none.

        Raises `ModuleNotFoundError` without the library.
        """
        if not IS_INSTALLED:
            raise ModuleNotFoundError("metrics need the extra `metrics`: pip install 'batonpass[metrics]'")
        self._telemetry = telemetry
        self.registry: Final = CollectorRegistry()
        opened = [
            (metric, metric.open(prefix + metric.name, self.registry))
            for metric in several(TelemetryMetric, "metrics", metrics)
        ]
        self._ids: Final = [(self, metric.name) for metric, _ in opened]
        for handler_id, (metric, family) in zip(self._ids, opened, strict=True):
            telemetry.attach(handler_id, metric.event, _told, (metric, family))

    def exposition(self) -> tuple[bytes, str]:
        """What there is to tell now, in the text form of OpenMetrics, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST  # type: ignore[no-untyped-call]  # the library's

    def detach(self) -> None:
        """Count no more."""
        for handler_id in self._ids:
            self._telemetry.detach(handler_id)


def _told(
    _event: Event, measurements: Mapping[str, float], metadata: Mapping[str, Any], config: tuple[TelemetryMetric, Any]
) -> None:
    metric, family = config
    if metric.keep is not None and not metric.keep(metadata):
        return
    value = metric.value_of(measurements, metadata)
    values = metadata if metric.tag_values is None else metric.tag_values(metadata)
    if value is None or any(tag not in values for tag in metric.tags):
        return
    metric.record(family.labels(*(values[tag] for tag in metric.tags)) if metric.tags else family, value)
