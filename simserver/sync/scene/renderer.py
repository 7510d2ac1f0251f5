"""What a renderer has of scenes, from stage to stage of its frames.

    stages = renderer.loop.refresh(now_ns)           the display asks for a frame
    Receive  renderer.receive(clock)                 what scenes have sent, for no longer than the quota
    Update   renderer.update(loading)                where everything is now
    Render   renderer.shown                          belongs to the GPU until it is done
    Send     renderer.send()                         an answer for each scene whose frame is in that Update
    stages = renderer.loop.done(stage, now_ns)

What a scene sends is of this scene alone: each has a replica of its own here.
"""

from collections import deque
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from batonpass.simserver.sync.scene.elements import TimestampsUsedUp
from batonpass.simserver.sync.scene.exchange import PeerKind
from batonpass.simserver.sync.scene.graph import world_places
from batonpass.simserver.sync.scene.limits import SceneLimits
from batonpass.simserver.sync.scene.loops import FrameLoop
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.schedule import FramePolicy, SceneFrames, ScenePlace, ScheduleLimits
from batonpass.simserver.sync.scene.schemas import TRANSFORM_SCHEMA, SceneTransform, Vector3
from batonpass.simserver.sync.scene.store import TRANSFORM

__all__ = ["FIRST_AVATAR", "MAX_AVATARS", "MAX_SHOWN", "PLAYER", "FrameUse", "SceneRenderer", "ShownPoint"]

PLAYER: Final = 1
"""The entity of the player whose renderer this is."""
FIRST_AVATAR: Final = 32
"""The entity of the first other player; those of the others follow."""
MAX_AVATARS: Final = 224
MAX_SHOWN: Final = 2_000
"""This number of entities of one scene is drawn, the first that it has."""

_RENDERER: Final = "renderer"
_INITIAL: Final = "main.crdt"
_KEPT_USES: Final = 4_096


class FrameUse(NamedTuple):
    """What Receive did in a frame: the scenes that waited, in their order; how long it took; what it applied."""

    order: tuple[str, ...]
    spent_ns: int
    parts: int


class ShownPoint(NamedTuple):
    """An entity, as it is drawn: x and z of the world, in metres."""

    scene: str
    x: float
    z: float


class SceneRenderer:
    """One renderer and its scenes.

    Args:
        double_buffered: as of `FrameLoop`.
        limits: of a frame and a scene.
        policy: which scene comes first.
        scene_limits: of the replica of each scene.
    """

    def __init__(
        self,
        *,
        double_buffered: bool,
        limits: ScheduleLimits | None = None,
        policy: FramePolicy = FramePolicy.AGED,
        scene_limits: SceneLimits | None = None,
    ) -> None:
        self.loop: Final = FrameLoop(double_buffered=double_buffered)
        self.frames: Final = SceneFrames(limits, policy)
        self._scene_limits: Final = scene_limits
        self._scenes: Final[dict[str, SceneReplica]] = {}
        self._places: Final[dict[str, ScenePlace]] = {}
        self._points: Final[dict[str, tuple[ShownPoint, ...]]] = {}
        self._touched: Final[dict[str, None]] = {}
        self._due: list[str] = []
        self.players: Sequence[tuple[float, float]] = ((0.0, 0.0),)
        """Where players are, x and z in metres; the first is the one whose renderer this is."""
        self.shown: tuple[ShownPoint, ...] = ()
        """What the last Update has computed. It is replaced, and never changed: the GPU may have it meanwhile."""
        self.uses: Final[deque[FrameUse]] = deque(maxlen=_KEPT_USES)
        """What the last frames did in Receive."""

    @property
    def scenes(self) -> dict[str, SceneReplica]:
        """The replicas here, by scene."""
        return dict(self._scenes)

    def place(self, scene: str) -> ScenePlace:
        """Where a scene is. Raises KeyError if it does not take part."""
        return self._places[scene]

    def admit(self, scene: str, place: ScenePlace, initial: bytes, now_ns: int) -> bytes:
        """Have a scene take part.

        Args:
            scene: its name.
            place: where it is.
            initial: the messages of its `main.crdt`.
            now_ns: now.

        Returns:
            What it is answered first: the state with which it begins.

        Raises:
            SceneRefusal: if it takes part already, too many do, or a message of `initial` is bad. It is not there then.
        """
        replica = SceneReplica(_RENDERER, limits=self._scene_limits, keep_unknown=True)
        replica.connect(_INITIAL)
        replica.receive(_INITIAL, initial)
        replica.apply()
        replica.disconnect(_INITIAL)
        self._put_players(replica, place)
        # Nobody is told: all of it is in the snapshot.
        replica.flush()
        self.frames.add(scene, place, now_ns)
        replica.connect(scene, PeerKind.SCENE)
        self._scenes[scene], self._places[scene] = replica, place
        self._touched[scene] = None
        return replica.snapshot()

    def leave(self, scene: str) -> None:
        """Drop a scene, and all that is shown of it."""
        self.frames.remove(scene)
        for table in (self._scenes, self._places, self._points, self._touched):
            table.pop(scene, None)
        self._due = [name for name in self._due if name != scene]

    def take(self, scene: str, frame: bytes, now_ns: int) -> None:
        """Take a frame that a scene has sent; errors are those of `SceneFrames.receive`."""
        self.frames.receive(scene, frame, now_ns)

    def receive(self, now_ns: Callable[[], int]) -> None:
        """Receive: apply what scenes have sent, for no longer than the quota."""
        began_ns = spent_ns = now_ns()
        order = self.frames.begin(self.players[0])
        parts = 0
        while (part := self.frames.next_part((spent_ns := now_ns()) - began_ns)) is not None:
            replica = self._scenes[part.scene]
            replica.receive(part.scene, part.messages)
            replica.apply()
            self._touched[part.scene] = None
            parts += 1
        self.uses.append(FrameUse(tuple(order), spent_ns - began_ns, parts))

    def update(self, loading: Container[str] = ()) -> None:
        """Update: compute where everything is, after all that was applied.

        Args:
            loading: scenes whose models are not all there; as of `SceneFrames.updated`.
        """
        for scene in self._touched:
            place = self._places[scene]
            # More of them would be paid for by all other scenes.
            transforms = islice(self._scenes[scene].elements(TRANSFORM).values.items(), MAX_SHOWN)
            places = world_places(dict(transforms))
            self._points[scene] = tuple(
                ShownPoint(scene, place.x + at.x, place.z + at.z)
                for entity, at in places.items()
                if not PLAYER <= entity < FIRST_AVATAR + MAX_AVATARS
            )
        self._touched.clear()
        self.shown = tuple(point for points in self._points.values() for point in points)
        self._due += self.frames.updated(loading)

    def send(self) -> dict[str, bytes]:
        """Send: the answers, by scene."""
        due, self._due = self._due, []
        answers: dict[str, bytes] = {}
        for scene in due:
            replica = self._scenes[scene]
            self._put_players(replica, self._places[scene])
            (answers[scene],) = replica.flush()[scene]
        return answers

    def _put_players(self, replica: SceneReplica, place: ScenePlace) -> None:
        """Have a scene know where the players are, in its own metres."""
        entities = (PLAYER, *range(FIRST_AVATAR, FIRST_AVATAR + MAX_AVATARS))
        for entity, (x, z) in zip(entities, self.players, strict=False):
            data = TRANSFORM_SCHEMA.encode(SceneTransform(Vector3(x - place.x, 0.0, z - place.z)))
            # A scene that has written the last timestamps there are of a player is not told any more where it is.
            with suppress(TimestampsUsedUp):
                if not replica.mutate(entity, TRANSFORM, data):
                    replica.put(entity, TRANSFORM, data)
