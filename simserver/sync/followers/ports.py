"""What the engine's side and the node's side of a show tell each other, as values, and the port between them.

Events go to the engine, acts to the node. Payloads are `bytes`: nothing that was handed over changes afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from batonpass.simserver.sync.followers.drops import DropReason
from batonpass.simserver.sync.followers.structs import CameraData, FrameData, ProjectionClipping, RsPixelFormat

__all__ = [
    "CamerasReceived",
    "EngineAct",
    "EngineDropped",
    "EngineEvent",
    "EngineLeft",
    "EnginePort",
    "FenceOpened",
    "FrameBegins",
    "FrameReady",
    "FramesGone",
    "InteractionReceived",
    "QuitTold",
    "ShowStream",
    "StreamsChanged",
    "SubmitHash",
    "SubmitInteraction",
    "SubmitState",
]


@dataclass(frozen=True, slots=True)
class ShowStream:
    """A stream of images that the engine of this node is to render.

    Attributes:
        handle: its number; not 0.
        channel: the output that the images are for.
        name: unique among the streams of the show.
        width, height: of its images, in pixels.
        clipping: the part of the whole picture that it shows, as of a tile of a wall.
    """

    handle: int
    name: str
    width: int
    height: int
    format: RsPixelFormat = RsPixelFormat.RGBA8
    channel: str = "Default"
    clipping: ProjectionClipping = field(default_factory=ProjectionClipping)
    mapping_id: int = 0
    mapping_name: str = ""
    viewpoint: int = 0
    fragment: int = 0


@dataclass(frozen=True, slots=True)
class FrameBegins:
    """A frame begins: the engine's await returns with it.

    Attributes:
        frame: its number; the numbers of a show only rise.
        epoch: of the fence under which the controller sends it.
        is_controller: whether this node is the controller for this frame.
        data: the controller's times and flags; the node's engine sees its own `local_time_delta`.
    """

    frame: int
    epoch: int
    is_controller: bool
    data: FrameData


@dataclass(frozen=True, slots=True)
class FrameReady:
    """The data of a frame are complete at this follower.

    Attributes:
        payload: the full state, whatever it was sent as; the inputs of the frame if `is_inputs`.
        version: of the payload, as the controller's engine gave it.
        is_inputs: the engine is to compute the state from them, and to report its hash.
        base_frame: the frame after whose state inputs are applied.
    """

    frame: int
    epoch: int
    payload: bytes
    version: int
    is_inputs: bool = False
    base_frame: int = 0


@dataclass(frozen=True, slots=True)
class FramesGone:
    """Data that waited for the external fence have gone: those of this frame and of all before come no more."""

    frame: int


@dataclass(frozen=True, slots=True)
class InteractionReceived:
    """Interaction data of a follower have reached the controller, in the order in which that follower sent them."""

    node: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class StreamsChanged:
    """The streams of this node, all of them; the ones told before hold no more."""

    streams: tuple[ShowStream, ...]


@dataclass(frozen=True, slots=True)
class CamerasReceived:
    """The cameras of a frame by the handle of their stream; to be told before that frame begins.

    A stream that is missing here is not asked for in this frame.
    """

    frame: int
    cameras: Mapping[int, CameraData]


@dataclass(frozen=True, slots=True)
class QuitTold:
    """The show ends: the engine's next await says QUIT."""


EngineEvent = FrameBegins | FrameReady | FramesGone | InteractionReceived | StreamsChanged | CamerasReceived | QuitTold


@dataclass(frozen=True, slots=True)
class SubmitState:
    """The controller's engine has computed a frame.

    Attributes:
        epoch: of the frame as it was awaited: a node that has another one by now ignores the act.
        payload: the full state, in every mode.
        inputs: from which followers compute the same state; None to send the state itself.
        base_frame: after whose state the inputs are applied; -1 if there are none.
    """

    frame: int
    epoch: int
    payload: bytes
    version: int
    inputs: bytes | None = None
    base_frame: int = -1


@dataclass(frozen=True, slots=True)
class SubmitHash:
    """A follower's engine has computed a frame from inputs; `digest` is `structs.state_digest` of its state."""

    frame: int
    epoch: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class SubmitInteraction:
    """Interaction data of a follower's engine, for the controller."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class EngineDropped:
    """Frames that began at this node and that its engine does not show: `first` to `last`, both included."""

    first: int
    last: int
    reason: DropReason = DropReason.ENGINE


@dataclass(frozen=True, slots=True)
class FenceOpened:
    """External fence: the engine is to get the data of all frames up to this one."""

    frame: int


@dataclass(frozen=True, slots=True)
class EngineLeft:
    """The engine has seen QUIT, or has ended by itself; it makes no further call."""


EngineAct = SubmitState | SubmitHash | SubmitInteraction | EngineDropped | FenceOpened | EngineLeft


class EnginePort(Protocol):
    """The node as an engine's thread sees it; `mailbox.EngineMailbox` is one."""

    def next_event(self, timeout_s: float) -> EngineEvent | None:
        """Wait for the next event at most so long, and not at all for 0; None if there was none."""

    def submit(self, act: EngineAct) -> None:
        """Hand an act to the node without waiting for its effect.

        Raises `structs.RenderStreamError`: BUFFER_OVERFLOW if the node has not taken the acts before.
        """

    def now_ns(self) -> int:
        """Return the monotonic time."""

    def thread(self) -> int:
        """Return a number of the thread that calls."""
