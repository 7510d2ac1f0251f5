"""A simulation server as it is shipped, and a homeserver, to look at how they are wired; neither runs."""

from pathlib import Path
from typing import Any, Final

import trio

from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.http.client import HttpClient
from batonpass.authority.node.config import Address, TelemetrySettings
from batonpass.homeserver.config import HomeserverConfig, MemberConfig, PeerConfig, PlacementSettings
from batonpass.homeserver.node.composition import Parts
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.main import Shell, open_shell
from batonpass.simserver.sync.hosting.world import EventStreams
from batonpass.simserver.sync.scenes.world import SceneEntities
from batonpass.simserver.sync.shows.world import Shows
from batonpass.simserver.world.demo_balls import Balls
from tests.homeserver.batched import Home, log_of_three

NAME, HOME = "alpha.s1", "alpha.h1"


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


class Everything(Balls):
    """A world that has whatever a server may have: event streams, scenes, shows, neighbours, entities that sleep."""

    reach = 1.0

    def __init__(self, **options: Any) -> None:
        self.streams, self.scenes = EventStreams(), SceneEntities()
        self.shows_world = Shows(engine="tests.wiring.servers:no_engine", settings={"max_state_bytes": 4321})
        self.options = options

    def may_sleep(self, state: Any) -> bool:
        """Never."""
        return False


def no_engine(*_: Any) -> None:
    """Computes nothing."""


HEARD: Final[list[str]] = []


def listen(_telemetry: Telemetry, name: str) -> None:
    """What a configuration names, so that it hears of a server's telemetry."""
    HEARD.append(name)


def write_secret(directory: Path, name: str) -> Path:
    (directory / name).write_text(f"the {name} token, of some length")
    (directory / name).chmod(0o600)
    return directory / name


def full_simserver_config(directory: Path) -> SimserverConfig:
    """A configuration that says all that can be said, and nothing as it would be without it."""
    return SimserverConfig(
        name=NAME,
        instance="alpha",
        directory=directory / "s1",
        rest=Address(host="127.0.1.1"),
        allowed_hosts=("sim.example",),
        link=Address(host="127.0.1.2"),
        home_urls=("http://home.invalid",),
        join_token_file=write_secret(directory, "join"),
        operator_token_file=write_secret(directory, "operator"),
        rotate_keys_every_s=86_401.0,
        tick_hz=21.0,
        max_entities=100_001,
        max_state_bytes=1_000_001,
        copy_interval_s=0.51,
        backup_replicas=2,
        checkpoint_interval_s=5.1,
        max_copies_bytes=512_000_001,
        passivate_after_s=121.0,
        world="tests.wiring.servers:Everything",
        world_options={"an_option": 1},
        stream_door=Address(host="127.0.1.3"),
        stream_origins=("https://streams.example",),
        stream_relay=True,
        scene_door=Address(host="127.0.1.4"),
        scene_origins=("https://scenes.example",),
        player_door=Address(host="127.0.1.5"),
        player_door_url="wss://players.example",
        player_origins=("https://pages.example",),
        player_observers=False,
        telemetry=TelemetrySettings(handlers=("tests.wiring.servers:listen",)),
        log_level="WARNING",
    )


def home_parts() -> tuple[Parts, dict[str, Any]]:
    """The parts of a homeserver, and what it was given."""
    home = Home(log_of_three())
    return home.parts, {"store": home.kept, "directory": home.directory, "federation": home.far, "post": home}


def full_home_config(directory: Path) -> HomeserverConfig:
    """The same of a homeserver."""
    return HomeserverConfig(
        name=HOME,
        instance="alpha",
        directory=directory / "h1",
        rest=Address(host="127.0.2.1"),
        allowed_hosts=("home.example",),
        link=Address(host="127.0.2.2"),
        members=(MemberConfig(name=HOME, host="127.0.2.3", raft_port=4322, rest_url="https://member.example"),),
        peers=(PeerConfig(instance="beta", urls=("http://beta.invalid",), hops=3),),
        placement=PlacementSettings(
            balance=True,
            policy="tests.wiring.servers:no_policy",
            hot=0.91,
            cool=0.41,
            hot_for_s=6.1,
            min_hold_s=11.5,
            moves_per_s=5.5,
            drain_moves_per_s=55.5,
            oscillation_s=66.5,
        ),
        raft_secret_file=write_secret(directory, "raft"),
        join_token_file=write_secret(directory, "join"),
        client_token_file=write_secret(directory, "client"),
        federation_secret_file=write_secret(directory, "federation"),
        operator_token_file=write_secret(directory, "operator"),
        rotate_keys_every_s=86_402.0,
        lease_term_s=7.5,
        player_origins=("https://home-pages.example",),
        player_observers=False,
        telemetry=TelemetrySettings(handlers=("tests.wiring.servers:listen",)),
        log_level="WARNING",
    )


def no_policy(*_: Any) -> list[Any]:
    """Moves nobody."""
    return []
