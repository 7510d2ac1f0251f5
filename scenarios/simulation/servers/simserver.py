"""One simulation server: the real parts, with virtual time, mail and disk below them."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from batonpass.actors.base.clock import InstanceClock
from batonpass.authority.errors import MessageError
from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.machines.capacity import Vacancies
from batonpass.authority.machines.source import Case, OutgoingPhase
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.recovery import CopyItem
from batonpass.authority.wire.sealing import Opened, Sealer
from batonpass.authority.wire.transfer import (
    CensusRequest,
    Copies,
    CopiesKept,
    Despawned,
    ImminentLoss,
    Input,
    InputAck,
    LetGo,
    Message,
    Moves,
    OwnerRequest,
    OwnerWord,
    Present,
    Spawned,
    decode_link_untrusted,
)
from batonpass.crypto.keys import Identity
from batonpass.scenarios.simulation.kernel.attendance import Attendant
from batonpass.scenarios.simulation.servers.calls import Calls
from batonpass.scenarios.simulation.servers.company import Batch, Outbox
from batonpass.scenarios.simulation.servers.disk import Disk, LateStages, Nonces
from batonpass.scenarios.simulation.servers.keys import Keys, KeysKnown
from batonpass.scenarios.simulation.servers.mail import Mail
from batonpass.scenarios.simulation.servers.mixes import ServerMix
from batonpass.scenarios.simulation.servers.parts import Parts
from batonpass.scenarios.simulation.servers.promises.notices import NoticeWatch
from batonpass.scenarios.simulation.servers.tasks import Process, VirtualClock
from batonpass.scenarios.simulation.servers.ways import Link, WayHome
from batonpass.scenarios.simulation.servers.world import Carrying, Counting, Finishing
from batonpass.simserver.entity.custody_log import Stint
from batonpass.simserver.entity.passivation import Passivation
from batonpass.simserver.entity.state import EntityEnvironment, Frozen, Life
from batonpass.simserver.entity.table import Holding, Tombstone
from batonpass.simserver.net.home_client import HomeRefused, HomeUnreachable
from batonpass.simserver.server.dispatch import Node
from batonpass.simserver.server.load_report import LoadMeter, Loads
from batonpass.simserver.transfer.source.admission import Admissions, Reception
from batonpass.simserver.transfer.source.concurrency_limit import Turnstile
from batonpass.simserver.transfer.target.staged_outcome import Inquiries
from batonpass.simserver.transfer.target.unresolved import LooseEnds

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
"""States of so much go ahead in pieces; real ones are some dozen times as large, and so is what a run costs then."""
_LOAD_OF_ONE: Final = 0.2
"""The part of a tick period that one entity is said to take, for those who balance."""


class Witness(Protocol):
    """Who watches what servers do."""

    def begun(self, server: str, stint: Stint) -> None:
        """A server takes up an entity."""

    def lives(self, server: str, life: Life) -> None:
        """This is what it took up."""

    def ticked(self, server: str, life: Life) -> None:
        """A server has simulated an entity for one more tick."""

    def heard_of_end(self, server: str, entity: str, epoch: int) -> None:
        """A server says that nothing of an entity goes on there under an earlier epoch."""

    def said_to_live(self, server: str, entity: str) -> None:
        """A server tells home that a new entity lives."""

    def told_durable(self, entity: str, fence: Fence, source: str, upto: int) -> None:
        """A source of inputs is told that so many of them are durable."""

    def kept(self, entity: str, fence: Fence, tick: int, applied: Mapping[str, int], said_after: int) -> None:
        """An authority hears that somebody keeps a copy."""

    def shows(self, observer: str, entity: str, fence: Fence, upto: int) -> None:
        """A follower keeps a copy of this tick."""

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


class _Attendant(Attendant):
    """Has the judge see every life that comes."""

    def __init__(self, environment: EntityEnvironment, witness: Witness) -> None:
        super().__init__(environment)
        self._witness: Final = witness

    def cast(self, life: Life) -> None:
        self._witness.lives(self.entity._env.server, life)
        super().cast(life)


class SimulationServer:
    """One server, from one crash to the next and beyond."""

    def __init__(
        self, name: str, keys: Keys, process: Process, mail: Mail, clock: VirtualClock, witness: Witness,
        wanders: Callable[[str, int], str | None], parts: Parts, mix: ServerMix,
    ) -> None:  # fmt: skip
        self.name: Final = name
        self.process: Final = process
        self.clock: Final = clock
        self.keys: Final = KeysKnown(keys)
        self._mail: Final = mail
        self._witness: Final = witness
        self._parts: Final = parts
        self._mix: Final = mix
        self._calls: Final = Calls(process, mail)
        self._outbox: Final = Outbox(process, mail, in_company=mix.in_company, most=mix.in_parcel)
        self._overdue: set[str] = set()
        self._sealer: Final = Sealer(name, keys.identity(name))
        self._disk: Final = Disk(process)
        self._stages: Final = LateStages()
        self._nonces: Final = Nonces(name)
        self._sent_on = 0
        world = Finishing if mix.notices_ms else Carrying if mix.carries else Counting
        self._world: Final = world(lambda sentence: witness.faulty(name, sentence), wanders, sleeps=mix.sleeps)
        self._said_after = 0
        mail.join(name, self._take_mail)
        self.start()

    # --- building: as `simserver.server.main` does it
    # ------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with what is on disk."""
        self.counts: Counter[str] = Counter()
        self._outbox.forget()
        if isinstance(self._world, Carrying):
            self._world.forget()
        self._witness.forgets(self.name)
        self._notices = NoticeWatch(self)
        environment = self._environment()
        self.node = node = self._built(environment)
        node.holdings.caretaker = cast(Any, _Attendant(environment, self._witness))
        self._remember()
        self.process.begin()
        node.departures._nursery = cast(Any, self.process)
        for serve in (
            node.inquiries.serve,
            node.loose_ends.serve,
            node.admissions.serve,
            node.lease.serve,
            node.copier.serve,
            node.newborns.serve,
            node.loads.serve,
            *([node.passivation.serve] if self._mix.passivate_s else []),
        ):
            self.process.start_soon(serve)
        if self._mix.absent:
            node.silences.first_silence_s = _FIRST_SILENCE_S
            self.process.start_soon(self._look_who_is_silent)
        node.lease.begin()
        self._tick_later()

    def _environment(self) -> EntityEnvironment:
        return EntityEnvironment(
            server=self.name,
            world=self._world,
            period_s=_TICK_NS / 1e9,
            custody=cast(Any, _Custody(self.name, self._witness)),
            monotonic_ns=self.clock.monotonic_ns,
            acknowledge=self._acknowledge,
            correct=self.tell_player,
            wants_word_of_owner=self._ask_owner,
            wants_to_go=self._send_on,
            ready_to_leave=self._ready_to_leave,
            count=lambda what: self.counts.update((what,)),
            may_act=self._may_act,
            # Nobody takes long here.
            is_lost_by=lambda began_ns, done_ns: False,
            keeps_copies=lambda: self.node.copier.copies,
            begun=lambda entity: self.node.copier.begun(entity),  # noqa: PLW0108 — there is none yet
            wants_actor=self._revive,
        )

    def _built(self, environment: EntityEnvironment) -> Node:
        parts, clock, counts, nothing = self._parts, self.clock, self.counts, cast(Any, None)
        spans = parts.spans(self.name, clock.monotonic_ns)
        way = WayHome(
            self.name, self.keys, self._calls, self.process, in_company=self._mix.in_company, most=self._mix.in_parcel
        )
        home, courier = cast(Any, way), cast(Any, self)
        stages, ledger = cast(Any, self._stages), cast(Any, self._disk)
        holdings = parts.holdings(environment, ledger)
        lease = parts.lease(
            self.name,
            cast(Any, self._nonces),
            home,
            clock,
            counts,
            stepped_down=self._step_down,
        )
        admissions = Admissions(courier, clock, counts)
        reception = Reception(
            self._world,
            courier,
            holdings,
            clock,
            Vacancies(_MAX_ENTITIES),
            _MAX_STATE_BYTES,
            lambda: lease.is_drained,
            lambda: lease.told_incarnation,
            lease.once_renewed,
        )
        departures = parts.departures(
            self._sealer,
            home,
            courier,
            holdings,
            admissions,
            clock,
            counts,
            self._next_id,
            kept=self._keep_handed_over,
            spans=spans,
            may_act=lease.may_act,
            home_answers=lease.home_answers,
        )
        arrivals = parts.arrivals(
            self._sealer,
            home,
            courier,
            holdings,
            departures,
            reception,
            stages,
            clock,
            counts,
            spans=spans,
            incarnation=lambda: lease.incarnation,
            may_act=lease.may_act,
        )
        way.why_not_asked = lease.why_not_asked
        lease.home_is_back = departures.home_is_back

        def may_ask() -> bool:
            return not lease.why_not_asked()

        departures._convoys.turnstile = Turnstile(self._mix.at_once, self._mix.at_once_bytes)
        departures._ahead.least_bytes = _LEAST_BYTES
        copier = parts.copier(
            self.name,
            holdings,
            parts.table(_MAX_COPIES_BYTES, _MAX_ENTITIES),
            lease,
            ledger,
            home,
            cast(Any, Link(self.name, self._mail)),
            clock,
            counts,
            interval_s=COPY_INTERVAL_S,
            checkpoint_s=CHECKPOINT_INTERVAL_S,
            followers=1,
        )
        lease.has_shared = copier.has_shared
        node = Node(
            config=nothing,
            clock=InstanceClock(clock, self.name),
            sealer=self._sealer,
            home=home,
            link=nothing,
            courier=courier,
            environment=environment,
            holdings=holdings,
            departures=departures,
            arrivals=arrivals,
            admissions=admissions,
            reception=reception,
            stages=stages,
            inquiries=Inquiries(self.name, home, stages, holdings, clock, counts, arrivals.stage_word, may_ask),
            owners=nothing,
            custody=nothing,
            ledger=ledger,
            counts=counts,
            keys=nothing,
            lease=lease,
        )
        node.copier = copier
        self._watch_copies(copier)
        node.loose_ends = LooseEnds(
            self.name,
            home,
            arrivals.unsettled,
            holdings,
            arrivals.still_wants,
            lambda: lease.incarnation,
            clock,
            counts,
            may_ask,
        )
        node.recovery = parts.recovery(holdings, copier, arrivals, departures, stages, lease, courier, counts, spans)
        node.newborns = parts.newborns(holdings, copier, ledger, clock, counts)
        node.births = parts.births(
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
            after_s=self._mix.passivate_s,
            period_s=_TICK_NS / 1e9,
            put_away=copier.put_away,
            is_idle=lambda actor: True,
        )
        node.silences = parts.silences(holdings, home, clock, counts, arrivals.owned)
        node.loads = Loads(
            LoadMeter(_TICK_NS),
            holdings,
            departures,
            courier,
            home.members,
            lambda: (counts["inputs"], 0),
            clock,
            lambda: lease.is_drained,
            lambda: node.copier.leaning(),  # noqa: PLW0108 — there is none yet
            lambda: lease.knows,
            reception.is_full,
        )
        return node

    def _watch_copies(self, copier: Any) -> None:
        """Have the judge see what counts as kept, and what is kept here."""
        is_kept = copier._is_kept

        def kept(holding: Holding, sent: Any) -> None:
            self._witness.kept(holding.id, sent.fence, sent.tick, sent.applied, self._said_after)
            is_kept(holding, sent)

        copier._is_kept = kept
        keep_one = copier._keep_one

        def keeps(item: CopyItem) -> bool:
            keeps_it: bool = keep_one(item)
            if (copy := copier.table.get(item.entity)) is not None:
                self._witness.shows(self.name, item.entity, copy.fence, copy.tick)
            return keeps_it

        copier._keep_one = keeps

    def _remember(self) -> None:
        """What there is of earlier lives."""
        node = self.node
        self._disk.start()
        for entity, moved_to, fence in self._disk.moved():
            node.holdings.remember(entity, Tombstone(moved_to, fence))
        for row in self._disk.interrupted:
            node.holdings.remember_lived(row.entity, Fence(row.epoch, row.sub), row.since)
        for stage in self._stages.waiting():
            node.arrivals.restage(stage)
        node.recovery.remember(cast(Any, self._disk))

    def change_keys(self, identity: Identity) -> None:
        """Its keys were revoked, or replaced; it signs with these from now on, also after a crash."""
        self._sealer.change_identity(identity)

    def crash(self) -> None:
        """Kill it."""
        self.process.end()
        self._disk.crash()

    # --- what its parts are given ----------------------------------------------------------------------------------

    def send(self, message: Message, trace: Trace, to: str, **how: Any) -> bool:
        """As `Courier.send`; traces are for people, and stay behind."""
        if isinstance(message, Despawned):
            self._witness.heard_of_end(self.name, message.entity, message.epoch)
        if isinstance(message, Spawned) and not message.reason:
            self._witness.said_to_live(self.name, message.entity)
        self._outbox.send(to, message)
        return True

    def doubt(self, peer: str) -> None:
        """As `Courier.doubt`; here everybody is where he was."""

    def is_under_way(self, _transfer_id: str, to: str) -> bool:
        """As `Courier.is_under_way`, of any transfer."""
        return (self.name, to) in self._mail.under_way

    def tell_player(self, player: str, message: Any) -> None:
        """As `Courier.tell_player`."""
        if isinstance(message, ImminentLoss):
            self._notices.told(message)
        self._mail.send(self.name, player, message)

    def _acknowledge(self, player: str, message: InputAck) -> None:
        self._witness.told_durable(message.entity, Fence(message.epoch, message.sub), player, message.durable)
        self._mail.send(self.name, player, message)

    def _revive(self, life: Life) -> None:
        """An actor for one that was put away; the judge has seen it come."""
        Attendant(self.node.environment).cast(life)

    # What needs the node, which needs this: by then it is there.

    def _send_on(self, entity: str, destination: str) -> None:
        self.node.departures.wants_to_go(entity, destination)

    def _ready_to_leave(self, entity: str) -> None:
        self._notices.ready(entity)
        self.node.departures.ready_to_leave(entity)

    def _may_act(self, now_ns: int) -> bool:
        return self.node.lease.may_act(now_ns)

    async def _look_who_is_silent(self) -> None:
        """As `Silences.serve`, which waits in a nursery of trio's."""
        silences = self.node.silences
        while True:
            await self.clock.sleep_s(_SWEEP_S)
            for request in silences.sweep():
                self.process.start_soon(silences._ask, request)

    def _keep_handed_over(self, entity: str, frozen: Frozen) -> None:
        self.node.copier.left(entity, frozen)

    def _step_down(self) -> None:
        self.node.recovery.step_down()

    def _next_id(self) -> str:
        self._sent_on += 1
        return f"{self.name.replace('.', '-')}-{self._sent_on:06d}"

    def _ask_owner(self, entity: str) -> None:
        self.process.start_soon(self._learn_owner, entity)

    async def _learn_owner(self, entity: str) -> None:
        """As `simserver.owners.lookup.Owners`, which waits at a channel of trio's."""
        try:
            answer = await self.node.home.ask(OwnerRequest(entity=entity), Trace("owner-request"), on_path=False)
        except (HomeUnreachable, HomeRefused):
            return
        if answer is not None and isinstance(answer.message, OwnerWord):
            self.node.arrivals.owned(answer.message)

    # --- what happens to it ----------------------------------------------------------------------------------------

    def spawn(self, entity: str, kind: str, owner: str) -> None:
        """The entity begins here."""
        self.node.holdings.spawn(entity, kind, {}, Fence(1), Ownership(owner, 1))
        self.node.copier.first_of(entity)

    def _take_mail(self, sender: str, message: Any) -> None:
        said_after = self._mail.stamped
        self.process.do(lambda: self._arrived(sender, message, said_after))

    def _arrived(self, sender: str, message: Any, said_after: int) -> None:
        if self._calls.took(message):
            return
        if isinstance(message, bytes):
            # Only what travels bare is encoded here; and who sends it, the link's session says.
            message = decode_link_untrusted(message)
        match message:
            case Input():
                self.node._input(message, sender)
            case Batch():
                trace = Trace("batch")
                opened = [Opened(one, sender, trace, in_batch=True) for one in message.messages]
                self.process.start_soon(self._take_each, opened)
            case LetGo():
                self.node.silences.heard(sender)
                if (holding := self.holding(message.entity)) and holding.life.ownership.owner == sender:
                    self._notices.let_go(message.entity)
                self.node.departures.let_go(message.entity, sender)
            case Present():
                self.node._present(message, sender)
            case Copies():
                self.node.copier.keep(message, sender, ("", 0))
            case CopiesKept():
                self._said_after = said_after
                self.node.copier.kept(message, sender)
            case _:
                trace = Trace(getattr(message, "transfer_id", "none"))
                self.process.start_soon(self._take, Opened(message, sender, trace))

    async def _take_each(self, opened: list[Opened]) -> None:
        for one in opened:
            await self._take(one)

    async def _take(self, opened: Opened) -> None:
        try:
            if isinstance(opened.message, Moves | CensusRequest):
                await self.node._placement(opened.message, opened.sender)
            else:
                await self.node._dispatch(opened)
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
            for life, tick in before:
                if life.tick != tick:
                    if life.ownership.stands_still:
                        self._witness.faulty(self.name, f"{life.id} ticks, and stands still since its owner left")
                    self._witness.ticked(self.name, life)
            node.loads.meter.ticked(round(len(before) * _LOAD_OF_ONE * _TICK_NS))
        self._tick_later()

    def _look_at_budgets(self) -> None:
        """Whoever stands still for longer than it may is given up, unless it was passed on: within a tick of it.

        Seen twice, because what was held up with a pause is done one after the other.
        """
        overdue, now_ns = set(), self.clock.monotonic_ns()
        for departure in self.node.departures._leaving.values():
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
            holding, copy = self.node.holdings.get(entity), self.node.copier.table.get(entity)
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
