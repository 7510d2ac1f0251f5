"""Where clients enter a server, by that server's own word: its status API says it of each kind of doors."""

import logging
from typing import Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["DOORS_PATH", "DoorUrls"]

_log = logging.getLogger("batonpass.actors.http.door_urls")

DOORS_PATH: Final = "/v1/local/"
"""Of the status API of a simulation server: `{"url": …}` of each kind of doors, empty if it has none."""
MAX_DOORS: Final = 1_024
FRESH_NS: Final = 10_000_000_000
TIMEOUT_S: Final = 1.0


class DoorUrls:
    """The doors of servers, each remembered for ten seconds; of those that were asked for last."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client: Final = client
        self._clock: Final = clock
        self._doors: Final[LruTable[tuple[str, str], tuple[int, str]]] = LruTable(MAX_DOORS)

    async def of(self, rest_url: str, doors: str) -> str:
        """The base URL of a server's door of this kind; empty if it does not say so at this moment."""
        now_ns = self._clock.monotonic_ns()
        asked_ns, url = self._doors.get((rest_url, doors), (now_ns - FRESH_NS, ""))
        if now_ns - asked_ns < FRESH_NS:
            return url
        url = await self._asked(rest_url, doors)
        if url:
            self._doors[rest_url, doors] = now_ns, url
        return url

    async def _asked(self, rest_url: str, doors: str) -> str:
        try:
            answered = await self._client.request("GET", rest_url + DOORS_PATH + doors, timeout_s=TIMEOUT_S)
            answer: Any = answered.json() if answered.is_success else None
        except (HttpFailed, ValueError) as error:
            _log.info("it is not known where clients of %s ask %s: %s", doors, rest_url, error)
            return ""
        url = answer.get("url") if isinstance(answer, dict) else None
        return url if isinstance(url, str) else ""
