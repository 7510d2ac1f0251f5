"""What a server tells Prometheus at `GET /metrics`, in the text form of OpenMetrics (docs/guides/metrics.md).

What happens is counted as it is told through telemetry (`authority.node.spans`). What is so at the moment is read when
it is asked for, by a function of each server (`Reading`). Nothing has the id of an entity, a player or a transfer as a
label: the number of lines does not depend on how many there are.

It needs the library prometheus-client, which the extra `metrics` installs. Without it nothing is counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final, Literal

from batonpass.actors.core.telemetry import Event, Telemetry
from batonpass.authority.node.spans import ADOPTION, ARRIVAL, DECISION, DEPARTURE, FREEZE, TAKEOVER

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
    from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
    from prometheus_client.registry import Collector
except ImportError:  # pragma: no cover  # the extra is not installed
    Collector = object  # type: ignore[assignment,misc]  # the module is there all the same
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

__all__ = ["CONTENT_TYPE", "IS_INSTALLED", "PREFIX", "Metrics", "Reading", "open_metrics"]

CONTENT_TYPE: Final = "application/openmetrics-text"
PREFIX: Final = "batonpass_"
_HANDLER: Final = "batonpass.metrics"
# From what a hand-over takes at least to when all its parts have long been given up.
_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0)
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


class Metrics:
    """The counters of one server, fed by its telemetry, and the text that Prometheus reads."""

    def __init__(self, telemetry: Telemetry, about: Mapping[str, str], read: Callable[[], Iterable[Reading]]) -> None:
        """`about` are the labels of `batonpass_build_info`; `read` is asked with each scrape."""
        self._registry: Final = CollectorRegistry()
        self._registry.register(_Readings(read, about))
        ProcessCollector(registry=self._registry)
        by_case = ("case", "outcome")
        self._departures: Final = self._counter("transfers", "Hand-overs that this server was the source of.", by_case)
        self._arrivals: Final = self._counter("arrivals", "Hand-overs that this server was the target of.", by_case)
        self._decisions: Final = self._counter("decisions", "Requests that were put to the log.", ("outcome",))
        self._takeovers: Final = self._counter("takeovers", "Entities of dead servers, looked for.", ("outcome",))
        self._adoptions: Final = self._counter("adoptions", "Entities that go on here from a copy.", ("outcome",))
        frozen, arriving = "From the freeze of an entity to its end.", "From the first sight of a state to its end."
        self._freeze: Final = self._histogram("transfer_freeze_duration_seconds", frozen, _SECONDS)
        self._arrival: Final = self._histogram("transfer_arrival_duration_seconds", arriving, _SECONDS)
        self._hops: Final = self._histogram("transfer_hops", "Messages that crossed the wire for a hand-over.", _HOPS)
        self._gap: Final = self._histogram("transfer_gap_ticks", "Ticks that came due while it was frozen.", _TICKS)
        decided = "From a request to the log's word."
        self._decision: Final = Histogram(
            f"{PREFIX}decision_duration_seconds", decided, buckets=_SECONDS, registry=self._registry
        )
        stops = [(*span, "stop") for span in (DEPARTURE, FREEZE, ARRIVAL, DECISION, TAKEOVER, ADOPTION)]
        telemetry.attach(_HANDLER, stops, self._stopped)

    def exposition(self) -> tuple[bytes, str]:
        """What there is to tell now, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST  # type: ignore[no-untyped-call]  # the library's

    def _counter(self, name: str, help_: str, labels: tuple[str, ...]) -> "Counter":
        return Counter(f"{PREFIX}{name}", help_, labels, registry=self._registry)

    def _histogram(self, name: str, help_: str, buckets: tuple[float, ...]) -> "Histogram":
        return Histogram(f"{PREFIX}{name}", help_, ("case",), buckets=buckets, registry=self._registry)

    def _stopped(self, event: Event, numbers: Mapping[str, float], told: Mapping[str, Any], _config: Any) -> None:
        case, outcome = told["case"], told["outcome"]
        match event[:2]:
            case ("handover", "departure"):
                self._departures.labels(case, outcome).inc()
                if "hops" in numbers:
                    self._hops.labels(case).observe(numbers["hops"])
            case ("handover", "freeze"):
                self._freeze.labels(case).observe(numbers["duration_s"])
                if "gap_ticks" in numbers:
                    self._gap.labels(case).observe(numbers["gap_ticks"])
            case ("handover", "arrival"):
                self._arrivals.labels(case, outcome).inc()
                self._arrival.labels(case).observe(numbers["duration_s"])
            case ("handover", "decision"):
                self._decisions.labels(outcome).inc()
                self._decision.observe(numbers["duration_s"])
            case ("handover", "takeover"):
                self._takeovers.labels(outcome).inc()
            case _:
                self._adoptions.labels(outcome).inc()


def open_metrics(telemetry: Telemetry, name: str, role: str, read: Callable[[], Iterable[Reading]]) -> Metrics | None:
    """The metrics of the server `name`, counting from now on; None if the library is not installed."""
    about = {"version": version("batonpass"), "server": name, "role": role}
    return Metrics(telemetry, about, read) if IS_INSTALLED else None
