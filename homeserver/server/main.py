"""The composition root of a homeserver: builds the parts, and runs them as a supervision tree."""

import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import trio

from batonpass.actors.base.batcher import Batcher
from batonpass.actors.base.breakpoints import breakpoints_of, nowhere
from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.core.children import ServiceSpec
from batonpass.actors.core.exits import reason_of
from batonpass.actors.core.restart import Restart, Strategy
from batonpass.actors.core.supervisor import SupervisorSpec
from batonpass.actors.core.system import System
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.http.client import HttpClient
from batonpass.actors.http.door import traffic_of
from batonpass.actors.http.door_urls import DoorUrls
from batonpass.actors.http.tokens import TokenGate
from batonpass.actors.http.web_service import Beside, WebService
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.net.key_service import KeyService, KeysRefused
from batonpass.actors.net.link_service import LinkService
from batonpass.actors.net.silent_peers import SilentPeers
from batonpass.actors.supervision.application import LastWord, run_application
from batonpass.actors.supervision.signals import run_until_signalled
from batonpass.authority.errors import Refused
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.node.config import read_secret, require_different
from batonpass.authority.node.metrics import open_metrics
from batonpass.authority.node.spans import Spans
from batonpass.authority.node.telemetry_handlers import attach_listeners
from batonpass.authority.node.tls_files import believe_authorities, context_of
from batonpass.authority.procedures.table import MAX_STEPS
from batonpass.authority.trust.key_pinning import Pins, published
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto.access_tokens import homeserver_audience
from batonpass.crypto.continuity import Published
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.pin_file import PinFile
from batonpass.homeserver.config import HomeserverConfig
from batonpass.homeserver.door.door import LIMITS, HomeDoor
from batonpass.homeserver.failover.clocks import Clocks
from batonpass.homeserver.failover.renewal_lane import RenewalResponder
from batonpass.homeserver.log.backend import REFUSALS, BackendService, begin_member, make_backend
from batonpass.homeserver.log.log_identity import LogDiffers, LogIdentity
from batonpass.homeserver.log.log_positions import LogPositions
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import Federation
from batonpass.homeserver.names.key_reset import KeyReset
from batonpass.homeserver.names.registration import register
from batonpass.homeserver.node import composition
from batonpass.homeserver.node.asked_servers import AskedServers
from batonpass.homeserver.node.composition import DecisionSettings, Loop
from batonpass.homeserver.node.dispatch import HomeserverNode, Secrets
from batonpass.homeserver.node.drops import Drops
from batonpass.homeserver.node.readings import homeserver_readings
from batonpass.homeserver.overview.live import LiveOverview
from batonpass.homeserver.placement.balancer import load_policy, random_id
from batonpass.homeserver.rest import make_app
from batonpass.homeserver.server import exit_status
from batonpass.homeserver.transfer.master_questions import Questions
from batonpass.homeserver.transfer.parcels import Parcels
from batonpass.homeserver.transfer.ports import HomeserverPorts
from batonpass.homeserver.transfer.rate_limit import RequestRateLimit
from batonpass.homeserver.transfer.service import in_nursery
from batonpass.tree.member.replica import Replica
from batonpass.tree.net.roster import REMOVED
from batonpass.tree.net.transport import RefusedByInstance
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["build", "main", "run", "supervision_tree"]

_log = logging.getLogger("batonpass.homeserver")

LOOK_AT_OWN_ROW_S: Final = 5.0
# Each supervisor gives up beyond this many restarts within this number of seconds. What fails by accident fails rarely;
# what fails this often fails every time.
PATIENCE: Final[dict[str, Any]] = {"max_restarts": 5, "window_s": 10.0}


def build(config: HomeserverConfig, client: HttpClient, clock: InstanceClock) -> HomeserverNode:
    """One homeserver on sockets, files and clocks; nothing runs yet. `composition.build` wires what decides.

    Raises:
        ConfigError, KeyFileError: secrets or keys, or the addresses to listen at, cannot be used.
    """
    held = Secrets(
        join_token=read_secret(config.join_token_file),
        federation=read_secret(config.federation_secret_file),
    )
    given = {name: read_secret(file) for name, file in config.opaque_tokens().items()}
    tokens = TokenGate(
        homeserver_audience(config.instance),
        clock.unix_s,
        issuer_file=config.token_issuer_file,
        client_token=given.get("client_token_file"),
        operator_token=given.get("operator_token_file"),
    )
    require_different(
        {
            "join_token_file": held.join_token,
            "federation_secret_file": held.federation,
            **given,
            "raft_secret_file": None if config.raft_secret_file is None else read_secret(config.raft_secret_file),
        }
    )
    keys = KeyService(
        config.name,
        KeyStore(config.directory / "keys"),
        clock,
        rotate_every_s=config.rotate_keys_every_s or math.inf,
    )
    pins, silent = Pins(PinFile(config.directory / "keys" / "pins.jsonl")), SilentPeers()
    sealer = Sealer(config.name, keys.identity)
    backend = BackendService(partial(make_backend, config))
    store = InstanceStore(lambda: backend.current)
    federation = Federation(sealer, config.peers, held.federation, client, clock, pins, silent.__contains__)
    directory = Directory(config.instance, store, federation, clock)
    link = LinkService(
        lambda port: silent.watching(
            LinkEndpoint(config.name, keys.identity, directory.handshakes, host=config.link.host, port=port)
        ),
        config.link.port,
    )
    keys.use(sealer.change_identity)
    keys.use(link.change_identity)
    telemetry = Telemetry(lambda: clock.monotonic_ns() / 1e9)
    spans = Spans(telemetry, config.name, clock.monotonic_ns)
    listed = attach_listeners(config.telemetry.handlers, telemetry, config.name)
    positions = LogPositions(sealer, store, directory.parse, clock)
    parcels = Parcels(sealer, directory, link, clock, positions.shown_to)
    raft = config.metadata.backend == "raft"

    def leads() -> bool:
        return backend.current.status.leader == config.name

    def leadership() -> Replica | None:
        return backend.current if isinstance(backend.current, Replica) else None

    clocks = Clocks(config.name, store, held.join_token, client, clock, leadership, leads)
    ports = HomeserverPorts(
        sealer=sealer,
        store=store,
        directory=directory,
        federation=federation,
        post=parcels,
        positions=positions,
        clock=clock,
        spans=spans,
        leads=leads,
        leads_log=lambda: backend.current.status.is_leader if raft else None,
        is_better_elsewhere=clocks.is_better_elsewhere,
        reached=breakpoints_of(config.name) or nowhere,
        beside_each_other=in_nursery,
        gather=partial(Batcher, most=MAX_STEPS),
    )
    placement = config.placement
    parts = composition.build(
        ports,
        DecisionSettings(
            lease_term_s=config.lease_term_s,
            balance=placement.limits(),
            policy=load_policy(placement.policy),
            balancing=placement.balance,
            new_id=random_id,
        ),
    )
    last_word, drops = LastWord(), Drops(clock)
    return HomeserverNode(
        **vars(parts),
        config=config,
        secrets=held,
        tokens=tokens,
        clock=clock,
        sealer=sealer,
        backend=backend,
        parcels=parcels,
        link=link,
        keys=keys,
        last_word=last_word,
        telemetry=telemetry,
        metrics=listed,
        drops=drops,
        renewals=RenewalResponder(link, store, parcels, parts.leases, drops.renewal_failed),
        request_gate=RequestRateLimit(store, clock),
        questions=Questions(store, lambda: backend.current, clock),
        key_reset=KeyReset(sealer, store),
        log_identity=LogIdentity(
            config.name,
            store,
            held.join_token,
            lambda: (backend.current.status.leader or "") if raft else "",
            client,
            clock,
            last_word.say,
        ),
        clocks=clocks,
        doors=DoorUrls(client, clock),
        asked=AskedServers(client),
    )


def _hosts(config: HomeserverConfig) -> set[str]:
    """Names under which its REST may be asked: those that are allowed, and where its own entry of `members` says."""
    own = {urlsplit(member.rest_url).hostname or "" for member in config.members if member.name == config.name}
    return own.union(config.allowed_hosts)


def supervision_tree(node: HomeserverNode) -> SupervisorSpec:
    """The supervisors and their children, in the order of starting; docs/explanation/supervision.md has the reasons."""
    reading = partial(homeserver_readings, node)
    live = LiveOverview(node)
    metrics = open_metrics(node.telemetry, node.config.name, "homeserver", reading, node.metrics)
    app = make_app(node, metrics, live, node.config.directory / "acts.json")
    door = HomeDoor(node, app)
    node.door_traffic = partial(traffic_of, door.lobby, door.websockets)
    beside, rest = Beside(door, door.websockets, LIMITS), node.config.rest
    web = WebService(app, rest.host, rest.port, beside, hosts=_hosts(node.config), tls=context_of(node.config.tls))
    loops = node.loops()
    messages = SupervisorSpec(
        "messages",
        (
            ServiceSpec("link", node.link.serve),
            ServiceSpec("renewals", node.renewals.serve),
            ServiceSpec("inbox", node.serve_link),
        ),
        strategy=Strategy.REST_FOR_ONE,
        name="messages",
        **PATIENCE,
    )
    faces = SupervisorSpec(
        "faces",
        (
            messages,
            ServiceSpec("leases", partial(_serve_loops, loops["leases"])),
            ServiceSpec("recoveries", partial(_serve_loops, loops["recoveries"])),
            ServiceSpec("federation", partial(_serve_federation, node)),
            ServiceSpec("rest", partial(_serve_rest, node, web)),
            ServiceSpec("newsroom", door.newsroom.serve),
            ServiceSpec("overview", live.serve),
            ServiceSpec("samples", live.samples.serve),
            ServiceSpec("balancer", partial(_serve_loops, loops["balancer"])),
            ServiceSpec("registration", partial(_register, node, web), restart=Restart.TRANSIENT),
        ),
        name="faces",
        **PATIENCE,
    )
    return SupervisorSpec(
        "homeserver",
        (ServiceSpec("replica", node.last_word.of(node.backend.serve), start_timeout_s=None), faces),
        strategy=Strategy.REST_FOR_ONE,
        name="homeserver",
        **PATIENCE,
    )


async def _serve_rest(
    node: HomeserverNode, web: WebService, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """The REST API, and what wakes the requests that wait for questions."""
    async with trio.open_nursery() as nursery:
        await nursery.start(node.questions.serve)
        await nursery.start(web.serve)
        task_status.started()


async def _serve_loops(loops: Sequence[Loop], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """What parts of the server do all the time; one that fails ends the others."""
    async with trio.open_nursery() as nursery:
        for loop in loops:
            nursery.start_soon(loop, nursery)
        task_status.started()


async def _serve_federation(
    node: HomeserverNode, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """What looks after the entities that other instances have, and the addresses of these and of the other members."""
    async with trio.open_nursery() as nursery:
        await nursery.start(node.federation.serve)
        await nursery.start(partial(_serve_loops, node.loops()["abroad"]))
        await nursery.start(node.log_identity.serve)
        await nursery.start(node.clocks.serve)
        task_status.started()


async def _register(
    node: HomeserverNode, web: WebService, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Enter this member into its own directory as soon as the instance has a leader, and every change of its keys."""
    task_status.started()
    rest_url = web.urls[0]

    async def publish(keys: Published) -> Published:
        row = _own_row(node, rest_url, keys)
        while True:
            try:
                shown = published(await register(node.store, row))
            except (NoQuorum, OutcomeUnknown) as error:
                _log.info("not registered yet: %s", error)
                await trio.sleep(0.2)
            except Refused as error:
                if node.registered:
                    raise KeysRefused(str(error)) from error
                raise
            else:
                if not node.registered:
                    node.registered = True
                    _log.info("%s is ready on %s", node.config.name, rest_url)
                return shown

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stay_where_it_is, node, rest_url)
        try:
            await node.keys.serve(publish)
        except Refused as error:
            node.last_word.say(error)
        nursery.cancel_scope.cancel()


def _own_row(node: HomeserverNode, rest_url: str, keys: Published) -> DirectoryRow:
    host, port = node.link.address
    return DirectoryRow(
        name=node.config.name,
        role=Role.HOMESERVER,
        keys=keys.keys.to_jwks(),
        rest_url=rest_url,
        link_host=host,
        link_port=port,
        version=keys.version,
        statements=keys.statements,
    )


async def _stay_where_it_is(node: HomeserverNode, rest_url: str) -> None:
    """Have the directory say where this process is, until cancelled; another one of its name may have been elsewhere.

    That was a copy perhaps, which ran for a moment.
    """
    while True:
        await node.clock.sleep_s(LOOK_AT_OWN_ROW_S)
        row, own = node.store.row(node.config.name), _own_row(node, rest_url, node.keys.ring.published)
        if not node.registered or row is None or row.address == own.address:
            continue
        _log.warning("%s is not where the directory says: another process has, or had, its name", own.name)
        try:
            await register(node.store, own)
        except (NoQuorum, OutcomeUnknown, Refused) as error:
            _log.warning("%s is not listed where it is: %s", own.name, error)


async def run(
    config: HomeserverConfig, *, task_status: trio.TaskStatus[HomeserverNode] = trio.TASK_STATUS_IGNORED
) -> NoReturn:
    """Run one homeserver until cancelled. Started, with its parts, when everything but its registration is done.

    Raises:
        ConfigError, KeyFileError: secrets or keys cannot be used.
        Exception: what `Backend.serve` raises; that an address cannot be used; and as `run_application`.
    """
    believe_authorities(config.tls)
    async with HttpClient() as client:
        begin_member(config)
        node = build(config, client, InstanceClock(Clock(), config.name))

        def started(system: System) -> None:
            node.system = system
            task_status.started(node)

        try:
            await run_application(config.name, supervision_tree(node), node.last_word, started, node.telemetry)
        finally:
            node.spans.close()


def main(config: HomeserverConfig) -> int:
    """Run one homeserver until SIGINT or SIGTERM; the exit status."""
    status = 0
    try:
        run_until_signalled(config.name, lambda: run(config))
    except* REFUSALS as group:
        # Why is in the log already: it is the last word of the backend.
        status = exit_status.REMOVED if group.subgroup(_is_removal) else exit_status.REFUSED
    except* LogDiffers as group:
        _log.critical("%s stops: %s", config.name, reason_of(group))
        status = exit_status.REFUSED
    except* Refused as group:
        _log.critical("%s stops: the directory of its instance refused it: %s", config.name, reason_of(group))
        status = exit_status.REFUSED
    return status


def _is_removal(error: BaseException) -> bool:
    return isinstance(error, RefusedByInstance) and error.code == REMOVED
