"""The old authority's shell: performs what the `Outgoing` machine of each leaving entity decides, at once.

As `simserver.transfer.source.departures` does it, without what surrounds a hand-over there (notices, room, batches,
groups).
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.machines import source as machine
from batonpass.authority.machines.source import Case, Mode
from batonpass.authority.names import instance_of
from batonpass.authority.trust.certificates import MAX_CHAIN
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Activated, HandoffReply, Order, Report, Staged, StageState, StateTransfer
from batonpass.scenarios.simulation.machines.lives import MachineStay
from batonpass.simserver.transfer.source.departure import Departure, DeparturePlan
from batonpass.simserver.transfer.source.order_history import SeenOrders

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.machines.server import MachineServer

__all__ = ["Leaving"]

# As `simserver.transfer.source.departures` has it: a request that is refused so may be for a transfer that has no
# result yet.
_OF_THE_REQUEST: Final = frozenset({Reason.NOT_HOLDER, Reason.NO_DELEGATION})
_NEVER_NS: Final = 1 << 62
_LEAST_NS: Final = 100_000_000


class Leaving:
    """Every entity that is leaving one server."""

    def __init__(self, server: "MachineServer") -> None:
        self._server: Final = server
        self._parts: Final = server.world.parts
        self._begun: Final = SeenOrders()
        self.by_entity: Final[dict[str, Departure]] = {}
        self._by_transfer: Final[dict[str, Departure]] = {}
        self._alarms: Final[dict[str, int]] = {}
        self.reports: Final[dict[str, Report]] = {}

    # --- beginning -------------------------------------------------------------------------------------------------

    def ordered(self, order: Order) -> None:
        """Home says that an entity is to go."""
        plan = DeparturePlan(
            order.transfer_id,
            order.entity,
            order.target,
            order.direct,
            ordered=True,
            mode=Mode(order.mode),
            freeze_budget_ms=order.freeze_budget_ms,
            undecided_at=Fence(order.epoch, order.sub),
        )
        self.begin(plan)

    def begin(self, plan: DeparturePlan) -> None:
        """Freeze an entity and hand it over, if that makes sense now."""
        server = self._server
        stay = server.stays.get(plan.entity)
        if stay is None or plan.entity in self.by_entity or self._begun.is_repeated(plan, stay.holding):
            return
        if not server.may_act():
            return
        if plan.target == server.name:
            if plan.ordered:
                server.send(server.home, plan.declined(server.name, Reason.SAME_SERVER.value))
            return
        now_ns = server.now_ns
        frozen = stay.freeze(now_ns)
        if not self._parts.freezes:
            stay.frozen = False
        server.judge.stops(plan.entity, server.name)
        outgoing = self._parts.outgoing(
            self._case(plan, stay), frozen.fence, now_ns, mode=plan.mode, budget_ns=plan.freeze_budget_ms * 1_000_000
        )
        trace = Trace(plan.transfer_id).mark(server.name, "frozen", now_ns)
        departure = Departure(plan, server.name, stay.holding, frozen, outgoing, trace, trace)
        departure.target_incarnation = server.incarnation_of(plan.target)
        self._begun.begins(plan.transfer_id, frozen.fence.epoch)
        self.by_entity[plan.entity] = self._by_transfer[plan.transfer_id] = departure
        server.note(f"{server.name} sends {plan.entity} to {plan.target} by {outgoing.case} {plan.mode}")
        self._perform(departure, outgoing.start(now_ns))
        self._arm(departure)

    def _case(self, plan: DeparturePlan, stay: MachineStay) -> Case:
        holding = stay.holding
        is_allowed = plan.direct and holding.may_pass_to(plan.target) and len(holding.chain) <= MAX_CHAIN
        if is_allowed and self._begun.may_be_passed(plan, holding):
            return Case.DIRECT
        here = instance_of(self._server.name)
        return Case.SAME_HOME if here == instance_of(plan.entity) == instance_of(plan.target) else Case.DIFFERENT_HOMES

    # --- time ------------------------------------------------------------------------------------------------------

    def _arm(self, departure: Departure) -> None:
        """See to it that the machine's next timer is not missed."""
        due_ns, name = departure.machine.next_timer_ns, departure.plan.transfer_id
        if due_ns is None:
            self._alarms.pop(name, None)
        elif due_ns < self._alarms.get(name, _NEVER_NS):
            # A machine that says so again and again must not stop the clock.
            due_ns = due_ns if due_ns > self._server.now_ns else self._server.now_ns + _LEAST_NS
            self._alarms[name] = due_ns
            self._server.at(due_ns, partial(self._alarm, departure, due_ns))

    def _alarm(self, departure: Departure, due_ns: int) -> None:
        name = departure.plan.transfer_id
        if self._alarms.get(name) != due_ns or self._by_transfer.get(name) is not departure:
            return
        del self._alarms[name]
        if (next_ns := departure.machine.next_timer_ns) is not None and next_ns <= self._server.now_ns:
            self._event(departure, machine.TimePassed())
        else:
            self._arm(departure)

    # --- what comes back -------------------------------------------------------------------------------------------

    def replied(self, reply: HandoffReply) -> None:
        """The home instance answered a request."""
        if reply.outcome == "committed" or (reply.outcome == "refused" and reply.reason not in _OF_THE_REQUEST):
            self._begun.decided(reply.transfer_id)
        departure = self._by_transfer.get(reply.transfer_id)
        if departure is not None and reply.outcome != "pending":
            self._event(departure, self._reading(departure, reply))

    def _reading(self, departure: Departure, reply: HandoffReply) -> machine.Event:
        """What the log's answer means to the machine."""
        if reply.outcome == "committed":
            if reply.fence > (given := reply.given(departure.machine.leads_to)):
                return machine.PeerActive(given)
            return machine.TransferCommitted(reply.fence, reply.certificate)
        if reply.authority != self._server.name:
            return machine.Lost(reply.authority, reply.fence)
        return machine.TransferRefused(reply.reason, reply.fence)

    def activated(self, message: Activated, sender: str) -> None:
        """The target says that it simulates."""
        departure = self._by_transfer.get(message.transfer_id)
        if departure is not None and sender == departure.plan.target:
            self._event(departure, machine.PeerActive(message.fence))

    def staged(self, message: Staged, sender: str) -> None:
        """The target has the state on its disk."""
        departure = self._by_transfer.get(message.transfer_id)
        if departure is None or sender != departure.plan.target:
            return
        if message.state_hash == departure.frozen.state_hash:
            self._event(departure, machine.StateStaged())

    def superseded(self, entity: str, fence: Fence) -> None:
        """What leaves here is of the past: the entity comes, or is gone on with, under `fence`."""
        departure = self.by_entity.get(entity)
        if departure is not None:
            self._event(departure, machine.Superseded(fence))

    def _event(self, departure: Departure, event: machine.Event) -> None:
        self._perform(departure, departure.machine.handle(event, self._server.now_ns))
        self._arm(departure)

    def reported(self, transfer_id: str) -> None:
        """Home has heard a report, or that something will not be begun."""
        if self.reports.pop(transfer_id, None) is not None:
            self._begun.decided(transfer_id)

    def untold(self, transfer_id: str) -> None:
        """Home has refused a report: nothing would come of it if it came again."""
        self.reports.pop(transfer_id, None)

    # --- performing ------------------------------------------------------------------------------------------------

    def _perform(self, departure: Departure, effects: list[machine.Effect]) -> None:  # noqa: C901, PLR0912 — one for each
        server, plan = self._server, departure.plan
        for effect in effects:
            match effect:
                case machine.SendStage():
                    server.send(plan.target, departure.state(StageState))
                case machine.AskAbort(reason):
                    server.send(server.home, departure.abort(reason))
                case machine.SendDiscard():
                    server.send(plan.target, departure.discard())
                case machine.AskHome():
                    if departure.machine.case is not Case.DIRECT or departure.chain:
                        server.send(server.home, departure.request())
                case machine.SendState():
                    server.send(plan.target, departure.state(StateTransfer))
                case machine.SendDirect():
                    if not departure.chain:
                        self._sign(departure)
                    server.send(plan.target, departure.direct(with_state=True))
                case machine.SendActivate(certificate):
                    server.send(plan.target, departure.activate(certificate))
                case machine.ForwardJournal():
                    for message in departure.since_freeze(departure.machine.leads_to):
                        server.send(plan.target, message)
                case machine.Retire(fence):
                    self._retire(departure, plan.target, fence)
                case machine.StepDown(authority, fence):
                    self._begun.taken(plan.transfer_id)
                    self._retire(departure, authority, fence)
                case machine.Resume(fence):
                    self._resume(departure, fence)
                case machine.ReportTransfer():
                    self.reports[plan.transfer_id] = report = departure.report()
                    server.send(server.home, report)

    def _sign(self, departure: Departure) -> None:
        certificate = departure.pass_certificate()
        server = self._server
        server.judge.given(certificate.entity, certificate.target, certificate.fence, after=departure.frozen.fence)
        departure.passed_by(server.world.tokens.sign(certificate))

    def _retire(self, departure: Departure, authority: str, fence: Fence) -> None:
        self._forget(departure)
        self._server.leave(departure.plan.entity, authority, fence)

    def _resume(self, departure: Departure, fence: Fence) -> None:
        self._forget(departure)
        if departure.stays_nowhere:
            # The state in which it was frozen is kept as a copy.
            self._server.forget(departure.plan.entity)
        else:
            self._server.resume(departure.plan.entity, fence)

    def _forget(self, departure: Departure) -> None:
        if self.by_entity.get(departure.plan.entity) is departure:
            del self.by_entity[departure.plan.entity]
        self._by_transfer.pop(departure.plan.transfer_id, None)

    def step_down(self) -> None:
        """The lease is over: whatever is refused from here on is not gone on with here."""
        for departure in self.by_entity.values():
            departure.stays_nowhere = True
