"""The door's page and its module in a real browser: what is shown is what there is, and a player's keys stay in it."""

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from selenium import webdriver

from tests.chromium import start_chromium
from tests.client.test_door import server
from tests.homeserver.served import Home, homeserver_config, new_ports, served, until

PATIENCE_S = 150


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = start_chromium(tmp_path_factory.mktemp("chromium"), size="1280,800")
    yield driver
    driver.quit()


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[Home]:
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            yield home


async def run(browser: webdriver.Chrome, script: str, *arguments: Any) -> Any:
    """What a script of the page gives, which may be a promise."""
    ask = partial(browser.execute_async_script, f"(async () => {{{script}}})().then(arguments[arguments.length - 1])")
    return await trio.to_thread.run_sync(partial(ask, *arguments))


async def comes(browser: webdriver.Chrome, script: str, wanted: Any) -> None:
    with trio.fail_after(PATIENCE_S):
        while (found := await run(browser, f"return ({script})")) != wanted:
            last = found  # noqa: F841 — is seen when the time is over
            await trio.sleep(0.1)


ROWS = "[...document.querySelectorAll('#entities tr')].map((row) => row.dataset.entity)"


async def test_the_page_shows_the_entities_of_its_server(alpha: Home, browser: webdriver.Chrome) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    await server(alpha, "alpha.s2")
    for name in ("two", "one", "three"):
        params = {"at": [1, 2], "speed": [1, 0]}
        await alpha.entity(f"alpha.{name}", ada, "alpha.s1", kind="robot", params=params)
    await trio.to_thread.run_sync(browser.set_script_timeout, PATIENCE_S)
    await trio.to_thread.run_sync(browser.get, node.player_url)
    await comes(browser, "document.getElementById('server').textContent", "alpha.s1")
    await comes(browser, ROWS, ["alpha.one", "alpha.three", "alpha.two"])
    await comes(browser, "document.getElementById('count').textContent", "3 entities")
    await alpha.api.do("POST", "/v1/entities/alpha.two/transfers", {"to": "alpha.s2", "transfer_id": "transfer-1"})
    await comes(browser, ROWS, ["alpha.one", "alpha.three"])
    fill = "document.getElementById('pattern').value = 'alpha.o*';"
    await run(browser, f"{fill} document.getElementById('filter').dispatchEvent(new Event('change')); return 0")
    await comes(browser, ROWS, ["alpha.one"])
    tick = "Number(document.querySelector('#entities td:nth-child(5)').textContent)"
    before = await run(browser, f"return {tick}")
    await comes(browser, f"{tick} > {before + 20}", True)
    holding = node.holdings.get("alpha.one")
    assert holding is not None
    shown = json.loads(await run(browser, "return document.querySelector('#entities td:last-child').textContent"))
    assert shown["at"][1] == holding.life.look()["at"][1]
    assert 1 < shown["at"][0] <= holding.life.look()["at"][0]
    complaints = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]  # type: ignore[no-untyped-call]
    assert complaints == []


PLAY = """
  const { Door, makeKeys } = await import("/client.js");
  const [player] = arguments;
  window.keys = await makeKeys();
  window.play = () => {
    window.told = [];
    window.seen = {};
    window.door = new Door(location.origin, { player, keys: window.keys });
    window.door.onmessage = (message) => window.told.push(message);
    window.door.watch({ entity: "alpha.one" }, (entity) => { window.seen = entity; });
  };
  return JSON.stringify(window.keys.jwks);
"""


async def test_a_page_is_a_player_whose_keys_cannot_leave_it(alpha: Home, browser: webdriver.Chrome) -> None:
    node = await server(alpha)
    await trio.to_thread.run_sync(browser.set_script_timeout, PATIENCE_S)
    await trio.to_thread.run_sync(browser.get, node.player_url)
    keys = json.loads(await run(browser, f"const f = async function () {{{PLAY}}}; return f('alpha.eve')"))
    await alpha.api.do("PUT", "/v1/players/alpha.eve/keys", {"keys": keys})
    body = {"id": "alpha.one", "kind": "robot", "spawner": "alpha.eve", "server": "alpha.s1"}
    await alpha.api.do("POST", "/v1/entities", body | {"params": {"owner": "alpha.eve"}})
    await run(browser, "window.play(); return 0")
    await comes(browser, "window.seen.owner", "alpha.eve")
    await comes(browser, "window.seen.state.secret", "robot")
    give = (
        "window.door.send({type: 'input', entity: 'alpha.one', owner_rev: 1, seq: 1, data: new Uint8Array([3, 254])})"
    )
    await run(browser, f"return {give}")
    await comes(browser, "window.told.filter(({type}) => type === 'input_ack').map(({applied}) => applied)[0]", 1)
    await comes(browser, "window.seen.state.inputs", 1)
    await comes(browser, "window.seen.state.speed.join()", "3,-2")
    exported = "crypto.subtle.exportKey('pkcs8', window.keys.signing.privateKey).then(() => 'taken', () => 'kept')"
    assert await run(browser, f"return {exported}") == "kept"
    # What it has is not told again: its first frame goes on from that.
    noted = "mirror.take = (frame) => { window.bases.push(frame[2]); return take(frame); }"
    former = "const { mirror } = window.door; const take = mirror.take.bind(mirror); window.bases = []"
    await run(browser, f"window.door.breakOff(); {former}; {noted}; return 0")
    await comes(browser, "window.door.reconnections", 1)
    await comes(browser, "window.door.isOpen", True)
    before = await run(browser, "return window.seen.tick")
    await comes(browser, f"window.seen.tick > {before}", True)
    assert await run(browser, "return window.bases[0]") > 0
    await run(browser, "window.door.close(); return 0")
    await until(lambda: len(node.players) <= 1)
