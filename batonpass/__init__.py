"""batonpass: authority over simulated entities, passed between servers like a baton.

What a program of your own begins with:

    World, PendingInput    a simulation of your own (docs/explanation/architecture.md); steps get `PendingInput`s
    LocalCluster           homeservers, simulation servers and relays as processes on this machine
    connect                a client that watches entities and steers them: a `PlayerClient`
                           (docs/reference/players-door.md)
    connect_blocking       the same for scripts and notebooks: a `BlockingPlayerClient`
    RestClient, Players    clients of an instance: REST + JSON, and inputs over the sealed link
    Master                 a player that answers who may have its entities
    SimDriver, SimEntity   a lockstep game of your own (docs/reference/lockstep.md), which a `StreamFollower` and
                           `follow_stream` keep equal to those of others
    EngineNode             a node of a show as its engine calls it (docs/explanation/followers.md), with the
                           `RenderedImage` and `CameraResponseData` that it sends, and the `RenderStreamError` that
                           calls raise

The parts are packages: `batonpass.client`, `batonpass.actors`, `batonpass.tree`, `batonpass.authority`,
`batonpass.crypto`, `batonpass.homeserver`, `batonpass.simserver` and `batonpass.scenarios`. What their `__init__` does
not name may move.

Names are imported when they are first used, so that `import batonpass` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batonpass.client.blocking import BlockingPlayerClient, connect_blocking
    from batonpass.client.client import PlayerClient, connect
    from batonpass.scenarios.cluster.cluster import LocalCluster
    from batonpass.scenarios.players.link_players import Players
    from batonpass.scenarios.players.masters import Master
    from batonpass.scenarios.players.rest_client import RestClient
    from batonpass.simserver.sync.followers.engine_node import EngineNode
    from batonpass.simserver.sync.followers.images import RenderedImage
    from batonpass.simserver.sync.followers.structs import CameraResponseData, RenderStreamError
    from batonpass.simserver.sync.lockstep.driver import SimDriver
    from batonpass.simserver.sync.lockstep.entity import SimEntity
    from batonpass.simserver.sync.lockstep.follower import StreamFollower
    from batonpass.simserver.sync.play.session import follow_stream
    from batonpass.simserver.world.api import World
    from batonpass.simserver.world.pending_input import PendingInput

__version__: str

__all__ = [
    "BlockingPlayerClient",
    "CameraResponseData",
    "EngineNode",
    "LocalCluster",
    "Master",
    "PendingInput",
    "PlayerClient",
    "Players",
    "RenderStreamError",
    "RenderedImage",
    "RestClient",
    "SimDriver",
    "SimEntity",
    "StreamFollower",
    "World",
    "__version__",
    "connect",
    "connect_blocking",
    "follow_stream",
]

_WHERE: Final = {
    "BlockingPlayerClient": "batonpass.client.blocking",
    "CameraResponseData": "batonpass.simserver.sync.followers.structs",
    "PlayerClient": "batonpass.client.client",
    "EngineNode": "batonpass.simserver.sync.followers.engine_node",
    "LocalCluster": "batonpass.scenarios.cluster.cluster",
    "Master": "batonpass.scenarios.players.masters",
    "PendingInput": "batonpass.simserver.world.pending_input",
    "Players": "batonpass.scenarios.players.link_players",
    "RenderStreamError": "batonpass.simserver.sync.followers.structs",
    "RenderedImage": "batonpass.simserver.sync.followers.images",
    "RestClient": "batonpass.scenarios.players.rest_client",
    "SimDriver": "batonpass.simserver.sync.lockstep.driver",
    "SimEntity": "batonpass.simserver.sync.lockstep.entity",
    "StreamFollower": "batonpass.simserver.sync.lockstep.follower",
    "World": "batonpass.simserver.world.api",
    "connect": "batonpass.client.client",
    "connect_blocking": "batonpass.client.blocking",
    "follow_stream": "batonpass.simserver.sync.play.session",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("batonpass")
    if name not in _WHERE:
        raise AttributeError(f"module 'batonpass' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
