"""A system: the block it lives in, and how everything in it ends."""

from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    ActorSpec,
    Exit,
    RestartLimitReached,
    Server,
    ServiceSpec,
    StartError,
    Stop,
    SupervisorSpec,
    System,
)
from tests.actors.servers import Counter, Scripted, Trapper


async def test_children_run_for_the_length_of_the_block() -> None:
    async with System.open("node", [ActorSpec("c", Counter, 1, name="c")]) as system:
        ref = system.whereis("c")
        assert ref is not None
        assert await ref.call("get") == 1
        assert ref.node == "node"
    assert await ref.exited() == "shutdown"


async def test_the_tree_ends_in_reverse_order_then_loose_actors() -> None:
    happened: list[Any] = []

    class Child(Trapper):
        def __init__(self, name: str) -> None:
            self.name = name

        def terminate(self, reason: object, state: list[Any]) -> None:
            state.append(self.name)

    children = [
        ActorSpec("a", lambda: Child("a"), happened),
        SupervisorSpec("s", (ActorSpec("b", lambda: Child("b"), happened),)),
        ActorSpec("c", lambda: Child("c"), happened),
    ]
    async with System.open("node", children) as system:
        await system.start(lambda: Child("loose"), happened)
    assert happened == ["c", "b", "a", "loose"]


async def test_a_cancelled_block_still_ends_its_actors_in_order(autojump_clock: trio.testing.MockClock) -> None:
    happened: list[str] = []

    class Thorough(Trapper):
        async def terminate(self, reason: object, state: Any) -> None:
            await trio.sleep(2)
            happened.append("cleaned up")

    began_s = trio.current_time()
    with trio.move_on_after(1) as scope:
        async with System.open("node", [ActorSpec("a", Thorough, [])]):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert happened == ["cleaned up"]
    assert trio.current_time() == began_s + 3


async def test_an_exception_of_the_block_comes_out_as_it_is() -> None:
    boom = ValueError("boom")
    with pytest.raises(ValueError, match="boom") as caught:
        async with System.open("node", [ActorSpec("a", Counter, 0)]):
            raise boom
    assert caught.value is boom


async def test_a_crash_of_the_root_reaches_the_caller_unwrapped() -> None:
    async def block() -> None:
        async with System.open("node", [ActorSpec("c", Counter, 0, name="c")], max_restarts=0) as system:
            with pytest.raises(Exit):
                await system.named("c").call("raise")
            await trio.sleep_forever()

    with pytest.raises(RestartLimitReached) as caught:
        await block()
    assert caught.value.child_id == "c"
    assert isinstance(caught.value.__cause__, ValueError)


async def test_the_first_cause_is_not_lost_on_the_way_up() -> None:
    inner = SupervisorSpec("inner", (ActorSpec("c", Counter, 0, name="c"),), max_restarts=0)

    async def block() -> None:
        async with System.open("node", [inner], max_restarts=0) as system:
            system.named("c").cast("boom")
            await trio.sleep_forever()

    with pytest.raises(RestartLimitReached) as caught:
        await block()
    assert caught.value.child_id == "inner"
    cause = caught.value.__cause__
    assert isinstance(cause, RestartLimitReached)
    assert (cause.child_id, cause.reason) == ("c", "boom")


async def test_an_exception_of_the_block_on_top_of_a_crash_of_the_root_is_noted() -> None:
    async def block() -> None:
        async with System.open("node", [ActorSpec("c", Counter, 0, name="c")], max_restarts=0) as system:
            system.named("c").cast("boom")
            try:
                await trio.sleep_forever()
            except trio.Cancelled as cancelled:
                raise ValueError("and the block failed too") from cancelled

    with pytest.raises(RestartLimitReached) as caught:
        await block()
    assert any("and the block failed too" in note for note in caught.value.__notes__)


async def test_a_child_that_does_not_start_keeps_the_block_from_beginning() -> None:
    began: list[str] = []
    with pytest.raises(StartError, match="cfg"):
        async with System.open("node", [ActorSpec("c", Scripted, lambda server: Stop("cfg"))]):
            began.append("never")
    assert began == []


async def test_stopping_the_root_ends_the_block_quietly() -> None:
    async with System.open("node") as system:
        system.root.exit("ignored: supervisors trap exits")
        await system.root.stop("shutdown")
        await trio.sleep_forever()


async def test_killing_the_root_is_a_crash() -> None:
    async def block() -> None:
        async with System.open("node") as system:
            system.root.kill()
            await trio.sleep_forever()

    with pytest.raises(Exit, match="killed"):
        await block()


async def test_nothing_starts_while_the_system_ends() -> None:
    outcome: list[object] = []

    class Late(Trapper):
        def terminate(self, reason: object, state: Any) -> None:
            try:
                self.system.start_nowait(Counter, 0)
            except StartError as error:
                outcome.append(error.reason)

    async def serve(*, task_status: trio.TaskStatus[Any]) -> None:
        task_status.started()

    async with System.open("node", [ActorSpec("late", Late, [])]) as system:
        pass
    assert outcome == ["shutdown"]
    with pytest.raises(StartError, match="shutdown"):
        ServiceSpec("late", serve).start_nowait(system, system.root.process)


async def _expect_ctrl_c_through(interrupted: type[Server[None]]) -> None:
    systems: list[System] = []

    async def block() -> None:
        async with System.open("node", [ActorSpec("i", interrupted, name="i")]) as system:
            systems.append(system)
            system.named("i").cast("now")
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        await block()
    assert systems[0].actors() == []


async def test_ctrl_c_in_a_plain_callback_ends_the_system_and_reaches_the_caller() -> None:
    class Interrupted(Server[None]):
        def handle_cast(self, message: Any, state: None) -> None:
            raise KeyboardInterrupt

    await _expect_ctrl_c_through(Interrupted)


async def test_ctrl_c_in_an_async_callback_ends_the_system_and_reaches_the_caller() -> None:
    class Interrupted(Server[None]):
        async def handle_cast(self, message: Any, state: None) -> None:
            raise KeyboardInterrupt

    await _expect_ctrl_c_through(Interrupted)


async def test_ctrl_c_while_the_system_ends_ends_it_at_once(autojump_clock: trio.testing.MockClock) -> None:
    class Interrupted(Server[None]):
        trap_exit = True

        def terminate(self, reason: object, state: None) -> None:
            raise KeyboardInterrupt

    class Thorough(Server[None]):
        trap_exit = True

        async def terminate(self, reason: object, state: None) -> None:
            await trio.sleep(3600)

    children = [ActorSpec("i", Interrupted), ActorSpec("t", Thorough, shutdown_s=5.0)]
    with pytest.raises(KeyboardInterrupt):
        async with System.open("node", children):
            pass


async def test_stats_count_what_happened() -> None:
    async with System.open("node") as system:
        ref = await system.start(Counter, 0)
        for _ in range(10):
            ref.cast(1)
        assert await ref.call("get") == 10
        assert system.stats.actors == 2
        await trio.testing.wait_all_tasks_blocked()
        assert system.stats.messages_handled == 11


async def test_actors_lists_what_is_alive_by_age() -> None:
    async with System.open("node") as system:
        first, second = await system.start(Counter, 0), await system.start(Counter, 0)
        assert system.actors() == [system.root, first, second]
        assert first.pid < second.pid
        first.kill()
        assert system.actors() == [system.root, second]


async def test_two_systems_live_side_by_side() -> None:
    async with System.open("a") as a, System.open("b") as b:
        here, there = await a.start(Counter, 1, name="c"), await b.start(Counter, 2, name="c")
        assert (await here.call("get"), await there.call("get")) == (1, 2)
        assert (here.node, there.node) == ("a", "b")


class Slow(Server[None]):
    """Never started: its `init` waits for ever."""

    async def init(self, arg: Any) -> None:
        await trio.sleep_forever()


async def never_ready(*, task_status: trio.TaskStatus[None]) -> None:
    await trio.sleep_forever()


SLOW = {
    "actor": ActorSpec("slow", Slow, start_timeout_s=None),
    "service": ServiceSpec("slow", never_ready, start_timeout_s=None),
    "supervisor": SupervisorSpec(
        "outer", (SupervisorSpec("inner", (ActorSpec("slow", Slow, start_timeout_s=None),), start_timeout_s=None),)
    ),
}


@pytest.mark.parametrize("how", ["left", "cancelled"])
@pytest.mark.parametrize("spec", SLOW.values(), ids=SLOW.keys())
async def test_leaving_gives_up_a_start_in_progress_and_tells_whoever_waits_for_it(
    spec: Any, how: str, autojump_clock: trio.testing.MockClock
) -> None:
    told: list[object] = []

    async def start(system: System) -> None:
        try:
            await system.start_child(spec)
        except StartError as error:
            told.append(error)

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with System.open("node") as system:
                nursery.start_soon(start, system)
                await trio.testing.wait_all_tasks_blocked()
                if how == "cancelled":
                    scope.cancel()
    assert trio.current_time() - began_s < 0.1
    assert len(told) == 1
    assert "'shutdown'" in str(told[0])


async def test_a_start_that_is_given_up_leaves_the_others_their_orderly_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    happened: list[Any] = []
    begun = SupervisorSpec(
        "family",
        (
            ActorSpec("first", Trapper, happened),
            ActorSpec("second", Trapper, happened),
            ActorSpec("slow", Slow, start_timeout_s=None),
        ),
        start_timeout_s=None,
    )

    async def start(system: System) -> None:
        with pytest.raises(StartError):
            await system.start_child(begun)

    elder = ActorSpec("elder", Trapper, happened)
    async with trio.open_nursery() as nursery, System.open("node", [elder]) as system:
        nursery.start_soon(start, system)
        await trio.testing.wait_all_tasks_blocked()
    assert happened == [("terminate", "shutdown")] * 3


async def test_a_restart_in_progress_does_not_keep_a_system_from_closing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lives: list[int] = []

    class Once(Server[None]):
        async def init(self, arg: Any) -> None:
            lives.append(1)
            if len(lives) > 1:
                await trio.sleep_forever()

    began_s = trio.current_time()
    async with System.open("node", [ActorSpec("once", Once, name="once", start_timeout_s=None)]) as system:
        first = system.whereis("once")
        assert first is not None
        first.kill()
        await trio.testing.wait_all_tasks_blocked()
        assert len(lives) == 2
    assert trio.current_time() - began_s < 0.1
