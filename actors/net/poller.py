"""Who waits for the socket: the task that waits for a message anyway, or else one of the endpoint's own.

A datagram that wakes a task of the endpoint, which then wakes the task that wants the message, costs two turns of the
scheduler. So a task that waits for a message *keeps the lookout* itself. It waits until the socket can be read, drains
it for all, and has its message in the same turn. These are the leader and its followers of Schmidt et al., PLoP 2000.

At most one task keeps the lookout. The endpoint's own, the stand-in, does so when no other does. When a receiver has
got its message it will most often be back in a few microseconds. So the stand-in takes over only after `ABSENCE_S`, or
at once when another is waiting for something.

A task may have just asked something and wait for the answer. It first lets the other processes of its core go, and
looks once whether the answer is there. Where both ends share a core it is. Waiting in the kernel and a turn of the
scheduler are saved, which cost more than everything else in a round trip. Where it is not there, that costs 2 us, and
is tried ever more rarely. Other tasks get their turn after `YIELDS_IN_A_ROW` at the latest.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import trio

__all__ = ["ABSENCE_S", "Parked", "Poller"]

ABSENCE_S: Final = 0.01
"""How long the socket is not read because its reader does something else, and no other waits for anything. What may
come late are acknowledgements, and every peer counts on that (`LinkSettings.max_ack_delay_s`, which is never less). A
timer comes up once in so long, at most.
"""

YIELDS_IN_A_ROW: Final = 8
"""Answers taken without a turn of the scheduler, and so without noticing cancellation."""

_MAX_YIELD_S: Final = 0.001
"""Other processes that need longer than so do not just answer: they have work of their own."""

_MAX_PAUSE_WAITS: Final = 256
"""So rarely it is tried when it never helps."""

Parked = deque[trio.lowlevel.Task]
"""Tasks that wait while another one keeps the lookout, from the first that came."""


class ReadableSocket(Protocol):
    """What `trio.lowlevel.wait_readable` waits for."""

    def fileno(self) -> int:
        """Its number in the kernel."""
        ...


class Poller:
    """See the module. `drain` reads and handles what has arrived; `settle` sends what was held back, before a wait."""

    def __init__(self, drain: Callable[[], bool], settle: Callable[[], None]) -> None:
        self._drain = drain
        self._settle = settle
        self._socket: int | None = None  # its number: trio would ask for it every time
        self._is_kept = False
        self._parked_tasks = 0
        self._woken_tasks = 0
        self._stand_in: trio.lowlevel.Task | None = None  # while it rests
        self._rest_scope = trio.CancelScope()
        self._rests_on = False  # the stand-in, for as long as another keeps the lookout
        self.has_asked = False
        """Something has left, and what waits now most likely waits for the answer."""
        self._yields_left = YIELDS_IN_A_ROW
        self._pause_waits = 0  # before it is tried again to yield
        self._next_pause_waits = 1

    async def stand_in(self, socket: ReadableSocket) -> None:
        """Keep the lookout whenever no other does, until cancelled."""
        self._socket = socket.fileno()
        try:
            while True:
                if not self._is_kept:
                    woken_tasks = self._woken_tasks
                    try:
                        await self._keep()
                    except trio.ClosedResourceError:  # disturbed; if the socket ends, so does this task
                        await trio.lowlevel.checkpoint()
                    if woken_tasks == self._woken_tasks:
                        continue
                await self._rest()  # who was parked has its message, and will be back
        finally:
            self.disturb()  # a receiver that keeps it must not wait for a socket that is being closed
            self._socket = None

    async def _keep(self) -> None:
        assert self._socket is not None  # noqa: S101 -- for the type checker: asked for by the callers
        self._settle()
        self._is_kept = True
        try:
            await trio.lowlevel.wait_readable(self._socket)
        finally:
            self._is_kept = False
        self._drain()

    async def _rest(self) -> None:
        self._rests_on = self._is_kept
        deadline_s = math.inf if self._is_kept else trio.current_time() + ABSENCE_S
        with trio.CancelScope(deadline=deadline_s) as self._rest_scope:
            self._stand_in = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_resting)

    def _stop_resting(self, _: Any) -> trio.lowlevel.Abort:
        # At once, and not when the task runs again: in between, a task may need it.
        self._stand_in = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def wait(self, parked: Parked) -> None:
        """Wait until something has arrived, for any task; then look whether it is what was waited for, or wait again.

        `parked` is where this task is put when another one keeps the lookout; `wake` gets it out. Budget: 7 us.
        """
        self._settle()
        if self._is_kept or self._socket is None:
            await self._park(parked)
            return
        if self.has_asked and self._is_answered_at_once():
            if self._parked_tasks or self._rests_on:
                self._leave()
            return
        self.has_asked = False
        self._is_kept = True
        try:
            await trio.lowlevel.wait_readable(self._socket)
            self._is_kept = False
            self._drain()
        except trio.ClosedResourceError:  # the socket is being closed, or an inbox is: its receivers see that
            self._is_kept = False
            await trio.lowlevel.checkpoint()
        except BaseException:
            self._is_kept = False
            self.need()
            raise
        if self._parked_tasks or self._rests_on:
            self._leave()

    def _is_answered_at_once(self) -> bool:
        """Let others go first that can run on this core; whether something has come then, and was drained."""
        if self._pause_waits:
            self._pause_waits -= 1
            return False
        began_s = time.perf_counter()
        os.sched_yield()
        took_s = time.perf_counter() - began_s
        if took_s < _MAX_YIELD_S and self._drain():
            self._next_pause_waits = 1
            self._yields_left -= 1
            if not self._yields_left:
                self._yields_left = YIELDS_IN_A_ROW
                self._pause_waits = 1
            self.has_asked = False
            return True
        self._pause_waits = self._next_pause_waits
        self._next_pause_waits = min(2 * self._next_pause_waits, _MAX_PAUSE_WAITS)
        return False

    def _leave(self) -> None:
        """Something has come, and the task that kept the lookout takes care of that."""
        if self._parked_tasks:
            self.need()
        elif self._stand_in is not None:
            self._rests_on = False
            self._rest_scope.deadline = trio.current_time() + ABSENCE_S

    async def _park(self, parked: Parked) -> None:
        task = trio.lowlevel.current_task()
        parked.append(task)
        self._parked_tasks += 1

        def abort(_: Any) -> trio.lowlevel.Abort:
            parked.remove(task)
            self._parked_tasks -= 1
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self, parked: Parked) -> None:
        """Let the first of these look, if there is one."""
        if parked:
            self._parked_tasks -= 1
            self._woken_tasks += 1
            trio.lowlevel.reschedule(parked.popleft())

    def need(self) -> None:
        """A task waits for what arrives without keeping the lookout: the stand-in shall, unless another task does."""
        if not self._is_kept and self._stand_in is not None:
            trio.lowlevel.reschedule(self._stand_in)
            self._stand_in = None

    def disturb(self) -> None:
        """The task that keeps the lookout shall look up: something it waits for has ended."""
        if self._is_kept and self._socket is not None:
            trio.lowlevel.notify_closing(self._socket)
