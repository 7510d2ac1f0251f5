"""A node whose callbacks block it, for `test_watchdog`: run as a program, because there pytest-timeout has SIGALRM.

The argument says how; what telemetry and the counters said goes to stdout, the log to stderr.
"""

import json
import logging
import sys
import time
from typing import Any

import trio
import trio.lowlevel

from batonpass.actors import From, Reply, Server, ServiceSpec, System
from batonpass.actors.core.telemetry import NODE_BLOCKED

WATCHDOG_S = 0.05
GIVE_UP_S = 60.0
"""A node blocks itself until the watchdog says so, and no longer than this."""

running: System


class Blocking(Server[None]):
    def handle_call(self, request: str, from_: From, state: None) -> Reply[None]:
        block(request)
        return Reply("done")

    async def handle_cast(self, message: str, state: None) -> None:
        await trio.lowlevel.checkpoint()
        block(message)


def block(how: str) -> None:
    end_s = time.monotonic() + GIVE_UP_S
    while running.stats.blocked == 0 and time.monotonic() < end_s:
        if how == "sleep":
            time.sleep(0.2)  # noqa: TID251 - that is the point


async def block_in_a_service(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await trio.lowlevel.checkpoint()
    block("spin")
    await trio.sleep_forever()


async def main(how: str) -> None:
    global running  # noqa: PLW0603 - the program is about one system
    told: list[Any] = []
    is_told = trio.Event()

    def tell(_event: Any, _measurements: Any, metadata: Any, _config: Any) -> None:
        told.append(metadata)
        is_told.set()

    async with System.open("blocked", watchdog_s=WATCHDOG_S) as system:
        running = system
        system.telemetry.attach("test", NODE_BLOCKED, tell)
        blocking = await system.start(Blocking, name="blocking")
        match how:
            case "call sleep" | "call spin":
                await blocking.call(how.removeprefix("call "), None)
            case "cast":
                blocking.cast("spin")
            case "service":
                await system.start_child(ServiceSpec("heavy", block_in_a_service))
            case "task":
                block("spin")
            case _:
                await trio.sleep(10 * WATCHDOG_S)
                is_told.set()
        with trio.move_on_after(GIVE_UP_S):
            await is_told.wait()
        sys.stdout.write(json.dumps({"blocked": system.stats.blocked, "told": told}))


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    trio.run(main, sys.argv[1])
