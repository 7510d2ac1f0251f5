"""`baton up --play` as a program of its own, twice in one directory; and which browsers are opened."""

import json
import signal
import subprocess
import time
import webbrowser
from collections import Counter
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from batonpass.scenarios.arena.start import ROBOTS, open_page
from batonpass.scenarios.arena.world import TILES
from batonpass.scenarios.cluster.processes import BATON
from tests.scenarios.asked import PATIENCE_S, limited

pytestmark = limited

EXPECTED: Final = {"robot": ROBOTS, "tile": TILES[0] * TILES[1]}
URL: Final = "http://127.0.0.1:1/play/"


def test_the_arena_is_there_again_tomorrow(tmp_path: Path) -> None:
    first, second = (_played(tmp_path / "cluster") for _ in range(2))
    assert first["url"].partition("#")[0] == second["url"].partition("#")[0]
    assert first["url"] != second["url"]
    assert first["kinds"] == second["kinds"] == EXPECTED


def _played(directory: Path) -> dict[str, Any]:
    """Start it and end it: where it is played, and how many entities of each kind there were."""
    flags = ("--play", "--no-open", "--json", "--dir", str(directory), "--log-level", "WARNING")
    size = () if directory.exists() else ("--instances", "alpha:1", "--simservers", "2")
    with subprocess.Popen([*BATON, "up", *flags, *size], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            reports = {}
            while "play" not in reports:
                report = json.loads(process.stdout.readline())
                reports[report["event"]] = report
            url = reports["play"]["url"]
            page = httpx.get(url.partition("#")[0], trust_env=False, timeout=PATIENCE_S)
            assert "<title>batonpass: the arena</title>" in page.text
            simservers = [one["rest_url"] for one in reports["ready"]["servers"] if one["role"] == "simserver"]
            # One that is handed over at this moment is with neither of two servers, or with both.
            until_s = time.monotonic() + PATIENCE_S
            while (kinds := _kinds(simservers)) != EXPECTED and time.monotonic() < until_s:
                time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    return {"url": url, "kinds": kinds}


def _kinds(urls: list[str]) -> dict[str, int]:
    names = [n for url in urls for n in httpx.get(f"{url}/v1/local/entities", trust_env=False, timeout=60).json()]
    return dict(Counter(name.partition(".")[2].partition("-")[0] for name in names))


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
