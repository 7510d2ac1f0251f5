"""The recorded lines about state machines: what the scripts of `tests.actors.machines` do not ask of gen_statem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from batonpass.actors import (
    HIBERNATE,
    IGNORE,
    ActorSpec,
    BadReturnValue,
    Exit,
    ExitSignal,
    From,
    Ref,
    StartError,
    Stop,
    SupervisorSpec,
    System,
)
from batonpass.actors.machines import (
    POSTPONE,
    CallEvent,
    CastEvent,
    EnterEvent,
    EventTimeout,
    FirstState,
    InfoEvent,
    InternalEvent,
    KeepState,
    MachineEvent,
    NamedTimeout,
    NextEvent,
    NextState,
    PendingEvents,
    ReplyTo,
    StartTimeout,
    StateMachine,
    StateTimeout,
    UpdateTimeout,
)
from batonpass.actors.observe import sys
from tests.actors.oracle.lines import Raw, called, oracle, reason_in_elixir, started
from tests.actors.oracle.subjects import end_of, settled

Work = Callable[["Scripted"], Any]


class Scripted(StateMachine[Any, list[Any]]):
    """Does what it is given: `init` a function, and then each cast and call one. Its data are what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def init(self, arg: Work) -> Any:
        return arg(self)

    def handle_event(self, event: MachineEvent, state: Any, data: list[Any]) -> Any:
        match event:
            case CallEvent("?", from_):
                return KeepState(actions=[ReplyTo(from_, (state, data))])
            case CallEvent(work, from_) if callable(work):
                return work(from_)
            case CastEvent(work) if callable(work):
                return work(self)
            case _:
                return KeepState([*data, _named(event)])

    def terminate(self, reason: object, state: tuple[Any, list[Any]]) -> None:
        self.told.append(("terminated", reason, state[0]))


def _named(event: MachineEvent) -> tuple[str, Any]:
    match event:
        case StateTimeout(content):
            return "state_timeout", content
        case EventTimeout(content):
            return "timeout", content
        case NamedTimeout(name, content):
            return str(name), content
        case InternalEvent(content):
            return "internal", content
        case CastEvent(content):
            return "cast", content
        case InfoEvent(content):
            return "info", content
        case _:
            raise TypeError(event)


class Entering(StateMachine[str, Callable[[], Any]]):
    """Does at each enter call what it was started with."""

    state_enter = True

    def init(self, arg: Callable[[], Any]) -> Any:
        return FirstState("a", arg)

    def handle_event(self, event: MachineEvent, state: str, data: Callable[[], Any]) -> Any:
        match event:
            case EnterEvent():
                return data()
            case CallEvent(_, from_):
                return KeepState(actions=[ReplyTo(from_, state)])
            case _:
                return None


async def machine(system: System, state: Any = "a", *, told: list[Any] | None = None) -> Ref:
    def begin(self: Scripted) -> Any:
        if told is not None:
            self.told = told
        return FirstState(state, [])

    return await system.start(Scripted, begin)


async def did(ref: Ref, *results: Any, after_s: float = 0.03) -> Any:
    """What it was told, after it has answered so to one cast after the other, and a moment has passed."""
    for result in results:
        ref.cast(lambda machine, result=result: result(machine) if callable(result) else result)
    await trio.sleep(after_s)
    _, told = await ref.call("?")
    return told


async def end_by(system: System, work: Any) -> Any:
    """How one ends that answers a cast so; `"lives"` if it does not."""
    ref = await machine(system)
    reason = await end_of(ref, lambda: ref.cast(work if callable(work) else lambda machine: work))
    return "lives" if reason == "alive" else reason


def boom(_machine: Any = None) -> Any:
    raise RuntimeError("boom")


async def answer(system: System, work: Callable[[From], Any], timeout_s: float | None = None) -> Any:
    return await (await machine(system)).call(work, timeout_s)


async def exit_of(system: System, work: Callable[[From], Any], timeout_s: float | None = None) -> Any:
    how, (why, _) = await called(answer(system, work, timeout_s))
    return how, why


# How it begins


@oracle("statem: init stops", "{:error, :cfg}")
async def init_stops(system: System) -> Any:
    return await started(system.start(Scripted, lambda machine: Stop("cfg")))


@oracle("statem: init ignores", ":ignore")
async def init_ignores(system: System) -> Any:
    return await started(system.start(Scripted, lambda machine: IGNORE))


@oracle("statem: init raises", '{:error, %RuntimeError{message: "boom"}}')
async def init_raises(system: System) -> Any:
    how, (why, _) = await started(system.start(Scripted, boom))
    return how, why


@oracle("statem: init returns nonsense", "{:error, :nonsense}")
async def init_nonsense(system: System) -> Any:
    with pytest.raises(StartError) as caught:
        await system.start(Scripted, lambda machine: "nonsense")
    assert isinstance(caught.value.reason, BadReturnValue)
    return "error", caught.value.reason.value


@oracle(
    "statem: actions of init, and a message from before",
    "{:a, [internal: :one, internal: :two, state_timeout: :now, info: :early]}",
)
async def init_actions(system: System) -> Any:
    def begin(machine: Scripted) -> Any:
        machine.ref.send("early")
        events = [NextEvent(InternalEvent("one")), NextEvent(InternalEvent("two"))]
        return FirstState("a", [], [*events, StartTimeout(0, StateTimeout("now"))])

    return await (await system.start(Scripted, begin)).call("?")


@oracle("statem: init with postpone and hibernate", "{:a, []}")
async def init_postpones(system: System) -> Any:
    return await (await system.start(Scripted, lambda machine: FirstState("a", [], [POSTPONE, HIBERNATE]))).call("?")


# How it ends


@oracle("statem: result stop", ":normal")
async def stops(system: System) -> Any:
    return await end_by(system, Stop("normal"))


@oracle("statem: result stop with a reason", ":boom")
async def stops_with_reason(system: System) -> Any:
    return await end_by(system, Stop("boom"))


@oracle("statem: a callback raises", "{:raised, RuntimeError}")
async def raises(system: System) -> Any:
    return "raised", Raw(type(await end_by(system, boom)).__name__)


@oracle("statem: what is told of result stop with a reason", "[{:terminated, :shutdown, :a}]")
async def stop_told(system: System) -> Any:
    told: list[Any] = []
    (await machine(system, told=told)).cast(lambda machine: Stop("shutdown", [1]))
    await settled()
    return told


@oracle("statem: result stop_and_reply: what its caller gets", ":bye")
async def stop_and_reply(system: System) -> Any:
    return await answer(system, lambda from_: Stop("normal", reply="bye"))


@oracle("statem: result stop without a reply: what its caller gets", "{:exit, :boom}")
async def stop_without_reply(system: System) -> Any:
    return await exit_of(system, lambda from_: Stop("boom"))


@oracle("statem: it ends while a call is postponed: what its caller gets", "{:exit, :boom}")
async def ends_postponed(system: System) -> Any:
    ref = await machine(system)
    outcome: list[Any] = []

    async def ask() -> None:
        how, (why, _) = await called(ref.call(lambda from_: KeepState(actions=[POSTPONE]), None))
        outcome.append((how, why))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await settled()
        ref.cast(lambda machine: Stop("boom"))
    return outcome[0]


@oracle("statem: stop from outside, and what is told", "{:ok, [{:terminated, :normal, :a}]}")
async def stopped(system: System) -> Any:
    told: list[Any] = []
    await (await machine(system, told=told)).stop()
    return "ok", told


async def dead(system: System) -> Ref:
    ref = await machine(system)
    ref.kill()
    return ref


@oracle("statem: stop from outside of one that has ended", "{:exit, :noproc}")
async def stop_dead(system: System) -> Any:
    try:
        await (await dead(system)).stop()
    except Exit as error:
        return "exit", error.reason


@oracle("statem: call of one that has ended", "{:exit, :noproc}")
async def call_dead(system: System) -> Any:
    how, (why, _) = await called((await dead(system)).call("?"))
    return how, why


@oracle("statem: cast to one that has ended", ":ok")
async def cast_dead(system: System) -> Any:
    (await dead(system)).cast("x")
    return "ok"


def names(reason: Any) -> Any:
    """What a reason says that it could make nothing of."""
    return ("names", reason.value) if isinstance(reason, BadReturnValue) else reason_in_elixir(reason)


@oracle("statem: a result that means nothing", "{:names, :nonsense}")
async def bad_result(system: System) -> Any:
    return names(await end_by(system, "nonsense"))


@oracle("statem: an action that means nothing", "{:names, :nonsense}")
async def bad_action(system: System) -> Any:
    nonsense: Any = "nonsense"
    return names(await end_by(system, KeepState(actions=[nonsense])))


async def inserted(system: System, event: Any) -> Any:
    reason = await end_by(system, lambda machine: KeepState(actions=[NextEvent(event)]))
    return "ends" if isinstance(reason, TypeError) else reason


@oracle("statem: an event of an unknown kind is inserted", ":ends")
async def inserted_nonsense(system: System) -> Any:
    return await inserted(system, ("nonsense", 1))


@oracle("statem: an enter call is inserted", ":ends")
async def inserted_enter(system: System) -> Any:
    return await inserted(system, EnterEvent("a"))


async def entered(system: System, work: Callable[[], Any]) -> Any:
    ref = await system.start(Entering, work)
    await settled()
    return await ref.call("state?") if ref.alive else ref.process.reason


@oracle("statem: the first enter call goes on to another state", ":b")
async def enter_goes_on(system: System) -> Any:
    _, result = names(await entered(system, lambda: NextState("b")))
    return result.state


@oracle("statem: the first enter call postpones", "{:names, :postpone}")
async def enter_postpones(system: System) -> Any:
    said, action = names(await entered(system, lambda: KeepState(actions=[POSTPONE])))
    return said, action.value


@oracle("statem: the first enter call inserts an event", ":ends")
async def enter_inserts(system: System) -> Any:
    reason = await entered(system, lambda: KeepState(actions=[NextEvent(InternalEvent(1))]))
    return "ends" if isinstance(reason, BadReturnValue) else reason


@oracle("statem: the first enter call stops", ":boom")
async def enter_stops(system: System) -> Any:
    return await entered(system, lambda: Stop("boom"))


@oracle("statem: the first enter call goes on to the same state", ":a")
async def enter_stays(system: System) -> Any:
    return await entered(system, lambda: NextState("a"))


def trapping(machine: Scripted) -> None:
    machine.trap_exit = True


@oracle("statem: an EXIT of another, trapping", ":boom")
async def exit_of_another(system: System) -> Any:
    ref, other = await machine(system), await machine(system)
    ref.cast(trapping)
    ref.cast(lambda machine: machine.link(other))
    await settled()
    other.exit("boom")
    await settled()
    _, [(kind, signal)] = await ref.call("?")
    assert (kind, signal.sender) == ("info", other)
    assert isinstance(signal, ExitSignal)
    return signal.reason


@oracle("statem: the parent ends it, trapping: what is told", "[{:terminated, :shutdown, :a}]")
async def exit_of_parent(system: System) -> Any:
    told: list[Any] = []

    def begin(machine: Scripted) -> Any:
        machine.told = told
        machine.trap_exit = True
        return FirstState("a", [])

    await system.start_child(SupervisorSpec("parent", [ActorSpec("machine", Scripted, begin)], name="parent"))
    await system.named("parent").stop("shutdown")
    return told


# Events


def with_message(result: Any) -> Any:
    def work(machine: Scripted) -> Any:
        machine.ref.send("message")
        return result

    return work


@oracle("statem: a timeout of no time and a message that has come", "[state_timeout: :x, info: :message]")
async def no_time(system: System) -> Any:
    return await did(await machine(system), with_message(KeepState(actions=[StartTimeout(0, StateTimeout("x"))])))


@oracle("statem: an absolute timeout of the past and a message that has come", "[info: :message, state_timeout: :x]")
async def absolute_past(system: System) -> Any:
    timeout = StartTimeout(trio.current_time() - 0.005, StateTimeout("x"), absolute=True)
    return await did(await machine(system), with_message(KeepState(actions=[timeout])))


def timeouts(delay_s: float | None) -> Any:
    return KeepState(actions=[StartTimeout(delay_s, StateTimeout("x")), StartTimeout(delay_s, NamedTimeout("t", "y"))])


@oracle("statem: timeouts that run and are started anew for ever", "[]")
async def for_ever(system: System) -> Any:
    return await did(await machine(system), timeouts(0.03), timeouts(None), after_s=0.08)


@oracle("statem: a timeout that was started for ever is updated", "[state_timeout: :y]")
async def for_ever_updated(system: System) -> Any:
    update = KeepState[list[Any]](actions=[UpdateTimeout(StateTimeout("y"))])
    return await did(await machine(system), KeepState(actions=[StartTimeout(None, StateTimeout("x"))]), update)


@oracle("statem: a timeout whose time is over while it is suspended", "[state_timeout: :x, cast: :later]")
async def while_suspended(system: System) -> Any:
    ref = await machine(system)
    await did(ref, KeepState(actions=[StartTimeout(0.02, StateTimeout("x"))]), after_s=0)
    await sys.suspend(ref)
    await trio.sleep(0.06)
    ref.cast("later")
    await sys.resume(ref)
    _, told = await ref.call("?")
    return told


async def kept(system: System, before: Any, after: Any) -> Any:
    start = KeepState[list[Any]](actions=[StartTimeout(0.03, StateTimeout("kept"))])
    return await did(await machine(system, before), start, NextState(after, []), after_s=0.06)


@oracle("statem: state 1 becomes 1.0: its timeout", "[]")
async def one_and_one(system: System) -> Any:
    return await kept(system, 1, 1.0)


@oracle("statem: state {:at, 1} becomes {:at, 1.0}: its timeout", "[]")
async def one_and_one_inside(system: System) -> Any:
    return await kept(system, ("at", 1), ("at", 1.0))


@oracle("statem: state {:at, 1} becomes {:at, 1}: its timeout", "[state_timeout: :kept]")
async def equal_states(system: System) -> Any:
    return await kept(system, ("at", 1), ("at", int("1")))


@oracle(
    "statem: timeouts and messages that are inserted as events",
    "[state_timeout: :x, t: :y, timeout: :z, info: :w]",
)
async def inserted_events(system: System) -> Any:
    events = (StateTimeout("x"), NamedTimeout("t", "y"), EventTimeout("z"), InfoEvent("w"))
    return await did(await machine(system), KeepState(actions=[NextEvent(event) for event in events]))


@oracle("statem: a call that is inserted as an event, and answered there", ":answered")
async def inserted_call(system: System) -> Any:
    def later(from_: From) -> Any:
        return KeepState(actions=[ReplyTo(from_, "answered")])

    return await answer(system, lambda from_: KeepState(actions=[NextEvent(CallEvent(later, from_))]))


@oracle("statem: answered twice: what its caller gets", "1")
async def answered_twice(system: System) -> Any:
    return await answer(system, lambda from_: KeepState(actions=[ReplyTo(from_, 1), ReplyTo(from_, 2)]))


@oracle("statem: answered by another process", ":other")
async def answered_by_another(system: System) -> Any:
    async with trio.open_nursery() as nursery:

        async def reply(from_: From) -> None:
            await trio.sleep(0.01)
            from_.reply("other")

        return await answer(system, lambda from_: nursery.start_soon(reply, from_))


@oracle("statem: a call that times out, and what is left when it is answered", "{{:exit, :timeout}, []}")
async def answered_late(system: System) -> Any:
    async with trio.open_nursery() as nursery:

        async def reply(from_: From) -> None:
            await trio.sleep(0.02)
            from_.reply("late")

        return await exit_of(system, lambda from_: nursery.start_soon(reply, from_), 0.005), []


# sys


@oracle("statem: get_state", "{:a, []}")
async def get_state(system: System) -> Any:
    return await sys.get_state(await machine(system))


@oracle("statem: replace_state", "{:b, [1]}")
async def replace_state(system: System) -> Any:
    return await sys.replace_state(await machine(system), lambda pair: ("b", [*pair[1], 1]))


@oracle(
    "statem: the state is replaced: what its timeout and the postponed do",
    "{:b, [state_timeout: :kept]}",
)
async def replaced(system: System) -> Any:
    ref = await machine(system)
    start = KeepState[list[Any]](actions=[StartTimeout(0.03, StateTimeout("kept"))])
    await did(ref, KeepState(actions=[POSTPONE]), start, after_s=0)
    await sys.replace_state(ref, lambda pair: ("b", pair[1]))
    await trio.sleep(0.06)
    return await ref.call("?")


async def with_pending(system: System) -> sys.ActorStatus:
    ref = await machine(system)
    timeouts = [StartTimeout(10.0, NamedTimeout("t", "x")), StartTimeout(10.0, StateTimeout("y"))]
    await did(ref, KeepState(actions=[POSTPONE, *timeouts]), after_s=0)
    return sys.get_status(ref)


@oracle("statem: what a status tells", "[:data, :postponed, :state, :timeouts]")
async def status(system: System) -> Any:
    told = await with_pending(system)
    state, data = told.state
    assert (state, data) == ("a", [])
    return sorted(["state", "data", *PendingEvents.__dataclass_fields__])


@oracle(
    "statem: what a status tells of postponed events and timeouts",
    "{1, [{:state_timeout, :y}, {{:timeout, :t}, :x}]}",
)
async def status_of_pending(system: System) -> Any:
    pending = (await with_pending(system)).pending
    kinds = {StateTimeout: "state_timeout", NamedTimeout: ("timeout", "t")}
    timeouts = sorted(((kinds[type(event)], event.content) for event in pending.timeouts), key=lambda one: one[1])
    return len(pending.postponed), timeouts[::-1]


@oracle("statem: hibernated, and then called", "{:a, []}")
async def hibernated(system: System) -> Any:
    ref = await machine(system)
    await did(ref, KeepState(actions=[HIBERNATE]))
    return await ref.call("?")
