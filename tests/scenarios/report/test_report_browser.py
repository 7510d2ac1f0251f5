"""The page in a real browser, opened from disk: nothing is fetched, nothing complains, everything is drawn and fits.

With `BATON_PICTURES=docs/images` the pictures of docs/reference/report.md are made anew, and that of flights.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from batonpass.scenarios.followers.page import followers_page
from batonpass.scenarios.followers.run import FollowersPlan
from batonpass.scenarios.lockstep.plan import make_lockstep_plan
from batonpass.scenarios.lockstep.summary import SeenMove, lockstep_report
from batonpass.scenarios.report.html import write_cases_page
from batonpass.scenarios.report.lockstep_page import lockstep_page
from batonpass.scenarios.report.model import CasesReport, LockstepReport, RunFacts
from batonpass.scenarios.scenes.page import scenes_page
from batonpass.scenarios.timeline.page import timeline_page
from batonpass.scenarios.timeline.peer_process import PeerFound, Reworked
from batonpass.scenarios.timeline.run import TimelinePlan, TimelineResult
from tests.axe import violations
from tests.chromium import keep_picture, start_chromium
from tests.scenarios.airspace.test_airspace import picture_of_flights
from tests.scenarios.factories import MACHINE, STARTED_AT, VERSIONS, make_report
from tests.scenarios.followers.test_followers_page import result_of
from tests.scenarios.lockstep.test_lockstep_judge import FACTS, LAST, good
from tests.scenarios.report.test_report_html import LARGEST_PAGE_BYTES
from tests.scenarios.scenes.test_scenes_judge import result as scenes_result

REPORT = make_report()
DESKTOP = {"width": 1180, "height": 2900, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 400, "height": 2600, "deviceScaleFactor": 2, "mobile": True}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = start_chromium(tmp_path_factory.mktemp("chromium"), size="1280,1000")
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def requests_made(browser: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Open the page, and give the addresses it asked for."""
    path = tmp_path_factory.mktemp("report") / "cases.html"
    write_cases_page(path, REPORT)
    return open_page(browser, path)


def open_page(browser: webdriver.Chrome, path: Path) -> list[str]:
    """The addresses that the page at `path` asked for, itself among them (the browser's own pages are left out)."""
    browser.get(path.as_uri())
    events = [json.loads(entry["message"])["message"] for entry in log(browser, "performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [request["request"]["url"] for request in sent if request["documentURL"].startswith(path.as_uri())]


def log(browser: webdriver.Chrome, kind: str) -> list[dict[str, Any]]:
    """What the browser logged since it was last asked."""
    entries: list[dict[str, Any]] = browser.get_log(kind)  # type: ignore[no-untyped-call]  # selenium has no types here
    return entries


def count(browser: webdriver.Chrome, selector: str) -> int:
    found: int = browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector)
    return found


def texts(browser: webdriver.Chrome, selector: str) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(element => element.textContent)", selector
    )
    return found


def test_the_page_asks_for_itself_and_nothing_else(browser: webdriver.Chrome, requests_made: list[str]) -> None:
    fetched = [url for url in requests_made if not url.startswith(("data:", "blob:"))]
    assert len(fetched) == 1, fetched
    assert fetched[0].startswith("file://")


@pytest.mark.usefixtures("requests_made")
def test_the_console_stays_silent(browser: webdriver.Chrome) -> None:
    assert log(browser, "browser") == []


@pytest.mark.usefixtures("requests_made")
def test_the_table_shows_every_case_with_expected_and_measured_hops(browser: webdriver.Chrome) -> None:
    assert count(browser, "#results-table tbody tr") == len(REPORT.cases)
    measured = texts(browser, "#results-table tbody td.right")
    assert measured == [str(case.expected_hops) for case in REPORT.cases]
    assert texts(browser, "#invariants-table td") == ["0"] * 5
    assert "Passed" in texts(browser, "#verdict")[0]


@pytest.mark.usefixtures("requests_made")
def test_every_timeline_has_an_arrow_for_each_message_and_a_number_for_each_hop(browser: webdriver.Chrome) -> None:
    for position, case in enumerate(REPORT.cases):
        assert case.sample is not None
        chart = f"#timeline-{position}"
        assert count(browser, f"{chart} line[marker-end]") == len(case.sample.hops)
        assert texts(browser, f"{chart} .plot .key") == [str(number) for number in range(1, case.expected_hops + 1)]
        (_, *marks) = texts(browser, f"{chart} .label")
        assert sorted(marks) == sorted(mark.label for mark in case.sample.marks)
        servers = {name for hop in case.sample.hops for name in (hop.src, hop.dst)}
        assert set(texts(browser, f"{chart} .row")) == servers


@pytest.mark.usefixtures("requests_made")
def test_an_arrow_goes_down_from_the_first_lifeline_and_forward_in_time(browser: webdriver.Chrome) -> None:
    width, height = browser.execute_script(
        "const box = document.querySelector('#timeline-0 line[marker-end]').getBBox(); return [box.width, box.height]"
    )
    assert width > 0
    assert height > 0


_SEEN = """
const box = (element) => element.getBoundingClientRect();
const shown = [...document.querySelectorAll("h1, .chart text, .chart line, .chart rect, .chart circle")];
const words = (chart) => [...chart.querySelectorAll(".plot .label, .plot .row, .plot > .tick")];
const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
return {
  overflow: document.documentElement.scrollWidth - arguments[0],
  outside: shown.filter((each) => box(each).left < 0 || box(each).right > arguments[0]).map((each) => each.outerHTML),
  charts: [...document.querySelectorAll(".chart .plot")].map((plot) => [box(plot).width, box(plot).height]),
  bars: [...document.querySelectorAll("#hops-by-kind .block")].filter((each) => box(each).width > 0).length,
  covered: [...document.querySelectorAll(".chart")].flatMap((chart) => words(chart).flatMap((one, at, all) =>
    all.slice(at + 1).filter((other) => meet(box(one), box(other))).map((other) => one.textContent + other.textContent)
  )),
  ink: getComputedStyle(document.querySelector("h1")).color,
  size: Math.min(...shown.map((each) => parseFloat(getComputedStyle(each).fontSize))),
};
"""


@pytest.mark.usefixtures("requests_made")
@pytest.mark.parametrize(
    ("name", "metrics", "scheme", "ink"),
    [
        ("report", DESKTOP, "light", "rgb(27, 35, 48)"),
        ("report-phone-dark", PHONE, "dark", "rgb(230, 234, 240)"),
    ],
)
def test_everything_fits_and_is_readable(
    browser: webdriver.Chrome, tmp_path: Path, name: str, metrics: dict[str, Any], scheme: str, ink: str
) -> None:
    features: dict[str, Any] = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        seen = browser.execute_script(_SEEN, metrics["width"])
        assert seen["overflow"] <= 0
        assert seen["outside"] == []
        assert seen["covered"] == []
        assert len(seen["charts"]) == 2 + 2 * len(REPORT.cases)
        assert all(width > metrics["width"] * 0.8 and height > 100 for width, height in seen["charts"])
        assert seen["bars"] == sum(len(case.hops_per_transfer_by_kind()) + len(case.off_path) for case in REPORT.cases)
        assert (seen["ink"], seen["size"]) == (ink, 11)
        assert violations(browser) == []
        pictures = Path(os.environ.get("BATON_PICTURES", tmp_path))
        assert browser.save_screenshot(str(pictures / f"{name}.png"))
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.usefixtures("requests_made")
def test_names_that_look_like_markup_are_shown_as_text(browser: webdriver.Chrome, tmp_path: Path) -> None:
    evil = "<img src=https://example.invalid/x onerror=alert(1)>"
    report: CasesReport = make_report()
    sample = report.cases[0].sample
    assert sample is not None
    hops = tuple(hop.model_copy(update={"src": evil}) if hop.number == 1 else hop for hop in sample.hops)
    case = report.cases[0].model_copy(
        update={"sample": sample.model_copy(update={"hops": hops}), "off_path": {evil: 1.0}}
    )
    write_cases_page(tmp_path / "evil.html", report.model_copy(update={"cases": (case,)}))
    assert not [url for url in open_page(browser, tmp_path / "evil.html") if url.startswith("http")]
    assert evil in texts(browser, "#timeline-0 .row")
    assert count(browser, "img") == 0
    assert log(browser, "browser") == []


def handed_over() -> LockstepReport:
    moves = [
        SeenMove("hand-over", "alpha.s1", "alpha.s2", 0.1, 0.3),
        SeenMove("failover", "alpha.s2", "alpha.s1", 1.0, 1.4),
        SeenMove("hand-over", "alpha.s1", "alpha.s2", 1.9, 2.0),
    ]
    return lockstep_report(make_lockstep_plan(2, 2.0, 7), good(), moves, LAST, 0.0, FACTS)


def made_up_timeline() -> TimelineResult:
    """Two peers, and frames enough to be many."""
    late = [Reworked(1, at % 37, 3 + at % 5, 40 + at % 90, 400) for at in range(3_000)]
    became = ("same", "other", "new", "gone")
    peers = tuple(
        PeerFound(
            f"peer-{number}",
            digest="5eed",
            reworked=late,
            frames_ms=[0.4 + at % 50 / 10 for at in range(3_000)],
            settled_frames_ms=[0.1 + at % 20 / 50 for at in range(3_000)],
            cone=[(at, at % 60, "Kick", became[at % 4]) for at in range(800)],
        )
        for number in (1, 2)
    )
    facts = RunFacts(versions=VERSIONS, seed=7, machine=MACHINE, started_at=STARTED_AT)
    return TimelineResult(TimelinePlan(), facts, peers)


OTHERS: dict[str, Callable[[], str]] = {
    "followers": partial(followers_page, result_of(FollowersPlan(followers=1, loss=0.02))),
    "lockstep": partial(lockstep_page, handed_over()),
    "scenes": partial(scenes_page, scenes_result()),
    "timeline": partial(timeline_page, made_up_timeline()),
}


@pytest.mark.parametrize(("name", "charts"), [("followers", 0), ("lockstep", 4), ("scenes", 3), ("timeline", 3)])
def test_the_other_pages_fit_a_telephone_and_ask_for_nothing(
    browser: webdriver.Chrome, tmp_path: Path, name: str, charts: int
) -> None:
    path = tmp_path / f"{name}.html"
    path.write_text(OTHERS[name](), encoding="utf-8")
    assert path.stat().st_size < LARGEST_PAGE_BYTES
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        assert [url for url in open_page(browser, path) if not url.startswith("data:")] == [path.as_uri()]
        seen = browser.execute_script(_SEEN, PHONE["width"])
        assert (seen["overflow"], seen["outside"], seen["covered"]) == (0, [], [])
        assert len(seen["charts"]) == charts
        assert all(width > PHONE["width"] * 0.8 and height > 100 for width, height in seen["charts"])
        assert violations(browser) == []
        assert log(browser, "browser") == []
        assert browser.save_screenshot(str(tmp_path / f"{name}.png"))
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_picture_of_an_airspace_is_drawn_and_asks_for_nothing(browser: webdriver.Chrome, tmp_path: Path) -> None:
    path = tmp_path / "airspace.svg"
    path.write_text(picture_of_flights(), encoding="utf-8")
    browser.set_window_size(720, 950)
    assert open_page(browser, path) == [path.as_uri()]
    assert count(browser, "polyline") >= 40
    assert count(browser, "line") == 20
    assert log(browser, "browser") == []
    keep_picture(browser, "airspace")
