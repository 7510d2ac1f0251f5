"""A simulation server as it is shipped, and a homeserver, to look at how they are wired; neither runs."""

from pathlib import Path
from typing import Any

import trio

from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.http.client import HttpClient
from batonpass.homeserver.node.composition import Parts
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.main import Shell, open_shell
from tests.homeserver.batched import Home, log_of_three

NAME = "alpha.s1"


def shipped_in(directory: Path) -> Shell:
    (directory / "join").write_text("a join token of some length")
    (directory / "join").chmod(0o600)
    config = SimserverConfig(
        name=NAME,
        instance="alpha",
        directory=directory / "s1",
        home_urls=("http://home.invalid",),
        join_token_file=directory / "join",
        world="batonpass.simserver.world.demo_balls:Balls",
    )
    client = HttpClient()
    trio.run(client.aclose)
    return open_shell(config, client, InstanceClock(Clock(), NAME))


def home_parts() -> tuple[Parts, dict[str, Any]]:
    """The parts of a homeserver, and what it was given."""
    home = Home(log_of_three())
    return home.parts, {"store": home.kept, "directory": home.directory, "federation": home.far, "post": home}
