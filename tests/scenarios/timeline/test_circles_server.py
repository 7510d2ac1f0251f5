"""Bouncy circles in a browser: what a visitor throws in the past changes the present."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest
import trio
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.web_service import serve_app
from batonpass.scenarios.timeline.circles_server import (
    MAX_AGO_MS,
    MAX_THROWS_PER_S,
    ThrowBody,
    ThrownCircles,
    keep_up,
    make_circles_app,
)
from tests.chromium import keep_picture, start_chromium

PATIENCE_S = 60


class Clock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def test_a_throw_in_the_past_changes_what_is_later_and_nothing_before() -> None:
    circles = ThrownCircles(Clock(4_000))
    before, then, now = (circles.shown(ago_ms)["circles"] for ago_ms in (2_500, 2_000, 0))
    told = circles.throw(ThrowBody(one=3, x=900, y=-500, ago_ms=2_000))
    assert told["at_ms"] == 2_000
    assert told["executed"] > 1
    assert [circles.shown(ago_ms)["circles"] for ago_ms in (2_500, 2_000)] == [before, then]
    assert circles.shown(0)["circles"] != now


def test_ctrl_c_ends_the_server_quietly_and_a_port_that_is_taken_is_named() -> None:
    # As in a terminal, whatever started these tests.
    program = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('batonpass.scenarios.timeline.circles_server', run_name='__main__')"
    )
    command = [sys.executable, "-c", program, "--port"]
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        port = server.stdout.readline().split("/ until")[0].rpartition(":")[2]
        other = subprocess.run([*command, port], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (other.returncode, other.stdout) == (1, "")
        assert other.stderr.startswith(f"Error: port {port} cannot be had: ")
        assert other.stderr.count("\n") == 1
        server.send_signal(signal.SIGINT)
        assert (server.wait(PATIENCE_S), server.stderr.read()) == (130, "")


async def test_time_passes_while_nobody_looks(autojump_clock: object) -> None:
    proceeded: list[int] = []

    class WatchedCircles(ThrownCircles):
        def proceed(self) -> int:
            proceeded.append(super().proceed())
            return proceeded[-1]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_up, WatchedCircles(lambda: int(trio.current_time() * 1e3)))
        await trio.sleep(8.1)
        nursery.cancel_scope.cancel()
    # So the first one who looks after an hour waits for no more than this.
    assert len(proceeded) > 10
    assert max(later - former for former, later in pairwise(proceeded)) <= 1_000


def test_visitors_throw_so_often_and_no_more() -> None:
    clock = Clock(1_000)
    circles = ThrownCircles(clock)
    for one in range(MAX_THROWS_PER_S):
        circles.throw(ThrowBody(one=one, x=1, y=1, ago_ms=0))
    with pytest.raises(ApiError, match="wait a moment"):
        circles.throw(ThrowBody(one=0, x=1, y=1, ago_ms=0))
    clock.now_ms += 1_000
    circles.throw(ThrowBody(one=0, x=1, y=1, ago_ms=0))


def test_the_past_is_there_as_far_as_visitors_may_look_and_forgotten_beyond() -> None:
    clock = Clock(0)
    circles = ThrownCircles(clock)
    for clock.now_ms in range(0, 3 * MAX_AGO_MS, 500):
        circles.shown(MAX_AGO_MS)
    assert circles.shown(MAX_AGO_MS)["at_ms"] == clock.now_ms - MAX_AGO_MS
    with pytest.raises(ApiError, match="forgotten"):
        circles.shown(2 * MAX_AGO_MS)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = start_chromium(tmp_path_factory.mktemp("chromium"), size="1280,1000")
    yield driver
    driver.quit()


async def test_a_visitor_drags_a_circle_in_the_past_and_the_present_is_another(browser: webdriver.Chrome) -> None:
    # Time does not pass, so that the circle is where it was when the browser comes to it.
    circles = ThrownCircles(Clock(8_000))
    now, then = circles.shown(0)["circles"], circles.shown(3_000)
    complaints: list[str] = []

    def visit(url: str) -> str:
        browser.get(url)
        # What is drawn first is there when the page has its first answer.
        drawn = (
            "return document.getElementById('past').getContext('2d').getImageData(0, 0, 600, 600).data.some(Boolean)"
        )
        WebDriverWait(browser, PATIENCE_S).until(lambda _: browser.execute_script(drawn))
        canvas = browser.find_element(By.ID, "past")
        x, y, _ = then["circles"][3]
        half = canvas.rect["width"] / 2 / then["ring"]
        drag = ActionChains(browser).move_to_element_with_offset(canvas, round(x * half), round(y * half))
        drag.click_and_hold().move_by_offset(60, -40).release().perform()
        said = browser.find_element(By.ID, "said")
        WebDriverWait(browser, PATIENCE_S).until(lambda _: "thrown 3.0 s ago" in said.text)
        text = said.text
        # While the server is there: afterwards, the page complains that it is gone.
        log = browser.get_log("browser")  # type: ignore[no-untyped-call]
        complaints.extend(entry["message"] for entry in log if entry["level"] == "SEVERE")
        keep_picture(browser, "timeline")
        browser.get("about:blank")
        return text

    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(partial(serve_app, make_circles_app(circles), "127.0.0.1", 0))
        said = await trio.to_thread.run_sync(visit, f"{url}/")
        nursery.cancel_scope.cancel()
    assert said.startswith("circle 3 was thrown")
    assert "server" not in said
    assert circles.shown(3_000)["circles"] == then["circles"]
    assert circles.shown(0)["circles"] != now
    assert complaints == []


async def test_the_page_says_when_its_server_is_gone_and_when_it_is_there_again(browser: webdriver.Chrome) -> None:
    app = make_circles_app(ThrownCircles(Clock(8_000)))

    def says(text: str) -> None:
        found = browser.find_element(By.ID, "said")
        WebDriverWait(browser, PATIENCE_S).until(lambda _: found.text.startswith(text))

    port = 0
    for text in ("nothing was thrown yet", "the server answers again"):
        async with trio.open_nursery() as nursery:
            (url,) = await nursery.start(partial(serve_app, app, "127.0.0.1", port))
            if not port:
                port = int(url.rsplit(":", 1)[1])
                await trio.to_thread.run_sync(browser.get, f"{url}/")
            await trio.to_thread.run_sync(says, text)
            nursery.cancel_scope.cancel()
        await trio.to_thread.run_sync(says, "the server gives no circles")
    browser.get("about:blank")
