"""What a server tells Prometheus at `GET /metrics`, in the text form of OpenMetrics (docs/guides/metrics.md).

What happens is counted as it is told through telemetry (`authority.node.spans`). What is so at the moment is read when
it is asked for, by a function of each server (`Reading`). Nothing has the id of an entity, a player or a transfer as a
label: the number of lines does not depend on how many there are.

It needs the library prometheus-client, which the extra `metrics` installs. Without it nothing is counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final, Literal

from batonpass.actors.core.telemetry import Event, Telemetry
from batonpass.actors.observe.metrics import (
    IS_INSTALLED,
    SECONDS,
    CounterMetric,
    DistributionMetric,
    TelemetryMetric,
    TelemetryMetrics,
)
from batonpass.authority.node.spans import ADOPTION, ARRIVAL, DECISION, DEPARTURE, FREEZE, TAKEOVER

try:
    from prometheus_client import ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError:  # pragma: no cover  # the extra is not installed
    Collector = object  # type: ignore[assignment,misc]  # the module is there all the same

__all__ = ["CONTENT_TYPE", "IS_INSTALLED", "PREFIX", "Metrics", "Reading", "open_metrics"]

CONTENT_TYPE: Final = "application/openmetrics-text"
PREFIX: Final = "batonpass_"
_HOPS: Final = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16)
_TICKS: Final = (0, 1, 2, 3, 4, 8, 20, 100, 400)


@dataclass(frozen=True, slots=True)
class Reading:
    """Something that is so now, or was counted since the start; `rows` are values by the values of its one label."""

    name: str
    help: str
    rows: Mapping[str, float]
    label: str = ""
    kind: Literal["gauge", "counter"] = "gauge"

    @staticmethod
    def of(name: str, help_: str, value: float, kind: Literal["gauge", "counter"] = "gauge") -> "Reading":
        """One without a label."""
        return Reading(name, help_, {"": float(value)}, kind=kind)


@dataclass(eq=False)
class _Readings(Collector):
    """What the server reads when it is asked, as the library wants it."""

    read: Callable[[], Iterable[Reading]] = field(default=tuple)
    about: Mapping[str, str] = field(default_factory=dict)

    def collect(self) -> Iterator["Metric"]:
        yield InfoMetricFamily(f"{PREFIX}build", "Which release of what runs here.", dict(self.about))
        for reading in self.read():
            family = CounterMetricFamily if reading.kind == "counter" else GaugeMetricFamily
            metric = family(f"{PREFIX}{reading.name}", reading.help, labels=[reading.label] if reading.label else [])
            for value, number in reading.rows.items():
                metric.add_metric([value] if reading.label else [], number)
            yield metric


def _stop(span: Event) -> Event:
    return (*span, "stop")


def _per_case(
    name: str, help_: str, span: Event, measurement: str, bounds: Sequence[float] = SECONDS
) -> DistributionMetric:
    return DistributionMetric(name, help_, _stop(span), measurement, tags=("case",), bounds=bounds)


_BY_CASE: Final = ("case", "outcome")
_METRICS: Final[tuple[TelemetryMetric, ...]] = (
    CounterMetric("transfers", "Hand-overs that this server was the source of.", _stop(DEPARTURE), tags=_BY_CASE),
    CounterMetric("arrivals", "Hand-overs that this server was the target of.", _stop(ARRIVAL), tags=_BY_CASE),
    CounterMetric("decisions", "Requests that were put to the log.", _stop(DECISION), tags=("outcome",)),
    CounterMetric("takeovers", "Entities of dead servers, looked for.", _stop(TAKEOVER), tags=("outcome",)),
    CounterMetric("adoptions", "Entities that go on here from a copy.", _stop(ADOPTION), tags=("outcome",)),
    _per_case("transfer_freeze_duration_seconds", "From the freeze of an entity to its end.", FREEZE, "duration_s"),
    _per_case(
        "transfer_arrival_duration_seconds", "From the first sight of a state to its end.", ARRIVAL, "duration_s"
    ),
    _per_case("transfer_hops", "Messages that crossed the wire for a hand-over.", DEPARTURE, "hops", _HOPS),
    _per_case("transfer_gap_ticks", "Ticks that came due while it was frozen.", FREEZE, "gap_ticks", _TICKS),
    DistributionMetric("decision_duration_seconds", "From a request to the log's word.", _stop(DECISION), "duration_s"),
)


class Metrics:
    """The metrics of one server: what its telemetry tells, and what it reads when it is asked."""

    def __init__(
        self,
        telemetry: Telemetry,
        about: Mapping[str, str],
        read: Callable[[], Iterable[Reading]],
        more: Sequence[TelemetryMetric] = (),
    ) -> None:
        """`about` are the labels of `batonpass_build_info`; `read` is asked with each scrape."""
        told = TelemetryMetrics(telemetry, (*_METRICS, *more), prefix=PREFIX)
        told.registry.register(_Readings(read, about))
        ProcessCollector(registry=told.registry)
        self.exposition: Final = told.exposition


def open_metrics(
    telemetry: Telemetry,
    name: str,
    role: str,
    read: Callable[[], Iterable[Reading]],
    more: Sequence[TelemetryMetric] = (),
) -> Metrics | None:
    """The metrics of the server `name`, counting from now on, and `more`; None if the library is not installed."""
    about = {"version": version("batonpass"), "server": name, "role": role}
    return Metrics(telemetry, about, read, more) if IS_INSTALLED else None
