"""Whatever happens in the log, and whenever clients come, follow and go: each knows at the end how it stands."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import trio
from hypothesis import example, given, settings
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.door_connection import DoorConnection
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.wire.home_door import EntityNews, GoneNews, QuestionNews, TransferNews
from batonpass.homeserver.door.news import DoorNewsroom
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.master_questions import Questions
from batonpass.tree.member.watching import Watch
from batonpass.tree.store.store import Store as TreeStore
from batonpass.tree.store.watch import History
from tests.budget import examples

PLAYERS = ("alpha.ada", "alpha.bob", "")
ENTITIES = ("alpha.one", "alpha.two", "alpha.three")


class At1000(Clock):
    def unix_s(self) -> float:
        return 1000.0


class Listener:
    """A client that takes all that it is told."""

    def __init__(self, player: str) -> None:
        self.player = player
        self.followed: frozenset[str] = frozenset()
        self.entities: dict[str, dict[str, Any] | None] = {}
        self.transfers: dict[str, str] = {}
        self.questions: list[str] = []
        sender: Any = SimpleNamespace(send_now=lambda _: True)
        self.connection = DoorConnection(player, sender, self.take, lambda: None)

    def take(self, message: Any) -> bytes:
        """In the place of the encoding."""
        match message:
            case EntityNews():
                self.entities[message.entity["id"]] = message.entity
            case GoneNews():
                self.entities[message.entity] = None
            case TransferNews():
                self.transfers[message.transfer["transfer_id"]] = message.transfer["phase"]
            case QuestionNews():
                self.questions.append(message.question["transfer_id"])
            case _:
                raise AssertionError(message)
        return b""


class Member:
    """One member's rows, and its newsroom."""

    def __init__(self) -> None:
        self.rows, self.history = TreeStore(), History()
        self.history.attach(self.rows)
        self.watches: list[Watch] = []
        backend: Any = SimpleNamespace(store=self.rows, watch=self.watch)
        self.store = InstanceStore(lambda: backend)
        questions = Questions(self.store, lambda: backend, At1000())
        self.newsroom = DoorNewsroom(self.store, lambda: backend, questions, At1000())
        self.listeners: list[Listener] = []
        self.revision = 1

    def watch(self, pattern: Any) -> Watch:
        made = Watch(self.history.watch(pattern, max_pending_events=4))
        self.watches.append(made)
        return made

    def put(self, entity: str, owner: str, master: str) -> None:
        self.revision += 1
        record = EntityRecord(
            id=entity, kind="ball", master=master, owner=owner, owner_rev=self.revision, authority="alpha.s1"
        )
        self.rows.put(("entities", entity), record.to_row())

    def delete(self, entity: str) -> None:
        if self.rows.exists(("entities", entity)):
            self.rows.delete(("entities", entity))

    def transfer(self, number: int, entity: str, requester: str, phase: Phase) -> None:
        transfer = TransferRecord(
            # A transfer is of one entity for good.
            id=f"{entity}-{number}",
            entity=entity,
            source="alpha.s1",
            target="alpha.s2",
            # Nobody is asked in nobody's name.
            requester=requester or ("alpha.bob" if phase is Phase.ASKED else ""),
            phase=phase,
            ask_expires_at_s=2000,
        )
        self.rows.put(("transfers", transfer.id), transfer.to_row())
        self.rows.put(("asks", entity), [transfer.id])


entities = st.sampled_from(ENTITIES)
players = st.sampled_from(PLAYERS)
masters = st.sampled_from(PLAYERS[:2])
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("put"), entities, players, masters),
        st.tuples(st.just("delete"), entities),
        st.tuples(st.just("transfer"), st.integers(0, 2), entities, players, st.sampled_from(list(Phase))),
        st.tuples(st.just("join"), players),
        st.tuples(st.just("follow"), st.integers(0, 3), st.frozensets(entities)),
        st.tuples(st.just("leave"), st.integers(0, 3)),
        # What comes without a pause comes at once, and more than a watch keeps.
        st.tuples(st.just("pause")),
    ),
    max_size=40,
)


# Each player is there, and has something.
BEGINNING: list[tuple[Any, ...]] = [
    *(("put", entity, player, "alpha.ada") for entity, player in zip(ENTITIES, PLAYERS, strict=True)),
    *(("join", player) for player in PLAYERS),
    ("pause",),
]


async def play(happened: list[tuple[Any, ...]], then: Callable[[Member], Awaitable[None]]) -> None:
    member = Member()
    async with trio.open_nursery() as nursery:
        await nursery.start(member.newsroom.serve)
        for kind, *what in happened:
            match kind:
                case "put" | "delete" | "transfer":
                    getattr(member, kind)(*what)
                case "join":
                    listener = Listener(*what)
                    member.listeners.append(listener)
                    member.newsroom.join(listener.connection)
                case "follow" if what[0] < len(member.listeners):
                    listener = member.listeners[what[0]]
                    listener.followed = what[1]
                    member.newsroom.follow(listener.connection, sorted(what[1]))
                case "leave" if what[0] < len(member.listeners):
                    member.newsroom.leave(member.listeners.pop(what[0]).connection)
                case "pause":
                    await wait_all_tasks_blocked()
                case _:
                    pass  # of a client that is not there
        # Long enough for a newsroom that was cut to read everything anew.
        await trio.sleep(10)
        await then(member)
        nursery.cancel_scope.cancel()


def check(member: Member) -> None:
    """Every client knows how what concerns it stands."""
    for listener in member.listeners:
        for entity in ENTITIES:
            record = member.store.entity(entity)
            told = listener.entities.get(entity)
            if record is None:
                # It was told that it is gone, if it had it, or asked for it.
                assert told is None or not listener.player or listener.player not in (told["owner"], told["master"])
                assert entity not in listener.followed or (told is None and entity in listener.entities)
            elif listener.player in {record.owner, record.master} - {""} or entity in listener.followed:
                assert told is not None, (listener.player, entity)
                seen = told["owner"], told["master"], told["owner_rev"]
                assert seen == (record.owner, record.master, record.owner_rev)
            elif told is not None and listener.player:
                # What it had, and has no more, it knows not to have.
                assert listener.player not in (told["owner"], told["master"])
        asked = {transfer.id for _, transfer in member.store.asks_of(listener.player, 1000.0, 100)}
        assert asked <= set(listener.questions)


async def check_and_then_of_others(member: Member) -> None:
    """And nobody is told of what is none of its business."""
    check(member)
    for listener in member.listeners:
        member.newsroom.follow(listener.connection, [])
    for _ in range(2):
        for listener in member.listeners:
            listener.entities.clear()
        for entity in ENTITIES:
            member.put(entity, "alpha.eve", "alpha.eve")
            await trio.sleep(1)
    newcomer = Listener("alpha.ada")
    member.newsroom.join(newcomer.connection)
    await trio.sleep(1)
    assert [listener.entities for listener in (*member.listeners, newcomer)] == [{}] * (len(member.listeners) + 1)


# One is told that he has an entity, and follows it no more; the event that gave it to him is lost, and it ends.
@example(
    [
        *(("put", "alpha.one", "alpha.ada", "alpha.ada"),) * 4,
        ("put", "alpha.one", "alpha.ada", "alpha.bob"),
        ("follow", 1, frozenset({"alpha.one"})),
        ("delete", "alpha.one"),
        ("follow", 1, frozenset()),
    ]
)
# More than a watch keeps, and one of them is that an entity is gone.
@example([("put", "alpha.one", "alpha.ada", "alpha.bob")] * 5 + [("delete", "alpha.one"), ("delete", "alpha.two")])
# A question waits, and its entity gets another master.
@example([("transfer", 1, "alpha.one", "alpha.bob", Phase.ASKED), ("pause",), ("put", "alpha.one", "", "alpha.bob")])
@given(happenings)
@settings(max_examples=examples(200))
def test_every_client_knows_in_the_end_how_what_concerns_it_stands(happened: list[tuple[Any, ...]]) -> None:
    trio.run(play, [*BEGINNING, *happened], check_and_then_of_others, clock=MockClock(autojump_threshold=0.0))


def test_nothing_is_followed_while_nobody_is_there() -> None:
    async def quiet(member: Member) -> None:
        assert member.watches == []

    trio.run(play, BEGINNING[:3], quiet, clock=MockClock(autojump_threshold=0.0))
