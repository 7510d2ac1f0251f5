"""A node without a network: events are put by hand, or pass from the engine of a controller to those of followers."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.frame_clock import FrameRate
from batonpass.simserver.sync.followers.ports import (
    CamerasReceived,
    EngineAct,
    EngineEvent,
    FrameBegins,
    FrameReady,
    ShowStream,
    StreamsChanged,
)
from batonpass.simserver.sync.followers.structs import (
    CameraData,
    CameraResponseData,
    FrameDataFlag,
    RenderStreamError,
    RsError,
)

RATE = FrameRate(60)
LEFT = ShowStream(handle=7, name="left", width=2, height=1)
RIGHT = ShowStream(handle=8, name="right", width=2, height=1)
PIXELS = bytes(8)


@dataclass
class FakePort:
    """An `EnginePort` whose time passes only while it is waited for an event that does not come.

    None among the events: there is nothing at that call, and more after it.
    """

    events: deque[EngineEvent | None] = field(default_factory=deque)
    acts: list[EngineAct] = field(default_factory=list)
    time_ns: int = 0
    calling_thread: int = 1

    def next_event(self, timeout_s: float) -> EngineEvent | None:
        if self.events and (event := self.events.popleft()):
            return event
        self.time_ns += round(timeout_s * 1_000_000_000)
        return None

    def submit(self, act: EngineAct) -> None:
        self.acts.append(act)

    def now_ns(self) -> int:
        return self.time_ns

    def thread(self) -> int:
        return self.calling_thread

    def puts(self, *events: EngineEvent | None) -> None:
        self.events.extend(events)


def begins(
    frame: int, *, controller: bool = False, flags: FrameDataFlag = FrameDataFlag.NO_FLAGS, epoch: int = 1
) -> FrameBegins:
    return FrameBegins(frame, epoch, controller, RATE.data_of(frame, flags=flags))


def ready(frame: int, payload: bytes = b"state", *, version: int = 0, inputs: bool = False) -> FrameReady:
    return FrameReady(frame, 1, payload, version, inputs, frame - 1 if inputs else 0)


def streams(*those: ShowStream) -> StreamsChanged:
    return StreamsChanged(those)


def cameras(frame: int, *handles: int) -> CamerasReceived:
    return CamerasReceived(frame, {handle: camera(frame, handle) for handle in handles})


def camera(frame: int, handle: int) -> CameraData:
    return CameraData(id=handle, x=float(frame))


def response(frame: int, handle: int = LEFT.handle) -> CameraResponseData:
    return CameraResponseData(RATE.seconds(frame), camera(frame, handle))


def code_of(call: Callable[[], Any]) -> RsError:
    with pytest.raises(RenderStreamError) as refused:
        call()
    return refused.value.code


def awaited(node: EngineNode, port: FakePort, *, controller: bool) -> None:
    port.puts(begins(1, controller=controller), *([] if controller else [ready(1)]))
    node.await_frame_data()


def refused(node: EngineNode, call: Callable[[EngineNode], Any], sentence: str) -> None:
    """A refused call says so and what to do, is counted, and leaves the node as it was."""
    before = node.counters["calls_refused"]
    with pytest.raises(RenderStreamError, match=sentence) as error:
        call(node)
    assert error.value.code == RsError.INVALID_PARAMETERS
    assert node.counters["calls_refused"] == before + 1
