"""The page in a real browser, opened from disk: nothing is fetched, nothing complains, everything is drawn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from batonpass.scenarios.followers.page import followers_page
from batonpass.scenarios.followers.run import FollowersPlan
from batonpass.scenarios.report.html import write_cases_page
from batonpass.scenarios.report.model import CasesReport
from tests.chromium import start_chromium
from tests.scenarios.factories import make_report
from tests.scenarios.followers.test_followers_page import result_of

REPORT = make_report()
DRAWING_TIMEOUT_S = 150


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = start_chromium(tmp_path_factory.mktemp("chromium"), size="1280,1000")
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def requests_made(browser: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Open the page, wait until it says that everything is drawn, and give the addresses it asked for."""
    path = tmp_path_factory.mktemp("report") / "cases.html"
    write_cases_page(path, REPORT)
    return open_page(browser, path)


def open_page(browser: webdriver.Chrome, path: Path) -> list[str]:
    """The addresses that the page at `path` asked for, itself among them (the browser's own pages are left out)."""
    browser.get(path.as_uri())
    WebDriverWait(browser, DRAWING_TIMEOUT_S).until(
        lambda driver: driver.execute_script("return document.documentElement.dataset.drawn === 'yes'")
    )
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
def test_every_case_has_a_latency_histogram_with_three_percentile_lines(browser: webdriver.Chrome) -> None:
    for position, _ in enumerate(REPORT.cases):
        chart = f"#latency-{position}"
        assert count(browser, f"{chart} svg.main-svg") > 0
        assert count(browser, f"{chart} .barlayer .point path") > 5
        assert count(browser, f"{chart} .shapelayer path") == 3
        assert [text.split()[0] for text in texts(browser, f"{chart} .annotation-text")] == ["p50", "p95", "p99"]


@pytest.mark.usefixtures("requests_made")
def test_every_timeline_has_an_arrow_for_each_message_and_a_number_for_each_hop(browser: webdriver.Chrome) -> None:
    for position, case in enumerate(REPORT.cases):
        assert case.sample is not None
        chart = f"#timeline-{position}"
        assert count(browser, f"{chart} .scatterlayer .trace path.js-line") == len(case.sample.hops)
        numbers = [text for text in texts(browser, f"{chart} .textpoint text") if text.isdigit()]
        assert numbers == [str(number) for number in range(1, case.expected_hops + 1)]
        marks = [text for text in texts(browser, f"{chart} .textpoint text") if not text.isdigit()]
        assert sorted(marks) == sorted(mark.label for mark in case.sample.marks)


@pytest.mark.usefixtures("requests_made")
def test_every_timeline_has_a_lifeline_for_each_server(browser: webdriver.Chrome) -> None:
    for position, case in enumerate(REPORT.cases):
        assert case.sample is not None
        servers = {name for hop in case.sample.hops for name in (hop.src, hop.dst)}
        assert set(texts(browser, f"#timeline-{position} .yaxislayer-above text")) == servers


@pytest.mark.usefixtures("requests_made")
def test_arrows_end_at_the_lifeline_of_the_receiver(browser: webdriver.Chrome) -> None:
    """The drawn path of hop 1 goes down from the first lifeline to the second, and forward in time."""
    path = browser.execute_script(
        "const box = document.querySelector('#timeline-0 .scatterlayer .trace path.js-line').getBBox();"
        "return [box.width, box.height]"
    )
    assert path[0] > 0
    assert path[1] > 0


@pytest.mark.usefixtures("requests_made")
def test_hops_by_kind_has_a_bar_for_each_kind_of_each_case(browser: webdriver.Chrome) -> None:
    bars = sum(len(case.hops_per_transfer_by_kind()) + len(case.off_path) for case in REPORT.cases)
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('#hops-by-kind .barlayer .point path')]"
        ".filter(bar => bar.getBBox().width > 0).length"
    )
    assert drawn == bars
    assert count(browser, "#hops-by-kind .scatterlayer .point") == len(REPORT.cases)


@pytest.mark.usefixtures("requests_made")
def test_charts_change_with_the_colour_scheme_of_the_reader(browser: webdriver.Chrome) -> None:
    def ink() -> str:
        colour: str = browser.execute_script(
            "return getComputedStyle(document.querySelector('#latency-0 .xtick text')).fill"
        )
        return colour

    def prefer(scheme: str) -> None:
        features: dict[str, Any] = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    prefer("light")
    WebDriverWait(browser, DRAWING_TIMEOUT_S).until(lambda _: ink() == "rgb(27, 35, 48)")
    prefer("dark")
    WebDriverWait(browser, DRAWING_TIMEOUT_S).until(lambda _: ink() == "rgb(230, 234, 240)")


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
    assert evil in texts(browser, "#timeline-0 .yaxislayer-above text")
    assert count(browser, "img") == 0
    assert log(browser, "browser") == []


def test_the_page_of_followers_fits_a_narrow_window_and_asks_for_nothing(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    path = tmp_path / "followers.html"
    path.write_text(followers_page(result_of(FollowersPlan(followers=1, loss=0.02))), encoding="utf-8")
    wide = browser.get_window_size()
    browser.set_window_size(500, 900)
    try:
        assert open_page(browser, path) == [path.as_uri()]
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert texts(browser, "#reasons-table td:nth-child(2)") == ["passed over", "engine", "never sent"]
        assert count(browser, "#results-table tr") == 9
    finally:
        browser.set_window_size(wide["width"], wide["height"])
