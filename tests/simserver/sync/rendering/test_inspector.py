"""The page of a renderer in a real browser, and what it asks."""

from collections.abc import Awaitable, Callable
from math import cos, sin
from pathlib import Path
from typing import Any, Final

import httpx
import trio
from selenium.webdriver.support.ui import Select

from batonpass.simserver.sync.rendering.inspector import SceneInspector
from batonpass.simserver.sync.scene.codec import MessageKind, write_message
from batonpass.simserver.sync.scene.renderer import SceneRenderer
from batonpass.simserver.sync.scene.schedule import ScenePlace
from batonpass.simserver.sync.scene.schemas import TRANSFORM_SCHEMA, SceneTransform, Vector3
from batonpass.simserver.sync.scene.store import TRANSFORM
from tests.chromium import keep_picture, start_chromium

PATIENCE_S: Final = 60.0
MIDDLE: Final = 512
READ: Final = "return document.body.innerText"


def transform(x: float, parent: int = 0, z: float = 0.0) -> bytes:
    return TRANSFORM_SCHEMA.encode(SceneTransform(Vector3(x, 0.0, z), parent=parent))


def put(entity: int, data: bytes, timestamp: int = 1) -> bytes:
    return write_message(MessageKind.PUT, (entity, TRANSFORM, timestamp, data))


class Shown:
    """A renderer with two scenes."""

    def __init__(self) -> None:
        self.renderer = SceneRenderer(double_buffered=True)
        ring = [transform(3.0 * cos(at), z=3.0 * sin(at)) for at in range(12)]
        stones = b"".join(put(700 + number, stone) for number, stone in enumerate(ring))
        for name, more in (("plaza €", stones), ("tower", b"")):
            self.renderer.admit(name, ScenePlace(8.0, 8.0), put(MIDDLE, transform(1.0)) + more, 0)
        self.timestamp = 1
        self.move(1.0)

    def move(self, x: float) -> None:
        """A frame in which the scene moves its middle, and what is below it."""
        self.timestamp += 1
        messages = put(MIDDLE, transform(x), self.timestamp) + put(600, transform(2.0, MIDDLE), self.timestamp)
        self.renderer.take("plaza €", messages, 0)
        self.renderer.receive(lambda: 0)
        self.renderer.update()
        self.renderer.send()


def in_page(function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
    """What the browser's driver, which waits, returns."""
    return trio.to_thread.run_sync(function, *args)


async def test_a_browser_shows_the_graph_who_wrote_it_and_moves_with_it(tmp_path: Path) -> None:
    shown = Shown()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(SceneInspector(shown.renderer).serve)
        browser = await in_page(lambda: start_chromium(tmp_path, size="1280,900"))
        try:
            await in_page(browser.get, url)

            async def shows(text: str) -> None:
                with trio.fail_after(PATIENCE_S):
                    while text not in await in_page(browser.execute_script, READ):  # noqa: ASYNC110 -- a browser
                        await trio.sleep(0.05)

            await shows("3.00, 0.00, 0.00")
            await shows("plaza €")
            shown.move(5.0)
            await shows("7.00, 0.00, 0.00")
            await in_page(keep_picture, browser, "scene")
            await in_page(lambda: Select(browser.find_element("id", "scene")).select_by_value("tower"))
            await shows("main.crdt")
            painted = "const c = document.getElementById('ground'); "
            painted += "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(Boolean)"
            assert await in_page(browser.execute_script, painted)
            assert await in_page(browser.get_log, "browser") == []
        finally:
            await in_page(browser.quit)
        nursery.cancel_scope.cancel()


async def test_the_same_is_told_as_json_and_only_under_the_address_of_the_page() -> None:
    shown = Shown()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(SceneInspector(shown.renderer).serve)
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            overview = (await client.get("/scenes")).json()
            assert [scene["name"] for scene in overview["scenes"]] == ["plaza €", "tower"]
            assert [0, 11.0, 8.0] in overview["points"]
            graph = (await client.get("/scenes/plaza%20%E2%82%AC")).json()
            entities = {entity["entity"]: entity for entity in graph["entities"]}
            assert (entities[600]["parent"], entities[600]["components"][0]["writer"]) == (MIDDLE, "plaza €")
            for asked, status in (
                (client.get("/scenes/none"), 404),
                (client.get("/etc/passwd"), 404),
                (client.post("/scenes"), 405),
                (client.get("/scenes", headers={"host": "elsewhere.example"}), 421),
                (client.get("/scenes", headers={"host": "127.0.0.1:1"}), 403),
            ):
                answer = await asked
                assert (answer.status_code, set(answer.json())) == (status, {"code", "message", "value"})
        nursery.cancel_scope.cancel()
