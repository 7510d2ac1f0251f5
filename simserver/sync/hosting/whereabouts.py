"""Which server simulates an entity, and where its clients ask it: hints of the home instance, and of that server."""

import logging
from typing import Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.net.home_client import HomeClient, HomeRefused, HomeUnreachable

__all__ = ["DOORS_PATH", "HomeWhereabouts"]

_log = logging.getLogger("batonpass.simserver.sync.hosting.whereabouts")

DOORS_PATH: Final = "/v1/local/"
"""Of the status API of a simulation server: `{"url": …}` of each kind of doors, empty if it has none."""

MAX_DOORS: Final = 1_024
FRESH_NS: Final = 10_000_000_000
TIMEOUT_S: Final = 1.0


class HomeWhereabouts:
    """`EntityWhereabouts` by the home instance's log, its directory, and what servers say of themselves."""

    def __init__(self, home: HomeClient, client: HttpClient, clock: Clock) -> None:
        self._home: Final = home
        self._client: Final = client
        self._clock: Final = clock
        self._doors: Final[LruTable[tuple[str, str], tuple[int, str]]] = LruTable(MAX_DOORS)

    async def authority_of(self, entity: str) -> str | None:
        """As `EntityWhereabouts.authority_of`."""
        return await self._home.authority_of(entity)

    async def door_of(self, server: str, doors: str = "streams") -> str:
        """As `EntityWhereabouts.door_of`; remembered for ten seconds."""
        now_ns = self._clock.monotonic_ns()
        asked_ns, url = self._doors.get((server, doors), (now_ns - FRESH_NS, ""))
        if now_ns - asked_ns < FRESH_NS:
            return url
        url = await self._asked(server, doors)
        if url:
            self._doors[server, doors] = now_ns, url
        return url

    async def _asked(self, server: str, doors: str) -> str:
        try:
            row = await self._home.row(server)
            if row is None or not row.rest_url:
                return ""
            answered = await self._client.request("GET", row.rest_url + DOORS_PATH + doors, timeout_s=TIMEOUT_S)
            answer: Any = answered.json() if answered.is_success else None
        except (HomeUnreachable, HomeRefused, HttpFailed, ValueError) as error:
            _log.info("it is not known where clients of %s ask %s: %s", doors, server, error)
            return ""
        url = answer.get("url") if isinstance(answer, dict) else None
        return url if isinstance(url, str) else ""
