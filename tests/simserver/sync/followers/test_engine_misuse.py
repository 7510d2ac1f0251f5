"""A call that makes no sense is refused with what to do, and harms nobody."""

from collections.abc import Callable
from typing import Any

import pytest

from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.images import RenderedImage
from batonpass.simserver.sync.followers.ports import (
    FenceOpened,
    SubmitState,
)
from batonpass.simserver.sync.followers.structs import (
    FrameDataFlag,
    RsError,
)
from tests.simserver.sync.followers.engine_port import (
    PIXELS,
    FakePort,
    awaited,
    begins,
    code_of,
    refused,
    response,
)

IMAGE = RenderedImage(PIXELS, 2, 1)
RESET = FrameDataFlag.RESET


FOLLOWER_CALLS: dict[str, Callable[[EngineNode], Any]] = {
    "receive_follower_data": lambda node: node.receive_follower_data(),
    "report_hash": lambda node: node.report_hash(b""),
    "refuse_frame": lambda node: node.refuse_frame(),
    "send_interaction_data": lambda node: node.send_interaction_data(b""),
}
CONTROLLER_CALLS: dict[str, Callable[[EngineNode], Any]] = {
    "send_follower_data": lambda node: node.send_follower_data(b""),
    "continued_state": lambda node: node.continued_state(),
    "receive_interaction_data": lambda node: node.receive_interaction_data(),
}
FRAME_CALLS: dict[str, Callable[[EngineNode], Any]] = {
    "is_controller": lambda node: node.is_controller(),
    "get_frame_camera": lambda node: node.get_frame_camera(7),
    "send_frame": lambda node: node.send_frame(7, IMAGE, response(1)),
}
ENDLESS: Any = (float("inf"), float("nan"), 10**30, "1", None)
SYNC_CALLS = FOLLOWER_CALLS | CONTROLLER_CALLS
ALL_CALLS = SYNC_CALLS | FRAME_CALLS


@pytest.mark.parametrize("call", ALL_CALLS)
def test_r5_a_call_before_the_first_await_is_refused(port: FakePort, node: EngineNode, call: str) -> None:
    refused(node, ALL_CALLS[call], f"{call}: no frame is open; call it after await_frame_data")
    assert port.acts == []


@pytest.mark.parametrize("call", ALL_CALLS)
def test_r5_a_call_by_another_thread_than_await_is_refused(port: FakePort, node: EngineNode, call: str) -> None:
    awaited(node, port, controller=call in CONTROLLER_CALLS)
    port.calling_thread = 2
    refused(node, ALL_CALLS[call], f"{call}: it was called by another thread than await_frame_data")
    assert port.acts == []


def test_r5_await_by_another_thread_is_refused_and_leaves_the_frame_open(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=False)
    port.calling_thread = 2
    refused(node, lambda node: node.await_frame_data(), "another thread")
    port.calling_thread = 1
    assert node.receive_follower_data() == b"state"


@pytest.mark.parametrize("call", SYNC_CALLS)
def test_r5_a_call_in_a_show_without_sync_is_refused(port: FakePort, call: str) -> None:
    node = EngineNode(port, engine_sync=False)
    assert not node.engine_sync_enabled()
    awaited(node, port, controller=call in CONTROLLER_CALLS)
    refused(node, SYNC_CALLS[call], f"{call}: engine sync is disabled in this show; ask engine_sync_enabled")


@pytest.mark.parametrize("call", FOLLOWER_CALLS)
def test_r5_a_controller_is_refused_the_calls_of_a_follower(port: FakePort, node: EngineNode, call: str) -> None:
    awaited(node, port, controller=True)
    refused(node, FOLLOWER_CALLS[call], f"{call}: this node is the controller in frame 1, the call is for a follower")
    node.send_follower_data(b"still works")


@pytest.mark.parametrize("call", CONTROLLER_CALLS)
def test_r5_a_follower_is_refused_the_calls_of_a_controller(port: FakePort, node: EngineNode, call: str) -> None:
    awaited(node, port, controller=False)
    refused(node, CONTROLLER_CALLS[call], f"{call}: this node is a follower in frame 1, the call is for the controller")
    assert node.receive_follower_data() == b"state"


def test_a_fence_is_opened_by_any_thread_and_at_any_time_until_the_engine_has_left(
    port: FakePort, node: EngineNode
) -> None:
    awaited(node, port, controller=False)
    port.calling_thread = 2
    node.open_fence(1)
    assert port.acts == [FenceOpened(1)]
    refused(EngineNode(port, engine_sync=False), lambda node: node.open_fence(1), "open_fence: engine sync is disabled")
    node.shutdown()
    assert code_of(lambda: node.open_fence(2)) == RsError.NOT_INITIALISED


@pytest.mark.parametrize("frame", [-1, True, 1.0, "1", None])
def test_a_fence_is_opened_up_to_the_number_of_a_frame_only(port: FakePort, node: EngineNode, frame: Any) -> None:
    refused(node, lambda node: node.open_fence(frame), "is no number of a frame")
    assert port.acts == []


def test_r5_a_second_send_in_a_frame_is_refused_and_the_first_counts(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=True)
    node.send_follower_data(b"first")
    refused(node, lambda node: node.send_follower_data(b"second"), "called for frame 1 before; call it once a frame")
    assert port.acts == [SubmitState(1, 1, b"first", 0)]


@pytest.mark.parametrize("timeout_ms", ENDLESS)
def test_a_timeout_that_cannot_be_waited_for_is_refused_and_the_frame_stays_open(
    port: FakePort, node: EngineNode, timeout_ms: Any
) -> None:
    awaited(node, port, controller=False)
    refused(node, lambda node: node.await_frame_data(timeout_ms), "await_frame_data: .* pass at most 86,400,000")
    if timeout_ms is not None:
        refused(node, lambda node: node.receive_follower_data(timeout_ms), "receive_follower_data: .* pass at most")
    assert node.receive_follower_data() == b"state"


def test_whether_inputs_came_is_not_asked_where_sync_is_disabled_and_the_loop_says_that_none_did(
    port: FakePort,
) -> None:
    node = EngineNode(port, engine_sync=False)
    port.puts(begins(1))
    assert not next(node.frames()).inputs
    refused(node, lambda node: node.received_inputs(), "received_inputs: engine sync is disabled in this show")


def test_no_node_takes_states_that_no_show_has(port: FakePort) -> None:
    for limit in (0, 64 * 1024 * 1024 + 1):
        with pytest.raises(ValueError, match="give 1 to 67,108,864"):
            EngineNode(port, max_state_bytes=limit)


def test_r5_a_second_receive_in_a_frame_is_refused(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=False)
    node.receive_follower_data()
    refused(node, lambda node: node.receive_follower_data(), "call it once a frame")


RELEASED = memoryview(b"released")
RELEASED.release()


@pytest.mark.parametrize("value", ["text", 5, None, [1], RELEASED])
def test_r5_a_state_that_is_not_bytes_like_is_refused_and_the_frame_may_still_be_sent(
    port: FakePort, node: EngineNode, value: Any
) -> None:
    awaited(node, port, controller=True)
    refused(node, lambda node: node.send_follower_data(value), f"{type(value).__name__} is not bytes-like")
    node.send_follower_data(b"ok")


def test_r5_what_is_too_large_is_refused_and_the_frame_may_still_be_sent(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=True)
    refused(node, lambda node: node.send_follower_data(bytes(101)), "101 bytes are more than the limit of 100")
    refused(node, lambda node: node.send_follower_data(b"", bytes(101)), "101 bytes are more than the limit of 100")
    node.send_follower_data(bytes(100))


def test_a_call_after_its_frame_is_refused(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=True)
    assert code_of(lambda: node.await_frame_data(1)) == RsError.TIMEOUT
    refused(node, lambda node: node.send_follower_data(b"late"), "no frame is open")
