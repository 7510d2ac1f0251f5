"""Clients of an instance: programs that watch entities, own and steer them, over the players' door.

`batonpass.connect` begins; `batonpass.connect_blocking` does for scripts and notebooks. In the order of reading:

client        a client, which follows its entities from door to door
blocking      the same for programs that do not wait asynchronously
steering      inputs for one entity, as a program gives them
subscription  what is asked to be watched. No I/O
watch         what is watched, and changes as they come
smoothing     states between those that were told. No I/O
tick_clock    when the rounds of a server's ticks are. No I/O
home          what is asked at home, and what is told from there
home_link     the connection to a homeserver
door_link     the connection to the door of one simulation server
mirror        what is known of the entities that are watched at one door. No I/O
input_stream  inputs by number, until they are durable. No I/O
player_key    who a client is
socket        a WebSocket under trio and asyncio

Names are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batonpass.client.blocking import BlockingPlayerClient, BlockingSteering, BlockingWatch, connect_blocking
    from batonpass.client.client import PlayerClient, connect
    from batonpass.client.home import HomeDirectory, NewsLost
    from batonpass.client.home_link import HomeFailure, News
    from batonpass.client.input_stream import EntityGone
    from batonpass.client.mirror import WatchedEntity
    from batonpass.client.player_key import PlayerKey
    from batonpass.client.smoothing import blended
    from batonpass.client.steering import InputRefused, Steering
    from batonpass.client.tick_clock import TickClock
    from batonpass.client.watch import EntityUpdate, EntityWatch, WatchRefused

__all__ = [
    "BlockingPlayerClient",
    "BlockingSteering",
    "BlockingWatch",
    "EntityGone",
    "EntityUpdate",
    "EntityWatch",
    "HomeDirectory",
    "HomeFailure",
    "InputRefused",
    "News",
    "NewsLost",
    "PlayerClient",
    "PlayerKey",
    "Steering",
    "TickClock",
    "WatchRefused",
    "WatchedEntity",
    "blended",
    "connect",
    "connect_blocking",
]

_WHERE: Final = {
    "BlockingPlayerClient": "blocking",
    "BlockingSteering": "blocking",
    "BlockingWatch": "blocking",
    "EntityGone": "input_stream",
    "EntityUpdate": "watch",
    "EntityWatch": "watch",
    "HomeDirectory": "home",
    "HomeFailure": "home_link",
    "InputRefused": "steering",
    "News": "home_link",
    "NewsLost": "home",
    "PlayerClient": "client",
    "PlayerKey": "player_key",
    "Steering": "steering",
    "TickClock": "tick_clock",
    "WatchRefused": "watch",
    "WatchedEntity": "mirror",
    "blended": "smoothing",
    "connect": "client",
    "connect_blocking": "blocking",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'batonpass.client' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batonpass.client.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
