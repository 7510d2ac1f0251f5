"""State machines as actors: supervised, looked into, on other nodes; and what gen_statem was not asked about."""

import gc
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.actors import (
    HIBERNATE,
    IGNORE,
    ActorSpec,
    BadReturnValue,
    CallTimeout,
    Down,
    Exit,
    Ignored,
    MailboxFull,
    NoProc,
    Ref,
    StartError,
    Stop,
    System,
)
from batonpass.actors.machines import (
    POSTPONE,
    CallbackMode,
    CallEvent,
    CancelTimeout,
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
    ReplyTo,
    StartTimeout,
    StateMachine,
    StateTimeout,
    Transition,
    UpdateTimeout,
)
from batonpass.actors.observe import sys
from tests.actors.remote.nodes import show, two_nodes


class Door(StateMachine[str, int]):
    """Opens for its code, and locks itself after ten seconds."""

    def init(self, arg: int) -> FirstState[str, int]:
        return FirstState("locked", arg)

    def handle_event(self, event: MachineEvent, state: str, data: int) -> Transition[str, int]:
        match state, event:
            case "locked", CastEvent(code) if code == data:
                return NextState("open", actions=[StartTimeout(10.0, StateTimeout())])
            case "open", StateTimeout():
                return NextState("locked")
            case "locked", CallEvent("walk through", _):
                return KeepState(actions=[POSTPONE])
            case "open", CallEvent("walk through", from_):
                return KeepState(actions=[ReplyTo(from_, "through")])
            case _, CallEvent("state?", from_):
                return KeepState(actions=[ReplyTo(from_, state)])
            case _, CallEvent("break", _):
                raise ValueError("broken")
            case _, CastEvent("nonsense"):
                return "nonsense"  # type: ignore[return-value]  # on purpose
            case _:
                return None


class DoorByFunctions(StateMachine[str, int]):
    """The same, with a method for each state, which take their time."""

    callback_mode = CallbackMode.STATE_FUNCTIONS

    async def init(self, arg: int) -> FirstState[str, int]:
        await trio.lowlevel.checkpoint()
        return FirstState("locked", arg)

    async def locked(self, event: MachineEvent, data: int) -> Transition[str, int]:
        await trio.lowlevel.checkpoint()
        match event:
            case CastEvent(code) if code == data:
                return NextState("open", actions=[StartTimeout(10.0, StateTimeout())])
            case CallEvent("walk through", _):
                return KeepState(actions=[POSTPONE])
            case _:
                return self.anywhere(event, "locked")

    def open(self, event: MachineEvent, data: int) -> Transition[str, int]:
        match event:
            case StateTimeout():
                return NextState("locked")
            case CallEvent("walk through", from_):
                return KeepState(actions=[ReplyTo(from_, "through")])
            case _:
                return self.anywhere(event, "open")

    def anywhere(self, event: MachineEvent, state: str) -> Transition[str, int]:
        match event:
            case CallEvent("state?", from_):
                return KeepState(actions=[ReplyTo(from_, state)])
            case CallEvent("break", _):
                raise ValueError("broken")
            case _:
                return None


DOORS = pytest.mark.parametrize("door", [Door, DoorByFunctions])


@DOORS
async def test_a_door(system: System, autojump_clock: MockClock, door: type[StateMachine[str, int]]) -> None:
    ref = await system.start(door, 42)
    answers: list[str] = []
    async with trio.open_nursery() as nursery:

        async def walk() -> None:
            answers.append(await ref.call("walk through", None))

        nursery.start_soon(walk)
        await wait_all_tasks_blocked()
        ref.cast(41)
        assert (await ref.call("state?"), answers) == ("locked", [])
        ref.cast(42)
    assert answers == ["through"], "postponed until the door was open"
    await trio.sleep(9.0)
    assert await ref.call("state?") == "open", "other events do not end a state's timeout"
    await trio.sleep(2.0)
    assert await ref.call("state?") == "locked"


@DOORS
async def test_a_supervised_machine_begins_anew(autojump_clock: MockClock, door: type[StateMachine[str, int]]) -> None:
    async with System.open("house", [ActorSpec("door", door, 42, name="door")]) as system:
        named = system.named("door")
        named.cast(42)
        first = system.whereis("door")
        assert first is not None
        with pytest.raises(Exit, match="broken"):
            await named.call("break")
        await trio.sleep(0.1)
        assert system.whereis("door") is not first
        assert await named.call("state?") == "locked"
        await trio.sleep(20.0)
        assert await named.call("state?") == "locked", "the timeout of the former life went with it"


@DOORS
async def test_a_machine_is_looked_into_like_any_actor(
    system: System, autojump_clock: MockClock, door: type[StateMachine[str, int]]
) -> None:
    ref = await system.start(door, 42, name="door")
    assert await sys.get_state(ref) == ("locked", 42)
    assert sys.get_status(ref).module.endswith(door.__name__)
    await sys.suspend(ref)
    ref.cast(42)
    with pytest.raises(CallTimeout):
        await ref.call("state?", 0.1)
    await sys.resume(ref)
    assert await ref.call("state?") == "open"
    await sys.replace_state(ref, lambda pair: ("locked", pair[1] + 1))
    assert await ref.call("state?") == "locked"
    ref.cast(43)
    assert await sys.get_state(ref) == ("open", 43)
    sys.start_log(ref)
    await ref.call("state?")
    assert [event.callback for event in sys.get_log(ref)]


@DOORS
async def test_a_machine_on_another_node(autojump_clock: MockClock, door: type[StateMachine[str, int]]) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, door, 42)
        far = alpha.remote("beta").named("it")
        assert await far.call("state?") == "locked"
        answers: list[str] = []
        async with trio.open_nursery() as nursery:

            async def walk() -> None:
                answers.append(await far.call("walk through", None))

            nursery.start_soon(walk)
            await trio.sleep(1.0)
            assert answers == []
            far.cast(42)
        assert answers == ["through"]
        waiting: list[object] = []
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(Exit) as caught:
                    await far.call("walk through", None)
                waiting.append(type(caught.value))

            await trio.sleep(11.0)
            nursery.start_soon(wait)
            await trio.sleep(1.0)
            found = beta.whereis("it")
            assert found is not None
            found.kill()
        assert waiting, "a caller whose call is postponed is told of the end"


async def test_a_postponed_caller_is_told_of_the_end(system: System) -> None:
    ref = await system.start(Door, 42)
    async with trio.open_nursery() as nursery:

        async def walk() -> None:
            with pytest.raises(Exit) as caught:
                await ref.call("walk through", None)
            assert caught.value.reason == "boom"

        nursery.start_soon(walk)
        await wait_all_tasks_blocked()
        ref.exit("boom")


async def test_what_means_nothing_ends_the_machine_and_says_so(system: System) -> None:
    ref = await system.start(Door, 42)
    ref.cast("nonsense")
    reason = await ref.exited()
    assert isinstance(reason, BadReturnValue)
    assert "its state 'locked' returned 'nonsense'" in str(reason)


# What a start may be


class Scripted(StateMachine[Any, Any]):
    """Does what it is given: `init` a function, and then each cast one."""

    def init(self, arg: Callable[[Any], Any]) -> Any:
        return arg(self)

    def handle_event(self, event: MachineEvent, state: Any, data: Any) -> Any:
        match event:
            case CastEvent(work):
                return work(self)
            case CallEvent("?", from_):
                return KeepState(actions=[ReplyTo(from_, (state, data))])
            case CallEvent(work, from_):
                return work(self, from_)
            case _:
                data.append(event)
        return None


async def test_a_start_may_be_ignored_stopped_and_wrong(system: System) -> None:
    with pytest.raises(Ignored):
        await system.start(Scripted, lambda machine: IGNORE)
    with pytest.raises(StartError) as stopped:
        await system.start(Scripted, lambda machine: Stop("no"))
    assert stopped.value.reason == "no"
    with pytest.raises(StartError, match="init returned 'locked'"):
        await system.start(Scripted, lambda machine: "locked")
    with pytest.raises(StartError, match="has no init"):
        await system.start(type("Empty", (StateMachine,), {}))
    assert system.count == 1


async def test_the_first_enter_call_comes_after_the_start_and_before_any_message(system: System) -> None:
    told: list[Any] = []

    class Entering(StateMachine[str, None]):
        state_enter = True

        def init(self, arg: Ref | None) -> FirstState[str, None]:
            self.ref.cast("early")
            return FirstState("first", None)

        def handle_event(self, event: MachineEvent, state: str, data: None) -> Transition[str, None]:
            told.append((state, event))
            return None

    await system.start(Entering)
    await wait_all_tasks_blocked()
    assert told == [("first", EnterEvent("first")), ("first", CastEvent("early"))]


@pytest.mark.parametrize("state", [7, "terminate", "nowhere", "callback_mode"])
async def test_a_state_that_is_no_method_of_the_class_is_refused(system: System, state: Any) -> None:
    class Named(StateMachine[Any, None]):
        callback_mode = CallbackMode.STATE_FUNCTIONS

        def init(self, arg: Any) -> FirstState[Any, None]:
            return FirstState(arg, None)

    ref = await system.start(Named, state)
    with pytest.raises(Exit, match="state") as caught:
        await ref.call("?")
    assert isinstance(caught.value.reason, TypeError)
    assert repr(state) in str(caught.value.reason)


async def test_1_and_true_are_two_states(system: System) -> None:
    ref = await system.start(Scripted, lambda machine: FirstState(1, []))
    ref.cast(lambda machine: KeepState(actions=[StartTimeout(0.0, StateTimeout("kept"))]))
    ref.cast(lambda machine: NextState(1, actions=[StartTimeout(60.0, StateTimeout("lost"))]))
    ref.cast(lambda machine: NextState(True))
    assert await ref.call("?") == (True, [StateTimeout("kept")])
    assert (await sys.get_state(ref))[0] is True


# Timeouts


async def timed(system: System, *results: Any) -> tuple[Ref, list[Any]]:
    """A machine that has answered so to one cast after the other, and what else it is told."""
    told: list[Any] = []
    ref = await system.start(Scripted, lambda machine: FirstState("a", told))
    for result in results:
        ref.cast(lambda machine, result=result: result)
    await wait_all_tasks_blocked()
    return ref, told


async def test_a_timeout_may_be_absolute(system: System, autojump_clock: MockClock) -> None:
    at_s = trio.current_time() + 3.0
    _, told = await timed(system, KeepState(actions=[StartTimeout(at_s, NamedTimeout("n", 1), absolute=True)]))
    await trio.sleep(2.9)
    assert told == []
    await trio.sleep(0.2)
    assert told == [NamedTimeout("n", 1)]


async def test_timeouts_of_one_name_are_one_and_of_several_kinds_several(
    system: System, autojump_clock: MockClock
) -> None:
    def start(name: Any, delay_s: float) -> StartTimeout:
        return StartTimeout(delay_s, NamedTimeout(name, delay_s))

    actions = [start("n", 1.0), start("n", 2.0), start(1, 3.0), start(True, 4.0), start(("n", 1), 5.0)]
    _, told = await timed(system, KeepState(actions=actions), KeepState(actions=[CancelTimeout(NamedTimeout(1))]))
    await trio.sleep(10.0)
    assert told == [NamedTimeout("n", 2.0), NamedTimeout(True, 4.0), NamedTimeout(("n", 1), 5.0)]


async def test_a_timeout_that_is_started_anew_while_it_waits_runs_its_time(
    system: System, autojump_clock: MockClock
) -> None:
    # In OTP 25 such a one is lost: `loop_timeouts_register` keeps the mark of the one of no time.
    first: KeepState[Any] = KeepState(
        actions=[StartTimeout(0.0, NamedTimeout("n", "soon")), StartTimeout(0.0, NamedTimeout("m"))]
    )
    _, told = await timed(system, first)
    assert told == [NamedTimeout("n", "soon"), NamedTimeout("m")]

    class Restarting(StateMachine[str, list[Any]]):
        def init(self, arg: Any) -> FirstState[str, list[Any]]:
            both = [StartTimeout(0.0, NamedTimeout("m")), StartTimeout(0.0, NamedTimeout("n", "soon"))]
            return FirstState("a", told, both)

        def handle_event(self, event: MachineEvent, state: str, data: list[Any]) -> Transition[str, list[Any]]:
            data.append(event)
            if event == NamedTimeout("m"):
                return KeepState(actions=[StartTimeout(1.0, NamedTimeout("n", "later"))])
            return None

    told.clear()
    await system.start(Restarting)
    await trio.sleep(0.5)
    assert told == [NamedTimeout("m")]
    await trio.sleep(1.0)
    assert told == [NamedTimeout("m"), NamedTimeout("n", "later")]


async def test_a_timeout_whose_time_is_over_can_still_be_stopped(system: System, autojump_clock: MockClock) -> None:
    told: list[Any] = []

    class Slow(StateMachine[str, None]):
        def init(self, arg: None) -> FirstState[str, None]:
            return FirstState("a", None, [StartTimeout(1.0, NamedTimeout("n")), StartTimeout(1.0, StateTimeout())])

        async def handle_event(self, event: MachineEvent, state: str, data: None) -> Transition[str, None]:
            told.append(event)
            if event != CastEvent("slow"):
                return None
            await trio.sleep(5.0)  # both are in the mailbox now
            return NextState("b", actions=[CancelTimeout(NamedTimeout("n"))])

    ref = await system.start(Slow)
    ref.cast("slow")
    await trio.sleep(10.0)
    assert told == [CastEvent("slow")]


async def test_an_update_changes_what_comes_and_not_when(system: System, autojump_clock: MockClock) -> None:
    _, told = await timed(
        system,
        KeepState(actions=[StartTimeout(2.0, StateTimeout("old"))]),
        KeepState(actions=[UpdateTimeout(StateTimeout("new")), UpdateTimeout(EventTimeout("none runs"))]),
    )
    assert told == [EventTimeout("none runs")]
    await trio.sleep(1.9)
    assert told == [EventTimeout("none runs")]
    await trio.sleep(0.2)
    assert told == [EventTimeout("none runs"), StateTimeout("new")]


def test_timeouts_that_are_none_are_refused_where_they_are_made() -> None:
    start: Any = StartTimeout
    cancel: Any = CancelTimeout
    update: Any = UpdateTimeout
    with pytest.raises(TypeError, match="delay_s of a timeout must be a number of seconds, not '1'"):
        start("1", StateTimeout())
    for make, wrong in ((partial(start, 1.0), "x"), (update, StateTimeout), (cancel, "x")):
        with pytest.raises(TypeError, match="a timeout is a StateTimeout, an EventTimeout or a NamedTimeout"):
            make(wrong)


# The rest of an actor


async def test_a_machine_has_the_bound_of_its_class_and_hibernates(system: System, autojump_clock: MockClock) -> None:
    class Small(Scripted):
        mailbox_limit = 2
        hibernate_after_s = 10.0
        slept = 0

        def handle_hibernate(self, state: Any) -> None:
            type(self).slept += 1

    ref = await system.start(Small, lambda machine: FirstState("a", []))
    ref.cast(lambda machine: KeepState(actions=[HIBERNATE]))
    await wait_all_tasks_blocked()
    assert Small.slept == 1
    await sys.suspend(ref)
    for _ in range(5):
        ref.send("x")
    with pytest.raises(MailboxFull):
        await ref.call("?")
    await sys.resume(ref)
    await wait_all_tasks_blocked()
    assert (await ref.call("?"))[1] == [InfoEvent("x")] * 2
    await trio.sleep(30.0)
    assert Small.slept == 2


async def test_what_the_runtime_sends_are_events(system: System, autojump_clock: MockClock) -> None:
    told: list[Any] = []
    other = await system.start(Door, 1)

    def watch(machine: Scripted) -> FirstState[str, Any]:
        machine.trap_exit = True
        machine.monitor(other)
        machine.send_after(1.0, "later")
        return FirstState("a", told)

    ref = await system.start(Scripted, watch)
    other.kill()
    ref.exit("please")
    await trio.sleep(2.0)
    kinds = [type(event.message).__name__ for event in told]
    assert kinds == ["Down", "ExitSignal", "str"]
    assert isinstance(told[0].message, Down)
    assert ref.alive


async def test_terminate_is_given_state_and_data_and_an_answer_goes_with_the_end(system: System) -> None:
    ended: list[Any] = []

    class Ending(Scripted):
        def terminate(self, reason: object, state: tuple[Any, Any]) -> None:
            ended.append((reason, state))

    ref = await system.start(Ending, lambda machine: FirstState("a", 1))
    assert await ref.call(lambda machine, from_: Stop("normal", 2, "bye")) == "bye"
    assert await ref.exited() == "normal"
    assert ended == [("normal", ("a", 2))]
    with pytest.raises(NoProc):
        await ref.call("?")


async def test_a_long_chain_of_inserted_events_lets_others_have_their_turn(system: System) -> None:
    class Counting(StateMachine[str, int]):
        def init(self, arg: None) -> FirstState[str, int]:
            return FirstState("a", 0, [NextEvent(InternalEvent())])

        def handle_event(self, event: MachineEvent, state: str, data: int) -> Transition[str, int]:
            if event == InternalEvent():
                return KeepState(data + 1, [NextEvent(InternalEvent())])
            return Stop("normal")

    counting = await system.start(Counting)
    neighbour = await system.start(Scripted, lambda machine: FirstState("a", 0))
    for _ in range(20):
        assert await neighbour.call("?") == ("a", 0)
        await trio.lowlevel.checkpoint()
    assert counting.alive
    counting.kill()


async def test_a_machine_that_is_killed_at_any_moment_leaves_no_coroutine(system: System) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for turns in range(5):
            for _ in range(10):
                ref = await system.start(DoorByFunctions, 1)
                ref.cast(1)
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                ref.kill()
                await ref.exited()
        with pytest.raises(StartError, match="async def"):
            system.start_nowait(DoorByFunctions, 1)
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
