"""What scopes know of each other: whatever is lost, and however nodes come and go, they agree in the end."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.groups import membership
from batonpass.actors.groups.membership import Membership
from tests.budget import examples

NODES = ("a", "b", "c")
GROUPS: tuple[Any, ...] = ("lobby", ("room", 1), 1, True)


@dataclass(eq=False)
class FakeRef:
    """An actor of some node; equal only to itself."""

    node: str
    name: str = ""


@dataclass
class Scope:
    """One life of the scope of one node, the truth about its members, and what those who monitor it were told."""

    node: str
    core: Membership
    truth: dict[Any, Counter[FakeRef]] = field(default_factory=dict)
    told: dict[Any, Counter[Any]] = field(default_factory=dict)

    def take_changes(self) -> None:
        for joined, group, refs in self.core.changes:
            key = (type(group), group)
            for ref in refs:
                self.told.setdefault(key, Counter())[ref] += 1 if joined else -1
                assert self.told[key][ref] >= 0, "nobody leaves who has not joined"
        self.core.changes.clear()


def scope(node: str) -> Scope:
    me: Any = FakeRef(node, "scope")
    return Scope(node, Membership(me))


class Cluster:
    """Three scopes, and what is on its way between each two, which keeps its order."""

    def __init__(self) -> None:
        self.scopes = {node: scope(node) for node in NODES}
        self.ways: dict[tuple[str, str], deque[tuple[Any, Any]]] = {}
        self.cut: set[frozenset[str]] = set()
        self.news: list[tuple[str, Any]] = []
        """Who has still to hear of whose end."""

    def send(self) -> None:
        for node, it in self.scopes.items():
            for to, message in it.core.outbox:
                self.post(node, to.node, to, message)
            it.core.outbox.clear()
            it.take_changes()

    def post(self, node: str, to_node: str, to: Any, message: Any) -> None:
        if frozenset((node, to_node)) not in self.cut:
            self.ways.setdefault((node, to_node), deque()).append((to, message))

    def deliver(self, way: tuple[str, str]) -> None:
        queue = self.ways.get(way)
        if queue:
            to, message = queue.popleft()
            it = self.scopes[way[1]].core
            # By name, or to this life; a message to a former life reaches nobody.
            if to is None or to is it.me:
                it.hear(message)
            self.send()

    def lose(self, way: tuple[str, str]) -> None:
        """The link was full: the next message is dropped."""
        queue = self.ways.get(way)
        if queue:
            queue.popleft()

    def disconnect(self, one: str, other: str) -> None:
        """The connection is lost: what is on its way with it, and each hears that the other's scope is gone."""
        for way in ((one, other), (other, one)):
            self.ways.pop(way, None)
        for node, gone in ((one, other), (other, one)):
            known = self.scopes[node].core.scopes().get(gone)
            if known is not None:
                self.scopes[node].core.lost(known)
        self.send()

    def restart(self, node: str, *, unheard: bool) -> None:
        """A new life begins; `unheard`: before the others have heard of the end of the former."""
        for other in NODES:
            if other == node:
                continue
            if unheard:
                self.ways.pop((node, other), None)
                self.ways.pop((other, node), None)
                self.news.append((other, self.scopes[node].core.me))
            else:
                self.disconnect(node, other)
        self.scopes[node] = scope(node)

    def hear_news(self) -> None:
        """The ends of former lives are heard at last."""
        for node, gone in self.news:
            self.scopes[node].core.lost(gone)
        self.news.clear()
        self.send()

    def look(self) -> None:
        """Every scope beats, and calls for those that it does not hear."""
        for node, it in self.scopes.items():
            it.core.beat()
            for other in NODES:
                if other != node and other not in it.core.scopes():
                    self.post(node, other, None, it.core.greet())
        self.send()

    def settle(self) -> None:
        self.cut.clear()
        for turn in range(4):
            self.look()
            if turn == 1:
                self.hear_news()
            while any(self.ways.values()):
                for way in list(self.ways):
                    self.deliver(way)

    def check(self) -> None:
        wanted: dict[Any, Counter[FakeRef]] = {}
        for it in self.scopes.values():
            for key, members in it.truth.items():
                wanted.setdefault(key, Counter()).update(members)
        wanted = {key: +members for key, members in wanted.items() if +members}
        for it in self.scopes.values():
            assert it.core.is_in_step
            assert {(type(group), group) for group in it.core.groups()} == set(wanted)
            for (_, group), members in wanted.items():
                assert Counter(it.core.members(group)) == members
                own = Counter({ref: count for ref, count in members.items() if ref.node == it.node})
                assert Counter(it.core.local_members(group)) == own
            assert {key: +told for key, told in it.told.items() if +told} == wanted, "who monitors knows the same"


WAYS = [(one, other) for one in NODES for other in NODES if one != other]


class Story:
    """What happens to three scopes, by dice: and in the end they agree."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = Cluster()
        self.actors: dict[str, list[Any]] = {
            node: [FakeRef(node, str(number)) for number in range(3)] for node in NODES
        }

    def some(self) -> tuple[str, Scope, Any, list[Any]]:
        """A node, its scope, a group, and one to three actors there."""
        node = self.dice.choice(NODES)
        actors = [self.dice.choice(self.actors[node]) for _ in range(self.dice.randint(1, 3))]
        return node, self.cluster.scopes[node], self.dice.choice(GROUPS), actors

    def join(self) -> None:
        _, it, group, refs = self.some()
        it.core.join(group, refs)
        it.truth.setdefault((type(group), group), Counter()).update(refs)
        self.cluster.send()

    def leave(self) -> None:
        _, it, group, refs = self.some()
        members = it.truth.get((type(group), group), Counter())
        leaving = Counter(refs) & members
        assert it.core.leave(group, refs) == bool(leaving)
        members.subtract(leaving)
        self.cluster.send()

    def end(self) -> None:
        node, it, _, (gone, *_) = self.some()
        it.core.ended(gone)
        for members in it.truth.values():
            del members[gone]
        self.actors[node][self.actors[node].index(gone)] = FakeRef(node, "another")
        self.cluster.send()

    def deliver(self) -> None:
        way = self.dice.choice(WAYS)
        for _ in range(self.dice.randint(1, 5)):
            self.cluster.deliver(way)

    def lose(self) -> None:
        self.cluster.lose(self.dice.choice(WAYS))

    def look(self) -> None:
        self.cluster.look()

    def disconnect(self) -> None:
        way = self.dice.choice(WAYS)
        self.cluster.disconnect(*way)
        if self.dice.random() < 0.5:
            self.cluster.cut.add(frozenset(way))

    def restart(self) -> None:
        self.cluster.restart(self.dice.choice(NODES), unheard=self.dice.random() < 0.5)

    def agree(self) -> None:
        self.cluster.settle()
        self.cluster.check()

    def play(self, steps: int, happenings: list[Callable[[], None]]) -> None:
        """So many steps, each one of these; a scope never has members of a node whose scope it does not hear."""
        for _ in range(steps):
            self.dice.choice(happenings)()
            for it in self.cluster.scopes.values():
                heard = {it.node, *it.core.scopes()}
                for group in it.core.groups():
                    assert {ref.node for ref in it.core.members(group)} <= heard
        self.agree()


@given(st.integers(0, 2**32))
@settings(max_examples=examples(400))
def test_scopes_that_lose_messages_agree(seed: int) -> None:
    story = Story(seed)
    story.agree()
    story.play(30, [story.join, story.leave, story.end, story.deliver, story.lose, story.look])
    story.play(10, [story.join, story.leave, story.deliver, story.lose])


@given(st.integers(0, 2**32))
@settings(max_examples=examples(400))
def test_scopes_of_nodes_that_come_and_go_agree_and_have_no_ghosts(seed: int) -> None:
    story = Story(seed)
    usual = [story.join, story.join, story.leave, story.end, story.deliver, story.deliver, story.lose, story.look]
    for _ in range(3):
        story.play(20, [*usual, story.disconnect, story.restart])


@given(st.integers(1, 9), st.integers(1, 40))
def test_a_large_scope_is_told_in_parts(part: int, members: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(membership, "SNAPSHOT_MEMBERS", part)
        cluster = Cluster()
        it = cluster.scopes["a"]
        for number in range(members):
            ref: Any = FakeRef("a", str(number))
            group = number % 4
            it.core.join(group, [ref])
            it.truth.setdefault((int, group), Counter())[ref] += 1
        cluster.send()
        cluster.settle()
        cluster.check()


def test_what_no_scope_would_say_is_counted_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.settle()
    core: Any = cluster.scopes["a"].core
    there: Any = cluster.scopes["b"].core.me
    of_b, of_a, of_c = FakeRef("b"), FakeRef("a"), FakeRef("c")
    nonsense: list[Any] = [
        None,
        "join",
        (),
        ("join", there, "1", "lobby", [of_b]),
        ("join", "b", 1, "lobby", [of_b]),
        ("join", core.me, 1, "lobby", [of_a]),
        ("unknown", there, 1),
    ]
    for message in nonsense:
        core.hear(message)
    assert core.refused == len(nonsense)
    assert core.is_in_step
    for claim in ([of_a], [of_c], ["anna"], 5, [None]):
        core.hear(("join", there, 1, "lobby", claim))
        assert not core.is_in_step, "its number is not believed either"
        cluster.send()
        cluster.settle()
        assert core.is_in_step
    core.hear(("join", there, 1, ["no", "key"], [of_b]))
    cluster.send()
    cluster.settle()
    monkeypatch.setattr(membership, "MAX_MEMBERS", 3)
    core.hear(("join", there, 1, "lobby", [of_b] * 4))
    cluster.send()
    cluster.settle()
    assert core.groups() == []
    cluster.check()
