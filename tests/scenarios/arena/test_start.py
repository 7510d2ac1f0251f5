"""`baton up --play` as a program of its own, twice in one directory; and which browsers are opened."""

import json
import signal
import subprocess
import webbrowser
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import httpx
import pytest
import trio
import trio.testing

from batonpass.scenarios.arena.start import ROBOTS, open_page, prepare_arena
from batonpass.scenarios.arena.world import TILES
from batonpass.scenarios.cli.expected_errors import foreseeable
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.processes import BATON
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.status import CLUSTER_FAILED
from batonpass.scenarios.players.rest_client import ApiFailure
from tests.scenarios.asked import PATIENCE_S, come, limited

pytestmark = limited

EXPECTED: Final = {"robot": ROBOTS, "tile": TILES[0] * TILES[1]}
URL: Final = "http://127.0.0.1:1/play/"


async def test_the_arena_is_there_again_tomorrow(tmp_path: Path) -> None:
    size = ("--instances", "alpha:1", "--simservers", "2")
    first = await _played(tmp_path / "cluster", *size)
    second = await _played(tmp_path / "cluster")
    assert first.partition("#")[0] == second.partition("#")[0]
    assert first != second


async def _played(directory: Path, *size: str) -> str:
    """Start it and end it, once all entities are there: where it is played."""
    flags = ("--play", "--no-open", "--json", "--dir", str(directory), "--log-level", "WARNING")
    process = await trio.lowlevel.open_process([*BATON, "up", *flags, *size], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        said, reports = b"", dict[str, Any]()
        while "play" not in reports:
            said += await process.stdout.receive_some()
            *lines, said = said.split(b"\n")
            reports |= {report["event"]: report for report in map(json.loads, lines)}
        url = str(reports["play"]["url"])
        simservers = [one["rest_url"] for one in reports["ready"]["servers"] if one["role"] == "simserver"]
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
            page = await client.get(url.partition("#")[0])
            assert "<title>batonpass: the arena</title>" in page.text
            # One that is handed over at this moment is with neither of two servers, or with both.
            await come(partial(_kinds, client, simservers), EXPECTED.__eq__, what="all entities")
        process.send_signal(signal.SIGINT)
        with trio.fail_after(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        process.kill()
    return url


async def _kinds(client: httpx.AsyncClient, urls: list[str]) -> dict[str, int]:
    names = [name for url in urls for name in (await client.get(f"{url}/v1/local/entities")).json()]
    return dict(Counter(name.partition(".")[2].partition("-")[0] for name in names))


class Instance:
    """Answers as an instance without entities does, in the place of a cluster and of its client."""

    spec = ClusterSpec({"alpha": 1}, simservers=1)

    def __init__(self, *refusals: str) -> None:
        self.refusals = list(refusals)
        self.spawned: list[str] = []

    def rest_client(self, _: float) -> "Instance":
        return self

    def server(self, _: str) -> Any:
        return SimpleNamespace(rest_url="http://127.0.0.1:1")

    async def aclose(self) -> None:
        pass

    async def call(self, _: str, method: str, path: str, body: Any = None, **__: str) -> Any:
        if method == "GET":
            raise ApiFailure("not_found", "there is none")
        if path == "/v1/entities":
            if self.refusals:
                raise ApiFailure(self.refusals.pop(), "it is refused")
            self.spawned.append(body["id"])
        return {"invitation": "i"}


async def test_a_server_without_a_lease_is_asked_again(autojump_clock: trio.testing.MockClock) -> None:
    instance = Instance(*["target_down"] * 30)
    assert await prepare_arena(cast("LocalCluster", instance), robots=2) == f"{URL}#invitation=i"
    assert len(set(instance.spawned)) == len(instance.spawned) == TILES[0] * TILES[1] + 2


@pytest.mark.parametrize("refusals", [["full"], ["target_down"] * 100_000], ids=["at once", "after a while"])
async def test_what_an_instance_refuses_is_one_sentence(
    refusals: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        await prepare_arena(cast("LocalCluster", Instance(*refusals)))
    told = foreseeable(refused.value)
    assert told is not None
    assert told[0].startswith(f"the arena cannot be made ready: {refusals[0]}: ")
    assert told[1] == CLUSTER_FAILED


class Window(webbrowser.BackgroundBrowser):
    """A browser with windows, which notes what it is to show."""

    def __init__(self) -> None:
        super().__init__("window")
        self.opened: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.opened.append(url)
        return True


async def test_a_browser_with_windows_is_opened_and_one_in_the_terminal_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = Window()
    monkeypatch.setattr(webbrowser, "get", lambda: window)
    assert await open_page(URL)
    assert window.opened == [URL]
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("false"))
    assert not await open_page(URL)

    def none() -> webbrowser.BaseBrowser:
        raise webbrowser.Error("there is none")

    monkeypatch.setattr(webbrowser, "get", none)
    assert not await open_page(URL)
