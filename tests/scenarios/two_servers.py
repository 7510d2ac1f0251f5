"""A homeserver and a simulation server of its own, each in a process of its own, for commands that talk to either."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from batonpass.simserver.server.config import SimserverConfig
from tests.homeserver.process import server_process, wait_ready
from tests.homeserver.served import homeserver_config, new_ports


class TwoServers(NamedTuple):
    """`alpha.h1` and `alpha.s1`; their operators' tokens are `operator` and `simserver-operator` in the directory."""

    home_url: str
    sim_url: str
    directory: Path
    sim: SimserverConfig


@contextmanager
def two_servers(directory: Path) -> Iterator[TwoServers]:
    """Run both until the block ends; they are ready."""
    with new_ports() as ports, ExitStack() as running:
        home = homeserver_config(directory, ports)
        wait_ready(running.enter_context(server_process(home)), home)
        fields: dict[str, Any] = {"rest": {"port": ports.choose()}, "home_urls": (home.rest.url,)}
        sim = SimserverConfig(
            name="alpha.s1",
            instance="alpha",
            directory=directory / "alpha.s1",
            join_token_file=directory / "join",
            operator_token_file=directory / "simserver-operator",
            **fields,
        )
        wait_ready(running.enter_context(server_process(sim)), sim)
        yield TwoServers(home.rest.url, sim.rest.url, directory, sim)
