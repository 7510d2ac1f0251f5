"""What you subclass to write a stage, `Producer`, `ProducerConsumer` or `Consumer`, and the actor that runs it.

They are `Server`s with more callbacks: everything that is said there about states, results and waiting holds here. Any
callback may emit events with `Emit` (or end with `Finish`); where they go is the business of the stage's dispatcher.

====================  =========================================================  ======================================
callback              may return                                                 called for
====================  =========================================================  ======================================
`init`                as in `Server`, or `StageOk` with subscriptions, ...       the start
`handle_demand`       `Emit` · `Finish` · `NoReply` · `Stop` · `None`            events that consumers want
`handle_events`       the same; a `Consumer` has no stage to emit to             events that came
`handle_subscribe`    `None` · `NoReply` · `Manual` (consumers) · `Stop`         a new subscription, on both sides
`handle_cancel`       as `handle_events`                                         the end of one, on both sides
====================  =========================================================  ======================================

A producer that cannot meet its demand at once remembers it, and emits when it can: it is not asked again for the same
events. All but `init` and `handle_subscribe` of the new callbacks may be `async def`.

`StageServer` receives the messages of the protocol, calls the stage's callbacks and sends what the cores decide.
How many events go where is decided in `outlet` and `intake`, which are pure. It does one thing at a time: one request
to `handle_demand`, or one batch for `handle_events`. If there is more to do it sends itself a message, so
other messages and other actors get their turn in between.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast, final

from batonpass.actors.base.loop import get_ident
from batonpass.actors.base.unrun_coroutine import UnrunCoroutine
from batonpass.actors.core.exits import NOPROC, BadReturnValue, NoProc, Reason, is_orderly
from batonpass.actors.core.messages import Down, Monitor
from batonpass.actors.core.named import Named
from batonpass.actors.core.server import IGNORE, KEEP, NO_REPLY, NoReply, Ok, Reply, Result, Server, Stop
from batonpass.actors.core.telemetry import STAGE_OVERFLOW
from batonpass.actors.stages.buffer import Buffer
from batonpass.actors.stages.dispatchers import AlreadySubscribed, Delivery, DemandDispatcher, SubscriptionRefused
from batonpass.actors.stages.intake import End, EventBatch, Intake
from batonpass.actors.stages.outlet import StageOutlet
from batonpass.actors.stages.protocol import (
    Ask,
    Cancellation,
    Cancelled,
    CancelPolicy,
    CancelSubscription,
    Events,
    NotAConsumer,
    NotAProducer,
    SetDemandMode,
    StageInfo,
    StageInfoRequest,
    StageRole,
    Subscribe,
    SubscribeRequest,
    Subscription,
)
from batonpass.actors.stages.results import Emit, Finish, Manual, StageOk

if TYPE_CHECKING:
    from batonpass.actors.core.ref import From, Ref
    from batonpass.actors.core.status_report import ServerStatus

__all__ = ["Consumer", "Producer", "ProducerConsumer", "Stage", "StageServer", "post"]

StateT = TypeVar("StateT")

logger = logging.getLogger("batonpass.actors")


class Stage(Server[StateT]):
    """What the three kinds have in common. Subclass one of them, not this."""

    produces: ClassVar[bool] = False
    consumes: ClassVar[bool] = False

    @final
    def behaviour(self) -> Server[Any]:
        """What the runtime talks to: the server that speaks the protocol of stages, and calls this one's callbacks."""
        return StageServer(self)

    def handle_subscribe(self, role: StageRole, subscription: Subscription, state: StateT) -> Result[StateT]:
        """A subscription begins; `role` is what the other stage is to this one. Not `async def`.

        A consumer that returns `Manual` asks for events itself, with `ask(subscription, count)`.
        """
        return None

    def handle_cancel(
        self, cancellation: Cancellation, subscription: Subscription, state: StateT
    ) -> Result[StateT] | Awaitable[Result[StateT]]:
        """A subscription is over. What that means to a consumer is decided by its `CancelPolicy`, after this."""
        return None


class Producer(Stage[StateT]):
    """Emits events when it is asked to, from `handle_demand`; or at any time, and then the buffer is its bound."""

    produces = True

    def handle_demand(self, demand: int, state: StateT) -> Result[StateT] | Awaitable[Result[StateT]]:
        """Consumers want `demand` events more than those they asked for before: emit them, or remember to."""
        raise NotImplementedError(f"{type(self).__name__} is asked for {demand} events but has no handle_demand")


class Consumer(Stage[StateT]):
    """Handles events, and has some asked for while it does."""

    consumes = True

    def handle_events(
        self, events: Sequence[Any], subscription: Subscription, state: StateT
    ) -> Result[StateT] | Awaitable[Result[StateT]]:
        """Handle events, in the order in which they were sent: at least one, at most `max_demand - min_demand`."""
        raise NotImplementedError(f"{type(self).__name__} gets events but has no handle_events")


class ProducerConsumer(Stage[StateT]):
    """Turns events into others. It handles events only while its own consumers want some.

    What `handle_events` emits beyond that is all kept, whatever the bound of the buffer, because nothing more is
    handled before it has been taken. The bound is for what other callbacks emit.
    """

    produces = True
    consumes = True

    def handle_events(
        self, events: Sequence[Any], subscription: Subscription, state: StateT
    ) -> Result[StateT] | Awaitable[Result[StateT]]:
        """Return what became of `events`: `Emit(...)`, or None if nothing did."""
        raise NotImplementedError(f"{type(self).__name__} gets events but has no handle_events")


# --- the actor that runs a stage --------------------------------------------------------------------------------------


class _Work:
    """The type of `_WORK`."""


_WORK: Final = _Work()
"""From a stage to itself: there is more to do."""

After = Callable[[], "Stop[Any] | None"]
"""What has to be done when a callback has succeeded; perhaps the stage must end."""


def post(ref: Ref, message: object) -> None:
    """Send a message of the protocol. Not refused by a full mailbox: demand bounds how many there can be."""
    process = ref.process
    if get_ident() == process.system.thread:
        process.deliver_info(message)
    else:
        process.system.loop.soon(process.deliver_info, message)


@final
class StageServer(Server[Any]):
    """One life of one stage; see the head of the module. The state of the actor is the state of the stage."""

    def __init__(self, stage: Stage[Any]) -> None:
        self._stage = stage
        # The runtime reads these off a server; what the class of the stage says counts.
        self.__dict__["mailbox_limit"] = stage.mailbox_limit
        self.__dict__["hibernate_after_s"] = stage.hibernate_after_s
        # A stage that does not produce has an outlet without consumers; one that does not consume, an empty intake.
        self._outlet = StageOutlet(DemandDispatcher(), Buffer())
        self._intake = Intake()
        self._watched: dict[Monitor, Subscription] = {}
        self._monitors: dict[Subscription, Monitor] = {}
        self._finishing: Stop[Any] | None = None
        self._work_is_queued = False

    @property
    def trap_exit(self) -> bool:  # type: ignore[override]  # only the stage sets it, at any time
        """What the stage says."""
        return self._stage.trap_exit

    @property
    def callback_class(self) -> type:
        """The class of the stage."""
        return type(self._stage)

    # Starting

    def init(self, arg: Any) -> Any:
        """Start the stage, then subscribe it."""
        self._stage.ref = self.ref
        self._stage.system = self.system
        result = self._stage.init(arg)
        return self._begin_later(UnrunCoroutine(result)) if inspect.iscoroutine(result) else self._begin(result)

    async def _begin_later(self, unfinished: UnrunCoroutine) -> Any:
        return self._begin(await unfinished.coroutine)

    def _begin(self, result: Any) -> Any:
        if result is IGNORE or isinstance(result, Stop | Reply | NoReply):
            return result
        if not isinstance(result, StageOk):
            plain = result if isinstance(result, Ok) else Ok(result)
            result = StageOk(plain.state, then=plain.then, timeout_s=plain.timeout_s)
        if result.dispatcher is not None and not self._stage.produces:
            raise NotAProducer(f"{self.ref} is a consumer and has no stage to dispatch to: leave the dispatcher out")
        buffer = Buffer(result.buffer_size, result.buffer_keep)
        self._outlet = StageOutlet(result.dispatcher or DemandDispatcher(), buffer, result.demand)
        state = result.state
        for options in result.subscribe_to:
            try:
                made = self._subscribe(SubscribeRequest(options), state)
            except NoProc as error:  # temporary: the stage continues without
                logger.warning("%s did not subscribe: %s", self.ref, error)
                continue
            if isinstance(made, Stop):
                return made
            _, state = made
        return Ok(state, result.then, result.timeout_s)

    # What the runtime calls

    def handle_call(self, request: Any, from_: From, state: Any) -> Any:
        """A request to the stage as such, or the stage's own business."""
        if type(request) is SubscribeRequest:
            return self._subscribe_for(request, state)
        if type(request) is StageInfoRequest:
            return Reply(self._info())
        return self._settle(self._stage.handle_call(request, from_, state), "handle_call")

    def handle_cast(self, message: Any, state: Any) -> Any:
        """The same, without an answer."""
        if type(message) is SubscribeRequest:
            return self._subscribe_silently(message, state)
        if type(message) is SetDemandMode:
            return self._set_mode(message, state)
        return self._settle(self._stage.handle_cast(message, state), "handle_cast")

    def handle_info(self, message: Any, state: Any) -> Any:
        """A message of the protocol, or the stage's own business."""
        handle = _PROTOCOL.get(type(message))
        if handle is not None:
            return handle(self, message, state)
        if type(message) is Down and message.monitor in self._watched:
            return self._other_is_gone(self._watched[message.monitor], Cancellation(message.reason, down=True), state)
        return self._settle(self._stage.handle_info(message, state), "handle_info")

    def handle_continue(self, value: Any, state: Any) -> Any:
        """The stage's own business."""
        return self._settle(self._stage.handle_continue(value, state), "handle_continue")

    def handle_hibernate(self, state: Any) -> Any:
        """The stage's own business."""
        return self._settle(self._stage.handle_hibernate(state), "handle_hibernate")

    def format_status(self, status: ServerStatus) -> ServerStatus:
        """The stage's own business."""
        return self._stage.format_status(status)

    def terminate(self, reason: Reason, state: Any) -> object:
        """The stage's own business; the other stages are told by their monitors."""
        return self._stage.terminate(reason, state)

    def _info(self) -> StageInfo:
        outlet, intake = self._outlet, self._intake
        return StageInfo(
            buffered=outlet.waiting,
            dropped=outlet.buffer.dropped,
            waiting=len(intake),
            producers=tuple(intake.subscriptions),
            consumers=tuple(outlet.subscriptions),
            mode=outlet.mode if isinstance(self._stage, Producer) else None,
        )

    # As a producer: what consumers send

    def _on_subscribe(self, message: Subscribe, state: Any) -> Any:
        subscription = message.subscription
        if not self._stage.produces:
            post(subscription.consumer, Cancelled(subscription, NotAProducer(f"{self.ref} emits no events")))
            return None
        try:
            deliveries = self._outlet.subscribe(subscription)
        except SubscriptionRefused as refusal:
            logger.warning("%s refuses a subscription: %s", self.ref, refusal)
            post(subscription.consumer, Cancelled(subscription, refusal))
            return None
        self._watch(subscription, subscription.consumer)
        self._send(deliveries)
        result = self._stage.handle_subscribe(StageRole.CONSUMER, subscription, state)
        return self._settle(result, "handle_subscribe")

    def _on_ask(self, message: Ask, state: Any) -> Any:
        subscription = message.subscription
        if subscription not in self._outlet.subscriptions:
            post(subscription.consumer, Cancelled(subscription, "unknown_subscription"))
            return None
        self._send(self._outlet.ask(subscription, message.count))
        return self._work(state)

    def _on_cancel(self, message: CancelSubscription, state: Any) -> Any:
        subscription = message.subscription
        if subscription not in self._outlet.subscriptions:
            return None
        post(subscription.consumer, Cancelled(subscription, message.reason))
        return self._other_is_gone(subscription, Cancellation(message.reason, down=False), state)

    # As a consumer: what producers send

    def _on_events(self, message: Events, state: Any) -> Any:
        if not self._intake.receive(message.subscription, message.events):
            return None
        return self._work(state)

    def _on_cancelled(self, message: Cancelled, state: Any) -> Any:
        return self._other_is_gone(message.subscription, Cancellation(message.reason, down=False), state)

    # Both

    def _other_is_gone(self, subscription: Subscription, cancellation: Cancellation, state: Any) -> Any:
        monitor = self._monitors.pop(subscription, None)
        if monitor is None:
            return None
        del self._watched[monitor]
        self.demonitor(monitor)
        if self._intake.end(subscription, cancellation):
            return self._work(state)
        self._send(self._outlet.cancel(subscription))
        return self._settle(self._stage.handle_cancel(cancellation, subscription, state), "handle_cancel")

    def _watch(self, subscription: Subscription, other: Ref) -> None:
        monitor = self.monitor(other)
        self._watched[monitor] = subscription
        self._monitors[subscription] = monitor

    # Subscribing

    def _subscribe(self, request: SubscribeRequest, state: Any) -> tuple[Subscription, Any] | Stop[Any]:
        """Subscribe this stage: the subscription, and the state after that; or how this stage must end.

        Raises `NotAConsumer`; `NoProc` if there is no such actor and that is no reason to end.
        """
        if not self._stage.consumes:
            raise NotAConsumer(f"{self.ref} takes no events: it is a producer")
        options = request.options
        target = options.producer
        producer = target.ref if isinstance(target, Named) else target
        if producer is None or not producer.alive:
            if options.cancel is CancelPolicy.TEMPORARY:
                raise NoProc(str(target))
            return Stop(NOPROC)
        if producer is self.ref:
            raise ValueError(f"{self.ref} cannot subscribe to itself")
        if producer.process.system is not self.system or producer.node != self.ref.node:
            raise ValueError(f"{self.ref} and {producer} run in different systems, and stages subscribe within one")
        subscription = Subscription(producer, self.ref, options)
        self._watch(subscription, producer)
        if request.instead_of is not None:
            # Right before the other, in the same mailbox: no event falls between the two.
            post(request.instead_of.subscription.producer, request.instead_of)
        post(producer, Subscribe(subscription))
        result = self._stage.handle_subscribe(StageRole.PRODUCER, subscription, state)
        if isinstance(result, Stop):
            return result
        if result is not None and type(result) not in (NoReply, Manual):
            raise BadReturnValue(str(self.ref), "handle_subscribe", result)
        wanted = self._intake.subscribe(subscription, automatic=type(result) is not Manual)
        if wanted:
            post(producer, Ask(subscription, wanted))
        return subscription, state if result is None or result.state is KEEP else result.state

    def _subscribe_for(self, request: SubscribeRequest, state: Any) -> Any:
        """For a caller, who gets the subscription, or an exception to raise."""
        try:
            made = self._subscribe(request, state)
        except (NotAConsumer, NoProc, ValueError) as error:
            return Reply(error)
        return made if isinstance(made, Stop) else Reply(made[0], made[1])

    def _subscribe_silently(self, request: SubscribeRequest, state: Any) -> Any:
        try:
            made = self._subscribe(request, state)
        except (NotAConsumer, NoProc, ValueError) as error:
            logger.warning("%s did not subscribe: %s", self.ref, error)
            return None
        return made if isinstance(made, Stop) else NoReply(made[1])

    def _set_mode(self, message: SetDemandMode, state: Any) -> Any:
        if not isinstance(self._stage, Producer):
            logger.warning("%s has no handle_demand, so there is no demand mode to set", self.ref)
            return None
        self._send(self._outlet.set_mode(message.mode))
        return self._work(state)

    # Work: one piece at a time

    def _on_work(self, _message: _Work, state: Any) -> Any:
        self._work_is_queued = False
        return self._work(state)

    def _work(self, state: Any) -> Any:
        """Do the next piece of work, unless it is that of a message which is queued already."""
        if self._work_is_queued:
            return None
        stage = self._stage
        if self._finishing is None:
            if isinstance(stage, Producer) and (request := self._outlet.take_request()):
                return self._settle(stage.handle_demand(request, state), "handle_demand")
            if self._may_take_in and (item := self._intake.next()):
                return self._take_in(item, state)
        return self._settle(None, "")

    @property
    def _may_take_in(self) -> bool:
        """Whether something that came may be handled now. A `ProducerConsumer` must have consumers that want more."""
        intake = self._intake
        return len(intake) > 0 and (not self._stage.produces or self._outlet.wants or intake.next_is_end)

    def _take_in(self, item: EventBatch | End, state: Any) -> Any:
        stage = self._stage
        if isinstance(item, End):
            result = stage.handle_cancel(item.cancellation, item.subscription, state)
            return self._settle(result, "handle_cancel", lambda: self._after_end(item))
        # Only stages that consume have anything to take in.
        result = cast("Consumer[Any]", stage).handle_events(item.events, item.subscription, state)
        return self._settle(result, "handle_events", lambda: self._after_batch(item))

    def _after_batch(self, batch: EventBatch) -> Stop[Any] | None:
        # Asked for only now: what is handled or emitted late is asked for late. That is the back-pressure.
        if batch.ask and batch.subscription in self._intake.subscriptions:
            post(batch.subscription.producer, Ask(batch.subscription, batch.ask))
        return None

    def _after_end(self, end: End) -> Stop[Any] | None:
        reason, policy = end.cancellation.reason, end.subscription.options.cancel
        orderly = is_orderly(reason)
        if policy is CancelPolicy.TEMPORARY or (policy is CancelPolicy.TRANSIENT and orderly):
            return None
        if isinstance(reason, AlreadySubscribed):
            # The first one goes on.
            return None
        # At an orderly end, what this stage has emitted still belongs to its consumers.
        return Finish(reason=reason) if orderly else Stop(reason)

    # What callbacks return

    def _settle(self, result: Any, callback: str, after: After | None = None) -> Any:
        """Emit what `result` says, do what comes `after` it, and make of it what the runtime understands."""
        if inspect.iscoroutine(result):
            return self._settle_later(UnrunCoroutine(result), callback, after)
        events: Sequence[Any] = ()
        kind = type(result)
        if kind is Emit:
            events = result.events
            reply = result.reply
            result = NoReply(result.state, result.then, result.timeout_s)
            if reply is not NO_REPLY:
                result = Reply(reply, result.state, result.then, result.timeout_s)
        elif kind is Finish:
            events = result.events
            result = self._finish(result)
        elif kind is Stop:
            return result
        elif result is not None and kind is not NoReply and (kind is not Reply or callback != "handle_call"):
            raise BadReturnValue(str(self.ref), callback, result)
        if events:
            self._emit(events, callback)
        end = None if after is None else after()
        if type(end) is Finish:
            self._finish(end)
        elif end is not None:
            return _with_state_of(end, result)
        return self._go_on(result)

    async def _settle_later(self, unfinished: UnrunCoroutine, callback: str, after: After | None) -> Any:
        return self._settle(await unfinished.coroutine, callback, after)

    def _finish(self, finish: Finish[Any]) -> Any:
        if self._finishing is None:
            self._finishing = Stop(finish.reason)
        if finish.reply is NO_REPLY:
            return NoReply(finish.state)
        return Reply(finish.reply, finish.state)

    def _go_on(self, result: Any) -> Any:
        """See to it that the next piece of work gets done; `result`, or the end if there is none left to wait for."""
        if self._finishing is not None:
            return result if self._outlet.waiting else _with_state_of(self._finishing, result)
        more = self._outlet.missing > 0 if isinstance(self._stage, Producer) else self._may_take_in
        if more and not self._work_is_queued:
            self._work_is_queued = True
            post(self.ref, _WORK)
        return result

    def _emit(self, events: Sequence[Any], callback: str) -> None:
        outlet = self._outlet
        if not self._stage.produces:
            raise BadReturnValue(str(self.ref), callback, f"{len(events)} events, but none consumes from a consumer")
        before = outlet.buffer.dropped
        # What becomes of events is bounded by them; what a stage emits of its own accord must be bounded by the buffer.
        self._send(outlet.emit(events, bounded=callback != "handle_events"))
        dropped = outlet.buffer.dropped
        if dropped == before:
            return
        measurements = {"dropped": dropped - before, "buffered": outlet.waiting}
        self.system.telemetry.execute(STAGE_OVERFLOW, measurements, {"ref": self.ref})
        if dropped.bit_length() != before.bit_length():
            logger.warning(
                "%s emits more than is asked for: %d events dropped so far; emit less, or raise buffer_size (%d)",
                self.ref,
                dropped,
                outlet.buffer.size,
            )

    def _send(self, deliveries: list[Delivery]) -> None:
        for subscription, events in deliveries:
            post(subscription.consumer, Events(subscription, events))


def _with_state_of(stop: Stop[Any], result: Any) -> Stop[Any]:
    """`stop`, with the state and the answer that a callback returned before it turned out to be the last."""
    if result is None:
        return Stop(stop.reason)
    reply = result.value if type(result) is Reply else NO_REPLY
    return Stop(stop.reason, result.state, reply)


_PROTOCOL: Final = cast(
    "dict[type, Callable[[StageServer, Any, Any], Any]]",
    {
        Subscribe: StageServer._on_subscribe,
        Ask: StageServer._on_ask,
        CancelSubscription: StageServer._on_cancel,
        Events: StageServer._on_events,
        Cancelled: StageServer._on_cancelled,
        _Work: StageServer._on_work,
    },
)
