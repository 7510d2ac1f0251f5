"""How a server starts: `init`, in all the ways in which it may go on, wait or fail."""

from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    AlreadyStarted,
    Ignored,
    NoReply,
    Ref,
    Reply,
    Server,
    StartError,
    System,
)
from tests.actors.servers import Counter, Polite, Scripted, ignore, refuse


async def test_init_stop_makes_the_start_fail_with_its_reason(system: System) -> None:
    with pytest.raises(StartError) as caught:
        await system.start(Scripted, refuse)
    assert caught.value.reason == "cfg"


async def test_init_ignore_is_no_error_of_the_server(system: System) -> None:
    with pytest.raises(Ignored):
        await system.start(Scripted, ignore)
    assert len(system.actors()) == 1, "only the root supervisor"


async def test_init_raises_and_the_starter_gets_the_exception_as_cause(system: System) -> None:
    boom = RuntimeError("boom")

    def raises(_server: Server[Any]) -> Any:
        raise boom

    with pytest.raises(StartError) as caught:
        await system.start(Scripted, raises)
    assert caught.value.reason is boom
    assert caught.value.__cause__ is boom


async def test_a_start_that_fails_inside_init_is_the_reason_and_not_the_error(system: System) -> None:
    with pytest.raises(StartError) as caught:
        await system.start(Scripted, lambda server: server.system.start_nowait(Scripted, refuse))
    inner = caught.value.reason
    assert isinstance(inner, StartError)
    assert inner.reason == "cfg"


async def test_terminate_is_not_called_after_a_failed_init(system: System) -> None:
    happened: list[Any] = []

    class Failing(Polite):
        def init(self, arg: list[Any]) -> list[Any]:
            raise RuntimeError("boom")

    with pytest.raises(StartError):
        await system.start(Failing, happened)
    assert happened == []


async def test_a_failed_start_gives_its_name_back(system: System) -> None:
    with pytest.raises(StartError):
        await system.start(Scripted, refuse, name="n")
    assert system.whereis("n") is None


async def test_the_name_is_known_while_init_runs(system: System) -> None:
    seen: list[Ref | None] = []
    ref = await system.start(Scripted, lambda server: seen.append(server.system.whereis("me")), name="me")
    assert seen == [ref]


async def test_via_name_taken(system: System) -> None:
    first = await system.start(Counter, 0, name="n")
    with pytest.raises(AlreadyStarted) as caught:
        await system.start(Counter, 0, name="n")
    assert caught.value.ref is first
    assert await first.call("get") == 0


async def test_a_name_must_be_hashable(system: System) -> None:
    with pytest.raises(TypeError):
        await system.start(Counter, 0, name=["not", "hashable"])  # type: ignore[call-overload]  # the mistake under test
    assert len(system.actors()) == 1


async def test_the_start_waits_for_an_async_init(system: System, autojump_clock: trio.testing.MockClock) -> None:
    class Patient(Counter):
        async def init(self, arg: int) -> int:
            await trio.sleep(3)
            return arg

    began_s = trio.current_time()
    ref = await system.start(Patient, 7)
    assert trio.current_time() - began_s == 3
    assert await ref.call("get") == 7


async def test_an_async_init_may_time_out(system: System, autojump_clock: trio.testing.MockClock) -> None:
    class Stuck(Counter):
        async def init(self, arg: int) -> int:
            await trio.Event().wait()
            return arg

    with pytest.raises(StartError, match="timeout"):
        await system.start(Stuck, 0, timeout_s=1)
    assert len(system.actors()) == 1


async def test_an_async_init_ends_with_its_cancelled_starter(system: System) -> None:
    class Stuck(Counter):
        async def init(self, arg: int) -> int:
            await trio.Event().wait()
            return arg

    with trio.CancelScope() as scope:
        scope.cancel()
        await system.start(Stuck, 0, name="stuck")
    assert system.whereis("stuck") is None


async def test_an_async_init_that_raises_makes_the_start_fail(system: System) -> None:
    class Failing(Counter):
        async def init(self, arg: int) -> int:
            async with trio.open_nursery():
                raise RuntimeError("boom")

    with pytest.raises(StartError) as caught:
        await system.start(Failing, 0)
    assert isinstance(caught.value.reason, RuntimeError), "not the nursery's exception group"


async def test_a_killed_async_init_makes_the_start_fail(system: System) -> None:
    class Doomed(Counter):
        async def init(self, arg: int) -> int:
            self.ref.kill()
            await trio.Event().wait()
            return arg

    with pytest.raises(StartError, match="killed"):
        await system.start(Doomed, 0)


async def test_start_nowait_starts_from_a_plain_callback(system: System) -> None:
    parent = await system.start(Scripted, lambda server: None)
    child = await parent.call(lambda server, from_: Reply(server.system.start_nowait(Counter, 5)))
    assert await child.call("get") == 5


async def test_start_nowait_refuses_an_async_init(system: System) -> None:
    class Patient(Counter):
        async def init(self, arg: int) -> int:
            return arg

    with pytest.raises(StartError, match="async def"):
        system.start_nowait(Patient, 0)


async def test_anything_that_makes_a_server_can_be_started(system: System) -> None:
    class Configured(Counter):
        def __init__(self, step: int) -> None:
            self.step = step

        def handle_cast(self, message: Any, state: int) -> NoReply[int]:
            return NoReply(state + self.step)

    ref = await system.start(lambda: Configured(10), 0)
    ref.cast("up")
    assert await ref.call("get") == 10
