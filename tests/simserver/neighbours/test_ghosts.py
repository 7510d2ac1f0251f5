"""Ghosts over a link that loses, repeats and falls silent: of what was so, never back, and right in the end."""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import cbor2
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batonpass.authority.fence import Fence
from batonpass.authority.wire.neighbours import MAX_GHOSTS_TOLD, GhostNews, Ghosts
from batonpass.simserver.neighbours.ghost_streams import GhostStream, ShownEntity
from batonpass.simserver.neighbours.ghost_table import BadGhost, GhostTable
from tests.budget import examples

MAX_AGE_NS: Final = 1000
PEERS: Final = ("alpha.s1", "alpha.s2")
HERE: Final = "alpha.s3"
FIRST: Final = Fence(1)
ENTITIES: Final = ("alpha.a", "alpha.b", "alpha.c")
SERVERS: Final = st.sampled_from([*PEERS, HERE])
NAMES: Final = st.sampled_from(ENTITIES)


def place(state: bytes) -> tuple[tuple[float, ...] | None, Any]:
    try:
        value = cbor2.loads(state)
    except Exception as error:
        raise BadGhost("unreadable") from error
    return (None if value is None else (float(value),)), value


def table(is_past: Callable[[str, Fence], bool] = lambda entity, fence: False) -> GhostTable:
    return GhostTable(1.0, place, is_past, 1, MAX_AGE_NS)


def shown(entity: str, fence: Fence = FIRST, tick: int = 0, value: Any = 0, rank: int = 0) -> ShownEntity:
    return ShownEntity(entity, "box", 1, fence, tick, cbor2.dumps(value), rank)


class GhostsOverALink(RuleBasedStateMachine):
    """Entities that move between three servers, one of which is told by the two others."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0
        self.streams = 0
        self.lives: dict[str, int] = dict.fromkeys(PEERS, 1)
        self.at: dict[str, tuple[str, Fence, int]] = {}
        self.epochs: dict[str, int] = dict.fromkeys(ENTITIES, 0)
        self.had: set[tuple[str, str, Fence, int]] = set()
        self.last: dict[str, tuple[Fence, int]] = {}
        self.sending: dict[str, GhostStream] = {}
        self.changed: dict[str, set[str]] = {peer: set() for peer in PEERS}
        self.on_the_way: dict[str, deque[Ghosts]] = {peer: deque() for peer in PEERS}
        self.table = table(self.is_past)

    def is_past(self, entity: str, fence: Fence) -> bool:
        server, held, _ = self.at.get(entity, ("", Fence(0), 0))
        return server == HERE and held >= fence

    def note(self, entity: str) -> None:
        server, fence, tick = self.at[entity]
        self.had.add((entity, server, fence, tick))
        if server == HERE:
            self.table.lives_here(entity, fence)
        for peer in PEERS:
            self.changed[peer].add(entity)

    @initialize()
    def begins(self) -> None:
        for peer in PEERS:
            self.ask(peer)

    def ask(self, peer: str) -> None:
        self.streams += 1
        self.table.expect(peer, self.streams, self.now_ns)
        self.sending[peer] = GhostStream(self.streams, self.lives[peer])
        self.changed[peer] |= set(ENTITIES)

    @rule(peer=st.sampled_from(PEERS))
    def restarts(self, peer: str) -> None:
        """It does not know any more what it has said, and is asked by the same stream."""
        self.lives[peer] += 1
        self.sending[peer] = GhostStream(self.sending[peer].stream, self.lives[peer])
        self.changed[peer] |= set(ENTITIES)

    @rule(entity=NAMES, server=SERVERS)
    def moves(self, entity: str, server: str) -> None:
        self.epochs[entity] += 1
        _, _, tick = self.at.get(entity, ("", Fence(0), 0))
        self.at[entity] = server, Fence(self.epochs[entity]), tick
        self.note(entity)

    @rule(entity=NAMES)
    def ticks(self, entity: str) -> None:
        if entity in self.at:
            server, fence, tick = self.at[entity]
            self.at[entity] = server, fence, tick + 1
            self.note(entity)

    @rule(entity=NAMES)
    def ends(self, entity: str) -> None:
        if entity in self.at:
            self.note(entity)
            del self.at[entity]

    @rule(peer=st.sampled_from(PEERS))
    def tells(self, peer: str) -> None:
        changed, self.changed[peer] = self.changed[peer], set()
        here = [entity for entity in sorted(changed) if self.at.get(entity, ("",))[0] == peer]
        told = [shown(one, self.at[one][1], self.at[one][2], self.at[one][2]) for one in here]
        self.on_the_way[peer].extend(self.sending[peer].messages(told, sorted(changed - set(here)), self.now_ns))

    @precondition(lambda self: any(self.on_the_way.values()))
    @rule(peer=st.sampled_from(PEERS), times=st.integers(1, 2))
    def arrives(self, peer: str, times: int) -> None:
        if self.on_the_way[peer]:
            said = self.on_the_way[peer].popleft()
            for _ in range(times):
                if not self.table.take(peer, said, self.now_ns):
                    self.ask(peer)

    @precondition(lambda self: any(self.on_the_way.values()))
    @rule(peer=st.sampled_from(PEERS))
    def is_lost(self, peer: str) -> None:
        if self.on_the_way[peer]:
            self.on_the_way[peer].popleft()

    @rule(passes_ns=st.sampled_from([MAX_AGE_NS // 3, MAX_AGE_NS + 1]))
    def time_passes(self, passes_ns: int) -> None:
        self.now_ns += passes_ns
        for peer in self.table.expire(self.now_ns):
            assert not [one for one in self.table if one.neighbour.server == peer]
            self.ask(peer)

    @invariant()
    def shows_what_was_so_and_never_goes_back(self) -> None:
        for ghost in self.table:
            one = ghost.neighbour
            assert (one.entity, one.server, one.fence, one.tick) in self.had
            assert one.state == one.tick
            assert one.position == (float(one.tick),)
            assert self.last.get(one.entity, (Fence(0), 0)) <= (one.fence, one.tick)
            self.last[one.entity] = one.fence, one.tick
            assert not self.is_past(one.entity, one.fence)

    def teardown(self) -> None:
        for peer in PEERS:
            self.ask(peer)
            self.on_the_way[peer].clear()
            self.tells(peer)
            while self.on_the_way[peer]:
                self.arrives(peer, 1)
        self.shows_what_was_so_and_never_goes_back()
        elsewhere = {entity: one for entity, one in self.at.items() if one[0] != HERE}
        found = [one.neighbour for one in self.table]
        assert {one.entity: (one.server, one.fence, one.tick) for one in found} == elsewhere


TestGhostsOverALink = GhostsOverALink.TestCase
TestGhostsOverALink.settings = settings(max_examples=examples(150, 40), stateful_step_count=40, deadline=None)


# --- bounds, and peers that make no sense ----------------------------------------------------------------------------


def test_many_ghosts_take_several_messages_and_all_arrive() -> None:
    stream, there = GhostStream(1, 1), table()
    there.expect("alpha.s1", 1, 0)
    many = [shown(f"alpha.e{number}", value=number) for number in range(MAX_GHOSTS_TOLD + 3)]
    for said in stream.messages(many, (), 5):
        assert len(said.numbers) <= MAX_GHOSTS_TOLD
        assert there.take("alpha.s1", said, 0)
    assert len(there) == len(many)
    assert there.at_ms("alpha.s1") == 5
    assert sum(len(said.gone) for said in stream.messages((), [one.entity for one in many], 6)) == len(many)


def test_what_has_not_changed_is_not_said_again() -> None:
    stream = GhostStream(1, 1)
    stream.messages([shown("alpha.a")], (), 0)
    (said,) = stream.messages([shown("alpha.a", tick=1)], (), 1)
    assert (said.news, said.numbers) == ([], [])
    (said,) = stream.messages([shown("alpha.a", tick=2, rank=2)], (), 2)
    assert ([one.rank for one in said.news], said.numbers) == ([2], [])


def test_a_peer_that_shows_nothing_hears_so_now_and_then() -> None:
    stream = GhostStream(1, 1)
    said = [len(stream.messages((), (), 0)) for _ in range(21)]
    assert said == [1, *[0] * 9, 1, *[0] * 9, 1]


@pytest.mark.parametrize(
    "said",
    [
        Ghosts(stream=1, life=1, seq=1, at_ms=0, numbers=[1], ticks=[], states=[]),
        Ghosts(stream=1, life=1, seq=1, at_ms=0, numbers=[1], ticks=[0], states=[b"\x00"]),
        Ghosts(
            stream=1,
            life=1,
            seq=1,
            at_ms=0,
            news=[GhostNews(entity="alpha.a", epoch=1, sub=0, number=1, kind="box")],
            numbers=[1],
            ticks=[0],
            states=[b"\xff"],
        ),
        Ghosts(
            stream=1,
            life=1,
            seq=1,
            at_ms=0,
            news=[
                GhostNews(entity="alpha.a", epoch=1, sub=0, number=1, kind="box"),
                GhostNews(entity="alpha.b", epoch=1, sub=0, number=1, kind="box"),
            ],
        ),
    ],
)
def test_nothing_is_shown_of_a_peer_that_makes_no_sense(said: Ghosts) -> None:
    there = table()
    there.expect("alpha.s1", 1, 0)
    with pytest.raises(BadGhost):
        there.take("alpha.s1", said, 0)
    assert not len(there)
    assert there.take("alpha.s1", said, 0), "it is not listened to until it was asked anew"


def test_under_one_fence_only_the_first_server_is_believed() -> None:
    there = table()
    for number, peer in enumerate(PEERS):
        there.expect(peer, 1, 0)
        (said,) = GhostStream(1, 1).messages([shown("alpha.a", tick=number)], (), 0)
        there.take(peer, said, 0)
    ghost = there.get("alpha.a")
    assert ghost is not None
    assert (ghost.neighbour.server, ghost.neighbour.tick) == (PEERS[0], 0)


def test_states_of_another_form_are_not_shown() -> None:
    there = table()
    there.expect("alpha.s1", 1, 0)
    (said,) = GhostStream(1, 1).messages([shown("alpha.a")._replace(schema_version=2)], (), 0)
    assert there.take("alpha.s1", said, 0)
    assert not len(there)


def test_what_this_server_has_or_had_later_is_not_shown() -> None:
    there = table(lambda entity, fence: fence <= Fence(3))
    there.expect("alpha.s1", 1, 0)
    (said,) = GhostStream(1, 1).messages([shown("alpha.a", Fence(3)), shown("alpha.b", Fence(4))], (), 0)
    assert there.take("alpha.s1", said, 0)
    assert [one.neighbour.entity for one in there] == ["alpha.b"]


def test_what_a_slow_server_says_of_an_earlier_fence_is_not_shown_even_when_the_later_ghost_is_gone() -> None:
    there, later = table(), GhostStream(1, 1)
    for peer in PEERS:
        there.expect(peer, 1, 0)
    for said in [*later.messages([shown("alpha.a", Fence(2))], (), 0), *later.messages((), ["alpha.a"], 1)]:
        assert there.take(PEERS[1], said, 0)
    (said,) = GhostStream(1, 1).messages([shown("alpha.a", Fence(1))], (), 2)
    assert there.take(PEERS[0], said, 0)
    assert there.get("alpha.a") is None
