"""Streams come and go, cameras belong to frames, and only images of complete frames are shown."""

from typing import Any

import pytest

from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.images import RenderedImage, SentImage
from batonpass.simserver.sync.followers.structs import (
    CameraResponseData,
    FrameDataFlag,
    RenderStreamError,
    RsError,
    RsPixelFormat,
)
from tests.simserver.sync.followers.engine_port import (
    LEFT,
    PIXELS,
    RATE,
    RIGHT,
    FakePort,
    begins,
    camera,
    cameras,
    code_of,
    ready,
    refused,
    response,
    streams,
)

IMAGE = RenderedImage(PIXELS, 2, 1)
RESET = FrameDataFlag.RESET


def with_streams(node: EngineNode, port: FakePort, *handles: int) -> None:
    """Frame 1 has begun at a controller that renders both streams; cameras for `handles`."""
    port.puts(streams(LEFT, RIGHT))
    assert code_of(node.await_frame_data) == RsError.STREAMS_CHANGED
    port.puts(cameras(1, *handles), begins(1, controller=True))
    node.await_frame_data()


def test_r8_a_node_that_starts_without_streams_hears_of_the_first_ones(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1))
    node.await_frame_data()
    assert (node.get_streams(), list(node.frame_cameras())) == ((), [])
    port.puts(streams(LEFT), begins(2), cameras(2, LEFT.handle))
    assert code_of(node.await_frame_data) == RsError.STREAMS_CHANGED
    assert node.get_streams() == (LEFT,)
    node.await_frame_data()
    assert node.frame == 2
    assert [stream for stream, _ in node.frame_cameras()] == [LEFT]


def test_r8_streams_that_change_within_a_frame_are_skipped_and_said_at_the_next_await(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(streams(LEFT, RIGHT))
    assert code_of(node.await_frame_data) == RsError.STREAMS_CHANGED
    port.puts(cameras(1, LEFT.handle, RIGHT.handle), begins(1))
    node.await_frame_data()
    port.puts(streams(RIGHT), ready(1))
    node.receive_follower_data()
    assert code_of(lambda: node.get_frame_camera(LEFT.handle)) == RsError.NOTFOUND
    node.send_frame(LEFT.handle, IMAGE, response(1))
    node.send_frame(RIGHT.handle, IMAGE, response(1))
    assert node.counters["images_of_gone_streams"] == 1
    assert code_of(node.await_frame_data) == RsError.STREAMS_CHANGED


def test_a_camera_belongs_to_the_frame_of_its_number_in_whatever_order_cameras_come(
    port: FakePort, node: EngineNode
) -> None:
    with_streams(node, port)
    port.puts(cameras(3, 7), cameras(2, 7), begins(2), ready(2))
    node.await_frame_data()
    assert node.get_frame_camera(7) == camera(2, 7)
    port.puts(begins(3))
    node.await_frame_data()
    assert node.get_frame_camera(7) == camera(3, 7)


def test_a_stream_that_a_frame_does_not_ask_for_is_skipped(port: FakePort, node: EngineNode) -> None:
    with_streams(node, port, RIGHT.handle)
    assert [(stream.handle, one) for stream, one in node.frame_cameras()] == [(8, camera(1, 8))]


def test_a_stream_that_is_never_asked_for_is_counted(port: FakePort, node: EngineNode) -> None:
    with_streams(node, port, LEFT.handle)
    for frame in (1, 2, 3):
        list(node.frame_cameras())
        port.puts(cameras(frame + 1, LEFT.handle), begins(frame + 1))
        node.await_frame_data()
    assert node.missing_cameras == {LEFT.handle: 0, RIGHT.handle: 3}
    assert node.counters["cameras_not_found"] == 3


def test_cameras_of_frames_that_never_begin_are_bounded(port: FakePort, node: EngineNode) -> None:
    with_streams(node, port)
    port.puts(*(cameras(frame, 7) for frame in range(2, 102)), begins(37), ready(37))
    node.await_frame_data()
    assert code_of(lambda: node.get_frame_camera(7)) == RsError.NOTFOUND
    port.puts(begins(38), ready(38))
    node.await_frame_data()
    assert node.get_frame_camera(7) == camera(38, 7)


def test_streams_are_written_into_a_buffer_once_it_is_large_enough(port: FakePort, node: EngineNode) -> None:
    with_streams(node, port)
    with pytest.raises(RenderStreamError) as refused_call:
        node.get_streams_into(None)
    assert refused_call.value.code == RsError.BUFFER_OVERFLOW
    assert node.get_streams_into(bytearray(refused_call.value.needed)) == refused_call.value.needed


def test_an_image_goes_to_the_sink_as_it_was_when_it_was_sent(port: FakePort) -> None:
    shown: list[SentImage] = []
    node = EngineNode(port, sink=shown.append)
    with_streams(node, port, LEFT.handle)
    pixels = bytearray(PIXELS)
    node.send_frame(LEFT.handle, RenderedImage(pixels, 2, 1), response(1))
    pixels[0] = 255
    assert shown == [SentImage(1, LEFT, IMAGE, response(1))]


def test_images_that_are_not_of_the_frame_or_not_whole_are_refused(port: FakePort, node: EngineNode) -> None:
    with_streams(node, port, LEFT.handle)
    other = CameraResponseData(RATE.seconds(2))
    unknown: Any = 99
    nothing: Any = None
    for image, answer, sentence in (
        (IMAGE, other, "frame 1 has"),
        (RenderedImage(bytes(7), 2, 1), response(1), "2 x 1 in RGBA8 are 8 bytes, not 7"),
        (RenderedImage(b"", 2, 1, RsPixelFormat.INVALID), response(1), "INVALID"),
        (RenderedImage("text", 2, 1), response(1), "bytes-like"),
        (RenderedImage(PIXELS, 2, 1, unknown), response(1), "99 is no RsPixelFormat"),
        (RenderedImage(PIXELS, -2, -1), response(1), "-2 x -1"),
        (nothing, response(1), "NoneType is no RenderedImage"),
        (IMAGE, nothing, "NoneType is no CameraResponseData"),
    ):
        refused(node, lambda node, i=image, a=answer: node.send_frame(7, i, a), sentence)  # type: ignore[misc]
    node.send_frame(7, IMAGE, response(1))
    refused(node, lambda node: node.send_frame(7, IMAGE, response(1)), "send one a frame")
    assert code_of(lambda: node.send_frame(99, IMAGE, response(1))) == RsError.INVALIDHANDLE


@pytest.mark.parametrize("failure", ["not received", "not asked for", "not decoded", "of another version"])
def test_a_follower_renders_nothing_for_a_frame_whose_data_it_lacks_and_repeats_its_last_image(
    port: FakePort, failure: str
) -> None:
    shown: list[SentImage] = []
    node = EngineNode(port, sink=shown.append)
    with_streams(node, port)
    node.send_follower_data(b"one")
    node.send_frame(LEFT.handle, IMAGE, response(1))
    port.puts(begins(2))
    node.await_frame_data()
    match failure:
        case "not received":
            assert code_of(node.receive_follower_data) == RsError.TIMEOUT
        case "not decoded":
            port.puts(ready(2))
            node.receive_follower_data()
            node.refuse_frame()
        case "of another version":
            port.puts(ready(2, version=1))
            assert code_of(node.receive_follower_data) == RsError.INCOMPATIBLE_VERSION
        case _:
            pass
    refused(node, lambda node: node.send_frame(7, IMAGE, response(2)), "has no data of frame 2; render nothing")
    if failure != "not asked for":
        assert shown[-1] == SentImage(2, LEFT, IMAGE, response(1), repeated=True)
    port.puts(begins(3))
    node.await_frame_data()
    assert node.counters[f"frames_{failure.replace(' ', '_')}"] == 1


def test_the_images_of_a_stream_that_has_gone_are_not_repeated(port: FakePort) -> None:
    shown: list[SentImage] = []
    node = EngineNode(port, sink=shown.append)
    with_streams(node, port)
    node.send_frame(LEFT.handle, IMAGE, response(1))
    node.send_frame(RIGHT.handle, IMAGE, response(1, RIGHT.handle))
    port.puts(streams(RIGHT))
    assert code_of(node.await_frame_data) == RsError.STREAMS_CHANGED
    port.puts(begins(2))
    node.await_frame_data()
    assert code_of(node.receive_follower_data) == RsError.TIMEOUT
    assert [sent.stream for sent in shown if sent.repeated] == [RIGHT]
