"""Telemetry: code that wants to know what happens attaches a function to an event; its maker need not know.

As Elixir's `:telemetry`: an event has a name, measurements (numbers, units last in their names), metadata (anything).
Handlers run synchronously, in the caller of `execute`, in the order in which they were attached, so they must be quick:
count, or hand on. A handler that raises is detached and reported, by the log and as an event of its own; the caller of
`execute` never notices.

There is one hub per `System` (`system.telemetry`), not one per process as in Elixir. Several systems in one process, as
in tests, do not hear each other, and what was attached goes when the system does. An event without a handler costs one
look-up in a dict. There is no wall clock here: times are seconds on the system's monotonic clock.

What the runtime tells. None of it happens per message, except the last row. As long as a handler is attached to that,
every actor's `Server` is wrapped (see `actors.core.debug`), and not for a moment longer.

===================  ================================================  =============================================
event                measurements                                      metadata
===================  ================================================  =============================================
`ACTOR_START`        `actors`: how many there are now                  `ref`, `parent`
`ACTOR_EXIT`         `actors`: how many are left                       `ref`, `reason`
`ACTOR_CRASH`        `crashes`: so far                                 `ref`, `reason`, `ancestors`, `callers`
`SUPERVISOR_RESTART` `restarts`: within the window                     `supervisor`, `child_id`, `reason`
`SUPERVISOR_GAVE_UP` `restarts`: within the window                     `supervisor`, `child_id`, `reason`
`MAILBOX_OVERFLOW`   `waiting`: messages in the mailbox                `ref`, `kind` ("call", or "message": dropped)
`STAGE_OVERFLOW`     `dropped`: events just now; `buffered`            `ref`
`CALLBACK_SLOW`      `duration_s`, `collecting_s` of it for garbage    `actor` (its label), `callback`
`NODE_BLOCKED`       `duration_s`, in all                              `culprit`, `stack`; see `actors.core.watchdog`
`HANDLER_FAILED`     `monotonic_time_s`                                `event`, `handler_id`, `config`, `error`
`SYSTEM_COUNTS`      what `System.stats` has                           `node`; by a poller (`actors.observe.poller`)
`MESSAGE_HANDLED`    `duration_s` of the callback, `waiting` after it  `ref`, `callback`
===================  ================================================  =============================================

This module is pure: it imports no trio, and is handed its clock.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from batonpass.actors.base.exact_keys import exact

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from types import TracebackType

from batonpass.actors.base.errors import is_stopping

logger = logging.getLogger("batonpass.actors")

Event: TypeAlias = tuple[str, ...]
"""The name of an event, from the general to the particular: `("shop", "order", "paid")`."""

ACTOR_START: Final = ("actors", "actor", "start")
ACTOR_EXIT: Final = ("actors", "actor", "exit")
ACTOR_CRASH: Final = ("actors", "actor", "crash")
SUPERVISOR_RESTART: Final = ("actors", "supervisor", "restart")
SUPERVISOR_GAVE_UP: Final = ("actors", "supervisor", "gave_up")
MAILBOX_OVERFLOW: Final = ("actors", "mailbox", "overflow")
STAGE_OVERFLOW: Final = ("actors", "stage", "overflow")
CALLBACK_SLOW: Final = ("actors", "callback", "slow")
NODE_BLOCKED: Final = ("actors", "node", "blocked")
SYSTEM_COUNTS: Final = ("actors", "system", "counts")
MESSAGE_HANDLED: Final = ("actors", "message", "handled")
HANDLER_FAILED: Final = ("telemetry", "handler", "failure")


class AlreadyAttached(Exception):
    """A handler with this id is attached already; `handler_id` is the offender."""

    def __init__(self, handler_id: Hashable) -> None:
        self.handler_id = handler_id
        super().__init__(f"a handler {handler_id!r} is attached already: detach it first, or choose another id")


@final
@dataclass(frozen=True, slots=True)
class Handler:
    """One function attached to one event; `config` is handed to it each time."""

    id: Hashable
    event: Event
    function: Callable[[Event, Mapping[str, float], Mapping[str, Any], Any], object]
    config: Any


@final
class Telemetry:
    """The handlers of one system; see the head of the module."""

    __slots__ = ("_clock_s", "_handlers", "_ids", "_sources")

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        # Tuples, made afresh by each change: a handler may attach and detach while an event is being told.
        self._handlers: dict[Event, tuple[Handler, ...]] = {}
        self._ids: dict[Hashable, tuple[Event, ...]] = {}
        self._sources: dict[Event, Callable[[bool], object]] = {}

    def attach(
        self,
        handler_id: Hashable,
        event: Event | Sequence[Event],
        function: Callable[[Event, Mapping[str, float], Mapping[str, Any], Any], object],
        config: Any = None,
    ) -> None:
        """Have `function(event, measurements, metadata, config)` called for an event, or for each of several.

        Raises `AlreadyAttached` if the id is in use. Raises `TypeError` for an `async def` (it would not be awaited),
        for what cannot be called and what is no event name. It raises `ValueError` for no event at all. Nothing is
        attached then.
        """
        key = exact(handler_id)
        if key in self._ids:
            raise AlreadyAttached(handler_id)
        given: Any = function
        if not callable(given):
            raise TypeError(f"the handler {handler_id!r} must be a function of four arguments, not {given!r}")
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                f"the handler {handler_id!r} is `async def`, which would not be awaited: cast to an actor instead"
            )
        events = _events(event)
        self._ids[key] = events
        for name in events:
            first = name not in self._handlers
            self._handlers[name] = (*self._handlers.get(name, ()), Handler(handler_id, name, function, config))
            if first and name in self._sources:
                self._sources[name](True)

    def detach(self, handler_id: Hashable) -> bool:
        """Call it no more, for any event. False if there is no such handler (any more)."""
        key = exact(handler_id)
        events = self._ids.pop(key, None)
        for name in events or ():
            left = tuple(handler for handler in self._handlers[name] if exact(handler.id) != key)
            if left:
                self._handlers[name] = left
                continue
            del self._handlers[name]
            if name in self._sources:
                self._sources[name](False)
        return events is not None

    def list_handlers(self, prefix: Event = ()) -> list[Handler]:
        """The handlers of all events whose names begin with `prefix`; one row for each event of each."""
        return [
            handler
            for event, handlers in self._handlers.items()
            if event[: len(prefix)] == prefix
            for handler in handlers
        ]

    def has_handlers(self, event: Event) -> bool:
        """Whether a handler listens: ask before making measurements that cost something."""
        return event in self._handlers

    def execute(self, event: Event, measurements: Mapping[str, float], metadata: Mapping[str, Any]) -> None:
        """Tell all that are attached to `event`, now, before this returns. Raises nothing."""
        handlers = self._handlers.get(event)
        if handlers is not None:
            for handler in handlers:
                self._tell(handler, measurements, metadata)

    def span(self, prefix: Event, metadata: Mapping[str, Any] | None = None) -> Span:
        """A context manager around a piece of work; see `Span`."""
        return Span(self, prefix, dict(metadata or {}), self._clock_s)

    def on_demand(self, event: Event, switch: Callable[[bool], object]) -> None:
        """Call `switch(True)` when the first handler is attached to an `event`, `switch(False)` at the end.

        For events that cost something to make. One source per event: a second one replaces the first. If a handler is
        attached already, it is switched on at once.
        """
        self._sources[event] = switch
        if event in self._handlers:
            switch(True)

    def _tell(self, handler: Handler, measurements: Mapping[str, float], metadata: Mapping[str, Any]) -> None:
        try:
            result = handler.function(handler.event, measurements, metadata, handler.config)
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError("it returned a coroutine, which is not awaited")
        except BaseException as error:
            # A handler may end the program.
            if is_stopping(error) or isinstance(error, SystemExit):
                raise
            # It may have been detached already, by itself or by an event it caused.
            self.detach(handler.id)
            logger.exception(
                "the telemetry handler %r failed on %s and was detached", handler.id, ".".join(handler.event)
            )
            self.execute(
                HANDLER_FAILED,
                {"monotonic_time_s": self._clock_s()},
                {"event": handler.event, "handler_id": handler.id, "config": handler.config, "error": error},
            )


@final
class Span:
    """`with telemetry.span(("shop", "order"), {"id": 7}) as span: ...` tells when a piece of work starts and ends.

    ======================  ==============================================  ============================================
    event                   measurements                                    metadata
    ======================  ==============================================  ============================================
    `(*prefix, "start")`    `monotonic_time_s`                              as given
    `(*prefix, "stop")`     `monotonic_time_s`, `duration_s`, and yours     as given, and yours
    `(*prefix,              the same                                        the same, and `error`; it goes on its way
    "exception")`
    ======================  ==============================================  ============================================

    The body adds its own to `span.measurements` and `span.metadata`. An error that passes may be trio's `Cancelled`.
    """

    __slots__ = ("_clock_s", "_prefix", "_started_s", "_telemetry", "measurements", "metadata")

    def __init__(
        self, telemetry: Telemetry, prefix: Event, metadata: dict[str, Any], clock_s: Callable[[], float]
    ) -> None:
        self._telemetry = telemetry
        self._prefix = prefix
        self._clock_s = clock_s
        self._started_s = 0.0
        self.measurements: dict[str, float] = {}
        self.metadata = metadata

    def __enter__(self) -> Span:
        self._started_s = self._clock_s()
        self._telemetry.execute((*self._prefix, "start"), {"monotonic_time_s": self._started_s}, self.metadata.copy())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        now_s = self._clock_s()
        measurements = {**self.measurements, "monotonic_time_s": now_s, "duration_s": now_s - self._started_s}
        if error is None:
            self._telemetry.execute((*self._prefix, "stop"), measurements, self.metadata)
        else:
            self._telemetry.execute((*self._prefix, "exception"), measurements, {**self.metadata, "error": error})


def _events(given: Event | Sequence[Event]) -> tuple[Event, ...]:
    """The event names in `given`, without repetitions. Raises `TypeError`, `ValueError`."""
    if not isinstance(given, tuple | list) or not given:
        problem = ValueError if isinstance(given, tuple | list) else TypeError
        raise problem(f"{given!r} is no event: give a tuple of words, or several of them")
    names: list[Any] = [given] if isinstance(given[0], str) else list(given)
    for name in names:
        if not isinstance(name, tuple) or not name or not all(isinstance(word, str) for word in name):
            raise TypeError(f"{name!r} is no event name: give a tuple of words, such as ('shop', 'order', 'paid')")
    return tuple(dict.fromkeys(names))
