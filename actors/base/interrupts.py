"""Where Ctrl-C may strike: Python raises `KeyboardInterrupt` anywhere, and nothing of ours may be left half made.

trio knows two kinds of functions (`trio.lowlevel.enable_ki_protection`): in a protected one, and in what it calls, the
interrupt waits for the main task's next checkpoint. So the runtime protects the functions that make an actor or end a
system, and calls what users wrote by way of `interruptibly`, so that an endless loop in an `init` can be interrupted as
ever. The marks sit on code objects, and cost nothing when they are not needed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

ResultT = TypeVar("ResultT")

_receivers = 0

protected = trio.lowlevel.enable_ki_protection
"""Decorates a function that must be finished once it has begun."""


@trio.lowlevel.disable_ki_protection
def interruptibly(function: Callable[..., ResultT], *args: Any) -> ResultT:
    """Call what users wrote from a protected function."""
    return function(*args)


@trio.lowlevel.disable_ki_protection
async def await_interruptibly(function: Callable[..., Awaitable[ResultT]], *args: Any) -> ResultT:
    """`interruptibly` for what waits."""
    return await function(*args)


@contextmanager
def received() -> Iterator[None]:
    """While the program takes SIGINT as a message (`trio.open_signal_receiver`), and Python raises nothing for it."""
    global _receivers  # noqa: PLW0603 — of the process, as its signal handlers are
    _receivers += 1
    try:
        yield
    finally:
        _receivers -= 1


def are_received() -> bool:
    """Whether Ctrl-C is a message to a receiver, so that each `KeyboardInterrupt` was raised by code that made it
    up.
    """
    return _receivers > 0


def that_ends_the_program(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The first `KeyboardInterrupt` or `SystemExit` in nested groups, if there is one.

    What else has failed at the same time matters less to the caller that asked for the end, and a group of them would
    neither end the program with the status that was asked for nor quietly.
    """
    found = group.subgroup((KeyboardInterrupt, SystemExit))
    first: BaseException | None = found
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
