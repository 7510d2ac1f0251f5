"""Which streams of a show each server renders, as the options of the world say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from batonpass.authority.names import check_name
from batonpass.simserver.sync.followers.ports import ShowStream
from batonpass.simserver.sync.followers.structs import CameraData, ProjectionClipping

__all__ = ["MAX_STREAMS", "ServerStream", "read_streams"]

MAX_STREAMS: Final = 1_024
"""Of all servers together."""
MAX_PIXELS: Final = 32_768
"""Of a width or height."""
_MAX_NUMBER: Final = 1e30
"""Beyond that no number of 32 bits is."""
_FIELDS: Final = {"server", "name", "width", "height", "channel", "clipping", "camera"}
_OF_A_CAMERA: Final = tuple(
    each.name for each in fields(CameraData) if each.name not in ("id", "camera_handle", "d3_tracking")
)


@dataclass(frozen=True, slots=True)
class ServerStream:
    """A stream, the server that renders it, and its camera, which is the same in all frames."""

    server: str
    stream: ShowStream
    camera: CameraData


def read_streams(given: Any) -> tuple[ServerStream, ...]:
    """The streams of all servers of a show; their handles are 1, 2, 3 and so on. Raises ValueError."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise ValueError(f"streams is {given!r:.80}: give a list of tables")
    if len(given) > MAX_STREAMS:
        raise ValueError(f"streams has {len(given)} tables: give at most {MAX_STREAMS:,}")
    read = tuple(_read(handle, each) for handle, each in enumerate(given, 1))
    names = [each.stream.name for each in read]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two streams are named {twice!r:.40}: give each its own name")
    return read


def _read(handle: int, given: Any) -> ServerStream:
    if not isinstance(given, Mapping):
        raise ValueError(f"streams has {given!r:.40}: give a table with server, name, width and height")
    if unknown := sorted(map(str, given.keys() - _FIELDS)):
        raise ValueError(f"a stream has no {unknown[0]!r:.40}: there are {', '.join(sorted(_FIELDS))}")
    server, name, channel = given.get("server"), given.get("name"), given.get("channel", "Default")
    for member, value in (("server", server), ("name", name), ("channel", channel)):
        if not isinstance(value, str) or not value:
            raise ValueError(f"the {member} of stream {handle} is {value!r:.40}: give a text")
    check_name(str(server))
    width: Any = given.get("width")
    height: Any = given.get("height")
    if not all(type(side) is int and 0 < side <= MAX_PIXELS for side in (width, height)):
        raise ValueError(f"stream {name!r:.40} has {width!r:.20} x {height!r:.20}: give 1 to {MAX_PIXELS:,}")
    clipping, camera = given.get("clipping", (0.0, 1.0, 0.0, 1.0)), given.get("camera", {})
    if isinstance(clipping, str) or not isinstance(clipping, Sequence) or len(clipping) != 4:
        raise ValueError(f"the clipping of {name!r:.40} is {clipping!r:.40}: give left, right, top and bottom")
    if not isinstance(camera, Mapping) or not set(_OF_A_CAMERA) >= camera.keys():
        raise ValueError(f"the camera of {name!r:.40} is {camera!r:.40}: it may have {', '.join(_OF_A_CAMERA)}")
    for value in (*clipping, *camera.values()):
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_NUMBER:
            raise ValueError(f"stream {name!r:.40} has {value!r:.40}: give numbers for its clipping and camera")
    shown = ProjectionClipping(*map(float, clipping))
    stream = ShowStream(handle, str(name), width, height, channel=str(channel), clipping=shown)
    lens: dict[str, Any] = {member: float(value) for member, value in camera.items()}
    return ServerStream(str(server), stream, CameraData(id=handle, **lens))
