"""Which server simulates an entity, and where its clients ask it: hints of the home instance, and of that server."""

import logging
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import HttpClient
from batonpass.actors.http.door_urls import DoorUrls
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.home_client import HomeClient

__all__ = ["HomeWhereabouts"]

_log = logging.getLogger("batonpass.simserver.sync.hosting.whereabouts")


class HomeWhereabouts:
    """`EntityWhereabouts` by the home instance's log, its directory, and what servers say of themselves."""

    def __init__(self, home: HomeClient, client: HttpClient, clock: Clock) -> None:
        self._home: Final = home
        self._doors: Final = DoorUrls(client, clock)

    async def authority_of(self, entity: str) -> str | None:
        """As `EntityWhereabouts.authority_of`."""
        return await self._home.authority_of(entity)

    async def door_of(self, server: str, doors: str = "streams") -> str:
        """As `EntityWhereabouts.door_of`; remembered for ten seconds."""
        try:
            row = await self._home.row(server)
        except (HomeUnreachable, HomeRefused) as error:
            _log.info("it is not known where clients of %s ask %s: %s", doors, server, error)
            return ""
        return await self._doors.of(row.rest_url, doors) if row is not None and row.rest_url else ""
