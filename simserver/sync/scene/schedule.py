"""How a renderer shares a frame among scenes, and when it may answer them (ADR-148).

A renderer's frame is Receive, Update, Render, Send. In Receive it applies what scenes have sent, for no longer than a
quota: global scenes first, then the nearest. What is left waits for the next frame, in its order. Update computes
physics and the camera. **A scene is answered only after all messages of its last frame were applied, and the Update
after that has been computed.** Send does not wait for Render.

    frame.begin(player)                        order of the scenes
    while part := frame.next_part(spent_ns):   apply part.messages to the scene's replica
    physics and camera
    for scene in frame.updated(): ...          send its answer
"""

import math
import struct
from collections import deque
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from batonpass.simserver.sync.scene.codec import HEADER_BYTES, read_chunk_untrusted
from batonpass.simserver.sync.scene.exchange import SceneRefusal

__all__ = ["PART_MESSAGES", "FramePolicy", "SceneFrames", "ScenePart", "ScenePhase", "ScenePlace", "ScheduleLimits"]

PART_MESSAGES: Final = 10
"""How many messages are applied between two looks at the clock."""

_LENGTH: Final = struct.Struct("<I")


class FramePolicy(StrEnum):
    """Which scene comes first, among those that are not global."""

    NEAREST = "nearest"
    """The nearest one, always: a far scene may wait for ever."""
    AGED = "aged"
    """By the distance divided by how many frames it has waited: one that is n times as far waits n times as long."""


class ScenePhase(StrEnum):
    """Where a scene is between two of its answers."""

    COMPUTING = "computing"
    """It has its answer, and has not sent the next frame."""
    QUEUED = "queued"
    """It has sent a frame that is not applied, or not all of it."""
    APPLIED = "applied"
    """All of its frame is applied, and not in any physics yet."""


_NEXT: Final[Mapping[tuple[ScenePhase, str], ScenePhase]] = MappingProxyType(
    {
        (ScenePhase.COMPUTING, "sent a frame"): ScenePhase.QUEUED,
        (ScenePhase.QUEUED, "all applied"): ScenePhase.APPLIED,
        (ScenePhase.APPLIED, "updated"): ScenePhase.COMPUTING,
    }
)
"""All events that can happen to a scene."""


class ScenePlace(NamedTuple):
    """Where a scene is: the middle of its ground, in metres; or that it is everywhere."""

    x: float = 0.0
    z: float = 0.0
    is_global: bool = False


class ScenePart(NamedTuple):
    """Messages of a scene that are applied together; at most `PART_MESSAGES`."""

    scene: str
    messages: bytes


@dataclass(frozen=True, slots=True)
class ScheduleLimits:
    """What a frame, and a scene, may take.

    Attributes:
        quota_ns: of each frame, for all messages; at least one part is applied in any case.
        share: of the quota, that one scene gets while others wait.
        max_frame_bytes: of one frame of a scene.
        silence_ns: a scene that was answered and not heard of for longer is dead.
        max_scenes: that take part.
    """

    quota_ns: int = 1_000_000
    share: float = 0.5
    max_frame_bytes: int = 64 * 1024 * 1024
    silence_ns: int = 10_000_000_000
    max_scenes: int = 1_024


@dataclass(slots=True)
class _Scene:
    place: ScenePlace
    heard_ns: int
    phase: ScenePhase = ScenePhase.COMPUTING
    parts: deque[bytes] = field(default_factory=deque)
    waited_frames: int = 0
    spent_ns: int = 0
    is_first: bool = True

    def on(self, event: str) -> None:
        self.phase = _NEXT[self.phase, event]


class SceneFrames:
    """The frames of one renderer.

    Args:
        limits: of a frame and a scene.
        policy: which scene comes first.
    """

    def __init__(self, limits: ScheduleLimits | None = None, policy: FramePolicy = FramePolicy.AGED) -> None:
        self._limits: Final = limits or ScheduleLimits()
        self._policy: Final = policy
        self._scenes: Final[dict[str, _Scene]] = {}
        self._order: deque[str] = deque()
        self._current: str | None = None
        self._spent_ns = 0
        self._parts = 0

    def add(self, scene: str, place: ScenePlace, now_ns: int) -> None:
        """Have a scene take part. It computes its first frame.

        Raises:
            SceneRefusal: if it takes part already, or too many do.
        """
        if scene in self._scenes:
            raise SceneRefusal(f"{scene} takes part already: a scene needs a name of its own")
        if len(self._scenes) >= self._limits.max_scenes:
            raise SceneRefusal(
                f"{scene} comes to {len(self._scenes)} scenes: {self._limits.max_scenes} at most take part"
            )
        self._scenes[scene] = _Scene(place, now_ns)

    def remove(self, scene: str) -> None:
        """Drop a scene and what it has sent."""
        self._scenes.pop(scene, None)

    def phase(self, scene: str) -> ScenePhase:
        """Where a scene is. Raises KeyError if it does not take part."""
        return self._scenes[scene].phase

    def receive(self, scene: str, chunk: bytes, now_ns: int) -> None:
        """Take all messages of a scene's frame; an empty chunk is a frame, too.

        Raises:
            SceneRefusal: if the scene was not answered since its last frame, if the frame is too large, or a message is
                bad. Good messages before a bad one are taken. No other scene is hurt.
            KeyError: if the scene does not take part.
        """
        known = self._scenes[scene]
        if known.phase is not ScenePhase.COMPUTING:
            raise SceneRefusal(f"{scene} has sent a frame before it was answered: it has to wait")
        if len(chunk) > self._limits.max_frame_bytes:
            raise SceneRefusal(
                f"{scene} has sent a frame of {len(chunk)} bytes: {self._limits.max_frame_bytes} at most"
            )
        read = read_chunk_untrusted(chunk)
        known.parts.extend(_parts(chunk[: read.used_bytes]))
        known.heard_ns = now_ns
        known.waited_frames = 0
        known.on("sent a frame")
        if read.refusal:
            raise SceneRefusal(f"{scene} sent at byte {read.used_bytes} of a frame: {read.refusal}")

    def begin(self, player: tuple[float, float]) -> list[str]:
        """Begin a frame.

        Args:
            player: where the player is, x and z in metres.

        Returns:
            The scenes that wait, in the order in which they have their turn.
        """
        waiting = [name for name, scene in self._scenes.items() if scene.phase is ScenePhase.QUEUED]
        self._order = deque(sorted(waiting, key=lambda name: self._rank(self._scenes[name], player)))
        self._current, self._spent_ns, self._parts = None, 0, 0
        for name in waiting:
            self._scenes[name].spent_ns = 0
            self._scenes[name].waited_frames += 1
        return list(self._order)

    def _rank(self, scene: _Scene, player: tuple[float, float]) -> tuple[bool, float]:
        distance_m = math.hypot(scene.place.x - player[0], scene.place.z - player[1])
        if self._policy is FramePolicy.AGED:
            # Who stands within a metre of two scenes is in both.
            distance_m = max(distance_m, 1.0) / (1 + scene.waited_frames)
        return not scene.place.is_global, 0.0 if scene.place.is_global else distance_m

    def next_part(self, spent_ns: int) -> ScenePart | None:
        """What to apply next.

        Args:
            spent_ns: since `begin`, with all that was applied.

        Returns:
            None if the quota is used up, or nothing waits.
        """
        if self._current in self._scenes:
            self._scenes[self._current].spent_ns += spent_ns - self._spent_ns
        self._spent_ns = spent_ns
        if self._parts and spent_ns >= self._limits.quota_ns:
            return None
        while self._order:
            name = self._order[0]
            scene = self._scenes.get(name)
            if scene is None:
                self._order.popleft()
            elif not scene.parts:
                scene.on("all applied")
                self._order.popleft()
            elif len(self._order) > 1 and scene.spent_ns >= self._limits.share * self._limits.quota_ns:
                # It has had its share. What others leave is its own again.
                scene.spent_ns = 0
                self._order.rotate(-1)
            else:
                self._current = name
                self._parts += 1
                return ScenePart(name, scene.parts.popleft())
        return None

    def updated(self, loading: Container[str] = ()) -> list[str]:
        """Note that physics and the camera are computed, with all that was applied before.

        Args:
            loading: scenes whose models are not all there. Their first frame is not answered: physics without them
                are not what the scene may go by.

        Returns:
            The scenes that are to be answered now: those whose whole frame is in it.
        """
        due = []
        for name, scene in self._scenes.items():
            if scene.phase is ScenePhase.QUEUED and not scene.parts:
                # The last part was applied, and the quota with it.
                scene.on("all applied")
            if scene.phase is ScenePhase.APPLIED and not (scene.is_first and name in loading):
                scene.is_first = False
                scene.on("updated")
                due.append(name)
        return due

    def dead(self, now_ns: int) -> list[str]:
        """The scenes that were answered and have sent nothing for too long."""
        return [
            name
            for name, scene in self._scenes.items()
            if scene.phase is ScenePhase.COMPUTING and now_ns - scene.heard_ns > self._limits.silence_ns
        ]


def _parts(chunk: bytes) -> list[bytes]:
    """A chunk of whole messages in pieces of at most `PART_MESSAGES`."""
    parts: list[bytes] = []
    at, began, count = 0, 0, 0
    while len(chunk) - at >= HEADER_BYTES:
        at += _LENGTH.unpack_from(chunk, at)[0]
        count += 1
        if count == PART_MESSAGES:
            parts.append(chunk[began:at])
            began, count = at, 0
    if at > began:
        parts.append(chunk[began:at])
    return parts
