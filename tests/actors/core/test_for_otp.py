"""What docs/reference/actors-for-otp.md says that no other test is about: where Python and trio show through."""

from enum import Enum, auto
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import ActorSpec, Exit, From, Reply, Server, System
from tests.actors.servers import Counter, Recorder


class Failing(Server[None]):
    """Fails in a nursery: in one task for each exception that it is called with."""

    async def handle_call(self, request: tuple[Exception, ...], from_: From, state: None) -> Reply[None]:
        async def fail(error: Exception) -> None:
            raise error

        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            outer.start_soon(trio.lowlevel.checkpoint)
            for error in request:
                inner.start_soon(fail, error)
        return Reply("not reached")


async def test_one_failure_in_a_nursery_is_the_reason_itself(system: System) -> None:
    boom = ValueError("boom")
    failing = await system.start(Failing)
    with pytest.raises(Exit) as caught:
        await failing.call((boom,))
    assert caught.value.reason is boom
    assert caught.value.__cause__ is boom


async def test_several_failures_in_a_nursery_are_one_reason_with_all_of_them(system: System) -> None:
    failing = await system.start(Failing)
    with pytest.raises(Exit) as caught:
        await failing.call((ValueError("one"), KeyError("other")))
    reason = caught.value.reason
    assert isinstance(reason, ExceptionGroup)
    assert {type(error) for error in reason.exceptions} == {ValueError, KeyError}


async def test_a_deadline_inside_a_callback_is_the_callbacks_own_business(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Impatient(Server[int]):
        async def handle_call(self, request: float, from_: From, state: int) -> Reply[int]:
            with trio.move_on_after(1.0):
                await trio.sleep(request)
                return Reply("done", state + 1)
            return Reply("too slow", state + 1)

    impatient = await system.start(Impatient, 0)
    assert await impatient.call(0.5) == "done"
    assert await impatient.call(2.0) == "too slow"
    assert impatient.alive


async def test_a_message_is_the_same_object_on_both_sides(system: System) -> None:
    recorder = await system.start(Recorder)
    sent = ["as it was"]
    recorder.cast(sent)
    sent.append("changed")
    ((_, received),) = await recorder.call("what came?")
    assert received is sent


async def test_a_restart_begins_with_a_new_object(system: System) -> None:
    lives = list[Any]()

    class Remembering(Counter):
        def init(self, arg: int) -> int:
            lives.append(self)
            return arg

    await system.start_child(ActorSpec("a", Remembering, 7, name="a"))
    with pytest.raises(Exit):
        await system.named("a").call("raise")
    await trio.testing.wait_all_tasks_blocked()
    assert await system.named("a").call("get") == 7
    first, second = lives
    assert first is not second
    assert type(first) is type(second) is Remembering


class Why(Enum):
    TIRED = auto()


@pytest.mark.parametrize("reason", [Why.TIRED, ("tuple", 1), 7, ValueError("x")])
async def test_any_value_is_a_reason(system: System, reason: Any) -> None:
    counter = await system.start(Counter, 0)
    told: list[object] = []
    counter.process.watch(told.append)
    counter.exit(reason)
    assert told[0] is reason
    assert repr(await counter.exited()) == repr(reason)
