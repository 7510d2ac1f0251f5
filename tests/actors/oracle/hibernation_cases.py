"""Hibernation."""

from typing import Any

import trio

from batonpass.actors import HIBERNATE, Ok, Reply, System
from tests.actors.oracle.lines import oracle
from tests.actors.oracle.subjects import Subject, settled


class Sleeper(Subject):
    """Notes that it hibernates."""

    def handle_hibernate(self, state: Any) -> None:
        self.heard.append("hibernate")


class Dozing(Sleeper):
    """The same, by itself."""

    hibernate_after_s = 0.02


@oracle("hibernate in init and in a reply, then woken by calls", "{:hibernate, 7, :ok, 7}")
async def _(system: System) -> Any:
    heard: list[Any] = []

    def init(server: Subject) -> Any:
        server.heard = heard
        return Ok(7, then=HIBERNATE)

    ref = await system.start(Sleeper, init)
    await settled()
    asleep = heard[0]
    first = await ref.call(lambda server: server.state())
    between = await ref.call(lambda server: Reply("ok", then=HIBERNATE))
    await settled()
    assert heard == ["hibernate"] * 2
    return asleep, first, between, await ref.call(lambda server: server.state())


@oracle("hibernate_after, then a call", "{:hibernate, :woken}")
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref = await system.start(Dozing, lambda server: setattr(server, "heard", heard))
    await trio.sleep(0.06)
    return heard[0], await ref.call(lambda server: "woken")
