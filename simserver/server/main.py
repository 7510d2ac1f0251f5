"""The composition root of a simulation server: builds the parts, and runs them as a supervision tree."""

import logging
import math
from collections import Counter
from functools import partial
from typing import Any, Final, NoReturn

import trio

from batonpass.actors.base.breakpoints import breakpoints_of, nowhere
from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.core.children import ActorSpec, ServiceSpec
from batonpass.actors.core.restart import Restart, Strategy
from batonpass.actors.core.supervisor import SupervisorSpec
from batonpass.actors.core.system import System
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.http.app import WebService
from batonpass.actors.http.client import HttpClient
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.net.key_service import KeyService, KeysRefused
from batonpass.actors.net.link_service import LinkService
from batonpass.actors.supervision.application import run_application
from batonpass.actors.supervision.dynamic_supervisor import DynamicSupervisorSpec
from batonpass.actors.supervision.signals import run_until_signalled
from batonpass.authority.fence import Fence
from batonpass.authority.machines.capacity import Vacancies
from batonpass.authority.machines.replica_choice import CopyTable
from batonpass.authority.node.config import read_secret
from batonpass.authority.node.spans import Spans
from batonpass.authority.node.telemetry_handlers import attach_listeners
from batonpass.authority.protocol_version import PROTOCOL_VERSION
from batonpass.authority.trust.key_pinning import Pins
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto.continuity import Published
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.pin_file import PinFile
from batonpass.simserver.durability.creation_barrier import Newborns
from batonpass.simserver.durability.ledger import Ledger
from batonpass.simserver.durability.put_aside import PutAside
from batonpass.simserver.durability.replication import Copier
from batonpass.simserver.entity.actor_keeper import ENTITIES, Caretaker
from batonpass.simserver.entity.crash_guard import BlackBox
from batonpass.simserver.entity.custody_log import CustodyLog, custody_file
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.passivation import Passivation
from batonpass.simserver.entity.table import Holdings, Tombstone
from batonpass.simserver.failover.adoption import Recovery
from batonpass.simserver.failover.foreign_entities import Visitors
from batonpass.simserver.failover.log_rollback import Astray
from batonpass.simserver.failover.spawn import Births
from batonpass.simserver.lease.keeper import LeaseKeeper, Nonces
from batonpass.simserver.lease.log_watermark import HomeLog
from batonpass.simserver.lease.renewal_lane import RenewalLane
from batonpass.simserver.net.home_client import Home, HomeRefused
from batonpass.simserver.net.outbox import Courier
from batonpass.simserver.net.peer_addresses import Whereabouts
from batonpass.simserver.owners.inactivity import Silences
from batonpass.simserver.owners.lookup import Owners
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.dispatch import Node
from batonpass.simserver.server.http_status import make_status_app
from batonpass.simserver.server.load_report import LoadMeter, Loads, moved_bytes
from batonpass.simserver.transfer.source.admission import Admissions, Reception
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.staged_outcome import Inquiries
from batonpass.simserver.transfer.target.staged_states import Stages
from batonpass.simserver.transfer.target.unresolved import LooseEnds
from batonpass.simserver.world.api import load_world, schema_version

__all__ = ["build", "main", "run", "supervision_tree"]

_log = logging.getLogger("batonpass.simserver")

# Each supervisor gives up beyond this many restarts within so many seconds. What fails by accident fails rarely; who
# fails this often fails every time.
PATIENCE: Final[dict[str, Any]] = {"max_restarts": 5, "window_s": 10.0}
# Entities crash independently of each other, and one that crashes on and on is made to stand still
# (`simserver.entity.state`). Only when they do so in masses, what is wrong is not the entities.
MAX_ENTITY_RESTARTS: Final = 1000
# Copies of other servers' entities, beside their bytes.
MAX_COPIES_KEPT: Final = 100_000
ENTITY_RESTARTS_WINDOW_S: Final = 5.0


def build(config: SimserverConfig, client: HttpClient, clock: InstanceClock) -> Node:
    """Wire the parts of one simulation server; nothing runs yet.

    Raises:
        ConfigError, KeyFileError: the world, who is to listen, secrets or keys cannot be used.
    """
    keys = KeyService(
        config.name,
        KeyStore(config.directory / "keys"),
        clock,
        rotate_every_s=config.rotate_keys_every_s or math.inf,
    )
    pins = Pins(PinFile(config.directory / "keys" / "pins.jsonl"))
    sealer = Sealer(config.name, keys.identity, agrees_ahead=True)
    home = Home(sealer, config.instance, config.home_urls, read_secret(config.join_token_file), client, clock, pins)
    whereabouts = Whereabouts()
    home.is_silent = whereabouts.is_silent
    link = LinkService(
        lambda port: whereabouts.watching(
            LinkEndpoint(config.name, keys.identity, home.handshakes, host=config.link.host, port=port)
        ),
        config.link.port,
    )
    keys.use(sealer.change_identity)
    keys.use(link.change_identity)
    counts: Counter[str] = Counter()
    courier = Courier(sealer, home, link, clock, counts, whereabouts)
    telemetry = Telemetry(lambda: clock.monotonic_ns() / 1e9)
    spans = Spans(telemetry, config.name, clock.monotonic_ns)
    attach_listeners(config.telemetry.handlers, telemetry, config.name)
    breakpoints = breakpoints_of(config.name)
    # Who is killed on purpose leaves its custody log behind.
    note = None if breakpoints is None else custody_file(config.directory / "custody.jsonl")
    custody = CustodyLog(config.name, note)

    def count(what: str) -> None:
        counts[what] += 1

    world = load_world(config.world, config.world_options)
    environment = EntityEnvironment(
        server=config.name,
        world=world,
        period_s=1.0 / config.tick_hz,
        custody=custody,
        monotonic_ns=clock.monotonic_ns,
        black_box=BlackBox(config.directory, clock.unix_s),
        may_act=lambda now_ns: lease.may_act(now_ns),  # noqa: PLW0108
        is_lost_by=lambda began_ns, done_ns: lease.is_lost_by(began_ns, done_ns),  # noqa: PLW0108
        keeps_copies=lambda: copier.copies,
        wants_actor=lambda entity: holdings.wants_actor(entity),  # noqa: PLW0108
        acknowledge=courier.tell_player,
        correct=courier.tell_player,
        # They need the holdings, which need this environment: the one knot, tied by a late look-up.
        wants_word_of_owner=lambda entity: owners.want(entity),  # noqa: PLW0108
        wants_to_go=lambda entity, destination: departures.wants_to_go(entity, destination),  # noqa: PLW0108
        count=count,
        ready_to_leave=lambda entity: departures.ready_to_leave(entity),  # noqa: PLW0108
    )
    ledger = Ledger(config.name, config.directory / "tree")
    home_log = HomeLog(config.directory / "home_log")
    lease = LeaseKeeper(
        config.name,
        Nonces(config.directory / "lease.json"),
        home,
        clock,
        counts,
        stepped_down=lambda: recovery.step_down(),  # noqa: PLW0108
        home_log=home_log,
    )
    holdings = Holdings(environment, ledger)
    admissions = Admissions(courier, clock, counts)
    reception = Reception(
        world,
        courier,
        holdings,
        clock,
        Vacancies(config.max_entities),
        config.max_state_bytes,
        lambda: lease.is_drained,
        lambda: lease.told_incarnation,
        lease.once_renewed,
    )
    stages = Stages(config.directory / "stages")
    departures = Departures(
        sealer,
        home,
        courier,
        holdings,
        admissions,
        clock,
        counts,
        reached=breakpoints or nowhere,
        kept=lambda entity, frozen: copier.left(entity, frozen),  # noqa: PLW0108
        spans=spans,
        may_act=lease.may_act,
        home_answers=lease.home_answers,
    )
    arrivals = Arrivals(
        sealer,
        home,
        courier,
        holdings,
        departures,
        reception,
        stages,
        clock,
        counts,
        reached=breakpoints or nowhere,
        spans=spans,
        incarnation=lambda: lease.incarnation,
        may_act=lease.may_act,
    )
    # An entity that comes back brings along what was signed here when it left.
    departures.passes.signed = arrivals.certificates.signed
    inquiries = Inquiries(
        config.name, home, stages, holdings, clock, counts, arrivals.stage_word, lambda: not lease.why_not_asked()
    )
    arrivals.shown_abroad, sealer.heard_log = lease.shown_abroad, lease.heard_log
    loose_ends = LooseEnds(
        config.name,
        home,
        arrivals.unsettled,
        holdings,
        arrivals.still_wants,
        lambda: lease.incarnation,
        clock,
        counts,
        lambda: not lease.why_not_asked(),
    )
    table = CopyTable(config.max_copies_bytes, MAX_COPIES_KEPT)
    copier = Copier(
        config.name,
        holdings,
        table,
        lease,
        ledger,
        home,
        link,
        clock,
        counts,
        interval_s=config.copy_interval_s,
        checkpoint_s=config.checkpoint_interval_s,
        followers=config.backup_replicas,
    )
    recovery = Recovery(holdings, copier, arrivals, departures, stages, lease, courier, counts, spans)
    owners = Owners(home, clock, counts, arrivals.owned)
    silences = Silences(holdings, home, clock, counts, arrivals.owned)
    node = Node(
        config,
        clock,
        sealer,
        home,
        link,
        courier,
        environment,
        holdings,
        departures,
        arrivals,
        admissions,
        reception,
        stages,
        inquiries,
        owners,
        custody,
        ledger,
        counts,
        keys,
        lease,
        operator_token=None if config.operator_token_file is None else read_secret(config.operator_token_file),
    )
    node.copier, node.recovery, node.silences, node.loose_ends = copier, recovery, silences, loose_ends
    node.newborns = Newborns(holdings, copier, ledger, clock, counts)
    node.births = Births(
        holdings,
        reception,
        departures,
        courier,
        lambda: lease.incarnation,
        arrivals.fence_raised,
        counts,
        newborns=node.newborns,
    )
    node.passivation = Passivation(
        holdings,
        environment.rounds,
        clock,
        counts,
        after_s=config.passivate_after_s if hasattr(world, "may_sleep") else 0.0,
        period_s=environment.period_s,
        put_away=copier.put_away,
    )
    node.home_log, node.telemetry, node.spans = home_log, telemetry, spans
    _follow_home(node)
    node.loads = Loads(
        LoadMeter(round(1e9 / config.tick_hz)),
        holdings,
        departures,
        courier,
        home.members,
        lambda: (counts["inputs"], moved_bytes(link.stats)),
        clock,
        lambda: lease.is_drained,
        copier.leaning,
        lambda: lease.knows,
        reception.is_full,
        schema_version(world),
    )
    return node


def _follow_home(node: Node) -> None:
    """Tell the lease of those that need it themselves, and the client of the home whether that is followed."""
    lease, copier = node.lease, node.copier
    node.recovery.put_aside = PutAside(node.config.directory / "put_aside")
    astray = Astray(
        node.config.name,
        node.home,
        node.holdings,
        node.ledger,
        copier,
        node.arrivals,
        node.departures,
        node.recovery,
        node.stages,
        node.recovery.put_aside,
        node.clock.unix_s,
    )
    lease.has_shared, lease.find_way_back = copier.has_shared, astray.find_way_back
    node.visitors = Visitors(
        node.config.name,
        node.home,
        node.holdings,
        node.departures,
        node.home_log.words_of,
        lease.may_act,
        astray.disown,
        node.clock,
        node.counts,
    )
    node.renewals = RenewalLane(node.home, node.sealer, node.link, node.clock)
    node.home.renew = node.renewals.ask
    node.home.told_time = lease.told_time = node.clock.told
    node.home.why_not_asked = lease.why_not_asked
    lease.home_is_back = node.departures.home_is_back


def supervision_tree(node: Node) -> SupervisorSpec:
    """Who restarts whom, in the order of starting; docs/supervision.md has the reasons."""
    web = WebService(make_status_app(node), node.config.rest.host, node.config.rest.port)
    population = SupervisorSpec(
        "population",
        (
            DynamicSupervisorSpec(
                ENTITIES, name=ENTITIES, max_restarts=MAX_ENTITY_RESTARTS, window_s=ENTITY_RESTARTS_WINDOW_S
            ),
            ActorSpec("caretaker", Caretaker, (node.environment, node.holdings), name="caretaker"),
        ),
        strategy=Strategy.REST_FOR_ONE,
        name="population",
        **PATIENCE,
    )
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
    return SupervisorSpec(
        "simserver",
        (
            ServiceSpec("ledger", node.last_word.of(partial(_serve_ledger, node)), start_timeout_s=None),
            population,
            ServiceSpec("courier", node.courier.serve),
            ServiceSpec("admissions", node.admissions.serve),
            ServiceSpec("lease", node.lease.serve),
            ServiceSpec("home_log", node.home_log.serve),
            ServiceSpec("members", node.home.serve_members),
            ServiceSpec("departures", node.departures.serve),
            ServiceSpec("copies", node.copier.serve),
            ServiceSpec("newborns", node.newborns.serve),
            ServiceSpec("passivation", node.passivation.serve),
            ServiceSpec("owners", partial(_serve_owners, node)),
            ServiceSpec("inquiries", node.inquiries.serve),
            ServiceSpec("loose_ends", node.loose_ends.serve),
            ServiceSpec("visitors", node.visitors.serve),
            messages,
            ServiceSpec("rest", web.serve),
            ServiceSpec("ticks", node.serve_ticks),
            ServiceSpec("loads", node.loads.serve),
            ServiceSpec("registration", partial(_register, node, web), restart=Restart.TRANSIENT),
        ),
        name="simserver",
        **PATIENCE,
    )


async def _serve_owners(node: Node, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Who asks the home instance about owners: whether there is a new one, and what to do about one who is silent."""
    async with trio.open_nursery() as nursery:
        await nursery.start(node.owners.serve)
        await nursery.start(node.silences.serve)
        task_status.started()


async def _serve_ledger(node: Node, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """The ledger; when it is opened for the first time, what it knows of earlier lives of this server is remembered.

    When the server is stopped, everything that lives here is written to it, so that it goes on from there.
    """

    def opened() -> None:
        for entity, moved_to, fence in node.ledger.moved():
            if node.holdings.get(entity) is None and node.holdings.gone(entity) is None:
                node.holdings.remember(entity, Tombstone(moved_to, fence))
        for row in node.ledger.interrupted:
            if node.holdings.get(row.entity) is None and node.holdings.gone(row.entity) is None:
                node.holdings.remember_lived(row.entity, Fence(row.epoch, row.sub), row.since)
        for stage in node.stages.waiting():
            node.arrivals.restage(stage)
        node.recovery.remember(node.ledger)

    await node.ledger.serve_to_the_end(opened, node.copier.check_in_all, task_status=task_status)


async def _register(
    node: Node, web: WebService, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Register with the home instance, and again with every change of keys."""
    task_status.started()

    node.lease.where = lambda: (web.urls[0], *node.link.address)

    async def publish(keys: Published) -> Published:
        try:
            shown = await node.home.register(web.urls[0], node.link.address, keys)
        except HomeRefused as error:
            if node.registered:
                raise KeysRefused(str(error)) from error
            raise
        if not node.registered:
            node.registered = True
            node.lease.begin()
            _log.info("%s is ready on %s", node.config.name, web.urls[0])
        return shown

    try:
        await node.keys.serve(publish)
    except HomeRefused as error:
        node.last_word.say(error)


async def run(config: SimserverConfig, *, task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED) -> NoReturn:
    """Run one simulation server until cancelled. Started, with its parts, when everything but its registration is done.

    Raises:
        ConfigError, KeyFileError: the world, secrets or keys cannot be used.
        HomeRefused: the home instance will not have this server.
        Exception: what `Ledger.serve` raises; that an address cannot be used; and as `run_application`.
    """
    async with HttpClient() as client:
        node = build(config, client, InstanceClock(Clock(), config.name))

        def started(system: System) -> None:
            node.system = system
            task_status.started(node)

        try:
            await run_application(config.name, supervision_tree(node), node.last_word, started, node.telemetry)
        finally:
            node.spans.close()


def main(config: SimserverConfig) -> int:
    """Run one simulation server until SIGINT or SIGTERM; the exit status."""
    status = 0
    try:
        run_until_signalled(config.name, lambda: run(config))
    except* HomeRefused as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = "%s (protocol version %d) stops: its home instance refused it: %s"
        _log.critical(text, config.name, PROTOCOL_VERSION, error)
        status = 3
    return status
