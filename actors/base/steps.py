"""Work that waits only if it has to: written once, done without a task whenever nothing in it has to wait.

A function that may have to wait is a generator. Where it has to, it yields what to call and await:
`yield process.wait_dead`. `at_once` runs such steps as far as they go without waiting, which is mostly to the end. What
is left, if anything, comes back as a coroutine. So a callback may return `at_once(steps)`, and costs a trio task only
if it waits. `in_task` is for those who are in a task anyway.

Steps yield functions and not coroutines, because a callback that is ended before it continues leaves nothing behind
then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Final, TypeAlias, TypeVar

import trio

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

SLICE_ITEMS: Final = 1024
"""Of the kind that takes a microsecond each."""

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


def in_slices(items: Iterable[ItemT], function: Callable[[ItemT], ResultT]) -> Steps[list[ResultT]]:
    """`[function(item) for item in items]`, letting others run after every `SLICE_ITEMS` of them."""
    results: list[ResultT] = []
    for number, item in enumerate(list(items), 1):
        results.append(function(item))
        if number % SLICE_ITEMS == 0:
            yield trio.lowlevel.checkpoint
    return results


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
