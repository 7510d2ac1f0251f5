"""A scene's frames: Receive, Update, Send, each after the renderer's answer to the one before (ADR-133, ADR-148)."""

from collections import deque
from collections.abc import Callable
from typing import Final

from batonpass.simserver.sync.scene.exchange import PeerKind
from batonpass.simserver.sync.scene.loops import FrameStage, StageSpan
from batonpass.simserver.sync.scene.replica import SceneReplica

__all__ = ["SceneLoop"]

_RENDERER: Final = "renderer"
_KEPT_SPANS: Final = 4_096


class SceneLoop:
    """The frames of one scene.

    The first answer is the state with which the scene begins: what its `main.crdt` has, and where the player is. The
    first Update is for that state, and no time has passed for it.

    Args:
        replica: of the scene; no renderer is connected to it yet.
        update: what the scene computes in a frame. It is given the seconds since the last one; 0 in the first.
    """

    def __init__(self, replica: SceneReplica, update: Callable[[float], None]) -> None:
        self.replica: Final = replica
        self._update: Final = update
        self._frame = 0
        self._updated_ns: int | None = None
        self.spans: Final[deque[StageSpan]] = deque(maxlen=_KEPT_SPANS)
        """The last stages that are done."""
        replica.connect(_RENDERER, PeerKind.RENDERER)

    def receive(self, answer: bytes, now_ns: Callable[[], int]) -> None:
        """Receive: take the renderer's answer.

        Raises:
            SceneRefusal: if a message of it is bad.
        """
        self._frame += 1
        began_ns = now_ns()
        self.replica.receive(_RENDERER, answer)
        self.replica.apply()
        self._note(FrameStage.RECEIVE, began_ns, now_ns())

    def update(self, now_ns: Callable[[], int], began_ns: int | None = None) -> None:
        """Update: compute the frame. It began now, or at `began_ns`, where something was waited for."""
        began_ns = now_ns() if began_ns is None else began_ns
        last_ns, self._updated_ns = self._updated_ns, began_ns
        self._update(0.0 if last_ns is None else (began_ns - last_ns) / 1e9)
        self._note(FrameStage.UPDATE, began_ns, now_ns())

    def send(self, now_ns: Callable[[], int]) -> bytes:
        """Send: the frame, for the renderer. It is empty if nothing was changed."""
        began_ns = now_ns()
        (frame,) = self.replica.flush()[_RENDERER]
        self._note(FrameStage.SEND, began_ns, now_ns())
        return frame

    def _note(self, stage: FrameStage, began_ns: int, ended_ns: int) -> None:
        self.spans.append(StageSpan(self._frame, stage, began_ns, ended_ns))
