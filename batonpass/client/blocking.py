"""The client for programs that do not wait asynchronously: scripts, notebooks, the prompt of Python.

    with batonpass.connect_blocking("http://127.0.0.1:8000", player="alpha.ada", identity=me) as client:
        client.call(client.home.spawn, "alpha.ball-1", "ball")
        steering = client.steer("alpha.ball-1")
        tick = steering.applied(steering.give(b"\\x83\\x01\\x02\\x03"))
        for change in client.watch(pattern="alpha.ball-*"):
            print(change.entity.name, change.entity.state)

The client itself runs in a thread of its own (anyio's blocking portal), so that it plays on while the program thinks.
Everything here may be called from any thread but that one.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from batonpass.client.client import PlayerClient, connect
from batonpass.client.home import HomeDirectory, HomeNews, News
from batonpass.client.mirror import WatchedEntity
from batonpass.client.steering import Steering
from batonpass.client.watch import EntityUpdate, EntityWatch
from batonpass.crypto.keys import Identity

__all__ = ["BlockingPlayerClient", "BlockingSteering", "BlockingWatch", "connect_blocking"]

P = ParamSpec("P")
T = TypeVar("T")


class BlockingPlayerClient:
    """Made by `connect_blocking`."""

    def __init__(self, portal: BlockingPortal, client: PlayerClient) -> None:
        self._portal: Final = portal
        self._client: Final = client

    @property
    def player(self) -> str:
        """Whose client this is; empty for an observer."""
        return self._client.player

    @property
    def home(self) -> HomeDirectory:
        """The way home, whose methods are given to `call`."""
        return self._client.home

    def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Wait for what a method of the client or of `home` gives. Raises what that raises."""
        return self._portal.call(partial(function, *args, **kwargs))

    def watch(self, **what: Any) -> "BlockingWatch":
        """Watch entities; arguments and exceptions are those of `PlayerClient.watch`."""
        return BlockingWatch(self._portal, self._portal.call(partial(self._client.watch, **what)))

    def steer(self, entity: str) -> "BlockingSteering":
        """Give inputs to an entity that this player owns; as `PlayerClient.steer`."""
        return BlockingSteering(self._portal, self._portal.call(self._client.steer, entity))

    def news(self) -> Iterator[News]:
        """What happens to the player's entities, and what it is asked; as `HomeDirectory.news`."""
        return self._each(self._portal.call(self._client.home.news))

    def _each(self, news: HomeNews) -> Iterator[News]:
        while True:
            yield self._portal.call(news.__anext__)


class BlockingWatch:
    """Entities that are watched; `for change in watch` waits for what changes."""

    def __init__(self, portal: BlockingPortal, watch: EntityWatch) -> None:
        self._portal: Final = portal
        self._watch: Final = watch

    @property
    def entities(self) -> Mapping[str, WatchedEntity]:
        """By name, what is known now."""
        return self._portal.call(lambda: self._watch.entities)

    def now(self) -> Mapping[str, Any]:
        """The states as they are to be shown at this moment; as `EntityWatch.now`."""
        return self._portal.call(self._watch.now)

    def smooth(self, delay_s: float | None = None) -> None:
        """As `EntityWatch.smooth`."""
        self._portal.call(self._watch.smooth, delay_s)

    def next(self, timeout_s: float) -> EntityUpdate | None:
        """The next change; None if there is none within `timeout_s`, or the watch has ended."""
        return self._portal.call(self._next, timeout_s)

    async def _next(self, timeout_s: float) -> EntityUpdate | None:
        with anyio.move_on_after(timeout_s):
            return await anext(self._watch, None)
        return None

    def close(self) -> None:
        """Watch no longer; the loop over changes ends."""
        self._portal.call(self._watch.close)

    def __iter__(self) -> Iterator[EntityUpdate]:
        while (change := self._portal.call(self._one)) is not None:
            yield change

    async def _one(self) -> EntityUpdate | None:
        return await anext(self._watch, None)


class BlockingSteering:
    """Inputs of this player for one entity; exceptions are those of `Steering`."""

    def __init__(self, portal: BlockingPortal, steering: Steering) -> None:
        self._portal: Final = portal
        self._steering: Final = steering

    @property
    def entity(self) -> str:
        """The entity's name."""
        return self._steering.entity

    def give(self, data: bytes) -> int:
        """Give an input; its number."""
        return self._portal.call(self._steering.give, data)

    def applied(self, number: int) -> int:
        """Wait until the input of this number is applied; the tick of the entity then."""
        return self._portal.call(self._steering.applied, number)

    def durable(self, number: int) -> None:
        """Wait until no failure of a server can take the input of this number back."""
        self._portal.call(self._steering.durable, number)


@contextmanager
def connect_blocking(
    url: str, *, player: str = "", identity: Identity | None = None, invitation: str = "", **more: Any
) -> Iterator[BlockingPlayerClient]:
    """As `connect`, for a program that does not wait asynchronously."""
    with start_blocking_portal("trio") as portal:
        made = connect(url, player=player, identity=identity, invitation=invitation, **more)
        with portal.wrap_async_context_manager(made) as client:
            yield BlockingPlayerClient(portal, client)
