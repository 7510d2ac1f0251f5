"""Work that waits only if it has to: written once, done without a task whenever nothing in it has to wait.

A function that may have to wait is a generator. Where it has to, it yields what to call and await:
`yield process.wait_dead`. `at_once` runs such steps as far as they go without waiting, which is mostly to the end; what
is left, if anything, comes back as a coroutine. So a callback may return `at_once(steps)`, and costs a trio task only
if it waits. `in_task` is for those who are in a task anyway.

Steps yield functions and not coroutines, because a callback that is ended before it goes on leaves nothing behind then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeAlias, TypeVar

ResultT = TypeVar("ResultT")

Wait: TypeAlias = Callable[[], Awaitable[Any]]
Steps: TypeAlias = Generator[Wait, None, ResultT]


def at_once(steps: Steps[ResultT]) -> ResultT | Coroutine[Any, Any, ResultT]:
    """The result of `steps`, or, if they have to wait, a coroutine for the rest. Raises what they raise."""
    try:
        wait = next(steps)
    except StopIteration as done:
        result: ResultT = done.value
        return result
    return _go_on(steps, wait)


async def in_task(steps: Steps[ResultT]) -> ResultT:
    """The result of `steps`, waiting wherever they have to. Raises what they raise."""
    try:
        wait = next(steps)
    except StopIteration as done:
        result: ResultT = done.value
        return result
    return await _go_on(steps, wait)


async def _go_on(steps: Steps[ResultT], wait: Wait) -> ResultT:
    while True:
        try:
            try:
                await wait()
            except BaseException as error:
                wait = steps.throw(error)
            else:
                wait = next(steps)
        except StopIteration as done:
            result: ResultT = done.value
            return result
