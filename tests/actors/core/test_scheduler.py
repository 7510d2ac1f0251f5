"""The run queue: idle actors cost no task, busy ones share, slow ones are named."""

import itertools
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import HIBERNATE, ActorSpec, Continue, From, NoReply, Ok, Ref, Reply, Server, System
from batonpass.actors.core.scheduler import SLICE_MESSAGES, SLICE_S, TURN_MESSAGES
from tests.actors.servers import Counter


async def test_idle_actors_cost_no_task(system: System) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    for _ in range(1000):
        system.start_nowait(Counter, 0)
    assert trio.lowlevel.current_statistics().tasks_living == before


async def test_a_flooded_actor_does_not_hold_up_its_neighbour(system: System) -> None:
    order: list[str] = []

    class Noting(Server[str]):
        def handle_cast(self, message: Any, state: str) -> None:
            order.append(state)

    flooded, neighbour = await system.start(Noting, "flooded"), await system.start(Noting, "neighbour")
    for _ in range(TURN_MESSAGES * 10):
        flooded.cast("anything")
    neighbour.cast("anything")
    await trio.testing.wait_all_tasks_blocked()
    assert order.index("neighbour") <= TURN_MESSAGES, "fewer where a slice of time ended before"


async def test_actors_that_never_run_dry_do_not_hold_up_trio(system: System) -> None:
    class Restless(Server[int]):
        def handle_cast(self, message: Any, state: int) -> None:
            self.ref.cast("again")

    ref = await system.start(Restless, 0)
    ref.cast("go")
    for _ in range(5):
        before = system.stats.messages_handled
        await trio.lowlevel.checkpoint()
        assert system.stats.messages_handled <= before + 2 * SLICE_MESSAGES
    ref.kill()


async def test_two_actors_that_cast_to_each_other_do_not_hold_up_trio(system: System) -> None:
    class Player(Server[None]):
        def handle_cast(self, message: tuple[Ref, int], state: None) -> None:
            opponent, count = message
            opponent.cast((self.ref, count + 1))

    a, b = await system.start(Player), await system.start(Player)
    a.cast((b, 0))
    with trio.fail_after(90):
        for _ in range(5):
            await trio.lowlevel.checkpoint()
    a.kill()


async def test_a_round_is_over_when_all_who_had_something_to_do_have_had_a_turn() -> None:
    """However many slices that takes; and nobody waits for what comes meanwhile."""
    fake_s = itertools.count(step=SLICE_S)
    handled: list[int] = []

    class Noting(Server[int]):
        def handle_cast(self, message: Any, state: int) -> None:
            handled.append(state)
            self.ref.cast("again")

    async with System.open("node", [], clock_s=lambda: next(fake_s)) as system:
        await system.round_over()
        refs = [await system.start(Noting, number) for number in range(50)]
        for ref in refs:
            ref.cast("go")
        await system.round_over()
        assert set(handled) == set(range(50))
        assert max(map(handled.count, range(50))) <= 2 * TURN_MESSAGES
        for ref in refs:
            ref.kill()


async def test_an_actor_may_end_while_it_waits_for_its_turn(system: System) -> None:
    ref, other = await system.start(Counter, 0), await system.start(Counter, 0)
    ref.cast(1)
    other.cast(1)
    ref.kill()
    assert await other.call("get") == 1


async def test_a_slow_callback_is_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    fake_s = itertools.count(step=0.25)
    children = [ActorSpec("slow", Counter, 0, name="slow")]
    async with System.open("node", children, slow_callback_s=0.2, clock_s=lambda: next(fake_s)) as system:
        system.named("slow").cast(1)
        await trio.testing.wait_all_tasks_blocked()
        assert system.stats.slow_callbacks == 1
    assert "Counter 'slow'" in caplog.text
    assert "handle_cast held up the whole node for 250 ms" in caplog.text


async def test_time_that_passes_ends_a_slice_early() -> None:
    fake_s = itertools.count(step=1.0)
    handled: list[int] = []

    class Noting(Server[None]):
        def handle_cast(self, message: int, state: None) -> None:
            handled.append(message)

        def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
            return Reply(list(handled))

    async with System.open("node", slow_callback_s=1e9, clock_s=lambda: next(fake_s)) as system:
        ref = await system.start(Noting)
        for number in range(10):
            ref.cast(number)
        for _ in range(2):
            before = len(handled)
            await trio.lowlevel.checkpoint()
            assert len(handled) - before <= 2
        assert await ref.call("all") == list(range(10)), "and nothing is lost or reordered by it"


async def test_nobody_waits_for_the_end_of_a_round_of_a_system_that_has_ended() -> None:
    async with System.open("node", []) as system:
        pass
    with trio.fail_after(1):
        await system.round_over()


async def test_nobody_waits_for_the_end_of_a_round_whose_system_breaks_meanwhile() -> None:
    class Breaks(Server[None]):
        def handle_cast(self, message: Any, state: None) -> None:
            raise SystemExit(3)

    over = trio.Event()

    async def waits(system: System) -> None:
        await system.round_over()
        over.set()

    async def breaks() -> None:
        async with System.open("node", []) as system:
            ref = await system.start(Breaks, None)
            ref.cast("break")
            nursery.start_soon(waits, system)
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        with pytest.raises(SystemExit):
            await breaks()
        with trio.fail_after(1):
            await over.wait()


class Chain(Server[list[Any]]):
    """Does a job in steps, by `then=Continue`, and notes them and what it is cast; a job of None has no end."""

    def init(self, arg: list[Any]) -> list[Any]:
        return arg

    def handle_cast(self, message: int | str | None, state: list[Any]) -> Any:
        if isinstance(message, str):
            state.append(message)
            return None
        return NoReply(then=Continue(message))

    def handle_continue(self, left: int | None, state: list[Any]) -> Any:
        state.append(left)
        return None if left == 0 else NoReply(then=Continue(None if left is None else left - 1))


class Waking(Chain):
    """The same, and each second step is one that sleeps or is awake."""

    def handle_hibernate(self, state: list[Any]) -> Any:
        state.append("asleep")
        return NoReply(then=Continue(None))

    def handle_continue(self, left: int | None, state: list[Any]) -> Any:
        return NoReply(then=HIBERNATE)


async def test_a_chain_of_continues_does_not_hold_up_its_neighbour(system: System) -> None:
    done: list[Any] = []
    chain, neighbour = await system.start(Chain, done), await system.start(Chain, done)
    chain.cast(10 * TURN_MESSAGES)
    neighbour.cast("neighbour")
    await trio.testing.wait_all_tasks_blocked()
    assert done.index("neighbour") < TURN_MESSAGES
    assert len(done) == 10 * TURN_MESSAGES + 2


@pytest.mark.parametrize("kind", [Chain, Waking])
async def test_a_chain_without_an_end_does_not_hold_up_trio_and_can_be_killed(
    system: System, kind: type[Server[Any]]
) -> None:
    done: list[Any] = []
    ref = await system.start(kind, done)
    ref.cast(None)
    for _ in range(5):
        before = len(done)
        await trio.lowlevel.checkpoint()
        assert len(done) <= before + 2 * SLICE_MESSAGES
    ref.kill()
    assert await ref.exited() == "killed"


async def test_no_message_comes_between_the_steps_of_a_chain_however_many_turns_it_takes(system: System) -> None:
    done: list[Any] = []
    ref = await system.start(Chain, done)
    ref.cast(5 * SLICE_MESSAGES)
    ref.cast("after it")
    while not done:
        await trio.lowlevel.checkpoint()
    ref.cast("and after that")
    await trio.testing.wait_all_tasks_blocked()
    assert done == [*range(5 * SLICE_MESSAGES, -1, -1), "after it", "and after that"]


async def test_an_actor_whose_init_begins_a_chain_without_an_end_does_not_keep_a_system_from_closing() -> None:
    class Begun(Chain):
        def init(self, arg: list[Any]) -> Any:
            return Ok(arg, then=Continue(None))

    with trio.fail_after(30):
        async with System.open("node", [ActorSpec("chain", Begun, [])]) as system:
            loose = await system.start(Begun, [])
    assert not loose.alive
