"""The calls of an engine for frames and their data: what they return, and what each frame may show."""

from itertools import islice
from typing import Any

import pytest

from batonpass.simserver.sync.followers.begun_frames import MAX_BEGUN
from batonpass.simserver.sync.followers.drops import DropReason
from batonpass.simserver.sync.followers.engine_node import MAX_INTERACTIONS, EngineNode
from batonpass.simserver.sync.followers.images import RenderedImage, SentImage
from batonpass.simserver.sync.followers.ports import (
    EngineDropped,
    EngineLeft,
    FrameReady,
    FramesGone,
    InteractionReceived,
    QuitTold,
    SubmitHash,
    SubmitInteraction,
    SubmitState,
)
from batonpass.simserver.sync.followers.received_data import MAX_READY
from batonpass.simserver.sync.followers.structs import (
    FrameDataFlag,
    RenderStreamError,
    RsError,
    state_digest,
)
from tests.simserver.sync.followers.engine_port import (
    LEFT,
    PIXELS,
    RIGHT,
    FakePort,
    awaited,
    begins,
    code_of,
    ready,
    response,
    streams,
)

IMAGE = RenderedImage(PIXELS, 2, 1)
RESET = FrameDataFlag.RESET


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


def test_frames_whose_data_have_gone_are_passed_over(port: FakePort, node: EngineNode) -> None:
    port.puts(*(begins(frame) for frame in range(1, 5)), FramesGone(2))
    node.await_frame_data()
    assert node.frame == 3
    port.puts(FramesGone(3))
    began_ns = port.now_ns()
    assert code_of(lambda: node.receive_follower_data(1_000)) == RsError.TIMEOUT
    assert port.now_ns() == began_ns
    node.await_frame_data()
    assert node.frame == 4


def test_the_newest_frame_is_awaited_though_its_data_have_gone(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1, flags=RESET), begins(2), FramesGone(2))
    assert node.await_frame_data().flags & RESET
    assert node.frame == 2


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


def test_a_follower_that_waits_for_data_of_a_controller_that_is_gone_becomes_the_controller_at_once(
    port: FakePort, node: EngineNode
) -> None:
    port.puts(begins(1))
    node.await_frame_data()
    port.puts(begins(5, controller=True, epoch=2))
    with pytest.raises(RenderStreamError, match="no data for frame 1: its controller is gone"):
        node.receive_follower_data()
    assert port.time_ns == 0
    node.await_frame_data()
    assert node.frame == 5
    node.send_follower_data(b"five")


# Data of a frame


def test_a_controller_sends_the_state_of_its_frame_and_a_copy_of_it(port: FakePort) -> None:
    node = EngineNode(port, payload_version=3)
    port.puts(begins(9, controller=True, epoch=4))
    node.await_frame_data()
    state = bytearray(b"abc")
    node.send_follower_data(state, inputs=memoryview(b"i"))
    state[:] = b"xyz"
    assert port.acts == [SubmitState(9, 4, b"abc", 3, b"i", -1)]


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


def received(port: FakePort, node: EngineNode, *data: FrameReady) -> None:
    """An engine has received these, one frame after the other."""
    for one in data:
        port.puts(begins(one.frame), one)
        node.await_frame_data()
        assert node.receive_follower_data() == one.payload


def test_inputs_are_told_from_states_and_the_hash_of_what_came_of_them_is_reported_once(
    port: FakePort, node: EngineNode
) -> None:
    received(port, node, ready(5, b"five"))
    port.puts(begins(6), ready(6, b"inputs", inputs=True))
    node.await_frame_data()
    assert (node.receive_follower_data(), node.received_inputs(), node.last_complete) == (b"inputs", True, b"five")
    node.report_hash(b"computed")
    assert port.acts == [SubmitHash(6, 1, state_digest(b"computed"))]
    assert code_of(lambda: node.report_hash(b"computed")) == RsError.INVALID_PARAMETERS


def test_a_controller_says_after_whose_state_its_inputs_are_applied(port: FakePort, node: EngineNode) -> None:
    for frame in (9, 12):
        port.puts(begins(frame, controller=True))
        node.await_frame_data()
        node.send_follower_data(b"state", inputs=b"i")
    assert port.acts == [SubmitState(9, 1, b"state", 0, b"i", -1), SubmitState(12, 1, b"state", 0, b"i", 9)]


@pytest.mark.parametrize("missed", ["passed over", "given up", "refused"])
def test_inputs_that_follow_a_state_which_the_engine_lacks_are_not_given_to_it(
    port: FakePort, node: EngineNode, missed: str
) -> None:
    received(port, node, ready(5))
    if missed == "given up":
        port.puts(begins(6))
        node.await_frame_data()
        assert code_of(lambda: node.receive_follower_data(1)) == RsError.TIMEOUT
    elif missed == "refused":
        received(port, node, ready(6, inputs=True))
        node.refuse_frame()
    port.puts(begins(7), ready(7, inputs=True))
    node.await_frame_data()
    with pytest.raises(RenderStreamError, match="TIMEOUT: the inputs of frame 7 follow frame 6, whose state this"):
        node.receive_follower_data()
    refused_before = [EngineDropped(6, 6, DropReason.REFUSED)] if missed == "refused" else []
    assert port.acts == [*refused_before, EngineDropped(7, 7, DropReason.NO_BASE)]
    assert node.counters["frames_without_base"] == 1
    received(port, node, ready(8, b"full"), ready(9, inputs=True))


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
    received(port, node, ready(16), ready(17, inputs=True))
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
    received(port, node, ready(15), ready(16, inputs=True), ready(17, inputs=True))
    port.puts(ready(16, b"late"))
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


def test_the_loop_of_a_controller_that_cannot_read_the_newest_state_raises_and_that_of_a_follower_goes_on(
    port: FakePort, node: EngineNode
) -> None:
    """Else no node would send a frame any more."""
    port.puts(begins(18), ready(18, version=9), None, begins(19), ready(19))
    frames = node.frames()
    assert next(frames).received == b"state"
    port.puts(ready(20, version=9), begins(21, controller=True), None, QuitTold())
    assert code_of(lambda: next(frames)) == RsError.INCOMPATIBLE_VERSION
    assert not [act for act in port.acts if isinstance(act, SubmitState)]


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
    assert port.acts == [EngineDropped(3, 3, DropReason.VERSION), EngineLeft()]


def test_the_loop_raises_what_is_a_fault_of_the_engine(port: FakePort, node: EngineNode) -> None:
    awaited(node, port, controller=False)
    port.calling_thread = 2
    assert code_of(lambda: next(node.frames())) == RsError.INVALID_PARAMETERS


def test_the_node_hears_of_each_frame_that_its_engine_does_not_show_and_why(port: FakePort, node: EngineNode) -> None:
    port.puts(begins(1), None)
    node.await_frame_data()
    assert code_of(lambda: node.receive_follower_data(1)) == RsError.TIMEOUT
    # It comes when nobody waits for it any more.
    port.puts(ready(1), begins(2), ready(2, version=9))
    node.await_frame_data()
    assert code_of(node.receive_follower_data) == RsError.INCOMPATIBLE_VERSION
    received(port, node, ready(3))
    node.refuse_frame()
    # Not asked for, once with data and once before they come.
    port.puts(begins(4), ready(4), None)
    node.await_frame_data()
    port.puts(begins(5), None)
    node.await_frame_data()
    port.puts(ready(5), begins(6), ready(6))
    node.await_frame_data()
    assert node.receive_follower_data() == b"state"
    # Once more, as after a failover: it was shown.
    port.puts(ready(6), begins(7, controller=True), None)
    node.await_frame_data()
    assert port.acts == [
        EngineDropped(1, 1, DropReason.LATE),
        EngineDropped(2, 2, DropReason.VERSION),
        EngineDropped(3, 3, DropReason.REFUSED),
        EngineDropped(4, 4, DropReason.ENGINE),
        EngineDropped(5, 5, DropReason.LATE),
    ]


def test_an_engine_says_which_version_of_a_state_it_writes_and_reads(port: FakePort, node: EngineNode) -> None:
    node.payload_version = 3
    port.puts(begins(1, controller=True), None)
    node.await_frame_data()
    node.send_follower_data(b"three")
    assert port.acts == [SubmitState(1, 1, b"three", 3)]
    port.puts(begins(2), ready(2, version=2))
    node.await_frame_data()
    with pytest.raises(RenderStreamError, match="payload version 2, this engine reads 3"):
        node.receive_follower_data()
    for version in (-1, 2**32, 1.0, "3", True):
        with pytest.raises(RenderStreamError, match="is no version") as refused:
            node.payload_version = version  # type: ignore[assignment]
        assert refused.value.code == RsError.INVALID_PARAMETERS
    assert node.payload_version == 3
