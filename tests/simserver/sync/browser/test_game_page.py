"""The page of the example in a real browser, against a client in Python: equal hashes, tick for tick."""

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from batonpass.simserver.sync.browser.fireflies import Boat, Fireflies
from batonpass.simserver.sync.browser.pages import browser_pages
from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.stream_door import StaticPage, StreamDoor
from batonpass.simserver.sync.events.messages import StreamReply, StreamRequest
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from batonpass.simserver.sync.play.session import follow_stream
from tests.chromium import keep_picture, start_chromium
from tests.simserver.ports import TrioClock
from tests.simserver.sync.browser.test_same_as_python import vectors

PATIENCE_S: Final = 150
EQUAL_TICKS: Final = 60


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = start_chromium(tmp_path_factory.mktemp("chromium"), size="1280,1000")
    yield driver
    driver.quit()


class ListeningHost(PolledHost):
    """Streams that keep what each client said of its states, by public id and tick, and which clients waited."""

    def __init__(self) -> None:
        super().__init__()
        self.hashes: Final[defaultdict[str, dict[int, str]]] = defaultdict(dict)
        self.waited: Final[set[str]] = set()

    async def request(self, stream: str, request: StreamRequest) -> StreamReply:
        reply = await super().request(stream, request)
        self.hashes[reply.public_id].update(request.hashes)
        if request.wait_s:
            self.waited.add(reply.public_id)
        return reply

    def equal_ticks(self, one: str, other: str) -> int:
        """How many ticks both told of. Fails if they told different hashes of any."""
        mine, theirs = self.hashes[one], self.hashes[other]
        shared = mine.keys() & theirs.keys()
        assert {tick: mine[tick] for tick in shared} == {tick: theirs[tick] for tick in shared}
        return len(shared)


async def until(condition: Callable[[], bool], what: str) -> None:
    with trio.move_on_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 — another process is waited for
            await trio.sleep(0.1)
        return
    pytest.fail(f"not within {PATIENCE_S} s: {what}")


def in_page(function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
    """What the browser's driver, which waits, returns."""
    return trio.to_thread.run_sync(function, *args)


async def test_a_browser_and_a_python_client_play_the_same_game_tick_for_tick(browser: webdriver.Chrome) -> None:
    host, game = ListeningHost(), Fireflies()
    pages = {path: StaticPage(*page) for path, page in browser_pages().items()}
    door = StreamDoor(host, TrioClock(), pages=pages)
    follower = StreamFollower(game, "fireflies", "the one in Python")
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(lambda task_status: door.serve("127.0.0.1", 0, task_status=task_status))
        nursery.start_soon(host.serve)
        nursery.start_soon(lambda: follow_stream(follower, url, long_poll=True))
        await until(lambda: game.tick > 5, "the Python client plays")
        await in_page(browser.get, f"{url}/game.html")

        await until(lambda: len(game.entities(Boat)) == 2, "the browser's boat is there")
        mine, theirs = game.entities(Boat)
        began = theirs.x
        await in_page(ActionChains(browser).key_down(Keys.ARROW_LEFT).perform)
        game.send_event("steer", "3 -8")
        await until(lambda: theirs.x < began and mine.y < theirs.y, "both boats move, at the Python client")
        await until(lambda: host.equal_ticks(mine.owner, theirs.owner) >= EQUAL_TICKS, "equal hashes by WebSocket")
        await in_page(keep_picture, browser, "lockstep")
        assert door.site.websockets.counts.open == 1
        assert theirs.owner not in host.waited
        await in_page(ActionChains(browser).key_up(Keys.ARROW_LEFT).perform)

        # The same player without WebSockets.
        host.hashes[theirs.owner].clear()
        await in_page(browser.get, f"{url}/game.html?poll")
        await until(lambda: theirs.owner in host.waited, "it asks by long polls")
        await until(lambda: host.equal_ticks(mine.owner, theirs.owner) >= EQUAL_TICKS, "equal hashes by long polls")
        assert door.site.websockets.counts.accepted == 1

        # On a telephone: nothing is cut off, and a touch steers.
        await in_page(browser.set_window_size, 360, 740)
        width = await in_page(browser.execute_script, "return [document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]
        scene = await in_page(browser.find_element, By.ID, "scene")
        await in_page(ActionChains(browser).move_to_element_with_offset(scene, 60, 80).click().perform)
        (theirs,) = (boat for boat in game.entities(Boat) if boat.owner == theirs.owner)
        await until(lambda: theirs.dx != 0 and theirs.dy > 0, "the boat goes where the page was touched")
        shown = await in_page(browser.execute_script, "return document.body.innerText")
        assert "connected" in shown
        assert f"player {mine.owner}" in shown

        asked = [json.loads(row["message"])["message"] for row in await in_page(browser.get_log, "performance")]
        sent = [row["params"] for row in asked if row["method"] == "Network.requestWillBeSent"]
        urls = {row["request"]["url"] for row in sent if row["documentURL"].startswith(url)}
        assert all(one.startswith((url, "data:")) for one in urls), urls
        complaints = await in_page(browser.get_log, "browser")
        # A stream without a snapshot says so with 404, and one that comes before its votes with 409: lines of browsers.
        assert [one for one in complaints if "/snapshot" not in one["message"]] == []
        await in_page(browser.get, "about:blank")
        await until(lambda: len(game.entities(Boat)) == 1, "a page that was left has left the game")
        nursery.cancel_scope.cancel()


BOUNCERS: Final = Path(__file__).parent / "bouncers.mjs"
PLAY: Final = """
    const [ticks, log, done] = arguments;
    import("/bouncers.mjs").then(({ Bouncers }) => {
      const driver = new Bouncers();
      const hashes = [driver.hash];
      const events = log.map(([T, Type, Origin, Body]) => ({ T, Type, Origin, Body }));
      for (let tick = 1, at = 0; tick <= ticks; tick++) {
        const due = [];
        while (at < events.length && events[at].T <= tick) due.push(events[at++]);
        hashes.push(driver.step(due));
      }
      done(hashes);
    }, (error) => done(String(error)));
"""
OFFER: Final = """
    const done = arguments[0];
    Promise.all([import("/events.js"), import("/fireflies.js")]).then(([{ StreamClient }, { Fireflies }]) => {
      const options = { server: location.origin, stream: "offered", privateId: "a browser", offerEvery: 20 };
      const client = new StreamClient({ ...options, driver: new Fireflies() });
      setInterval(() => client.play(performance.now()), 20);
      client.start();
      done("");
    }, (error) => done(String(error)));
"""


async def test_a_browser_computes_ten_thousand_ticks_as_python_did_and_a_snapshot_that_it_signed_is_trusted(
    browser: webdriver.Chrome,
) -> None:
    host, game, found = ListeningHost(), Fireflies(), vectors("bouncers")
    pages = {path: StaticPage(*page) for path, page in browser_pages().items()}
    # Where the game of the tests looks for the module.
    pages["/simserver/sync/browser/events.js"] = pages["/events.js"]
    pages["/bouncers.mjs"] = StaticPage("text/javascript", BOUNCERS.read_bytes())
    door = StreamDoor(host, TrioClock(), pages=pages)
    follower = StreamFollower(game, "offered", "the one in Python")
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(lambda task_status: door.serve("127.0.0.1", 0, task_status=task_status))
        nursery.start_soon(host.serve)
        nursery.start_soon(lambda: follow_stream(follower, url))
        await in_page(browser.get, f"{url}/game.css")
        browser.set_script_timeout(4 * PATIENCE_S)
        hashes = await in_page(browser.execute_async_script, PLAY, found["ticks"], found["events"])
        assert len(hashes) == 10_001, hashes
        assert [[tick, hashes[tick]] for tick, _ in found["hashes"]] == found["hashes"]

        assert await in_page(browser.execute_async_script, OFFER) == ""
        stream = host.streams.find("offered", 0)
        await until(lambda: stream.snapshot is not None, "a snapshot of the browser is trusted")
        assert stream.snapshot is not None
        assert list(stream.snapshot.signatures) == ["2"]
        assert stream.snapshot.voters == ("1", "2")
        await in_page(browser.get, "about:blank")
        nursery.cancel_scope.cancel()
