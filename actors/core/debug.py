"""What `actors.observe.sys` switches on for one actor, and how it costs the others nothing.

The runtime calls the callbacks of the `Server` that a process has. To count or record what an actor does, a `Probe`
takes the place of the `Server` there, does its work around each callback, and hands everything else on. An actor that
is not watched runs the same code as ever; one that is no longer watched has its own `Server` back.

Requests to the runtime part of an actor (`get_state`, `suspend`, ...) are mailbox entries of their own kind. They keep
their place among the messages: an actor that casts and then asks for the state sees what the cast did, as in OTP. A
suspended actor handles nothing but those.
"""

from __future__ import annotations

import inspect
from collections import deque
from dataclasses import dataclass
from pathlib import PurePath
from types import coroutine as generator_coroutine
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, final

import trio

from batonpass.actors.base.unrun_coroutine import UnrunCoroutine
from batonpass.actors.core.exits import Reason
from batonpass.actors.core.ref import From
from batonpass.actors.core.server import NO_REPLY, Reply, Stop
from batonpass.actors.core.telemetry import MESSAGE_HANDLED, Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from batonpass.actors.core.process import Process
    from batonpass.actors.core.server import Server
    from batonpass.actors.core.server_process import ServerProcess

SUSPENDED: Final = object()
"""Returned by a request that suspended its actor: no more messages now."""

MAX_STACK_LINES: Final = 20


@final
class SystemRequest:
    """Something to be done with an actor between two of its callbacks, on behalf of a caller who waits.

    If the caller has gone by then, it is not done: a request that timed out has no effect, ever.
    """

    __slots__ = ("action", "caller")

    def __init__(self, action: Callable[[ServerProcess], Any], caller: From) -> None:
        self.action = action
        self.caller = caller

    def serve(self, process: ServerProcess) -> Any:
        """Do it, and tell the caller; errors are the caller's, who gets them as values."""
        if self.caller.waiting:
            try:
                answer = self.action(process)
            except Exception as error:
                answer = RequestFailed(error)
            self.caller.reply(answer)
        return SUSPENDED if process.suspended else None


@final
@dataclass(frozen=True, slots=True)
class RequestFailed:
    """In place of an answer: the caller raises this."""

    error: Exception


# What happens


@final
@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One thing that happened to one actor, at `at_s` on the system's clock.

    ===========  ======================================================================
    kind         content
    ===========  ======================================================================
    `in`         the message that `callback` is called with
    `out`        the reply that `callback` returned; replies from elsewhere are not seen
    `crash`      the exception that `callback` raised
    `stop`       the reason in the `Stop` that `callback` returned
    `end`        the exit reason; the last event of all
    ===========  ======================================================================
    """

    at_s: float
    kind: EventKind
    callback: str
    content: Any


EventKind: TypeAlias = Literal["in", "out", "crash", "stop", "end"]


@final
class ActorTrace:
    """The events of one actor from now on: `with sys.trace(ref) as trace: async for event in trace: ...`.

    At most `limit` events wait. When the reader is too slow the oldest are dropped and counted in `dropped`, because
    the actor waits for no reader. Iteration ends after `stop`, or after the actor has ended, when all is read.
    """

    def __init__(self, limit: int, detach: Callable[[ActorTrace], object]) -> None:
        self._events: deque[TraceEvent] = deque(maxlen=limit)
        self._detach = detach
        self._readers = trio.lowlevel.ParkingLot()
        self._stopped = False
        self.dropped = 0

    def __enter__(self) -> ActorTrace:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __aiter__(self) -> ActorTrace:
        return self

    async def __anext__(self) -> TraceEvent:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._events:
            if self._stopped:
                raise StopAsyncIteration
            await self._readers.park()
        return self._events.popleft()

    def stop(self) -> None:
        """Record no more. What has been recorded can still be read."""
        if not self._stopped:
            self._detach(self)
            self.close()

    def put(self, event: TraceEvent) -> None:
        """For the runtime: record this."""
        self.dropped += len(self._events) == self._events.maxlen
        self._events.append(event)
        self._readers.unpark_all()

    def close(self) -> None:
        """For the runtime: nothing more will come."""
        self._stopped = True
        self._readers.unpark_all()


@final
@dataclass(slots=True)
class Counts:
    """What `sys.start_statistics` counts."""

    since_s: float
    messages_in: int = 0
    messages_out: int = 0
    callback_s: float = 0.0


# The wrapping


@final
class Probe:
    """Stands where the `Server` of a process stood, and records what its callbacks are given and do.

    All that it does not define itself is the server's own.
    """

    def __init__(self, process: ServerProcess, server: Server[Any], clock_s: Callable[[], float]) -> None:
        self.server = server
        self.counts: Counts | None = None
        self.log: deque[TraceEvent] | None = None
        self.telemetry: Telemetry | None = None
        self._process = process
        self._clock_s = clock_s
        self._traces: list[ActorTrace] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server, name)

    @property
    def wanted(self) -> bool:
        """Whether a reader is interested still."""
        return bool(self._traces) or not (self.counts is None and self.log is None and self.telemetry is None)

    # In place of the server

    def handle_call(self, request: Any, from_: From, state: Any) -> Any:
        """As the server's."""
        return self._handle("handle_call", request, self.server.handle_call, request, from_, state)

    def handle_cast(self, message: Any, state: Any) -> Any:
        """As the server's."""
        return self._handle("handle_cast", message, self.server.handle_cast, message, state)

    def handle_info(self, message: Any, state: Any) -> Any:
        """As the server's."""
        return self._handle("handle_info", message, self.server.handle_info, message, state)

    def handle_continue(self, value: Any, state: Any) -> Any:
        """As the server's."""
        return self._handle("handle_continue", value, self.server.handle_continue, value, state)

    def _handle(self, callback: str, message: Any, function: Callable[..., Any], *args: Any) -> Any:
        if self.counts is not None:
            self.counts.messages_in += 1
        self._note("in", callback, message)
        started_s = self._clock_s()
        try:
            result = function(*args)
        except Exception as error:
            self._ran(callback, self._clock_s() - started_s, None)
            self._note("crash", callback, error)
            raise
        ran_s = self._clock_s() - started_s
        if inspect.iscoroutine(result):
            return self._finish(UnrunCoroutine(result), callback, ran_s)
        self._ran(callback, ran_s, result)
        return result

    async def _finish(self, unfinished: UnrunCoroutine, callback: str, ran_s: float) -> Any:
        """The callback turned out to be `async def`: what counts is when it runs, not when it waits."""

        def add(more_s: float) -> None:
            nonlocal ran_s
            ran_s += more_s

        result: Any = None
        try:
            result = await _timed(unfinished.coroutine, self._clock_s, add)
        except Exception as error:
            self._note("crash", callback, error)
            raise
        finally:
            self._ran(callback, ran_s, result)
        return result

    def _ran(self, callback: str, ran_s: float, result: Any) -> None:
        reply = result.value if type(result) is Reply else result.reply if type(result) is Stop else NO_REPLY
        if self.counts is not None:
            self.counts.callback_s += ran_s
            self.counts.messages_out += reply is not NO_REPLY
        if reply is not NO_REPLY:
            self._note("out", callback, reply)
        if type(result) is Stop:
            self._note("stop", callback, result.reason)
        if self.telemetry is not None:
            self.telemetry.execute(
                MESSAGE_HANDLED,
                {"duration_s": ran_s, "waiting": len(self._process.mailbox)},
                {"ref": self._process.ref, "callback": callback},
            )

    def _note(self, kind: EventKind, callback: str, content: Any) -> None:
        if self._traces or self.log is not None:
            event = TraceEvent(self._clock_s(), kind, callback, content)
            for trace in self._traces:
                trace.put(event)
            if self.log is not None:
                self.log.append(event)

    # What is recorded

    def trace(self, limit: int, detach: Callable[[ActorTrace], object]) -> ActorTrace:
        """Record events for a reader."""
        trace = ActorTrace(limit, detach)
        self._traces.append(trace)
        return trace

    def untrace(self, trace: ActorTrace) -> None:
        """No more for this one."""
        if trace in self._traces:
            self._traces.remove(trace)

    def close(self, reason: Reason) -> None:
        """The actor has ended."""
        self._note("end", "", reason)
        self.silence()

    def silence(self) -> None:
        """Record nothing more but for telemetry."""
        self.counts = self.log = None
        traces, self._traces = self._traces, []
        for trace in traces:
            trace.close()


@generator_coroutine
def _timed(
    coroutine: Coroutine[Any, Any, Any], clock_s: Callable[[], float], ran: Callable[[float], None]
) -> Generator[Any, Any, Any]:
    """Run a coroutine and tell `ran` how long each of its steps took."""
    step: Callable[[Any], Any] = coroutine.send
    sent: Any = None
    while True:
        started_s = clock_s()
        try:
            trap = step(sent)
        except StopIteration as end:
            return end.value
        finally:
            ran(clock_s() - started_s)
        try:
            sent = yield trap
            step = coroutine.send
        except BaseException as error:
            sent, step = error, coroutine.throw


# Who is watched, suspended, or busy


@final
@dataclass(frozen=True, slots=True)
class RunningCallback:
    """An async callback (or an async `init` or `terminate`) that is at work, since `since_s` on the system's clock."""

    callback: str
    since_s: float
    coroutine: Coroutine[Any, Any, Any]

    def stack(self) -> tuple[str, ...]:
        """Where it waits, outermost first, as `function (file:line)`; no directories, which concern no reader."""
        lines: list[str] = []
        inner: Any = self.coroutine
        while inner is not None and len(lines) < MAX_STACK_LINES:
            frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
            if frame is not None:
                code = frame.f_code
                lines.append(f"{code.co_qualname} ({PurePath(code.co_filename).name}:{frame.f_lineno})")
            inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
        return tuple(lines)


@final
class Debug:
    """The tables of one system: empty of actors that are not looked into, and that do not wait in a callback."""

    def __init__(self, clock_s: Callable[[], float], telemetry: Telemetry) -> None:
        self.suspended: set[Process] = set()
        self.running: dict[Process, RunningCallback] = {}
        self.watches_everybody = False
        self._probes: dict[Process, Probe] = {}
        self._clock_s = clock_s
        self._telemetry = telemetry

    def began(self, process: Process, callback: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        """An async callback goes to work; `running.pop(process)` when it is done."""
        self.running[process] = RunningCallback(callback, self._clock_s(), coroutine)

    def forget(self, process: Process, reason: Reason) -> None:
        """`process` has ended."""
        self.suspended.discard(process)
        self.running.pop(process, None)
        if self._probes:
            probe = self._probes.pop(process, None)
            if probe is not None:
                probe.close(reason)

    def probe_of(self, process: Process) -> Probe | None:
        """The probe in the place of its server, if it is watched."""
        return self._probes.get(process)

    def probe(self, process: ServerProcess) -> Probe:
        """Put a probe in the place of its server, if there is none; from the next message on."""
        probe = self._probes.get(process)
        if probe is None:
            probe = self._probes[process] = Probe(process, process.server, self._clock_s)
            process.replace_server(cast("Server[Any]", probe))
        return probe

    def release(self, process: ServerProcess) -> None:
        """Put its server back, if no reader is interested any more."""
        probe = self._probes.get(process)
        if probe is not None and not probe.wanted:
            del self._probes[process]
            process.replace_server(probe.server)

    def watch_for_telemetry(self, process: ServerProcess, *, on: bool) -> None:
        """Tell telemetry of each message, or stop that."""
        if on:
            self.probe(process).telemetry = self._telemetry
        elif process in self._probes:
            self._probes[process].telemetry = None
            self.release(process)
