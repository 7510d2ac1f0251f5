"""Running a server until a signal asks it to stop."""

import logging
import signal
from collections.abc import Awaitable, Callable

import trio

from batonpass.actors.base.gc import collect_seldom
from batonpass.actors.base.interrupts import received
from batonpass.actors.supervision.open_files import allow_open_files

__all__ = ["run_until_signalled"]

_log = logging.getLogger("batonpass.actors.supervision.signals")


def run_until_signalled(name: str, serve: Callable[[], Awaitable[None]]) -> None:
    """Run `serve` in a trio of its own until it ends, or SIGINT or SIGTERM cancels it.

    What `serve` raises comes out in exception groups, as trio makes them: catch it with `except*`.
    """

    async def until_signalled() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_signalled, name, nursery.cancel_scope)
            await serve()
            nursery.cancel_scope.cancel()

    collect_seldom()
    allow_open_files()
    trio.run(until_signalled)


async def _cancel_when_signalled(name: str, life: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, received():
        async for number in signals:
            _log.info("%s stops on %s", name, signal.Signals(number).name)
            life.cancel()
