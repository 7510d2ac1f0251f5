"""The calls of an engine: what they return, what they refuse, and what each frame may show."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from batonpass.simserver.sync.followers.begun_frames import MAX_BEGUN
from batonpass.simserver.sync.followers.engine_node import MAX_INTERACTIONS, MAX_READY, EngineNode
from batonpass.simserver.sync.followers.images import RenderedImage, SentImage
from batonpass.simserver.sync.followers.ports import (
    EngineDropped,
    EngineLeft,
    InteractionReceived,
    QuitTold,
    SubmitHash,
    SubmitInteraction,
    SubmitState,
)
from batonpass.simserver.sync.followers.structs import (
    CameraResponseData,
    FrameDataFlag,
    RenderStreamError,
    RsError,
    RsPixelFormat,
    state_digest,
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
    ready,
    response,
    streams,
)

IMAGE = RenderedImage(PIXELS, 2, 1)
RESET = FrameDataFlag.RESET


@pytest.fixture
def port() -> FakePort:
    return FakePort()


@pytest.fixture
def node(port: FakePort) -> EngineNode:
    return EngineNode(port, max_state_bytes=100)


def code_of(call: Callable[[], Any]) -> RsError:
    with pytest.raises(RenderStreamError) as refused:
        call()
    return refused.value.code


# The frame


def test_await_returns_the_times_of_the_frame_and_the_delta_of_this_engine(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(10), ready(10))
    first = node.await_frame_data()
    assert (first.t_tracked, first.local_time_delta) == (10 / 60, 1 / 60)
    port.puts(begins(12))
    assert node.await_frame_data().local_time_delta == 2 / 60
    assert node.frame == 12


def test_await_without_a_frame_says_timeout_after_its_time_and_names_the_last_frame(
    port: FakePort, node: EngineNode
) -> None:
    assert code_of(lambda: node.await_frame_data(250)) == RsError.TIMEOUT
    assert port.time_ns == 250_000_000
    port.puts(begins(17))
    node.await_frame_data()
    with pytest.raises(RenderStreamError, match=r"TIMEOUT: no frame has begun for 500 ms after frame 17"):
        node.await_frame_data(500)


def test_the_role_may_change_from_frame_to_frame(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1, controller=True))
    node.await_frame_data()
    assert node.is_controller()
    port.puts(begins(2))
    node.await_frame_data()
    assert not node.is_controller()


def test_a_late_engine_is_given_the_last_frames_that_have_their_data_and_the_others_are_reported(
    port: FakePort, node: EngineNode
) -> None:
    for frame in range(1, 3 + MAX_READY):
        port.puts(begins(frame), ready(frame, b"%d" % frame))
    for frame in (3, 4):
        node.await_frame_data()
        assert (node.frame, node.receive_follower_data()) == (frame, b"%d" % frame)
    assert port.acts == [EngineDropped(1, 1), EngineDropped(2, 2)]
    assert node.counters["frames_dropped"] == 2


def test_a_late_engine_is_given_the_next_frame_while_none_has_its_data(port: FakePort, node: EngineNode) -> None:
    """Data may take longer than a frame: an engine that always waited for the newest ones would show few."""
    port.puts(begins(1), begins(2), begins(3))
    node.await_frame_data()
    assert node.frame == 1
    port.puts(ready(1, b"one"), ready(2, b"two"))
    assert node.receive_follower_data() == b"one"
    node.await_frame_data()
    assert (node.frame, node.receive_follower_data()) == (2, b"two")
    assert node.counters["frames_dropped"] == 0


def test_a_late_controller_is_given_the_newest_frame(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1, controller=True), begins(2, controller=True))
    node.await_frame_data()
    assert (node.frame, port.acts) == (2, [EngineDropped(1, 1)])


def test_an_engine_that_takes_no_frame_for_long_is_given_one_of_the_last(port: FakePort, node: EngineNode) -> None:
    port.puts(*(begins(frame) for frame in range(1, 3 * MAX_BEGUN)))
    node.await_frame_data()
    assert node.frame == 2 * MAX_BEGUN


def test_a_frame_number_that_does_not_rise_is_ignored_and_counted(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(5))
    node.await_frame_data()
    port.puts(begins(5), begins(4))
    assert code_of(lambda: node.await_frame_data(1)) == RsError.TIMEOUT
    assert node.counters["frames_out_of_order"] == 2


def test_r16_a_reset_clears_all_that_was_before(port: FakePort) -> None:
    shown: list[SentImage] = []
    node = EngineNode(port, sink=shown.append)
    port.puts(streams(LEFT))
    assert code_of(node.await_frame_data) == RsError.STREAMS_CHANGED
    port.puts(begins(1), ready(1))
    node.await_frame_data()
    node.receive_follower_data()
    node.send_frame(LEFT.handle, IMAGE, response(1))
    port.puts(InteractionReceived("a", b"old"), begins(50, flags=RESET))
    assert node.await_frame_data().local_time_delta == 1 / 60
    assert node.last_complete is None
    assert code_of(lambda: node.receive_follower_data(1)) == RsError.TIMEOUT
    assert len(shown) == 1
    port.puts(begins(51, controller=True))
    node.await_frame_data()
    assert node.receive_interaction_data() == ()


def test_r16_the_reset_of_a_frame_that_was_dropped_passes_to_the_next(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1), begins(2, flags=RESET), begins(3), ready(3))
    data = node.await_frame_data()
    assert (node.frame, data.flags) == (3, RESET)


def test_r9_quit_is_said_by_each_await_and_leaving_is_told_once(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1), QuitTold())
    assert [code_of(node.await_frame_data) for _ in range(2)] == [RsError.QUIT] * 2
    node.shutdown()
    node.shutdown()
    assert port.acts == [EngineLeft()]
    assert code_of(node.await_frame_data) == RsError.NOT_INITIALISED


def test_r9_a_follower_that_waits_for_data_hears_of_quit_at_once(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1))
    node.await_frame_data()
    port.puts(QuitTold())
    assert code_of(node.receive_follower_data) == RsError.QUIT
    assert port.time_ns == 0


# Data of a frame


def test_a_controller_sends_the_state_of_its_frame_and_a_copy_of_it(port: FakePort) -> None:
    node = EngineNode(port, payload_version=3)
    port.puts(begins(9, controller=True, epoch=4))
    node.await_frame_data()
    state = bytearray(b"abc")
    node.send_follower_data(state, inputs=memoryview(b"i"))
    state[:] = b"xyz"
    assert port.acts == [SubmitState(9, 4, b"abc", 3, b"i")]


@pytest.mark.parametrize("payload", [b"", b"x", bytes(100)])
def test_a_follower_receives_the_data_of_its_frame_whatever_their_size(
    port: FakePort, node: EngineNode, payload: bytes
) -> None:
    port.puts(begins(9), ready(9, payload))
    node.await_frame_data()
    assert node.receive_follower_data() == node.last_complete == payload


def test_r3_a_follower_without_data_gets_a_timeout_and_never_those_of_another_frame(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(begins(1), ready(1, b"one"))
    node.await_frame_data(500)
    node.receive_follower_data()
    port.puts(begins(2), ready(1, b"late"), ready(3, b"early"))
    node.await_frame_data(500)
    with pytest.raises(RenderStreamError, match="no data for frame 2: those of 3 are here"):
        node.receive_follower_data()
    assert port.time_ns == 0, "frames come in order: nothing is waited for"
    port.puts(begins(3))
    node.await_frame_data()
    assert node.receive_follower_data() == b"early"


def test_r4_the_timeout_of_a_follower_names_the_frame_that_the_controller_did_not_send(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(begins(17))
    node.await_frame_data()
    with pytest.raises(RenderStreamError, match="the controller has not sent data for frame 17 within 40 ms"):
        node.receive_follower_data(40)
    assert node.counters["frames_not_received"] == 1


def test_r4_a_controller_that_did_not_send_is_counted_at_its_next_await(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1, controller=True))
    node.await_frame_data()
    port.puts(begins(2, controller=True))
    node.await_frame_data()
    assert node.counters["frames_not_sent"] == 1


def test_data_that_complete_out_of_order_reach_their_own_frames(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1))
    node.await_frame_data()
    port.puts(begins(2), ready(2, b"two"), ready(1, b"one"))
    assert node.receive_follower_data() == b"one"
    port.puts(ready(2, b"two"))
    node.await_frame_data()
    assert node.receive_follower_data() == b"two"


def test_late_data_of_a_frame_do_not_displace_those_of_the_next(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1))
    node.await_frame_data()
    assert code_of(lambda: node.receive_follower_data(1)) == RsError.TIMEOUT
    port.puts(begins(2), ready(2, b"two"), ready(1, b"one"))
    node.await_frame_data()
    assert node.receive_follower_data() == b"two"


def test_r10_a_returned_buffer_stays_as_it_is_and_cannot_be_written(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1), ready(1, b"one"))
    node.await_frame_data()
    received: Any = node.receive_follower_data()
    with pytest.raises(TypeError):
        received[0] = 0
    port.puts(begins(2), ready(2, b"two"))
    node.await_frame_data()
    node.receive_follower_data()
    assert received == b"one"


def test_data_of_another_version_are_refused_by_name_and_counted(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(6), ready(6, version=2))
    node.await_frame_data()
    with pytest.raises(RenderStreamError, match="INCOMPATIBLE_VERSION: the data of frame 6 have payload version 2"):
        node.receive_follower_data()
    assert node.counters["frames_of_another_version"] == 1
    assert node.last_complete is None


def test_inputs_are_told_from_states_and_the_hash_of_what_came_of_them_is_reported_once(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(begins(6), ready(6, b"inputs", inputs=True))
    node.await_frame_data()
    assert (node.receive_follower_data(), node.received_inputs(), node.last_complete) == (b"inputs", True, None)
    node.report_hash(b"computed")
    assert port.acts == [SubmitHash(6, 1, state_digest(b"computed"))]
    assert code_of(lambda: node.report_hash(b"computed")) == RsError.INVALID_PARAMETERS


def test_a_new_controller_continues_from_the_newest_state_and_not_from_its_own(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(begins(17), ready(17, b"seventeen"))
    node.await_frame_data()
    node.receive_follower_data()
    port.puts(begins(19), ready(19, b"nineteen"), begins(24, controller=True, epoch=2))
    node.await_frame_data()
    with pytest.raises(RenderStreamError, match="lacks the state of frame 19; continue from continued_state"):
        node.send_follower_data(b"own")
    assert node.continued_state() == b"nineteen"
    assert node.continued_state() is None
    node.send_follower_data(b"twenty-four")
    assert port.acts == [EngineDropped(19, 19), SubmitState(24, 2, b"twenty-four", 0)]


def test_a_new_controller_that_has_the_newest_state_continues_from_it(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(17), ready(17))
    node.await_frame_data()
    node.receive_follower_data()
    port.puts(ready(17), begins(18, controller=True))
    node.await_frame_data()
    assert node.continued_state() is None
    node.send_follower_data(b"eighteen")


def test_a_new_controller_that_computed_its_state_from_inputs_is_given_the_full_state(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(begins(17), ready(17, inputs=True))
    node.await_frame_data()
    node.receive_follower_data()
    port.puts(ready(17, b"seventeen"), begins(18, controller=True))
    node.await_frame_data()
    assert node.continued_state() == b"seventeen"


def test_a_new_controller_continues_from_a_state_that_came_too_late_for_its_frame(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(begins(17))
    node.await_frame_data()
    assert code_of(lambda: node.receive_follower_data(1)) == RsError.TIMEOUT
    port.puts(ready(17, b"seventeen"), begins(18))
    node.await_frame_data()
    port.puts(begins(20, controller=True))
    node.await_frame_data()
    assert node.continued_state() == b"seventeen"


def test_a_new_controller_does_not_fall_back_behind_inputs_that_it_has_applied(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(begins(16))
    node.await_frame_data()
    assert code_of(lambda: node.receive_follower_data(1)) == RsError.TIMEOUT
    port.puts(ready(16, b"late"), begins(17), ready(17, inputs=True))
    node.await_frame_data()
    node.receive_follower_data()
    port.puts(begins(18, controller=True))
    node.await_frame_data()
    assert node.continued_state() is None


def test_r16_a_new_controller_does_not_continue_from_before_a_reset(port: FakePort, node: EngineNode) -> None:
    port.puts(ready(17), begins(18, controller=True, flags=RESET))
    node.await_frame_data()
    assert node.continued_state() is None


def test_a_full_state_displaces_the_inputs_of_the_same_frame(port: FakePort, node: EngineNode) -> None:
    port.puts(ready(17, inputs=True), ready(17, b"seventeen"), begins(18, controller=True))
    node.await_frame_data()
    assert node.continued_state() == b"seventeen"


def test_a_frame_that_was_refused_is_not_what_a_new_controller_has(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(17), ready(17, b"garbled"))
    node.await_frame_data()
    node.receive_follower_data()
    node.refuse_frame()
    port.puts(ready(17, b"seventeen"), begins(18, controller=True))
    node.await_frame_data()
    assert node.continued_state() == b"seventeen"


def test_an_engine_that_cannot_read_the_newest_state_does_not_become_the_controller(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(ready(19, version=9), begins(20, controller=True))
    node.await_frame_data()
    assert code_of(node.continued_state) == RsError.INCOMPATIBLE_VERSION
    port.puts(begins(21, controller=True))
    node.await_frame_data()
    assert code_of(lambda: node.send_follower_data(b"own")) == RsError.INVALID_PARAMETERS
    assert not [act for act in port.acts if isinstance(act, SubmitState)]


# Misuse


def awaited(node: EngineNode, port: FakePort, *, controller: bool) -> None:
    port.puts(begins(1, controller=controller), *([] if controller else [ready(1)]))
    node.await_frame_data()


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
SYNC_CALLS = FOLLOWER_CALLS | CONTROLLER_CALLS
ALL_CALLS = SYNC_CALLS | FRAME_CALLS


def refused(node: EngineNode, call: Callable[[EngineNode], Any], sentence: str) -> None:
    """A refused call says so and what to do, is counted, and leaves the node as it was."""
    before = node.counters["calls_refused"]
    with pytest.raises(RenderStreamError, match=sentence) as error:
        call(node)
    assert error.value.code == RsError.INVALID_PARAMETERS
    assert node.counters["calls_refused"] == before + 1


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


def test_r5_a_second_send_in_a_frame_is_refused_and_the_first_counts(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=True)
    node.send_follower_data(b"first")
    refused(node, lambda node: node.send_follower_data(b"second"), "called for frame 1 before; call it once a frame")
    assert port.acts == [SubmitState(1, 1, b"first", 0)]


def test_r5_a_second_receive_in_a_frame_is_refused(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=False)
    node.receive_follower_data()
    refused(node, lambda node: node.receive_follower_data(), "call it once a frame")


@pytest.mark.parametrize("value", ["text", 5, None, [1]])
def test_r5_what_is_not_bytes_like_is_refused_and_the_frame_may_still_be_sent(
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


# Interaction data


def test_interaction_data_reach_the_controller_in_order_and_once(port: FakePort, node: EngineNode) -> None:
    told = [InteractionReceived("a", b"1"), InteractionReceived("b", b"1"), InteractionReceived("a", b"2")]
    port.puts(begins(1, controller=True), *told[:2])
    node.await_frame_data()
    port.puts(told[2])
    assert node.receive_interaction_data() == tuple(told)
    assert node.receive_interaction_data() == ()


def test_a_follower_sends_interaction_data_as_often_as_it_wants(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=False)
    node.send_interaction_data(b"1")
    node.send_interaction_data(bytearray(b"2"))
    assert port.acts == [SubmitInteraction(b"1"), SubmitInteraction(b"2")]


def test_interaction_data_that_no_engine_receives_are_bounded_and_counted(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1, controller=True), *(InteractionReceived("a", b"%d" % n) for n in range(MAX_INTERACTIONS + 3)))
    node.await_frame_data()
    received = node.receive_interaction_data()
    assert (len(received), received[0].payload) == (MAX_INTERACTIONS, b"3")
    assert node.counters["interactions_dropped"] == 3


# Streams, cameras, images


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
    for image, answer, sentence in (
        (IMAGE, other, "frame 1 has"),
        (RenderedImage(bytes(7), 2, 1), response(1), "2 x 1 in RGBA8 are 8 bytes, not 7"),
        (RenderedImage(b"", 2, 1, RsPixelFormat.INVALID), response(1), "INVALID"),
        (RenderedImage("text", 2, 1), response(1), "bytes-like"),
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


# The loop


def test_the_loop_gives_frames_with_their_data_and_passes_over_the_rest(port: FakePort, node: EngineNode) -> None:
    port.puts(streams(LEFT), begins(1), ready(1, b"one"), None, None, None)
    port.puts(begins(2), None, None, None)
    port.puts(begins(3), ready(3, version=5), None, None)
    port.puts(begins(4), ready(4, b"four"), streams(RIGHT), None, None, None)
    frames = node.frames(timeout_ms=10)
    seen = [(node.frame, frame.is_controller, frame.received) for frame in islice(frames, 2)]
    port.puts(begins(5, controller=True, epoch=2), None)
    seen += [(node.frame, frame.is_controller, frame.received) for frame in islice(frames, 1)]
    port.puts(QuitTold())
    assert list(frames) == []
    assert seen == [(1, False, b"one"), (4, False, b"four"), (5, True, None)]
    assert (node.counters["frames_not_received"], node.counters["frames_of_another_version"]) == (1, 1)
    assert port.acts == [EngineLeft()]


def test_the_loop_raises_what_is_a_fault_of_the_engine(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=False)
    port.calling_thread = 2
    assert code_of(lambda: next(node.frames())) == RsError.INVALID_PARAMETERS
