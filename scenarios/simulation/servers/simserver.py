"""One simulation server: the real parts, with virtual time, mail and disk below them."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from batonpass.actors.base.breakpoints import nowhere
from batonpass.actors.net.link_service import LinkService
from batonpass.authority.errors import MessageError
from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.machines.source import Case, OutgoingPhase
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.names import instance_of
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import (
    Copies,
    CopiesKept,
    Ghosts,
    Input,
    LetGo,
    Present,
    decode_link_untrusted,
)
from batonpass.crypto.keys import Identity
from batonpass.scenarios.simulation.kernel.attendance import Attendant
from batonpass.scenarios.simulation.servers.calls import Calls
from batonpass.scenarios.simulation.servers.company import SimulatedBatch, SimulatedOutbox
from batonpass.scenarios.simulation.servers.connections import Segment
from batonpass.scenarios.simulation.servers.courier import VirtualCourier
from batonpass.scenarios.simulation.servers.disk import LateStages, SimulatedLedger, SimulatedNonces
from batonpass.scenarios.simulation.servers.keys import KeysKnown, SimulatedKeys
from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.mixes import ServerMix
from batonpass.scenarios.simulation.servers.one_by_one import OneByOne
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.promises.notices import NoticeWatch
from batonpass.scenarios.simulation.servers.scenes import Knock, SimulatedSceneDoor
from batonpass.scenarios.simulation.servers.shows import ShowPacket, SimulatedShows, show_world
from batonpass.scenarios.simulation.servers.streams import StreamAnswer, StreamAsked
from batonpass.scenarios.simulation.servers.tasks import ProcessClock, SimulatedProcess, VirtualClock
from batonpass.scenarios.simulation.servers.ways import SimulatedLink, SimulatedWhereabouts, WayHome
from batonpass.scenarios.simulation.servers.world import (
    Carrying,
    Correspondents,
    Corresponding,
    Counting,
    CountingParticipant,
    Finishing,
    Meeting,
    Roaming,
    SceneKeeping,
    Showing,
    Streaming,
)
from batonpass.simserver.durability.ledger import Ledger
from batonpass.simserver.durability.put_aside import PutAside
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.custody_log import CustodyLog, Stint
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.lease.keeper import Nonces as NoncesInFile
from batonpass.simserver.lease.log_watermark import LogWatermark
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.home_client import HomeClient
from batonpass.simserver.net.outbox import Outbox
from batonpass.simserver.net.ports import SimserverPorts, certificate_reader
from batonpass.simserver.owners.inactivity import FIRST_SILENCE_S
from batonpass.simserver.server.build import BuildLimits, build, remember, services
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.dispatch import Durable
from batonpass.simserver.sync.events.refusals import StreamRefusal
from batonpass.simserver.transfer.source.departures import DepartureLimits
from batonpass.simserver.transfer.target.staged_states import Stages
from batonpass.simserver.world.api import World

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.promises.ghosts import GhostWatch
    from batonpass.scenarios.simulation.servers.promises.scene_states import SceneWatch

__all__ = ["CHECKPOINT_INTERVAL_S", "COPY_INTERVAL_S", "SimulationServer", "Witness"]

_TICK_NS: Final = 50_000_000
_MAX_ENTITIES: Final = 1000
_MAX_STATE_BYTES: Final = 1 << 20
_MAX_COPIES_BYTES: Final = 1 << 24
COPY_INTERVAL_S: Final = 0.5
CHECKPOINT_INTERVAL_S: Final = 2.0
_FIRST_SILENCE_S: Final = 2
_SWEEP_S: Final = 0.5
_LEAST_BYTES: Final = 64 * 1024
"""How large states are that go ahead in pieces; real ones are some dozen times as large, and cost as much more."""
_LOAD_OF_ONE: Final = 0.2
"""The part of a tick period that one entity is said to take, for balancing."""
_SOMEWHERE: Final = ("", 0)
"""Where servers and players are here: by their names they are reached."""
_NOWHERE: Final = Path("/nonexistent")


def _config(name: str, mix: ServerMix) -> SimserverConfig:
    return SimserverConfig(
        name=name,
        instance=instance_of(name),
        directory=_NOWHERE,
        home_urls=("http://home.invalid",),
        join_token_file=_NOWHERE,
        tick_hz=1e9 / _TICK_NS,
        max_entities=_MAX_ENTITIES,
        max_state_bytes=_MAX_STATE_BYTES,
        max_copies_bytes=_MAX_COPIES_BYTES,
        copy_interval_s=COPY_INTERVAL_S,
        checkpoint_interval_s=CHECKPOINT_INTERVAL_S,
        backup_replicas=1,
        passivate_after_s=mix.passivate_s,
    )


def _limits(mix: ServerMix) -> BuildLimits:
    return BuildLimits(
        departures=DepartureLimits(mix.at_once, mix.at_once_bytes, _LEAST_BYTES),
        first_silence_s=_FIRST_SILENCE_S if mix.absent else FIRST_SILENCE_S,
        silence_sweep_s=_SWEEP_S,
    )


class Witness(Protocol):
    """What watches what servers do."""

    def begun(self, server: str, stint: Stint) -> None:
        """A server takes up an entity."""

    def lives(self, server: str, life: Life) -> None:
        """This is what it took up."""

    def ticked(self, server: str, life: Life) -> None:
        """A server has simulated an entity for one more tick."""

    def heard_of_end(self, server: str, entity: str, epoch: int) -> None:
        """A server says that it does nothing with an entity under an earlier epoch."""

    def said_to_live(self, server: str, entity: str) -> None:
        """A server tells home that a new entity lives."""

    def told_durable(self, entity: str, fence: Fence, source: str, upto: int) -> None:
        """A source of inputs is told how many of them are durable."""

    def kept(self, entity: str, fence: Fence, tick: int, applied: Mapping[str, int], said_after: int) -> None:
        """An authority hears that a backup replica keeps a copy."""

    def written(self, entity: str, fence: Fence, tick: int) -> None:
        """An authority calls durable what its own disk has."""

    def shows(self, observer: str, entity: str, fence: Fence, upto: int) -> None:
        """A backup replica keeps a copy of this tick."""

    def forgets(self, observer: str) -> None:
        """A server begins with nothing in memory."""

    def faulty(self, server: str, sentence: str) -> None:
        """A server did what must not be."""


class _Custody:
    """As `simserver.entity.custody_log.CustodyLog`: has the judge see every beginning."""

    def __init__(self, server: str, witness: Witness) -> None:
        self._server: Final = server
        self._witness: Final = witness

    def start(self, stint: Stint) -> Stint:
        self._witness.begun(self._server, stint)
        return stint

    def changed(self, stint: Stint) -> None:
        """The judge looks at stints when others begin."""

    def over(self, stint: Stint | None) -> None:
        """As `changed`."""


class _Attendant(Attendant):
    """Has the judge see every life that comes; one that was passivated has come before."""

    def __init__(self, environment: EntityEnvironment, witness: Witness, was: Callable[[Life], None] | None) -> None:
        super().__init__(environment)
        self._was: Final = was
        self._server: Final = environment.server
        self._witness: Final = witness
        self._come: Final[dict[str, Life]] = {}

    def cast(self, life: Life) -> None:
        if self._come.get(life.id) is not life:
            self._come[life.id] = life
            self._witness.lives(self._server, life)
            if self._was is not None:
                self._was(life)
        super().cast(life)


class SimulationServer:
    """One server, from one crash to the next and beyond."""

    def __init__(
        self, name: str, keys: SimulatedKeys, process: SimulatedProcess, mail: SimulatedMail, clock: VirtualClock,
        witness: Witness,
        wanders: Callable[[str, int], str | None], parts: ServersParts, mix: ServerMix, shows: SimulatedShows,
        scene_watch: "SceneWatch", correspondence: Correspondents, ghost_watch: "GhostWatch",
    ) -> None:  # fmt: skip
        self.name: Final = name
        self.process: Final = process
        self.clock: Final = clock
        self.keys: Final = KeysKnown(keys)
        self._mail: Final = mail
        self._witness: Final = witness
        self._parts: Final = parts
        self._mix: Final = mix
        self._shows: Final = shows
        self._scene_watch: Final = scene_watch
        self._correspondence: Final = correspondence
        self._ghost_watch: Final = ghost_watch
        self._scene_door: SimulatedSceneDoor | None = None
        self._calls: Final = Calls(process, mail)
        self._outbox: Final = SimulatedOutbox(process, mail, in_company=mix.in_company, most=mix.in_parcel)
        self._overdue: set[str] = set()
        self._identity = keys.identity(name)
        self._disk: Final = SimulatedLedger(process)
        self._stages: Final = LateStages()
        self._nonces: Final = SimulatedNonces(name)
        self._log_watermark: Final = LogWatermark(ProcessClock(clock, process))
        self._config: Final = _config(name, mix)
        self._sent_on = 0
        self._alone: Final = self._new_world(wanders)
        self._world: Final = self._in_batches(self._alone) if mix.in_batches else self._alone
        self._said_after: int | None = None
        """How many servers had died when what is heard at this moment was said, if it is the word of another one."""
        mail.join(name, self._take_mail)
        self.start()

    def _new_world(self, wanders: Callable[[str, int], str | None]) -> Counting:
        def complain(sentence: str) -> None:
            self._witness.faulty(self.name, sentence)

        def finished(entity: str) -> None:
            self._notices.ready(entity)

        if self._mix.corresponds:
            return Corresponding(complain, wanders, self._correspondence, sleeps=self._mix.sleeps)
        if self._mix.notices_ms:
            return Finishing(complain, wanders, finished, sleeps=self._mix.sleeps)
        if names := self._mix.show_names(instance_of(self.name)):
            return Showing(complain, wanders, partial(show_world, names))
        if self._mix.scenes:
            return SceneKeeping(complain, wanders, sleeps=self._mix.sleeps)
        if self._mix.roams:
            return Roaming(complain, wanders, sleeps=self._mix.sleeps)
        if self._mix.meets:
            return Meeting(complain, wanders)
        if self._mix.streams:
            return Streaming(complain, wanders, sleeps=self._mix.sleeps)
        return (Carrying if self._mix.carries else CountingParticipant)(complain, wanders, sleeps=self._mix.sleeps)

    def _in_batches(self, world: object) -> World:
        """The same world as a batch world; the first server of each instance has one that takes back a step."""
        return cast(World, OneByOne(cast(CountingParticipant, world), undoes=self.name.endswith("1")))

    def start(self) -> None:
        """Begin with what is on disk: all that a server is made of, over ports that are simulated."""
        self._outbox.forget()
        if isinstance(self._world, OneByOne | Carrying | Showing | Streaming):
            self._world.forget()
        self._witness.forgets(self.name)
        self._witness.forgets(f"ghosts of {self.name}")
        self._was = self._ghost_watch.was if self._mix.meets else None
        self._notices = NoticeWatch(self)
        self._disk.start()
        ports = self._ports()
        self.counts: Counter[str] = ports.counts
        shows = self._shows.ports_of(self.name, self.process, ports.clock, self._disk)
        limits = _limits(self._mix)
        self.node = node = build(self._config, self._world, ports, self._durable(), self._parts, limits, shows)
        if node.scenes is not None:
            self._scene_door = SimulatedSceneDoor(node.scenes, self.process, self._mail, ports.clock)
        node.holdings.actor_keeper = cast(Any, _Attendant(node.environment, self._witness, self._was))
        node.replication.tell_of_kept(self._kept)
        node.replication.tell_of_durable(self._durable_here)
        remember(node)
        self.process.begin()
        for _, serve in services(node):
            self.process.start_soon(serve)
        node.lease.begin(lambda: ("", "", 0))
        self._tick_later()

    def _ports(self) -> SimserverPorts:
        clock, in_company, most = ProcessClock(self.clock, self.process), self._mix.in_company, self._mix.in_parcel
        way = WayHome(self.name, self.keys, self._calls, self.process, in_company=in_company, most=most)
        outbox = VirtualCourier(self.name, self._outbox, self._mail, self._witness, self._notices)
        home = cast(HomeClient, way)
        return SimserverPorts(
            sealer=Sealer(self.name, self._identity),
            home=home,
            renew=way.renew,
            link=cast(LinkService, SimulatedLink(self.name, self._mail)),
            outbox=cast(Outbox, outbox),
            certificates=certificate_reader(home),
            clock=clock,
            counts=Counter(),
            spans=self._parts.spans(self.name, clock.monotonic_ns),
            reached=nowhere,
            new_id=self._next_id,
            whereabouts=SimulatedWhereabouts(way),
        )

    def _durable(self) -> Durable:
        return Durable(
            ledger=cast(Ledger, self._disk),
            stages=cast(Stages, self._stages),
            nonces=cast(NoncesInFile, self._nonces),
            log_watermark=self._log_watermark,
            put_aside=PutAside(),
            crash_guard=CrashGuard(None, self.clock.unix_s),
            custody=cast(CustodyLog, _Custody(self.name, self._witness)),
        )

    def _kept(self, entity: str, fence: Fence, tick: int, applied: Mapping[str, int]) -> None:
        self._witness.kept(entity, fence, tick, applied, cast(int, self._said_after))
        self._scene_watch.heard_of_copy(entity, fence, tick)

    def _durable_here(self, entity: str, fence: Fence, tick: int) -> None:
        """A tick is durable: by its own disk, unless that is the word of a backup replica, of which `_kept` hears."""
        if self._said_after is None:
            self._witness.written(entity, fence, tick)

    def change_keys(self, identity: Identity) -> None:
        """Its keys were revoked, or replaced; it signs with these from now on, also after a crash."""
        self._identity = identity
        self.node.sealer.change_identity(identity)

    def crash(self) -> None:
        """Kill it."""
        self.process.end()
        self._shows.ended(self.name)
        self._disk.crash()

    def _next_id(self) -> str:
        self._sent_on += 1
        return f"{self.name.replace('.', '-')}-{self._sent_on:06d}"

    # --- what happens to it ----------------------------------------------------------------------------------------

    def spawn(self, entity: str, kind: str, owner: str, params: dict[str, Any]) -> None:
        """The entity begins here."""
        self.node.holdings.spawn(entity, kind, params, Fence(1), Ownership(owner, 1))
        self.node.replication.first_of(entity)

    def _take_mail(self, sender: str, message: Any) -> None:
        said_after = self._mail.stamped
        self.process.do(lambda: self._arrived(sender, message, said_after))

    def _arrived(self, sender: str, message: Any, said_after: int) -> None:
        if self._calls.took(message):
            return
        if isinstance(message, bytes):
            # Only what travels bare is encoded here; and its sender is told by the link's session.
            message = decode_link_untrusted(message)
        match message:
            case Input() | Present() | CopiesKept() | Ghosts():
                self._said_after = said_after
                self._ghost_watch.heard(self.name, sender, message)
                self.node.take_bare(message, sender, _SOMEWHERE)
                self._said_after = None
            case LetGo():
                if (holding := self.holding(message.entity)) and holding.life.ownership.owner == sender:
                    self._notices.let_go(message.entity)
                self.node.take_bare(message, sender, _SOMEWHERE)
            case ShowPacket():
                self._shows.arrived(message)
            case Knock() if self._scene_door is not None:
                self._scene_door.knocked(sender, message)
            case Segment() if self._scene_door is not None:
                self._scene_door.arrived(sender, message)
            case StreamAsked():
                self.process.start_soon(self._answer_stream, sender, message)
            case Copies():
                self.node.take_bare(message, sender, _SOMEWHERE)
                self._show_copies(message)
            case SimulatedBatch():
                trace = Trace("batch")
                self._open([OpenedMessage(one, sender, trace, in_batch=True) for one in message.messages])
            case _:
                self._open([OpenedMessage(message, sender, Trace(getattr(message, "transfer_id", "none")))])

    async def _answer_stream(self, client: str, asked: StreamAsked) -> None:
        streams = self.node.streams
        if streams is None:
            return
        try:
            answer = StreamAnswer(asked.number, await streams.request(asked.stream, asked.request))
        except StreamRefusal as refusal:
            answer = StreamAnswer(asked.number, None, refusal.code, refusal.url)
        self._mail.send(self.name, client, answer)

    def _show_copies(self, message: Copies) -> None:
        """Have the judge see what is kept here now."""
        for item in message.items:
            if (copy := self.node.replication.table.get(item.entity)) is not None:
                self._witness.shows(self.name, item.entity, copy.fence, copy.tick)
                self._shows.kept(item.entity, copy.fence, copy.state)
                self._scene_watch.copied(item.entity, copy.fence, copy.tick, copy.state)

    def _open(self, some: list[OpenedMessage]) -> None:
        if self.node.takes_parcels():
            self.process.start_soon(self._take_each, some)

    async def _take_each(self, opened: list[OpenedMessage]) -> None:
        for one in opened:
            await self._take(one)

    async def _take(self, opened: OpenedMessage) -> None:
        try:
            await self.node.take(opened)
        except (MessageError, HomeUnreachable, HomeRefused):
            self.counts["dropped"] += 1
        if self.counts["internal_error"]:
            self._witness.faulty(self.name, "ran into an error of its own")

    def _tick_later(self) -> None:
        # At whole multiples of the period, as the real one, so that servers tick together.
        now_ns = self.clock.monotonic_ns()
        left_ns = (now_ns // _TICK_NS + 1) * _TICK_NS - now_ns
        self.process.after(self.clock.true_s(left_ns / 1e9), self._tick)

    def _tick(self) -> None:
        node = self.node
        if self._mix.budgets_ms:
            self._look_at_budgets()
        if self._mix.notices_ms and (why := self._notices.look()):
            self._witness.faulty(self.name, why)
        before = [(holding.life, holding.life.tick) for holding in node.holdings]
        if node.tick_all():
            node.environment.feed.round_is_over()
            for life, tick in before:
                if life.tick != tick:
                    if life.ownership.suspended:
                        self._witness.faulty(self.name, f"{life.id} ticks, and is suspended since its owner left")
                    self._witness.ticked(self.name, life)
                    if self._was is not None:
                        self._was(life)
            self._ghost_watch.looks(self)
            node.loads.meter.ticked(round(len(before) * _LOAD_OF_ONE * _TICK_NS))
        self._tick_later()

    def _look_at_budgets(self) -> None:
        """An entity that is frozen for longer than it may be resumes within a tick, unless it was passed on.

        Seen twice, because what was held up with a pause is done one after the other.
        """
        overdue, now_ns = set(), self.clock.monotonic_ns()
        for departure in self.node.departures:
            budget_ns, machine = departure.plan.freeze_budget_ms * 1_000_000, departure.machine
            is_open = machine.phase is OutgoingPhase.STAGING or (
                machine.phase is OutgoingPhase.REQUESTED and machine.case is not Case.DIRECT
            )
            if budget_ns and is_open and now_ns > departure.frozen.frozen_ns + budget_ns:
                overdue.add(departure.plan.transfer_id)
        for transfer_id in sorted(overdue & self._overdue):
            self._witness.faulty(self.name, f"freeze budget of {transfer_id} is over, and it is not given up")
        self._overdue = overdue

    # --- looking ---------------------------------------------------------------------------------------------------

    def holding(self, entity: str) -> Holding | None:
        """The entity, if it is here."""
        return self.node.holdings.get(entity) if self.process.is_running else None

    def keeps(self, entity: str, fence: Fence) -> bool:
        """Whether it has anything of an entity of this fence or a later one: in memory or, if it is dead, on disk.

        Of what is on disk while it runs it has read what there was when it began.
        """
        if self.process.is_running:
            holding, copy = self.node.holdings.get(entity), self.node.replication.table.get(entity)
            known = [one.fence for one in (holding, copy) if one is not None]
        else:
            checkpoint = self._disk.checkpoint_of(entity)
            known = [] if checkpoint is None else [checkpoint[0]]
            known += [fence for name, fence, *_ in self._disk.all_handed_over() if name == entity]
        return any(one >= fence for one in known)

    def has_on_disk(self, entity: str) -> bool:
        """Whether it would have any state of an entity if it were killed now, and started again."""
        handed_over = (name for name, *_ in self._disk.all_handed_over())
        is_staged = self._stages.of(entity, Fence(MAX_EPOCH)) is not None
        return self._disk.checkpoint_of(entity) is not None or entity in handed_over or is_staged

    def may_simulate(self, entity: str) -> bool:
        """Whether it would simulate the entity if it ticked now."""
        holding = self.holding(entity)
        stands = holding is None or holding.life.frozen or holding.life.over
        return not stands and self.has_lease

    @property
    def has_lease(self) -> bool:
        """Whether it may simulate anything now."""
        return self.node.lease.may_act(self.clock.monotonic_ns())
