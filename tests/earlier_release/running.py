"""Servers of today on the disks of the earlier release, in the process of the test, at the time of the recording."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

import trio

from batonpass.actors.base.clock import Clock
from batonpass.homeserver.config import HomeserverConfig
from batonpass.homeserver.server.main import run as run_homeserver
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.main import run as run_simserver
from tests.earlier_release.vectors import unpacked
from tests.homeserver.served import new_ports
from tests.scenarios.asked import says

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
                await says(one, "ok")
            yield urls
            nursery.cancel_scope.cancel()
