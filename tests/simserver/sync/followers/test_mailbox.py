"""What passes between an engine's thread and its node stays within bounds, and what must not be lost is not."""

import threading  # noqa: TID251 — an engine runs in a thread of its own
from itertools import count

import pytest

from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.mailbox import MAX_ACTS, MAX_WAITING, EngineMailbox
from batonpass.simserver.sync.followers.ports import (
    EngineDropped,
    EngineEvent,
    FrameBegins,
    FrameReady,
    InteractionReceived,
    QuitTold,
    SubmitInteraction,
    SubmitState,
)
from batonpass.simserver.sync.followers.structs import FrameDataFlag, RenderStreamError, RsError
from tests.simserver.sync.followers.engine_port import LEFT, RIGHT, begins, cameras, ready, streams


@pytest.fixture
def mailbox() -> EngineMailbox:
    return EngineMailbox(lambda: 1, count().__next__, lambda: None)


def waiting(mailbox: EngineMailbox) -> list[EngineEvent]:
    events = []
    while event := mailbox.next_event(0):
        events.append(event)
    return events


def test_events_and_acts_keep_their_order(mailbox: EngineMailbox) -> None:
    told: list[EngineEvent] = [streams(LEFT), cameras(1, 7), begins(1), ready(1), QuitTold()]
    for event in told:
        mailbox.put(event)
    assert waiting(mailbox) == told
    acts = [SubmitInteraction(b"%d" % number) for number in range(3)]
    for act in acts:
        mailbox.submit(act)
    assert (mailbox.take_acts(), mailbox.take_acts()) == (acts, [])


def test_of_what_an_engine_does_not_take_the_newest_is_kept_and_the_rest_counted(mailbox: EngineMailbox) -> None:
    for frame in range(1_000):
        told: list[EngineEvent] = [cameras(frame, 7), begins(frame), ready(frame), InteractionReceived("a", b"")]
        for event in told:
            mailbox.put(event)
    told = [streams(LEFT), streams(RIGHT), QuitTold(), QuitTold()]
    for event in told:
        mailbox.put(event)
    left = waiting(mailbox)
    assert len(left) <= sum(MAX_WAITING.values())
    assert [event.frame for event in left if isinstance(event, FrameReady)] == [998, 999]
    assert [event.frame for event in left if isinstance(event, FrameBegins)] == list(range(936, 1_000))
    assert left[-2:] == [streams(RIGHT), QuitTold()]
    assert mailbox.dropped["FrameReady"] == 998
    # Of 936 to 997 the engine can show none either: their data went.
    assert mailbox.take_acts() == [EngineDropped(0, 997)]


def test_r16_the_reset_of_a_frame_that_goes_passes_to_the_next_frame(mailbox: EngineMailbox) -> None:
    mailbox.put(begins(0, flags=FrameDataFlag.RESET))
    for frame in range(1, 200):
        mailbox.put(begins(frame))
    first, *others = waiting(mailbox)
    assert isinstance(first, FrameBegins)
    assert first.data.flags == FrameDataFlag.RESET
    assert not any(other.data.flags for other in others if isinstance(other, FrameBegins))


def test_frames_that_went_with_a_gap_between_them_are_reported_apart(mailbox: EngineMailbox) -> None:
    for frame in [*range(3), *range(10, 12), *range(100, 164)]:
        mailbox.put(begins(frame))
    assert mailbox.take_acts() == [EngineDropped(0, 2), EngineDropped(10, 11)]


def test_acts_that_a_node_does_not_take_are_refused_in_the_end(mailbox: EngineMailbox) -> None:
    for _ in range(MAX_ACTS):
        mailbox.submit(SubmitInteraction(b""))
    with pytest.raises(RenderStreamError, match="the node has not taken the last 1024 acts") as refused:
        mailbox.submit(SubmitInteraction(b""))
    assert refused.value.code == RsError.BUFFER_OVERFLOW
    mailbox.take_acts()
    mailbox.submit(SubmitInteraction(b""))


def test_a_wait_without_an_event_ends(mailbox: EngineMailbox) -> None:
    assert mailbox.next_event(0) is None
    assert mailbox.next_event(0.001) is None


def test_an_engine_in_a_thread_of_its_own_waits_for_its_node_and_wakes_it() -> None:
    woken = threading.Event()
    mailbox = EngineMailbox(threading.get_ident, count(step=1_000).__next__, woken.set)
    node = EngineNode(mailbox)

    def engine() -> None:
        for frame in node.frames():
            assert frame.is_controller
            node.send_follower_data(b"%d" % node.frame)

    thread = threading.Thread(target=engine)
    thread.start()
    for frame in range(3):
        mailbox.put(begins(frame, controller=True))
        assert woken.wait(60)
        woken.clear()
        assert mailbox.take_acts() == [SubmitState(frame, 1, b"%d" % frame, 0)]
    mailbox.put(QuitTold())
    thread.join(60)
    assert not thread.is_alive()


def test_an_engine_is_busy_from_its_start_on_but_while_it_waits_for_an_event(mailbox: EngineMailbox) -> None:
    seen = [mailbox.busy_since_ns]
    mailbox.engine_starts()
    seen.append(mailbox.busy_since_ns)
    mailbox.next_event(0)
    seen.append(mailbox.busy_since_ns)
    mailbox.submit(SubmitInteraction(b""))
    seen.append(mailbox.busy_since_ns)
    assert seen == [None, *sorted({each for each in seen if each is not None})]
