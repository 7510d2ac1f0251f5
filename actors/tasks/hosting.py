"""What other nodes may have run here: children of a supervisor, and tasks (a remote `DynamicSupervisor.start_child`,
`Task.Supervisor.async` of OTP).

    # on the node "beta", which lets "alpha" start rooms, and run one function
    settings = HostSettings(["alpha"], {"room": make_room}, system.named("rooms"), tasks={"add": add})
    ActorSpec("host", ActorHost, settings, name="host")
    distribution.publish("host")

    # on the node "alpha"
    host = system.remote("beta").named("host")
    room = await ActorHost.start_child(host, "room", "lobby")  # a ref like any other
    task = ActorHost.async_(self, host, "add", 1, 2)  # a `Task` like any other

No code travels: a node names what it wants started, and gives arguments that can travel. A node that `nodes` has not is
answered as if there were no such actor. What was started belongs to its supervisor here. A task belongs to who waits
for it: when that ends, is cancelled or lost, the task is killed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast, final

from batonpass.actors.core.checks import need_count
from batonpass.actors.core.exits import Exit, NoProc
from batonpass.actors.core.messages import Down, Monitor
from batonpass.actors.core.ref import Ref, current_process
from batonpass.actors.core.server import NoReply, Server
from batonpass.actors.supervision.dynamic_supervisor import DynamicSupervisor
from batonpass.actors.tasks.task import Task, TaskResult

if TYPE_CHECKING:
    from batonpass.actors.core.children import ChildSpec
    from batonpass.actors.core.named import Named
    from batonpass.actors.core.process import Process
    from batonpass.actors.core.ref import From
    from batonpass.actors.tasks.task_owner import TaskOwner

__all__ = ["ActorHost", "HostRefusal", "HostSettings"]


class HostRefusal(Exception):
    """A host does not run what it was asked for; the sentence says why."""


@final
@dataclass(frozen=True, slots=True)
class HostSettings:
    """Which `nodes` may have what run here, by name; arguments are given to the function, which checks them.

    `children` make the specification of a child of the `supervisor`, a `DynamicSupervisor`. `tasks` are `async def`; at
    most `max_running` of both are at work at once. Raises `TypeError`, `ValueError`.
    """

    nodes: Container[str]
    children: Mapping[str, Callable[..., ChildSpec]] = field(default_factory=dict)
    supervisor: Ref | Named | None = None
    tasks: Mapping[str, Callable[..., Awaitable[Any]]] = field(default_factory=dict)
    max_running: int = 1_000

    def __post_init__(self) -> None:
        """Refuse what could start nothing here, in the face of its author."""
        need_count("max_running of a host", self.max_running, least=1)
        if isinstance(self.nodes, str):
            raise TypeError(f"nodes of a host must be several names: write [{self.nodes!r}]")
        if self.children and self.supervisor is None:
            raise ValueError("a host that may start children must be given their supervisor")


@final
@dataclass(frozen=True, slots=True)
class _Errand:
    """Who waits for a task, and what is watched so that it ends with them."""

    from_: From
    monitor: Monitor | None


@final
class ActorHost(Server[HostSettings]):
    """See the head of the module. Started with a `HostSettings`."""

    trap_exit = True

    # For those that have something run

    @staticmethod
    async def start_child(host: Ref | Named, name: str, *args: Any) -> Ref | None:
        """Have a child started over there; None if it chose not to run.

        Raises `Exit`, whose reason says why it did not start, and what a call raises. After `NodeDown` it may run.
        """
        ref: Ref | None = await host.call(("start", name, args), None)
        return ref

    @staticmethod
    async def terminate_child(host: Ref | Named, ref: Ref) -> None:
        """Have a child of that supervisor ended for good. Raises `Exit` if it is none, and what a call raises."""
        await host.call(("end", ref), None)

    @staticmethod
    def async_(owner: TaskOwner, host: Ref | Named, name: str, *args: Any) -> Task[Any]:
        """Run a task over there that is linked to `owner` here: see `Task.async_`.

        A failure over there is an `Exit` here, as that of a call is.
        """
        return Task.async_(owner, _run_there, host, name, args)

    # The host

    def init(self, arg: HostSettings) -> HostSettings:
        """Nothing runs yet."""
        self._errands: dict[Task[Any], _Errand] = {}
        return arg

    def handle_call(self, request: Any, from_: From, state: HostSettings) -> NoReply[HostSettings]:
        """Run it beside this actor; the caller is answered when it is done."""
        if from_.node != self.ref.node and from_.node not in state.nodes:
            from_.fail(NoProc(str(self.ref)))
            return NoReply()
        match request:
            case _ if len(self._errands) >= state.max_running:
                self._refuse(from_, f"{state.max_running} are at work already")
            case ("start", str(name), tuple(args)) if name in state.children:
                self._begin(from_, None, _start, state.supervisor, state.children[name], args)
            case ("end", Ref() as ref) if state.supervisor is not None:
                self._begin(from_, None, DynamicSupervisor.terminate_child, state.supervisor, ref)
            case ("run", str(name), tuple(args), Ref() as caller) if name in state.tasks:
                self._begin(from_, caller, state.tasks[name], *args)
            case _:
                self._refuse(from_, "it does not have that run")
        return NoReply()

    def handle_info(self, message: Any, state: HostSettings) -> None:
        """A task is done, or its caller is gone."""
        match message:
            case TaskResult(task, value):
                self._done(task).from_.reply(value)
            case Down(monitor, _, reason):
                for task, errand in list(self._errands.items()):
                    if task.monitor is monitor:
                        self._done(task).from_.fail(Exit(reason, str(self.ref)))
                    elif errand.monitor is monitor and task.ref is not None:
                        task.ref.kill()
            case _:
                pass

    def _begin(self, from_: From, caller: Ref | None, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        task = Task.async_(self, function, *args)
        self._errands[task] = _Errand(from_, None if caller is None else self.monitor(caller))

    def _done(self, task: Task[Any]) -> _Errand:
        errand = self._errands.pop(task)
        if errand.monitor is not None:
            self.demonitor(errand.monitor)
        return errand

    def _refuse(self, from_: From, why: str) -> None:
        from_.fail(Exit(HostRefusal(f"{self.ref} refuses: {why}"), str(self.ref)))


async def _start(supervisor: Ref | Named, make: Callable[..., ChildSpec], args: tuple[Any, ...]) -> Ref | None:
    return await DynamicSupervisor.start_child(supervisor, make(*args))


async def _run_there(host: Ref | Named, name: str, args: tuple[Any, ...]) -> Any:
    """In a task here: ask, and wait. The host watches this task."""
    me = cast("Process", current_process.get())
    return await host.call(("run", name, args, me.ref), None)
