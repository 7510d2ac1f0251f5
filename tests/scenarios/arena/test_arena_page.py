"""The arena in a real browser: a robot is driven on while its server is drained, killed and replaced.

With `BATON_PICTURES=docs/images` the pictures of docs/guides/arena.md are made anew.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import trio
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from batonpass.scenarios.arena.start import ROBOTS, arena_spec, prepare_arena
from batonpass.scenarios.arena.world import DEPTH_MM, TILES, WIDTH_MM
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from tests.axe import violations
from tests.chromium import start_chromium
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, answered, come, limited

pytestmark = limited

S1, S2 = "alpha.s1", "alpha.s2"
NEAR_MM: Final = 700
DESKTOP: Final = {"width": 1280, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
PHONE: Final = {"width": 400, "height": 1000, "deviceScaleFactor": 2, "mobile": True}
# A message that a browser has for every connection that does not open.
_NO_CONNECTION: Final = "WebSocket connection to"


# Of each text that is seen: how it stands out from what is behind it, if that is too little (WCAG 2.2, 1.4.3).
_FAINT: Final = """
const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
return [...document.querySelectorAll("body *")]
  .filter((element) => element.checkVisibility() && hasText(element))
  .map((element) => {
    const colours = [parts(getComputedStyle(element).color), behind(element)];
    const [dark, light] = colours.map(luminance).sort((one, other) => one - other);
    return [element.textContent.slice(0, 40), (light + 0.05) / (dark + 0.05)];
  })
  .filter(([, ratio]) => ratio < 4.5);
"""
# What is used and has no name that is read aloud, is not reached with the keyboard, or is too small to be touched.
_UNNAMED: Final = """
const named = (element) => document.getElementById(element.getAttribute("aria-labelledby"))?.textContent;
return [...document.querySelectorAll("button, canvas, [role=region], [role=group], section")]
  .filter((element) => {
    const label = element.getAttribute("aria-label") ?? named(element) ?? element.textContent;
    const { width, height } = element.getBoundingClientRect();
    const isUsed = ["BUTTON", "CANVAS"].includes(element.tagName);
    return !label.trim() || (isUsed && (element.tabIndex < 0 || Math.min(width, height) < 24));
  })
  .map((element) => element.outerHTML.slice(0, 80));
"""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    driver = start_chromium(tmp_path / "chromium", size="1280,1100")
    driver.set_script_timeout(PATIENCE_S)
    yield driver
    driver.quit()


class ArenaPage:
    """The page, as a player sees it and uses it."""

    def __init__(self, browser: webdriver.Chrome, pictures: Path) -> None:
        self._browser: Final = browser
        self._pictures: Final = pictures

    async def run(self, script: str) -> Any:
        """What a script of the page gives."""
        return await trio.to_thread.run_sync(partial(self._browser.execute_script, script))

    async def says(self, script: str, fits: Callable[[Any], object], what: str) -> Any:
        """Wait until an expression of the page is like that."""
        return await come(partial(self.run, f"return ({script})"), fits, what=what)

    async def text(self, name: str, fits: Callable[[Any], object], what: str) -> Any:
        return await self.says(f"document.getElementById('{name}').textContent", fits, what)

    async def key(self, kind: str, code: str) -> None:
        await self.run(f"window.dispatchEvent(new KeyboardEvent('key{kind}', {{code: '{code}', cancelable: true}}))")

    async def drive_to(self, across_mm: int) -> None:
        """Hold the mouse there until the robot is near; it is simulated by whichever server it is."""
        place = await self.says("window.arena?.place ?? null", lambda found: found is not None, "the robot")
        await trio.to_thread.run_sync(self._hold, across_mm, place[1])
        distance = f"Math.abs(window.arena.place[0] - {across_mm})"
        await self.says(distance, lambda far: far < NEAR_MM, f"the robot at {across_mm} mm")
        await trio.to_thread.run_sync(ActionChains(self._browser).release().perform)

    def _hold(self, across_mm: int, along_mm: int) -> None:
        floor = self._browser.find_element(By.ID, "floor")
        # From the middle of the floor.
        share = [across_mm / WIDTH_MM - 0.5, along_mm / DEPTH_MM - 0.5]
        offset = [round(share[0] * floor.size["width"]), round(share[1] * floor.size["height"])]
        ActionChains(self._browser).move_to_element_with_offset(floor, *offset).click_and_hold().perform()

    async def settled(self, earlier: int = 0) -> int:
        """Wait until all that was given is applied; how many inputs that were, by the robot itself.

        It has had `earlier` ones of a page that was there before.
        """
        ours = "(({stream}) => stream.sent - stream.floor)(window.arena.steering)"
        theirs = f"window.arena.robots.entities.get(window.arena.robot).state.n - {earlier}"
        stands = "window.arena.given.join() === '0,0' && !window.arena.steering.waiting"
        _, given = await self.says(f"[{theirs}, {stands} ? {ours} : -1]", lambda two: two[0] == two[1], "all inputs")
        assert await self.run("return window.arena.steering.stream.lost") == 0
        return int(given)

    async def server(self) -> str:
        return str(await self.run("return window.arena.server"))

    async def picture(self, name: str, metrics: dict[str, Any], scheme: str) -> None:
        """Make a picture of all of the page, with a screen like that, in light or dark colours."""
        do = partial(self._do, name)
        await trio.to_thread.run_sync(do, metrics, scheme)

    def _do(self, name: str, metrics: dict[str, Any], scheme: str) -> None:
        self._browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        # A frame is drawn in these colours and this size, and another one, before it is looked at.
        self._browser.execute_async_script(
            "const frame = requestAnimationFrame; frame(() => frame(() => frame(arguments[0])))"
        )
        assert violations(self._browser) == []
        assert self._browser.execute_script(_FAINT) == []
        assert self._browser.execute_script(_UNNAMED) == []
        overflow = self._browser.execute_script("return document.documentElement.scrollWidth > innerWidth")
        assert not overflow, f"{name}: the page is wider than the screen"
        self._pictures.mkdir(exist_ok=True)
        assert self._browser.save_screenshot(str(self._pictures / f"{name}.png"))

    def as_it_was(self) -> None:
        """The window has its own size and colours again."""
        self._browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self._browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def complaints(self) -> list[str]:
        """What the browser complained of, but for connections that did not open."""
        entries = self._browser.get_log("browser")  # type: ignore[no-untyped-call]
        severe = [each["message"] for each in entries if each["level"] == "SEVERE"]
        return [message for message in severe if _NO_CONNECTION not in message]


@asynccontextmanager
async def arena(homeservers: int = 1) -> AsyncIterator[tuple[LocalCluster, str]]:
    spec = arena_spec(ClusterSpec(instances={"alpha": homeservers}, simservers=3, log_level="WARNING"))
    async with LocalCluster.start(spec, grace_s=PATIENCE_S) as cluster:
        yield cluster, await prepare_arena(cluster)


async def drain(cluster: LocalCluster, server: str, method: str) -> None:
    token = cluster.operator_token_file("alpha").read_text().strip()
    url = f"{cluster.server('alpha.h1').rest_url}/v1/servers/{server}/drain"
    async with httpx.AsyncClient(trust_env=False) as client:

        async def ask() -> int:
            return (await client.request(method, url, headers={"authorization": f"Bearer {token}"})).status_code

        await come(ask, lambda status: status < 300, what=f"{method} of the drain")


async def test_a_robot_is_driven_on_while_its_server_is_drained_killed_and_replaced(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    wanted = os.environ.get("BATON_PICTURES")
    page = ArenaPage(browser, tmp_path / "pictures" if wanted is None else Path(wanted))
    with trio.fail_after(LIMIT_S):
        async with arena(homeservers=3) as (cluster, url):
            await trio.to_thread.run_sync(browser.get, url)
            await page.text("state", "connected".__eq__, "the robot is seen")
            columns, rows = TILES
            await page.says("window.arena.tiles.entities.size", (columns * rows).__eq__, "the floor")
            await page.says("window.arena.robots.entities.size", (ROBOTS + 1).__eq__, "all robots")
            await _over_a_border(page)
            await _a_bad_network(page)
            await _pictures(page)
            await _drained(page, cluster)
            await _killed_and_replaced(page, cluster)
            await _without_the_homeserver_of_the_page(page, cluster)
            assert page.complaints() == []


async def _over_a_border(page: ArenaPage) -> None:
    await page.key("down", "ArrowLeft")
    await page.says("window.arena.place[0]", (1_000).__ge__, "the robot at the wall")
    await page.key("up", "ArrowLeft")
    await page.text("server", S1.__eq__, "the left server has it")
    await page.drive_to(18_000)
    await page.text("server", S2.__eq__, "the middle server has it")
    await page.settled()
    await page.run("document.getElementById('show').click()")
    summary = await page.text("summary", lambda text: "hops" in text and "reported" not in text, "the hops")
    assert summary.startswith(f"{S1} to {S2}: 3 hops, frozen for ")
    kinds = await page.run(
        "return [...document.querySelectorAll('#rows td:nth-child(2)')].map((cell) => cell.textContent)"
    )
    assert kinds == ["handoff", "grant", "activated"]
    assert await page.run("return document.getElementById('show').getAttribute('aria-expanded')") == "true"


async def _a_bad_network(page: ArenaPage) -> None:
    """Inputs come through delay, loss and cuts of this page's own connections, each once and in order."""
    await page.run("document.getElementById('deltas').open = true")
    arrived = "document.querySelector('#delta-rows')?.textContent ?? ''"
    await page.says(arrived, lambda text: " groups of deltas" in text, "deltas as they come")
    for name, value in (("delay", 150), ("loss", 20)):
        await page.run(
            f"const field = document.getElementById('{name}'); field.value = {value};"
            "field.dispatchEvent(new Event('input', { bubbles: true }))"
        )
    await page.text("loss-shown", "20 %".__eq__, "what is set")
    await page.text("under-way", lambda text: int(text) > 0, "what is held back")
    before = await page.run("return window.arena.steering.stream.sent")
    for code in ("ArrowLeft", "ArrowRight"):
        await page.key("down", code)
        await page.says("window.arena.given.join()", "0,0".__ne__, "that it is given")
        await page.key("up", code)
        await page.says("window.arena.given.join()", "0,0".__eq__, "that it ends")
    lost = await page.run("return window.arena.client.reconnections")
    await page.run("document.getElementById('cut').click()")
    await page.says("window.arena.client.reconnections", lost.__lt__, "that it was cut")
    for name in ("delay", "loss"):
        await page.run(
            f"const field = document.getElementById('{name}'); field.value = 0; field.dispatchEvent(new Event('input'))"
        )
    seen = "(({robots, robot}) => robots.entities.has(robot) && !robots.isLost(robot))(window.arena)"
    await page.says(seen, bool, "the robot is seen again")
    await page.settled()
    assert await page.run("return window.arena.steering.stream.sent") >= before + 4
    await page.text("under-way", "0".__eq__, "that nothing is held back")
    await page.run("document.getElementById('deltas').open = false")


async def _pictures(page: ArenaPage) -> None:
    for name, metrics in (("arena", DESKTOP), ("arena-phone", PHONE)):
        for scheme in ("light", "dark"):
            await page.picture(f"{name}-{scheme}", metrics, scheme)
    await trio.to_thread.run_sync(page.as_it_was)


async def _drained(page: ArenaPage, cluster: LocalCluster) -> None:
    await drain(cluster, S2, "POST")
    await page.says("window.arena.server", lambda server: server not in ("", S2), "another server has it")
    before = await page.settled()
    await page.drive_to(16_000)
    await page.drive_to(19_000)
    assert await page.settled() > before
    assert await page.server() != S2
    await page.says(
        f"[...window.arena.tiles.servers.values()].includes('{S2}')", lambda found: not found, "no floor is left there"
    )
    await drain(cluster, S2, "DELETE")
    await page.says("window.arena.server", S2.__eq__, "the floor's server has it again")
    assert await page.settled() > before


async def _copied(cluster: LocalCluster, server: str) -> None:
    """Wait until copies have what lives there: what is on that server alone waits for it."""
    await answered(f"{cluster.server(server).rest_url}/v1/local/stats", lambda seen: not seen["without_copy"])


async def _killed_and_replaced(page: ArenaPage, cluster: LocalCluster) -> None:
    before = await page.settled()
    await _copied(cluster, S2)
    await cluster.kill(S2)
    both = "['state', 'server'].map((id) => document.getElementById(id).textContent).join(': ')"
    await page.says(both, "looking for your robot: nobody shows it".__eq__, "that it is missed, and nobody is named")
    await page.picture("arena-failover-dark", DESKTOP, "dark")
    await trio.to_thread.run_sync(page.as_it_was)
    # What is given while nobody has it is applied once somebody has.
    await page.key("down", "ArrowLeft")
    await page.key("up", "ArrowLeft")
    await page.says("window.arena.server", lambda server: server not in ("", S2), "another server has taken it over")
    await page.drive_to(16_000)
    await page.drive_to(18_000)
    assert await page.settled() > before + 2
    await cluster.restart(S2, same_code=True)
    await page.says("window.arena.server", S2.__eq__, "the server that is new has it")
    await page.drive_to(16_000)
    await page.settled()
    assert await page.server() == S2
    assert int(await page.run("return window.arena.client.reconnections")) >= 1


async def _without_the_homeserver_of_the_page(page: ArenaPage, cluster: LocalCluster) -> None:
    """The page is from it, and its client asks another one from then on; also where a robot is whose server dies."""
    await cluster.kill("alpha.h1")
    # Over the door by which it steers, or by a connection of its own to another one.
    await page.says(
        "window.arena.client.home.way?.server ?? window.arena.client.home.urls[0]",
        lambda way: way != cluster.server("alpha.h1").rest_url,
        "another one",
    )
    await page.drive_to(6_000)
    await page.says("window.arena.server", S1.__eq__, "the left server has it")
    before = await page.settled()
    await _copied(cluster, S1)
    await cluster.kill(S1)
    await page.says("window.arena.server", lambda server: server not in ("", S1), "another server has taken it over")
    await page.drive_to(8_000)
    assert await page.settled() > before


async def test_a_page_that_is_loaded_again_has_the_same_robot(browser: webdriver.Chrome, tmp_path: Path) -> None:
    page = ArenaPage(browser, tmp_path)
    with trio.fail_after(LIMIT_S):
        async with arena() as (_, url):
            await trio.to_thread.run_sync(browser.get, url)
            await page.text("state", "connected".__eq__, "the robot is seen")
            robot = await page.run("return window.arena.robot")
            await page.drive_to(15_500)
            await page.drive_to(18_500)
            before = await page.settled()
            # Without the invitation: the keys are enough, which this browser has kept.
            await trio.to_thread.run_sync(browser.get, url.partition("#")[0] + "?")
            await page.text("state", "connected".__eq__, "the robot is seen again")
            assert await page.run("return window.arena.robot") == robot
            await page.drive_to(16_000)
            stream = "window.arena.steering.stream"
            given = await page.says(
                f"window.arena.steering.waiting ? 0 : {stream}.sent - {stream}.floor", bool, "inputs"
            )
            counted = "window.arena.robots.entities.get(window.arena.robot).state.n"
            assert await page.says(counted, (before + given).__eq__, "all inputs of both pages")
            exported = "crypto.subtle.exportKey('pkcs8', window.arena.client.keys.signing.privateKey)"
            await page.run(f"{exported}.then(() => window.out = 'taken', () => window.out = 'kept')")
            await page.says("window.out", "kept".__eq__, "that the key stays")
            # A second tab is the same player once more: it drives the robot from now on, and the first one says so.
            (first,) = browser.window_handles
            await trio.to_thread.run_sync(browser.switch_to.new_window, "tab")
            await trio.to_thread.run_sync(browser.get, url.partition("#")[0])
            await page.text("state", "connected".__eq__, "the robot in the second tab")
            assert await page.run("return window.arena.robot") == robot
            await page.drive_to(18_500)
            second = browser.current_window_handle
            await trio.to_thread.run_sync(browser.switch_to.window, first)
            await page.key("down", "ArrowLeft")
            taken = f"another page or program of this player steers {robot}"
            await page.text("notice", lambda text: taken in text, "that the second tab has the robot")
            await page.key("up", "ArrowLeft")
            await trio.to_thread.run_sync(browser.switch_to.window, second)
            await page.drive_to(16_000)
            assert await page.run("return document.getElementById('notice').textContent") == ""
            assert page.complaints() == []
            await trio.to_thread.run_sync(browser.close)
            await trio.to_thread.run_sync(browser.switch_to.window, first)


async def test_who_is_not_invited_is_told_what_to_do(browser: webdriver.Chrome, tmp_path: Path) -> None:
    page = ArenaPage(browser, tmp_path)
    with trio.fail_after(LIMIT_S):
        async with arena() as (_, url):
            await trio.to_thread.run_sync(browser.get, url.partition("#")[0])
            await page.text("state", "not connected".__eq__, "that nobody comes in like that")
            hint = "Open the address that baton up --play printed"
            await page.text("notice", lambda text: hint in text, "what to do")
