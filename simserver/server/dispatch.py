"""One simulation server's parts, wired by `simserver.server.build`: the link's inbox and the tick."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from batonpass.actors.core.log_metadata import log_metadata_of
from batonpass.actors.core.system import System
from batonpass.actors.http.door import DoorTraffic
from batonpass.actors.net.endpoint import Received
from batonpass.actors.net.taking import Rest, take_each
from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.machines.source import Mode
from batonpass.authority.names import instance_of
from batonpass.authority.node.config import RejectedPeers
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.regions import RegionWord
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.senders import SIMSERVER_SENDERS
from batonpass.authority.wire.transfer import (
    Activate,
    Activated,
    Adopt,
    CensusRequest,
    Collect,
    ContactClaim,
    Copies,
    CopiesKept,
    Delegation,
    Despawn,
    DirectHandoff,
    EntityMessageAnswers,
    EntityMessages,
    ForwardInputs,
    GhostInterest,
    Ghosts,
    Grant,
    HandoffReply,
    Input,
    InputItem,
    KeyAhead,
    LetGo,
    LinkMessage,
    LogShown,
    Moves,
    NotHere,
    Order,
    OwnerHint,
    OwnerWord,
    Parcel,
    Precopied,
    Precopy,
    Present,
    Release,
    Reserve,
    Reserved,
    ShowMembers,
    ShowNode,
    Spawn,
    Staged,
    StageDiscard,
    StageState,
    StandingInquiry,
    StateTransfer,
    decode_link_untrusted,
)
from batonpass.crypto import jose
from batonpass.crypto.errors import CryptoError
from batonpass.simserver.durability.creation_barrier import CreationBarrier
from batonpass.simserver.durability.ledger import Ledger
from batonpass.simserver.durability.put_aside import PutAside
from batonpass.simserver.durability.replication import Replication
from batonpass.simserver.durability.stale_copies import StaleCopies
from batonpass.simserver.entity.actor import NewInput, TickNow
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.custody_log import CustodyLog
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.passivation import Passivation
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.failover.adoption import Adoption
from batonpass.simserver.failover.foreign_entities import ForeignEntities
from batonpass.simserver.failover.spawn import EntitySpawns
from batonpass.simserver.lease.keeper import LeaseKeeper, Nonces
from batonpass.simserver.lease.log_watermark import LogWatermark
from batonpass.simserver.neighbours.host import HostedNeighbours
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.owners.inactivity import Inactivity
from batonpass.simserver.owners.lookup import OwnerLookup
from batonpass.simserver.players.host import HostedPlayers
from batonpass.simserver.post.post_office import PostOffice
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.load_report import Loads
from batonpass.simserver.server.regions import RegionDuties
from batonpass.simserver.server.standings import StandingAnswers
from batonpass.simserver.sync.door.pushed import StreamPushes
from batonpass.simserver.sync.hosting.host import HostedStreams
from batonpass.simserver.sync.scenes.host import HostedScenes
from batonpass.simserver.sync.shows.host import HostedShows
from batonpass.simserver.transfer.source.admission import Reception, TargetAdmissions
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.staged_states import Stages
from batonpass.simserver.transfer.target.unresolved import StagedOutcomeQueries, UnresolvedTransfers

__all__ = ["Durable", "SimserverNode"]

_log = logging.getLogger("batonpass.simserver")

# Parcels that are being opened or wait for a key at one time; more wait in the link's inbox, whose credit then stops.
MAX_CONCURRENT_PARCELS: Final = 256
# Messages for which an entity is frozen until they have been taken: the permission to begin, and the answer.
_AT_ONCE: Final = frozenset({"direct", "grant", "activated"})


@dataclass(frozen=True, kw_only=True)
class Durable:
    """The parts of a server that outlive its process."""

    ledger: Ledger
    stages: Stages
    nonces: Nonces
    log_watermark: LogWatermark
    put_aside: PutAside
    crash_guard: CrashGuard
    custody: CustodyLog


@dataclass(kw_only=True)
class SimserverNode:
    """Everything that the link's inbox, the tick and the status routes need; whole as soon as it is there."""

    config: SimserverConfig
    ports: SimserverPorts
    durable: Durable
    environment: EntityEnvironment
    holdings: Holdings
    departures: Departures
    arrivals: Arrivals
    admissions: TargetAdmissions
    reception: Reception
    outcome_queries: StagedOutcomeQueries
    owners: OwnerLookup
    lease: LeaseKeeper
    births: EntitySpawns
    creation_barrier: CreationBarrier
    loads: Loads
    post_office: PostOffice
    """Carries messages between entities."""
    regions: RegionDuties
    stale_copies: StaleCopies
    replication: Replication
    recovery: Adoption
    passivation: Passivation
    inactivity: Inactivity
    unresolved: UnresolvedTransfers
    foreign_entities: ForeignEntities
    neighbours: HostedNeighbours | None
    """Ghosts of other servers' entities, and of this one's for them, if the world looks around."""
    players: HostedPlayers
    """What clients of the players' door are shown."""
    streams: HostedStreams | None
    """The event streams, if the world is that of streams."""
    scenes: HostedScenes | None
    """The scenes, if the world is that of scenes."""
    shows: HostedShows | None
    """The shows, if the world is that of shows."""
    audit: RejectedPeers = field(default_factory=RejectedPeers)
    registered: bool = False
    ticks: int = 0
    player_url: str = ""
    """Where players and observers connect."""
    stream_url: str = ""
    """Where clients of event streams ask this server; empty if there are none."""
    stream_pushes: StreamPushes | None = None
    """What tells them each tick; None if there are none."""
    scene_url: str = ""
    """Where members of scenes connect to this server; empty if there are none."""
    door_traffic: dict[str, Callable[[], DoorTraffic]] = field(default_factory=dict, repr=False)
    """Of each of its doors that is open: `players`, `streams`, `scenes`."""
    system: System | None = field(default=None, repr=False)
    """Where its actors run, once they do."""

    def __post_init__(self) -> None:
        ports, durable = self.ports, self.durable
        self.clock = ports.clock
        self.sealer = ports.sealer
        self.home = ports.home
        self.link = ports.link
        self.outbox = ports.outbox
        self.counts = ports.counts
        self.ledger = durable.ledger
        self.stages = durable.stages
        self.log_watermark = durable.log_watermark
        self.custody = durable.custody

    # --- ticking ---------------------------------------------------------------------------------------------------

    async def serve_ticks(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tick every entity at whole multiples of the period of the monotonic clock.

        Servers of one machine therefore tick together, and a hand-over that fits between two ticks costs none. No tick
        begins before the entities have had the last one: those that are due meanwhile are skipped. An entity that
        has just arrived or woken, or is busy with inputs, may have it a moment later than the others, unmeasured.
        """
        period_ns = round(1e9 / self.config.tick_hz)
        task_status.started()
        last_due_ns = self.clock.monotonic_ns() // period_ns * period_ns
        while True:
            now_ns = self.clock.monotonic_ns()
            due_ns = (now_ns // period_ns + 1) * period_ns
            await self.clock.sleep_s((due_ns - now_ns) / 1e9)
            self.ticks += 1
            late_periods = max(0, self.clock.monotonic_ns() - due_ns) // period_ns
            skipped = (due_ns - last_due_ns) // period_ns - 1 + late_periods
            last_due_ns = due_ns + late_periods * period_ns
            if skipped > 0:
                self.counts["ticks_skipped"] += skipped
            # No entity ticks before there are actors: that takes a lease, for which only a running server asks.
            if not self.tick_all() or self.system is None:
                continue
            self.loads.meter.began(due_ns)
            await self.system.round_over()
            self.environment.feed.round_is_over()
            self.loads.meter.ticked(self.clock.monotonic_ns() - due_ns)

    def tick_all(self) -> bool:
        """Have every entity tick; false if this server has no lease for that."""
        if not self.lease.may_act(self.clock.monotonic_ns()):
            # Another server may be given what lives here, from a moment on that this server cannot know.
            self.counts["ticks_without_lease"] += 1
            return False
        tick, rounds = TickNow(), self.environment.rounds
        rounds.count += 1
        self.environment.feed.round_begins(rounds.count)
        if self.neighbours is not None:
            self.neighbours.round_begins()
        if self.holdings.batch is not None:
            self.holdings.batch.tick()
            return True
        for holding in self.holdings:
            life = holding.life
            # A frozen entity applies no tick: in bulk that is every second one.
            if not life.frozen and (life.sleep is None or life.sleep.is_over(rounds.count)):
                holding.cast(tick)
        return True

    # --- the link's inbox ------------------------------------------------------------------------------------------

    async def serve_link(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take messages from the link until cancelled.

        Inputs are taken at once and in order; parcels may have to wait for a key and are taken beside each other.
        """
        task_status.started()
        await take_each(self.link.inbox, self._take_link_untrusted, self._failed, at_most=MAX_CONCURRENT_PARCELS)
        # The link has ended: what restarts it, restarts this.
        await trio.sleep_forever()

    def _take_link_untrusted(self, received: Received) -> Rest | None:
        """Take one message of a peer; what may have to wait is for later."""
        message = decode_link_untrusted(received.message)
        self.outbox.heard_from(received.peer, received.address)
        if not isinstance(message, Parcel):
            self.take_bare(message, received.peer, received.address)
        elif self.takes_parcels():
            if message.kind in _AT_ONCE and self.link.inbox.is_empty and self._take_at_once(message, received):
                return None
            return partial(self._take, message, received)
        return None

    def takes_parcels(self) -> bool:
        """Whether anything is done that others decided; counted if not."""
        if not self.lease.log_went_back:
            return True
        # Decisions of others by that log would be carried out under fences that were given before.
        self.counts["dropped_log_went_back"] += 1
        return False

    def take_bare(self, message: LinkMessage, peer: str, address: tuple[str, int]) -> None:
        """Take what travels without a parcel: its sender is that of the link's session."""
        match message:
            case Input():
                self._input(message, peer)
            case Copies():
                self.replication.keep(message, peer, address)
            case CopiesKept():
                self.replication.kept(message, peer)
            case Ghosts() if self.neighbours is not None:
                self.neighbours.ghosts_came(message, peer)
            case LetGo():
                self.inactivity.heard(peer)
                self.departures.let_go(message.entity, peer)
            case Present():
                self._present(message, peer)
            case KeyAhead():
                self.sealer.told_untrusted(peer, message.header, self.clock.unix_s())
            case _:
                self.counts["unexpected_message"] += 1

    def take_from_player(self, message: Input | Present | LetGo, player: str) -> None:
        """Take what a player does that is connected by the door, as if it had come over the link."""
        self.take_bare(message, player, ("", 0))

    def _failed(self, received: Received, error: Exception) -> None:
        """Sort an error of taking a message: it is a bad one, cannot be taken now, or ran into an error of ours."""
        if isinstance(error, MessageError | CryptoError):
            self.counts["bad_message"] += 1
            self.audit.dropped(received.peer, error, self.clock.monotonic_ns())
        elif isinstance(error, HomeUnreachable | HomeRefused):
            # Keys or roles could not be looked up now: as if it had been lost; it will be repeated.
            self.counts["undecided"] += 1
            _log.info("could not take a message of %s now: %s", received.peer, error)
        else:
            # One message of one peer must not take the server down with it; people find it in the log and the counter.
            self.counts["internal_error"] += 1
            # It may come again at once: with the traceback one in a minute of each peer is told of.
            if self.audit.dropped(received.peer, error, self.clock.monotonic_ns()):
                _log.error("a message of %s ran into an error of ours", received.peer, exc_info=error)

    def _input(self, message: Input, player: str) -> None:
        self.counts["inputs"] += 1
        self.inactivity.heard(player)
        if not self.lease.may_act(self.clock.monotonic_ns()):
            # It is not acknowledged, so the player repeats it, to the authority of that time.
            self.counts["input_without_lease"] += 1
            return
        holding = self.holdings.get(message.entity)
        if holding is not None:
            given = NewInput(player, message.owner_rev, message.seq, message.data, message.base, message.floor)
            holding.cast(given)
            return
        fields = message.model_dump(include={"owner_rev", "seq", "data", "base", "floor"})
        item = InputItem(source=player, **fields)
        if self.arrivals.keep_early(message.entity, item):
            return
        self.counts["input_not_here"] += 1
        self._tell_where(message.entity, player)

    def _present(self, message: Present, player: str) -> None:
        self.inactivity.heard(player)
        if message.entity and self.holdings.get(message.entity) is None:
            self._tell_where(message.entity, player)

    def _tell_where(self, entity: str, player: str) -> None:
        """It is not here (any more): where it went, as far as this server knows."""
        gone = self.holdings.gone(entity)
        if gone is None:
            answer = NotHere(entity=entity)
        else:
            answer = NotHere(entity=entity, moved_to=gone.moved_to, epoch=gone.fence.epoch, sub=gone.fence.sub)
        self.outbox.tell_player(player, answer)

    def _take_at_once(self, parcel: Parcel, received: Received) -> bool:
        """Open and do what a server waits for, if no key has to be asked for; whether that is so.

        A task of its own for it would begin two turns of the scheduler later, a tenth of a hand-over.
        """
        try:
            sender, kid = jose.peek_untrusted(parcel.sealed)
            keys = self.home.keys_at_hand(sender, kid)
            if keys is None:
                return False
            now_ns, now_s = self.clock.monotonic_ns(), self.clock.unix_s()
            opened = self.sealer.open_untrusted(parcel, sender=keys, now_ns=now_ns, now_s=now_s)
            _check_peer(opened.sender, received)
        except Exception as error:
            self._failed(received, error)
            return True
        return self._done_at_once(opened, received)

    def _done_at_once(self, opened: OpenedMessage, received: Received) -> bool:
        """Do what a server waits for, if no key has to be asked for; whether that is so."""
        message = opened.message
        try:
            if isinstance(message, Activated):
                self.departures.activated(opened, message)
            elif isinstance(message, DirectHandoff):
                return self.arrivals.direct_at_hand(message, opened)
            elif isinstance(message, Grant):
                return self.arrivals.grant_at_hand(message, opened)
            else:
                return False
        except Exception as error:
            self._failed(received, error)
        return True

    async def _take(self, parcel: Parcel, received: Received) -> None:
        # Before keys are asked for: a peer can name any sender.
        _check_peer(jose.peek_sender_untrusted(parcel.sealed), received)
        opened = await self._open_untrusted(parcel)
        _check_peer(opened[0].sender, received)
        for one in opened:
            with log_metadata_of(transfer=one.trace.transfer_id):
                # Of a parcel of many most is done so, without three coroutines for each.
                if not self._done_at_once(one, received):
                    await self._dispatch_guarded(one, received)

    async def _dispatch_guarded(self, opened: OpenedMessage, received: Received) -> None:
        try:
            await self.take(opened)
        except Exception as error:
            self._failed(received, error)

    async def take(self, opened: OpenedMessage) -> None:
        """Do what a message of a proved sender says.

        Raises:
            MessageError: it is none of the sender's to say, or makes no sense.
            HomeUnreachable, HomeRefused: whose it is cannot be looked up now.
        """
        await SIMSERVER_SENDERS.check(opened.message, opened.sender, instance_of(self.sealer.name), self.home)
        await self._dispatch(opened)

    async def _open_untrusted(self, parcel: Parcel) -> list[OpenedMessage]:
        sender, kid = jose.peek_untrusted(parcel.sealed)
        keys = await self.home.keys_of(sender, kid)
        if keys is None:
            raise MessageError(f"no keys are known for the sender {sender}")
        return self.sealer.open_all_untrusted(
            parcel, sender=keys, now_ns=self.clock.monotonic_ns(), now_s=self.clock.unix_s()
        )

    async def _dispatch(self, opened: OpenedMessage) -> None:
        match opened.message:
            case StateTransfer() as message:
                await self.arrivals.state(message, opened)
            case Grant() as message:
                await self.arrivals.grant(message, opened)
            case Activate() as message:
                await self.arrivals.activate(message, opened)
            case DirectHandoff() as message:
                await self.arrivals.direct(message, opened)
            case ForwardInputs() as message:
                await self.arrivals.forwarded(message, opened)
            case OwnerHint() as message:
                self.arrivals.hints.came(message)
            case StageState() as message:
                await self.arrivals.stage(message, opened)
            case Precopy() as message:
                self.arrivals.precopy(message, opened)
            case ShowNode() | ShowMembers() | GhostInterest() | ContactClaim() as message:
                await self._of_peers(message, opened.sender)
            case EntityMessages() | EntityMessageAnswers() as message:
                self._of_messages(message, opened.sender)
            case StageDiscard() as message:
                self.arrivals.stage_void(message.transfer_id, opened.sender)
            case _:
                await self._dispatch_to_departures(opened)

    async def _dispatch_to_departures(self, opened: OpenedMessage) -> None:
        """Answers to what this server asked for its own entities."""
        match opened.message:
            case Precopied() as message:
                self.departures.copied_ahead(opened, message)
            case Staged() as message:
                self.departures.staged(opened, message)
            case Activated() as message:
                self.departures.activated(opened, message)
            case HandoffReply() as message:
                self.departures.replied(opened, message)
            case Reserve() as message:
                self.reception.asked(opened, message)
            case Reserved() as message:
                self.admissions.answered(opened, message)
            case _:
                await self._dispatch_of_home(opened)

    async def _dispatch_of_home(self, opened: OpenedMessage) -> None:
        """Take a message that only homeservers of an entity's instance may send."""
        match opened.message:
            case Order() as message:
                self.departures.begin(_plan(message))
            case OwnerWord() as message:
                self.arrivals.owned(message)
            case Delegation() as message:
                await self.arrivals.delegation(message, opened)
            case Despawn() as message:
                self.births.despawn(message, opened)
            case Release() as message:
                self.release(message.entity, discard_inputs=message.discard_inputs)
            case Spawn() as message:
                self.births.spawn(message, opened)
            case LogShown() as message:
                self.lease.shown_abroad(opened.sender, message.position)
            case Collect() as message:
                self.recovery.collect(message, opened.sender)
            case Adopt() as message:
                self.recovery.adopt(message, opened.sender)
            case StandingInquiry() as message:
                asked = StandingAnswers(self.holdings, self.departures, self.clock, self.lease.why_unleased)
                self.outbox.send(asked.answer(message), Trace("standing"), opened.sender, on_path=False)
            case _:
                self._placement(opened)

    def _placement(self, opened: OpenedMessage) -> None:
        """Where this server's home instance wants its entities to be, and what it asks for that."""
        match opened.message:
            case Moves() as message:
                self.departures.relocate(self.regions.redirected(message.moves))
            case CensusRequest() as message:
                self.loads.census(message, opened.sender, self.environment.world, self.environment.period_s)
            case RegionWord() as message:
                self.regions.told(message)
            case other:
                raise MessageError(f"a simulation server takes no {other.type}")

    def release(self, entity: str, *, discard_inputs: bool) -> bool:
        """Simulate an entity again that is quarantined or asleep; whether there is one."""
        holding = self.holdings.get(entity)
        return holding is not None and holding.life.release(discard_inputs=discard_inputs)

    def _of_messages(self, message: EntityMessages | EntityMessageAnswers, sender: str) -> None:
        """What entities of other servers send to those here, and what is answered to those of this one."""
        if isinstance(message, EntityMessages):
            self.post_office.came(message, sender)
        else:
            self.post_office.answered(message, sender)

    async def _of_peers(self, message: ShowNode | ShowMembers | GhostInterest | ContactClaim, sender: str) -> None:
        """What simulation servers say to each other that take part in a show, or have entities near each other."""
        if isinstance(message, GhostInterest | ContactClaim):
            if self.neighbours is None:
                raise MessageError("the world of this server looks at no other entities")
            if isinstance(message, ContactClaim):
                self.neighbours.claim_came(message, sender)
            else:
                self.neighbours.interest_came(message, sender)
            return
        row = await self.home.row(sender)
        if row is None or self.shows is None:
            raise MessageError(f"{sender} is gone, or there are no shows here")
        if isinstance(message, ShowNode):
            self.shows.node_said(message, sender, row.link_host)
        else:
            await self.shows.members_said(message, sender, row.link_host)


def _check_peer(sender: str, received: Received) -> None:
    if sender != received.peer:
        raise MessageError(f"sealed by {sender}, not by the peer that sent it")


def _plan(order: Order) -> DeparturePlan:
    mode = Mode(order.mode)
    return DeparturePlan(
        order.transfer_id,
        order.entity,
        order.target,
        order.direct,
        order.transport,
        ordered=True,
        mode=mode,
        grouped=order.grouped,
        notice_ms=order.notice_ms,
        freeze_budget_ms=order.freeze_budget_ms,
        undecided_at=Fence(order.epoch, order.sub),
    )
