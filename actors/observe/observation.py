"""/v1/actors: what a node's actors are and do, for `baton observe` and other tools outside (docs/guides/observe.md).

The overview is open, like every reading route: it shows names, classes and numbers. What is inside an actor, its state
and its messages, takes the operator token, as does holding it still or ending it. States and messages pass through the
server's `format_status` and then through `actors.observe.display`; they are bounded, and so is everything else here.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import trio
from fastapi import Depends, Path, Query
from pydantic import BaseModel, Field

from batonpass.actors.core.exits import CallingSelf, CallTimeout, Exit
from batonpass.actors.core.ref import Ref
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.status_report import ServerStatus, formatted
from batonpass.actors.core.system import System
from batonpass.actors.http.app import ApiError, RequestBody
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.actors.http.streaming import JsonLines, stream_responses
from batonpass.actors.http.tokens import TokenGate
from batonpass.actors.observe import sys
from batonpass.actors.observe.display import picture
from batonpass.actors.observe.plain_data import NotReplaceable, in_shape_of_untrusted

__all__ = ["actor_routes"]

ANSWER_S: Final = 5.0
"""How long an actor may take to come to a request, between two of its callbacks."""
TERMINATE_S: Final = 30.0
MAX_TRACES: Final = 8
"""At the same time on one node."""
TRACE_WAITING: Final = 1000
"""Events that wait for a slow reader; beyond it the oldest are dropped and counted."""
MAX_ROWS: Final = 250
"""Of one answer, which any caller may ask for: 2 ms of the node's time."""
MAX_NAMES: Final = 10


class NodeStats(BaseModel):
    """What the node's system has counted since it was opened."""

    actors: int
    messages_handled: int
    messages_dropped: int
    crashes: int
    slow_callbacks: int = Field(description="callbacks that held up the node, found out afterwards")
    blocked: int = Field(description="blockages that the watchdog reported while they lasted")


class ActorRow(BaseModel):
    """One actor, from outside."""

    pid: int = Field(description="never given twice while the server runs; a restarted actor has a new one")
    label: str
    kind: sys.Kind
    module: str = Field(description="the class of its server; empty for services")
    names: list[str]
    parent: int | None = Field(description="the pid of its supervisor, or of who started it linked to itself")
    children: int
    condition: sys.Condition
    waiting: int = Field(description="messages in its mailbox")
    mailbox_limit: int
    age_s: float = Field(description="to within 0.05 s, or 1/64 of it")
    callback: str | None = Field(description="the asynchronous callback that is at work")
    callback_s: float = Field(description="for how many seconds")
    messages_handled: int | None = Field(description="since its statistics were switched on; null while they are not")


class Overview(BaseModel):
    """A node and its actors, in the order in which they were started."""

    node: str
    stats: NodeStats
    actors: list[ActorRow]
    next: int | None = Field(description="ask again with this as `after`; null when these were the last")


class StatisticsView(BaseModel):
    """What an actor has done since its statistics were switched on."""

    counted_s: float
    messages_in: int
    messages_out: int = Field(description="answers that its callbacks returned")
    callback_s: float = Field(description="how long its callbacks ran, without what they waited")


class Inside(ActorRow):
    """One actor, from inside."""

    stack: list[str] = Field(description="where the callback waits, outermost first")
    state_known: bool = Field(description="false while a callback is at work, and of services and tasks")
    state: Any = Field(description="what its format_status lets be seen, as JSON, shortened, without secrets")
    statistics: StatisticsView | None


class NewState(RequestBody):
    """What an actor's state shall be."""

    state: Any = Field(description="as it is shown, but for what shall be changed")


class Ended(BaseModel):
    """An actor that has ended. If it runs again, that is another one, with another pid."""

    pid: int
    label: str


Pid = Annotated[int, Path(ge=1, le=2**53, description="from the overview")]
GetSystem = Callable[[], System | None]


def actor_routes(get_system: GetSystem, tokens: TokenGate) -> Routes:
    """The routes for one node's actors. `get_system` has no answer while that is still starting."""
    routes = Routes(prefix="/v1/actors", tags=["actors"])
    operator = Depends(operator_access(tokens))
    actors = _Actors(get_system)
    _looking(routes, operator, actors)
    _acting(routes, operator, actors)
    return routes


def _looking(routes: Routes, operator: Any, actors: "_Actors") -> None:
    @routes.get("")
    async def overview(
        after: Annotated[int, Query(ge=0, le=2**53, description="only actors started after this pid")] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="how many at most")] = MAX_ROWS,
    ) -> Overview:
        """The node's actors, in the order of their pids, and its counters."""
        return actors.overview(after, limit)

    @routes.get("/{pid}", dependencies=[operator])
    async def inside(pid: Pid) -> Inside:
        """One actor with its state; at once, also if it is stuck in a callback."""
        return _inside(actors.find(pid))

    @routes.get(
        "/{pid}/trace",
        dependencies=[operator],
        response_class=JsonLines,
        responses=stream_responses(JsonLines, "What the actor is sent and what it answers, one JSON object a line."),
    )
    async def trace(
        pid: Pid,
        seconds: Annotated[float, Query(ge=0.1, le=3600, description="ends after this time")] = 60.0,
        events: Annotated[int, Query(ge=1, le=100_000, description="ends after this number")] = 1000,
    ) -> JsonLines:
        """What one actor is sent and what it answers, from now on; the last line says why it ended."""
        return actors.trace(actors.find(pid), seconds, events)


def _acting(routes: Routes, operator: Any, actors: "_Actors") -> None:
    @routes.post("/{pid}/suspend", dependencies=[operator])
    async def suspend(pid: Pid) -> ActorRow:
        """Have it handle no messages until it is resumed; they are kept, and its callers' calls time out."""
        return await actors.do(pid, lambda ref: sys.suspend(ref, ANSWER_S))

    @routes.post("/{pid}/resume", dependencies=[operator])
    async def resume(pid: Pid) -> ActorRow:
        """Have it handle messages again."""
        return await actors.do(pid, lambda ref: sys.resume(ref, ANSWER_S))

    @routes.put("/{pid}/state", dependencies=[operator])
    async def replace_state(pid: Pid, new: NewState) -> Inside:
        """Put a state of the same shape in the place of the present one, between two callbacks, or change nothing."""
        ref = actors.find(pid)
        with _told(ref):
            await sys.replace_state(ref, lambda state: _replaced(ref, state, new.state), ANSWER_S)
        return _inside(ref)

    @routes.put("/{pid}/statistics", dependencies=[operator])
    async def start_statistics(pid: Pid) -> ActorRow:
        """Count what it does from now on, from zero; this slows the actor down a little."""
        return await actors.do(pid, _at_once(sys.start_statistics))

    @routes.delete("/{pid}/statistics", dependencies=[operator])
    async def stop_statistics(pid: Pid) -> ActorRow:
        """Count no more."""
        return await actors.do(pid, _at_once(sys.stop_statistics))

    @routes.delete("/{pid}", dependencies=[operator])
    async def terminate(pid: Pid) -> Ended:
        """End it in order, with reason "shutdown"; its supervisor decides whether it is started again."""
        ref = actors.find(pid)
        label = ref.process.label
        with _told(ref):
            try:
                await sys.terminate(ref, "shutdown", TERMINATE_S)
            except CallingSelf:
                # What serves this request: the answer may not get through any more, and must not be waited for.
                ref.process.request_stop("shutdown")
            except Exit:
                # It may have ended for another reason meanwhile, or because its end failed: it has ended.
                if ref.alive:
                    raise
        return Ended(pid=pid, label=label)


class _Actors:
    """The actors of one node, as the routes need them."""

    def __init__(self, get_system: GetSystem) -> None:
        self._get_system = get_system
        self._traces = 0

    @property
    def system(self) -> System:
        system = self._get_system()
        if system is None:
            raise ApiError(503, "not_ready", "this server is still starting its actors")
        return system

    def find(self, pid: int) -> Ref:
        ref = self.system.with_pid(pid)
        if ref is None:
            raise ApiError(404, "unknown_actor", f"no actor with the pid {pid} runs here (any more)", pid)
        return ref

    def overview(self, after: int, limit: int) -> Overview:
        system = self.system
        refs = system.actors_after(after, limit + 1)
        more = len(refs) > limit
        refs = refs[:limit]
        stats = system.stats
        return Overview(
            node=system.name,
            stats=NodeStats(**{name: getattr(stats, name) for name in NodeStats.model_fields}),
            actors=[ActorRow(**_row(sys.get_status(ref, with_state=False))) for ref in refs],
            next=refs[-1].pid if more else None,
        )

    async def do(self, pid: int, action: Callable[[Ref], Awaitable[object]]) -> ActorRow:
        ref = self.find(pid)
        with _told(ref):
            await action(ref)
            return ActorRow(**_row(sys.get_status(ref, with_state=False)))

    def trace(self, ref: Ref, seconds: float, events: int) -> JsonLines:
        if self._traces >= MAX_TRACES:
            text = f"{self._traces} traces run on this server already, its bound: stop one first"
            raise ApiError(503, "too_many_traces", text, self._traces)
        with _told(ref):
            trace = sys.trace(ref, TRACE_WAITING)
        self._traces += 1
        shown = _Shown(ref)

        def end() -> None:
            self._traces -= 1
            trace.stop()

        return JsonLines(_lines(shown, trace, seconds, events), on_end=end)


async def _lines(shown: "_Shown", trace: sys.ActorTrace, seconds: float, events: int) -> AsyncIterator[bytes]:
    why: Literal["seconds", "events", "ended"] = "ended"
    count = 0
    deadline_s = trio.current_time() + seconds
    while True:
        event: sys.TraceEvent | None = None
        with trio.move_on_at(deadline_s) as limit:
            event = await anext(trace, None)
        if event is None:
            why = "seconds" if limit.cancelled_caught else why
            break
        yield _line(shown.event(event))
        count += 1
        if count == events and event.kind != "end":
            why = "events"
            break
    yield _line({"kind": "done", "why": why, "events": count, "dropped": trace.dropped})


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


class _Shown:
    """The events of one actor as outsiders may see them, also those that are read when it has ended."""

    def __init__(self, ref: Ref) -> None:
        process = ref.process
        assert isinstance(process, ServerProcess)  # noqa: S101 — only those can be traced
        self._process = process
        self._server = process.server
        self._state = process.state

    def event(self, event: sys.TraceEvent) -> dict[str, Any]:
        if self._process.alive:
            self._state = self._process.state
        # The server knows what of its messages is secret, and is asked of its answers in the same way.
        seen = formatted(self._server, ServerStatus(self._state, event.content))
        return {"kind": event.kind, "at_s": event.at_s, "callback": event.callback, "content": picture(seen.message)}


def _row(status: sys.ActorStatus) -> dict[str, Any]:
    return {
        "pid": status.ref.pid,
        "label": status.ref.process.label,
        "kind": status.kind,
        "module": status.module,
        "names": [_name(name) for name in status.names[:MAX_NAMES]],
        "parent": None if status.parent is None or status.parent.node != status.ref.node else status.parent.pid,
        "children": status.children,
        "condition": status.condition,
        "waiting": status.waiting,
        "mailbox_limit": status.mailbox_limit,
        "age_s": round(status.age_s, 3),
        "callback": status.callback,
        "callback_s": round(status.callback_s, 3),
        "messages_handled": None if status.statistics is None else status.statistics.messages_in,
    }


def _name(name: Any) -> str:
    shown = picture(name)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _inside(ref: Ref) -> Inside:
    with _told(ref):
        status = sys.get_status(ref)
    counted = status.statistics
    view = counted and StatisticsView(
        counted_s=round(counted.counted_s, 3),
        messages_in=counted.messages_in,
        messages_out=counted.messages_out,
        callback_s=round(counted.callback_s, 6),
    )
    return Inside(
        **_row(status),
        stack=list(status.stack),
        state_known=status.state_known,
        state=picture(status.state),
        statistics=view,
    )


def _replaced(ref: Ref, present: Any, given: Any) -> Any:
    process = ref.process
    assert isinstance(process, ServerProcess)  # noqa: S101 — nothing else has a state
    # What was shown is what comes back, changed: it must be the state that was shown, and not something else.
    if picture(formatted(process.server, ServerStatus(present)).state) != picture(present):
        raise NotReplaceable("state", "what its format_status shows is not the state itself")
    return in_shape_of_untrusted(given, present)


def _at_once(action: Callable[[Ref], object]) -> Callable[[Ref], Awaitable[None]]:
    async def do(ref: Ref) -> None:
        action(ref)

    return do


@contextmanager
def _told(ref: Ref) -> Iterator[None]:
    """Say what went wrong with a request to an actor in the terms of this API."""
    try:
        yield
    except NotReplaceable as error:
        raise ApiError(409, "state_not_replaceable", f"{error}; nothing was changed", error.path) from error
    except CallTimeout as error:
        text = f"{ref} is in a callback and did not come to this in time; nothing was changed: see what it does"
        raise ApiError(504, "actor_busy", text, ref.pid) from error
    except Exit as error:
        if error.reason == "not_a_server":
            text = f"{ref} is a service or a task: it has no messages and no state, and can only be ended"
            raise ApiError(409, "not_a_server", text, ref.pid) from error
        raise ApiError(404, "unknown_actor", f"{ref} has ended", ref.pid) from error
