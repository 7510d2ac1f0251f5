"""A pool: resources that are dear to open, lent to one task at a time (the contract of NimblePool).

    pool = ActorSpec("db", Pool, PoolSettings(connect, size=10), name="db")
    ...
    async with Pool.checkout(system.named("db")) as connection:
        await connection.execute(...)

`open` is called where one is needed and none is idle, in the task that needs it, so that the pool itself never waits. A
task that comes when all are lent waits, first come first served, at most `timeout_s`. When `max_waiting` wait already
the next is refused at once (`PoolFull`): a queue that only grows helps none. A block that is left in order gives its
resource back. One that raises, or is cancelled, may have left it half used: it is closed, and another is opened when it
is needed.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

import trio

from batonpass.actors.core.checks import need_count
from batonpass.actors.core.named import Named
from batonpass.actors.core.process import logger
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S, Ref
from batonpass.actors.core.server import NoReply, Reply, Server

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.ref import From

__all__ = ["CLOSE_S", "Pool", "PoolFull", "PoolSettings", "PoolStats"]

ResourceT = TypeVar("ResourceT")

CLOSE_S: Final = 5.0
"""How long closing one resource may take; then it is given up, and logged."""

_NONE: Final = object()


class PoolFull(Exception):
    """As many wait for the pool as it lets wait."""

    def __init__(self, pool: str, waiting: int) -> None:
        self.waiting = waiting
        super().__init__(f"{waiting} wait for a resource of {pool} already, its max_waiting: come later, or raise it")


@dataclass(frozen=True, slots=True)
class PoolSettings(Generic[ResourceT]):
    """What a pool is started with. `open` and `close` may be `async def`. Raises `TypeError`, `ValueError`."""

    open: Callable[[], ResourceT | Awaitable[ResourceT]]
    close: Callable[[ResourceT], object] | None = None
    size: int = 10
    max_waiting: int = 1_000

    def __post_init__(self) -> None:
        for what, function in (("open", self.open), ("close", self.close)):
            if not callable(function) and not (what == "close" and function is None):
                raise TypeError(f"{what} of a pool must be a function, not {function!r}")
        need_count("size of a pool", self.size, least=1)
        need_count("max_waiting of a pool", self.max_waiting)


@final
@dataclass(frozen=True, slots=True)
class PoolStats:
    """How a pool is: resources that are lent (or being opened), and idle, and who waits."""

    lent: int
    idle: int
    waiting: int


@final
@dataclass(frozen=True, slots=True)
class _Take:
    pass


@final
@dataclass(frozen=True, slots=True)
class _Stats:
    pass


@final
@dataclass(frozen=True, slots=True)
class _Granted:
    """A place in the pool, with an idle resource if there was one. It is given back to this life of the pool."""

    pool: Ref
    settings: PoolSettings[Any]
    resource: Any


@final
@dataclass(frozen=True, slots=True)
class _GiveBack:
    """A place, with its resource unless that has been closed."""

    resource: Any


class Pool(Server[None]):
    """See the head of the module. Started with a `PoolSettings`."""

    trap_exit = True

    @staticmethod
    @asynccontextmanager
    async def checkout(pool: Ref | Named, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> AsyncIterator[Any]:
        """Have a resource for the length of an `async with` block.

        Raises `PoolFull`; `CallTimeout` after `timeout_s`; what a call raises; and what `open` raises.
        """
        granted = await pool.call(_Take(), timeout_s)
        if isinstance(granted, PoolFull):
            raise granted
        resource = granted.resource
        try:
            if resource is _NONE:
                resource = granted.settings.open()
                if inspect.isawaitable(resource):
                    opening, resource = resource, _NONE
                    resource = await opening
            yield resource
        except BaseException:
            await _close(granted, resource)
            granted.pool.cast(_GiveBack(_NONE))
            raise
        if granted.pool.alive:
            granted.pool.cast(_GiveBack(resource))
        else:
            await _close(granted, resource)

    @staticmethod
    async def stats(pool: Ref | Named) -> PoolStats:
        """How it is now. Raises what a call raises."""
        answer: PoolStats = await pool.call(_Stats())
        return answer

    # Callbacks

    def init(self, arg: PoolSettings[Any]) -> None:
        """Begin with nothing open."""
        self._settings = arg
        self._idle: list[Any] = []
        self._lent = 0
        self._waiting: deque[From] = deque()

    def handle_call(self, request: Any, from_: From, state: None) -> Any:
        """Lend, have wait, or refuse; or say how it is."""
        if type(request) is _Stats:
            self._forget_those_who_left()
            return Reply(PoolStats(self._lent, len(self._idle), len(self._waiting)))
        if type(request) is not _Take:
            return super().handle_call(request, from_, state)
        if self._lent < self._settings.size:
            return Reply(self._lend())
        if len(self._waiting) >= self._settings.max_waiting:
            self._forget_those_who_left()
        if len(self._waiting) >= self._settings.max_waiting:
            return Reply(PoolFull(str(self.ref), len(self._waiting)))
        self._waiting.append(from_)
        return NoReply()

    def handle_cast(self, message: Any, state: None) -> None:
        """A place is free again: for the first who still waits."""
        if type(message) is not _GiveBack:
            logger.warning("%s got a cast that it does not understand: %r", self.ref, message)
            return
        self._lent -= 1
        if message.resource is not _NONE:
            self._idle.append(message.resource)
        while self._waiting and self._lent < self._settings.size:
            first = self._waiting.popleft()
            if first.waiting:
                first.reply(self._lend())

    async def terminate(self, reason: Reason, state: None) -> None:
        """Close what is idle. What is lent is closed by those who have it."""
        for resource in self._idle:
            await _close(_Granted(self.ref, self._settings, resource), resource)

    def _lend(self) -> _Granted:
        self._lent += 1
        # The one that was used last: the others may be closed by their other ends.
        return _Granted(self.ref, self._settings, self._idle.pop() if self._idle else _NONE)

    def _forget_those_who_left(self) -> None:
        self._waiting = deque(from_ for from_ in self._waiting if from_.waiting)


async def _close(granted: _Granted, resource: Any) -> None:
    close = granted.settings.close
    if close is None or resource is _NONE:
        return
    # Also when the task that had it is cancelled.
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S) as limit:
        try:
            closing = close(resource)
            if inspect.isawaitable(closing):
                await closing
        except Exception as error:
            logger.warning("%s: a resource could not be closed: %r", granted.pool, error)
    if limit.cancelled_caught:
        logger.warning("%s: a resource was not closed within %s s, and is given up", granted.pool, CLOSE_S)
