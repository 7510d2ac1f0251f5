"""What users hand over and cannot have meant is refused at once, by a sentence that names it, with nothing done."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import trio

from batonpass import actors
from batonpass.actors import ActorSpec, NoProc, NoReply, Reply, Server, SupervisorError, System, stages
from batonpass.actors.core import telemetry
from batonpass.actors.observe import sys as actors_sys

if TYPE_CHECKING:
    from batonpass.actors import From

wrong: Any = actors
"""What is written with it is what a type checker would refuse."""


class Counting(Server[int]):
    """Counts calls; answers none that asks for silence."""

    def init(self, arg: object) -> int:
        return 0

    def handle_call(self, request: Any, from_: From, state: int) -> Reply[int] | NoReply[int]:
        return NoReply(state + 1) if request == "silence" else Reply(state, state + 1)

    def handle_cast(self, message: Any, state: int) -> None:
        pass


@pytest.mark.parametrize(
    ("timeout_s", "problem", "sentence"),
    [("5", TypeError, "number of seconds, or None, not '5'"), (math.nan, ValueError, "not nan")],
)
async def test_a_call_with_a_timeout_that_is_none_is_refused(
    timeout_s: Any, problem: type[Exception], sentence: str
) -> None:
    async with System.open("node") as system:
        counting = await system.start(Counting)
        counting.cast("be busy")
        with pytest.raises(problem, match=f"timeout_s of a call of <Counting #.*{sentence}"):
            await counting.call("queued", timeout_s)
        assert await actors_sys.get_state(counting) == 0
        # It would be handled at once; it is refused before.
        with pytest.raises(problem, match=sentence):
            await counting.call("silence", timeout_s)
        assert await actors_sys.get_state(counting) == 0
        with pytest.raises(problem, match=f"timeout_s of the stop of <Counting #.*{sentence}"):
            await counting.stop(timeout_s=timeout_s)
        assert counting.alive


async def test_whole_seconds_and_seconds_that_are_over_are_timeouts(autojump_clock: trio.testing.MockClock) -> None:
    async with System.open("node") as system:
        counting = await system.start(Counting)
        for timeout_s in (1, 0, -1.0):
            counting.cast("be busy")
            with pytest.raises(actors.CallTimeout):
                await counting.call("silence", timeout_s)


async def test_whoever_has_a_name_can_be_stopped_by_it() -> None:
    async with System.open("node") as system:
        counting = await system.start(Counting, name="counting")
        await system.named("counting").stop()
        assert await counting.exited() == "normal"
        with pytest.raises(NoProc, match="counting"):
            await system.named("counting").stop()


async def test_a_task_is_refused_whose_owner_is_none_and_whose_function_is_none() -> None:
    async def work() -> None:
        raise AssertionError("not reached")

    async with System.open("node") as system, actors.open_tasks(system) as tasks:
        counting = await system.start(Counting)
        with pytest.raises(TypeError, match="`self` of a server, or to what open_tasks gives, not to <Counting"):
            wrong.Task.async_(counting, work)
        coroutine = work()
        with pytest.raises(TypeError, match=r"`async def` function: give that, and its arguments, not <coroutine"):
            wrong.Task.async_(tasks, coroutine)
        coroutine.close()


@pytest.mark.parametrize(
    ("options", "problem", "sentence"),
    [
        ({"max_demand": "5"}, TypeError, "max_demand of a subscription must be a whole number, not '5'"),
        ({"max_demand": 0}, ValueError, "max_demand of a subscription must be 1 or more, not 0"),
        ({"min_demand": 0.5}, TypeError, "min_demand of a subscription must be a whole number, or None, not 0.5"),
        ({"cancel": "always"}, ValueError, r"cancel of a subscription must be one of CancelPolicy.PERMANENT.*'always'"),
    ],
)
def test_a_subscription_on_terms_that_are_none_is_refused(
    options: dict[str, Any], problem: type[Exception], sentence: str
) -> None:
    producer: Any = None
    with pytest.raises(problem, match=sentence):
        stages.SubscribeTo(producer=producer, **options)


def test_what_the_end_of_a_subscription_means_may_be_given_by_its_value() -> None:
    terms: dict[str, Any] = {"producer": None, "cancel": "temporary"}
    options = stages.SubscribeTo(**terms)
    assert options.cancel is stages.CancelPolicy.TEMPORARY


async def test_a_system_is_refused_whose_times_are_none() -> None:
    with pytest.raises(TypeError, match="slow_callback_s of the system 'node' must be a number of seconds, not 'x'"):
        async with wrong.System.open("node", slow_callback_s="x"):
            pass
    with pytest.raises(ValueError, match=r"watchdog_s of the system 'node' .* more than 0, not 0"):
        async with System.open("node", watchdog_s=0):
            pass


async def test_a_handler_of_telemetry_that_is_no_function_is_refused() -> None:
    async with System.open("node") as system:
        hub: Any = system.telemetry
        with pytest.raises(TypeError, match="'mine' must be a function of four arguments, not 'f'"):
            hub.attach("mine", telemetry.ACTOR_EXIT, "f")
        assert hub.list_handlers() == []


async def test_a_server_that_is_no_supervisor_is_not_asked_for_children() -> None:
    async with System.open("node", [ActorSpec("counting", Counting, name="counting")]) as system:
        counting = system.named("counting")
        for _ in range(2):
            with pytest.raises(SupervisorError, match=r"Counting .* is no supervisor"):
                await actors.Supervisor.start_child(counting, ActorSpec("child", Server))
            with pytest.raises(SupervisorError, match="is no supervisor"):
                await actors.DynamicSupervisor.count_children(counting)
            assert await actors_sys.get_state(counting) == 0
            actors_sys.start_statistics(counting)
        assert (await actors.Supervisor.count_children(system.root)).active == 1


async def test_an_actor_is_refused_that_nothing_makes() -> None:
    async with System.open("node") as system:
        anything: Any = system
        for start in (anything.start, anything.start_nowait):
            for server, sentence in (
                (Counting(), "makes a Server for each life, not with <.*; write Counting, the class itself"),
                ("Counting", "makes a Server for each life, not with 'Counting'"),
            ):
                with pytest.raises(TypeError, match=sentence):
                    await start(server)
            with pytest.raises(TypeError, match=r"the name of an actor must be hashable, such as a string, not \[\]"):
                await start(Counting, name=[])
            with pytest.raises(actors.StartError, match=r"it must make a Server, and made \{\}"):
                await start(dict)
        assert system.count == 1


async def test_a_timer_is_refused_that_has_no_time() -> None:
    async with System.open("node") as system:
        counting: Any = await system.start(Counting)
        timers: Any = system.timers
        with pytest.raises(TypeError, match="delay_s of send_after must be a number of seconds, not '1'"):
            timers.send_after("1", counting, "x")
        with pytest.raises(TypeError, match="delay_s of send_after must be a number of seconds, not None"):
            timers.send_after(None, counting, "x")
        with pytest.raises(ValueError, match="not NaN"):
            timers.send_after(math.nan, counting, "x")
        with pytest.raises(TypeError, match="period_s of send_interval must be a number of seconds, not '1'"):
            timers.send_interval("1", counting)
        with pytest.raises(TypeError, match="start_s of send_interval must be a number of seconds, or None, not 'x'"):
            timers.send_interval(1.0, counting, start_s="x")
        assert len(timers) == 0


def test_what_is_chosen_by_an_enum_is_not_chosen_silently_by_something_else() -> None:
    anything: Any = stages.StageOk
    assert anything(None, demand="accumulate").demand is stages.DemandMode.ACCUMULATE
    with pytest.raises(ValueError, match=r"demand of a stage must be one of DemandMode.FORWARD"):
        anything(None, demand="both")
    with pytest.raises(TypeError, match="buffer_size of a stage must be a whole number"):
        anything(None, buffer_size="many")
    with pytest.raises(TypeError, match="subscribe_to of a stage"):
        anything(None, subscribe_to=["producer"])
    demand: Any = stages.demand
    with pytest.raises(ValueError, match="the demand mode of a stage must be one of"):
        demand(actors.Registry("r"), "both")
    registry: Any = actors.Registry
    assert registry("r", "duplicate").unique is False
    with pytest.raises(ValueError, match=r"keys of the registry 'r' must be one of Keys.UNIQUE, Keys.DUPLICATE"):
        registry("r", "uniqe")


async def test_a_stream_of_tasks_on_terms_that_are_none_is_refused() -> None:
    async with System.open("node") as system, actors.open_tasks(system) as tasks:
        stream: Any = actors.async_stream
        with pytest.raises(TypeError, match="max_concurrency must be a whole number, not '5'"):
            stream(tasks, trio.sleep, [], max_concurrency="5")
        with pytest.raises(ValueError, match="max_concurrency must be 1 or more, not 0"):
            stream(tasks, trio.sleep, [], max_concurrency=0)
        with pytest.raises(TypeError, match="timeout_s of a stream of tasks must be a number of seconds"):
            stream(tasks, trio.sleep, [], timeout_s="5")
