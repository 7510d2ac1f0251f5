"""Streams of tasks: bounded, ordered or not, and what a crash, a timeout or leaving early means."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors import (
    Exit,
    Exited,
    From,
    Reply,
    Returned,
    Server,
    System,
    Task,
    TaskError,
    TaskSupervisor,
    TaskSupervisorSpec,
    TaskTimeout,
    async_stream,
    open_tasks,
)
from tests.budget import examples


class Work:
    """Takes as many seconds as its input says, and answers with it; counts how many are at it."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.began: list[float] = []

    async def __call__(self, delay_s: float) -> float:
        self.began.append(delay_s)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await trio.sleep(delay_s)
        finally:
            self.now -= 1
        return delay_s


async def fail_on_two(number: int) -> int:
    if number == 2:
        raise ValueError("boom")
    await trio.sleep(number)
    return number * 10


# Properties

delays = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 8.0]), max_size=12)


@given(delays=delays, max_concurrency=st.integers(1, 5), ordered=st.booleans(), pause_s=st.sampled_from([0.0, 1.5]))
@settings(max_examples=examples(120))
def test_a_stream_is_a_map_that_never_holds_more_than_it_may(
    delays: list[float], max_concurrency: int, ordered: bool, pause_s: float
) -> None:
    trio.run(_map, delays, max_concurrency, ordered, pause_s, clock=MockClock(autojump_threshold=0))


async def _map(delays: list[float], max_concurrency: int, ordered: bool, pause_s: float) -> None:
    work = Work()
    taken = 0
    read: list[Any] = []

    def inputs() -> Iterator[float]:
        nonlocal taken
        for delay_s in delays:
            taken += 1
            assert taken - len(read) <= max_concurrency, "an input is taken only when there is room for its outcome"
            yield delay_s

    async with System.open("stream") as system, open_tasks(system) as tasks:
        stream = async_stream(tasks, work, inputs(), max_concurrency=max_concurrency, ordered=ordered, timeout_s=None)
        async with stream as outcomes:
            async for outcome in outcomes:
                read.append(outcome)
                await trio.sleep(pause_s)
        expected = [Returned(delay_s) for delay_s in delays]
        if ordered:
            assert read == expected
        else:
            assert sorted(read, key=lambda outcome: outcome.value) == sorted(expected, key=lambda o: o.value)
        assert sorted(work.began) == sorted(delays), "each input once"
        assert work.most <= max_concurrency
        assert work.now == 0


@given(delays=delays, max_concurrency=st.integers(1, 5), ordered=st.booleans(), zip_input=st.booleans())
@settings(max_examples=examples(80))
def test_kill_task_turns_what_takes_too_long_into_an_outcome(
    delays: list[float], max_concurrency: int, ordered: bool, zip_input: bool
) -> None:
    async def play() -> list[Any]:
        work = Work()
        async with System.open("stream") as system, open_tasks(system) as tasks:
            stream = async_stream(
                tasks,
                work,
                delays,
                max_concurrency=max_concurrency,
                ordered=ordered,
                timeout_s=1.75,
                on_timeout="kill_task",
                zip_input_on_exit=zip_input,
            )
            async with stream as outcomes:
                read = [outcome async for outcome in outcomes]
            assert work.most <= max_concurrency
        return read

    read = trio.run(play, clock=MockClock(autojump_threshold=0))
    expected: list[Any] = [
        Returned(delay_s) if delay_s < 1.75 else Exited("timeout", delay_s if zip_input else None) for delay_s in delays
    ]
    assert (read if ordered else sorted(read, key=str)) == (expected if ordered else sorted(expected, key=str))


# A trio task as owner


async def test_outcomes_come_as_they_are_there_if_not_ordered(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        stream = async_stream(tasks, Work(), [3.0, 1.0, 1.0, 2.5], max_concurrency=2, ordered=False)
        async with stream as outcomes:
            read = [outcome async for outcome in outcomes]
        assert read == [Returned(1.0), Returned(1.0), Returned(3.0), Returned(2.5)]


async def test_a_slow_first_task_holds_back_the_others_instead_of_filling_memory(
    system: System, autojump_clock: MockClock
) -> None:
    work = Work()
    async with open_tasks(system) as tasks:
        inputs = iter([4.0] + [0.1] * 100)
        async with async_stream(tasks, work, inputs, max_concurrency=3) as outcomes:
            assert await anext(outcomes) == Returned(4.0)
            assert len(work.began) == 3


async def test_a_crash_is_raised_and_ends_the_stream(system: System, autojump_clock: MockClock) -> None:
    work = Work()

    async def crash_after_a_second(delay_s: float) -> float:
        if delay_s == 1.0:
            await trio.sleep(delay_s)
            raise ValueError("boom")
        return await work(delay_s)

    async with open_tasks(system) as tasks:
        async with async_stream(tasks, crash_after_a_second, [4.0, 1.0, 4.0]) as outcomes:
            with pytest.raises(Exit) as caught:
                await anext(outcomes)
            with pytest.raises(Exit):
                await anext(outcomes)
        assert isinstance(caught.value.reason, ValueError)
        assert work.now == 0
        assert trio.current_time() == 1.0


async def test_on_timeout_exit_is_the_default(system: System, autojump_clock: MockClock) -> None:
    work = Work()
    async with open_tasks(system) as tasks:
        async with async_stream(tasks, work, [9.0, 1.0]) as outcomes:
            with pytest.raises(TaskTimeout, match=r"within 5\.0 s"):
                await anext(outcomes)
        assert trio.current_time() == 5.0
        assert work.now == 0


async def test_leaving_early_ends_the_rest(system: System, autojump_clock: MockClock) -> None:
    work = Work()
    async with open_tasks(system) as tasks:
        async with async_stream(tasks, work, [1.0, 9.0, 9.0, 9.0], max_concurrency=2) as outcomes:
            async for _ in outcomes:
                break
        assert work.now == 0
        assert sorted(work.began) == [1.0, 9.0]
        with pytest.raises(TaskError, match="async with"):
            await anext(outcomes)


async def test_what_the_inputs_raise_comes_out(system: System, autojump_clock: MockClock) -> None:
    def inputs() -> Iterator[float]:
        yield 1.0
        raise OSError("no more")

    work = Work()
    async with open_tasks(system) as tasks:
        async with async_stream(tasks, work, inputs()) as outcomes:
            with pytest.raises(OSError, match="no more"):
                await anext(outcomes)
        assert work.now == 0


async def test_a_task_that_cannot_be_killed_does_not_hold_up_its_reader(
    system: System, autojump_clock: MockClock
) -> None:
    async def immortal(_input: int) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    async with (
        open_tasks(system) as tasks,
        async_stream(tasks, immortal, [1], timeout_s=2.0, on_timeout="kill_task") as outcomes,
    ):
        assert [outcome async for outcome in outcomes] == [Exited("timeout")]
        assert trio.current_time() == 3.0


async def test_only_the_owner_reads(system: System, autojump_clock: MockClock) -> None:
    async with (
        open_tasks(system) as tasks,
        async_stream(tasks, Work(), [1.0]) as outcomes,
        trio.open_nursery() as nursery,
    ):

        async def somebody_else() -> None:
            with pytest.raises(TaskError, match="only the trio task"):
                await anext(outcomes)

        nursery.start_soon(somebody_else)
        assert [outcome async for outcome in outcomes] == [Returned(1.0)]


@pytest.mark.parametrize("options", [{"max_concurrency": 0}, {"on_timeout": "shrug"}])
async def test_options_that_mean_nothing_are_refused(system: System, options: Any) -> None:
    async with open_tasks(system) as tasks:
        with pytest.raises(ValueError, match="must be"):
            async_stream(tasks, Work(), [1.0], **options)


# An actor as owner


class Reader(Server[list[Any]]):
    """Reads a stream in its async callback."""

    def init(self, arg: Any) -> list[Any]:
        return []

    async def handle_call(self, request: Any, from_: From, state: list[Any]) -> Reply[list[Any]]:
        if request == "what came?":
            return Reply(state)
        async with request(self) as outcomes:
            return Reply([outcome async for outcome in outcomes])

    def handle_info(self, message: Any, state: list[Any]) -> None:
        state.append(message)


class TrappingReader(Reader):
    trap_exit = True


async def test_an_actor_reads_in_an_async_callback(system: System, autojump_clock: MockClock) -> None:
    reader = await system.start(Reader)
    outcomes = await reader.call(lambda server: async_stream(server, fail_on_two, [1, 3]))
    assert outcomes == [Returned(10), Returned(30)]
    assert await reader.call("what came?") == [], "streams send no messages"


async def test_a_crash_ends_the_actor_that_reads(system: System, autojump_clock: MockClock) -> None:
    reader = await system.start(Reader)
    with pytest.raises(Exit) as caught:
        await reader.call(lambda server: async_stream(server, fail_on_two, [1, 2, 3]))
    assert isinstance(caught.value.reason, ValueError)
    assert await reader.exited() is caught.value.reason


async def test_an_actor_that_traps_exits_reads_the_crash(system: System, autojump_clock: MockClock) -> None:
    reader = await system.start(TrappingReader)
    outcomes = await reader.call(lambda server: async_stream(server, fail_on_two, [1, 2, 3], zip_input_on_exit=True))
    assert outcomes[0] == Returned(10)
    assert isinstance(outcomes[1].reason, ValueError)
    assert outcomes[1].input == 2
    assert outcomes[2] == Returned(30)
    assert await reader.call("what came?") == []


async def test_the_tasks_of_a_stream_end_with_their_actor(system: System, autojump_clock: MockClock) -> None:
    work = Work()
    reader = await system.start(Reader)
    async with open_tasks(system) as tasks:
        from_reader = reader.call(lambda server: async_stream(server, work, [9.0, 9.0]))

        async def call() -> None:
            with pytest.raises(Exit):
                await from_reader

        calling = Task.async_(tasks, call)
        await trio.testing.wait_all_tasks_blocked()
        assert work.now == 2
        reader.kill()
        await calling.await_()
        await trio.testing.wait_all_tasks_blocked()
        assert work.now == 0


# Under a task supervisor


async def test_a_supervised_stream_without_links_reads_crashes(system: System, autojump_clock: MockClock) -> None:
    await system.start_child(TaskSupervisorSpec("tasks", max_children=2, name="tasks"))
    supervisor = system.named("tasks")
    async with open_tasks(system) as tasks:
        stream = TaskSupervisor.async_stream_nolink(supervisor, tasks, fail_on_two, [1, 2, 3], max_concurrency=2)
        async with stream as outcomes:
            read = [outcome async for outcome in outcomes]
            assert not TaskSupervisor.children(supervisor)
        assert [isinstance(outcome, Exited) for outcome in read] == [False, True, False]
        linked = TaskSupervisor.async_stream(supervisor, tasks, fail_on_two, [1, 2, 3], max_concurrency=1)
        async with linked as outcomes:
            assert await anext(outcomes) == Returned(10)
            assert len(TaskSupervisor.children(supervisor)) == 0
            with pytest.raises(Exit):
                await anext(outcomes)
