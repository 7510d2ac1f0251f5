"""Ctrl-C, and whatever else is no `Exception`: wherever it strikes, the system ends, soon, and it comes out.

The signals here are real ones, raised at chosen steps, so nothing depends on how fast anything runs.
"""

from __future__ import annotations

import signal
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from batonpass import actors
from batonpass.actors import ActorSpec, Continue, NoReply, Ok, Server, ServiceSpec, System, TaskSpec
from batonpass.actors.base.interrupts import that_ends_the_program
from batonpass.actors.core import telemetry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType

RUNTIME = str(Path(actors.__file__).parent)
PROMPTLY_S = 1.0
"""Less than is waited for in vain: a half-made actor would get its 5 seconds, and be killed then."""


def run(block: Callable[[], Awaitable[None]]) -> float:
    """Run `block`, which must end with Ctrl-C; how long that took, on a clock that only waiting moves on."""
    clock = trio.testing.MockClock(autojump_threshold=0.0)
    with pytest.raises(KeyboardInterrupt):
        trio.run(block, clock=clock)
    return clock.current_time()


async def press_ctrl_c() -> None:
    """As a system task: its frames are protected, so trio hands the interrupt to the main task."""
    signal.raise_signal(signal.SIGINT)


class Thorough(Server[None]):
    trap_exit = True

    async def terminate(self, reason: object, state: None) -> None:
        trio.lowlevel.spawn_system_task(press_ctrl_c)
        await trio.sleep(3600)


@pytest.mark.parametrize("first", [True, False])
def test_ctrl_c_while_a_system_closes_ends_it_at_once(first: bool) -> None:
    async def block() -> None:
        async with System.open("node", [ActorSpec("thorough", Thorough, shutdown_s=None)]):
            if first:
                trio.lowlevel.spawn_system_task(press_ctrl_c)
                await trio.sleep_forever()

    assert run(block) < PROMPTLY_S


async def test_an_end_of_the_program_that_is_asked_for_while_an_actor_ends_comes_out() -> None:
    systems: list[System] = []

    def end_it(*_: object) -> None:
        raise SystemExit(4)

    async def block() -> None:
        async with System.open("node") as system:
            systems.append(system)
            system.telemetry.attach("end", telemetry.ACTOR_EXIT, end_it)
            await system.start(Server)
            await system.start(Server)

    with pytest.raises(SystemExit) as caught:
        await block()
    assert caught.value.code == 4
    assert systems[0].actors() == []


async def test_what_has_a_task_that_has_not_begun_when_it_is_abandoned_does_not_begin() -> None:
    began: list[str] = []

    class Waits(Server[None]):
        async def init(self, arg: object) -> None:
            began.append("init")

    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        began.append("service")

    async def work() -> None:
        began.append("task")

    async with System.open("node") as system:
        root = system.root.process
        for spec in (ActorSpec("actor", Waits), ServiceSpec("service", serve), TaskSpec("task", work)):
            process = spec.start_nowait(system, root)
            process.abandon()
            await trio.testing.wait_all_tasks_blocked()
            assert (process.alive, began) == (False, [])


class Step:
    """A trace function that presses Ctrl-C at the `number`-th line of the runtime that is about to be executed."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.struck = ""

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Step | None:
        if not frame.f_code.co_filename.startswith(RUNTIME):
            return None
        if event == "line" and not self.struck:
            self.left -= 1
            if self.left < 0:
                self.struck = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self


async def serve(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await trio.sleep_forever()


async def work() -> None:
    await trio.sleep_forever()


class Slow(Server[None]):
    async def init(self, arg: object) -> None:
        await trio.lowlevel.checkpoint()


def of_an_actor(system: System) -> object:
    return system.start_nowait(Server, name="somebody")


def of_an_actor_that_waits(system: System) -> object:
    return ActorSpec("slow", Slow, name="somebody").start_nowait(system, system.root.process)


def of_a_service(system: System) -> object:
    return ServiceSpec("service", serve, name="somebody").start_nowait(system, system.root.process)


def of_a_task(system: System) -> object:
    return TaskSpec("task", work, name="somebody").start_nowait(system, system.root.process)


@pytest.mark.parametrize("start", [of_an_actor, of_an_actor_that_waits, of_a_service, of_a_task])
def test_ctrl_c_at_any_step_of_a_start_leaves_nothing_half_made(start: Callable[[System], object]) -> None:
    def interrupted_at(number: int) -> str:
        step = Step(number)

        async def block() -> None:
            async with System.open("node", watchdog_s=None) as system:
                before = sys.gettrace()
                sys.settrace(step)
                try:
                    start(system)
                finally:
                    sys.settrace(before)
                await trio.lowlevel.checkpoint()
                if not step.struck:
                    raise KeyboardInterrupt  # past the last step

        took_s = run(block)
        assert took_s < PROMPTLY_S, f"the system took {took_s} s to end after Ctrl-C at {step.struck}"
        return step.struck

    steps = 0
    for number in count():
        if not interrupted_at(number):
            break
        steps += 1
    assert steps > 10


def test_an_endless_init_can_be_interrupted() -> None:
    class Endless(Server[None]):
        def init(self, arg: object) -> None:
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("went on")  # where it would loop for ever

    async def block() -> None:
        async with System.open("node", [ActorSpec("endless", Endless)]):
            raise AssertionError("not reached")

    assert run(block) < PROMPTLY_S


def test_whoever_asked_for_the_end_of_the_program_is_found_among_other_failures() -> None:
    interrupt = KeyboardInterrupt()
    inner = BaseExceptionGroup("", [interrupt])
    assert that_ends_the_program(BaseExceptionGroup("", [ValueError(), inner])) is interrupt
    assert that_ends_the_program(BaseExceptionGroup("", [ValueError(), KeyError()])) is None


def test_ctrl_c_ends_a_chain_of_continues_that_has_no_end() -> None:
    class Chain(Server[None]):
        def init(self, arg: object) -> Ok[None]:
            return Ok(None, then=Continue(0))

        def handle_continue(self, step: int, state: None) -> NoReply[None]:
            if step == 1000:
                signal.raise_signal(signal.SIGINT)
            return NoReply(then=Continue(step + 1))

    async def block() -> None:
        async with System.open("node", [ActorSpec("chain", Chain)]):
            await trio.sleep_forever()

    assert run(block) < PROMPTLY_S
