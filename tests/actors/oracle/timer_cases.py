"""The recorded lines about timers."""

from typing import Any

import trio

from batonpass.actors import Ref, System
from batonpass.actors.core.timers import Timer
from tests.actors.oracle.lines import oracle
from tests.actors.servers import Recorder


async def timed(system: System, delay_s: float = 10.0) -> tuple[Ref, Timer]:
    """A message later, and who gets it."""
    ref = await system.start(Recorder)
    return ref, system.timers.send_after(delay_s, ref, "due")


@oracle("timer: read of one that runs is a time", "true")
async def read(system: System) -> Any:
    _, timer = await timed(system)
    return timer.left_s == 10.0


@oracle("timer: cancel of one that runs is a time", "true")
async def cancel(system: System) -> Any:
    _, timer = await timed(system)
    return timer.cancel() == 10.0


@oracle("timer: read of one that was cancelled", "false")
async def read_cancelled(system: System) -> Any:
    _, timer = await timed(system)
    timer.cancel()
    return timer.left_s is not None


@oracle("timer: cancel of one that was cancelled", "false")
async def cancel_cancelled(system: System) -> Any:
    _, timer = await timed(system)
    timer.cancel()
    return timer.cancel() is not None


@oracle("timer: read and cancel of one that has fired, and what it brought", "{false, false, [:due]}")
async def fired(system: System) -> Any:
    ref, timer = await timed(system, 0.01)
    await trio.sleep(0.05)
    return timer.left_s is not None, timer.cancel() is not None, await ref.call("all")


@oracle("timer: whether one for a process that has ended runs on", "false")
async def of_the_dead(system: System) -> Any:
    ref, timer = await timed(system)
    ref.kill()
    return timer.left_s is not None
