"""One real simulation server that can be stopped, compared, copied and gone on with; `handover_home` has its home.

Real: `Departures`, `Arrivals`, `Holdings`, `Life`, `Inbox`, the dispatch of messages in `simserver.server.dispatch`,
the entity's actor (its callbacks), and every machine, certificate and signature below them. Not here: trio, sockets,
the sealing of parcels, REST. A `Host` takes one event at a time and says what it sent.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import SimpleNamespace
from typing import Any, Final, cast

from batonpass.actors.base.breakpoints import nowhere
from batonpass.actors.base.clock import InstanceClock
from batonpass.authority.fence import Fence
from batonpass.authority.machines import source as outgoing
from batonpass.authority.machines.source import ASK_EVERY, ATTEMPTS_WITHOUT_HOME, Outgoing
from batonpass.authority.machines.target import Incoming
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.node.spans import SILENT
from batonpass.authority.procedures import table as procedures
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import Activated, Message, Report, StageWord
from batonpass.scenarios.simulation.kernel.attendance import Attendant
from batonpass.scenarios.simulation.kernel.durable_stages import DurableStages
from batonpass.scenarios.simulation.search.copying import deep_copy
from batonpass.scenarios.simulation.search.home import ENTITY, PLAYER, run_now
from batonpass.scenarios.simulation.search.keys import HOME, SearchKeys, identity_of
from batonpass.scenarios.simulation.search.ports import (
    ROOMS,
    AlwaysLeased,
    HistoryWorld,
    Note,
    NoteLedger,
    StoppedClock,
)
from batonpass.simserver.entity.actor import NewInput, TickNow
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.custody_log import Stint
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.table import Holding, Holdings, Tombstone
from batonpass.simserver.net.ports import SimserverPorts, certificate_reader
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.unresolved import StagedOutcomeQueries

# Rights and rules are not searched: the owner stays the first one.
_OWNED: Final = Ownership(PLAYER, 1)
# Attempts from here on are alike: the machine does nothing new. Of them, those that ask home are looked at.
_ATTEMPTS_APART: Final = ATTEMPTS_WITHOUT_HOME + 1
_BEFORE_ONE_THAT_ASKS: Final = ASK_EVERY - 1


# --- a simulation server -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchParts:
    """Of what hosts are made; a weakened variant exchanges one of them."""

    outgoing: type[Outgoing] = Outgoing
    incoming: type[Incoming] = Incoming
    departures: type[Departures] = Departures
    arrivals: type[Arrivals] = Arrivals
    procedures: Mapping[str, Callable[..., Any]] = field(default_factory=lambda: procedures.PROCEDURES)


class Host:
    """One simulation server. `load` a saved one, let something happen, read `sent` and `begun`, `save` it."""

    def __init__(self, name: str, keys: SearchKeys, parts: SearchParts) -> None:
        self.name: Final = name
        self._parts: Final = parts
        self.sent: list[tuple[str, Message]] = []
        self.begun: list[Stint] = []
        self.acknowledged = 0
        self.incarnation = 0
        nothing, lease = cast(Any, None), AlwaysLeased(lambda: self.incarnation)
        home, outbox = cast(Any, keys), cast(Any, self)
        ports = SimserverPorts(
            sealer=Sealer.without_log(name, identity_of(name)),
            home=home,
            renew=nothing,
            link=nothing,
            outbox=outbox,
            certificates=certificate_reader(home),
            clock=InstanceClock(StoppedClock(), name),
            counts=Counter(),
            spans=SILENT,
            reached=nowhere,
            new_id=nothing,
            whereabouts=nothing,
        )
        environment = EntityEnvironment(
            server=name,
            world=cast(Any, HistoryWorld()),
            period_s=0.05,
            custody=cast(Any, self),
            monotonic_ns=ports.clock.monotonic_ns,
            acknowledge=self._acknowledge,
            correct=self.tell_player,
            wants_word_of_owner=lambda entity: None,
            wants_to_go=lambda entity, destination: None,
            count=lambda what: None,
            may_act=lease.may_act,
            # No server takes long here, and there are no copies.
            is_lost_by=lambda began_ns, done_ns: False,
            keeps_copies=lambda: False,
            ready_to_leave=lambda entity: None,
            crash_guard=CrashGuard(None, ports.clock.unix_s),
            wants_actor=lambda entity: None,
        )
        attendant = Attendant(environment)
        # Of the parts there are those that `new` makes.
        made: dict[str, Any] = {
            one.name: None for one in fields(SimserverNode) if one.default is one.default_factory is MISSING
        }
        durable = cast(Any, SimpleNamespace(ledger=None, stages=None, log_watermark=None, custody=None))
        self._node: Final = SimserverNode(
            **(made | {"ports": ports, "durable": durable, "environment": environment, "lease": lease})
        )
        # What all copies have in common, because nothing in it changes, or nothing that matters.
        self._shared: Final = {
            id(part): part
            for part in (
                self,
                keys,
                lease,
                environment,
                attendant,
                attendant.entity,
                ROOMS,
                ports,
                *vars(ports).values(),
            )
        }
        self._attendant: Final = attendant
        self.counts: Final = ports.counts

    # --- what its parts are given ----------------------------------------------------------------------------------

    def send(self, message: Message, trace: Trace, to: str, **how: Any) -> None:
        """As `Outbox.send`: traces are for people, and stay behind."""
        if isinstance(message, Activated) and message.trace is not None:
            message = message.model_copy(update={"trace": Trace(message.transfer_id)})
        self.sent.append((to, message))

    def tell_player(self, player: str, message: Any) -> None:
        """As `Outbox.tell_player`: players repeat what was not acknowledged anyway."""

    def start(self, stint: Stint) -> Stint:
        """As `CustodyLog.start`."""
        self.begun.append(stint)
        return stint

    def changed(self, stint: Stint) -> None:
        """As `CustodyLog.changed`."""

    def over(self, stint: Stint | None) -> None:
        """As `CustodyLog.over`."""

    def _acknowledge(self, source: str, message: Any) -> None:
        self.acknowledged = max(self.acknowledged, message.applied)

    # --- saved and loaded ------------------------------------------------------------------------------------------

    def first(self) -> None:
        """Start it with an empty disk."""
        self.incarnation = 0
        self._node.stages = cast(Any, DurableStages())
        self.new()

    def new(self, note: Note | None = None) -> None:
        """Start it, with what a ledger remembers and with what is staged (as `simserver.server.main` does)."""
        node, ledger = self._node, NoteLedger()
        node.ledger = cast(Any, ledger)
        node.holdings = Holdings(node.environment, ledger)
        node.holdings.actor_keeper = cast(Any, self._attendant)
        node.departures = self._parts.departures(
            node.ports, node.lease, node.holdings, ROOMS, lambda entity, frozen: None, lambda entity: None
        )
        node.arrivals = self._parts.arrivals(
            node.ports, node.lease, node.holdings, node.departures, cast(Any, ROOMS), node.stages
        )
        node.outcome_queries = StagedOutcomeQueries(
            node.ports, node.lease, node.holdings, node.stages, node.arrivals.stage_word
        )
        self.incarnation += 1
        node.arrivals._machines[ENTITY] = self._parts.incoming()
        ledger.row = note
        if note is not None and note.moved_to:
            node.holdings.remember(ENTITY, Tombstone(note.moved_to, note.fence))
        elif note is not None:
            self.remember_lived(note.fence)
        for stage in node.stages.waiting():
            node.arrivals.restage(stage)

    def remember_lived(self, fence: Fence) -> None:
        """It knows from its ledger that the entity lived here under this fence when it stopped."""
        self._node.holdings.remember_lived(ENTITY, fence)

    def spawn(self) -> None:
        """The entity begins here."""
        self._node.holdings.spawn(ENTITY, "ball", {}, Fence(1), _OWNED)

    def save(self) -> tuple[Any, ...]:
        """All of it that changes; good for any number of `load`s."""
        node = self._node
        if self.departure is not None:
            machine = self.departure.machine
            machine.__class__ = self._parts.outgoing
            # The clock does not move, so the next timer is due.
            machine._retry_at_ns = 0
            if machine.attempt >= _ATTEMPTS_APART:
                machine.attempt = _BEFORE_ONE_THAT_ASKS
        parts = (node.ledger, node.holdings, node.departures, node.arrivals, node.stages, node.outcome_queries)
        return (*parts, self.incarnation)

    def load(self, saved: tuple[Any, ...]) -> None:
        """Continue from a copy of what was saved."""
        node = self._node
        parts = deep_copy(saved, dict(self._shared))
        node.ledger, node.holdings, node.departures, node.arrivals, node.stages, node.outcome_queries = parts[:-1]
        self.incarnation = parts[-1]
        self.sent, self.begun, self.acknowledged = [], [], 0
        node.counts.clear()

    # --- events ----------------------------------------------------------------------------------------------------

    def take(self, sender: str, message: Message) -> None:
        """A message arrives. Raises what the server's inbox would log and drop."""
        run_now(self._node.take(OpenedMessage(message, sender, Trace(getattr(message, "transfer_id", "no-transfer")))))

    def begin(self, plan: DeparturePlan) -> None:
        """Its world wants the entity elsewhere."""
        self._node.departures.begin(plan)

    def timer(self) -> None:
        """Time passes until the departure under way repeats what it asked."""
        self._node.departures._event(self.departure, outgoing.TimePassed())

    def about_staging(self, transfer_id: str = "") -> None:
        """It asks what became of a state that it has staged; or without one: its own state was not staged in time."""
        if not transfer_id:
            self._node.departures._event(self.departure, outgoing.StageRefused("target_failed"))
        stage = self._node.stages.get(transfer_id)
        if stage is not None:
            self.sent.append((HOME, self._node.outcome_queries.inquiry(stage)))

    def stage_word(self, word: StageWord) -> None:
        """The answer."""
        stage = self._node.stages.get(word.transfer_id)
        if stage is not None:
            run_now(self._node.arrivals.stage_word(stage, word))

    def report(self, transfer_id: str) -> Report:
        """What it tells home of a transfer that is over."""
        report = self._node.departures.reports.untold[transfer_id]
        # For people only, and different each time.
        nothing = {"trace": Trace(transfer_id), "off_path": {}, "counters": {}}
        return cast(Report, report.model_copy(update=nothing))

    def reported(self, transfer_id: str) -> None:
        """Home has heard the report."""
        self._node.departures.reports.untold.pop(transfer_id, None)

    def tick(self) -> None:
        """The entity ticks, if it does."""
        if self.holding is not None:
            self.holding.cast(TickNow())

    def input(self, seq: int) -> None:
        """The player's input of this number arrives."""
        if self.holding is not None:
            self.holding.cast(NewInput(PLAYER, _OWNED.rev, seq, b""))

    # --- looking ---------------------------------------------------------------------------------------------------

    @property
    def holding(self) -> Holding | None:
        """The entity, if it lives here."""
        return self._node.holdings.get(ENTITY)

    @property
    def departure(self) -> Any:
        """The departure under way, or None."""
        return self._node.departures._leaving.get(ENTITY)

    @property
    def note(self) -> Note | None:
        """What its ledger says of the entity."""
        return cast(NoteLedger, self._node.ledger).row

    @property
    def note_before(self) -> Note | None:
        """What its ledger said before that."""
        return cast(NoteLedger, self._node.ledger).row_before

    @property
    def staged(self) -> tuple[tuple[str, str], ...]:
        """Transfers and hashes of the states on its disk."""
        stages = cast(DurableStages, self._node.stages).kept.values()
        return tuple(sorted((stage.transfer_id, stage.state_hash) for stage in stages))

    @property
    def wondering(self) -> tuple[str, ...]:
        """The transfers whose staged states it would ask about."""
        node = self._node
        return tuple(stage.transfer_id for stage in node.stages.waiting() if not node.outcome_queries._has_begun(stage))

    @property
    def unreported(self) -> tuple[str, ...]:
        """The transfers that home has not heard of."""
        return tuple(sorted(self._node.departures.reports))

    def snapshot(self) -> bytes:
        """The entity as it stands; empty when it is not here."""
        return self.holding.life.snapshot().encode() if self.holding is not None else b""

    def world(self) -> list[int]:
        """The inputs that were ever applied to the entity as it stands here."""
        return list(self.holding.life.world) if self.holding is not None else []

    def fingerprint(self) -> tuple[Any, ...]:
        """Everything on which its future depends, and nothing else: no times, traces, counters or numbers of tries."""
        departures = self._node.departures
        return (
            self._fingerprint_of_life(),
            self._node.holdings.gone(ENTITY),
            self._node.holdings.lived(ENTITY),
            (self.note, self.note_before),
            self._fingerprint_of_departure(),
            tuple(sorted((name, tuple(getattr(one, "chain", ()))) for name, one in departures.reports.untold.items())),
            tuple(sorted(departures._begun.items())),
            self._fingerprint_of_arrivals(),
            (self.staged, cast(DurableStages, self._node.stages).begun),
            self.incarnation,
        )

    def _fingerprint_of_life(self) -> tuple[Any, ...]:
        holding = self.holding
        if holding is None:
            return ()
        life = holding.life
        journal = tuple(item.seq for item in life.acceptance.waiting)
        return (
            life.fence,
            life.frozen,
            self.snapshot(),
            life.acceptance.next_ownership,
            journal,
            holding.chain,
            holding.group,
        )

    def _fingerprint_of_departure(self) -> tuple[Any, ...]:
        departure = self.departure
        if departure is None:
            return ()
        machine = departure.machine
        frozen, journal = departure.frozen, tuple(item.seq for item in departure.journal)
        fences = (machine.fence, machine.leads_to, frozen.fence, frozen.state_hash)
        attempt = min(machine.attempt, _ATTEMPTS_APART)
        doing = (machine.case, machine.phase, attempt, machine._certificate, machine._abort_reason)
        return (departure.plan, departure.chain, journal, fences, doing, departure.holding is self.holding)

    def _fingerprint_of_arrivals(self) -> tuple[Any, ...]:
        arrivals = self._node.arrivals
        contexts = sorted(
            (
                (leave.transfer_id, leave.fence, leave.state_hash, leave.source),
                (known.numbered_answer, known.trace.at("activated") is None),
                (known.chain, known.group, known.ownership),
                tuple(item.seq for item in known.inputs),
            )
            for leave, known in arrivals._contexts.items()
        )
        known = arrivals._machines[ENTITY]
        machine = (known.seen, tuple(known.offers), known._permission, known._acted_on)
        return (machine, tuple(contexts), tuple(arrivals._renewals))
