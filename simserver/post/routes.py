"""Which server has an entity, as the home instances say: where messages go, and of whom they are taken.

A server is believed where the log names it. One that an entity has left may say where it went: so it is after direct
passes, of which the log hears later. That is followed a few times, and then home is asked again.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from batonpass.actors.base.clock import Clock, Tasks
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.messages import AuthorityRequest, AuthorityWord
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.home_client import HomeClient

__all__ = ["FRESH_NS", "MAX_ASKING", "MAX_HINTS_FOLLOWED", "MAX_ROUTES", "EntityRoutes"]

_log = logging.getLogger("batonpass.simserver.post.routes")

MAX_ROUTES: Final = 32_768
MAX_ASKING: Final = 256
"""Entities about which home is asked at one time; the others are asked about when they are wanted again."""
MAX_HINTS_FOLLOWED: Final = 4
FRESH_NS: Final = 30_000_000_000
"""For so long it is believed that a server has an entity that has sent something from there."""


@dataclass(frozen=True, slots=True)
class _Route:
    server: str
    asked_ns: int
    followed: int = 0


class EntityRoutes:
    """Of one server; `tasks` is set while something is served."""

    def __init__(self, home: HomeClient, clock: Clock, count: Callable[[str], None]) -> None:
        self._home: Final = home
        self._clock: Final = clock
        self._count: Final = count
        self._routes: Final[LruTable[str, _Route]] = LruTable(MAX_ROUTES)
        self._asking: Final[dict[str, list[Callable[[AuthorityWord | None], None]]]] = {}
        self.tasks: Tasks | None = None

    def to(self, entity: str) -> str:
        """The server that is thought to have an entity; empty if that is not known."""
        route = self._routes.get(entity)
        return "" if route is None else route.server

    def age_ns(self, entity: str) -> int:
        """How long ago home said where an entity is."""
        route = self._routes.get(entity)
        return FRESH_NS if route is None else self._clock.monotonic_ns() - route.asked_ns

    def is_proved(self, entity: str, server: str) -> bool:
        """Whether home has said lately that a server has an entity."""
        route = self._routes.get(entity)
        return (
            route is not None
            and route.server == server
            and not route.followed
            and self._clock.monotonic_ns() - route.asked_ns < FRESH_NS
        )

    def moved(self, entity: str, server: str, moved_to: str) -> bool:
        """A server says where an entity went from there; whether that is followed. If not, home is to be asked."""
        route = self._routes.get(entity)
        if route is None or route.server != server:
            return route is not None
        if not moved_to or moved_to == server or route.followed >= MAX_HINTS_FOLLOWED:
            del self._routes[entity]
            return False
        self._routes[entity] = _Route(moved_to, route.asked_ns, route.followed + 1)
        return True

    def forget(self, entity: str) -> None:
        """Ask home when it is wanted next."""
        self._routes.pop(entity, None)

    def ask(self, entity: str, told: Callable[[AuthorityWord | None], None]) -> bool:
        """Have home asked where an entity is, and `told` called with its word, None without one; whether it is."""
        waiting = self._asking.get(entity)
        if waiting is not None:
            waiting.append(told)
            return True
        if self.tasks is None or len(self._asking) >= MAX_ASKING:
            self._count("messages_not_asked")
            return False
        self._asking[entity] = [told]
        self.tasks.start_soon(self._ask, entity)
        return True

    async def _ask(self, entity: str) -> None:
        word = None
        try:
            answer = await self._home.ask(AuthorityRequest(entity=entity), Trace("authority-request"), on_path=False)
            if answer is not None and isinstance(answer.message, AuthorityWord) and answer.message.entity == entity:
                word = answer.message
                self._routes[entity] = _Route(word.server, self._clock.monotonic_ns())
        except (HomeUnreachable, HomeRefused) as error:
            self._count("messages_not_asked")
            _log.info("where %s is cannot be found out now: %s", entity, error)
        finally:
            waiting = self._asking.pop(entity)
        for told in waiting:
            told(word)

    def begin(self, tasks: Tasks) -> None:
        """From now on questions are asked; those of before have no answer any more."""
        self._asking.clear()
        self.tasks = tasks
