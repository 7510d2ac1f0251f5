"""The recorded lines about tasks."""

from typing import Any

import trio

from batonpass.actors import System, Task, open_tasks
from tests.actors.oracle.lines import called, oracle


@oracle("Task.yield timeout / shutdown", "{nil, nil}")
async def task_yield(system: System) -> Any:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, trio.sleep, 0.2)
        return await task.yield_(0.01), await task.shutdown(0)


@oracle("Task.await", "{:ret, 42}")
async def task_await(system: System) -> Any:
    async def answer() -> int:
        return 42

    async with open_tasks(system) as tasks:
        return await called(Task.async_(tasks, answer).await_())
