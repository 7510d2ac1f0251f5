"""`GET /metrics`: what the page promises is told, and nothing else; as many lines for many entities as for none."""

import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.http.app import prepare_app
from batonpass.actors.http.metrics_route import metrics_routes
from batonpass.authority.node import metrics
from batonpass.authority.node.metrics import Metrics, Reading, open_metrics
from batonpass.authority.node.spans import ARRIVAL, DECISION, DEPARTURE, FREEZE, SPANS, TAKEOVER, Spans
from tests.homeserver.served import Home, homeserver_config, new_ports, served

PAGE: Final = Path(__file__).parents[3] / "docs" / "guides" / "metrics.md"
# case, mode and outcome are words of ours, server and member names of servers; no entity, player or transfer.
LABELS: Final = {"case", "outcome", "version", "server", "role", "quantile", "member", "event", "what", "le"}


def promised(*headings: str) -> dict[str, tuple[str, set[str]]]:
    """The kind and the labels of each metric in these parts of the page."""
    parts = {part.partition("\n")[0]: part for part in PAGE.read_text(encoding="utf-8").split("\n## ")}
    rows = [
        row
        for heading in headings
        for row in re.findall(r"^\| `(batonpass_\w+)` \| (\w+) \| ([^|]*)\|", parts[heading], re.M)
    ]
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def told(text: str) -> dict[str, tuple[str, set[str]]]:
    """The same of what a server says; a part of a histogram has its bounds besides. Must be OpenMetrics."""
    found = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]  # the library's
        if family.name.startswith("batonpass_"):
            labels = {label for sample in family.samples for label in sample.labels}
            suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
            found[family.name + suffix] = (family.type, labels - {"le"})
    return found


def agree(page: dict[str, tuple[str, set[str]]], said: dict[str, tuple[str, set[str]]]) -> None:
    assert {name: kind for name, (kind, _) in said.items()} == {name: kind for name, (kind, _) in page.items()}
    for name, (_, labels) in said.items():
        assert labels <= page[name][1] <= LABELS, name


def handed_over(telemetry: Telemetry, transfers: Iterable[int]) -> None:
    """As the servers of hand-overs tell of them, all in one server."""
    spans = Spans(telemetry, "alpha.s1", lambda: 0)
    for number in transfers:
        about = {"transfer_id": f"transfer-{number}", "entity": f"alpha.ball-{number}", "case": "1"}
        for span, outcome, numbers in (
            (DEPARTURE, "retired", {"hops": 5.0}),
            (FREEZE, "retired", {"gap_ticks": 1.0}),
            (ARRIVAL, "activated", {"gap_ticks": 1.0}),
            (DECISION, "committed", {}),
            (TAKEOVER, "adopted", {}),
        ):
            spans.start(span, 0, {}, **about).stop(3_000_000, outcome, numbers)


def of(*readings: Reading) -> tuple[Telemetry, Metrics]:
    telemetry = Telemetry(lambda: 0.0)
    opened = open_metrics(telemetry, "alpha.s1", "simserver", lambda: readings)
    assert opened is not None
    return telemetry, opened


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            await home.simserver("alpha.s1")
            yield home


async def test_the_page_has_what_both_servers_tell_and_nothing_else(home: Home) -> None:
    async with httpx.AsyncClient(base_url=home.api.url) as client:
        answer = await client.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, metrics.CONTENT_TYPE)
    agree(promised("Of both kinds of servers", "Of homeservers"), told(answer.text))
    assert "batonpass_has_leader 1.0" in answer.text
    assert "batonpass_home_servers 2.0" in answer.text
    row = await home.api.get("/v1/servers/alpha.s1")
    async with httpx.AsyncClient(base_url=row["rest_url"]) as client:
        answer = await client.get("/metrics")
    agree(promised("Of both kinds of servers", "Of simulation servers"), told(answer.text))
    assert 'batonpass_build_info{role="simserver",server="alpha.s1"' in answer.text


def test_hand_overs_are_counted_as_they_are_told() -> None:
    telemetry, opened = of()
    handed_over(telemetry, range(3))
    text = opened.exposition()[0].decode()
    for line in (
        'batonpass_transfers_total{case="1",outcome="retired"} 3.0',
        'batonpass_arrivals_total{case="1",outcome="activated"} 3.0',
        'batonpass_decisions_total{outcome="committed"} 3.0',
        'batonpass_takeovers_total{outcome="adopted"} 3.0',
        'batonpass_transfer_hops_bucket{case="1",le="4.0"} 0.0',
        'batonpass_transfer_hops_bucket{case="1",le="5.0"} 3.0',
        'batonpass_transfer_gap_ticks_sum{case="1"} 3.0',
        'batonpass_transfer_freeze_duration_seconds_bucket{case="1",le="0.002"} 0.0',
        'batonpass_transfer_freeze_duration_seconds_bucket{case="1",le="0.005"} 3.0',
    ):
        assert line in text, line


def test_many_hand_overs_have_as_many_lines_as_one() -> None:
    telemetry, opened = of(Reading.of("entities", "Entities.", 1e5))
    handed_over(telemetry, range(1))
    lines = opened.exposition()[0].count(b"\n")
    handed_over(telemetry, range(1, 300))
    text = opened.exposition()[0]
    assert text.count(b"\n") == lines < 300
    assert b"alpha.ball" not in text
    assert b"transfer-1" not in text


def test_no_handler_is_lost_to_what_a_server_may_tell() -> None:
    """A handler that raises is detached for good: whatever is left out of a stop, it counts on."""
    telemetry, opened = of()
    spans = Spans(telemetry, "alpha.s1", lambda: 0)
    for span in SPANS:
        spans.start(span, 0).stop(1, "forgotten")
    assert b'batonpass_transfers_total{case="",outcome="forgotten"} 1.0' in opened.exposition()[0]
    assert telemetry.has_handlers((*DEPARTURE, "stop"))


async def test_without_the_library_a_server_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "IS_INSTALLED", False)
    assert open_metrics(Telemetry(lambda: 0.0), "alpha.h1", "homeserver", tuple) is None
    bare = FastAPI()
    prepare_app(bare)
    metrics_routes(None).add_to(bare)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(bare), base_url="http://localhost") as client:
        answer = await client.get("/metrics")
    assert (answer.status_code, answer.json()["code"]) == (501, "no_metrics")
    assert "pip install 'batonpass[metrics]'" in answer.json()["message"]
