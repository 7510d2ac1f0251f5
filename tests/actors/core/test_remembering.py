"""The reason of an end is what others may hold: nothing is done to it; and what an ended actor keeps holds no state."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors import Exit, From, Reply, Server, ServiceSpec, Stop, System, TaskSpec
from batonpass.actors.core.remembering import MAX_EXCEPTIONS, Memory
from tests.actors.servers import Recorder, Trapper


class Ending(Server[None]):
    """Ends with the exception that it is told of: returned, raised, or as the cause of another."""

    def init(self, arg: str) -> None:
        self.how = arg

    async def handle_call(self, request: Exception, from_: From, state: None) -> Any:
        await trio.lowlevel.checkpoint()
        return self.end(request)

    def handle_cast(self, message: Exception, state: None) -> Any:
        return self.end(message)

    def end(self, error: Exception) -> Any:
        match self.how:
            case "returned":
                return Stop(error)
            case "raised":
                raise error
            case _:
                raise RuntimeError("cannot tell of it") from error


async def fails() -> None:
    await trio.lowlevel.checkpoint()
    raise ValueError("boom")


HOW = ["returned", "raised", "as the cause"]


@pytest.mark.parametrize("how", HOW)
async def test_a_task_that_told_an_actor_of_its_exception_goes_on_when_the_actor_ends_with_it(
    system: System, how: str
) -> None:
    ref = await system.start(Ending, how)
    steps: list[object] = []
    try:
        await fails()
    except ValueError as error:
        steps.append(error.__traceback__)
        with pytest.raises(Exit):
            await ref.call(error)
        await trio.lowlevel.checkpoint()
        steps.append(error.__cause__)
    await trio.lowlevel.checkpoint()
    traceback: Any = steps[0]
    assert steps == [traceback, None]
    assert traceback.tb_frame.f_locals["steps"] is steps, "its variables are there, too"


@pytest.mark.parametrize("how", HOW)
async def test_an_actor_that_told_another_of_its_exception_goes_on_when_that_one_ends_with_it(
    system: System, how: str
) -> None:
    class Telling(Server[None]):
        async def handle_call(self, request: Any, from_: From, state: None) -> Any:
            for _ in range(3):
                try:
                    await fails()
                except ValueError as error:
                    told = await self.system.start(Ending, how)
                    told.cast(error)
                    await told.exited()
                    await trio.lowlevel.checkpoint()
            return Reply("went on")

    ref = await system.start(Telling)
    assert await ref.call("go", 5.0) == "went on"
    assert ref.alive


async def test_one_who_handles_the_reason_of_a_third_goes_on_when_another_ends_with_it(system: System) -> None:
    class Asking(Server[Any]):
        async def handle_call(self, careful: bool, from_: From, oracle: Any) -> Any:
            try:
                await self.ask(oracle)
            except ValueError:
                if not careful:
                    raise
                await self.both_have_it.wait()
                await trio.lowlevel.checkpoint()
                return Reply("no answer")

        async def ask(self, oracle: Any) -> None:
            try:
                await oracle.call(ValueError("bad question"))
            except Exit as ended:
                reason: Any = ended.reason
                raise reason from None

        both_have_it = trio.Event()

    oracle = await system.start(Ending, "raised")
    careful, careless = await system.start(Asking, oracle), await system.start(Asking, oracle)
    answers: list[Any] = []

    async def ask(ref: Any, is_careful: bool) -> None:
        try:
            answers.append(await ref.call(is_careful, 5.0))
        except Exit as error:
            answers.append(error.reason)
            Asking.both_have_it.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, careful, True)
        nursery.start_soon(ask, careless, False)
    assert "no answer" in answers
    assert [type(answer) for answer in answers if answer != "no answer"] == [ValueError]
    assert careful.alive
    assert not careless.alive


class State:
    """What an actor has in its hands, and must be free when it has ended."""


class Holding(Server[State]):
    """Fails with its state at hand, in one of the ways of a callback."""

    def init(self, arg: list[weakref.ref[State]]) -> State:
        state = State()
        arg.append(weakref.ref(state))
        return state

    def handle_call(self, request: Any, from_: From, state: State) -> Any:
        return self.waits(state) if request == "async" else self.fail(request, state)

    async def waits(self, state: State) -> Any:
        await trio.lowlevel.checkpoint()
        return self.fail("", state)

    def fail(self, how: str, state: State) -> Any:
        if how == "attribute":
            return state.nothing  # type: ignore[attr-defined]
        if how == "chained":
            try:
                raise KeyError("first")
            except KeyError as error:
                raise ValueError("second") from error
        if how == "group":
            raise ExceptionGroup("both", [ValueError("one"), KeyError("other")])
        raise ValueError("boom")


@pytest.fixture
def without_logs() -> Any:
    """The tests' own log keeps what it is told, with tracebacks."""
    logger = logging.getLogger("batonpass.actors")
    logger.disabled = True
    yield
    logger.disabled = False


@pytest.mark.parametrize("how", ["sync", "async", "attribute", "chained", "group"])
@pytest.mark.usefixtures("without_logs")
async def test_an_actor_that_has_crashed_keeps_nothing_of_its_state(system: System, how: str) -> None:
    kept: list[weakref.ref[State]] = []
    ref, linked = await system.start(Holding, kept), await system.start(Recorder)
    linked.link(ref)
    with pytest.raises(Exit):
        await ref.call(how)
    assert not linked.alive
    gc.collect()
    assert kept[0]() is None
    reason = await ref.exited()
    assert isinstance(reason, Exception)
    assert repr(reason) == repr(await linked.exited())


async def test_those_who_are_told_of_an_end_are_told_the_reason_itself(system: System) -> None:
    boom = ValueError("boom")
    heard: list[Any] = []
    ref, linked = await system.start(Ending, "raised"), await system.start(Trapper, heard)
    linked.link(ref)
    waited: list[object] = []

    async def wait() -> None:
        waited.append(await ref.exited())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Exit) as told:
            await ref.call(boom)
    assert waited == [boom]
    assert told.value.reason is boom
    await linked.call("done?")
    assert heard == [("info", boom)]
    later = await ref.exited()
    assert (type(later), str(later)) == (ValueError, "boom")


@pytest.mark.parametrize("kind", ["service", "system"])
async def test_what_a_start_fails_with_has_its_traceback(kind: str) -> None:
    async def serve(*, task_status: Any) -> None:
        raise ValueError("boom")

    with pytest.raises(Exception, match="boom") as caught:
        async with System.open("node", [ServiceSpec("s", serve)] if kind == "system" else []) as system:
            await system.start_child(ServiceSpec("s", serve))
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, ValueError):
        error = error.__cause__
    assert error is not None
    assert error.__traceback__ is not None


async def test_a_task_that_has_crashed_keeps_no_frames(system: System) -> None:
    ref = await system.start_child(TaskSpec("task", fails))
    assert ref is not None
    await ref.exited()
    reason = ref.process.reason
    assert isinstance(reason, ValueError)
    assert reason.__traceback__ is None


# The likeness itself


class Own(Exception):
    """Has a constructor, a slot and an attribute of its own."""

    __slots__ = ("slot",)

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.slot = first
        self.attribute = second

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nobody asks")

    __hash__ = None  # type: ignore[assignment]


def likeness(error: BaseException) -> Any:
    try:
        raise error
    except BaseException as raised:
        with Memory() as memory:
            like, again = memory.of(raised), memory.of(raised)
    assert like is again
    assert isinstance(like, BaseException)
    assert like is not error
    assert like.__traceback__ is None
    assert error.__traceback__ is not None
    return like


def decoding() -> Exception:
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("boom", 1),
    "OSError": lambda: OSError(2, "no such file", "name"),
    "SystemExit": lambda: SystemExit(3),
    "UnicodeDecodeError": decoding,
    "one of ours": lambda: Exit(ValueError("boom"), "<actor>"),
    "one of their own": lambda: Own(1, 2),
    "a group": lambda: ExceptionGroup("both", [ValueError("one"), Own(1, 2)]),
}


@pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS.keys())
def test_a_likeness_says_what_the_reason_says(make: Callable[[], BaseException]) -> None:
    error = make()
    error.add_note("a note")
    like = likeness(error)
    assert type(like) is type(error)
    assert (str(like), repr(like), like.__notes__) == (str(error), repr(error), ["a note"])


def test_a_likeness_has_all_that_the_reason_has() -> None:
    own = likeness(Own(1, 2))
    assert (own.slot, own.attribute, own.args) == (1, 2, ("1 and 2",))
    assert likeness(OSError(2, "no such file", "name")).filename == "name"
    ended = likeness(Exit(inner := ValueError("boom"), "<actor>"))
    assert ended.reason is ended.__cause__ is not inner
    try:
        try:
            raise KeyError("first")
        finally:
            raise ValueError("second")
    except ValueError as error:
        like = likeness(error)
    assert repr(like.__context__) == "KeyError('first')"


def test_reasons_that_are_no_exceptions_are_kept_as_they_are() -> None:
    with Memory() as memory:
        for reason in ("normal", ("shutdown", "x"), 5, reasons := [ValueError("in a list")]):
            assert memory.of(reason) is reason
        kept: Any = memory.of(("shutdown", reasons[0]))
    assert kept[0] == "shutdown"
    assert kept[1] is not reasons[0]
    assert repr(kept[1]) == repr(reasons[0])


def test_an_exception_that_nobody_can_make_is_kept_as_what_it_says() -> None:
    class Stubborn(ExceptionGroup[ValueError]):
        def __new__(cls) -> Stubborn:
            made = super().__new__(cls, "stubborn", [ValueError("x")])
            made.args = ()
            return made

    stubborn = Stubborn()
    assert str(likeness(stubborn)) == repr(stubborn)


@given(st.integers(1, 300), st.sampled_from(["cause", "reason", "context"]))
def test_of_a_long_chain_of_reasons_only_so_many_are_kept(length: int, by: str) -> None:
    error: Exception = ValueError("the first")
    for _ in range(length):
        if by == "reason":
            error = Exit(error, "<actor>")
        else:
            above = ValueError("above")
            if by == "cause":
                above.__cause__ = error
            else:
                above.__context__ = error
            error = above
    count, like = 0, likeness(error)
    while like is not None:
        assert like.__traceback__ is None
        count, like = count + 1, like.__cause__ or like.__context__
    assert count <= MAX_EXCEPTIONS + 1
