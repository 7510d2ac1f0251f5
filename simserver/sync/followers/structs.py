"""Error codes, enumerations and structs of RenderStream's engine sync, to the byte.

Source: `d3renderstream.h` of disguise's RenderStream, branch engine_sync_dev, compiled for x86-64. The structs are the
table: each field says its type by an annotation, in the header's order and under the header's name in snake case
(`tTracked` is `t_tracked`). Offsets, sizes and packing follow from it (`layout_of`). Numbers are little endian.

Structs up to `ProfilingEntry` are packed to 4 bytes, later ones have natural alignment. A pointer is a number of 8
bytes that means nothing in another process: 0, or an offset into the buffer that holds the struct.
"""

import enum
import hashlib
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from batonpass.simserver.sync.followers.struct_layout import Overlay, RenderStreamStruct, layout_of

__all__ = [
    "DIGEST_BYTES",
    "CameraData",
    "CameraResponseData",
    "Channels",
    "D3TrackingData",
    "Dx11Data",
    "Dx12Data",
    "FrameData",
    "FrameDataFlag",
    "FrameRegion",
    "FrameResponseData",
    "HostMemoryData",
    "ImageFrameData",
    "NumericalDefaults",
    "OpenGlData",
    "ProfilingEntry",
    "ProjectionClipping",
    "RemoteParameter",
    "RemoteParameterDmxType",
    "RemoteParameterFlag",
    "RemoteParameterType",
    "RemoteParameterTypeDefaults",
    "RemoteParameters",
    "RenderStreamError",
    "RsError",
    "RsPixelFormat",
    "Scenes",
    "Schema",
    "SenderFrame",
    "SenderFrameType",
    "SkeletonJointDesc",
    "SkeletonJointPose",
    "SkeletonLayout",
    "SkeletonPose",
    "StreamDescription",
    "StreamDescriptions",
    "TextDefaults",
    "Transform",
    "UseDx12SharedHeapFlag",
    "VulkanData",
    "layout_of",
    "state_digest",
    "write_into",
]


DIGEST_BYTES: Final = 16
"""Of the digest of a state."""


class RsError(enum.IntEnum):
    """What a call says of its outcome; `RS_ERROR` of the header, without the prefixes of its names."""

    SUCCESS = 0
    NOT_INITIALISED = 1
    ALREADYINITIALISED = 2
    INVALIDHANDLE = 3
    MAXSENDERSREACHED = 4
    BADSTREAMTYPE = 5
    NOTFOUND = 6
    INCORRECTSCHEMA = 7
    INVALID_PARAMETERS = 8
    BUFFER_OVERFLOW = 9
    TIMEOUT = 10
    STREAMS_CHANGED = 11
    INCOMPATIBLE_VERSION = 12
    FAILED_TO_GET_DXDEVICE_FROM_RESOURCE = 13
    FAILED_TO_INITIALISE_GPGPU = 14
    QUIT = 15
    ENGINE_DATA_AVAILABLE = 16
    UNSPECIFIED = 17


class RenderStreamError(Exception):
    """A call of an engine had another outcome than success.

    Attributes:
        code: which one.
        needed: with `BUFFER_OVERFLOW`, how many bytes would have been enough; else 0.
    """

    def __init__(self, code: RsError, sentence: str, *, needed: int = 0) -> None:
        super().__init__(f"{code.name}: {sentence}")
        self.code: Final = code
        self.needed: Final = needed


class RsPixelFormat(enum.IntEnum):
    """How the pixels of an image lie in memory."""

    INVALID = 0
    BGRA8 = 1
    BGRX8 = 2
    RGBA32F = 3
    RGBA16 = 4
    RGBA8 = 5
    RGBX8 = 6


class FrameDataFlag(enum.IntFlag):
    """Flags of a frame. `RESET`: nothing of the frames before holds any more."""

    NO_FLAGS = 0
    RESET = 1


class RemoteParameterFlag(enum.IntFlag):
    """Flags of a parameter that an operator may set."""

    NO_FLAGS = 0
    NO_SEQUENCE = 1
    READ_ONLY = 2


class SenderFrameType(enum.IntEnum):
    """Where an image lies that an engine sends, and which part of `SenderFrame.content` says so."""

    HOST_MEMORY = 0
    DX11_TEXTURE = 1
    DX12_TEXTURE = 2
    OPENGL_TEXTURE = 3
    VULKAN_TEXTURE = 4
    UNKNOWN = 5


class RemoteParameterType(enum.IntEnum):
    """What a parameter is, and which part of its defaults counts."""

    NUMBER = 0
    IMAGE = 1
    POSE = 2
    TRANSFORM = 3
    TEXT = 4
    EVENT = 5
    SKELETON = 6


class RemoteParameterDmxType(enum.IntEnum):
    """How a parameter lies in a DMX universe."""

    DEFAULT = 0
    DMX_8 = 1
    DMX_16_BE = 2


class UseDx12SharedHeapFlag(enum.IntEnum):
    """Whether textures of DirectX 12 come from a shared heap."""

    USE_SHARED_HEAP_FLAG = 0
    DO_NOT_USE_SHARED_HEAP_FLAG = 1


# The types of fields: a letter of the module `struct`, which also gives size and alignment.
F32 = Annotated[float, "f"]
F64 = Annotated[float, "d"]
I8 = Annotated[bool, "?"]
I32 = Annotated[int, "i"]
I64 = Annotated[int, "q"]
U32 = Annotated[int, "I"]
U64 = Annotated[int, "Q"]
Pointer = Annotated[int, "Q"]


@dataclass(frozen=True, slots=True)
class D3TrackingData(RenderStreamStruct):
    """What disguise's tracking adds to a camera."""

    virtual_reprojection_required: I8 = False


@dataclass(frozen=True, slots=True)
class CameraData(RenderStreamStruct):
    """A camera of a stream for one frame: place in metres, rotation in degrees, lens in millimetres."""

    id: U64 = 0
    camera_handle: U64 = 0
    x: F32 = 0.0
    y: F32 = 0.0
    z: F32 = 0.0
    rx: F32 = 0.0
    ry: F32 = 0.0
    rz: F32 = 0.0
    focal_length: F32 = 0.0
    sensor_x: F32 = 0.0
    sensor_y: F32 = 0.0
    cx: F32 = 0.0
    cy: F32 = 0.0
    near_z: F32 = 0.0
    far_z: F32 = 0.0
    ortho_width: F32 = 0.0
    aperture: F32 = 0.0
    focus_distance: F32 = 0.0
    d3_tracking: D3TrackingData = D3TrackingData()


@dataclass(frozen=True, slots=True)
class FrameData(RenderStreamStruct):
    """When a frame is: times in seconds, the rate in frames a second as a fraction."""

    t_tracked: F64 = 0.0
    local_time: F64 = 0.0
    local_time_delta: F64 = 0.0
    frame_rate_numerator: U32 = 60
    frame_rate_denominator: U32 = 1
    flags: Annotated[FrameDataFlag, "I"] = FrameDataFlag.NO_FLAGS
    scene: U32 = 0


@dataclass(frozen=True, slots=True)
class CameraResponseData(RenderStreamStruct):
    """Of an image that an engine sends: the tracked time that it shows, and the camera that it was rendered with."""

    t_tracked: F64 = 0.0
    camera: CameraData = CameraData()


@dataclass(frozen=True, slots=True)
class HostMemoryData(RenderStreamStruct):
    """An image in the memory of the process."""

    data: Pointer = 0
    stride: U32 = 0
    format: Annotated[RsPixelFormat, "I"] = RsPixelFormat.INVALID


@dataclass(frozen=True, slots=True)
class Dx11Data(RenderStreamStruct):
    """A texture of DirectX 11."""

    resource: Pointer = 0


@dataclass(frozen=True, slots=True)
class Dx12Data(RenderStreamStruct):
    """A texture of DirectX 12."""

    resource: Pointer = 0


@dataclass(frozen=True, slots=True)
class OpenGlData(RenderStreamStruct):
    """A texture of OpenGL."""

    texture: U32 = 0


@dataclass(frozen=True, slots=True)
class VulkanData(RenderStreamStruct):
    """A texture of Vulkan, with its semaphores."""

    memory: Pointer = 0
    size: U64 = 0
    format: U32 = 0
    width: U32 = 0
    height: U32 = 0
    wait_semaphore: Pointer = 0
    wait_semaphore_value: U64 = 0
    signal_semaphore: Pointer = 0
    signal_semaphore_value: U64 = 0


_IMAGES: Final = Overlay(
    {"cpu": HostMemoryData, "dx11": Dx11Data, "dx12": Dx12Data, "gl": OpenGlData, "vk": VulkanData}
)


@dataclass(frozen=True, slots=True)
class SenderFrame(RenderStreamStruct):
    """An image that an engine sends: `content` begins with the struct that belongs to `type`."""

    type: Annotated[SenderFrameType, "I"] = SenderFrameType.UNKNOWN
    content: Annotated[bytes, _IMAGES] = b""


@dataclass(frozen=True, slots=True)
class FrameRegion(RenderStreamStruct):
    """A rectangle of an image, in pixels."""

    x_offset: U32 = 0
    y_offset: U32 = 0
    width: U32 = 0
    height: U32 = 0


@dataclass(frozen=True, slots=True)
class ProjectionClipping(RenderStreamStruct):
    """The part of a projection that a stream shows: 0 to 1 from left to right and from top to bottom."""

    left: F32 = 0.0
    right: F32 = 1.0
    top: F32 = 0.0
    bottom: F32 = 1.0


@dataclass(frozen=True, slots=True)
class StreamDescription(RenderStreamStruct):
    """A stream of images that an engine is to render, as it lies in a buffer; `ShowStream` has its texts."""

    handle: U64 = 0
    channel: Pointer = 0
    mapping_id: U64 = 0
    i_viewpoint: I32 = 0
    name: Pointer = 0
    width: U32 = 0
    height: U32 = 0
    format: Annotated[RsPixelFormat, "I"] = RsPixelFormat.INVALID
    clipping: ProjectionClipping = ProjectionClipping()
    mapping_name: Pointer = 0
    i_fragment: I32 = 0


@dataclass(frozen=True, slots=True)
class StreamDescriptions(RenderStreamStruct):
    """How many streams there are, and where their descriptions begin."""

    n_streams: U32 = 0
    streams: Pointer = 0


@dataclass(frozen=True, slots=True)
class NumericalDefaults(RenderStreamStruct):
    """Bounds and default of a number."""

    min: F32 = 0.0
    max: F32 = 0.0
    step: F32 = 0.0
    default_value: F32 = 0.0


@dataclass(frozen=True, slots=True)
class TextDefaults(RenderStreamStruct):
    """The default of a text."""

    default_value: Pointer = 0


_DEFAULTS: Final = Overlay({"number": NumericalDefaults, "text": TextDefaults})


@dataclass(frozen=True, slots=True)
class RemoteParameterTypeDefaults(RenderStreamStruct):
    """The defaults of a parameter: `content` begins with the struct of its type."""

    content: Annotated[bytes, _DEFAULTS] = b""


@dataclass(frozen=True, slots=True)
class ImageFrameData(RenderStreamStruct):
    """An image that a frame gives to a parameter."""

    width: U32 = 0
    height: U32 = 0
    format: Annotated[RsPixelFormat, "I"] = RsPixelFormat.INVALID
    image_id: I64 = 0


@dataclass(frozen=True, slots=True)
class RemoteParameter(RenderStreamStruct):
    """A parameter that an operator may set."""

    group: Pointer = 0
    display_name: Pointer = 0
    key: Pointer = 0
    type: Annotated[RemoteParameterType, "I"] = RemoteParameterType.NUMBER
    defaults: RemoteParameterTypeDefaults = RemoteParameterTypeDefaults()
    n_options: U32 = 0
    options: Pointer = 0
    dmx_offset: I32 = 0
    dmx_type: Annotated[RemoteParameterDmxType, "I"] = RemoteParameterDmxType.DEFAULT
    flags: Annotated[RemoteParameterFlag, "I"] = RemoteParameterFlag.NO_FLAGS


@dataclass(frozen=True, slots=True)
class RemoteParameters(RenderStreamStruct):
    """The parameters of a scene."""

    name: Pointer = 0
    n_parameters: U32 = 0
    parameters: Pointer = 0
    hash: U64 = 0


@dataclass(frozen=True, slots=True)
class Scenes(RenderStreamStruct):
    """How many scenes there are, and where they begin."""

    n_scenes: U32 = 0
    scenes: Pointer = 0


@dataclass(frozen=True, slots=True)
class Channels(RenderStreamStruct):
    """How many channels there are, and where their names begin."""

    n_channels: U32 = 0
    channels: Pointer = 0


@dataclass(frozen=True, slots=True)
class Schema(RenderStreamStruct):
    """What an engine offers to operators."""

    engine_name: Pointer = 0
    engine_version: Pointer = 0
    plugin_version: Pointer = 0
    info: Pointer = 0
    channels: Channels = Channels()
    scenes: Scenes = Scenes()


@dataclass(frozen=True, slots=True)
class ProfilingEntry(RenderStreamStruct):
    """A figure that an engine reports."""

    name: Pointer = 0
    value: F32 = 0.0


@dataclass(frozen=True, slots=True)
class FrameResponseData(RenderStreamStruct):
    """What goes back with an image: where the camera and the parameters are that it was rendered with."""

    PACK: ClassVar[int] = 8

    camera_data: Pointer = 0
    schema_hash: U64 = 0
    parameter_data_size: U32 = 0
    parameter_data: Pointer = 0
    text_data_count: U32 = 0
    text_data: Pointer = 0


@dataclass(frozen=True, slots=True)
class Transform(RenderStreamStruct):
    """A place and a rotation, as a quaternion."""

    PACK: ClassVar[int] = 8

    x: F32 = 0.0
    y: F32 = 0.0
    z: F32 = 0.0
    rx: F32 = 0.0
    ry: F32 = 0.0
    rz: F32 = 0.0
    rw: F32 = 0.0


@dataclass(frozen=True, slots=True)
class SkeletonJointPose(RenderStreamStruct):
    """Where a joint is in a frame."""

    PACK: ClassVar[int] = 8

    id: U64 = 0
    transform: Transform = Transform()


@dataclass(frozen=True, slots=True)
class SkeletonJointDesc(RenderStreamStruct):
    """Where a joint is at rest, and which one it hangs from."""

    PACK: ClassVar[int] = 8

    id: U64 = 0
    parent_id: U64 = 0
    transform: Transform = Transform()


@dataclass(frozen=True, slots=True)
class SkeletonLayout(RenderStreamStruct):
    """The joints of a skeleton."""

    PACK: ClassVar[int] = 8

    version: U32 = 0
    joints: Pointer = 0


@dataclass(frozen=True, slots=True)
class SkeletonPose(RenderStreamStruct):
    """Where a skeleton and its joints are in a frame."""

    PACK: ClassVar[int] = 8

    layout_id: U64 = 0
    layout_version: U32 = 0
    reserved_bytes: Annotated[bytes, "8s"] = bytes(8)
    root_transform: Transform = Transform()
    joints: Pointer = 0


def state_digest(state: bytes) -> bytes:
    """Return the 16 bytes by which nodes compare a full state: the first ones of its SHA-256 (FIPS 180-4).

    Of what OpenSSL has it is the cheapest where processors have instructions for it (docs/history/bench-followers.md).
    """
    return hashlib.sha256(state).digest()[:DIGEST_BYTES]


def write_into(buffer: bytearray | memoryview | None, content: bytes) -> int:
    """Write `content` to the begin of `buffer` and return its size, by the header's convention for buffers.

    Raises `RenderStreamError`: BUFFER_OVERFLOW if `buffer` is None or too small; its `needed` is the size to try next.
    INVALID_PARAMETERS for what is no buffer of bytes that can be written.
    """
    have = 0
    if buffer is not None:
        try:
            with memoryview(buffer) as view, view.cast("B") as room:
                if (have := room.nbytes) >= len(content):
                    room[: len(content)] = content
                    return len(content)
        except (TypeError, ValueError) as error:
            kind = type(buffer).__name__
            sentence = f"{kind} cannot be written into; pass a bytearray, or None for the size"
            raise RenderStreamError(RsError.INVALID_PARAMETERS, sentence) from error
    raise RenderStreamError(
        RsError.BUFFER_OVERFLOW,
        f"{len(content)} bytes do not fit into a buffer of {have}; call again with one of `needed` bytes",
        needed=len(content),
    )
