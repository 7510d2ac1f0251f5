"""The recorded lines about agents, about tasks that nobody owns, and about how tasks are shut down."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from batonpass.actors import (
    Agent,
    Exited,
    ExitSignal,
    Ref,
    Returned,
    System,
    Task,
    TaskSupervisor,
    TaskSupervisorSpec,
)
from tests.actors.oracle.lines import called, oracle, started
from tests.actors.oracle.subjects import settled
from tests.actors.task_helpers import TrappingOwner


async def agent(system: System, state: Any = 1) -> Ref:
    """An agent with this state."""
    return await system.start(Agent, lambda: state)


def same(state: Any) -> Any:
    return state


def boom(_state: Any = None) -> Any:
    raise RuntimeError("boom")


@oracle("agent: get", "11")
async def get(system: System) -> Any:
    return await Agent.get(await agent(system), lambda state: state + 10)


@oracle("agent: update answers, and then get", "{:ok, 2}")
async def update(system: System) -> Any:
    it = await agent(system)
    await Agent.update(it, lambda state, more: state + more, 1)
    return "ok", await Agent.get(it, same)


@oracle("agent: get_and_update answers, and then get", "{:old, 3}")
async def get_and_update(system: System) -> Any:
    it = await agent(system, 2)
    return await Agent.get_and_update(it, lambda state: ("old", state + 1)), await Agent.get(it, same)


@oracle("agent: cast answers, and then get", "{:ok, 30}")
async def cast(system: System) -> Any:
    it = await agent(system, 3)
    Agent.cast(it, lambda state: state * 10)
    return "ok", await Agent.get(it, same)


async def slowed(system: System) -> tuple[Ref, Any]:
    """An agent that is at work for a moment, and the outcome of asking it meanwhile."""

    async def slow(state: int) -> int:
        await trio.sleep(0.1)
        return state + 1

    it = await agent(system, 30)
    Agent.cast(it, slow)
    return it, await called(Agent.get(it, same, timeout_s=0.01))


@oracle("agent: a slow update, and a get that times out, alive", "{:exit, true}")
async def slow_update(system: System) -> Any:
    it, (outcome, _) = await slowed(system)
    return outcome, it.alive


@oracle("agent: and then get", "31")
async def after_slow_update(system: System) -> Any:
    it, _ = await slowed(system)
    return await Agent.get(it, same)


@oracle("agent: stop", "{:ok, false}")
async def stop(system: System) -> Any:
    it = await agent(system)
    await it.stop()
    return "ok", it.alive


@oracle("agent: get of one that has ended", "{:exit, :noproc}")
async def ended(system: System) -> Any:
    it = await agent(system)
    it.kill()
    how, (why, _) = await called(Agent.get(it, same))
    return how, why


@oracle(
    "agent: a function of get that raises, alive",
    '{{:exit, {%RuntimeError{message: "boom"}, :stacktrace}}, false}',
)
async def get_raises(system: System) -> Any:
    it = await agent(system)
    how, (why, _) = await called(Agent.get(it, boom))
    return (how, why), it.alive


@oracle("agent: get_and_update returns nonsense", "{:exit, {:bad_return_value, :nonsense}}")
async def nonsense(system: System) -> Any:
    how, (why, _) = await called(Agent.get_and_update(await agent(system), lambda state: "nonsense"))
    return how, why


@oracle("agent: a function of cast that raises, alive", "false")
async def cast_raises(system: System) -> Any:
    it = await agent(system)
    Agent.cast(it, boom)
    await settled()
    return it.alive


@oracle("agent: the first function raises", '{:error, {%RuntimeError{message: "boom"}, :stacktrace}}')
async def first_raises(system: System) -> Any:
    return await started(system.start(Agent, boom))


# Tasks that nobody owns


async def raising(error: Exception | None = None) -> None:
    if error is not None:
        raise error


@oracle("Task.start that raises: alive, and what its starter is told", "{false, []}")
async def task_start(system: System) -> Any:
    starter = await system.start(TrappingOwner)
    refs: list[Ref] = []
    starter.cast(lambda server: refs.append(Task.start(server.system, raising, RuntimeError("boom"))))
    await settled()
    return refs[0].alive, await starter.call("what came?")


async def start_linked(system: System, work: Callable[[], Awaitable[object]]) -> list[Any]:
    starter = await system.start(TrappingOwner)
    refs: list[Ref] = []
    starter.cast(lambda server: refs.append(Task.start_link(server, work)))
    await settled()
    if refs[0].alive:
        refs[0].exit("boom")
        await settled()
    told = await starter.call("what came?")
    return [("EXIT", signal.reason) for signal in told if isinstance(signal, ExitSignal) and signal.sender is refs[0]]


@oracle("Task.start_link that exits: what its trapping starter is told", "[EXIT: :boom]")
async def start_link_exits(system: System) -> Any:
    return await start_linked(system, trio.sleep_forever)


@oracle("Task.start_link that returns: what its trapping starter is told", "[EXIT: :normal]")
async def start_link_returns(system: System) -> Any:
    return await start_linked(system, raising)


# Shutdown


async def shut(
    system: System,
    work: Callable[[], Awaitable[Any]],
    timeout_s: float = 5.0,
    *,
    before: Callable[[Ref], None] = lambda ref: None,
) -> Any:
    """What `Task.shutdown` answers, after `before` was done to the task, and what its owner was told besides."""
    await system.start_child(TaskSupervisorSpec("tasks", name="tasks"))

    async def end(server: Any) -> Any:
        task = TaskSupervisor.async_nolink(system.named("tasks"), server, work)
        await settled_by_time()
        before(task.ref)
        await settled_by_time()
        return await task.shutdown(timeout_s)

    owner = await system.start(TrappingOwner)
    outcome = in_elixir(await owner.call(end, None))
    await settled()
    return outcome, await owner.call("what came?")


async def settled_by_time() -> None:
    await trio.sleep(0.02)


def in_elixir(outcome: Any) -> Any:
    """`{:ok, value}`, `{:exit, reason}` or nil."""
    match outcome:
        case Returned(value):
            return "ok", value
        case Exited(reason):
            return "exit", reason if isinstance(reason, str) else str(reason)
        case _:
            return outcome


async def at_the_end(answer: Any = None, *, takes_s: float = 0.0) -> Any:
    """Runs until it is cancelled; then it returns, raises, or goes on for a while."""
    with trio.CancelScope(shield=True):
        await trio.sleep(0.03)
        if takes_s:
            await trio.sleep(takes_s)
    if isinstance(answer, Exception):
        raise answer
    return answer


async def value() -> int:
    return 42


@oracle("Task.shutdown of one that has returned", "{{:ok, 42}, []}")
async def shutdown_returned(system: System) -> Any:
    return await shut(system, value)


@oracle("Task.shutdown of one that has crashed", "{{:exit, :boom}, []}")
async def shutdown_crashed(system: System) -> Any:
    return await shut(system, trio.sleep_forever, before=lambda ref: ref.exit("boom"))


@oracle("Task.shutdown of one that runs", "{nil, []}")
async def shutdown_running(system: System) -> Any:
    return await shut(system, trio.sleep_forever)


@oracle("Task.shutdown of one that runs, brutally", "{nil, []}")
async def shutdown_brutally(system: System) -> Any:
    return await shut(system, trio.sleep_forever, 0)


@oracle("Task.shutdown of one that returns a value then", "{{:ok, 43}, []}")
async def shutdown_returns(system: System) -> Any:
    return await shut(system, lambda: at_the_end(43, takes_s=1.0))


@oracle("Task.shutdown of one that crashes then", "{{:exit, :boom}, []}")
async def shutdown_crashes(system: System) -> Any:
    return await shut(system, lambda: at_the_end(RuntimeError("boom"), takes_s=1.0))


@oracle("Task.shutdown of one that ignores it for longer than its time", "{{:exit, :killed}, []}")
async def shutdown_ignored(system: System) -> Any:
    async def ignore() -> None:
        await at_the_end(takes_s=0.5)
        await trio.sleep_forever()

    return await shut(system, ignore, 0.03)


@oracle("Task.yield of one that somebody kills", "{{:exit, :killed}, []}")
async def yield_killed(system: System) -> Any:
    await system.start_child(TaskSupervisorSpec("tasks", name="tasks"))

    async def end(server: Any) -> Any:
        task = TaskSupervisor.async_nolink(system.named("tasks"), server, trio.sleep_forever)
        await settled_by_time()
        task.ref.kill()
        return await task.yield_(0.5)

    owner = await system.start(TrappingOwner)
    outcome = in_elixir(await owner.call(end))
    return outcome, await owner.call("what came?")


@oracle("Task.shutdown of one that somebody has killed", "{{:exit, :killed}, []}")
async def shutdown_of_killed(system: System) -> Any:
    return await shut(system, trio.sleep_forever, before=Ref.kill)


@oracle("Task.shutdown of one that somebody has shut down", "{nil, []}")
async def shutdown_of_shut_down(system: System) -> Any:
    return await shut(system, trio.sleep_forever, before=lambda ref: ref.exit("shutdown"))


@oracle("Task.shutdown, brutally, of one that somebody has killed", "{nil, []}")
async def brutally_of_killed(system: System) -> Any:
    return await shut(system, trio.sleep_forever, 0, before=Ref.kill)


@oracle("Task.shutdown, brutally, of one that somebody has shut down", "{{:exit, :shutdown}, []}")
async def brutally_of_shut_down(system: System) -> Any:
    return await shut(system, trio.sleep_forever, 0, before=lambda ref: ref.exit("shutdown"))


# The shutdown of a task of a supervisor


async def stopped_with(system: System, shutdown_s: float, work: Callable[[], Awaitable[Any]]) -> Any:
    """How a task with this shutdown ends when its supervisor is stopped."""
    await system.start_child(TaskSupervisorSpec("tasks", name="tasks"))
    tasks: list[Ref] = []

    def begin(server: Any) -> None:
        tasks.append(TaskSupervisor.async_nolink(system.named("tasks"), server, work, shutdown_s=shutdown_s).ref)

    owner = await system.start(TrappingOwner)
    owner.cast(begin)
    await settled_by_time()
    await system.named("tasks").stop()
    reason = await tasks[0].exited()
    return reason if isinstance(reason, str) else str(reason)


async def tidy(takes_s: float) -> None:
    await at_the_end(RuntimeError("tidy"), takes_s=takes_s)


@oracle("Task with a shutdown of 2 s that needs 30 ms, its supervisor ends", ":tidy")
async def in_time(system: System) -> Any:
    return await stopped_with(system, 2.0, lambda: tidy(0.03))


@oracle("Task with a shutdown of 20 ms that needs 200 ms, its supervisor ends", ":killed")
async def too_late(system: System) -> Any:
    async def keeps_on() -> None:
        await at_the_end(takes_s=0.2)
        await trio.sleep_forever()

    return await stopped_with(system, 0.02, keeps_on)


@oracle("Task with a shutdown of :brutal_kill, its supervisor ends", ":killed")
async def at_once(system: System) -> Any:
    return await stopped_with(system, 0, trio.sleep_forever)


@oracle("Task with a shutdown that traps no exits, its supervisor ends", ":shutdown")
async def of_no_trap(system: System) -> Any:
    return await stopped_with(system, 0.2, trio.sleep_forever)
