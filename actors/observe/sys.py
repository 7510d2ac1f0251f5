"""Looking into an actor that runs, and holding it still, without its knowing: OTP's `sys`.

These functions talk to the runtime part of an actor, not to its callbacks, so no server has to provide for them.

==============================================  ========================================================================
`get_status(ref)`                               what it does now, and its state if no callback is at work; never waits
`get_state(ref)`, `replace_state(ref, f)`       the state between two callbacks
`suspend(ref)`, `resume(ref)`                   handle no messages for a while; they are kept, and calls time out
`trace(ref)`                                    a stream of what it is sent and what it answers
`start_log(ref)`, `get_log(ref)`                the last of the same, kept until it is asked for
`start_statistics(ref)`, `get_statistics(ref)`  how much it does, and how long its callbacks take
`stop_log`, `stop_statistics`, `no_debug`       the actor runs as if it had never been looked at
`terminate(ref)`                                end it, in order
==============================================  ========================================================================

Those that wait take their place among the messages, so that `ref.cast(x)` and then `get_state(ref)` shows what `x` did.
That also means that an actor which is stuck in a callback does not answer them. They raise what `Ref.call` raises:
`CallTimeout`, and then nothing was done nor will be; `NoProc` or `Exit` if the actor has ended or does; `CallingSelf`;
and `OnAnotherNode`. `get_status` answers always: of a stuck actor it tells in which callback, since when, and where
that waits.

Services and tasks have no messages and no state; of them there is a status, and they can be terminated. Supervisors are
servers.

Nothing here costs an actor that is not looked into anything; see `actors.core.debug` for how. `baton observe` does the
same from outside (docs/guides/observe.md).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

from batonpass.actors.base.exact_keys import plain
from batonpass.actors.core.debug import ActorTrace, Counts, RequestFailed, SystemRequest, TraceEvent
from batonpass.actors.core.exits import NORMAL, CallingSelf, Exit, NoProc, Reason
from batonpass.actors.core.process import Process, Status
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S, From, Ref
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.status_report import ServerStatus, formatted
from batonpass.actors.tasks.task_process import TaskProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from batonpass.actors.core.named import Named

__all__ = [
    "ActorStatus",
    "ActorTrace",
    "Condition",
    "Kind",
    "OnAnotherNode",
    "Statistics",
    "TraceEvent",
    "get_log",
    "get_state",
    "get_statistics",
    "get_status",
    "no_debug",
    "replace_state",
    "resume",
    "start_log",
    "start_statistics",
    "stop_log",
    "stop_statistics",
    "suspend",
    "terminate",
    "trace",
]

Kind: TypeAlias = Literal["server", "supervisor", "service", "task"]
Condition: TypeAlias = Literal["starting", "running", "suspended", "exiting"]

_CONDITIONS: Final[dict[Status, Condition]] = {
    Status.STARTING: "starting",
    Status.RUNNING: "running",
    Status.EXITING: "exiting",
}


@final
@dataclass(frozen=True, slots=True)
class Statistics:
    """What an actor has done in the `counted_s` seconds since `start_statistics`.

    `callback_s` is the time its callbacks ran (OTP counts reductions instead), without what an `async def` waits.
    `messages_out` counts the answers that its callbacks returned, `messages_in` the messages they were called with.
    """

    counted_s: float
    messages_in: int
    messages_out: int
    callback_s: float
    waiting: int
    age_s: float


@final
@dataclass(frozen=True, slots=True)
class ActorStatus:
    """What one actor is and does at this moment.

    `kind` is "server", "supervisor", "service" or "task", `module` the class of its server. `waiting` messages are in
    its mailbox. `callback` is at work since `callback_s` seconds and waits at `stack`, outermost first. It is None if
    none is at work, or it is one on the stack of the caller. `age_s` is as precise as `actors.base.spawn_log` is.

    `state_known` is False while a callback is at work: what it leaves behind in the middle of its work is not shown.
    `state` has passed through the server's `format_status`, and so has `pending`: of a state machine, what is postponed
    and which timeouts run (`PendingEvents`).
    """

    ref: Ref
    kind: Kind
    module: str
    names: tuple[Hashable, ...]
    parent: Ref | None
    children: int
    condition: Condition
    waiting: int
    mailbox_limit: int
    age_s: float
    callback: str | None
    callback_s: float
    stack: tuple[str, ...]
    state_known: bool
    state: Any
    pending: Any
    statistics: Statistics | None


# The state


def get_status(address: Ref | Named, *, with_state: bool = True) -> ActorStatus:
    """What the actor is and does. At once, whatever it does; raises `NoProc`."""
    process = _alive(address)
    server = process.server if isinstance(process, ServerProcess) else None
    running = process.system.debug.running.get(process)
    state_known = isinstance(process, ServerProcess) and not process.at_work and process.status is Status.RUNNING
    shown = _formatted(process) if isinstance(process, ServerProcess) and state_known and with_state else None
    return ActorStatus(
        ref=process.ref,
        kind=_kind_of(process),
        module=_module_of(server),
        names=tuple(plain(key) for key, table in (process.names or {}).items() if table is process.system.registry),
        parent=None if process.parent is None else process.parent.ref,
        children=len(process.children or ()),
        condition=_condition_of(process),
        waiting=len(process.mailbox),
        mailbox_limit=process.accepts,
        age_s=_age_s(process),
        callback=None if running is None else running.callback,
        callback_s=0.0 if running is None else _now_s(process) - running.since_s,
        stack=() if running is None else running.stack(),
        state_known=state_known,
        state=None if shown is None else shown.state,
        pending=None if shown is None else shown.pending,
        statistics=_statistics_of(process),
    )


async def get_state(address: Ref | Named, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Any:
    """The state itself, not a copy: change nothing in it."""
    return await _request(address, lambda process: process.state, timeout_s)


async def replace_state(
    address: Ref | Named, change: Callable[[Any], Any], timeout_s: float | None = DEFAULT_TIMEOUT_S
) -> Any:
    """Make `change(state)` the state; the new state. If `change` raises, so does this, and the state stays."""

    def replace(process: ServerProcess) -> Any:
        process.state = change(process.state)
        return process.state

    return await _request(address, replace, timeout_s)


# Holding it still


async def suspend(address: Ref | Named, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
    """Handle no message after those that wait now, until `resume`; once more changes nothing.

    Messages are kept, within the bound of the mailbox, and time continues: calls time out. Exit signals of the parent,
    `stop`, `kill` and the functions of this module work as ever.
    """
    await _request(address, lambda process: process.suspend(), timeout_s)


async def resume(address: Ref | Named, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
    """Handle messages again, beginning with those that were kept."""
    await _request(address, lambda process: process.resume(), timeout_s)


async def terminate(address: Ref | Named, reason: Reason = NORMAL, timeout_s: float | None = None) -> None:
    """End it with `reason`, as `Ref.stop` does, on any node: its supervisor decides what comes of that."""
    ref = address if isinstance(address, Ref) else address.ref
    if ref is None:
        raise NoProc(str(address))
    await ref.stop(reason, timeout_s)


# Watching it


def trace(address: Ref | Named, limit: int = 1024) -> ActorTrace:
    """Record what it is sent and what it answers, from its next message on; see `ActorTrace`. There may be several."""
    process = _server(address)
    debug = process.system.debug

    def untrace(trace: ActorTrace) -> None:
        process.require_loop()
        probe = debug.probe_of(process)
        if probe is not None:
            probe.untrace(trace)
            debug.release(process)

    return debug.probe(process).trace(limit, untrace)


def start_log(address: Ref | Named, last: int = 10) -> None:
    """Keep the `last` events from now on, for `get_log`; a log that is kept already continues with this many."""
    process = _server(address)
    probe = process.system.debug.probe(process)
    probe.log = deque(probe.log or (), maxlen=last)


def get_log(address: Ref | Named) -> list[TraceEvent]:
    """The events that are kept, oldest first; none without `start_log`."""
    probe = _watched(_alive(address))
    return [] if probe is None or probe.log is None else list(probe.log)


def stop_log(address: Ref | Named) -> None:
    """Keep no events any more."""
    process = _server(address)
    probe = _watched(process)
    if probe is not None:
        probe.log = None
        process.system.debug.release(process)


def start_statistics(address: Ref | Named) -> None:
    """Count from now on, from zero."""
    process = _server(address)
    process.system.debug.probe(process).counts = Counts(_now_s(process))


def get_statistics(address: Ref | Named) -> Statistics | None:
    """What has been counted; None without `start_statistics`."""
    return _statistics_of(_alive(address))


def stop_statistics(address: Ref | Named) -> None:
    """Count no more, and forget what was counted."""
    process = _server(address)
    probe = _watched(process)
    if probe is not None:
        probe.counts = None
        process.system.debug.release(process)


def no_debug(address: Ref | Named) -> None:
    """End every trace, log and statistics of it."""
    process = _server(address)
    probe = _watched(process)
    if probe is not None:
        probe.silence()
        process.system.debug.release(process)


# Inside


class OnAnotherNode(Exit):
    """The actor is not on this node, and only its own can look into it."""

    def __init__(self, actor: str) -> None:
        super().__init__("on_another_node", actor)

    def _sentence(self) -> str:
        return f"{self.actor} is on another node: look into it there, or from outside with `baton observe`"


def _alive(address: Ref | Named) -> Process:
    ref = address if isinstance(address, Ref) else address.ref
    if ref is None or not ref.alive:
        raise NoProc(str(address))
    ref.process.require_loop()
    if ref.node != ref.process.system.name:
        raise OnAnotherNode(str(ref))
    return ref.process


def _server(address: Ref | Named) -> ServerProcess:
    process = _alive(address)
    if not isinstance(process, ServerProcess):
        raise Exit("not_a_server", str(process.ref))
    return process


async def _request(address: Ref | Named, action: Callable[[ServerProcess], Any], timeout_s: float | None) -> Any:
    process = _alive(address)
    if process.waits_for_this_task():
        raise CallingSelf(str(process.ref))
    caller = From(process)
    process.submit_system(SystemRequest(action, caller))
    answer = await caller.wait(timeout_s)
    if isinstance(answer, RequestFailed):
        raise answer.error
    return answer


def _watched(process: Process) -> Any:
    return process.system.debug.probe_of(process)


def _now_s(process: Process) -> float:
    return process.system.scheduler.clock_s()


def _age_s(process: Process) -> float:
    return _now_s(process) - process.system.started_s(process.pid)


def _condition_of(process: Process) -> Condition:
    return "suspended" if process in process.system.debug.suspended else _CONDITIONS[process.status]


def _kind_of(process: Process) -> Kind:
    if isinstance(process, ServerProcess):
        # Supervisors are those that can be asked for their children.
        return "supervisor" if callable(getattr(process.server, "which_children", None)) else "server"
    return "task" if isinstance(process, TaskProcess) else "service"


def _module_of(server: Any) -> str:
    if server is None:
        return ""
    kind = getattr(server, "server", server).callback_class
    return f"{kind.__module__}.{kind.__qualname__}"


def _formatted(process: ServerProcess) -> ServerStatus:
    return formatted(process.server, ServerStatus(process.state))


def _statistics_of(process: Process) -> Statistics | None:
    probe = _watched(process)
    if probe is None or probe.counts is None:
        return None
    counts = probe.counts
    return Statistics(
        counted_s=_now_s(process) - counts.since_s,
        messages_in=counts.messages_in,
        messages_out=counts.messages_out,
        callback_s=counts.callback_s,
        waiting=len(process.mailbox),
        age_s=_age_s(process),
    )
