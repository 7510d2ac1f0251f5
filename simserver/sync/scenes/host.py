"""The scenes that this server simulates, and their members.

A scene is held under one fence. Whatever raises it (a hand-over, a failover, a restart) ends all its connections.
Members come again, and take the state of who has the scene then. Members are told of a tick once the entity has taken
the scene that came out of it; until it does, nothing more is taken.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.names import BadName, check_name
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import EntityWhereabouts
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.graph import scene_graph
from batonpass.simserver.sync.scene.membership import SceneAuthority, identity_of
from batonpass.simserver.sync.scenes.world import KIND, HeldScene, change_inputs, held_scene
from batonpass.tree.data.errors import BadData

__all__ = ["DOORS", "MAX_MEMBERS", "MAX_OUTBOXES_BYTES", "HostedScenes", "ScenePort"]

DOORS: Final = "scenes"
"""As what the status API of a server has the URL of its door."""
MAX_MEMBERS: Final = 256
"""Of one scene."""
MAX_OUTBOXES_BYTES: Final = 256 * 1024 * 1024
"""Of all members of this server; beyond it, those have to come again for which most waits."""
TICK_S: Final = 0.05
AGAIN_TICKS: Final = 20
"""A member has the state at most once in this number of ticks."""


class ScenePort(Protocol):
    """The connection of one member."""

    @property
    def waiting_bytes(self) -> int:
        """What the member has not read yet."""

    @property
    def is_over(self) -> bool:
        """Whether the member has to come again."""

    def put(self, messages: list[bytes]) -> None:
        """Have the member told this; nothing once it has to come again."""

    def end(self) -> None:
        """The member is told nothing more, and has to come again."""


@dataclass(slots=True)
class _HostedScene:
    life: Life
    fence: Fence
    held: HeldScene
    authority: SceneAuthority
    ports: dict[str, ScenePort] = field(default_factory=dict)
    # The inputs that the entity has not taken yet, and what members are told once it has.
    waiting: deque[bytes] = field(default_factory=deque)
    untold: dict[str, list[bytes]] | None = None


class HostedScenes:
    """The scenes of one server; `serve` has to run.

    Args:
        environment: of the entities.
        holdings: of this server.
        whereabouts: of scenes that are elsewhere.
        clock: by which scenes tick.
        count: notes what was refused.
        sign: by the key of this server; 64 bytes.
    """

    def __init__(
        self,
        environment: EntityEnvironment,
        holdings: Holdings,
        whereabouts: EntityWhereabouts,
        clock: Clock,
        count: Callable[[str], None],
        sign: Callable[[bytes], bytes],
    ) -> None:
        self._environment: Final = environment
        self._holdings: Final = holdings
        self._whereabouts: Final = whereabouts
        self._clock: Final = clock
        self._count: Final = count
        self._sign: Final = sign
        self._hosted: Final[dict[str, _HostedScene]] = {}

    @property
    def server(self) -> str:
        """The name of this server."""
        return self._environment.server

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Have scenes tick, until cancelled."""
        task_status.started()
        try:
            while True:
                await self._clock.sleep_s(TICK_S)
                for entity, hosted in list(self._hosted.items()):
                    self._tick(entity, hosted)
        except trio.Cancelled:
            for entity in list(self._hosted):
                self._drop(entity)
            raise

    # --- what members do -------------------------------------------------------------------------------------------

    def join(self, entity: str, public: bytes, port: ScenePort) -> str:
        """Have a peer take part that has proved to have this key. An earlier connection of it is over.

        Returns:
            What it is called.

        Raises:
            SceneRefusal: if the scene is not here, or has no room.
        """
        hosted, again = self._here(entity), identity_of(public).name
        if (earlier := hosted.ports.get(again)) is not None:
            # Its network has changed, say: the server would notice that much later.
            self.leave(entity, again, earlier)
        if len(hosted.ports) >= MAX_MEMBERS:
            raise SceneRefusal(f"{entity} has {MAX_MEMBERS} members: no more have room")
        name, _ = hosted.authority.join(public)
        hosted.ports[name] = port
        return name

    def leave(self, entity: str, name: str, port: ScenePort) -> None:
        """The member that has this connection takes part no more."""
        port.end()
        hosted = self._hosted.get(entity)
        if hosted is not None and hosted.ports.get(name) is port:
            del hosted.ports[name]
            hosted.authority.leave(name)

    def receive(self, entity: str, name: str, port: ScenePort, message: bytes) -> None:
        """Take a message of the member that has this connection.

        Raises:
            SceneRefusal: if it is bad, or the connection is over. The member has to come again.
        """
        hosted = self._here(entity)
        if hosted.ports.get(name) is not port:
            raise SceneRefusal(f"{name} takes no part in {entity} by this connection: it has to come again")
        port.put(hosted.authority.receive_untrusted(name, message))

    async def told(self, entity: str) -> None:
        """Wait until nothing waits to be taken by a scene's entity: nothing is taken of members before."""
        while (hosted := self._hosted.get(entity)) is not None and hosted.untold is not None:
            await self._clock.sleep_s(TICK_S / 2)

    def graph(self, entity: str) -> dict[str, Any]:
        """A scene for people, as `scene_graph`. Raises SceneRefusal: it is not here."""
        return scene_graph(self._here(entity).held.scene) | {"scene": entity}

    def members(self) -> Mapping[str, int]:
        """How many members each scene has that was asked for here."""
        return {entity: len(hosted.ports) for entity, hosted in self._hosted.items()}

    def merges(self, entity: str) -> tuple[int, Mapping[str, int]]:
        """The tick of a scene, and what became of what its members wrote. Raises SceneRefusal: it is not here."""
        scene = self._here(entity).held.scene
        return scene.tick, scene.merged

    # --- where scenes are ------------------------------------------------------------------------------------------

    def has(self, entity: str) -> bool:
        """Whether a scene is here; whether this server may act for it at this moment is another question."""
        holding = self._holdings.get(entity)
        return holding is not None and holding.life.kind == KIND and not holding.life.over

    async def elsewhere(self, entity: str) -> str:
        """The URL of a scene at the door of the server that has it; empty if this one has it, or it is not known
        now.
        """
        if self.has(entity):
            return ""
        try:
            server = await self._whereabouts.authority_of(check_name(entity))
        except (BadName, HomeUnreachable, HomeRefused):
            return ""
        if server == self.server and (gone := self._holdings.gone(entity)) is not None:
            # Passed on directly, of which the log hears later.
            server = gone.moved_to
        door = await self._whereabouts.door_of(server, DOORS) if server and server != self.server else ""
        return door and f"{door}/{entity}"

    # --- what happens to scenes ------------------------------------------------------------------------------------

    def _here(self, entity: str) -> _HostedScene:
        """The scene, if this server has it at this moment."""
        holding, hosted = self._holdings.get(entity), self._hosted.get(entity)
        if holding is None or holding.life.kind != KIND or not self._may_act(holding.life):
            raise SceneRefusal(f"{self._environment.server} has no authority over {entity}: ask its home who has")
        if hosted is not None and hosted.life is holding.life and hosted.fence == holding.life.fence:
            return hosted
        self._drop(entity)
        life = holding.life
        if not _is_settled(life):
            # What waits is newer than what is seen: from the latter, the scene would go back.
            raise SceneRefusal(f"{entity} has not taken the scene that it was given last: ask again")
        try:
            held, fence = held_scene(life.seen), life.fence
        except (BadData, KeyError, TypeError, ValueError) as error:
            raise SceneRefusal(f"what {entity} has here is no scene: {error}") from error
        made = _HostedScene(
            life,
            fence,
            held,
            SceneAuthority(held.scene, fence, self._sign, lambda: self._holds(entity, made), AGAIN_TICKS),
        )
        self._hosted[entity] = made
        return made

    def _may_act(self, life: Life) -> bool:
        if life.frozen or life.over or life.quarantine_reason:
            return False
        return self._environment.may_act(self._clock.monotonic_ns())

    def _holds(self, entity: str, hosted: _HostedScene) -> bool:
        """Whether this server has the scene under this fence, and nothing waits to be taken by the entity."""
        holding = self._holdings.get(entity)
        is_it = holding is not None and holding.life is hosted.life and hosted.life.fence == hosted.fence
        return is_it and hosted.untold is None and self._may_act(hosted.life)

    def _tick(self, entity: str, hosted: _HostedScene) -> None:
        holding = self._holdings.get(entity)
        if holding is None or holding.life is not hosted.life or hosted.life.over or hosted.life.fence != hosted.fence:
            self._count("scenes_moved")
            self._drop(entity)
            return
        if not self._may_act(hosted.life):
            return
        if hosted.untold is None:
            holds = self._holds(entity, hosted)
            hosted.untold = hosted.authority.tick() if holds else {}
            hosted.waiting.extend(change_inputs(hosted.held, hosted.authority.changes) if holds else ())
        while hosted.waiting:
            if not hosted.life.take_own_input(hosted.waiting[0]):
                self._count("scenes_waited")
                return
            hosted.waiting.popleft()
        untold, hosted.untold = hosted.untold, None
        for name, messages in untold.items():
            if (port := hosted.ports.get(name)) is not None:
                port.put(messages)
        self._shed()
        for name, port in list(hosted.ports.items()):
            if port.is_over:
                self.leave(entity, name, port)
        if not hosted.ports and _is_settled(hosted.life):
            del self._hosted[entity]

    def _shed(self) -> None:
        """End connections until what waits for all members has room."""
        ports = [port for hosted in self._hosted.values() for port in hosted.ports.values()]
        beyond_bytes = sum(port.waiting_bytes for port in ports) - MAX_OUTBOXES_BYTES
        if beyond_bytes <= 0:
            return
        for port in sorted(ports, key=lambda port: port.waiting_bytes, reverse=True):
            if beyond_bytes > 0:
                self._count("scene_members_shed")
                beyond_bytes -= port.waiting_bytes
                port.end()

    def _drop(self, entity: str) -> None:
        hosted = self._hosted.pop(entity, None)
        if hosted is not None:
            for port in hosted.ports.values():
                port.end()


def _is_settled(life: Life) -> bool:
    """Whether the entity has applied every scene that it was given."""
    cursor = None if life.passive is not None else life.inbox.cursors.get(OWN_SOURCE)
    return cursor is None or cursor.applied >= cursor.accepted
