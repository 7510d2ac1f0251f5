"""A pause of the garbage collector is not blamed on the actor in whose callback it happened."""

import gc
import logging
from typing import Any

import pytest
import trio.testing

from batonpass.actors import From, Reply, Server, System
from batonpass.actors.base.gc import CollectorPauses


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Passing:
    """An object in a cycle, whose finalizer takes time: so a collection takes as long as the test says."""

    def __init__(self, clock: Clock, pause_s: float) -> None:
        self.clock, self.pause_s, self.itself = clock, pause_s, self

    def __del__(self) -> None:
        self.clock.now_s += self.pause_s


def test_only_pauses_since_then_that_are_worth_it_count() -> None:
    clock = Clock()
    pauses = CollectorPauses(clock)
    pauses.start()
    try:
        for pause_s in (0.5, 0.000_1, 0.25):
            Passing(clock, pause_s)
            gc.collect()
            clock.now_s += 10
        assert pauses.since(0.0) == 0.75
        assert pauses.since(5.0) == 0.25
        assert pauses.since(clock.now_s) == 0
    finally:
        pauses.stop()
    Passing(clock, 1.0)
    gc.collect()
    assert pauses.since(0.0) == 0.75


@pytest.mark.parametrize(("pause_s", "work_s"), [(0.4, 0.05), (0.4, 0.3), (0.0, 0.3)])
async def test_the_log_says_whose_fault_it_was(pause_s: float, work_s: float, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()

    class Busy(Server[None]):
        def handle_call(self, request: str, from_: From, state: None) -> Any:
            Passing(clock, pause_s)
            gc.collect()
            clock.now_s += work_s
            return Reply(None)

    async with System.open("test", slow_callback_s=0.1, watchdog_s=None, clock_s=clock) as system:
        ref = await system.start(Busy)
        await trio.testing.wait_all_tasks_blocked()
        with caplog.at_level(logging.WARNING, "actors"):
            await ref.call("work")
    (line,) = caplog.messages
    if work_s > 0.1:
        assert "handle_call held up the whole node for 300 ms" in line
    else:
        assert line.startswith("garbage collection held up the whole node for 400 ms, while Busy")
