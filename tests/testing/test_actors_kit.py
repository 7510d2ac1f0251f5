"""The kit for tests of actors: what it finds, what it does not, and that nothing is left of a test."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import ANY

import pytest
import trio

from batonpass.actors import (
    IGNORE,
    ActorSpec,
    Down,
    ExitSignal,
    From,
    NoProc,
    Reply,
    Restart,
    Server,
    StartError,
    SupervisorError,
)
from batonpass.testing.actors import ActorKit, ProbeCalled, ProbeCast, actor_test


class Echo(Server[Any]):
    """Says again what it is told, to whom it was started with."""

    trap_exit = True

    def handle_info(self, message: Any, state: Any) -> None:
        state.send(message)

    def handle_cast(self, message: Any, state: Any) -> None:
        raise ValueError(message)

    def handle_call(self, request: Any, from_: From, state: Any) -> Reply[Any]:
        return Reply(request)

    def terminate(self, reason: object, state: Any) -> None:
        state.send(("ended", self.ref.pid, reason))


@actor_test
async def test_the_first_that_fits_is_taken_and_those_before_it_stay(kit: ActorKit) -> None:
    probe = kit.probe
    for message in ("a", 1, ("said", "anna", "hello"), "b", 2):
        probe.ref.send(message)
    assert await probe.assert_receive(("said", ANY, "hello")) == ("said", "anna", "hello")
    assert await probe.assert_receive(int) == 1
    assert await probe.assert_receive(lambda message: message in {"b", "c"}) == "b"
    assert probe.mailbox == ["a", 2]
    assert probe.assert_received("a") == "a"
    probe.refute_received("a")
    await probe.refute_receive(str)
    assert probe.mailbox == [2]


@actor_test
async def test_waiting_takes_no_time(kit: ActorKit) -> None:
    began_s, began_here_s = time.monotonic(), trio.current_time()
    kit.system.timers.send_after(3600.0, kit.probe.ref, "later")
    await kit.probe.refute_receive("later", timeout_s=3000.0)
    await kit.probe.assert_receive("later", timeout_s=3000.0)
    assert trio.current_time() - began_here_s == 3600.0
    assert time.monotonic() - began_s < 60.0


@actor_test
async def test_what_did_not_come_is_said_with_what_did(kit: ActorKit) -> None:
    probe = kit.probe
    with pytest.raises(AssertionError, match=r"nothing came that fits 'a'; there is:\n  nothing"):
        await probe.assert_receive("a")
    probe.ref.send(("b", 1))
    with pytest.raises(AssertionError, match=r"nothing came that fits Down; there is:\n  \('b', 1\)"):
        await probe.assert_receive(Down)
    with pytest.raises(AssertionError, match=r"\('b', 1\) came, which fits \('b', <ANY>\)"):
        await probe.refute_receive(("b", ANY))
    began_s = trio.current_time()
    kit.system.timers.send_after(1.0, probe.ref, "c")
    with pytest.raises(AssertionError, match="'c' came"):
        await probe.refute_receive("c", timeout_s=60.0)
    assert trio.current_time() - began_s == 1.0, "as soon as it came"
    wrong: Any = "1"
    with pytest.raises(TypeError, match="timeout_s of assert_receive"):
        await probe.assert_receive("a", timeout_s=wrong)


@actor_test
async def test_a_probe_is_called_cast_to_and_linked(kit: ActorKit) -> None:
    probe = kit.probe
    probe.ref.cast("x")
    assert await probe.assert_receive(ProbeCast("x")) == ProbeCast("x")
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            answers.append(await probe.ref.call("what?", None))

        nursery.start_soon(ask)
        called = await probe.assert_receive(ProbeCalled)
        assert called.request == "what?"
        assert answers == []
        called.from_.reply(42)
    assert answers == [42]
    echo = await kit.system.start(Echo, probe.ref)
    probe.monitor(echo)
    probe.ref.link(echo)
    echo.kill()
    assert (await probe.assert_receive(Down)).reason == "killed"
    assert (await probe.assert_receive(ExitSignal)).sender is echo


@actor_test
async def test_children_are_restarted_and_stopped(kit: ActorKit) -> None:
    echo = await kit.start_supervised(Echo, kit.probe.ref, id="echo", name="echo")
    for _ in range(10):
        kit.system.named("echo").cast("crash")
        await kit.settle()
        assert await kit.system.named("echo").call("again") == "again"
    assert not echo.alive
    await kit.stop_supervised("echo")
    with pytest.raises(NoProc):
        await kit.system.named("echo").call("again")
    with pytest.raises(SupervisorError):
        await kit.stop_supervised("nobody")
    once = await kit.start_supervised(ActorSpec("once", Echo, kit.probe.ref, restart=Restart.TEMPORARY))
    once.cast("crash")
    assert isinstance(await once.exited(), ValueError)
    with pytest.raises(StartError):
        await kit.start_supervised(lambda: Refusing("no"))
    with pytest.raises(ValueError, match="has chosen not to run"):
        await kit.start_supervised(lambda: Refusing(IGNORE))


class Refusing(Server[Any]):
    """Does not start, in one way or another."""

    def __init__(self, how: Any) -> None:
        self._how = how

    def init(self, arg: Any) -> Any:
        if self._how is IGNORE:
            return IGNORE
        raise ValueError(self._how)


def test_children_end_with_the_test_last_one_first() -> None:
    told: list[Any] = []

    class Telling(Server[str]):
        trap_exit = True

        def terminate(self, reason: object, state: str) -> None:
            told.append((state, reason))

    @actor_test
    async def test(kit: ActorKit) -> None:
        await kit.start_supervised(Telling, "first")
        await kit.start_supervised(Telling, "second")

    test()
    assert told == [("second", "shutdown"), ("first", "shutdown")]


def test_what_a_test_raises_is_raised_as_it_is() -> None:
    error = AssertionError("not so")

    @actor_test
    async def test_it(kit: ActorKit) -> None:
        raise error

    with pytest.raises(AssertionError) as caught:
        test_it()
    assert caught.value is error
    assert test_it.__name__ == "test_it"
