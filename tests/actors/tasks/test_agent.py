"""Agents: state that functions look at and change, one at a time. What Elixir's do was recorded: see the oracle."""

import gc
import warnings
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import ActorSpec, Agent, Exit, StartError, System


async def test_functions_have_the_state_to_themselves(system: System, autojump_clock: MockClock) -> None:
    it = await system.start(Agent, lambda: 0)

    async def slowly(state: int) -> int:
        await trio.sleep(1.0)
        return state + 1

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(Agent.update, it, slowly)
        Agent.cast(it, slowly)
    assert await Agent.get(it, lambda state: state) == 4, "none has overwritten what another did meanwhile"
    assert trio.current_time() == 4.0


async def test_the_first_state_may_take_a_while(system: System, autojump_clock: MockClock) -> None:
    async def load() -> dict[str, int]:
        await trio.sleep(1.0)
        return {"anna": 1}

    it = await system.start(Agent, load)
    assert await Agent.get(it, dict.get, "anna") == 1
    wrongs: tuple[Any, ...] = (None, {"anna": 1})
    for wrong in wrongs:
        with pytest.raises(StartError, match="an agent is started with a function"):
            await system.start(Agent, wrong)


async def test_a_supervised_agent_begins_with_a_new_state(autojump_clock: MockClock) -> None:
    async with System.open("node", [ActorSpec("cache", Agent, dict, name="cache")]) as system:
        cache = system.named("cache")
        await Agent.update(cache, lambda state: state | {"anna": 1})
        with pytest.raises(Exit) as caught:
            await Agent.get(cache, dict.__getitem__, "bert")
        assert isinstance(caught.value.reason, KeyError)
        await trio.sleep(0.1)
        assert await Agent.get(cache, len) == 0


async def test_what_is_no_function_crashes_it_as_any_server(system: System) -> None:
    it = await system.start(Agent, lambda: 0)
    with pytest.raises(Exit, match="has no handle_call"):
        await it.call("what?")
    it = await system.start(Agent, lambda: 0)
    it.cast("what?")
    assert isinstance(await it.exited(), NotImplementedError)


async def test_an_agent_that_is_killed_at_any_moment_leaves_no_coroutine(system: System) -> None:
    async def slowly(state: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return state

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for turns in range(5):
            for _ in range(10):
                it = await system.start(Agent, lambda: 0)
                Agent.cast(it, slowly)
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                it.kill()
                await it.exited()
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
