"""Who may own tasks: an actor, or a block of a trio task.

A task that is linked to its owner (every task that is not started with `nolink`) never outlives it:

- **An actor** owns the tasks that its callbacks start. When the actor ends, for whatever reason, they are cancelled.
  When one of them crashes, the actor ends with the same reason, as if the two were linked. One that traps exits
  continues: it is told by the one message that there is about each task, `TaskResult` or `Down`.
- **A trio task** owns tasks within `async with open_tasks(system) as tasks:`. When the block is left, by whatever way,
  those that still run are cancelled, and it waits for them. A crash is raised where the owner awaits that task; if it
  never does, at the end of the block. There is no exit signal to a trio task: nothing is cancelled behind its back.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

import trio

from batonpass.actors.core.exits import Exit, Reason, StartError, is_orderly
from batonpass.actors.core.process import Process
from batonpass.actors.core.ref import current_process
from batonpass.actors.core.server import Server
from batonpass.actors.core.shutdown import shut_down

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from batonpass.actors.core.system import System
    from batonpass.actors.tasks.task import Task
    from batonpass.actors.tasks.task_process import TaskProcess

SCOPE_SHUTDOWN_S: Final = 5.0
"""How long tasks that are cancelled at the end of a block may take to clean up."""


class TaskError(Exception):
    """A task was used in a way that has no meaning: by another than its owner, or twice."""


class Owner(Protocol):
    """What a task needs of its owner."""

    @property
    def system(self) -> System:
        """Where it runs."""

    @property
    def process(self) -> Process | None:
        """The actor that it is, or that the block is part of, if any."""

    @property
    def traps(self) -> bool:
        """Whether the crash of a linked task becomes a message instead of ending the owner."""

    def check(self, task: object) -> None:
        """Raises `TaskError` unless it is the owner that runs now."""

    def require_alive(self) -> None:
        """Raises `StartError` if it has ended, so that no task can end with it."""

    def adopt(self, task: Task[Any], process: TaskProcess) -> None:
        """A task has been started that is to end with this owner."""

    def release(self, task: Task[Any], process: TaskProcess) -> None:
        """Such a task has ended."""

    def link(self, process: TaskProcess) -> None:
        """From now on a crash of the task is this owner's."""

    def unlink(self, process: TaskProcess) -> None:
        """And from now on not any more."""

    def post(self, task: Task[Any]) -> None:
        """A task has ended, and the owner is not waiting for it."""

    def retract(self, task: Task[Any]) -> None:
        """The owner has asked for the outcome after all."""

    def keep_crash(self, task: Task[Any], reason: Reason) -> None:
        """A linked task has ended for an abnormal reason."""

    def end(self, task: Task[Any], reason: Reason) -> None:
        """A task of a linked stream has ended for an abnormal reason."""


@final
class ActorOwner:
    """An actor, as the owner of one task."""

    __slots__ = ("_posted", "_server", "_token", "process", "system")

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self.process: Process = server.ref.process
        self.system = self.process.system
        self._token: int | None = None
        self._posted = False

    @property
    def traps(self) -> bool:
        """Whether the crash of a linked task becomes a message instead of ending the actor."""
        return self._server.trap_exit

    def check(self, task: object) -> None:
        """Raises `TaskError` outside of the actor's async callbacks."""
        self.process.require_loop()
        if current_process.get() is not self.process:
            raise TaskError(
                f"{task} belongs to {self.process.ref}: only its own `async def` callbacks may wait for it;"
                " a plain callback returns, and is told by a message"
            )

    def require_alive(self) -> None:
        """Raises `StartError` if the actor has ended."""
        if not self.process.alive:
            raise StartError("a task", f"{self.process.ref}, with which it would end, has ended already")

    def adopt(self, task: Task[Any], process: TaskProcess) -> None:
        """The task ends with the actor, also if it is another's child."""
        if process.parent is not self.process:
            self._token = self.process.watch(process.exit_from_parent)

    def release(self, task: Task[Any], process: TaskProcess) -> None:
        """It has ended."""
        if self._token is not None:
            self.process.unwatch(self._token)
            self._token = None

    def link(self, process: TaskProcess) -> None:
        """Nothing to do: the task ends with the actor in any case, and `keep_crash` sees to the other direction."""

    def unlink(self, process: TaskProcess) -> None:
        """Nothing to do."""

    def post(self, task: Task[Any]) -> None:
        """Tell the actor by a message; which one, is decided when it gets to it."""
        self._posted = True
        self.process.deliver_late(task)

    def retract(self, task: Task[Any]) -> None:
        """Take the message out of the mailbox, if it is there."""
        if self._posted:
            self._posted = False
            self.process.withdraw_late(task)

    def keep_crash(self, task: Task[Any], reason: Reason) -> None:
        """The crash of the task is the actor's, as along a link. One that traps exits has its message."""
        if not self.traps:
            self.system.link_signals.send(self.process, reason, task.ref.process)

    def end(self, task: Task[Any], reason: Reason) -> None:
        """What a link would do."""
        self.process.exit(reason, task.ref)


@final
class TaskScope:
    """A block of a trio task, as the owner of its tasks; made by `open_tasks`."""

    __slots__ = ("_crashed", "_open", "_running", "_trio_task", "process", "system")

    def __init__(self, system: System) -> None:
        self.system = system
        self.process = current_process.get()
        self._trio_task = trio.lowlevel.current_task()
        self._running: dict[Task[Any], TaskProcess] = {}
        self._crashed: dict[Task[Any], Reason] = {}
        self._open = True

    def __repr__(self) -> str:
        return f"<tasks of {self._trio_task.name}>"

    @property
    def traps(self) -> bool:
        """Never: the crash of a linked task is raised."""
        return False

    def check(self, task: object) -> None:
        """Raises `TaskError` in another trio task than the one that opened the block, and after its end."""
        if trio.lowlevel.current_task() is not self._trio_task:
            raise TaskError(f"{task} belongs to {self}: only the trio task that opened the block may wait for it")
        if not self._open:
            raise TaskError(f"{task} belongs to {self}, and its block has ended: use it before")

    def require_alive(self) -> None:
        """Nothing to do: `check` has seen to it."""

    def adopt(self, task: Task[Any], process: TaskProcess) -> None:
        """The task ends with the block."""
        self._running[task] = process

    def release(self, task: Task[Any], process: TaskProcess) -> None:
        """It has ended."""
        self._running.pop(task, None)

    def link(self, process: TaskProcess) -> None:
        """Nothing to do: a trio task gets no signals."""

    def unlink(self, process: TaskProcess) -> None:
        """Nothing to do."""

    def post(self, task: Task[Any]) -> None:
        """Nothing to do: a trio task has no mailbox, it asks."""

    def retract(self, task: Task[Any]) -> None:
        """The owner knows how this task ended."""
        self._crashed.pop(task, None)

    def keep_crash(self, task: Task[Any], reason: Reason) -> None:
        """Keep the crash until the owner asks, or the block ends."""
        if self._open and not is_orderly(reason):
            self._crashed[task] = reason

    def end(self, task: Task[Any], reason: Reason) -> None:
        """Nothing to do: the stream raises it."""

    async def close(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        self._open = False
        with trio.CancelScope(shield=True):
            await shut_down([(process, SCOPE_SHUTDOWN_S) for process in list(self._running.values())])

    def raise_crash(self) -> None:
        """Raises `Exit` for the first task that crashed and was not asked for."""
        for task, reason in self._crashed.items():
            raise Exit(reason, str(task))


TaskOwner: TypeAlias = Server[Any] | TaskScope
"""Who starts a task: `self` in a server's callbacks, or what `open_tasks` gives."""


@asynccontextmanager
async def open_tasks(system: System) -> AsyncIterator[TaskScope]:
    """Own tasks for the length of an `async with` block; see the head of the module.

    Raises `Exit` at the end if a linked task crashed, its end was not asked for, and nothing else went wrong.
    """
    scope = TaskScope(system)
    try:
        yield scope
    finally:
        await scope.close()
    scope.raise_crash()


def owner_of(owner: TaskOwner) -> Owner:
    """What the runtime needs of an owner that is about to start a task.

    Raises `TaskError`, as `TaskScope.check`, and `TypeError` for what can own none.
    """
    if isinstance(owner, TaskScope):
        owner.check("a new task")
        return owner
    given: Any = owner
    if not isinstance(given, Server):
        raise TypeError(f"a task belongs to `self` of a server, or to what open_tasks gives, not to {given!r}")
    return ActorOwner(given)
