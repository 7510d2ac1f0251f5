"""Producers made from what Python has: iterables, and asynchronous iterables."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, final

import trio

from batonpass.actors.core.exits import NORMAL, Reason
from batonpass.actors.core.messages import Down
from batonpass.actors.core.server import Stop
from batonpass.actors.core.service import ServiceProcess
from batonpass.actors.stages.results import Emit, Finish, StageOk
from batonpass.actors.stages.stage import Producer

if TYPE_CHECKING:
    from batonpass.actors.core.messages import Monitor
    from batonpass.actors.stages.dispatchers import Dispatcher
    from batonpass.actors.stages.protocol import Cancellation, DemandMode, StageRole, Subscription

__all__ = ["from_async_iterable", "from_iterable"]


def from_iterable(
    make: Callable[[], Iterable[Any]],
    *,
    dispatcher: Callable[[], Dispatcher] | None = None,
    demand: DemandMode | None = None,
    ends_with_consumers: bool = False,
) -> Callable[[], Producer[Any]]:
    """A producer of what `make()` yields, for `System.start` or `ActorSpec`: `from_iterable(lambda: range(10))`.

    It takes from the iterator only what was asked for, and ends with reason `"normal"` when everything was taken. Each
    life starts with a new `make()`; so give it the restart `TRANSIENT`, or it starts again when it has finished.
    With `ends_with_consumers` it ends also when the last of its consumers has gone.
    Source: `GenStage.from_enumerable`, whose options are `consumers: :permanent`, later `on_cancel: :stop`.
    """
    return lambda: _Iterating(make, dispatcher, demand, ends_with_consumers)


def from_async_iterable(
    make: Callable[[], AsyncIterable[Any]],
    *,
    dispatcher: Callable[[], Dispatcher] | None = None,
    demand: DemandMode | None = None,
    ends_with_consumers: bool = False,
) -> Callable[[], Producer[Any]]:
    """The same for an asynchronous iterable: each event is emitted when it comes, and the next awaited if it is wanted.

    The iterable runs in a task of its own, so the producer answers while nothing comes. If it raises, the producer ends
    with that reason.
    """
    return lambda: _Awaiting(make, dispatcher, demand, ends_with_consumers)


class _SourceStage(Producer[Any]):
    """What both have in common: how the stage is set up."""

    def __init__(
        self,
        make: Callable[[], Any],
        dispatcher: Callable[[], Dispatcher] | None,
        demand: DemandMode | None,
        ends_with_consumers: bool,
    ) -> None:
        self._make = make
        self._dispatcher = dispatcher
        self._demand = demand
        self._ends_with_consumers = ends_with_consumers
        self._consumers = 0

    def handle_subscribe(self, role: StageRole, subscription: Subscription, state: Any) -> None:
        self._consumers += 1

    def handle_cancel(self, cancellation: Cancellation, subscription: Subscription, state: Any) -> Stop[Any] | None:
        self._consumers -= 1
        return Stop() if self._ends_with_consumers and not self._consumers else None

    def _ok(self, state: Any) -> StageOk[Any]:
        ok = StageOk(state, dispatcher=None if self._dispatcher is None else self._dispatcher())
        if self._demand is not None:
            ok.demand = self._demand
        return ok


@final
class _Iterating(_SourceStage):
    """The state is the iterator."""

    def init(self, arg: Any) -> StageOk[Iterator[Any]]:
        return self._ok(iter(self._make()))

    def handle_demand(self, demand: int, state: Iterator[Any]) -> Emit[Any] | Finish[Any]:
        events = list(islice(state, demand))
        return Emit(events) if len(events) == demand else Finish(events)


@final
@dataclass(slots=True)
class _Wanted:
    """How many events the pump may still take; `more` is set when that stops being 0."""

    count: int = 0
    more: trio.Event = field(default_factory=trio.Event)


@final
class _Awaiting(_SourceStage):
    """The state is what is wanted of the pump, which takes events from the iterable in a task of its own."""

    _pump: Monitor

    def init(self, arg: Any) -> StageOk[_Wanted]:
        wanted = _Wanted()

        async def serve(*, task_status: trio.TaskStatus[None]) -> None:
            task_status.started()
            await self._pump_events(wanted)

        process = ServiceProcess.start_nowait(
            self.system, serve, f"source of {self.ref}", name=None, parent=self.ref.process
        )
        self._pump = self.monitor(process.ref)
        return self._ok(wanted)

    async def _pump_events(self, wanted: _Wanted) -> None:
        events = aiter(self._make())
        try:
            while True:
                while not wanted.count:
                    wanted.more = trio.Event()
                    await wanted.more.wait()
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
                wanted.count -= 1
                self.ref.process.deliver_info(_PumpEvent(event))
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                with trio.CancelScope(shield=True):
                    await close()

    def handle_demand(self, demand: int, state: _Wanted) -> None:
        state.count += demand
        state.more.set()

    def handle_info(self, message: Any, state: _Wanted) -> Emit[Any] | Finish[Any] | None:
        match message:
            case _PumpEvent(event):
                return Emit([event])
            case Down(monitor, _, reason) if monitor is self._pump:
                return self._ended(reason)
        return None

    def _ended(self, reason: Reason) -> Finish[Any]:
        if reason == NORMAL:
            return Finish()
        # What was emitted before the failure is not wrong; consumers get it first.
        return Finish(reason=reason)


@final
@dataclass(frozen=True, slots=True)
class _PumpEvent:
    """From the pump."""

    event: Any
