"""What precedes the freeze of an entity that is to leave: it is simulated all the while.

The steps, each skipped if there is nothing to do in it:

1. a target that only a world has named is looked up (`Targets`);
2. the target is asked for room (`TargetAdmission`);
3. world and owner have notice (`NoticeTimer`);
4. a large state goes ahead (`PrecopySender`);
5. the entity waits for its turn (`DepartureBatching`, `ConcurrencyLimit`).

Each takes time, in which the entity may leave, the lease may end, or home may fall silent. So at each border it is
looked whether the plan still makes sense. A plan that home alone keeps from making sense waits for home
(`WaitingForHome`). The last step hands plan and entity over to the freeze, with a place taken at the target.
"""

import logging
from collections.abc import Callable, Container
from functools import partial
from typing import Final

from batonpass.authority.errors import Reason
from batonpass.authority.machines.capacity import Need
from batonpass.authority.trust.certificates import MAX_CHAIN
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Precopied
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.transfer.source.admission import TargetAdmission
from batonpass.simserver.transfer.source.backoff import CircuitBreaker, RetryBackoff
from batonpass.simserver.transfer.source.batching import DepartureBatching
from batonpass.simserver.transfer.source.concurrency import ConcurrencyLimit
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.guarded_tasks import GuardedTasks
from batonpass.simserver.transfer.source.notice import NoticeTimer
from batonpass.simserver.transfer.source.order_history import SeenOrders
from batonpass.simserver.transfer.source.precopy import PrecopySender
from batonpass.simserver.transfer.source.reasons import Waits
from batonpass.simserver.transfer.source.reports import Reports
from batonpass.simserver.transfer.source.targets import Targets
from batonpass.simserver.transfer.source.waiting_for_home import WaitingForHome

__all__ = ["DeparturePreparation"]

_log = logging.getLogger("batonpass.simserver.transfer.source.departures")
_HOME_SILENT: Final = "order_home_silent"
# What keeps an order from being followed yet, and not for good.
_WAITS: Final = {
    _HOME_SILENT: "its home instance does not answer, so it could not decide",
    "order_without_lease": "its server has no lease at the moment",
}


class DeparturePreparation:
    """Every entity that is to leave one server and is not frozen for it yet.

    Args:
        seen: the orders that were begun here.
        leaving: the entities that are frozen for a transfer.
        freeze: freezes the entity for the plan. If the entity is not in `leaving` afterwards, its place is free again.
        precopy_bytes: states of this size or more go ahead.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        admission: TargetAdmission,
        tasks: GuardedTasks,
        reports: Reports,
        seen: SeenOrders,
        leaving: Container[str],
        freeze: Callable[[DeparturePlan, Holding], None],
        *,
        limit: ConcurrencyLimit[DeparturePlan],
        precopy_bytes: int,
    ) -> None:
        outbox, clock, spawn = ports.outbox, ports.clock, tasks.spawn
        self._name: Final = ports.name
        self._new_id: Final = ports.new_id
        self._clock: Final = clock
        self._counts: Final = ports.counts
        self._lease: Final = lease
        self._holdings: Final = holdings
        self._admission: Final = admission
        self._safely: Final = tasks.safely
        self._reports: Final = reports
        self._seen: Final = seen
        self._leaving: Final = leaving
        self._freeze: Final = freeze
        self._limit: Final = limit
        self.waits: Final = Waits()
        self.retry_backoff = RetryBackoff(clock)
        self.circuit_breaker: Final = CircuitBreaker(clock)
        self._targets: Final = Targets(ports.home, clock, spawn, tasks.went_wrong)
        self._asking_for_room: Final[set[str]] = set()
        self._notice_timer: Final = NoticeTimer(holdings, outbox, clock, spawn)
        self._ahead: Final = PrecopySender(holdings, outbox, clock, spawn, precopy_bytes, ports.spans)
        self._waiting_for_home: Final = WaitingForHome(clock, spawn, lease.may_act, lease.home_answers)
        self._batching: Final = DepartureBatching(
            clock, spawn, lambda plan: self._safely(self._enter, plan, True), limit
        )

    def go_on(self) -> None:
        """Departures are served again: keep the time of what is under way."""
        self._notice_timer.go_on()
        self._ahead.go_on()
        self._batching.go_on()
        self._targets.go_on()

    @property
    def queued(self) -> int:
        """How many entities wait for their turn."""
        return self._limit.waiting

    def has_notice(self, entity: str) -> bool:
        """Whether an entity is about to leave, and those that were told of it may finish before."""
        return entity in self._notice_timer

    def is_under_way(self, entity: str) -> bool:
        """Whether an entity is prepared to leave, or is leaving."""
        asking = (self._asking_for_room, self._notice_timer, self._ahead, self._waiting_for_home)
        return any(entity in some for some in asking) or self._limit.waits(entity) or entity in self._leaving

    # --- wishes of worlds ------------------------------------------------------------------------------------------

    def wants_to_go(self, entity: str, destination: str, contact: str = "") -> None:
        """As `Departures.wants_to_go`."""
        if self.is_under_way(entity) or self.retry_backoff.stay(entity, destination) is not None:
            return
        if not self.circuit_breaker.may_try(destination):
            self._counts["departure_closed"] += 1
            return
        if self._limit.is_full(destination):
            # Before the target is asked: its places are for those who can use them.
            self._counts["departure_crowded"] += 1
            return
        direct = self._may_pass(entity, destination)
        if not (direct or self._lease.home_answers(self._clock.monotonic_ns())):
            # As in `_why_not`; said with each tick, so nothing is logged of it.
            self._counts["departure_home_silent"] += 1
            return
        # What meets is to be in one place at once: the link is the faster way home.
        transport = "link" if contact else "rest"
        plan = DeparturePlan(self._new_id(), entity, destination, direct, transport, contact=contact)
        # With its next tick the world says so again, or has thought of somewhere else.
        self._safely(self.begin, plan, may_wait=False)

    def why_it_stays(self, entity: str, destination: str) -> tuple[str, int]:
        """As `Departures.why_it_stays`."""
        now_ns = self._clock.monotonic_ns()
        if (stay := self.retry_backoff.stay(entity, destination)) is not None:
            again_s = (stay.pause.until_ns - now_ns) / 1e9
            return f"{stay.words}; it is tried again in {again_s:.0f} s", now_ns - stay.since_ns
        if self.is_under_way(entity):
            return f"{destination} is being asked whether it has room for it", 0
        if self.circuit_breaker.is_closed(destination):
            return "the home of that instance does not say whether it would have it", 0
        if self._limit.is_full(destination):
            return "as many as may be are on their way there", 0
        return ("" if self._lease.home_answers(now_ns) else _WAITS[_HOME_SILENT]), 0

    def _may_pass(self, entity: str, destination: str) -> bool:
        holding = self._holdings.get(entity)
        return holding is not None and holding.may_pass_to(destination)

    # --- step by step ----------------------------------------------------------------------------------------------

    def begin(self, plan: DeparturePlan, *, may_wait: bool = True) -> None:
        """Prepare an entity, and freeze it as soon as its target has a place for it, and it is its turn.

        A plan that makes no sense (now), or may not wait and would have to, is dropped; a refused one is declined.
        """
        if (holding := self._sensible(plan, partial(self.begin, plan, may_wait=may_wait))) is None:
            return
        if plan.target == self._name:
            # It came here since it was asked for. The log leaves as it is what brought it here and is ordered again.
            self._admitted(plan, may_wait, Reason.SAME_SERVER)
            return
        self._asking_for_room.add(plan.entity)
        self._wait(plan, f"{plan.target} has not said yet whether it has room for it")
        need = Need.of(holding.life.kind, holding.life.schema, holding.life.state_bytes)
        # A plan that may wait was made because home says so, not only its world.
        ask = partial(self._admission.ask, plan.target, need, partial(self._admitted, plan, may_wait), afresh=may_wait)
        if plan.is_wish and not plan.direct:
            self._targets.ask(plan.target, partial(self._safely, self._known, plan, ask))
        else:
            ask()

    def _known(self, plan: DeparturePlan, ask_for_room: Callable[[], None], why_not: str) -> None:
        """The target of a wish is a simulation server, or why it is none as far as home can say."""
        if why_not:
            self._admitted(plan, may_wait=False, reason=why_not)
        else:
            ask_for_room()

    def _sensible(self, plan: DeparturePlan, again: Callable[[], None]) -> Holding | None:
        """The entity, if the plan makes sense now. If it will once home answers, it is tried `again` then."""
        holding = self._holdings.get(plan.entity)
        if (reason := self._why_not(plan, holding)) or holding is None:
            self._counts[reason] += 1
            if holding is not None and reason in _WAITS:
                self._wait(plan, _WAITS[reason])
            if reason == _HOME_SILENT and plan.ordered:
                self._waiting_for_home.hold(plan.entity, partial(self._safely, again))
            _log.info("not handing %s to %s: %s", plan.entity, plan.target, reason)
            return None
        return holding

    def _admitted(self, plan: DeparturePlan, may_wait: bool, reason: str) -> None:
        """The target has room, or the reason why it does not take the entity: that stays, and home hears of it."""
        self._asking_for_room.discard(plan.entity)
        if not reason:
            go = partial(self._safely, self._copy_ahead, plan, may_wait)
            self._wait(plan, "its owner and its world have notice, or its state goes ahead of it")
            self._safely(self._notice_timer.begin, plan, go)
        else:
            self._counts[f"declined_{reason}"] += 1
            self._safely(self.decline, plan, reason)

    def _copy_ahead(self, plan: DeparturePlan, may_wait: bool) -> None:
        """Let a large state go ahead while the entity is simulated; then, or at once, it is the entity's turn."""
        if (holding := self._sensible(plan, partial(self._copy_ahead, plan, may_wait))) is not None:
            self._ahead.begin(plan, holding, partial(self._safely, self._copied_ahead, may_wait))

    def _copied_ahead(self, may_wait: bool, plan: DeparturePlan, why_not: str) -> None:
        if why_not:
            self._counts[f"declined_{why_not}"] += 1
            self.decline(plan, why_not)
        else:
            self._enter(plan, may_wait)

    def _enter(self, plan: DeparturePlan, may_wait: bool) -> None:
        """Freeze the entity now, or when it is its turn."""
        if (holding := self._sensible(plan, partial(self._enter, plan, may_wait))) is None:
            return
        if not plan.grouped and not self._limit.enter(plan, holding.life.state_bytes):
            self._counts["departure_crowded"] += 1
            if may_wait:
                self._wait(plan, f"as many as may be are on their way to {plan.target}: it waits for its turn")
                self._limit.wait(plan)
            else:
                self.waits.over(plan.entity, plan.transfer_id)
            return
        try:
            self._freeze(plan, holding)
        finally:
            if plan.entity not in self._leaving:
                self._limit.leave(plan.entity)

    def _why_not(self, plan: DeparturePlan, holding: Holding | None) -> str:
        if holding is None:
            return "order_not_here"
        if self._seen.is_repeated(plan, holding):
            return "order_repeated"
        if self.is_under_way(plan.entity):
            return "order_busy"
        now_ns = self._clock.monotonic_ns()
        if not self._lease.may_act(now_ns):
            # A server that a takeover does not ask, because it came after it, is not to be passed what it has taken.
            # What is known as a target under the lease has come before. Home orders again what is dropped.
            return "order_without_lease"
        if not (self._lease.home_answers(now_ns) or plan.grouped or self.goes_directly(plan, holding)):
            # It would be frozen until home can decide. Those of a group are waited for by others.
            return _HOME_SILENT
        return ""

    def _wait(self, plan: DeparturePlan, why: str) -> None:
        """An order is followed as soon as this is over. Of other plans nothing is noted: no operator asks for them."""
        if plan.ordered:
            self.waits.note(plan.entity, plan.transfer_id, why, self._clock.monotonic_ns())

    def goes_directly(self, plan: DeparturePlan, holding: Holding) -> bool:
        """Whether it may be passed on: the target is of its group, and nothing was passed for this plan before."""
        is_allowed = plan.direct and holding.may_pass_to(plan.target) and len(holding.chain) <= MAX_CHAIN
        return is_allowed and self._seen.may_be_passed(plan, holding)

    # --- what comes meanwhile --------------------------------------------------------------------------------------

    def copied_ahead(self, opened: OpenedMessage, message: Precopied) -> None:
        """A target has got a part of a state that goes ahead."""
        self._ahead.answered(opened, message)

    def ready_to_leave(self, entity: str) -> None:
        """The world has finished what it wanted to do before this entity leaves."""
        self._notice_timer.ready(entity)

    def let_go(self, entity: str, player: str) -> None:
        """A player has finished; it counts if it owns the entity."""
        self._notice_timer.let_go(entity, player)

    # --- its end ---------------------------------------------------------------------------------------------------

    def decline(self, plan: DeparturePlan, reason: str) -> None:
        """The plan is not followed, for good: home hears of it if the plan was ordered."""
        if self.is_worth_a_line(plan, reason):
            _log.info("%s does not go to %s: %s", plan.entity, plan.target, reason)
        self.waits.over(plan.entity, plan.transfer_id)
        if plan.ordered:
            self._reports.tell(plan.declined(self._name, reason))

    def is_worth_a_line(self, plan: DeparturePlan, reason: str) -> bool:
        """Whether that it stays is logged. A wish comes again with each tick: only if the reason is new."""
        return not plan.is_wish or self.retry_backoff.wished_in_vain(plan.entity, plan.target, reason)

    def lighten(self, plan: DeparturePlan) -> None:
        """The bytes of an entity that is leaving keep no other entity waiting any more."""
        if self._limit.lighten(plan.entity):
            self._batching.place_free(plan.target)

    def give_back(self, entity: str) -> None:
        """An entity is not leaving any more: its place is free."""
        self._limit.leave(entity)

    def follow(self, target: str) -> None:
        """A departure for `target` is over: the next ones that wait for it may follow."""
        self._batching.place_free(target)
