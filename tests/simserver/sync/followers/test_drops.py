"""Which node has not applied which frames: each frame of a node is told once, by one of the two that find out."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.followers import drops
from batonpass.simserver.sync.followers.drops import DropLog, DropRange, DropReason, ToldFrames
from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.mailbox import EngineMailbox
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.ports import FrameBegins
from batonpass.simserver.sync.followers.settings import ShowMode
from batonpass.simserver.sync.followers.structs import RenderStreamError, RsError
from tests.budget import examples
from tests.simserver.sync.followers.test_node import Pair

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=40)


@given(RANGES)
def test_ranges_are_told_as_a_set_of_numbers_would_tell_them(those: list[tuple[int, int]]) -> None:
    told, twin = ToldFrames(), set[int]()
    for first, more in those:
        asked = set(range(first, first + more + 1))
        fresh = told.add(first, first + more)
        assert [frame for low, high in fresh for frame in range(low, high + 1)] == sorted(asked - twin)
        twin |= asked
        assert told.total == len(twin)
        assert {frame for low, high in told for frame in range(low, high + 1)} == twin
        assert all(high + 1 < low for (_, high), (low, _) in zip(told, [*told][1:], strict=False))


def test_of_too_many_ranges_the_lowest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drops, "MAX_RANGES_OF_A_NODE", 2)
    told = ToldFrames()
    for frame in (1, 3, 5):
        told.add(frame, frame)
    assert ([*told], told.total) == ([(3, 3), (5, 5)], 3)


def test_a_range_of_which_a_part_is_known_is_told_as_what_is_left_of_it() -> None:
    log = DropLog()
    assert log.add("b", 5, 6, DropReason.LOST) == [(5, 6)]
    assert log.add("b", 3, 8, DropReason.ENGINE) == [(3, 4), (7, 8)]
    assert log.add("b", 9, 8, DropReason.ENGINE) == []
    assert log.add("c", 9, 9, DropReason.ENGINE) == [(9, 9)]
    assert log.all() == [
        DropRange("b", 5, 6, "lost"),
        DropRange("b", 3, 4, "engine"),
        DropRange("b", 7, 8, "engine"),
        DropRange("c", 9, 9, "engine"),
    ]


class PairWithEngine:
    """A controller that sends some of its frames, and a follower whose engine is late or gives up as it likes."""

    def __init__(self, seed: int) -> None:
        self.pair, self._dice = Pair(mode=ShowMode.STATE), Random(seed)
        self._mailbox = EngineMailbox(lambda: 1, lambda: self.pair.now_ns, lambda: None)
        self._node = EngineNode(self._mailbox, payload_version=1)
        self.shown: list[int] = []
        self._seen = self._sent = 0

    def pass_ms(self, ms: int, *, sends: bool) -> None:
        pair = self.pair
        for _ in range(ms):
            pair.pass_ms(1)
            begun = self.begun("a")
            if begun and begun[-1] > self._sent:
                self._sent = begun[-1]
                if sends:
                    pair.submit(self._sent, self._dice.randbytes(64))
            told = pair.told["b"]
            for event in told[self._seen :]:
                self._mailbox.put(event)
            self._seen = len(told)
            for act in self._mailbox.take_acts():
                pair.b.submit(act, pair.now_ns)

    def turn(self, what: str) -> None:
        node = self._node
        try:
            node.await_frame_data(0)
            if what == "await":
                return
            node.receive_follower_data(0)
        except RenderStreamError as error:
            if error.code is not RsError.TIMEOUT:
                raise
        else:
            if what == "refuse":
                node.refuse_frame()
            else:
                self.shown.append(node.frame)

    def begun(self, name: str) -> list[int]:
        return [event.frame for event in self.pair.told[name] if isinstance(event, FrameBegins)]

    def named_at(self, machine: NodeMachine) -> list[int]:
        own = [drop for drop in machine.drops() if drop.node == "b"]
        return [frame for drop in own for frame in range(drop.first, drop.last + 1)]


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["await", "receive", "refuse", "hang"]), st.booleans())),
    st.integers(0, 2**32),
)
def test_a_frame_that_began_at_a_follower_is_shown_or_named_once_with_a_reason(
    turns: list[tuple[int, str, bool]], seed: int
) -> None:
    """Whatever its engine does, and whatever the controller forgets to send."""
    play = PairWithEngine(seed)
    for ms, what, sends in turns:
        play.pass_ms(ms, sends=sends)
        if what != "hang":
            play.turn(what)
    for _ in range(40):
        play.pass_ms(17, sends=True)
        play.turn("receive")
    play.pass_ms(1, sends=True)
    play.pair.settle()
    named = play.named_at(play.pair.b)
    assert len(named) == len(set(named))
    assert not set(named) & set(play.shown)
    over = {frame for frame in play.begun("b") if frame <= play.shown[-1]}
    assert over - set(play.shown) == set(named) & over
    assert sorted(play.named_at(play.pair.a)) == sorted(named)
