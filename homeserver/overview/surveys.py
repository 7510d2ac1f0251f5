"""Asking all simulation servers the same, while somebody looks: once in a second, however many do."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

import trio
from pydantic import BaseModel

from batonpass.actors.http.app import ApiError
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.overview.cluster_map import SILENT_S

__all__ = ["FRESH_S", "FreshView", "ask_all", "surveyed"]

FRESH_S: Final = 1.0
MAX_SURVEYED: Final = 32
"""Simulation servers that are asked, by their names."""

View = TypeVar("View", bound=BaseModel)


class FreshView(Generic[View]):
    """A view for all who look, made anew by `make` when it is older than a second and somebody asks."""

    def __init__(self, node: HomeserverNode, make: Callable[[], Awaitable[View]]) -> None:
        self._node: Final = node
        self._make: Final = make
        self._making: Final = trio.Lock()
        self._last: tuple[float, View] | None = None

    async def view(self) -> View:
        """How it is, or was a moment ago; who asks meanwhile waits for the same."""
        async with self._making:
            now_s = self._node.clock.monotonic_ns() / 1e9
            if self._last is None or now_s - self._last[0] >= FRESH_S:
                self._last = now_s, await self._make()
            return self._last[1]


def surveyed(node: HomeserverNode) -> list[DirectoryRow]:
    """The simulation servers that are asked."""
    return node.store.servers(Role.SIMSERVER)[:MAX_SURVEYED]


async def ask_all(
    node: HomeserverNode, path: str, form: type[View], params: Mapping[str, str] | None = None
) -> dict[str, View]:
    """What each of them answers, by its name; those that do not answer, or have not reported lately, are left out."""
    said: dict[str, View] = {}

    async def ask(row: DirectoryRow) -> None:
        try:
            said[row.name] = await node.asked.ask(row, path, form, params)
        except ApiError:
            return

    async with trio.open_nursery() as nursery:
        for row in surveyed(node):
            report = node.balancer.report(row.name)
            # Of one that is dead it would be waited for.
            if report is not None and report.age_s <= SILENT_S:
                nursery.start_soon(ask, row)
    return dict(sorted(said.items()))
