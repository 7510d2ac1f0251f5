"""Callbacks that are `async def`, of stages that end before they begin: no coroutine is left that nobody awaited."""

import gc
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from batonpass.actors import StartError, System
from batonpass.actors.stages import Consumer, StageOk, SubscribeTo, Subscription
from tests.actors.stages.stages import Numbers


class Waits(Consumer[None]):
    """Handles events in a task."""

    def init(self, arg: Any) -> StageOk[None]:
        return StageOk(None, subscribe_to=arg)

    async def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> None:
        await trio.lowlevel.checkpoint()


class StartsLate(Consumer[None]):
    """Cannot be started by who does not wait."""

    async def init(self, arg: Any) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_stage_that_is_killed_at_any_moment_leaves_no_coroutine(system: System) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for turns in range(8):
            for _ in range(10):
                source = await system.start(Numbers, 0)
                ref = await system.start(Waits, [SubscribeTo(producer=source, max_demand=2)])
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                ref.kill()
                source.kill()
                await ref.exited()
        gc.collect()
    assert [str(warning.message) for warning in warned] == []


async def test_nor_does_one_whose_start_nobody_waits_for(system: System) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(StartError, match="async def"):
            system.start_nowait(StartsLate)
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
