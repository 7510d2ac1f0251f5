"""A node of a show: what its engine gets, and when."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.followers.datagrams import (
    ShowDatagramKind,
    pack_dropped,
    ranges_of_untrusted,
    read_datagram_untrusted,
)
from batonpass.simserver.sync.followers.drops import DropReason
from batonpass.simserver.sync.followers.follower import MAX_FENCED
from batonpass.simserver.sync.followers.frames import HeadFlag
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.ports import (
    EngineDropped,
    EngineEvent,
    FenceOpened,
    FrameBegins,
    FrameReady,
    FramesGone,
    InteractionReceived,
    StreamsChanged,
    SubmitInteraction,
    SubmitState,
)
from batonpass.simserver.sync.followers.settings import FenceKind, ShowMode, ShowSettings
from batonpass.simserver.sync.followers.structs import FrameDataFlag
from tests.simserver.sync.followers.simulated_show import MS, CheapSigning, SimulatedShow, Weather, settings_of

BAD = Weather(loss=0.1, duplication=0.1, delay_ms=(0.1, 12.0))
SLOW = Weather(delay_ms=(0.1, 30.0))
ROOM = "batonpass.simserver.sync.followers"
PUBLICS = {name: name.encode() for name in ("a", "b")}


class Pair:
    """A controller `a` and a follower `b` on a perfect network, and what their engines were told."""

    def __init__(self, **settings: object) -> None:
        self.settings = ShowSettings(**settings)  # type: ignore[arg-type]
        self.now_ns = 0
        self.machines = {name: NodeMachine(name, self.settings, CheapSigning(name), Random(7), 0) for name in PUBLICS}
        self.told: dict[str, list[EngineEvent]] = {name: [] for name in PUBLICS}
        self.sent: list[tuple[str, bytes]] = []
        self.a, self.b = self.machines.values()
        for machine in self.machines.values():
            machine.members(PUBLICS)
        self.a.granted(1, 1, 0)
        self.a.may_send_below(1_000)
        self.b.follow("a", 1, 0)
        self.settle()

    def settle(self) -> None:
        """Deliver until nothing is under way."""
        busy = True
        while busy:
            busy = False
            for name, machine in self.machines.items():
                self.told[name] += machine.take_events()
                for receivers, datagram in machine.take_outgoing():
                    self.sent.append((name, datagram))
                    busy = True
                    for receiver in receivers:
                        self.machines[receiver].receive(name, datagram, self.now_ns)

    def pass_ms(self, ms: int) -> None:
        """Let time pass."""
        for _ in range(ms):
            self.now_ns += MS
            for machine in self.machines.values():
                machine.tick(self.now_ns)
            self.settle()

    def submit(self, frame: int, payload: bytes, version: int = 1) -> None:
        """The controller's engine has computed a frame."""
        self.a.submit(SubmitState(frame, 1, payload, version), self.now_ns)
        self.settle()

    def ready(self) -> list[FrameReady]:
        """What the follower's engine got."""
        return [event for event in self.told["b"] if isinstance(event, FrameReady)]


@pytest.mark.parametrize("mode", ["state", "delta", "inputs"])
def test_every_frame_reaches_every_follower_as_itself_over_loss_reordering_and_duplication(mode: str) -> None:
    """R2."""
    show = SimulatedShow(list("abcd"), settings_of(mode), 5, BAD, state_bytes=4_000)
    show.run_for(3.0)
    assert not show.faults
    sent = set(show.nodes["a"].applied)
    assert len(sent) > 170
    for name in "bcd":
        dropped = {f for d in show.nodes[name].machine.drops() if d.node == name for f in range(d.first, d.last + 1)}
        applied = show.nodes[name].applied
        missing = {frame for frame in sent - set(applied) if min(applied) < frame < max(sent) - 8}
        assert missing <= dropped
        assert len(dropped) <= 3


def test_a_follower_without_the_head_asks_for_the_first_piece_alone_and_then_for_what_lacks() -> None:
    """Else a frame whose head is lost is sent twice, and so is one that is only late."""
    pair = Pair(piece_bytes=1_000)
    pair.pass_ms(1)
    pair.a.submit(SubmitState(1, 1, bytes(9_500), 1), pair.now_ns)
    head, *pieces = [datagram for _, datagram in pair.a.take_outgoing()]
    for datagram in pieces[:-1]:
        pair.b.receive("a", datagram, pair.now_ns)
    assert len(head) > 1_000
    pair.sent.clear()
    pair.pass_ms(10)
    of_b = [read_datagram_untrusted(datagram) for name, datagram in pair.sent if name == "b"]
    asked = [ranges_of_untrusted(each.body) for each in of_b if each and each.kind is ShowDatagramKind.MISSING]
    assert asked == [[(0, 1)], [(9, 10)]]
    assert [ready.frame for ready in pair.ready()] == [1]
    assert pair.a.counters["pieces_resent"] == 2


def test_a_follower_waits_longer_when_what_it_asked_for_was_only_late() -> None:
    """Else a slow machine is sent everything twice, and gets slower by that (RFC 8985, section 6.2)."""
    show = SimulatedShow(list("ab"), settings_of("state"), 5, SLOW, state_bytes=20_000)
    show.run_for(3.0)
    early = show.nodes["b"].machine.counters["nacks_needless"]
    show.run_for(6.0)
    assert 0 < early <= 10
    assert show.nodes["b"].machine.counters["nacks_needless"] <= early + 20
    assert len(show.nodes["b"].applied) > 480


def test_numbers_that_were_passed_over_take_no_room_from_later_frames() -> None:
    """The controller is late in every frame, and each frame is overtaken by the beginning of the next one."""
    pair = Pair()
    pair.submit(1, b"1")
    begun, overtaken = [1], list[bytes]()
    for _ in range(80):
        pair.now_ns += 50 * MS
        pair.a.tick(pair.now_ns)
        begun = [event.frame for event in pair.a.take_events() if isinstance(event, FrameBegins)]
        beginning = [datagram for _, datagram in pair.a.take_outgoing()]
        for datagram in [*beginning[:1], *overtaken, *beginning[1:]] if overtaken else []:
            pair.b.receive("a", datagram, pair.now_ns)
        pair.a.submit(SubmitState(begun[0], 1, b"%d" % begun[0], 1), pair.now_ns)
        overtaken = [] if overtaken else beginning + [datagram for _, datagram in pair.a.take_outgoing()]
        if not overtaken:
            pair.settle()
    assert pair.a.counters["passed_over"] >= 64
    assert not pair.b.counters["assembly_full"]
    assert [int(event.payload) for event in pair.ready()][-1] == begun[0]


def test_a_follower_without_data_is_given_none_and_no_older_ones() -> None:
    """R3."""
    pair = Pair()
    pair.submit(1, b"first")
    pair.pass_ms(20)
    assert [event.payload for event in pair.ready()] == [b"first"]
    assert isinstance(pair.told["b"][-1], FrameBegins)
    assert pair.told["b"][-1].frame == 2


def test_a_controller_that_forgets_to_send_stalls_its_followers_at_the_frame_that_they_were_told() -> None:
    """R4."""
    pair = Pair()
    pair.submit(1, b"first")
    pair.pass_ms(200)
    begun = [event.frame for event in pair.told["b"] if isinstance(event, FrameBegins)]
    assert begun == list(range(1, begun[-1] + 1))
    assert begun[-1] >= 12
    assert len(pair.ready()) == 1


@pytest.mark.parametrize("mode", ["state", "delta", "inputs"])
def test_when_the_controller_dies_another_continues_and_no_number_has_two_contents(mode: str) -> None:
    """R6."""
    show = SimulatedShow(list("abcd"), settings_of(mode), 9, BAD)
    show.run_for(2.0)
    before = show.newest_sent
    show.kill("a")
    show.run_for(3.0)
    assert not show.faults
    assert not show.count("two_contents")
    for node in show.live():
        assert max(node.applied) > before + 60
    assert show.promotions_ms
    assert max(show.promotions_ms) <= 250


def test_what_only_one_follower_has_is_fetched_and_sent_to_all() -> None:
    """The controller dies together with its newest frame's other receivers: the state of one node goes to all."""
    show = SimulatedShow(list("abcd"), settings_of(), 3, state_bytes=5_000)
    show.run_for(1.0)
    for name in "cd":
        show.cut.add(frozenset(("a", name)))
    show.run_for(0.5)
    newest = max(show.nodes["b"].applied)
    assert max(show.nodes["c"].applied) < newest
    show.kill("a")
    show.run_for(2.0)
    newest = max(frame for frame in show.nodes["b"].applied if frame < newest + 20)
    assert newest in show.nodes["c"].applied
    assert newest in show.nodes["d"].applied
    assert not show.faults


def test_a_controller_that_returns_becomes_a_follower_and_its_late_data_are_refused() -> None:
    """R7."""
    pair = Pair()
    pair.submit(1, b"first")
    late = next(datagram for name, datagram in reversed(pair.sent) if name == "a")
    pair.b.granted(2, 100, pair.now_ns)
    pair.b.may_send_below(1_000)
    pair.a.submit(SubmitState(2, 1, b"late", 1), pair.now_ns)
    pair.b.receive("a", late, pair.now_ns)
    assert pair.b.counters["epoch_refused"] == 1
    pair.a.follow("b", 2, pair.now_ns)
    pair.settle()
    assert not pair.a.is_controller
    assert pair.b.is_controller
    pair.a.granted(1, 3, pair.now_ns)
    assert not pair.a.is_controller


def test_changed_streams_are_told_to_the_followers_with_the_next_frame() -> None:
    """R8, the node's part: also when there were none."""
    pair = Pair()
    pair.a.flag_next(HeadFlag.STREAMS_CHANGED)
    pair.pass_ms(20)
    assert StreamsChanged(()) in pair.told["b"]
    assert StreamsChanged(()) not in pair.told["a"]


def test_quit_reaches_the_followers_before_the_controller_leaves() -> None:
    """R9."""
    show = SimulatedShow(list("abcd"), settings_of(), 5, Weather(loss=0.3))
    show.run_for(1.0)
    show.nodes["a"].machine.quit()
    show.run_for(3.0)
    ends = {name: node.has_quit_ns for name, node in show.nodes.items()}
    assert None not in ends.values()
    assert max(ends, key=lambda name: ends[name] or 0) == "a"


@given(st.lists(st.integers(0, 10), min_size=11, max_size=40), st.booleans())
def test_pieces_that_are_taken_quickly_make_the_same_of_a_frame_as_any_other(order: list[int], is_cut: bool) -> None:
    state = bytes(range(256)) * 3

    def got(*, quickly: bool) -> tuple[list[EngineEvent], dict[str, int]]:
        pair = Pair(piece_bytes=70)
        pair.pass_ms(20)
        pair.a.submit(SubmitState(1, 1, state, 1), pair.now_ns)
        sent = [datagram for _, datagram in pair.a.take_outgoing()]
        assert len(sent) == 11
        for index in order:
            datagram = sent[index][: -1 if is_cut and index == 3 else None]
            if not quickly:
                # Not for all: a follower that was not asked takes it all the same.
                datagram = datagram[:1] + bytes([datagram[1] & 0x7F]) + datagram[2:]
            pair.b.receive("a", datagram, pair.now_ns)
        counters = {name: count for name, count in pair.b.counters.items() if name != "nacks_needless"}
        return pair.b.take_events(), counters

    assert got(quickly=True) == got(quickly=False)


def test_a_follower_that_leaves_is_waited_for_no_more_until_it_is_heard_again() -> None:
    def opens_at_once(*, has_left: bool) -> bool:
        pair = Pair(fence=FenceKind.SOFT)
        pair.pass_ms(60)
        if has_left:
            pair.b.leave()
            pair.settle()
        pair.a.submit(SubmitState(3, 1, b"state", 1), pair.now_ns)
        pair.a.tick(pair.now_ns)
        sent = [read_datagram_untrusted(datagram) for _, datagram in pair.a.take_outgoing()]
        return any(each is not None and each.kind is ShowDatagramKind.APPLY for each in sent)

    assert not opens_at_once(has_left=False)
    assert opens_at_once(has_left=True)


def test_reasons_of_a_follower_that_this_release_does_not_know_make_one_counter() -> None:
    pair = Pair()
    for frame, reason in ((5, "gremlins"), (7, "weather"), (9, "lost")):
        pair.a.receive("b", pack_dropped(1, frame, frame + 1, reason), pair.now_ns)
    assert {name: count for name, count in pair.a.counters.items() if name.startswith("dropped_")} == {
        "dropped_other": 4,
        "dropped_lost": 2,
    }


@pytest.mark.parametrize("mode", ["state", "delta", "inputs"])
def test_a_node_that_joins_waits_for_a_full_state_and_is_accurate_from_there(mode: str) -> None:
    """R13."""
    show = SimulatedShow(list("abc"), settings_of(mode), 5, Weather(loss=0.02), state_bytes=4_000)
    show.run_for(2.0)
    show.join("late")
    show.run_for(1.0)
    late = show.nodes["late"]
    assert not show.faults
    assert len(late.applied) > 50
    assert show.join_frames[0] <= 8


def test_a_node_that_was_cut_off_catches_up_and_its_drops_are_named_at_the_controller() -> None:
    """R14."""
    show = SimulatedShow(list("abc"), settings_of("delta"), 5, state_bytes=4_000)
    show.run_for(1.0)
    show.isolate("c", show.now_ns + 700 * MS)
    show.run_for(2.0)
    assert not show.faults
    assert max(show.nodes["c"].applied) >= show.newest_sent - 2
    at_controller = [drop for drop in show.nodes["a"].machine.drops() if drop.node == "c"]
    at_node = [drop for drop in show.nodes["c"].machine.drops() if drop.reason == "lost"]
    assert at_node
    assert sum(drop.last - drop.first + 1 for drop in at_controller) >= 30


def test_interaction_data_reach_the_controller_in_order_and_once() -> None:
    """R15."""
    show = SimulatedShow(list("abc"), settings_of(), 5, BAD)
    show.run_for(0.5)
    for number in range(100):
        for name in "bc":
            show.nodes[name].machine.submit(SubmitInteraction(b"%d" % number), show.now_ns)
            show.after(show.nodes[name])
        show.run_for(0.01)
    show.run_for(1.0)
    got = show.nodes["a"].interactions
    for name in "bc":
        assert [int(payload) for node, payload in got if node == name] == list(range(100))


def test_after_a_reset_nothing_refers_to_a_frame_before() -> None:
    """R16."""
    pair = Pair(mode=settings_of("delta").mode)
    pair.submit(1, bytes(5_000))
    pair.pass_ms(17)
    pair.submit(2, bytes(4_999) + b"x")
    pair.a.flag_next(HeadFlag.RESET)
    pair.sent.clear()
    pair.pass_ms(17)
    pair.submit(3, bytes(4_998) + b"xx")
    assert sum(len(datagram) for name, datagram in pair.sent if name == "a") > 5_000
    begins = [event for event in pair.told["b"] if isinstance(event, FrameBegins)]
    assert begins[-1].data.flags == FrameDataFlag.RESET
    assert begins[-1].data.local_time == 0.0


@pytest.mark.parametrize("mode", [ShowMode.STATE, ShowMode.DELTA, ShowMode.INPUTS])
def test_local_time_goes_on_after_a_failover_from_where_it_was(mode: ShowMode) -> None:
    pair = Pair(mode=mode)
    pair.pass_ms(1)
    pair.submit(1, b"first")
    pair.a.flag_next(HeadFlag.RESET)
    pair.pass_ms(17)
    pair.submit(2, b"reset")
    pair.pass_ms(100)
    begun = [event for event in pair.told["b"] if isinstance(event, FrameBegins)]
    pair.a.suspend()
    pair.b.granted(2, 100, pair.now_ns, gone="a")
    pair.b.may_send_below(1_000)
    pair.pass_ms(200)
    first = next(event for event in pair.told["b"] if isinstance(event, FrameBegins) and event.epoch == 2)
    assert first.frame >= 100
    passed = (first.frame - begun[-1].frame) / 60
    assert first.data.local_time == pytest.approx(begun[-1].data.local_time + passed)
    reset = next(event.frame for event in begun if event.data.flags)
    assert first.data.local_time == pytest.approx((first.frame - reset) / 60)


def test_an_engine_that_reads_no_version_but_its_own_does_not_have_full_states_sent_to_all() -> None:
    pair = Pair(mode=ShowMode.INPUTS)
    for frame in range(1, 40):
        pair.a.submit(SubmitState(frame, 1, b"state", 1, b"inputs", frame - 1), pair.now_ns)
        pair.b.submit(EngineDropped(frame, frame, DropReason.VERSION), pair.now_ns)
        pair.pass_ms(17)
    assert pair.a.counters["full_states_asked"] <= 2
    assert pair.a.counters["dropped_version"] == 39


def test_a_delta_is_sent_once_followers_have_acknowledged_a_state() -> None:
    """And it is small."""
    pair = Pair(mode=settings_of("delta").mode)
    pair.submit(1, bytes(50_000))
    pair.pass_ms(17)
    pair.sent.clear()
    pair.submit(2, bytes(49_999) + b"x")
    assert sum(len(datagram) for _, datagram in pair.sent) < 1_000
    assert pair.ready()[-1].payload == bytes(49_999) + b"x"


def test_a_follower_that_diverges_gets_the_next_full_state_and_is_counted() -> None:
    """Inputs and hash: it heals by itself."""
    show = SimulatedShow(list("abc"), settings_of("inputs"), 5)
    show.run_for(1.0)
    show.nodes["b"].diverges_at = show.newest_sent + 5
    show.run_for(1.0)
    assert not show.faults
    controller = show.nodes["a"].machine
    assert controller.counters["diverged"] == 1
    assert [drop.first for drop in controller.drops() if drop.reason == "diverged"] == [show.nodes["b"].diverges_at]
    assert show.nodes["b"].state == show.nodes["c"].state


def test_inputs_for_a_state_that_was_not_taken_are_sent_as_the_full_state() -> None:
    """The engine of a controller has computed a frame that its node refused: followers cannot have that state."""
    pair = Pair(mode=ShowMode.INPUTS)
    for frame, base in ((1, -1), (2, 1), (4, 3)):
        pair.pass_ms(34)
        pair.a.submit(SubmitState(frame, 1, b"state %d" % frame, 1, b"inputs", base), pair.now_ns)
        pair.settle()
    pair.pass_ms(50)
    assert [(ready.frame, ready.is_inputs) for ready in pair.ready()] == [(1, False), (2, True), (4, False)]


def test_numbers_that_were_passed_over_in_a_failover_are_no_frames_that_a_follower_lost() -> None:
    """Also if it hears of the new controller's second frame first."""
    pair = Pair()
    pair.pass_ms(1)
    pair.submit(1, b"first")
    pair.a.suspend()
    pair.b.granted(2, 100, pair.now_ns, gone="a")
    pair.b.may_send_below(1_000)
    # The controller is late, and its first datagrams come before the follower has the key of the epoch.
    pair.now_ns += 500 * MS
    pair.b.tick(pair.now_ns)
    pair.b.take_outgoing()
    pair.a.follow("b", 2, pair.now_ns)
    for _ in range(60):
        pair.pass_ms(17)
        pair.b.submit(SubmitState(pair.b.begun, 2, b"%d" % pair.b.begun, 1), pair.now_ns)
        pair.settle()
    assert pair.b.counters["dropped_passed_over"] >= 10
    assert max(event.frame for event in pair.told["a"] if isinstance(event, FrameReady)) > 150
    first = min(event.frame for event in pair.told["b"] if isinstance(event, FrameBegins) and event.epoch == 2)
    assert [drop for drop in pair.a.drops() if drop.node == "a" and drop.first < first] == []


def test_data_of_another_version_are_refused_by_name() -> None:
    """They are not given to the engine."""
    pair = Pair(payload_version=2)
    pair.submit(1, b"old", version=1)
    assert not pair.ready()
    assert [(drop.reason, drop.first) for drop in pair.b.drops()] == [("version", 1)]


def test_a_soft_fence_opens_when_all_live_followers_have_the_frame() -> None:
    """And not for ever waits for one that lacks it."""
    show = SimulatedShow(list("abc"), settings_of(fence=settings_of().fence.SOFT), 5)
    show.run_for(1.0)
    assert show.newest_sent - max(show.nodes["b"].applied) <= 1
    show.isolate("c", show.now_ns + 500 * MS)
    show.run_for(1.5)
    assert show.newest_sent - max(show.nodes["b"].applied) <= 1
    assert show.nodes["a"].machine.counters["fence_late"]


def test_an_external_fence_opens_when_the_node_is_told() -> None:
    """Up to the frame that is named."""
    pair = Pair(fence=settings_of().fence.EXTERNAL)
    pair.submit(1, b"first")
    assert not pair.ready()
    pair.b.apply(1)
    pair.settle()
    assert len(pair.ready()) == 1


def test_an_engine_opens_an_external_fence_also_before_the_data_are_there() -> None:
    """As a thread that waits for a genlock does, which knows nothing of the data."""
    pair = Pair(fence=FenceKind.EXTERNAL)
    pair.b.submit(FenceOpened(1), pair.now_ns)
    pair.submit(1, b"first")
    assert len(pair.ready()) == 1
    pair.pass_ms(17)
    pair.submit(2, b"second")
    assert len(pair.ready()) == 1
    pair.b.submit(FenceOpened(2), pair.now_ns)
    pair.settle()
    assert [ready.frame for ready in pair.ready()] == [1, 2]


def test_an_engine_is_told_which_frames_its_closed_fence_has_lost_and_can_open_it_for_the_others() -> None:
    """Else it would await one that is lost after another for as long as the show plays, and show none."""
    pair = Pair(fence=FenceKind.EXTERNAL)
    for frame in range(1, MAX_FENCED + 2):
        pair.submit(frame, b"state")
        pair.pass_ms(17)
    gone = MAX_FENCED // 2 + 1
    assert [event for event in pair.told["b"] if isinstance(event, FramesGone)] == [FramesGone(gone)]
    assert [(d.node, d.first, d.last, d.reason) for d in pair.a.drops()] == [("b", 1, gone, "fence")]
    pair.b.submit(FenceOpened(gone + 1), pair.now_ns)
    pair.settle()
    assert [ready.frame for ready in pair.ready()] == [gone + 1]


def test_an_engine_cannot_open_a_fence_that_is_not_external() -> None:
    """The controller opens a soft one."""
    pair = Pair(fence=FenceKind.SOFT)
    pair.b.submit(FenceOpened(1), pair.now_ns)
    assert pair.b.counters["fence_refused"] == 1


def test_frames_that_an_engine_dropped_are_named_at_the_controller() -> None:
    """Which node, which frames."""
    pair = Pair()
    pair.b.submit(EngineDropped(3, 5), pair.now_ns)
    pair.settle()
    assert [(d.node, d.first, d.last, d.reason) for d in pair.a.drops()] == [("b", 3, 5, "engine")]


def test_no_frame_is_begun_at_or_beyond_the_limit() -> None:
    """Numbers that no copy is known to cover are not used."""
    pair = Pair()
    pair.a.may_send_below(10)  # lower: changes nothing
    pair.pass_ms(200)
    assert max(event.frame for event in pair.told["a"] if isinstance(event, FrameBegins)) > 10
    other = NodeMachine("a", pair.settings, CheapSigning("a"), Random(1), 0)
    other.granted(1, 1, 0)
    other.may_send_below(4)
    for now_ns in range(0, 1_000 * MS, MS):
        other.tick(now_ns)
    assert max(event.frame for event in other.take_events() if isinstance(event, FrameBegins)) == 3


def test_a_held_node_is_ignored_until_it_is_released() -> None:
    """By an operator."""
    pair = Pair()
    pair.a.hold("b")
    pair.submit(1, b"first")
    pair.b.submit(SubmitInteraction(b"hello"), pair.now_ns)
    pair.settle()
    assert not pair.ready()
    assert not [event for event in pair.told["a"] if isinstance(event, InteractionReceived)]
    pair.a.release("b")
    pair.pass_ms(60)
    pair.submit(2, b"second")
    assert pair.ready()[-1].payload == b"second"
    assert [event for event in pair.told["a"] if isinstance(event, InteractionReceived)]


def test_a_controller_that_took_over_hears_its_predecessor_once_that_is_the_controller_again() -> None:
    pair = Pair()
    pair.pass_ms(1)
    pair.a.suspend()
    pair.b.granted(2, 100, pair.now_ns, gone="a")
    assert pair.b.is_controller, "nothing is waited for from the one that is gone"
    pair.b.suspend()
    pair.a.granted(3, 200, pair.now_ns)
    pair.a.may_send_below(1_000)
    pair.b.follow("a", 3, pair.now_ns)
    pair.pass_ms(60)
    assert any(isinstance(event, FrameBegins) and event.epoch == 3 for event in pair.told["b"])
