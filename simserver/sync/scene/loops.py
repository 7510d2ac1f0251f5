"""The stages of a renderer's frame: which may begin when (ADR-148), double-buffered or one after the other.

One thread does Receive, Update and Send; the GPU does Render. Double-buffered, Send follows Update and does not wait
for Render, and the next frame's stages run while the GPU has the last one. Naive, each stage waits for the one before:
a scene is answered a frame later, so it computes every second frame at best, and every other frame shows nothing new.

The display asks for a frame with each refresh. One that cannot begin then is dropped.
"""

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["FrameLoop", "FrameMeasures", "FrameStage", "StageSpan"]

_KEPT_SPANS: Final = 4_096


class FrameStage(StrEnum):
    """A stage of a renderer's frame."""

    RECEIVE = "receive"
    UPDATE = "update"
    RENDER = "render"
    SEND = "send"


_DOUBLE_BUFFERED: Final[Mapping[FrameStage, tuple[FrameStage, ...]]] = MappingProxyType(
    {
        FrameStage.RECEIVE: (FrameStage.UPDATE,),
        FrameStage.UPDATE: (FrameStage.RENDER, FrameStage.SEND),
        FrameStage.RENDER: (),
        FrameStage.SEND: (),
    }
)
_NAIVE: Final[Mapping[FrameStage, tuple[FrameStage, ...]]] = MappingProxyType(
    {
        FrameStage.RECEIVE: (FrameStage.UPDATE,),
        FrameStage.UPDATE: (FrameStage.RENDER,),
        FrameStage.RENDER: (FrameStage.SEND,),
        FrameStage.SEND: (),
    }
)


class StageSpan(NamedTuple):
    """When a stage of a frame ran."""

    frame: int
    stage: FrameStage
    began_ns: int
    ended_ns: int


class FrameMeasures(NamedTuple):
    """What ADR-148 compares by.

    Attributes:
        frames: that were rendered.
        dropped: refreshes at which no frame could begin.
        input_delay_ns: of all rendered frames together, from Receive, which takes the input, to the end of Render.
        gpu_ns: how long the GPU had something to do.
        overlapped_ns: how long the thread had something to do meanwhile.
    """

    frames: int
    dropped: int
    input_delay_ns: int
    gpu_ns: int
    overlapped_ns: int


class FrameLoop:
    """The frames of one renderer. It says which stages begin; who runs them says when they are done.

    Args:
        double_buffered: whether Send and the next frame wait for Render no longer than they must.
    """

    def __init__(self, *, double_buffered: bool) -> None:
        self._after: Final = _DOUBLE_BUFFERED if double_buffered else _NAIVE
        self._double_buffered: Final = double_buffered
        self._frame = 0
        # What runs on the thread and on the GPU, as frame and beginning.
        self._running: Final[dict[FrameStage, tuple[int, int]]] = {}
        # The frame whose Update is done while the GPU has the one before.
        self._to_render: int | None = None
        self._received_ns: Final[dict[int, int]] = {}
        # What the thread has done since the last Render ended.
        self._beside: Final[list[StageSpan]] = []
        self.spans: Final[deque[StageSpan]] = deque(maxlen=_KEPT_SPANS)
        """The last stages that are done."""
        self._measures = FrameMeasures(0, 0, 0, 0, 0)

    @property
    def measures(self) -> FrameMeasures:
        """What was measured so far."""
        return self._measures

    def refresh(self, now_ns: int) -> list[FrameStage]:
        """The display asks for a frame.

        Returns:
            The stage that begins now; none if the frame is dropped.
        """
        gpu_busy = FrameStage.RENDER in self._running
        thread_busy = any(stage is not FrameStage.RENDER for stage in self._running)
        if thread_busy or self._to_render is not None or (gpu_busy and not self._double_buffered):
            self._measures = self._measures._replace(dropped=self._measures.dropped + 1)
            return []
        self._frame += 1
        self._received_ns[self._frame] = now_ns
        return self._begin((FrameStage.RECEIVE,), self._frame, now_ns)

    def missed(self, refreshes: int) -> None:
        """Note refreshes at which a look was not even possible: no frame began."""
        self._measures = self._measures._replace(dropped=self._measures.dropped + refreshes)

    def done(self, stage: FrameStage, now_ns: int) -> list[FrameStage]:
        """A stage that runs is done.

        Returns:
            The stages that begin now.

        Raises:
            KeyError: if it does not run.
        """
        frame, began_ns = self._running.pop(stage)
        span = StageSpan(frame, stage, began_ns, now_ns)
        self.spans.append(span)
        begun = []
        if stage is not FrameStage.RENDER:
            self._beside.append(span)
        if stage is FrameStage.RENDER:
            self._rendered(frame, began_ns, now_ns)
            if self._to_render is not None:
                waiting, self._to_render = self._to_render, None
                begun = self._begin((FrameStage.RENDER,), waiting, now_ns)
        return begun + self._begin(self._after[stage], frame, now_ns)

    def _begin(self, stages: tuple[FrameStage, ...], frame: int, now_ns: int) -> list[FrameStage]:
        begun = []
        for stage in stages:
            if stage is FrameStage.RENDER and stage in self._running:
                self._to_render = frame
            else:
                self._running[stage] = frame, now_ns
                begun.append(stage)
        return begun

    def _rendered(self, frame: int, began_ns: int, now_ns: int) -> None:
        beside = [(one.began_ns, one.ended_ns) for one in self._beside]
        self._beside.clear()
        beside += [(since_ns, now_ns) for _, since_ns in self._running.values()]
        overlapped = sum(max(0, min(end, now_ns) - max(begin, began_ns)) for begin, end in beside)
        frames, dropped, delay_ns, gpu_ns, overlapped_ns = self._measures
        self._measures = FrameMeasures(
            frames + 1,
            dropped,
            delay_ns + now_ns - self._received_ns.pop(frame),
            gpu_ns + now_ns - began_ns,
            overlapped_ns + overlapped,
        )
