"""The composition of a simulation server: all its parts, wired in one place, over ports that are real or simulated.

Parts that know nothing of entities come first (`SimserverPorts`), then those that outlive the process (`Durable`). Then
comes the lease, by which everything else asks whether it may act. The lease is bound at the end to parts that it needs
and that are built after it; until then there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from batonpass.actors.core.service import AsyncService
from batonpass.authority.fence import Fence
from batonpass.authority.machines.capacity import Vacancies
from batonpass.authority.machines.replica_choice import CopyTable
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import no_log
from batonpass.authority.wire.shows import ShowMembers, ShowNode
from batonpass.crypto.jws import sign_bytes
from batonpass.simserver.durability.creation_barrier import CreationBarrier
from batonpass.simserver.durability.replication import Replication
from batonpass.simserver.durability.stale_copies import StaleCopies
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.passivation import Passivation
from batonpass.simserver.entity.table import Holdings, Tombstone
from batonpass.simserver.failover.adoption import Adoption
from batonpass.simserver.failover.foreign_entities import ForeignEntities
from batonpass.simserver.failover.log_rollback import LogRollback
from batonpass.simserver.failover.spawn import EntitySpawns
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.neighbours.host import HostedNeighbours
from batonpass.simserver.neighbours.surroundings import ghost_hz, surroundings_of
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.owners.inactivity import FIRST_SILENCE_S, SWEEP_S, Inactivity
from batonpass.simserver.owners.lookup import OwnerLookup
from batonpass.simserver.players.host import HostedPlayers
from batonpass.simserver.post.post_office import PostOffice
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.dispatch import Durable, SimserverNode
from batonpass.simserver.server.load_report import LoadMeter, Loads
from batonpass.simserver.server.regions import RegionDuties
from batonpass.simserver.sync.followers.settings import MAX_STATE_BYTES
from batonpass.simserver.sync.hosting.host import HostedStreams
from batonpass.simserver.sync.hosting.world import streams_of
from batonpass.simserver.sync.scenes.host import HostedScenes
from batonpass.simserver.sync.scenes.world import scenes_of
from batonpass.simserver.sync.shows.engine_thread import EngineProgram, load_engine
from batonpass.simserver.sync.shows.host import HostedShows
from batonpass.simserver.sync.shows.ports import SHIPPED, ShowLinks, ShowPorts
from batonpass.simserver.sync.shows.world import shows_of
from batonpass.simserver.transfer.source.admission import Reception, TargetAdmissions
from batonpass.simserver.transfer.source.departures import DepartureLimits, Departures
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.unresolved import StagedOutcomeQueries, UnresolvedTransfers
from batonpass.simserver.world.api import World, schema_version
from batonpass.simserver.world.neighbourhood import NOBODY_NEAR

__all__ = ["BuildLimits", "PartTypes", "build", "remember", "services"]

# Copies of other servers' entities, beside their bytes.
MAX_COPIES_KEPT: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class PartTypes:
    """Of which classes a server is made; tests that show what a guard is for exchange one by a weaker one."""

    departures: type[Departures] = Departures
    arrivals: type[Arrivals] = Arrivals
    holdings: type[Holdings] = Holdings
    lease: type[LeaseKeeper] = LeaseKeeper
    replication: type[Replication] = Replication
    table: type[CopyTable] = CopyTable
    recovery: type[Adoption] = Adoption
    inactivity: type[Inactivity] = Inactivity
    births: type[EntitySpawns] = EntitySpawns
    creation_barrier: type[CreationBarrier] = CreationBarrier
    shows: type[HostedShows] = HostedShows
    scenes: type[HostedScenes] = HostedScenes
    post_office: type[PostOffice] = PostOffice
    neighbours: type[HostedNeighbours] = HostedNeighbours
    regions: type[RegionDuties] = RegionDuties
    stale_copies: type[StaleCopies] = StaleCopies


@dataclass(frozen=True, kw_only=True)
class BuildLimits:
    """Sizes and times that are not configured; in a simulation, which is small and short, they are smaller."""

    departures: DepartureLimits = field(default_factory=DepartureLimits)
    first_silence_s: int = FIRST_SILENCE_S
    silence_sweep_s: float = SWEEP_S


def build(
    config: SimserverConfig,
    world: World,
    ports: SimserverPorts,
    durable: Durable,
    types: PartTypes = PartTypes(),
    limits: BuildLimits = BuildLimits(),
    show_ports: ShowPorts = SHIPPED,
) -> SimserverNode:
    """Wire the parts of one simulation server; nothing runs yet. The only place where that is done."""
    clock, counts, outbox, home = ports.clock, ports.counts, ports.outbox, ports.home
    lease = types.lease(ports, durable.nonces, durable.log_watermark)
    home.bind(lease.why_not_asked)
    ports.sealer.bind(log_for=no_log, heard_log=lease.heard_log)

    def count(what: str) -> None:
        counts[what] += 1

    def wants_to_go(entity: str, destination: str) -> None:
        # What a contact has brought here stays until it is at rest.
        if neighbours is None or not neighbours.holds(entity):
            departures.wants_to_go(entity, destination)

    def touched(entity: str, ghosts: Sequence[str]) -> None:
        if neighbours is not None:
            neighbours.touched(entity, ghosts)

    surroundings = surroundings_of(world, lambda: holdings, round(1e9 / config.tick_hz), count)
    environment = EntityEnvironment(
        server=config.name,
        world=world,
        period_s=1.0 / config.tick_hz,
        custody=durable.custody,
        monotonic_ns=clock.monotonic_ns,
        crash_guard=durable.crash_guard,
        may_act=lease.may_act,
        is_lost_by=lease.is_lost_by,
        acknowledge=outbox.tell_player,
        correct=outbox.tell_player,
        count=count,
        # They need the holdings, which need this environment: the one knot, tied by a late look-up.
        keeps_copies=lambda: replication.copies,
        wants_actor=lambda entity: holdings.wants_actor(entity),  # noqa: PLW0108
        wants_word_of_owner=lambda entity: owners.want(entity),  # noqa: PLW0108
        wants_to_go=wants_to_go,
        ready_to_leave=lambda entity: departures.ready_to_leave(entity),  # noqa: PLW0108
        neighbourhood=surroundings or NOBODY_NEAR,
        touched=touched,
    )
    holdings = types.holdings(environment, durable.ledger)
    admissions = TargetAdmissions(outbox, clock, counts)
    reception = Reception(ports, lease, world, holdings, Vacancies(config.max_entities), config.max_state_bytes)
    replication = types.replication(
        ports,
        lease,
        holdings,
        types.table(config.max_copies_bytes, MAX_COPIES_KEPT),
        durable.ledger,
        interval_s=config.copy_interval_s,
        checkpoint_s=config.checkpoint_interval_s,
        backup_replicas=config.backup_replicas,
    )
    departures = types.departures(
        ports,
        lease,
        holdings,
        admissions,
        replication.left,
        replication.handed_over.keep_longer,
        limits=limits.departures,
    )
    arrivals = types.arrivals(ports, lease, holdings, departures, reception, durable.stages)
    recovery = types.recovery(
        ports, lease, holdings, replication, arrivals, departures, durable.stages, durable.put_aside
    )
    log_rollback = LogRollback(
        ports,
        holdings,
        durable.ledger,
        replication,
        arrivals,
        departures,
        recovery,
        durable.stages,
        durable.put_aside,
    )
    lease.bind(
        stepped_down=recovery.step_down,
        find_way_back=log_rollback.find_way_back,
        has_shared=replication.has_shared,
        home_is_back=departures.home_is_back,
    )
    owners = OwnerLookup(home, clock, counts, arrivals.owned)
    post_office = types.post_office(ports, environment, holdings, replication)
    creation_barrier = types.creation_barrier(holdings, replication, durable.ledger, clock, counts)
    loads = Loads(
        ports,
        lease,
        holdings,
        departures,
        LoadMeter(round(1e9 / config.tick_hz)),
        replication.leaning,
        reception.is_full,
        schema_version(world),
    )
    neighbours: HostedNeighbours | None = None
    if surroundings is not None:
        neighbours = types.neighbours(
            ports, lease, holdings, environment, surroundings, departures, ghost_hz(world, config.tick_hz)
        )
    streams, event_streams = None, streams_of(world)
    if event_streams is not None:
        streams = HostedStreams(
            config.instance, event_streams, environment, holdings, replication, ports.whereabouts, clock, count
        )
    scenes = None
    if scenes_of(world) is not None:

        def sign(data: bytes) -> bytes:
            return sign_bytes(data, ports.sealer.identity.signing)

        scenes = types.scenes(environment, holdings, ports.whereabouts, clock, count, sign)
    shows, show_world = None, shows_of(world)
    if show_world is not None and show_world.engine:

        def send(message: ShowNode | ShowMembers, to: str) -> None:
            outbox.send(message, Trace("show"), to, on_path=False)

        shows = types.shows(
            ShowLinks(
                server=config.name,
                instance=config.instance,
                host=config.link.host,
                send=send,
                ports=show_ports,
            ),
            show_world,
            environment,
            holdings,
            replication,
            ports.whereabouts,
            clock,
            counts,
            EngineProgram(
                load_engine(show_world.engine),
                show_world.engine_options,
                show_world.settings.get("max_state_bytes", MAX_STATE_BYTES),
            ),
        )
    return SimserverNode(
        config=config,
        ports=ports,
        durable=durable,
        environment=environment,
        holdings=holdings,
        departures=departures,
        arrivals=arrivals,
        admissions=admissions,
        reception=reception,
        outcome_queries=StagedOutcomeQueries(ports, lease, holdings, durable.stages, arrivals.stage_word),
        owners=owners,
        lease=lease,
        births=types.births(ports, lease, holdings, reception, departures, arrivals.fence_raised, creation_barrier),
        creation_barrier=creation_barrier,
        loads=loads,
        post_office=post_office,
        stale_copies=types.stale_copies(ports, lease, holdings, replication),
        regions=types.regions(
            ports,
            lease,
            holdings,
            environment,
            lambda: loads.meter.last,
            lambda entity, target: departures.retry_backoff.stay(entity, target) is not None,
        ),
        replication=replication,
        recovery=recovery,
        passivation=Passivation(
            holdings,
            environment.rounds,
            clock,
            counts,
            after_s=config.passivate_after_s if hasattr(world, "may_sleep") else 0.0,
            period_s=environment.period_s,
            passivated=replication.passivated,
        ),
        inactivity=types.inactivity(ports, holdings, arrivals.owned, limits.first_silence_s, limits.silence_sweep_s),
        unresolved=UnresolvedTransfers(ports, lease, holdings, arrivals.unsettled, arrivals.still_wants),
        foreign_entities=ForeignEntities(
            ports, lease, holdings, departures, durable.log_watermark.words_of, log_rollback.disown
        ),
        neighbours=neighbours,
        players=HostedPlayers(environment, holdings, outbox.door_players, ports.whereabouts, clock, count),
        streams=streams,
        scenes=scenes,
        shows=shows,
    )


def remember(node: SimserverNode) -> None:
    """Know what the disk knows of earlier lives of this server: where what lived here went, and what there is of it."""
    for entity, moved_to, fence in node.ledger.moved():
        if node.holdings.get(entity) is None and node.holdings.gone(entity) is None:
            node.holdings.remember(entity, Tombstone(moved_to, fence))
    for row in node.ledger.interrupted:
        if node.holdings.get(row.entity) is None and node.holdings.gone(row.entity) is None:
            node.holdings.remember_lived(row.entity, Fence(row.epoch, row.sub), row.since)
    for stage in node.stages.waiting():
        node.arrivals.restage(stage)
    node.recovery.remember(node.ledger)


def services(node: SimserverNode) -> tuple[tuple[str, AsyncService], ...]:
    """What runs of the parts, by names for people, in the order of starting.

    Not among them is what has to do with sockets, nor the entities and their ticks, which need a system of actors
    (`simserver.server.main`).
    """
    return (
        ("admissions", node.admissions.serve),
        ("lease", node.lease.serve),
        ("log_watermark", node.log_watermark.serve),
        ("departures", node.departures.serve),
        ("replication", node.replication.serve),
        ("stale_copies", node.stale_copies.serve),
        ("creation_barrier", node.creation_barrier.serve),
        ("passivation", node.passivation.serve),
        ("owners", node.owners.serve),
        ("inactivity", node.inactivity.serve),
        ("outcome_queries", node.outcome_queries.serve),
        ("unresolved_transfers", node.unresolved.serve),
        ("foreign_entities", node.foreign_entities.serve),
        ("loads", node.loads.serve),
        ("post_office", node.post_office.serve),
        ("regions", node.regions.serve),
        ("players", node.players.serve),
        *(() if node.neighbours is None else (("neighbours", node.neighbours.serve),)),
        *(() if node.streams is None else (("streams", node.streams.serve),)),
        *(() if node.scenes is None else (("scenes", node.scenes.serve),)),
        *(() if node.shows is None else (("shows", node.shows.serve),)),
    )
