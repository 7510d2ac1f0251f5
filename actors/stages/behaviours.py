"""What somebody who writes a stage subclasses: `Producer`, `ProducerConsumer` or `Consumer`.

They are `Server`s with more callbacks: everything that is said there about states, results and waiting holds here. Any
callback may emit events with `Emit` (or end with `Finish`); where they go is the business of the stage's dispatcher.

====================  =========================================================  ======================================
callback              may return                                                 called for
====================  =========================================================  ======================================
`init`                as in `Server`, or `StageOk` with subscriptions, ...       the start
`handle_demand`       `Emit` · `Finish` · `NoReply` · `Stop` · `None`            events that consumers want
`handle_events`       the same; a `Consumer` has nobody to emit to               events that came
`handle_subscribe`    `None` · `NoReply` · `Manual` (consumers) · `Stop`         a new subscription, on both sides
`handle_cancel`       as `handle_events`                                         the end of one, on both sides
====================  =========================================================  ======================================

A producer that cannot meet its demand at once remembers it, and emits when it can: it is not asked again for the same
events. All but `init` and `handle_subscribe` of the new callbacks may be `async def`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, final

from batonpass.actors.core.server import Result, Server

if TYPE_CHECKING:
    from batonpass.actors.stages.protocol import Cancellation, Role, Subscription

__all__ = ["Consumer", "Producer", "ProducerConsumer", "Stage"]

StateT = TypeVar("StateT")


class Stage(Server[StateT]):
    """What the three kinds have in common. Subclass one of them, not this."""

    produces: ClassVar[bool] = False
    consumes: ClassVar[bool] = False

    @final
    def behaviour(self) -> Server[Any]:
        """What the runtime talks to: the server that speaks the protocol of stages, and calls this one's callbacks."""
        from batonpass.actors.stages.stage_server import StageServer  # it knows this module, which must not need trio

        return StageServer(self)

    def handle_subscribe(self, role: Role, subscription: Subscription, state: StateT) -> Result[StateT]:
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
