"""A node with more to send than there is time for: large states, answers without end, trees."""

import pytest

from batonpass.simserver.sync.followers.datagrams import (
    ShowDatagramKind,
    pack_datagram,
    read_datagram_untrusted,
)
from batonpass.simserver.sync.followers.frame_clock import FrameRate
from batonpass.simserver.sync.followers.ports import (
    SubmitState,
)
from tests.simserver.sync.followers.simulated_show import MS, SimulatedShow, Weather, settings_of
from tests.simserver.sync.followers.test_node import Pair


def test_a_state_without_bytes_arrives() -> None:
    """R11."""
    pair = Pair()
    pair.submit(1, b"")
    assert [event.payload for event in pair.ready()] == [b""]


def test_a_state_of_64_mib_arrives_and_a_larger_one_is_refused() -> None:
    """R11. Pieces are large here, so that the test is quick."""
    pair = Pair(piece_bytes=60_000, pace_bytes_per_s=0)
    state = bytes(64 * 1024 * 1024)
    pair.submit(1, state)
    pair.sent.clear()
    for _ in range(80):
        pair.now_ns += MS // 10
        pair.a.tick(pair.now_ns)
        pair.settle()
        pair.sent.clear()
    assert len(pair.ready()) == 1
    assert pair.ready()[0].payload == state
    pair.pass_ms(10)
    pair.submit(2, state + b"!")
    assert pair.a.counters["submit_refused"] == 1


def test_a_large_state_of_which_most_was_lost_is_repaired_long_before_a_slow_show_begins_the_next_frame() -> None:
    pair = Pair(rate=FrameRate(2, 1), piece_bytes=60_000, pace_bytes_per_s=0)
    pair.pass_ms(501)
    state = bytes(8 * 1024 * 1024)
    pair.a.submit(SubmitState(1, 1, state, 1), pair.now_ns)
    (_, head), *lost = pair.a.take_outgoing()
    for _ in range(60):
        pair.now_ns += MS
        pair.a.tick(pair.now_ns)
        lost += pair.a.take_outgoing()
    assert len(lost) == 139
    pair.b.receive("a", head, pair.now_ns)
    pair.pass_ms(200)
    assert [event.payload == state for event in pair.ready()] == [True]


@pytest.mark.parametrize("pace", [60_000_000, 10_000_000])
def test_states_that_take_longer_than_a_period_arrive_whole_and_some_are_not_sent(pace: int) -> None:
    """3 MB take 3 periods, or 18, which is longer than a follower is patient with a frame of which nothing comes."""
    pair = Pair(pace_bytes_per_s=pace, piece_bytes=60_000)
    state, sent = bytes(3_000_000), 0
    for _ in range(1_500):
        pair.pass_ms(1)
        if (begun := pair.a.begun) > sent:
            sent = begun
            pair.submit(begun, begun.to_bytes(8, "big") + state)
    got = [ready.frame for ready in pair.ready()]
    assert len(got) >= 1.5 * pace / 3_000_000 * 0.7
    assert all(int.from_bytes(ready.payload[:8], "big") == ready.frame for ready in pair.ready())
    missing = set(range(got[0], got[-1])) - set(got)
    assert missing == {
        frame
        for drop in pair.b.drops()
        for frame in range(drop.first, drop.last + 1)
        if drop.reason == "never_sent" and got[0] < frame < got[-1]
    }
    assert pair.a.counters["frame_over_period"] > pair.a.counters["sending_skipped"] > 0


def test_answers_to_one_node_are_bounded() -> None:
    """A node that asks without end harms only itself."""
    pair = Pair()
    pair.submit(1, bytes(300_000))
    pair.pass_ms(3)
    ask = pack_datagram(ShowDatagramKind.MISSING, 1, 1)
    for _ in range(50):
        pair.a.receive("b", ask, pair.now_ns)
    assert sum(len(datagram) for _, datagram in pair.a.take_outgoing()) < 700_000
    assert pair.a.counters["answers_limited"]


def test_a_fan_out_tree_passes_datagrams_on_unchanged() -> None:
    """All nodes get all frames, and the controller sends to few."""
    names = [f"n{number:02}" for number in range(8)]
    show = SimulatedShow(names, settings_of(fan_out=2), 5, Weather(loss=0.01))
    show.run_for(1.5)
    assert not show.faults
    for name in names[1:]:
        assert len(show.nodes[name].applied) > 80
    machine = show.nodes["n00"].machine
    to_all: list[tuple[str, ...]] = []
    while not to_all:
        show.now_ns += MS
        machine.tick(show.now_ns)
        for receivers, datagram in machine.take_outgoing():
            read = read_datagram_untrusted(datagram)
            if read is not None and read.to_all:
                to_all.append(receivers)
    assert max(map(len, to_all)) == 2
