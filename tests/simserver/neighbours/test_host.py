"""One server's part between its feed, its peers and the link, all of them under the test's hand."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import cbor2
import pytest

from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.wire.neighbours import GhostInterest, Ghosts
from batonpass.authority.wire.transfer import decode_link_untrusted
from batonpass.simserver.entity.feed import CommitFeed
from batonpass.simserver.neighbours.ghost_streams import GhostStream, ShownEntity
from batonpass.simserver.neighbours.host import HostedNeighbours
from batonpass.simserver.neighbours.surroundings import surroundings_of

HERE, PEER = "alpha.s1", "alpha.s2"


class Walkers:
    """A world whose states are positions on a line."""

    reach = 2.0

    def position(self, state: Any) -> Any:
        return [state]


class Table(dict[str, Any]):
    """As `Holdings`, of names and lives."""

    def __iter__(self) -> Any:
        return iter(self.values())

    def is_past(self, entity: str, fence: Fence) -> bool:
        return entity in self


class Hosted:
    """A server, and what it sent."""

    def __init__(self, *entities: tuple[str, float]) -> None:
        self.now_ns, self.counts = 10**9, Counter[str]()
        self.asked: list[tuple[str, Any]] = []
        self.posted: list[Any] = []
        self.feed, self.holdings = CommitFeed(), Table()
        for name, at in entities:
            self.begin(name, at)
        bell = SimpleNamespace(ring=lambda: None)
        clock = SimpleNamespace(monotonic_ns=lambda: self.now_ns, unix_s=lambda: self.now_ns / 1e9, bell=lambda: bell)
        home = SimpleNamespace(row=self._row)
        outbox = SimpleNamespace(send=lambda message, trace, to, **_: self.asked.append((to, message)))
        link = SimpleNamespace(post=lambda to, where, data, channel: self.posted.append(decode_link_untrusted(data)))
        ports: Any = SimpleNamespace(name=HERE, home=home, link=link, outbox=outbox, clock=clock, counts=self.counts)
        self.rounds = SimpleNamespace(count=0)
        world: Any = Walkers()
        environment: Any = SimpleNamespace(
            world=world,
            feed=self.feed,
            rounds=self.rounds,
            period_s=0.05,
            count=lambda what: self.counts.update([what]),
            regions=SimpleNamespace(table=None),
        )
        lease: Any = SimpleNamespace(peers=(HERE, PEER), may_act=lambda now_ns: True)
        departures: Any = SimpleNamespace(wants_to_go=lambda *_: None, is_under_way=lambda entity: False)
        holdings: Any = self.holdings
        surroundings = surroundings_of(world, lambda: holdings, 50_000_000, lambda what: self.counts.update([what]))
        assert surroundings is not None
        self.host = HostedNeighbours(ports, lease, holdings, environment, surroundings, departures, 20.0)

    async def _row(self, name: str) -> Any:
        return SimpleNamespace(link_host="127.0.0.1", link_port=1)

    def begin(self, name: str, at: float) -> None:
        life = SimpleNamespace(
            id=name,
            kind="walker",
            schema=1,
            fence=Fence(1),
            tick=0,
            frozen=False,
            quarantine_reason="",
            look=lambda: at,
        )
        self.holdings[name] = SimpleNamespace(id=name, life=life, fence=life.fence)

    async def round(self, **moved: float) -> None:
        self.rounds.count += 1
        self.feed.round_begins(self.rounds.count)
        self.host.round_begins()
        for name, at in moved.items():
            self.feed.committed(f"alpha.{name}", Fence(1), self.rounds.count, None, at, [])
        self.feed.round_is_over()
        self.now_ns += 50_000_000
        await self.between()

    async def between(self) -> None:
        await self.host._look_up()
        self.host._between_rounds()


def told(stream: int, *seen: tuple[str, float]) -> list[Ghosts]:
    """What a peer says, one message for each of its entities."""
    sender = GhostStream(stream, 1)
    return [
        message
        for name, at in seen
        for message in sender.messages([ShownEntity(name, "walker", 1, Fence(1), 0, cbor2.dumps(at))], (), 1000)
    ]


async def asking(*entities: tuple[str, float]) -> tuple[Hosted, int]:
    """A server that has asked its peer, and by which stream."""
    hosted = Hosted(*entities)
    await hosted.round()
    ((to, asked),) = hosted.asked
    assert (to, asked.cells) == (PEER, [[0]] if entities else [])
    return hosted, asked.stream


async def test_what_comes_while_a_round_is_under_way_is_seen_after_it_and_in_its_order() -> None:
    hosted, stream = await asking(("alpha.a", 0.5))
    first, second, third = told(stream, ("alpha.x", 1.0), ("alpha.y", 1.5), ("alpha.z", 1.0))
    near = hosted.host.surroundings.ghosts
    hosted.feed.round_begins(2)
    hosted.host.round_begins()
    hosted.host.ghosts_came(first, PEER)
    assert near([0.5], 1.0) == ()
    hosted.feed.round_is_over()
    hosted.host.ghosts_came(second, PEER)
    hosted.host.ghosts_came(third, PEER)
    assert [one.entity for one in near([0.5], 1.0)] == ["alpha.x", "alpha.z", "alpha.y"]
    assert hosted.counts["ghosts_missed"] == 0


async def test_after_a_gap_nothing_is_shown_and_the_peer_is_asked_by_another_stream() -> None:
    hosted, stream = await asking(("alpha.a", 0.5))
    first, _, third = told(stream, ("alpha.x", 1.0), ("alpha.y", 1.5), ("alpha.z", 1.0))
    hosted.host.ghosts_came(first, PEER)
    hosted.host.ghosts_came(third, PEER)
    assert hosted.host.surroundings.ghosts([0.5], 1.0) == ()
    hosted.now_ns += 200_000_000
    await hosted.between()
    assert hosted.asked[-1][1].stream > stream


async def test_a_peer_is_sent_what_is_within_reach_of_its_cells_and_then_that_it_is_gone() -> None:
    hosted = Hosted(("alpha.near", 3.5), ("alpha.far", 9.0))
    await hosted.round()
    hosted.host.interest_came(GhostInterest(stream=7, number=1, edge=2.0, cells=[[0]]), PEER)
    await hosted.round()
    (said,) = hosted.posted
    assert [one.entity for one in said.news] == ["alpha.near"]
    await hosted.round(near=3.75, far=3.0)
    assert [one.entity for one in hosted.posted[-1].news] == ["alpha.far"]
    assert hosted.posted[-1].states == [cbor2.dumps(3.0), cbor2.dumps(3.75)]
    await hosted.round(near=4.5)
    assert hosted.posted[-1].gone == [1]


async def test_strangers_are_neither_heard_nor_told() -> None:
    hosted, stream = await asking(("alpha.a", 0.5))
    hosted.host.ghosts_came(told(stream, ("alpha.x", 1.0))[0], "alpha.s9")
    hosted.host.interest_came(GhostInterest(stream=7, number=1, edge=2.0, cells=[[0]]), "alpha.s9")
    await hosted.round(a=0.75)
    assert (hosted.posted, list(hosted.host.ghosts())) == ([], [])
    assert (hosted.counts["ghosts_of_strangers"], hosted.counts["interest_of_strangers"]) == (1, 1)


async def test_an_interest_in_smaller_cells_than_this_worlds_is_refused() -> None:
    hosted = Hosted()
    with pytest.raises(MessageError, match="looks as far as"):
        hosted.host.interest_came(GhostInterest(stream=7, number=1, edge=1e-300, cells=[[0]]), PEER)


async def test_a_peer_that_asks_no_more_is_told_no_more() -> None:
    hosted = Hosted(("alpha.a", 0.5))
    await hosted.round()
    hosted.host.interest_came(GhostInterest(stream=7, number=1, edge=2.0, cells=[[0]]), PEER)
    await hosted.round(a=0.75)
    count = len(hosted.posted)
    hosted.now_ns += 4_000_000_000
    await hosted.round(a=1.0)
    assert len(hosted.posted) == count


async def test_a_server_that_was_paused_shows_not_for_one_round_what_it_should_have_forgotten() -> None:
    hosted, stream = await asking(("alpha.a", 0.5))
    hosted.host.ghosts_came(told(stream, ("alpha.x", 1.0))[0], PEER)
    assert len(hosted.host.surroundings.ghosts([0.5], 1.0)) == 1
    hosted.now_ns += 2_000_000_000
    hosted.feed.round_begins(2)
    hosted.host.round_begins()
    assert hosted.host.surroundings.ghosts([0.5], 1.0) == ()
