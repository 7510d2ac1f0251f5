"""The composition root of a homeserver: builds the parts, and runs them as a supervision tree."""

import logging
import math
from functools import partial
from typing import Any, Final, NoReturn

import trio

from batonpass.actors.base.breakpoints import breakpoints_of, nowhere
from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.core.children import ServiceSpec
from batonpass.actors.core.exits import reason_of
from batonpass.actors.core.restart import Restart, Strategy
from batonpass.actors.core.supervisor import SupervisorSpec
from batonpass.actors.core.system import System
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.http.app import WebService
from batonpass.actors.http.client import HttpClient
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.net.key_service import KeyService, KeysRefused
from batonpass.actors.net.link_service import LinkService
from batonpass.actors.net.silent_peers import SilentPeers
from batonpass.actors.supervision.application import run_application
from batonpass.actors.supervision.signals import run_until_signalled
from batonpass.authority.errors import Refused
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.node.config import read_secret
from batonpass.authority.node.spans import Spans
from batonpass.authority.node.telemetry_handlers import attach_listeners
from batonpass.authority.trust.key_pinning import Pins, published
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import HeldInquiry, LogInquiry, OwnerRequest
from batonpass.crypto.continuity import Published
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.pin_file import PinFile
from batonpass.homeserver.config import HomeserverConfig
from batonpass.homeserver.failover.clocks import Clocks
from batonpass.homeserver.failover.foreign_custody import Abroad
from batonpass.homeserver.failover.leases import Leases
from batonpass.homeserver.failover.log_witness import LogInquiries, Witnesses
from batonpass.homeserver.failover.outcome_queries import Inquiries
from batonpass.homeserver.failover.takeover import Recoveries
from batonpass.homeserver.log.backend import REFUSALS, BackendService, begin_member, make_backend
from batonpass.homeserver.log.log_identity import LogDiffers, LogKinship
from batonpass.homeserver.log.log_positions import LogPositions
from batonpass.homeserver.log.store import Store
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import Federation
from batonpass.homeserver.names.registration import register
from batonpass.homeserver.node.dispatch import Node, Secrets
from batonpass.homeserver.placement.balancer import Balancer, load_policy
from batonpass.homeserver.rest import make_app
from batonpass.homeserver.server import exit_status
from batonpass.homeserver.transfer.deletion_notices import Farewells
from batonpass.homeserver.transfer.grant_retry import Reminders
from batonpass.homeserver.transfer.group_result import GroupNews
from batonpass.homeserver.transfer.hierarchies import Hierarchies
from batonpass.homeserver.transfer.order_retry import Orders
from batonpass.homeserver.transfer.owners import Owners
from batonpass.homeserver.transfer.ownership_check import Held
from batonpass.homeserver.transfer.service import Transfers
from batonpass.tree.member.replica import Replica
from batonpass.tree.net.roster import REMOVED
from batonpass.tree.net.transport import RefusedByInstance
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["build", "main", "run", "supervision_tree"]

_log = logging.getLogger("batonpass.homeserver")

LOOK_AT_OWN_ROW_S: Final = 5.0
# Each supervisor gives up beyond this many restarts within so many seconds. What fails by accident fails rarely; who
# fails this often fails every time.
PATIENCE: Final[dict[str, Any]] = {"max_restarts": 5, "window_s": 10.0}


def build(config: HomeserverConfig, client: HttpClient, clock: InstanceClock) -> Node:
    """Wire the parts of one homeserver; nothing runs yet.

    Raises:
        ConfigError, KeyFileError: secrets or keys, or who is to listen, cannot be used.
    """
    held = Secrets(
        join_token=read_secret(config.join_token_file),
        client_token=read_secret(config.client_token_file),
        federation=read_secret(config.federation_secret_file),
        operator_token=None if config.operator_token_file is None else read_secret(config.operator_token_file),
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
    store = Store(lambda: backend.current)
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
    attach_listeners(config.telemetry.handlers, telemetry, config.name)
    breakpoints = breakpoints_of(config.name) or nowhere
    transfers = Transfers(sealer, store, directory, federation, link, clock, breakpoints, spans)
    raft = config.metadata.backend == "raft"
    positions = LogPositions(sealer, store, clock)
    sealer.log_for, transfers.log_shown_to = positions.place_for, positions.shown_to
    leases = Leases(
        config.name,
        store,
        clock,
        config.lease_term_s,
        lambda: backend.current.status.is_leader if raft else None,
        lambda row: recoveries.sweep(row),  # noqa: PLW0108
        positions,
    )

    witnesses = Witnesses(lambda instance: federation.hops_to(instance) is not None)
    leases.witnessed = witnesses.told
    transfers.why_undecided = lambda: leases.went_back

    def in_office() -> bool:
        return leases.granter.office > 0

    recoveries = Recoveries(store, transfers.post, clock, in_office, spans)
    transfers.recovering = lambda entity: recoveries.begun([entity])
    abroad = Abroad(config.instance, store, federation, transfers, recoveries, clock, in_office)
    Inquiries(transfers, store, directory, federation, abroad, config.instance)
    log_inquiries = LogInquiries(
        store,
        directory,
        federation,
        positions,
        witnesses,
        lambda: None if in_office() else store.lease_office().holder,
        leases.prove_went_back,
        clock,
    )
    transfers.answer_by(LogInquiry, log_inquiries.answer)
    held_by = Held(store, federation, positions, config.instance, transfers.check_speaks_for, leases.prove_went_back)
    transfers.answer_by(HeldInquiry, held_by.answer)
    node = Node(config, held, clock, sealer, backend, store, federation, directory, transfers, link, keys, leases)
    node.telemetry, node.spans = telemetry, spans
    node.recoveries, node.abroad, node.log_inquiries = recoveries, abroad, log_inquiries
    node.reminders = Reminders(config.instance, store, transfers.post, transfers.certificates.commit, clock, in_office)
    node.farewells = Farewells(store, transfers.post, clock, in_office)
    node.orders = Orders(store, transfers.order_each, clock, in_office)
    transfers.ordered = node.orders.ordered
    node.group_news = GroupNews(store, transfers.waiting, transfers.tell_the_others, clock)
    node.kinship = LogKinship(
        config.name,
        store,
        held.join_token,
        lambda: (backend.current.status.leader or "") if raft else "",
        client,
        clock,
        node.last_word.say,
    )
    _look_at_clocks(node, client)
    placement = config.placement
    node.balancer = Balancer(
        store,
        transfers.post,
        clock,
        leads=lambda: node.leads,
        balance=placement.limits(),
        policy=load_policy(placement.policy),
        balancing=placement.balance,
        is_silent=federation.is_silent,
        is_handed_back=recoveries.hands_back,
    )
    transfers.moved = node.balancer.moved
    node.owners = Owners(config.instance, store, federation, transfers)
    transfers.answer_by(OwnerRequest, node.owners.answer)
    node.hierarchies = Hierarchies(
        config.instance, store, federation, transfers.order_each, clock, node.balancer.is_passed_on
    )
    transfers.torn = node.hierarchies.refused
    return node


def _look_at_clocks(node: Node, client: HttpClient) -> None:
    """Have this member know what time it is in the instance, and leave to others what they are better at."""

    def leadership() -> Replica | None:
        return node.replica if isinstance(node.replica, Replica) else None

    node.clocks = Clocks(
        node.config.name, node.store, node.secrets.join_token, client, node.clock, leadership, lambda: node.leads
    )
    node.leases.is_better_elsewhere = node.clocks.is_better_elsewhere


def supervision_tree(node: Node) -> SupervisorSpec:
    """Who restarts whom, in the order of starting; docs/supervision.md has the reasons."""
    web = WebService(make_app(node), node.config.rest.host, node.config.rest.port)
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
            ServiceSpec("leases", node.leases.serve),
            ServiceSpec("recoveries", partial(_serve_recoveries, node)),
            ServiceSpec("abroad", partial(_serve_abroad, node)),
            ServiceSpec("rest", partial(_serve_rest, node, web)),
            ServiceSpec("balancer", partial(_serve_balancer, node)),
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
    node: Node, web: WebService, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """The REST API, and who wakes the requests that wait for questions."""
    async with trio.open_nursery() as nursery:
        await nursery.start(node.questions.serve)
        await nursery.start(web.serve)
        task_status.started()


async def _serve_recoveries(node: Node, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Who looks after what others left behind: entities, what was handed over, ordered, or waits for a group."""
    async with trio.open_nursery() as nursery:
        await nursery.start(node.recoveries.serve)
        await nursery.start(node.reminders.serve)
        await nursery.start(node.orders.serve)
        await nursery.start(node.group_news.serve)
        await nursery.start(node.farewells.serve)
        task_status.started()


async def _serve_abroad(node: Node, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Who looks after what other instances have of this one, and where they are."""
    async with trio.open_nursery() as nursery:
        await nursery.start(node.federation.serve)
        await nursery.start(node.abroad.serve)
        await nursery.start(node.log_inquiries.serve)
        await nursery.start(node.kinship.serve)
        await nursery.start(node.clocks.serve)
        task_status.started()


async def _serve_balancer(node: Node, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Who moves entities for the system's own reasons: the balancer, and whoever keeps hierarchies together at that."""
    async with trio.open_nursery() as nursery:
        await nursery.start(node.hierarchies.serve)
        await nursery.start(node.balancer.serve)
        task_status.started()


async def _register(
    node: Node, web: WebService, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
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


def _own_row(node: Node, rest_url: str, keys: Published) -> DirectoryRow:
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


async def _stay_where_it_is(node: Node, rest_url: str) -> None:
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


async def run(config: HomeserverConfig, *, task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED) -> NoReturn:
    """Run one homeserver until cancelled. Started, with its parts, when everything but its registration is done.

    Raises:
        ConfigError, KeyFileError: secrets or keys cannot be used.
        Exception: what `Backend.serve` raises; that an address cannot be used; and as `run_application`.
    """
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
