"""The dashboard in a real browser: in seven tabs, while entities move, a filter is held and a server is killed.

With `BATON_PICTURES=docs/images` the pictures of docs/guides/dashboard.md are made anew.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from operator import ne
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from selenium import webdriver

from batonpass.scenarios.arena.start import ROBOTS, arena_spec, prepare_arena
from batonpass.scenarios.arena.world import TILES
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from tests.axe import violations
from tests.chromium import start_chromium
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, come, limited

pytestmark = limited

S2: Final = "alpha.s2"
TABS: Final = 7
CHANGES: Final = 5
DESKTOP: Final = {"width": 1280, "height": 1400, "deviceScaleFactor": 1, "mobile": False}
PHONE: Final = {"width": 400, "height": 1000, "deviceScaleFactor": 2, "mobile": True}
# What a browser says of a connection that does not open.
_NO_CONNECTION: Final = "net::ERR_"


class DashboardPage:
    """The page, as an operator sees it and uses it."""

    def __init__(self, browser: webdriver.Chrome, pictures: Path) -> None:
        self._browser: Final = browser
        self._pictures: Final = pictures

    async def run(self, script: str, *arguments: Any) -> Any:
        """What a script of the page gives."""
        return await trio.to_thread.run_sync(partial(self._browser.execute_script, script, *arguments))

    async def says(self, script: str, fits: Callable[[Any], object], what: str) -> Any:
        """Wait until an expression of the page is like that."""
        return await come(partial(self.run, f"return ({script})"), fits, what=what)

    async def text(self, name: str, fits: Callable[[Any], object], what: str) -> Any:
        return await self.says(f"document.getElementById('{name}').textContent", fits, what)

    async def rows(self, name: str) -> list[list[str]]:
        """The texts of a table."""
        cells = "[...row.children].map((cell) => cell.textContent)"
        found: list[list[str]] = await self.run(
            f"return [...document.querySelectorAll('#{name} tr')].map((row) => {cells})"
        )
        return found

    async def choose(self, name: str, value: str) -> None:
        """Put a value into a field, as somebody who types."""
        await self.run(
            "const field = document.getElementById(arguments[0]); field.focus(); field.value = arguments[1];"
            "field.dispatchEvent(new Event('input', { bubbles: true }))",
            name,
            value,
        )

    async def click(self, selector: str) -> None:
        await self.run("document.querySelector(arguments[0]).click()", selector)

    async def new_tab(self, url: str) -> None:
        def do() -> None:
            self._browser.switch_to.new_window("tab")
            self._browser.get(url)

        await trio.to_thread.run_sync(do)

    async def looks(self, name: str, metrics: dict[str, Any], scheme: str) -> None:
        """It may be used by everybody like that; a picture of it."""
        await trio.to_thread.run_sync(partial(self._looks, name, metrics, scheme))

    def _looks(self, name: str, metrics: dict[str, Any], scheme: str) -> None:
        self._browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        # A frame is drawn in these colours and this size, and another one, before it is looked at.
        self._browser.execute_async_script(
            "const frame = requestAnimationFrame; frame(() => frame(() => frame(arguments[0])))"
        )
        assert violations(self._browser) == []
        assert not self._browser.execute_script("return document.documentElement.scrollWidth > innerWidth"), name
        self._pictures.mkdir(exist_ok=True)
        assert self._browser.save_screenshot(str(self._pictures / f"{name}.png"))

    def complaints(self) -> list[str]:
        """What the browser complained of, but for connections that did not open."""
        entries = self._browser.get_log("browser")  # type: ignore[no-untyped-call]
        severe = [each["message"] for each in entries if each["level"] == "SEVERE"]
        return [message for message in severe if _NO_CONNECTION not in message]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    driver = start_chromium(tmp_path / "chromium", size="1280,1100")
    driver.set_script_timeout(PATIENCE_S)
    yield driver
    driver.quit()


async def test_seven_tabs_follow_an_instance_of_which_a_server_is_killed(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    wanted = os.environ.get("BATON_PICTURES")
    page = DashboardPage(browser, tmp_path / "pictures" if wanted is None else Path(wanted))
    spec = arena_spec(ClusterSpec(instances={"alpha": 3}, simservers=3, log_level="WARNING"))
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(spec, grace_s=PATIENCE_S) as cluster:
            await prepare_arena(cluster)
            url = f"{cluster.server('alpha.h1').rest_url}/dashboard/"
            await trio.to_thread.run_sync(browser.get, url)
            await _all_is_shown(page)
            await _a_filter_is_held(page)
            await _it_stands_still(page)
            await _a_transfer_in_detail(page)
            for _ in range(TABS - 1):
                await page.new_tab(url)
                await page.text("state", "live".__eq__, "what happens, in another tab")
            await _all_is_shown(page)
            await _a_transfer_in_detail(page)
            await cluster.kill(S2)
            await page.says(_CARD, "down".__eq__, "that it is down")
            await _pictures(page)
            await cluster.kill("alpha.h1")
            await page.text("state", "not connected".__eq__, "that nobody tells anything")
            assert page.complaints() == []


_CARD: Final = f"document.querySelector('#servers [data-key=\"{S2}\"]').className"


async def _all_is_shown(page: DashboardPage) -> None:
    columns, rows = TILES
    await page.text("state", "live".__eq__, "what happens")
    cards = "[...document.querySelectorAll('#servers > *')]"
    well = f"{cards}.map(({{ className, textContent }}) => [className, textContent])"
    await page.says(well, lambda seen: [look for look, _ in seen] == 3 * ["ok"], "all simulation servers are well")
    await page.says("document.querySelectorAll('#members > .ok').length", (3).__eq__, "all homeservers are well")
    await page.text("where", f"1 to 50 of {columns * rows + ROBOTS}".__eq__, "the first page")
    assert len(await page.rows("entity-rows")) == 50
    await page.click("#next")
    await page.text("where", f"51 to {columns * rows + ROBOTS} of {columns * rows + ROBOTS}".__eq__, "the second page")
    await page.click("#previous")
    await page.text("where", f"1 to 50 of {columns * rows + ROBOTS}".__eq__, "the first page again")


async def _changes(page: DashboardPage, count: int) -> None:
    """Wait until the list of transfers has begun with that many others."""
    newest = "document.querySelector('#transfer-rows tr')?.dataset.key ?? ''"
    seen = await page.says(newest, bool, "a transfer")
    for _ in range(count):
        seen = await page.says(newest, partial(ne, seen), "another transfer")


async def _a_filter_is_held(page: DashboardPage) -> None:
    await page.choose("search", "robot")
    await page.text("where", lambda text: text.endswith("of those that fit; 78 in all"), "what fits")
    assert all("robot" in row[0] for row in await page.rows("entity-rows"))
    await page.choose("server", S2)
    # Another one of the same server's robots, or none: nothing of others.
    await page.run("window.held = document.getElementById('server')")
    await _changes(page, CHANGES)
    assert await page.run("return document.activeElement === window.held && window.held.value") == S2
    await page.choose("server", "")
    await page.choose("search", "")


async def _it_stands_still(page: DashboardPage) -> None:
    await page.click("#pause")
    before = await page.rows("transfer-rows")
    await page.text("state", lambda text: text.startswith("paused, ") and int(text.split()[1]) >= CHANGES, "changes")
    assert await page.rows("transfer-rows") == before
    assert await page.run("return document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    await page.click("#pause")
    await page.text("state", "live".__eq__, "that it goes on")
    await _changes(page, 1)


async def _a_transfer_in_detail(page: DashboardPage) -> None:
    done = "[...document.querySelectorAll('#transfer-rows tr')].findLast((row) => row.lastChild.textContent === 'done')"
    await page.says(f"Boolean({done})", bool, "a transfer that is done")
    await page.run(f"{done}.querySelector('a').click()")
    await page.text("detail-title", lambda text: text.startswith("Transfer "), "the transfer")
    label = await page.says("document.querySelector('.lanes')?.getAttribute('aria-label') ?? ''", bool, "its messages")
    assert "handoff from " in label
    assert await page.run("return document.activeElement.id") == "detail-title"
    await page.click("#detail-body a[href^='#entity/']")
    await page.text("detail-title", lambda text: text.startswith("Entity alpha."), "the entity")
    await page.says("document.querySelectorAll('#detail-body li').length", bool, "its transfers")
    await page.click("#detail-body li a")
    await page.text("detail-title", lambda text: text.startswith("Transfer "), "one of them")


async def _pictures(page: DashboardPage) -> None:
    for name, metrics in (("dashboard", DESKTOP), ("dashboard-phone", PHONE)):
        for scheme in ("light", "dark"):
            await page.looks(f"{name}-{scheme}", metrics, scheme)
