"""Runs a long-running async function (a socket, an HTTP server) as an actor, so that it can be supervised like one.

A service has a ref, can be watched, stopped and restarted, and takes no messages. To end it is to cancel it: trio has
nothing stronger, so a service that shields itself from cancellation for long is reported, not killed.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol, final

import trio

from batonpass.actors.base.interrupts import protected
from batonpass.actors.core.exits import NORMAL, SHUTDOWN, TIMED_OUT, Reason, StartError, is_normal, reason_of
from batonpass.actors.core.process import ALIVE_STILL, Process, Status
from batonpass.actors.core.ref import current_process
from batonpass.actors.core.shutdown import shut_down

if TYPE_CHECKING:
    from collections.abc import Hashable

    from batonpass.actors.core.system import System


class AsyncService(Protocol):
    """What a service is: the kind of function that trio's `nursery.start` takes.

    It must call `task_status.started(value)` once it is ready (its socket is bound, say); its starter waits for
    that, and finds `value` as `ref.started_value`. Returning is the exit reason `"normal"`, raising is a crash.
    """

    async def __call__(self, *, task_status: trio.TaskStatus[Any]) -> object:
        """Serve until cancelled."""


@final
class _Started:
    """Takes `task_status.started(value)` of one service."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.event = trio.Event()
        self.value: Any = None
        self.called = False
        self.failure: Reason = None
        """Why it ended before it was ready, for those that wait for that."""

    def started(self, value: Any = None) -> None:
        self._process.require_loop()
        if self.called:
            raise RuntimeError("task_status.started() was called twice")
        self.called = True
        self.value = value
        self.event.set()
        self._process.tell_started()


@final
class ServiceProcess(Process):
    """One life of one service; see the head of the module."""

    __slots__ = ("_ready",)

    def __init__(self, system: System, label: str, parent: Process | None) -> None:
        super().__init__(system, label, parent)
        self._ready = _Started(self)
        self.enter()

    @property
    def starting(self) -> bool:
        """Whether it has not said that it is ready."""
        return self.alive and not self._ready.called

    @classmethod
    @protected
    def start_nowait(
        cls,
        system: System,
        serve: AsyncService,
        label: str,
        *,
        name: Hashable,
        parent: Process | None,
    ) -> ServiceProcess:
        """Begin to start `serve`; it is ready after `wait_started`.

        Raises `StartError` (`AlreadyStarted` for a name that is taken), `TypeError` for a name that is not hashable.
        """
        system.loop.require(system)
        if system.closing:
            raise StartError(label, SHUTDOWN)
        process = cls(system, label, parent)
        try:
            if name is not None:
                system.registry.claim(name, process.ref)
        except Exception as error:
            process._die(error, quiet=True)
            raise
        system.spawn(process, process._run, serve)
        return process

    async def wait_started(self, timeout_s: float | None) -> None:
        """Wait until the service says that it is ready. Raises `StartError` if it ends first.

        After `timeout_s`, if the waiting task is cancelled or the system closes, so is the service.
        """
        try:
            given_up = await self.start_over(self._ready.event, timeout_s)
        except BaseException:
            self.kill()
            raise
        if given_up is not None:
            await shut_down([(self, 0)])
            late = f"timeout: no task_status.started() within {timeout_s} s"
            raise StartError(self.label, late if given_up == TIMED_OUT else given_up)
        if not self._ready.called:
            reason, self._ready.failure = self._ready.failure, None
            raise StartError(self.label, "returned without task_status.started()" if is_normal(reason) else reason)
        self.started_value = self._ready.value

    async def _run(self, serve: AsyncService) -> None:
        current_process.set(self)
        reason: Reason
        failed = False
        try:
            # Shielded: only `exit` and `kill` may end it, so that a cancelled system still shuts down in order.
            with trio.CancelScope(shield=True) as self.scope:
                if self.pending_exit is ALIVE_STILL:
                    self.status = Status.RUNNING
                    serving = serve(task_status=self._ready)
                    if inspect.iscoroutine(serving):
                        self.system.debug.began(self, "serve", serving)
                    await serving
        except Exception as error:
            # A failure while it was being cancelled is still a failure, and the more interesting reason.
            reason, failed = reason_of(error), True
        else:
            reason = NORMAL if self.pending_exit is ALIVE_STILL else self.pending_exit
        if not self._ready.called:
            self._ready.failure = reason
        self._die(reason, quiet=not (failed and self._ready.called))
        self._ready.event.set()
        reason = None  # its traceback has this frame
