"""Ending several actors together, each within its own time, as a supervisor ends its children.

An actor that does not trap exits is dead at once, so a large group costs waiting only for those that clean up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from batonpass.actors.base.steps import in_task
from batonpass.actors.core.exits import SHUTDOWN
from batonpass.actors.core.process import KILL_GRACE_S, Process, logger

if TYPE_CHECKING:
    from batonpass.actors.base.steps import Steps

REMAINS_S: Final = 5.0
"""How long what a killed supervisor leaves behind may take to end by itself."""

BREATHER: Final = 128
"""After how many children a supervisor that starts or ends a great many lets others run: about a millisecond."""


def ending(group: Iterable[tuple[Process, float | None]]) -> Steps[None]:
    """End several processes at the same time, each within its own number of seconds, and wait until they have ended.

    They get the exit signal `"shutdown"` from their parent, and are killed when their time is over: at once for 0,
    never for None. A task that is shielded from its cancellation cannot be ended; it is reported and left behind.
    """
    left: list[_Ending] = []
    for number, (process, shutdown_s) in enumerate(group, 1):
        if shutdown_s == 0:
            process.kill()
        else:
            process.exit_from_parent(SHUTDOWN)
        if process.alive or (shutdown_s == 0 and process.children):
            left.append(_Ending(process, shutdown_s, trio.current_time()))
        if number % BREATHER == 0:
            yield trio.lowlevel.checkpoint
    if left:
        yield partial(_see_to_the_end, left)


def remains_ending(process: Process) -> Steps[None]:
    """Wait until those have ended too who were ended by the end of `process`, which is to be started again.

    A supervisor that is killed is dead at once, and a service below it takes a moment to let go of its socket or its
    files. The next life of both must not come before that moment is over. After `REMAINS_S`, who is left is killed.
    """
    if process.children:
        yield partial(_see_them_gone, process)


async def _see_them_gone(process: Process) -> None:
    with trio.move_on_after(REMAINS_S):
        while left := list(process.remains()):
            for remaining in left:
                await remaining.wait_dead()
    await _see_them_dead(_kill_all(process))


def _kill_all(process: Process) -> list[Process]:
    """Kill a process and all that is left below it; those that have to be waited for, because they take a moment."""
    left = [one for one in (process, *process.remains()) if one.alive]
    for one in left:
        one.kill()
    return left


async def shut_down(group: Iterable[tuple[Process, float | None]]) -> None:
    """`ending`, for tasks."""
    await in_task(ending(group))


@final
class _Ending:
    """One process that was told to end and has not yet."""

    __slots__ = ("deadline_s", "process", "shutdown_s")

    def __init__(self, process: Process, shutdown_s: float | None, now_s: float) -> None:
        self.process = process
        self.shutdown_s = shutdown_s
        self.deadline_s = math.inf if shutdown_s is None else now_s + shutdown_s


async def _see_to_the_end(group: list[_Ending]) -> None:
    """Wait for each until its deadline, and kill it then."""
    group.sort(key=lambda ending: ending.deadline_s)
    killed: list[Process] = []
    for each in group:
        if each.shutdown_s is None and killed:
            await _see_them_dead(killed)
            killed = []
        with trio.move_on_at(each.deadline_s):
            await each.process.wait_dead()
        if each.process.alive and each.shutdown_s:
            logger.warning("%s is killed: it did not end within its %s s", each.process.ref, each.shutdown_s)
        if each.process.alive or each.shutdown_s == 0:
            killed += _kill_all(each.process)
    await _see_them_dead(killed)


async def _see_them_dead(killed: list[Process]) -> None:
    with trio.move_on_after(KILL_GRACE_S):
        for process in killed:
            await process.wait_dead()
    for process in killed:
        if process.alive:
            logger.error(
                "%s ignores its cancellation for %s s after its shutdown time: look for a shielded scope in it",
                process.ref,
                KILL_GRACE_S,
            )
