"""The old authority at work: performs what the `Outgoing` machine of each leaving entity decides.

What a machine decides is performed in one step that does not wait. Freezing, taking the journal, resuming, retiring are
changes of the entity's life, and messages are handed to the outbox. So a task that is ended while it brings a message
cannot leave a decision half performed. What takes time (timers, requests, reports) runs while this is served; served
again, it continues every transfer that is under way. What precedes the freeze is in `preparation`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import trio

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.machines import source as machine
from batonpass.authority.machines.precopy import PRECOPY_BYTES
from batonpass.authority.machines.source import Case, Mode, Outgoing
from batonpass.authority.names import instance_of
from batonpass.authority.node.breakpoints import BREAKPOINT_OF, Breakpoint
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.placement import MoveItem
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import (
    Activated,
    HandoffAbort,
    HandoffReply,
    HandoffRequest,
    NotHere,
    Precopied,
    Staged,
    StageState,
    StateTransfer,
)
from batonpass.simserver.entity.snapshot import Frozen
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.net.timer import Alarm
from batonpass.simserver.transfer.source.admission import TargetAdmission
from batonpass.simserver.transfer.source.backoff import EACH_NS, RetryTimeout
from batonpass.simserver.transfer.source.concurrency import AT_ONCE, AT_ONCE_BYTES, ConcurrencyLimit
from batonpass.simserver.transfer.source.departure import Departure, DeparturePlan
from batonpass.simserver.transfer.source.guarded_tasks import GuardedTasks
from batonpass.simserver.transfer.source.order_history import ReleasedEpochs, SeenOrders
from batonpass.simserver.transfer.source.pass_signing import PassSigning
from batonpass.simserver.transfer.source.preparation import DeparturePreparation
from batonpass.simserver.transfer.source.reports import Reports
from batonpass.simserver.transfer.source.spans import DepartureSpans, begin_spans
from batonpass.simserver.world.portability import NotPortable

__all__ = ["DepartureLimits", "Departures"]

_log = logging.getLogger("batonpass.simserver.transfer.source.departures")

# Large states take longer to be staged: time for 10 MB a second.
STAGE_NS_PER_BYTE = 100
# Reasons for which a request may be refused, and the transfer that it is for have no result.
_OF_THE_REQUEST: Final = frozenset({Reason.NOT_HOLDER, Reason.NO_DELEGATION})


@dataclass(frozen=True)
class DepartureLimits:
    """How many leave at one time, and what goes ahead of its entity; simulations take less."""

    at_once: int = AT_ONCE
    at_once_bytes: int = AT_ONCE_BYTES
    least_bytes_ahead: int = PRECOPY_BYTES


class Departures:
    """Every entity that is leaving this server."""

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        admission: TargetAdmission,
        kept: Callable[[str, Frozen], None],
        keep_longer: Callable[[str], None],
        *,
        limits: DepartureLimits = DepartureLimits(),
    ) -> None:
        """`kept` is told of every state that is not needed here any more, because another server has begun with it.

        And `keep_longer` of each entity of which that is so, as long as the log may not know of its direct pass.
        """
        home, clock, counts = ports.home, ports.clock, ports.counts
        self._tasks: Final = GuardedTasks(counts)
        self._lease: Final = lease
        self._kept: Final = kept
        self.handed_on: Final = ReleasedEpochs()
        self._spans: Final = ports.spans
        self._reached = ports.reached
        self._sealer = ports.sealer
        self._home = home
        self._outbox = ports.outbox
        self._holdings = holdings
        self._admission = admission
        self._clock = clock
        self._counts = counts
        self._begun: Final = SeenOrders()
        spawn = self._tasks.spawn
        self.reports: Final = Reports(home, clock, counts, spawn, self._begun.decided, keep_longer)
        self.passes: Final = PassSigning(ports.sealer, clock, spawn, self._send_direct, ports.certificates.signed)
        self._leaving: dict[str, Departure] = {}
        self._by_transfer: dict[str, Departure] = {}
        # By transfer; only of those that are listened to.
        self._open_spans: dict[str, DepartureSpans] = {}
        self._preparation: Final = DeparturePreparation(
            ports,
            lease,
            holdings,
            admission,
            self._tasks,
            self.reports,
            self._begun,
            self._leaving,
            self._freeze,
            limit=ConcurrencyLimit(limits.at_once, limits.at_once_bytes),
            precopy_bytes=limits.least_bytes_ahead,
        )
        self.waits: Final = self._preparation.waits
        self.retry_backoff = self._preparation.retry_backoff
        self._circuit_breaker: Final = self._preparation.circuit_breaker
        self._patience = RetryTimeout()
        self._alarm: Final = Alarm(clock, spawn, self._next_timer_ns, self._ring)

    def __len__(self) -> int:
        return len(self._leaving)

    def __iter__(self) -> Iterator[Departure]:
        """Of every entity that is frozen to be handed over."""
        return iter(list(self._leaving.values()))

    def has_notice(self, entity: str) -> bool:
        """Whether an entity is about to leave, and those that were told of it may finish before."""
        return self._preparation.has_notice(entity)

    def is_leaving(self, entity: str) -> bool:
        """Whether an entity is frozen because it is being handed over."""
        return entity in self._leaving

    def home_is_back(self) -> None:
        """The home instance grants this server's lease again: what waits for a decision need not wait for its turn."""
        for departure in list(self._leaving.values()):
            self._perform(departure, departure.machine.asks())

    def departure_of(self, entity: str) -> Departure | None:
        """How far the hand-over is for which an entity is frozen, if it is."""
        return self._leaving.get(entity)

    def step_down(self) -> None:
        """This server's lease is over: an entity whose transfer is refused from here on is not simulated here."""
        for departure in self._leaving.values():
            departure.stays_nowhere = True

    def taken_away(self, entity: str) -> None:
        """The log has raised its fence, and asked what there is of it: if a transfer is refused, it stays nowhere.

        Such a word may be of before that. If the entity is given to this server since, it is told from what to begin.
        """
        if (departure := self._leaving.get(entity)) is not None:
            departure.stays_nowhere = True

    def give_up(self, entities: Collection[str]) -> None:
        """These have never been this server's to hand over: what it has begun is dropped."""
        for departure in [one for one in self._leaving.values() if one.plan.entity in entities]:
            self._forget(departure)
        for entity in entities:
            # What this server is given next did not come of that.
            self.handed_on.forget(entity)

    @property
    def under_way(self) -> int:
        """How many entities are on their way out, or wait for their turn."""
        return len(self._leaving) + self._preparation.queued

    def is_under_way(self, entity: str) -> bool:
        """Whether an entity is on its way out, or waits for its turn."""
        return self._preparation.is_under_way(entity)

    def may_be_moved(self, entity: str) -> bool:
        """Whether drain and balance may have it leave: not on its way, nor while that was refused a moment ago."""
        return self.retry_backoff.may_be_moved(entity) and not self.is_under_way(entity)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the time of every transfer under way, and tell home of those that are over, until cancelled."""
        async with self._clock.tasks() as tasks:
            self._tasks.running = tasks
            self.passes.forget()
            self._alarm.go_on()
            self.reports.resume()
            self._preparation.go_on()
            task_status.started()
            try:
                await self._clock.sleep_forever()
            finally:
                self._tasks.running = None

    # --- before the freeze -----------------------------------------------------------------------------------------

    def begin(self, plan: DeparturePlan, *, may_wait: bool = True) -> None:
        """Hand an entity over as soon as its target has a place for it, and it is its turn.

        A plan that makes no sense (now), or may not wait and would have to, is dropped; a refused one is declined.
        """
        self._preparation.begin(plan, may_wait=may_wait)

    def wants_to_go(self, entity: str, destination: str, contact: str = "") -> None:
        """The world says that an entity belongs elsewhere; goes directly when it may. What goes wrong stays here.

        Or it has met the entity `contact`, which is there: then its rule is asked, unless it may go directly.
        """
        self._preparation.wants_to_go(entity, destination, contact)

    def why_it_stays(self, entity: str, destination: str) -> tuple[str, int]:
        """Why an entity is here still that its world wants at `destination`, and for how many nanoseconds it is so.

        Without a reason it is about to leave.
        """
        return self._preparation.why_it_stays(entity, destination)

    def relocate(self, moves: Iterable[MoveItem]) -> None:
        """Hand these over, each when it is its turn, for the system's own reasons: drain and balance.

        What is not here, under way already, or was refused a moment ago, is left out; a later census shows it.
        """
        for move in moves:
            if self.retry_backoff.may_be_moved(move.entity):
                # Over the link: it puts requests together, and no HTTP server is in the way.
                plan = DeparturePlan(move.transfer_id, move.entity, move.target, transport="link", in_company=True)
                self._tasks.safely(self.begin, plan)

    def copied_ahead(self, opened: OpenedMessage, message: Precopied) -> None:
        """A target has got a part of a state that goes ahead."""
        self._preparation.copied_ahead(opened, message)

    def ready_to_leave(self, entity: str) -> None:
        """The world has finished what it wanted to do before this entity leaves."""
        self._preparation.ready_to_leave(entity)

    def let_go(self, entity: str, player: str) -> None:
        """A player has finished; it counts if it owns the entity."""
        self._preparation.let_go(entity, player)

    # --- freezing --------------------------------------------------------------------------------------------------

    def _freeze(self, plan: DeparturePlan, holding: Holding) -> None:
        began_ns = self._clock.monotonic_ns() if plan.freeze_budget_ms else 0
        if (frozen := self._frozen(plan, holding)) is None:
            return
        if plan.freeze_budget_ms:
            within = plan.within_budget(len(frozen.state), self._clock.monotonic_ns() - began_ns)
            if within is None:
                # It is simulated again at once: neither home nor the target has been asked anything.
                self._thaw(plan, holding, Reason.FREEZE_BUDGET)
                return
            plan = within
        try:
            departure = self._depart(plan, holding, frozen)
        except Exception:
            # Nothing has left this server yet.
            holding.life.thaw()
            raise
        # What has not begun is ordered again, and not to be taken for a repetition then.
        self._begun.begins(plan.transfer_id, frozen.fence.epoch)
        self._leaving[plan.entity] = self._by_transfer[plan.transfer_id] = departure
        if (spans := begin_spans(self._spans, departure)) is not None:
            self._open_spans[plan.transfer_id] = spans
        self._reached(Breakpoint.FROZEN, plan.transfer_id)
        self._perform(departure, departure.machine.start(self._clock.monotonic_ns()))
        self._alarm.by(departure.machine.next_timer_ns)

    def _frozen(self, plan: DeparturePlan, holding: Holding) -> Frozen | None:
        """What it is frozen with from now on; None if it is simulated still, and that was said where it matters."""
        try:
            frozen = holding.life.freeze()
        except NotPortable as error:
            # So it is wherever it would go, and with every order that is repeated.
            holding.life.cannot_be_encoded(error)
            self.retry_backoff.note(plan.entity, Reason.INCOMPATIBLE)
            self.retry_backoff.refused(plan.entity)
            self._preparation.decline(plan, Reason.INCOMPATIBLE)
            return None
        if frozen is None:
            self._counts["order_busy"] += 1
            return None
        if self.retry_backoff.is_too_large(plan.entity, len(frozen.state)):
            self._thaw(plan, holding, Reason.STATE_TOO_LARGE)
            return None
        return frozen

    def _thaw(self, plan: DeparturePlan, holding: Holding, reason: Reason) -> None:
        holding.life.thaw()
        self._counts[reason.value] += 1
        self._preparation.decline(plan, reason)

    def _depart(self, plan: DeparturePlan, holding: Holding, frozen: Frozen) -> Departure:
        case = self._case(plan, holding)
        trace = Trace(plan.transfer_id).mark(self._sealer.name, "frozen", frozen.frozen_ns)
        # Of a group all are staged at the same moment, and each waits for those before it.
        before_it_ns = EACH_NS * len(self._leaving) if plan.grouped else 0
        outgoing = Outgoing(
            case,
            frozen.fence,
            frozen.frozen_ns,
            self._patience.first_retry_beside_ns(plan.others(len(self._leaving))),
            plan.mode,
            machine.STAGE_PATIENCE_NS + STAGE_NS_PER_BYTE * len(frozen.state) + before_it_ns,
            plan.budget_ns,
            self._sealer.name,
        )
        departure = Departure(plan, self._sealer.name, holding, frozen, outgoing, trace, trace)
        departure.target_incarnation = self._admission.incarnation_of(plan.target)
        if plan.ahead is not None:
            departure.counters.update(precopy_rounds=plan.ahead.round, precopied_bytes=plan.ahead.sent_bytes)
        return departure

    def _case(self, plan: DeparturePlan, holding: Holding) -> Case:
        here = instance_of(self._sealer.name)
        if self._preparation.goes_directly(plan, holding):
            return Case.DIRECT
        if plan.direct:
            self._counts["direct_through_the_log"] += 1
        same = here == instance_of(plan.entity) == instance_of(plan.target)
        return Case.SAME_HOME if same else Case.DIFFERENT_HOMES

    def _next_timer_ns(self) -> int | None:
        timers = (departure.machine.next_timer_ns for departure in self._leaving.values())
        return min((due_ns for due_ns in timers if due_ns is not None), default=None)

    def _ring(self, now_ns: int) -> None:
        """Feed the machines that wait for this moment their ticks."""
        for departure in list(self._leaving.values()):
            next_ns = departure.machine.next_timer_ns
            if next_ns is not None and next_ns <= now_ns:
                self._event(departure, machine.TimePassed())
                self._lighten(departure)

    def _lighten(self, departure: Departure) -> None:
        """An entity whose state is sent, and that waits for a silent target, keeps no other state from leaving."""
        plan = departure.plan
        if departure.machine.attempt > 1 and not self._outbox.is_under_way(plan.transfer_id, plan.target):
            self._preparation.lighten(plan)

    # --- what comes back -------------------------------------------------------------------------------------------

    def replied(self, opened: OpenedMessage, reply: HandoffReply) -> None:
        """The home instance answered a request."""
        if reply.outcome == "committed" or (reply.outcome == "refused" and reply.reason not in _OF_THE_REQUEST):
            self._begun.decided(reply.transfer_id)
        departure = self._by_transfer.get(reply.transfer_id)
        if departure is None:
            self._counts["late_reply"] += 1
            return
        if reply.outcome == "committed" and not departure.machine.over and departure.machine.case is not Case.DIRECT:
            departure.trace = opened.trace
        if reply.outcome == "pending":
            departure.last_word = "others of its group are not frozen yet"
            # The others of its group are not frozen yet; it is asked again.
            return
        self._event(departure, self._reading(departure, reply))

    def _reading(self, departure: Departure, reply: HandoffReply) -> machine.Event:
        """What the log's answer means to the machine."""
        if reply.outcome == "committed":
            if reply.fence > (given := reply.given(departure.machine.leads_to)):
                # The log is past this transfer's fence: the target was active and has handed the entity on.
                return machine.PeerActive(given)
            return machine.TransferCommitted(reply.fence, reply.certificate)
        if reply.authority != self._sealer.name:
            return machine.Lost(reply.authority, reply.fence)
        return machine.TransferRefused(reply.reason, reply.fence)

    def activated(self, opened: OpenedMessage, message: Activated) -> None:
        """The target says that it simulates."""
        departure = self._by_transfer.get(message.transfer_id)
        if departure is None or opened.sender != departure.plan.target:
            self._counts["late_activated"] += 1
            return
        if message.trace is not None:
            departure.off_path["activated"] += 1
        departure.trace = opened.trace if message.trace is None else message.trace
        self._event(departure, machine.PeerActive(message.fence))

    def staged(self, opened: OpenedMessage, message: Staged) -> None:
        """The target has the state on its disk, or will not take it."""
        departure = self._by_transfer.get(message.transfer_id)
        if departure is None or opened.sender != departure.plan.target:
            self._counts["late_staged"] += 1
            return
        if message.reason:
            self._event(departure, machine.StageRefused(message.reason))
        elif message.state_hash == departure.frozen.state_hash:
            if departure.machine.phase is machine.OutgoingPhase.STAGING:
                departure.trace = departure.base = opened.trace
            self._event(departure, machine.StateStaged())

    def superseded(self, entity: str, fence: Fence) -> None:
        """What leaves here is of the past: the entity comes, or is continued, under `fence`."""
        departure = self._leaving.get(entity)
        if departure is not None:
            self._event(departure, machine.Superseded(fence))

    def _event(self, departure: Departure, event: machine.Event) -> None:
        if not isinstance(event, machine.TimePassed):
            self._reached(BREAKPOINT_OF[type(event)], departure.plan.transfer_id)
        self._perform(departure, departure.machine.handle(event, self._clock.monotonic_ns()))
        self._alarm.by(departure.machine.next_timer_ns)

    # --- performing ------------------------------------------------------------------------------------------------

    def _perform(self, departure: Departure, effects: list[machine.Effect]) -> None:
        """Do what the machine decided, all of it: an effect that fails must not keep the next from being performed."""
        # With the last effect the departure is forgotten, and its spans end after that.
        spans = self._open_spans.get(departure.plan.transfer_id)
        if spans is not None:
            spans.decided(self._clock.monotonic_ns())
        for effect in effects:
            try:
                self._perform_one(departure, effect)
            except Exception:
                self._tasks.went_wrong()
            self._reached(BREAKPOINT_OF[type(effect)], departure.plan.transfer_id)
        if spans is not None:
            spans.performed(effects, self._clock.monotonic_ns(), self._holdings.period_ns)

    def _perform_one(self, departure: Departure, effect: machine.Effect) -> None:  # noqa: C901, PLR0912 — one line for each
        plan = departure.plan
        match effect:
            case machine.SendStage():
                message = departure.state(StageState)
                if self._outbox.send(message, departure.base, plan.target, on_path=True):
                    departure.counters["state_bytes"] += len(message.state)
            case machine.AskAbort(reason, attempt):
                base = Trace(plan.transfer_id)
                self._send_home(departure, departure.abort(reason), base, attempt, on_path=False)
            case machine.SendDiscard():
                self._outbox.send(departure.discard(), Trace(plan.transfer_id), plan.target, on_path=False)
            case machine.AskHome(attempt):
                departure.counters["requests"] += 1
                if departure.machine.case is not Case.DIRECT:
                    self._send_home(departure, departure.request(), departure.base, attempt, on_path=True)
                elif departure.chain:
                    base = Trace(plan.transfer_id)
                    self._send_home(departure, departure.request(), base, attempt, on_path=False)
            case machine.SendState():
                self._send_state(departure)
            case machine.SendDirect(attempt):
                if departure.chain:
                    self._send_direct(departure, attempt)
                else:
                    self.passes.sign(departure, attempt)
            case machine.SendActivate(certificate, attempt):
                departure.counters["repeated_activate"] += attempt > 1
                self._outbox.send(departure.activate(certificate), departure.trace, plan.target, on_path=True)
            case machine.ForwardJournal():
                self._forward_journal(departure)
            case machine.Retire(fence):
                self._went_on(departure, plan.target)
                self._retire(departure, plan.target, fence)
            case machine.StepDown(authority, fence):
                self._begun.taken(plan.transfer_id)
                self._retire(departure, authority, fence)
            case machine.Resume(fence, reason):
                if not departure.stays_nowhere:
                    self._went_on(departure)
                self._resume(departure, fence, reason)
            case machine.ReportTransfer():
                self.reports.tell(departure.report())

    def _went_on(self, departure: Departure, to: str = "") -> None:
        # A pass leaves the epoch as it is.
        if departure.machine.case is not Case.DIRECT:
            self.handed_on.note(departure.plan.entity, departure.machine.fence.epoch, to)

    def _send_home(
        self, departure: Departure, request: HandoffRequest | HandoffAbort, base: Trace, attempt: int, *, on_path: bool
    ) -> None:
        if not self._lease.may_act(self._clock.monotonic_ns()):
            # It is asked when it has granted the lease again (`home_is_back`), or with the next repetition.
            self._counts["not_asked"] += 1
        elif departure.plan.transport == "link":
            members = list(self._home.members())
            if members:
                member = members[(attempt - 1) % len(members)]
                address = (member.link_host, member.link_port)
                hurry = not departure.plan.in_company
                self._outbox.send(request, base, member.name, on_path=on_path, address=address, hurry=hurry)
        elif request.type not in departure.asking and self._tasks.spawn(
            self._ask_by_rest, departure, request, base, on_path
        ):
            departure.asking.add(request.type)

    async def _ask_by_rest(
        self, departure: Departure, request: HandoffRequest | HandoffAbort, base: Trace, on_path: bool
    ) -> None:
        def is_wanted() -> bool:
            return self._by_transfer.get(request.transfer_id) is departure

        try:
            answer = await self._home.ask(request, base, on_path=on_path, is_wanted=is_wanted)
        except (HomeUnreachable, HomeRefused) as error:
            if not is_wanted():
                return
            # Not the log's word: the machine asks again.
            departure.undecided, departure.last_word = True, str(error)
            _log.warning("%s: the home instance did not decide: %s", request.transfer_id, error)
            return
        finally:
            departure.asking.discard(request.type)
        if answer is None:
            departure.off_path["http_reply"] += 1
        elif isinstance(answer.message, HandoffReply):
            self.replied(answer, answer.message)

    def _send_state(self, departure: Departure) -> None:

        def sent(sealed_bytes: int) -> None:
            departure.state_sent_ns = departure.state_sent_ns or self._clock.monotonic_ns()
            departure.counters["sealed_state_bytes"] += sealed_bytes

        message, trace, plan = departure.state(StateTransfer), Trace(departure.plan.transfer_id), departure.plan
        if self._outbox.send(message, trace, plan.target, on_path=False, sent=sent, hurry=not plan.in_company):
            departure.off_path["state"] += 1
            departure.counters["state_bytes"] += len(message.state)

    def _send_direct(self, departure: Departure, attempt: int, hurry: bool = True) -> None:
        """Send the chain, and the state unless the target has it. `hurry` as of `Outbox.send`."""
        plan = departure.plan
        message = departure.direct(with_state=plan.mode is Mode.EAGER or attempt > 1)
        if self._outbox.send(message, departure.base, plan.target, on_path=True, hurry=hurry):
            departure.counters["requests"] += 1
            departure.counters["state_bytes"] += len(message.state)

    def _forward_journal(self, departure: Departure) -> None:
        for message in departure.since_freeze(departure.machine.leads_to):
            self._outbox.send(message, Trace(departure.plan.transfer_id), departure.plan.target, on_path=False)

    def _retire(self, departure: Departure, authority: str, fence: Fence) -> None:
        entity = departure.plan.entity
        # It has heard that it is over; to let go of what is here takes it a while, which nothing waits for.
        retired_ns = self._clock.monotonic_ns()
        # First what it was, then that it is not here any more: the ledger never has neither.
        self._kept(entity, departure.frozen)
        sources = self._holdings.leave(entity, authority, fence)
        self._circuit_breaker.open(departure.plan.target)
        self.retry_backoff.left(entity)
        self._forget(departure)
        if not departure.undecided:
            # How long a server was away says nothing of how long hand-overs take.
            self._patience.took(retired_ns - departure.frozen.frozen_ns)
        if departure.state_sent_ns:
            departure.trace = departure.trace.mark(self._sealer.name, "state_sent", departure.state_sent_ns)
        departure.trace = departure.trace.mark(self._sealer.name, "retired", retired_ns)
        for source in sources:
            notice = NotHere(entity=entity, moved_to=authority, epoch=fence.epoch, sub=fence.sub)
            self._outbox.tell_player(source, notice)

    def _resume(self, departure: Departure, fence: Fence, reason: str) -> None:
        entity = departure.plan.entity
        reason = reason or Reason.DENIED
        if self._preparation.is_worth_a_line(departure.plan, reason):
            _log.info("%s stays: transfer %s was refused (%s)", entity, departure.plan.transfer_id, reason)
        self._counts[f"refused_{reason}"] += 1
        if reason == Reason.ATTACHED:
            self.retry_backoff.note(entity, reason)
        elif reason == Reason.HOME_UNREACHABLE:
            self._circuit_breaker.close(departure.plan.target)
        if departure.plan.in_company:
            self.retry_backoff.refused(entity)
        if departure.stays_nowhere:
            self._holdings.drop(entity)
        else:
            departure.holding.resume(fence)
        self._forget(departure)

    def _forget(self, departure: Departure) -> None:
        self.waits.over(departure.plan.entity, departure.plan.transfer_id)
        if self._leaving.get(departure.plan.entity) is departure:
            del self._leaving[departure.plan.entity]
            self._preparation.give_back(departure.plan.entity)
        self._by_transfer.pop(departure.plan.transfer_id, None)
        self._open_spans.pop(departure.plan.transfer_id, None)
        self._preparation.follow(departure.plan.target)
