"""The streams of a node, the cameras of frames, and the images that its engine has handed over. A camera is kept by the
number of its frame: first come, first served, one lost request would shift all later ones.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from batonpass.simserver.sync.followers.awaited_frame import AwaitedFrame
from batonpass.simserver.sync.followers.images import ImageSink, SentImage
from batonpass.simserver.sync.followers.ports import CamerasReceived, ShowStream
from batonpass.simserver.sync.followers.structs import CameraData

__all__ = ["ShownStreams"]

MAX_CAMERA_FRAMES: Final = 64
"""Frames whose cameras are known."""


class ShownStreams:
    """Of one engine.

    Attributes:
        sink: what takes the images; None throws them away.
        streams: that the node renders.
        missing: for how many frames one after another a stream has had no camera, by handle.
        sent: the handles of which the awaited frame has its image.
    """

    def __init__(self, sink: ImageSink | None) -> None:
        self.streams: tuple[ShowStream, ...] = ()
        self.missing: Final[Counter[int]] = Counter()
        self.sent: Final[set[int]] = set()
        self.sink = sink
        self._cameras: Final[dict[int, Mapping[int, CameraData]]] = {}
        self._shown: Final[dict[int, SentImage]] = {}

    def changed(self, streams: tuple[ShowStream, ...]) -> None:
        """The streams are these; nothing is kept of others."""
        self.streams = streams
        handles = {stream.handle for stream in streams}
        for known in (self._shown, self.missing):
            for handle in known.keys() - handles:
                del known[handle]

    def keep_cameras(self, received: CamerasReceived) -> None:
        """These are the cameras of a frame; of too many frames the oldest go."""
        self._cameras[received.frame] = received.cameras
        if len(self._cameras) > MAX_CAMERA_FRAMES:
            del self._cameras[min(self._cameras)]

    def begin(self, frame: int, *, reset: bool) -> None:
        """This frame is awaited: cameras of older ones go, and at a RESET all images."""
        if reset:
            self._shown.clear()
        for older in [number for number in self._cameras if number < frame]:
            del self._cameras[older]
        self.sent.clear()

    def stream(self, handle: int) -> ShowStream | None:
        """Return the stream of this handle, if there is one."""
        return next((stream for stream in self.streams if stream.handle == handle), None)

    def camera(self, opened: AwaitedFrame, handle: int) -> CameraData | None:
        """Return the camera of a stream for the awaited frame; None if the frame does not ask for it."""
        camera = self._cameras.get(opened.frame, {}).get(handle)
        if camera is None or self.stream(handle) is None:
            if handle in opened.handles:
                self.missing[handle] += 1
            return None
        self.missing[handle] = 0
        return camera

    def show(self, image: SentImage) -> None:
        """The engine hands this over."""
        handle = image.stream.handle
        self.sent.add(handle)
        self._shown[handle] = image
        if self.sink is not None:
            self.sink(image)

    def repeat(self, frame: int) -> None:
        """The engine has no data of a frame: its last images are shown again."""
        if self.sink is not None:
            for shown in self._shown.values():
                self.sink(replace(shown, frame=frame, repeated=True))
