"""Where a datagram belongs: the session ids of an endpoint, and whose they are."""

import random

from batonpass.actors.link import Link

__all__ = ["EndpointSessionIds", "LinkSessionIds"]


class EndpointSessionIds:
    """All of one endpoint. Random numbers, so that a restarted one does not take its former self's datagrams."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.links: dict[int, Link | None] = {}

    def allocate(self) -> int:
        """A number from 1 to 2**32 - 1 that is not in use."""
        while True:
            session_id = self._rng.getrandbits(32)
            if session_id and session_id not in self.links:
                self.links[session_id] = None
                return session_id

    def release(self, session_id: int) -> None:
        """The number may be used again."""
        self.links.pop(session_id, None)


class LinkSessionIds:
    """Those of one link, which is told to them as soon as it exists."""

    def __init__(self, ids: EndpointSessionIds) -> None:
        self._ids = ids
        self.link: Link | None = None

    def allocate(self) -> int:
        """As of all."""
        session_id = self._ids.allocate()
        self._ids.links[session_id] = self.link
        return session_id

    def release(self, session_id: int) -> None:
        """As of all."""
        self._ids.release(session_id)
