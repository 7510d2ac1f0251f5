"""A client whose connection is cut, at any moment, goes on from what it has, and then shows what the server does."""

from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.wire.door import BASE_EVERY
from batonpass.client import mirror as client_side
from batonpass.client.mirror import DoorMirror
from batonpass.simserver.players import topics as server_side
from batonpass.simserver.players.bases import MAX_BYTES, MAX_ROWS, BaseRow, Bases
from batonpass.simserver.players.shown import changed_since
from batonpass.simserver.players.sights import Sights
from batonpass.simserver.players.topics import MAX_PATTERNS, MAX_RESTING, TopicKey, Topics, TopicWatcher
from tests.budget import examples

KEY = TopicKey("pattern", "alpha.*", 1, "")
EVERY = 4
KEPT = 12


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases at every fourth frame."""
    for module in (client_side, server_side):
        monkeypatch.setattr(module, "BASE_EVERY", EVERY)


class Server:
    """A server with one pattern that is watched, and what is so by no code that is tried."""

    def __init__(self, kept_rounds: int = KEPT) -> None:
        self.topics = Topics(Sights(object(), lambda what: None), kept_rounds)
        self.round = 0
        self.here: dict[str, tuple[str, Any]] = {}
        self.fence = 0

    def show(self, name: str, of: tuple[str, Any]) -> None:
        owner, state = of
        # The owner changes under the same fence, too.
        self.fence += name not in self.here or owner == self.here[name][0]
        self.here[name] = owner, state
        self.topics.show(name, "robot", owner, Fence(self.fence, 0), self.round, state)

    def step(self, name: str, state: Any) -> None:
        if name in self.here:
            self.here[name] = self.here[name][0], state
            self.topics.stepped(name, self.round, state)

    def leave(self, name: str, _: object = None) -> None:
        self.here.pop(name, None)
        self.topics.remove(name)

    def live(self, rounds: list[list[Any]], *watching: "Connection") -> None:
        """What happens in these rounds; all who watch show what is so, and agree on the ticks that it has had."""
        happens = {"step": self.step, "show": self.show, "leave": self.leave}
        for changes in rounds:
            for what, which, how in changes:
                happens[what](f"alpha.{which}", how)
            self.tick()
            assert all(one.facts() == self.here for one in watching)
            assert all(one.ticks() == watching[0].ticks() for one in watching)

    def tick(self) -> None:
        self.round += 1
        self.topics.tell(self.round)


class Connection:
    """A client that takes all that it is told, or has taken all but the last of it when it is cut."""

    def __init__(self, server: Server, mirror: DoorMirror | None = None, key: TopicKey = KEY) -> None:
        self.server = server
        self.mirror = mirror or DoorMirror()
        self.begun = self.mirror.successor()
        self.frames: list[bytes] = []
        self.watcher = TopicWatcher(self.tell)
        self.topic = server.topics.watch(key, self.watcher)
        held = {topic: (frame, base) for topic, frame, base in self.mirror.held}
        self.watcher.held = held.pop(self.topic.number, (0, 0))
        server.topics.begin(self.topic, self.watcher, server.round)

    def tell(self, frame: bytes) -> bool:
        self.frames.append(frame)
        self.mirror.take_untrusted(cbor2.loads(frame))
        return True

    def cut(self, lost: int = 0) -> DoorMirror:
        """What the client has when the last frames were lost."""
        mirror = self.begun.successor()
        for frame in self.frames[: max(0, len(self.frames) - lost)]:
            mirror.take_untrusted(cbor2.loads(frame))
        return mirror.successor()

    def ends(self) -> None:
        """The server hears that it was cut."""
        self.server.topics.lose(self.topic, self.watcher, self.server.round)

    def facts(self) -> dict[str, Any]:
        return {entity.name: (entity.owner, entity.state) for entity in self.mirror}

    def ticks(self) -> dict[str, Any]:
        return {entity.name: (entity.fence, entity.tick) for entity in self.mirror}


STATES = st.fixed_dictionaries({"at": st.integers(0, 2), "of": st.just({"wall": 1})}) | st.sampled_from([7, [1, 2]])
CHANGES = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 2), STATES),
    st.tuples(st.just("show"), st.integers(0, 2), st.tuples(st.sampled_from(["", "alpha.ada"]), STATES)),
    st.tuples(st.just("leave"), st.integers(0, 2), st.none()),
)
ROUNDS = st.lists(st.lists(CHANGES, max_size=3), min_size=1, max_size=10)


@pytest.mark.usefixtures("often")
@given(
    first=ROUNDS,
    cuts=st.lists(st.tuples(st.integers(0, 6), st.booleans(), ROUNDS, ROUNDS), min_size=1, max_size=3),
    others=st.integers(0, 1),
)
@settings(max_examples=examples(200))
def test_what_is_shown_after_cuts_is_what_is_so(
    first: list[list[Any]], cuts: list[tuple[int, bool, list[list[Any]], list[list[Any]]]], others: int
) -> None:
    server = Server()
    steady = [Connection(server) for _ in range(others)]
    client = Connection(server)
    server.live(first, client, *steady)
    for lost, is_heard, meanwhile, after in cuts:
        mirror = client.cut(lost)
        if is_heard:
            client.ends()
        server.live(meanwhile, *steady)
        former, client = client, Connection(server, mirror)
        if not is_heard:
            former.ends()
        server.live(after, client, *steady)
    client.ends()
    for _ in range(KEPT + 2):
        server.tick()
    assert (len(server.topics), server.topics.resting) == (others, 0)
    assert len(server.topics.bases) == 0


# --- what it takes ----------------------------------------------------------------------------------------------------


def robots(server: Server, count: int = 100) -> None:
    for number in range(count):
        server.show(f"alpha.robot-{number}", ("alpha.ada", {"x": 1.5 * number, "y": 2.5, "heading": 0.1, "hue": 77}))


def drive(server: Server, rounds: int) -> None:
    for _ in range(rounds):
        for name, (_, state) in list(server.here.items()):
            server.step(name, state | {"x": state["x"] + 0.25})
        server.tick()


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("lost", [0, 5])
def test_a_client_that_comes_again_is_told_about_what_one_tick_takes(lost: int, others: int) -> None:
    server = Server(400)
    robots(server)
    _steady = [Connection(server) for _ in range(others)]
    client = Connection(server)
    full = len(client.frames[0])
    drive(server, BASE_EVERY + 10)
    one_tick = len(client.frames[-1])
    mirror = client.cut(lost)
    client.ends()
    drive(server, 20)
    again = Connection(server, mirror)
    assert len(again.frames) == 1
    assert len(again.frames[0]) < 1.2 * one_tick < full / 4
    drive(server, 1)
    assert again.facts() == server.here
    assert len(again.frames[-1]) < 1.1 * one_tick


def test_what_all_need_that_come_again_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(400)
    robots(server, 3)
    drive(server, BASE_EVERY)
    clients = [Connection(server) for _ in range(8)]
    drive(server, 3)
    mirrors = [client.cut() for client in clients]
    for client in clients:
        client.ends()
    made: list[int] = []

    def counted(known: int, *others: Any) -> bytes:
        made.append(known)
        return changed_since(known, *others)

    monkeypatch.setattr(server_side, "changed_since", counted)
    again = [Connection(server, mirror) for mirror in mirrors]
    assert len(made) == 1
    assert len({client.frames[0] for client in again}) == 1


def test_what_has_not_changed_is_not_told_again() -> None:
    server = Server(400)
    robots(server)
    steady, client = Connection(server), Connection(server)
    drive(server, 1)
    mirror = client.cut()
    client.ends()
    again = Connection(server, mirror)
    assert cbor2.loads(again.frames[0])[5:] == [[], [], []]
    assert again.facts() == steady.facts() == server.here


def test_a_client_that_was_gone_for_too_long_is_told_all() -> None:
    server = Server()
    robots(server, 3)
    steady, client = Connection(server), Connection(server)
    drive(server, 2)
    mirror = client.cut(1)
    client.ends()
    drive(server, KEPT + 2)
    again = Connection(server, mirror)
    frame = cbor2.loads(again.frames[0])
    assert (frame[5], len(frame[6])) == ([], 3)
    assert again.facts() == steady.facts()


@pytest.mark.parametrize("held", [(10**9, 0), (0, 10**9), (7, 3), (3, 7), (2**53 - 1, 2**53 - 1)])
def test_who_lies_about_what_it_has_harms_nobody_else(held: tuple[int, int]) -> None:
    server = Server()
    robots(server, 3)
    steady = Connection(server)
    drive(server, 5)
    frames: list[bytes] = []

    def tell(frame: bytes) -> bool:
        frames.append(frame)
        return True

    liar = TopicWatcher(tell)
    topic = server.topics.watch(KEY, liar)
    liar.held = held
    server.topics.begin(topic, liar, server.round)
    drive(server, 3)
    assert cbor2.loads(frames[0])[2] in {0, *(frame for frame in held if frame <= topic.frame)}
    assert cbor2.loads(frames[-1]) == cbor2.loads(steady.frames[-1])
    assert steady.facts() == server.here


# --- what is kept has bounds ------------------------------------------------------------------------------------------


@given(
    kept=st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, MAX_ROWS), st.integers(0, MAX_BYTES + 1), st.integers(0, 5)),
        max_size=12,
    )
)
@settings(max_examples=examples(50))
def test_bases_have_bounds_of_rows_bytes_and_age(kept: list[tuple[int, int, int, int]]) -> None:
    class Rows(dict[int, BaseRow]):
        def __init__(self, size: int) -> None:
            self.size = size

        def __len__(self) -> int:
            return self.size

    bases, round_number = Bases(6), 0
    found: list[tuple[int, int, int, int, int]] = []
    for frame, (topic, rows, in_bytes, rounds) in enumerate(kept, 1):
        round_number += rounds
        bases.keep(topic, frame, Rows(rows), in_bytes, round_number)
        bases.expire(round_number)
        found.append((topic, frame, rows, in_bytes, round_number))
        there = [one for one in found if bases.find(*one[:2]) is not None]
        assert sum(one[2] for one in there) <= MAX_ROWS
        assert sum(one[3] for one in there) <= MAX_BYTES
        assert all(round_number - one[4] <= 6 for one in there)
        assert len(there) == len(bases)
        # The newest ones are there, but for those that are too large alone.
        fitting = [one for one in found if one[2] < MAX_ROWS and one[3] <= MAX_BYTES]
        assert there == [] or there == fitting[len(fitting) - len(there) :]


def test_topics_that_rest_are_few_and_make_room() -> None:
    server = Server()
    for number in range(MAX_RESTING + 10):
        Connection(server, key=TopicKey("entity", f"alpha.e-{number}", 1, "")).ends()
    assert (len(server.topics), server.topics.resting) == (0, MAX_RESTING)
    for number in range(MAX_PATTERNS):
        Connection(server, key=TopicKey("pattern", f"alpha.*-{number}", 1, "")).ends()
    # None is refused for what nobody watches.
    watching = [
        Connection(server, key=TopicKey("pattern", f"alpha.{number}-*", 1, "")) for number in range(MAX_PATTERNS)
    ]
    with pytest.raises(ValueError, match="no room"):
        Connection(server)
    assert len(watching) == MAX_PATTERNS


def test_a_topic_that_rests_remembers_no_more_than_it_showed() -> None:
    server = Server(400)
    robots(server, 3)
    former = Connection(server)
    former.ends()
    for number in range(50):
        server.show(f"alpha.guest-{number}", ("", number))
        server.leave(f"alpha.guest-{number}")
        server.tick()
    assert len(former.topic._changed) == 0
    again = Connection(server)
    assert again.facts() == server.here
