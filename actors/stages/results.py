"""What the callbacks of a stage may return beyond what those of a `Server` may: events to emit (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, final

from batonpass.actors.core.checks import member_of, need_count, several
from batonpass.actors.core.exits import NORMAL
from batonpass.actors.core.server import KEEP, NO_REPLY, Next, NoReply, Ok, Stop
from batonpass.actors.stages.buffer import DEFAULT_BUFFER_SIZE, Keep
from batonpass.actors.stages.protocol import DemandMode, SubscribeTo

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.stages.dispatchers import Dispatcher

__all__ = ["Emit", "Finish", "Manual", "StageOk"]

StateT = TypeVar("StateT")


@final
class StageOk(Ok[StateT]):
    """From `init`: started, and how the stage is set up. Source: the options of GenStage's `init`.

    For stages that consume: `subscribe_to`, done before any other's message is handled. For stages that produce it is
    the `dispatcher` (default: a `DemandDispatcher`), and whether demand is forwarded from the start. It is the bound of
    the buffer (None: there is none) and which events stay in it.
    """

    __slots__ = ("buffer_keep", "buffer_size", "demand", "dispatcher", "subscribe_to")

    def __init__(
        self,
        state: StateT,
        *,
        subscribe_to: Sequence[SubscribeTo] = (),
        dispatcher: Dispatcher | None = None,
        buffer_size: int | None = DEFAULT_BUFFER_SIZE,
        buffer_keep: Keep = Keep.LAST,
        demand: DemandMode = DemandMode.FORWARD,
        then: Next = None,
        timeout_s: float | None = None,
    ) -> None:
        """Raises `TypeError` and `ValueError` for what no stage can be set up with."""
        super().__init__(state, then, timeout_s)
        need_count("buffer_size of a stage", buffer_size, optional=True)
        self.subscribe_to = several(SubscribeTo, "subscribe_to of a stage", subscribe_to)
        self.dispatcher = dispatcher
        self.buffer_size = buffer_size
        self.buffer_keep = member_of(Keep, "buffer_keep of a stage", buffer_keep)
        self.demand = member_of(DemandMode, "demand of a stage", demand)


@final
class Emit(NoReply[StateT]):
    """Emit `events`, in order, and continue with `state`: OTP's `{:noreply, events, state}`.

    From `handle_call`, `reply` answers the caller after the events have been sent or buffered. The sequence belongs to
    the runtime from now on.
    """

    __slots__ = ("events", "reply")

    def __init__(
        self,
        events: Sequence[Any],
        state: StateT = KEEP,
        *,
        reply: Any = NO_REPLY,
        then: Next = None,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(state, then, timeout_s)
        self.events = events
        self.reply = reply


@final
class Finish(Stop[StateT]):
    """Emit `events`, the last ones, and end with `reason` when consumers have taken all that was emitted.

    Until then the stage answers what it is asked, but is asked for no more events and handles none. (GenStage leaves
    this to the author of a producer.)
    """

    __slots__ = ("events",)

    def __init__(
        self, events: Sequence[Any] = (), state: StateT = KEEP, *, reason: Reason = NORMAL, reply: Any = NO_REPLY
    ) -> None:
        super().__init__(reason, state, reply)
        self.events = events


@final
class Manual(NoReply[StateT]):
    """From a consumer's `handle_subscribe`: this stage calls `ask` itself; nothing is asked for automatically."""

    __slots__ = ()
