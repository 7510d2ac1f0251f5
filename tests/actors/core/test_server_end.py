"""How a server ends: `stop`, and `terminate` after whatever ended it."""

from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    CallingSelf,
    CallTimeout,
    Exit,
    From,
    NoProc,
    Server,
    System,
)
from tests.actors.servers import Counter, Polite, Scripted, Slow, expect_seconds


async def test_stop_lets_the_server_finish_its_mailbox_and_clean_up(system: System) -> None:
    happened: list[Any] = []
    ref = await system.start(Polite, happened)
    ref.send("before")
    await ref.stop("normal")
    assert happened == [("info", "before"), ("terminate", "normal")]
    assert not ref.alive


async def test_stop_of_an_ended_server_says_so(system: System) -> None:
    ref = await system.start(Counter, 0)
    await ref.stop()
    with pytest.raises(NoProc):
        await ref.stop()


async def test_stop_may_time_out_and_the_server_ends_later(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await system.start(Slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_seconds, ref, 4.0)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(CallTimeout):
            await ref.stop(timeout_s=1)
    assert await ref.exited() == "normal"


async def test_a_server_cannot_wait_for_its_own_stop(system: System) -> None:
    async def stop_myself(server: Server[Any], from_: From) -> Any:
        await server.ref.stop()

    ref = await system.start(Scripted, lambda server: None)
    with pytest.raises(Exit) as caught:
        await ref.call(stop_myself)
    assert isinstance(caught.value.reason, CallingSelf)


async def test_terminate_is_called_after_a_crash_with_its_reason(system: System) -> None:
    happened: list[Any] = []

    class Crashing(Polite):
        def handle_info(self, message: Any, state: list[Any]) -> None:
            raise message

    boom = ValueError("boom")
    ref = await system.start(Crashing, happened)
    ref.send(boom)
    assert await ref.exited() is boom
    assert happened == [("terminate", boom)]


async def test_an_exception_in_terminate_becomes_the_reason(system: System) -> None:
    class Clumsy(Counter):
        def terminate(self, reason: object, state: int) -> object:
            raise OSError("the disk is full")

    ref = await system.start(Clumsy, 0)
    ref.cast("normal")
    assert isinstance(await ref.exited(), OSError)


async def test_terminate_may_wait(system: System, autojump_clock: trio.testing.MockClock) -> None:
    happened: list[float] = []

    class Thorough(Counter):
        async def terminate(self, reason: object, state: int) -> None:
            await trio.sleep(2)
            happened.append(trio.current_time())

    ref = await system.start(Thorough, 0)
    began_s = trio.current_time()
    await ref.stop()
    assert happened == [began_s + 2]


async def test_a_server_that_is_cleaning_up_refuses_calls_with_its_reason(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Thorough(Counter):
        async def terminate(self, reason: object, state: int) -> None:
            await trio.sleep(2)

    ref = await system.start(Thorough, 0)
    ref.cast("going down")
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(Exit, match="going down"):
        await ref.call("get", timeout_s=None)
    assert ref.alive
    assert await ref.exited() == "going down"
