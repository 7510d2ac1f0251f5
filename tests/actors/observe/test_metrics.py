"""Metrics from telemetry, against a count by hand; and the poller that has told what nobody tells."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from trio.testing import wait_all_tasks_blocked

from batonpass.actors import ActorSpec, System
from batonpass.actors.core.telemetry import HANDLER_FAILED, SYSTEM_COUNTS, Telemetry
from batonpass.actors.observe.metrics import (
    CounterMetric,
    DistributionMetric,
    LastValueMetric,
    SummaryMetric,
    SumMetric,
    TelemetryMetric,
    TelemetryMetrics,
)
from batonpass.actors.observe.poller import PollerSettings, TelemetryPoller, measure_system
from batonpass.testing.actors import ActorKit, actor_test
from tests.budget import examples

PAID = ("shop", "order", "paid")
BOUNDS = (1.0, 10.0)
TAGS = ("country",)


def samples(metrics: TelemetryMetrics) -> dict[tuple[str, str], float]:
    """What is exposed, by name and the value of the one tag, with the bound of a histogram after it."""
    text = metrics.exposition()[0].decode()
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # the library's
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def of_all_kinds(**options: Any) -> list[TelemetryMetric]:
    kinds: list[TelemetryMetric] = [
        CounterMetric("orders", "h", PAID, tags=TAGS, **options),
        SumMetric("money", "h", PAID, "price", tags=TAGS, **options),
        LastValueMetric("latest", "h", PAID, "price", tags=TAGS, **options),
        SummaryMetric("prices", "h", PAID, "price", tags=TAGS, **options),
        DistributionMetric("spread", "h", PAID, "price", tags=TAGS, bounds=BOUNDS, **options),
    ]
    return kinds


PRICES = st.one_of(st.none(), st.just(math.nan), st.integers(-20, 20).map(float))
EVENTS = st.lists(st.tuples(PRICES, st.sampled_from([None, "at", "nl", "not here"])), max_size=20)


@settings(max_examples=examples(200))
@given(events=EVENTS)
def test_what_is_told_is_counted_as_by_hand(events: list[tuple[float | None, str | None]]) -> None:
    telemetry = Telemetry(lambda: 0.0)
    metrics = TelemetryMetrics(telemetry, of_all_kinds(keep=_is_here))
    for price, country in events:
        tags = {} if country is None else {"country": country}
        telemetry.execute(PAID, {} if price is None else {"price": price}, tags)
        telemetry.execute((*PAID, "elsewhere"), {"price": 1000.0}, {"country": "at"})
    orders: dict[str, int] = defaultdict(int)
    prices: dict[str, list[float]] = defaultdict(list)
    for price, country in events:
        if country in {"at", "nl"}:
            orders[country] += 1
            if price is not None and not math.isnan(price):
                prices[country].append(price)
    expected: dict[tuple[str, str], float] = {("orders_total", country): count for country, count in orders.items()}
    for country, of_it in prices.items():
        expected |= {("money", country): sum(of_it), ("latest", country): of_it[-1]}
        rising = [price for price in of_it if price >= 0]
        within = {f"{country},{bound}": sum(price <= bound for price in rising) for bound in BOUNDS}
        expected |= {("spread_bucket", bound): count for bound, count in within.items()}
        expected |= {("spread_bucket", f"{country},+Inf"): len(rising)}
        for name in ("prices", "spread"):
            expected |= {(f"{name}_count", country): len(rising), (f"{name}_sum", country): sum(rising)}
    assert samples(metrics) == expected


def _is_here(metadata: Mapping[str, Any]) -> bool:
    return metadata.get("country") != "not here"


def test_measurements_and_tags_may_be_made_of_what_is_told() -> None:
    telemetry = Telemetry(lambda: 0.0)

    def with_tax(measurements: Mapping[str, float], metadata: Mapping[str, Any]) -> float:
        return measurements["price"] * (1 + float(metadata["tax"]))

    def continent(metadata: Mapping[str, Any]) -> dict[str, str]:
        return {"country": "europe"}

    gross = SumMetric("gross", "h", PAID, with_tax, tags=TAGS, tag_values=continent)
    metrics = TelemetryMetrics(telemetry, [gross], prefix="shop_")
    telemetry.execute(PAID, {"price": 100.0}, {"tax": 0.5})
    assert samples(metrics) == {("shop_gross", "europe"): 150.0}
    metrics.detach()
    assert telemetry.list_handlers() == []


def test_a_metric_that_fails_is_detached_alone_and_reported() -> None:
    telemetry, failed = Telemetry(lambda: 0.0), list[Any]()
    telemetry.attach("failures", HANDLER_FAILED, lambda _e, _m, metadata, _c: failed.append(metadata["handler_id"][1]))

    def fails(metadata: Mapping[str, Any]) -> bool:
        raise ValueError("a mistake")

    metrics = TelemetryMetrics(telemetry, [CounterMetric("a", "h", PAID, keep=fails), CounterMetric("b", "h", PAID)])
    for _ in range(2):
        telemetry.execute(PAID, {}, {})
    assert failed == ["a"]
    assert samples(metrics)["b_total", ""] == 2.0


def test_two_hubs_and_two_readers_of_one_do_not_disturb_each_other() -> None:
    one, other = Telemetry(lambda: 0.0), Telemetry(lambda: 0.0)
    readers = [TelemetryMetrics(hub, [CounterMetric("orders", "h", PAID)]) for hub in (one, one, other)]
    one.execute(PAID, {}, {})
    assert [samples(reader)["orders_total", ""] for reader in readers] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "wrong", [[PAID], ["orders"], CounterMetric("orders", "h", PAID), [CounterMetric("orders", "h", PAID)] * 2]
)
def test_what_is_no_metric_is_refused_and_nothing_attached(wrong: Any) -> None:
    telemetry = Telemetry(lambda: 0.0)
    with pytest.raises((TypeError, ValueError)):
        TelemetryMetrics(telemetry, wrong)
    assert telemetry.list_handlers() == []


def test_without_the_library_it_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.actors.observe.metrics.IS_INSTALLED", False)
    with pytest.raises(ModuleNotFoundError, match=r"batonpass\[metrics\]"):
        TelemetryMetrics(Telemetry(lambda: 0.0), [])


# The poller


@actor_test
async def test_a_poller_measures_at_once_and_then_every_few_seconds(kit: ActorKit) -> None:
    told = list[float]()
    kit.system.telemetry.attach("told", SYSTEM_COUNTS, lambda _e, counts, _m, _c: told.append(counts["actors"]))
    poller = await kit.start_supervised(TelemetryPoller, PollerSettings(period_s=5.0))
    await kit.probe.refute_receive(object, timeout_s=11.0)
    assert len(told) == 3
    assert told[0] == kit.system.stats.actors
    assert poller.alive


@actor_test
async def test_a_measurement_that_fails_is_asked_no_more(kit: ActorKit) -> None:
    asked = list[str]()

    def fails(system: System) -> None:
        asked.append("fails")
        raise ValueError("a mistake")

    def works(system: System) -> None:
        asked.append("works")

    poller = await kit.start_supervised(TelemetryPoller, PollerSettings([fails, works], 1.0))
    await kit.probe.refute_receive(object, timeout_s=2.5)
    assert asked == ["fails", "works", "works", "works"]
    assert poller.alive


def test_a_poller_without_a_period_is_refused() -> None:
    with pytest.raises(ValueError, match="period_s of a poller"):
        PollerSettings([measure_system], 0.0)


async def test_a_poller_is_a_child_like_any_other_and_feeds_metrics(system: System) -> None:
    metrics = TelemetryMetrics(system.telemetry, [LastValueMetric("actors", "h", SYSTEM_COUNTS, "actors")])
    await system.start_child(ActorSpec("poller", TelemetryPoller, PollerSettings()))
    await wait_all_tasks_blocked()
    assert samples(metrics)["actors", ""] == system.stats.actors
