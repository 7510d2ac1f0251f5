"""The page of the example in a real browser, against a client in Python: equal hashes, tick for tick."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import trio
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from batonpass.simserver.sync.browser.fireflies import Boat, Fireflies
from batonpass.simserver.sync.events.json_form import StreamAction, StreamTarget
from batonpass.simserver.sync.lockstep.driver import SimEvent
from tests.chromium import start_chromium
from tests.simserver.sync.browser.small_door import SmallDoor

PATIENCE_S: Final = 60
EQUAL_TICKS: Final = 60


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = start_chromium(tmp_path_factory.mktemp("chromium"), size="1280,1000")
    yield driver
    driver.quit()


class PythonPlayer:
    """A client in Python, which asks the door's streams without a network, and plays at once what they tell."""

    def __init__(self, door: SmallDoor) -> None:
        self._door: Final = door
        self.game: Final = Fireflies()
        self.public_id = ""

    async def play(self) -> None:
        hashes: list[tuple[int, str]] = []
        number = 0
        while True:
            sent = [
                {"Type": kind, "Body": body, "Id": number + at}
                for at, (kind, body) in enumerate(self.game.take_sent(), 1)
            ]
            number += len(sent)
            body = json.dumps({"Events": sent, "Hashes": hashes}).encode()
            target = StreamTarget(StreamAction.SYNC, "fireflies", "python's own", self.game.tick)
            reply = self._door.sync(target, body, "python")
            self.public_id = reply.public_id
            events = [SimEvent(*event) for event in reply.events]
            hashes = []
            while self.game.tick < reply.tick:
                tick = self.game.tick + 1
                hashes.append((tick, self.game.step([event for event in events if event.tick == tick])))
            del hashes[60:]
            await trio.sleep(0.05)


async def until(condition: Callable[[], bool], what: str) -> None:
    with trio.move_on_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 — another process is waited for
            await trio.sleep(0.1)
        return
    pytest.fail(f"not within {PATIENCE_S} s: {what}")


async def in_page(function: Callable[..., Any], *args: Any) -> Any:
    """What the browser's driver, which waits, returns."""
    return await trio.to_thread.run_sync(function, *args)


def equal_ticks(door: SmallDoor, one: str, other: str) -> int:
    """How many ticks both told of. Fails if they told different hashes of any."""
    mine, theirs = door.hashes[one], door.hashes[other]
    shared = mine.keys() & theirs.keys()
    assert {tick: mine[tick] for tick in shared} == {tick: theirs[tick] for tick in shared}
    return len(shared)


async def test_a_browser_and_a_python_client_play_the_same_game_tick_for_tick(browser: webdriver.Chrome) -> None:
    door = SmallDoor()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(lambda task_status: door.serve(task_status=task_status))
        player = PythonPlayer(door)
        nursery.start_soon(player.play)
        await until(lambda: player.game.tick > 5, "the Python client plays")
        await in_page(browser.get, f"{url}/game.html")

        await until(lambda: len(player.game.entities(Boat)) == 2, "the browser's boat is there")
        (mine, theirs) = player.game.entities(Boat)
        began = theirs.x
        await in_page(ActionChains(browser).key_down(Keys.ARROW_LEFT).perform)
        player.game.send_event("steer", "3 -8")
        await until(lambda: theirs.x < began and mine.y < theirs.y, "both boats move, at the Python client")
        await until(lambda: equal_ticks(door, mine.owner, theirs.owner) >= EQUAL_TICKS, "equal hashes by WebSocket")
        assert door.transports[theirs.owner] == {"websocket"}

        await in_page(ActionChains(browser).key_up(Keys.ARROW_LEFT).perform)

        # The same player without WebSockets.
        door.hashes[theirs.owner].clear()
        await in_page(browser.get, f"{url}/game.html?poll")
        await until(lambda: "poll" in door.transports[theirs.owner], "it asks by long polls")
        await until(lambda: len(door.hashes[theirs.owner]) > EQUAL_TICKS, "it plays by long polls")
        equal_ticks(door, mine.owner, theirs.owner)

        # On a telephone: nothing is cut off, and a touch steers.
        await in_page(browser.set_window_size, 360, 740)
        width = await in_page(browser.execute_script, "return [document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]
        scene = await in_page(browser.find_element, By.ID, "scene")
        await in_page(ActionChains(browser).move_to_element_with_offset(scene, 60, 80).click().perform)
        (theirs,) = (boat for boat in player.game.entities(Boat) if boat.owner == theirs.owner)
        await until(lambda: theirs.dx != 0 and theirs.dy > 0, "the boat goes where the page was touched")
        shown = await in_page(browser.execute_script, "return document.body.innerText")
        assert "connected" in shown
        assert f"player {mine.owner}" in shown

        asked = [json.loads(row["message"])["message"] for row in await in_page(browser.get_log, "performance")]  # type: ignore[no-untyped-call]
        sent = [row["params"] for row in asked if row["method"] == "Network.requestWillBeSent"]
        urls = {row["request"]["url"] for row in sent if row["documentURL"].startswith(url)}
        assert all(one.startswith((url, "data:")) for one in urls), urls
        complaints = await in_page(browser.get_log, "browser")  # type: ignore[no-untyped-call]
        # A stream without a snapshot says so with 404, of which browsers make a line.
        assert [one for one in complaints if "/fireflies/snapshot - " not in one["message"]] == []
        await in_page(browser.get, "about:blank")
        nursery.cancel_scope.cancel()
