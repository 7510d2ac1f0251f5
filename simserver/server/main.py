"""A simulation server as a process: opens what is real for it, and runs it as a supervision tree.

What it is made of, `simserver.server.build` wires.
"""

import logging
import math
import secrets
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn

import trio

from batonpass.actors.base.breakpoints import breakpoints_of, nowhere
from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.core.children import ActorSpec, ServiceSpec
from batonpass.actors.core.exits import reason_of
from batonpass.actors.core.restart import Restart, Strategy
from batonpass.actors.core.supervisor import SupervisorSpec
from batonpass.actors.core.system import System
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.http.client import HttpClient
from batonpass.actors.http.door import traffic_of
from batonpass.actors.http.link_server import LinkHttpServer
from batonpass.actors.http.tokens import TokenGate
from batonpass.actors.http.web_service import WebService
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.net.key_service import KeyService, KeysRefused
from batonpass.actors.net.link_service import LinkService
from batonpass.actors.supervision.application import LastWord, run_application
from batonpass.actors.supervision.dynamic_supervisor import DynamicSupervisorSpec
from batonpass.actors.supervision.signals import run_until_signalled
from batonpass.authority.node.config import Address, read_secret, require_different
from batonpass.authority.node.metrics import Metrics, open_metrics
from batonpass.authority.node.spans import Spans
from batonpass.authority.node.telemetry_handlers import attach_listeners
from batonpass.authority.node.tls_files import believe_authorities, context_of
from batonpass.authority.protocol_version import PROTOCOL_VERSION
from batonpass.authority.trust.key_pinning import Pins
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto.access_tokens import simserver_audience
from batonpass.crypto.continuity import Published
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.pin_file import PinFile
from batonpass.simserver.durability.ledger import Ledger
from batonpass.simserver.durability.put_aside import PutAside
from batonpass.simserver.entity.actor_keeper import ENTITIES, ActorKeeper
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.custody_log import CustodyLog, custody_file
from batonpass.simserver.lease.keeper import Nonces
from batonpass.simserver.lease.log_watermark import LogWatermark
from batonpass.simserver.lease.renewal_lane import RenewalLane
from batonpass.simserver.net.home_answers import HomeRefused
from batonpass.simserver.net.home_client import HomeClient
from batonpass.simserver.net.outbox import Outbox
from batonpass.simserver.net.peer_addresses import PeerAddresses
from batonpass.simserver.net.ports import SimserverPorts, certificate_reader
from batonpass.simserver.players.door import PlayersDoor
from batonpass.simserver.players.entrance import door_entry
from batonpass.simserver.players.home_words import HomeConversations
from batonpass.simserver.server.build import build, remember, services
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.dispatch import Durable, SimserverNode
from batonpass.simserver.server.http_status import make_status_app
from batonpass.simserver.server.readings import simserver_readings
from batonpass.simserver.sync.browser.pages import browser_pages
from batonpass.simserver.sync.door.stream_door import StaticPage, StreamDoor
from batonpass.simserver.sync.hosting.host import HostedStreams
from batonpass.simserver.sync.hosting.whereabouts import HomeWhereabouts
from batonpass.simserver.sync.scenes.door import SceneDoor
from batonpass.simserver.sync.scenes.host import HostedScenes
from batonpass.simserver.transfer.target.staged_states import Stages
from batonpass.simserver.world.api import load_world

__all__ = ["Shell", "main", "open_shell", "run", "supervision_tree"]

_log = logging.getLogger("batonpass.simserver")

# Each supervisor gives up beyond `max_restarts` within `window_s`. What fails by accident fails rarely; what fails this
# often fails every time.
PATIENCE: Final[dict[str, Any]] = {"max_restarts": 5, "window_s": 10.0}
# Entities crash independently of each other, and one that crashes on and on is quarantined
# (`simserver.entity.state`). Only when they do so in masses, what is wrong is not the entities.
MAX_ENTITY_RESTARTS: Final = 1000
ENTITY_RESTARTS_WINDOW_S: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Shell:
    """One server as a process: its parts, and what only a process has."""

    node: SimserverNode
    keys: KeyService
    renewals: RenewalLane
    telemetry: Telemetry
    tokens: TokenGate
    metrics: Metrics | None = None
    last_word: LastWord = field(default_factory=LastWord)


def open_shell(config: SimserverConfig, client: HttpClient, clock: InstanceClock) -> Shell:
    """Build a server over what is real: its keys, its link, its home instance, its disk; nothing runs yet.

    Raises:
        ConfigError, KeyFileError: the world, listeners, secrets or keys cannot be used.
    """
    keys = KeyService(
        config.name,
        KeyStore(config.directory / "keys"),
        clock,
        rotate_every_s=config.rotate_keys_every_s or math.inf,
    )
    join_token = read_secret(config.join_token_file)
    operator_token = None if config.operator_token_file is None else read_secret(config.operator_token_file)
    require_different({"join_token_file": join_token, "operator_token_file": operator_token})
    tokens = TokenGate(
        simserver_audience(config.instance),
        clock.unix_s,
        issuer_file=config.token_issuer_file,
        operator_token=operator_token,
    )
    pins = Pins(PinFile(config.directory / "keys" / "pins.jsonl"))
    sealer = Sealer(config.name, keys.identity, agrees_ahead=True)
    peer_addresses = PeerAddresses()
    home = HomeClient(
        sealer,
        config.instance,
        config.home_urls,
        join_token,
        client,
        clock,
        peer_addresses.is_silent,
        pins,
    )
    link = LinkService(
        lambda port: peer_addresses.watching(
            LinkEndpoint(config.name, keys.identity, home.handshakes, host=config.link.host, port=port)
        ),
        config.link.port,
    )
    keys.use(sealer.change_identity)
    keys.use(link.change_identity)
    telemetry = Telemetry(lambda: clock.monotonic_ns() / 1e9)
    listed = attach_listeners(config.telemetry.handlers, telemetry, config.name)
    renewals = RenewalLane(home, sealer, link, clock)
    counts: Counter[str] = Counter()
    ports = SimserverPorts(
        sealer=sealer,
        home=home,
        renew=renewals.ask,
        link=link,
        outbox=Outbox(sealer, home, link, clock, counts, peer_addresses),
        certificates=certificate_reader(home),
        clock=clock,
        counts=counts,
        spans=Spans(telemetry, config.name, clock.monotonic_ns),
        reached=breakpoints_of(config.name) or nowhere,
        new_id=partial(secrets.token_hex, 12),
        whereabouts=HomeWhereabouts(home, client, clock),
    )
    world = load_world(config.world, config.world_options)
    node = build(config, world, ports, _durable(config, clock))
    return Shell(
        node=node,
        keys=keys,
        renewals=renewals,
        telemetry=telemetry,
        tokens=tokens,
        metrics=open_metrics(telemetry, config.name, "simserver", partial(simserver_readings, node), listed),
    )


def _durable(config: SimserverConfig, clock: InstanceClock) -> Durable:
    # An actor that is killed on purpose leaves its custody log behind.
    note = None if breakpoints_of(config.name) is None else custody_file(config.directory / "custody.jsonl")
    return Durable(
        ledger=Ledger(config.name, config.directory / "tree"),
        stages=Stages(config.directory / "stages"),
        nonces=Nonces(config.directory / "lease.json"),
        log_watermark=LogWatermark(clock, config.directory / "home_log"),
        put_aside=PutAside(config.directory / "put_aside"),
        crash_guard=CrashGuard(config.directory, clock.unix_s),
        custody=CustodyLog(config.name, note, config.directory),
    )


def supervision_tree(shell: Shell) -> SupervisorSpec:
    """Which supervisor restarts what, in the order of starting; docs/reference/supervision.md has the reasons."""
    node = shell.node
    app = make_status_app(node, shell.keys, shell.tokens, shell.metrics)
    rest, hosts = node.config.rest, node.config.allowed_hosts
    web = WebService(app, rest.host, rest.port, hosts=hosts, tls=context_of(node.config.tls))
    population = SupervisorSpec(
        "population",
        (
            DynamicSupervisorSpec(
                ENTITIES, name=ENTITIES, max_restarts=MAX_ENTITY_RESTARTS, window_s=ENTITY_RESTARTS_WINDOW_S
            ),
            ActorSpec("actor_keeper", ActorKeeper, (node.environment, node.holdings), name="actor_keeper"),
        ),
        strategy=Strategy.REST_FOR_ONE,
        name="population",
        **PATIENCE,
    )
    messages = SupervisorSpec(
        "messages",
        (
            ServiceSpec("link", node.link.serve),
            ServiceSpec("renewals", shell.renewals.serve),
            ServiceSpec("inbox", node.serve_link),
            *(
                ()
                if node.streams is None
                else (ServiceSpec("stream_link", partial(_serve_stream_link, node, node.streams)),)
            ),
        ),
        strategy=Strategy.REST_FOR_ONE,
        name="messages",
        **PATIENCE,
    )
    return SupervisorSpec(
        "simserver",
        (
            ServiceSpec("ledger", shell.last_word.of(partial(_serve_ledger, node)), start_timeout_s=None),
            population,
            ServiceSpec("outbox", node.outbox.serve),
            ServiceSpec("members", node.home.serve_members),
            *(ServiceSpec(name, serve) for name, serve in services(node)),
            messages,
            ServiceSpec("rest", web.serve),
            *(() if node.streams is None else (ServiceSpec("stream_door", partial(_serve_door, node, node.streams)),)),
            *(() if node.scenes is None else (ServiceSpec("scene_door", partial(_serve_scenes, node, node.scenes)),)),
            ServiceSpec("player_door", partial(_serve_players, node)),
            ServiceSpec("ticks", node.serve_ticks),
            ServiceSpec("registration", partial(_register, shell, web), restart=Restart.TRANSIENT),
        ),
        name="simserver",
        **PATIENCE,
    )


async def _serve_ledger(node: SimserverNode, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """The ledger; when it is opened for the first time, what it knows of earlier lives of this server is remembered.

    When the server is stopped, everything that lives here is written to it, so that it is resumed from there.
    """
    await node.ledger.serve_to_the_end(partial(remember, node), node.replication.check_in_all, task_status=task_status)


async def _serve_door(
    node: SimserverNode, streams: HostedStreams, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """The door for clients of event streams, where the configuration says so, or at a port of the kernel's choice."""
    address = node.config.stream_door or Address()
    pages = {path: StaticPage(*file) for path, file in browser_pages().items()}
    door = StreamDoor(
        streams,
        node.clock,
        origins=node.config.stream_origins,
        hosts=node.config.allowed_hosts,
        pages=pages,
        relay=node.config.stream_relay,
    )
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(partial(door.serve, address.host, address.port, tls=context_of(node.config.tls)))
        node.stream_url, node.stream_pushes = urls[0], door.pushes
        node.door_traffic["streams"] = partial(traffic_of, door.lobby, door.site.websockets)
        task_status.started()


async def _serve_stream_link(
    node: SimserverNode, streams: HostedStreams, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """The same door for clients who prove over the link who they are."""
    await LinkHttpServer(StreamDoor(streams, node.clock), node.link, node.counts).serve(task_status=task_status)


async def _serve_scenes(
    node: SimserverNode, scenes: HostedScenes, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """The door for members of scenes, where the configuration says so, or at a port of the kernel's choice."""
    address = node.config.scene_door or Address()
    door = SceneDoor(scenes, node.clock, origins=node.config.scene_origins, hosts=node.config.allowed_hosts)
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(partial(door.serve, address.host, address.port, tls=context_of(node.config.tls)))
        node.scene_url = urls[0]
        node.door_traffic["scenes"] = partial(traffic_of, door.lobby, door.site.websockets)
        task_status.started()


async def _serve_players(node: SimserverNode, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """The players' door, where the configuration says so, or at a port of the kernel's choice."""
    address = node.config.player_door or Address()
    observers = node.config.player_observers
    entry = door_entry(
        node.home,
        node.clock.unix_s,
        observers=address.is_loopback if observers is None else observers,
    )
    door = PlayersDoor(
        node.players,
        entry,
        node.take_from_player,
        HomeConversations(node.home.rest_urls),
        node.clock,
        origins=node.config.player_origins,
        hosts=node.config.allowed_hosts,
    )
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(partial(door.serve, address.host, address.port, tls=context_of(node.config.tls)))
        node.player_url = node.config.player_door_url or urls[0]
        node.door_traffic["players"] = partial(traffic_of, door.lobby, door.site.websockets)
        task_status.started()


async def _register(
    shell: Shell, web: WebService, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Register with the home instance, and again with every change of keys."""
    node = shell.node
    task_status.started()

    async def publish(keys: Published) -> Published:
        try:
            shown = await node.home.register(web.urls[0], node.link.address, keys)
        except HomeRefused as error:
            if node.registered:
                raise KeysRefused(str(error)) from error
            raise
        if not node.registered:
            node.registered = True
            node.lease.begin(lambda: (web.urls[0], *node.link.address))
            _log.info("%s is ready on %s", node.config.name, web.urls[0])
        return shown

    try:
        await shell.keys.serve(publish)
    except HomeRefused as error:
        shell.last_word.say(error)


async def run(config: SimserverConfig, *, task_status: trio.TaskStatus[Shell] = trio.TASK_STATUS_IGNORED) -> NoReturn:
    """Run one simulation server until cancelled. Started, with its parts, when everything but its registration is done.

    Raises:
        ConfigError, KeyFileError: the world, secrets or keys cannot be used.
        HomeRefused: the home instance will not have this server.
        Exception: what `Ledger.serve` raises; that an address cannot be used; and as `run_application`.
    """
    believe_authorities(config.tls)
    async with HttpClient() as client:
        shell = open_shell(config, client, InstanceClock(Clock(), config.name))
        node = shell.node

        def started(system: System) -> None:
            node.system = system
            task_status.started(shell)

        try:
            await run_application(config.name, supervision_tree(shell), shell.last_word, started, shell.telemetry)
        finally:
            node.ports.spans.close()


def main(config: SimserverConfig) -> int:
    """Run one simulation server until SIGINT or SIGTERM; the exit status."""
    status = 0
    try:
        run_until_signalled(config.name, lambda: run(config))
    except* HomeRefused as group:
        text = "%s (protocol version %d) stops: its home instance refused it: %s"
        _log.critical(text, config.name, PROTOCOL_VERSION, reason_of(group))
        status = 3
    return status
