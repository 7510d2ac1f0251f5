"""A server as an application (OTP's word): one supervision tree, which runs until it is cancelled or cannot continue.

A supervisor makes good what failed by accident. Two things it cannot make good, and both end the server. One is a
failure that comes again and again (the restart limits in the tree say when). The other is one that a restart would not
change or would make worse: a disk that lost what it had acknowledged, a peer that will never accept this server. A part
that meets the second kind says so with a `LastWord`.
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn

import trio

from batonpass.actors.base.clock import Bell
from batonpass.actors.core.children import ChildSpec, RestartLimitReached
from batonpass.actors.core.exits import Exit, StartError, cause_of, reason_of, shown
from batonpass.actors.core.service import AsyncService
from batonpass.actors.core.supervisor import ChildStartFailed
from batonpass.actors.core.system import System
from batonpass.actors.core.telemetry import Telemetry

__all__ = ["LastWord", "RootEnded", "run_application"]


_ON_THE_WAY_UP: Final = (StartError, ChildStartFailed, RestartLimitReached)


class RootEnded(Exit):
    """The root supervisor was ended in order, by an operator say; what was below it would not be started again."""

    def _sentence(self) -> str:
        return f"{self.actor} was ended from outside ({shown(self.reason)}), and the server ends with it"


class LastWord:
    """Why a server must end although its supervisors could keep trying. Only the first one counts."""

    def __init__(self) -> None:
        self._said: Final = Bell()
        self.error: Exception | None = None

    def say(self, error: Exception) -> None:
        """End the server with `error`. From any thread."""
        if self.error is None:
            self.error = error
            self._said.ring()

    async def heard(self) -> NoReturn:
        """Wait until it is said, and raise it."""
        while self.error is None:
            await self._said.wait()
        raise self.error

    def of(self, serve: AsyncService) -> AsyncService:
        """`serve` as a service whose every failure ends the server; ended from outside, it is restarted like others."""

        async def until_it_fails(*, task_status: trio.TaskStatus[Any]) -> None:
            noting = _Noting(task_status)
            try:
                await serve(task_status=noting)
            except Exception as error:
                self.say(reason_of(error))  # type: ignore[arg-type]  # a group of Exceptions unwraps to an Exception
                if not noting.has_started:
                    raise
                # Nobody is to restart it while the server comes to its end.
                await trio.sleep_forever()

        return until_it_fails


class _Noting:
    """A `task_status` that remembers whether the service has started."""

    def __init__(self, task_status: trio.TaskStatus[Any]) -> None:
        self._task_status = task_status
        self.has_started = False

    def started(self, value: Any = None) -> None:
        self.has_started = True
        self._task_status.started(value)


async def run_application(
    name: str,
    tree: ChildSpec,
    last_word: LastWord,
    started: Callable[[System], object] = lambda _system: None,
    telemetry: Telemetry | None = None,
) -> NoReturn:
    """Run `tree` as the one child of the root supervisor of a system called `name`, until cancelled.

    `started` is called, with the system, when the whole tree has started. `telemetry` is a hub to which handlers are
    attached already, in the place of the system's own. Raises the last word when it is said, and what a child that did
    not start failed with. When the root supervisor gives up, it raises the `RestartLimitReached` of the one that gave
    up first. It raises `Exit` (`RootEnded`, if that was in order) when the root supervisor was ended.
    """
    try:
        async with System.open(name, [tree], telemetry=telemetry) as system:
            started(system)
            await last_word.heard()
        raise RootEnded(system.root.process.reason, str(system.root))
    except Exception as error:
        if last_word.error is not None and last_word.error is not error:
            raise last_word.error from last_word.error.__cause__
        if isinstance(error, StartError | RestartLimitReached):
            first = _first_cause(error)
            raise first from first.__cause__
        raise


def _first_cause(error: BaseException) -> BaseException:
    """What is inside of a start that failed because a start failed, and so on; of limits, the one reached first."""
    inner = cause_of(error.reason) if isinstance(error, _ON_THE_WAY_UP) else None
    if inner is None or (isinstance(error, RestartLimitReached) and not isinstance(inner, _ON_THE_WAY_UP)):
        return error
    return _first_cause(inner)
