"""Servers of today on the disks of the earlier release, in the process of the test, at the time of the recording."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
import trio

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import trusted_authorities
from batonpass.homeserver.config import HomeserverConfig
from batonpass.homeserver.server.main import run as run_homeserver
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.main import run as run_simserver
from tests.earlier_release.vectors import unpacked
from tests.homeserver.served import DEADLINE_S, new_ports

SIMSERVERS: Final = ("alpha.s1", "alpha.s2")
RECORDED_S: Final = 1_795_907_000.0
"""Unix time soon after the recorded servers were killed."""


class RecordedTime(Clock):
    """The clock of the machine, moved to when the recording was made."""

    def __init__(self) -> None:
        self._ahead_s: Final = RECORDED_S - super().unix_s()

    def unix_s(self) -> float:
        return super().unix_s() + self._ahead_s


def cluster_in(directory: Path) -> Path:
    """A directory of `baton up` as it was left when its servers were killed; its keys are for tests alone."""
    unpacked("cluster", directory)
    for config in directory.glob("*/config.toml"):
        config.write_text(config.read_text().replace("@DIRECTORY@", str(directory)))
    return directory


@asynccontextmanager
async def running(cluster: Path) -> AsyncIterator[dict[str, str]]:
    """The homeserver and both simulation servers of the instance, by their URLs, on other ports than they had."""
    clock = RecordedTime()
    with (
        new_ports() as ports,
        patch("batonpass.homeserver.server.main.Clock", lambda: clock),
        patch("batonpass.simserver.server.main.Clock", lambda: clock),
    ):
        port, nobody = ports.choose(), f"http://127.0.0.1:{ports.choose()}"
        url = f"http://127.0.0.1:{port}"
        home = HomeserverConfig.load(
            cluster / "alpha.h1" / "config.toml",
            {
                "rest.port": port,
                "link.port": 0,
                "members": [{"name": "alpha.h1", "raft_port": ports.choose(), "rest_url": url}],
                "peers": [{"instance": "beta", "urls": [nobody]}],
                # It is not to run out because the machine has something else to do.
                "lease_term_s": 60.0,
            },
        )
        urls = {"alpha.h1": url}
        async with trio.open_nursery() as nursery:
            await nursery.start(run_homeserver, home)
            for name in SIMSERVERS:
                urls[name] = f"http://127.0.0.1:{(port := ports.choose())}"
                more = {"rest.port": port, "link.port": 0, "home_urls": [url]}
                await nursery.start(run_simserver, SimserverConfig.load(cluster / name / "config.toml", more))
            for one in urls.values():
                await become(partial(status, one, "/healthz"), 200)
            yield urls
            nursery.cancel_scope.cancel()


async def become(ask: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Ask until this is the answer."""
    with trio.fail_after(DEADLINE_S):
        while True:
            if await ask() == wanted:
                return
            await trio.sleep(0.1)


async def get(url: str, path: str, token: str = "", **params: str) -> tuple[int, Any]:
    """The status of a GET, and the body of its answer."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=DEADLINE_S) as http:
        answer = await http.get(url + path, params=params, headers=headers)
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    return answer.status_code, answer.json() if is_json else answer.text


async def status(url: str, path: str) -> int:
    """The status of a GET."""
    return (await get(url, path))[0]


async def got(url: str, path: str) -> Any:
    """The body of a GET that succeeds."""
    found, body = await get(url, path)
    assert found == 200, body
    return body
