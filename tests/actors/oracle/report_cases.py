"""The recorded lines about whom a report of a crash names, and about metadata of log lines."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from trio.testing import wait_all_tasks_blocked

from batonpass.actors import (
    ActorSpec,
    From,
    LogMetadata,
    Ref,
    Reply,
    Server,
    SupervisorSpec,
    System,
    Task,
    TaskSupervisor,
    TaskSupervisorSpec,
    open_tasks,
    set_log_metadata,
)
from batonpass.actors.core.telemetry import ACTOR_CRASH, Event
from tests.actors.oracle.lines import Raw, oracle


class Boss(Server[None]):
    """Does what it is called or cast with, in its callbacks."""

    trap_exit = True

    def handle_call(self, request: Callable[["Boss"], object], from_: From, state: None) -> Reply[None]:
        request(self)
        return Reply(None)

    def handle_cast(self, message: Callable[["Boss"], object], state: None) -> None:
        message(self)

    def handle_info(self, message: Any, state: None) -> None:
        pass


async def fails() -> None:
    raise ValueError("boom")


def raises(_boss: object) -> None:
    raise ValueError("boom")


async def reported(system: System, do: Callable[[Boss], object], *, cast: bool = False) -> tuple[list[str], list[str]]:
    """Which ancestors and callers are told of the crash that `do`, in the boss, leads to."""
    told: list[tuple[list[str], list[str]]] = []

    def note(_event: Event, _measurements: Any, metadata: Any, _config: Any) -> None:
        told.append((names_of(metadata["ancestors"]), names_of(metadata["callers"])))

    system.telemetry.attach("crash", ACTOR_CRASH, note)
    below = SupervisorSpec(
        "sup", [ActorSpec("boss", Boss, name="boss"), TaskSupervisorSpec("tasks", name="tasks")], name="sup"
    )
    await system.start_child(below)
    boss = system.named("boss")
    if cast:
        boss.cast(do)
    else:
        await boss.call(do)
    await wait_all_tasks_blocked()
    return told[0]


def names_of(refs: tuple[Ref, ...]) -> list[str]:
    named = [next(iter(ref.process.names or ()), None) for ref in refs]
    return [str(name) for name in named if name not in {None, "root"}]


@oracle("report: the ancestors of a server under a supervisor", "[:sup]")
async def under_a_supervisor(system: System) -> Any:
    return (await reported(system, raises, cast=True))[0]


@oracle("report: the ancestors of a server that another started", "[:boss, :sup]")
async def started_by_another(system: System) -> Any:
    return (await reported(system, lambda boss: boss.start_link_nowait(Boss).cast(raises)))[0]


@oracle("report: ancestors and callers of a task of a server", "{[:boss, :sup], [:boss]}")
async def of_a_task(system: System) -> Any:
    return await reported(system, lambda boss: Task.async_(boss, fails))


@oracle("report: ancestors and callers of a task under a task supervisor", "{[:tasks, :sup], [:boss]}")
async def of_a_supervised_task(system: System) -> Any:
    tasks = system.named("tasks")
    return await reported(system, lambda boss: TaskSupervisor.async_nolink(tasks, boss, fails))


@oracle("report: ancestors and callers of a task that is only linked", "{[:boss, :sup], [:boss]}")
async def of_a_linked_task(system: System) -> Any:
    return await reported(system, lambda boss: Task.start_link(boss, fails))


@oracle("report: ancestors and callers of a task of a task", "{[:outer, :boss, :sup], [:outer, :boss]}")
async def of_a_task_of_a_task(system: System) -> Any:
    async def outer() -> None:
        async with open_tasks(system) as tasks:
            system.registry.claim("outer", tasks.process.ref)  # type: ignore[union-attr]  # inside of a task
            await Task.async_(tasks, fails).await_()

    return await reported(system, lambda boss: Task.async_(boss, outer))


class Lines(logging.Handler):
    """Keeps the metadata of each line."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(LogMetadata())
        self.metadata: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.metadata.append(dict(record.metadata))  # type: ignore[attr-defined]


async def logged(log: Callable[[logging.Logger], Awaitable[None]]) -> Any:
    """The metadata of the one line that `log` logs, as Elixir shows them."""
    logger, lines = logging.getLogger("test.lines"), Lines()
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(lines)
    try:
        await log(logger)
    finally:
        logger.removeHandler(lines)
    (metadata,) = lines.metadata
    return Raw("%{of: :case" + "".join(f", {key}: {value}" for key, value in metadata.items()) + "}")


@oracle("log: a line after metadata was set", "%{of: :case, request: 7}")
async def after_metadata(system: System) -> Any:
    async def log(logger: logging.Logger) -> None:
        set_log_metadata(request=7)
        logger.info("x")

    return await logged(log)


@oracle("log: a line after the metadata was set to nil", "%{of: :case}")
async def after_none(system: System) -> Any:
    async def log(logger: logging.Logger) -> None:
        set_log_metadata(request=7)
        set_log_metadata(request=None)
        logger.info("x")

    return await logged(log)


@oracle("log: a line of another process", "%{of: :case}")
async def of_another(system: System) -> Any:
    async def log(logger: logging.Logger) -> None:
        boss = await system.start(Boss)
        set_log_metadata(request=8)
        await boss.call(lambda _boss: logger.info("x"))

    return await logged(log)


@oracle("log: a line of a later callback", "%{of: :case, request: 9}")
async def of_a_later_callback(system: System) -> Any:
    async def log(logger: logging.Logger) -> None:
        boss = await system.start(Boss)
        await boss.call(lambda _boss: set_log_metadata(request=9))
        await boss.call(lambda _boss: logger.info("x"))

    return await logged(log)
