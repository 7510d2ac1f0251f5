"""The dashboard in a real browser: in seven tabs, while entities move, a filter is held and a server is killed.

With `BATON_PICTURES=docs/images` the pictures of docs/guides/dashboard.md are made anew.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import partial
from operator import ne
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from selenium import webdriver

from batonpass.actors.base.clock import Clock
from batonpass.crypto import jose
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import Identity
from batonpass.scenarios.arena.start import ROBOTS, arena_spec, prepare_arena
from batonpass.scenarios.arena.world import ROBOT, TILES
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from tests.axe import violations
from tests.chromium import start_chromium
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, come, limited

pytestmark = limited

S1: Final = "alpha.s1"
S2: Final = "alpha.s2"
TABS: Final = 7
CHANGES: Final = 5
DESKTOP: Final = {"width": 1280, "height": 1400, "deviceScaleFactor": 1, "mobile": False}
DIALOG: Final = {"width": 800, "height": 700, "deviceScaleFactor": 1, "mobile": False}
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

    async def choose_in(self, selector: str, value: str) -> None:
        """Choose of a list that has no name of its own."""
        await self.run(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event('input', { bubbles: true }))",
            selector,
            value,
        )

    async def give(self, name: str, file: Path) -> None:
        """Choose a file."""
        await trio.to_thread.run_sync(lambda: self._browser.find_element("id", name).send_keys(str(file)))

    async def click(self, selector: str) -> None:
        await self.run("document.querySelector(arguments[0]).click()", selector)

    async def new_tab(self, url: str) -> None:
        def do() -> None:
            self._browser.switch_to.new_window("tab")
            self._browser.get(url)

        await trio.to_thread.run_sync(do)

    async def looks(self, name: str, metrics: dict[str, Any], scheme: str, at: str = "") -> None:
        """It may be used by everybody like that; a picture of it, or of one part."""
        await trio.to_thread.run_sync(partial(self._looks, name, metrics, scheme, at))

    def _looks(self, name: str, metrics: dict[str, Any], scheme: str, at: str) -> None:
        self._browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        # A frame is drawn in these colours and this size, and another one, before it is looked at from above.
        self._browser.execute_async_script(
            f"document.getElementById('{at}')?.scrollIntoView() ?? scrollTo(0, 0);"
            "const frame = requestAnimationFrame; frame(() => frame(() => frame(arguments[0])))"
        )
        assert violations(self._browser) == []
        assert not self._browser.execute_script("return document.documentElement.scrollWidth > innerWidth"), name
        self._pictures.mkdir(exist_ok=True)
        path = str(self._pictures / f"{name}.png")
        assert self._browser.find_element("id", at).screenshot(path) if at else self._browser.save_screenshot(path)

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
            await _acts(page, cluster, tmp_path)
            await _the_tree(page, cluster)
            await _supervision(page, cluster)
            await _charts(page)
            await _space(page)
            await _synchronisation(page)
            await _a_transfer_in_detail(page)
            await cluster.kill(S2)
            await page.says(_CARD, "down".__eq__, "that it is down")
            await _pictures(page)
            await cluster.kill("alpha.h1")
            await page.text("state", "not connected".__eq__, "that nobody tells anything")
            # One act was tried with a wrong token.
            assert [one for one in page.complaints() if "bob-asks/answer" not in one] == []


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


async def _the_tree(page: DashboardPage, cluster: LocalCluster) -> None:
    """Its roots, those below one in pages, one that is looked for, and what comes while it is looked at."""
    rows = "[...document.querySelectorAll('#tree-rows tr')].map((row) => row.firstChild.textContent)"
    await page.run("location.hash = '#tree'")
    await page.says(rows, lambda names: {"entities", "servers", "transfers"} <= set(names), "its roots")
    async with aclosing(cluster.rest_client()) as rest:
        await rest.call("alpha", "PUT", "/v1/tree/jobs/7", {"data": {"n": 1}})
    await page.says(rows, lambda names: "jobs" in names, "a new root")
    await page.click("#tree-rows a[href='#tree/entities']")
    await page.says(rows, lambda names: len(names) == 50, "the first page of entities")
    await page.click("#tree-next")
    await page.says(rows, lambda names: len(names) == 29, "the second page")
    await page.choose("tree-search", "alpha.lamp")
    await page.says(rows, ["alpha.lamp"].__eq__, "one entity")
    (row,) = await page.rows("tree-rows")
    assert row[2].startswith("deny, owner alpha.bob, master alpha.ada, at alpha.s")
    await page.run("location.hash = '#tree'")
    await page.says(rows, lambda names: "jobs" in names, "the roots again")
    await page.run("document.getElementById('tree-deep').checked = true")
    await page.choose("tree-search", "7")
    await page.says(rows, lambda names: "jobs / 7" in names, "a node far below")
    # As of too many nodes to look into their names.
    await page.run(
        "const real = window.fetch; window.fetch = (url, more) => String(url).includes('regex')"
        " ? Response.json({ code: 'too_much' }, { status: 422 }) : real(url, more); location.hash = '#tree/entities'"
    )
    await page.says(rows, lambda names: len(names) == 50, "entities again")
    await page.choose("tree-search", "alpha.lam")
    await page.says(rows, ["alpha.lamp"].__eq__, "one entity, by how it begins")
    await page.text("tree-search-name", "Name begins with".__eq__, "that it is so")


def _rows(name: str) -> str:
    """The rows of a table, each a list of texts."""
    return (
        f"[...document.querySelectorAll('#{name} tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
    )


async def _supervision(page: DashboardPage, cluster: LocalCluster) -> None:
    """The tree of another server, a page of it, and of this one with what was started again."""
    rows = _rows("supervision-rows")
    await page.run(f"location.hash = '#supervision/{S1}'")
    await page.says(rows, lambda seen: "entities" in [row[0] for row in seen], "its parts")
    assert await page.run("return document.getElementById('supervised').value") == S1
    links = "[...document.querySelectorAll('#supervision-rows a')]"
    await page.run(f"{links}.find((one) => one.textContent === 'entities').click()")
    await page.text("supervision-path", lambda text: text.endswith(" / entities"), "the way to it")
    await page.text("supervision-where", lambda text: text.startswith("1 to "), "how many there are")
    await page.run("location.hash = '#supervision/alpha.h1'")
    part = "[...document.querySelectorAll('#supervision-rows tr')].find((row) => row.innerText.startsWith('balancer'))"
    pid = await page.says(f"{part}?.dataset.key ?? ''", bool, "a part of this server")
    operator = cluster.operator_token_file("alpha").read_text().strip()
    headers = "{ authorization: `Bearer ${arguments[1]}` }"
    await page.run(
        f"fetch(`../v1/actors/${{arguments[0]}}`, {{ method: 'DELETE', headers: {headers} }})", pid, operator
    )
    await page.says(rows, lambda seen: "1" in [row[2] for row in seen if row[0] == "balancer"], "a restart")
    await page.looks("dashboard-supervision", DESKTOP, "light", at="supervision")


async def _charts(page: DashboardPage) -> None:
    """They are drawn, and written out for who does not see them."""
    await page.run("document.getElementById('charts').scrollIntoView()")
    await page.says("document.querySelectorAll('#charts canvas').length", (7).__eq__, "a canvas for each")
    pixels = "getContext('2d').getImageData(0, 0, one.width, one.height).data"
    drawn = f"[...document.querySelectorAll('#charts canvas')].every((one) => one.{pixels}.some(Boolean))"
    await page.says(drawn, bool, "something on each of them")
    told = "[...document.querySelectorAll('.chart')].map((one) => one.getAttribute('aria-label'))"
    await page.says(
        told, lambda seen: seen[0].startswith("Transfers, per second: now done "), "what it shows, in words"
    )
    ticks = "document.querySelectorAll('#chart-list > li')[2].querySelector('.legend').textContent"
    await page.says(ticks, lambda text: all(name in text for name in (S1, S2, "alpha.s3")), "a line for each server")
    await page.click("#chart-list details summary")
    rows = "[...document.querySelectorAll('#chart-list table')][0].querySelectorAll('tbody tr').length"
    await page.says(rows, bool, "the same as a table")
    await page.looks("dashboard-charts", DESKTOP, "dark", at="charts")
    await page.looks("dashboard-charts-phone", PHONE, "light", at="charts")
    await page.click("#chart-list details summary")


async def _space(page: DashboardPage) -> None:
    """Entities are drawn in the colours of their servers, and change these as they go elsewhere."""
    await page.run("document.getElementById('space').scrollIntoView()")
    dots = "[...document.querySelectorAll('#space-map circle')]"
    # Some are on their way, and tiles are no places.
    await page.says(f"{dots}.length", (ROBOTS // 2).__lt__, "a dot for each robot")
    colours = f"[...new Set({dots}.map((dot) => getComputedStyle(dot).fill))].length"
    await page.says(colours, (3).__eq__, "a colour for each server")
    await page.text("space-about", lambda text: " of 79 entities" in text, "how many are shown")
    label = "document.getElementById('space-map').getAttribute('aria-label')"
    await page.says(label, lambda text: all(f"at {name}" in text for name in (S1, S2)), "the same in words")
    await page.says("Boolean(document.querySelector('#space-map .went'))", bool, "one that has gone elsewhere")
    await page.looks("dashboard-space", DESKTOP, "light", at="space")


async def _synchronisation(page: DashboardPage) -> None:
    """Nothing runs here at first; then as if a show, a scene and a stream did."""
    await page.run("document.getElementById('sync').scrollIntoView()")
    await page.text("sync-about", lambda text: text.startswith("No show, scene or event stream runs"), "that none does")
    await page.run(
        "const real = window.fetch; const said = JSON.parse(arguments[0]); window.fetch = (url, more) =>"
        " String(url).endsWith('/synchronisation') ? Promise.resolve(Response.json(said)) : real(url, more)",
        json.dumps(_SYNCHRONISED),
    )
    await page.says(_rows("sync-rows"), lambda rows: len(rows) == 3, "what runs")
    rows = await page.rows("sync-rows")
    assert [row[:6] for row in rows] == [
        ["event stream", "alpha.stream-game", "alpha.s1, authority", "12", "tick 4,711", "2"],
        ["followers", "alpha.show-wall", "alpha.s2, controller", "1", "frame 600", "3"],
        ["scene", "alpha.scene-plaza", "alpha.s3, authority", "2", "tick 90", ""],
    ]
    await page.click("#sync-rows tr:nth-child(2) summary")
    await page.says(
        "document.querySelector('#sync-rows [open] dl').textContent", lambda text: "frame 597" in text, "a node"
    )
    await page.looks("dashboard-sync", DESKTOP, "light", at="sync")


_SYNCHRONISED: Final = {
    "synchronised": [
        {
            "entity": entity,
            "system": system,
            "server": server,
            "role": role,
            "members": members,
            "position": position,
            "lag": lag,
            "counters": counters,
            "parts": parts,
        }
        for entity, system, server, role, members, position, lag, counters, parts in (
            ("alpha.stream-game", "event stream", S1, "authority", 12, 4711, 2, {"events_kept": 40, "desync": 0}, []),
            (
                *("alpha.show-wall", "followers", S2, "controller", 1, 600, 3, {"frames_not_applied": 1}),
                [{"name": S1, "position": 597, "lag": 3, "heard_ms": 8}],
            ),
            (
                *("alpha.scene-plaza", "scene", "alpha.s3", "authority", 2, 90, None),
                *({"writes_taken": 31, "writes_outdated": 2, "writes_denied": 1}, []),
            ),
        )
    ],
    "more": 0,
    "silent": [],
}


class _Asked:
    """What a master and somebody else ask of the instance, beside the page."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.ada = KeyStore(directory / "ada").load_or_create()
        self._bob = Identity.generate()
        self._cluster = cluster

    async def question(self) -> None:
        """`alpha.lamp` of Ada, whom Bob asks for it."""
        async with aclosing(self._cluster.rest_client()) as rest:
            for name, keys in (("alpha.ada", self.ada), ("alpha.bob", self._bob)):
                await rest.call("alpha", "PUT", f"/v1/players/{name}/keys", {"keys": keys.public.to_jwks()["keys"]})
            lamp = {
                "id": "alpha.lamp",
                "kind": ROBOT,
                "spawner": "alpha.ada",
                "server": S1,
                "params": {"p": [9000, 9000]},
            }
            await rest.call("alpha", "POST", "/v1/entities", lamp)
            stated = {"want": "by_rule", "owner_rev": 1, "transfer_id": "bob-asks"}
            claims = {"action": "ownership", "entity": "alpha.lamp", **stated, "expires_at_s": Clock().unix_s() + 60}
            proof = jose.sign(claims, sender=self._bob, sender_id="alpha.bob")
            body = {"requester": "alpha.bob", **stated, "proof": proof}
            await rest.call("alpha", "POST", "/v1/entities/alpha.lamp/ownership", body)


async def _acts(page: DashboardPage, cluster: LocalCluster, directory: Path) -> None:
    asked = _Asked(cluster, directory)
    await asked.question()
    operator = cluster.operator_token_file("alpha").read_text().strip()
    client, key = cluster.client_token("alpha"), directory / "ada" / "signing.pem"

    async def do(button: str, what: str, token: str = "", key: Path | None = None, picture: str = "") -> None:
        """Press a button, read what will be done, give what it takes, and confirm."""
        await page.says(f"Boolean({_button(button)})", bool, f"the button {button}")
        await page.run(f"{_button(button)}.click()")
        await page.text("act-what", what.__eq__, what)
        if token:
            await page.choose("act-token", token)
        if key is not None:
            await page.give("act-key-file", key)
        if picture:
            await page.looks(picture, DIALOG, "light")
        await page.click("#act-do")
        if token != "guess":  # noqa: S105
            await page.text("done", f"Done: {what}".__eq__, "that it is done")

    await page.run("location.hash = '#transfer/bob-asks'")
    await do("Allow", "Allow alpha.bob to own alpha.lamp", "guess", key)
    await page.text("act-error", lambda text: "this is no token" in text, "that the token is wrong")
    await page.choose("act-token", client)
    await page.click("#act-do")
    await page.text("done", "Done: Allow alpha.bob to own alpha.lamp".__eq__, "that it is done")
    await page.run("location.hash = '#entity/alpha.lamp'")
    await page.text("detail-body", lambda text: "Owneralpha.bob" in text, "the new owner")
    await page.choose_in("select[aria-label^='Rule']", "deny")
    await do("Set the rule", "Set the rule of alpha.lamp to deny", picture="dashboard-act")
    await page.text("detail-body", lambda text: "Ruledeny" in text, "the new rule")
    await do("Drain of alpha.s3", "Drain alpha.s3: all of its entities leave", operator)
    await page.says(
        "document.querySelector('#servers [data-key=\"alpha.s3\"] .why').textContent",
        lambda why: "it is drained" in why,
        "a drain",
    )
    await do("End the drain of alpha.s3", "End the drain of alpha.s3: it takes entities again")
    await page.says("document.querySelectorAll('#act-rows tr').length", (4).__eq__, "what was done")
    rows = [row[1:] for row in await page.rows("act-rows")]
    assert rows == [
        ["operator", "DELETE /v1/servers/alpha.s3/drain ", "done"],
        ["operator", "POST /v1/servers/alpha.s3/drain ", "done"],
        ["server, alpha.ada", "PATCH /v1/entities/alpha.lamp rule deny", "done"],
        ["server, alpha.ada", "POST /v1/transfers/bob-asks/answer allow true", "done"],
    ]
    # As if the log were an older one.
    await page.run(
        "const real = window.fetch; window.fetch = async (url, more) => { const answer = await real(url, more);"
        "if (!String(url).endsWith('/map')) return answer; const body = await answer.json();"
        "return Response.json({ ...body, log_went_back: 'it ends earlier' }); }; location.hash = ''"
    )
    await page.click("#pause")
    await page.text("state", lambda text: text.startswith("paused, "), "changes")
    # It reads anew, and is told of no map that says otherwise.
    await page.run("const pause = document.getElementById('pause'); pause.click(); pause.click()")
    await _a_loss_is_not_accepted(page)
    await page.click("#pause")


async def _a_loss_is_not_accepted(page: DashboardPage) -> None:
    """The button that accepts a loss asks before it does it."""
    await page.says(f"Boolean({_button('Accept the loss')})", bool, "the button")
    await page.run(f"{_button('Accept the loss')}.click()")
    await page.text("act-request", "DELETE /v1/cluster/log-alarm".__eq__, "what it would do")
    await page.click("#act-cancel")
    assert await page.run("return document.getElementById('act').open") is False


def _button(name: str) -> str:
    """The button that is called that."""
    return f"[...document.querySelectorAll('button')].find((one) => (one.ariaLabel ?? one.textContent) === '{name}')"


async def _pictures(page: DashboardPage) -> None:
    for name, metrics in (("dashboard", DESKTOP), ("dashboard-phone", PHONE)):
        for scheme in ("light", "dark"):
            await page.looks(f"{name}-{scheme}", metrics, scheme)
