"""Clients of a stream that is an entity: what they are told is kept, and where it is not simulated they hear where."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.simserver.entity.feed import MAX_QUEUED, EntityChange
from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.entity.table import Holding, Tombstone
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.sync.events.messages import PostedEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.hosting.host import HostedStreams, entity_of
from batonpass.simserver.sync.hosting.world import EventStreams
from tests.simserver.entity.test_passivation import Population
from tests.simserver.ports import TrioClock
from tests.simserver.stage import always

INCARNATION = "0123456789abcdef" * 2
GAME = "alpha.stream-game"


class Copies:
    """Backup replicas that keep what is copied, at once or when the test says so."""

    def __init__(self) -> None:
        self.answer = True
        self.are_any = True
        self.replicas: tuple[str, ...] = ()
        self.asked = self.learnt = 0
        self._owed: list[tuple[Holding, dict[str, int]]] = []

    def awaited_of(self, _entity: str) -> tuple[bool, bool]:
        return self.are_any, True

    async def copy_now(self, due: Sequence[Holding]) -> None:
        for holding in due:
            self.asked += 1
            self._owed.append((holding, {OWN_SOURCE: holding.life.applied(OWN_SOURCE) or 0}))
        if self.answer:
            self.confirm()

    def replicas_of(self, _entity: str) -> tuple[str, ...]:
        return self.replicas

    def learn_replicas(self, then: Callable[[], None]) -> None:
        self.learnt += 1
        then()

    def lose(self) -> None:
        """What was copied went to a server that is dead."""
        self._owed.clear()

    def confirm(self) -> None:
        owed, self._owed = self._owed, []
        for holding, applied in owed:
            holding.life.acceptance.made_durable(holding.life, applied)


class Home:
    """What the home instance says of entities."""

    def __init__(self) -> None:
        self.authority: str | None = None
        self.answers = True
        self.doors = {"alpha.s2": "http://s2", "alpha.s3": "http://s3"}

    async def authority_of(self, _entity: str) -> str | None:
        if not self.answers:
            raise HomeUnreachable("nothing was heard")
        return self.authority

    async def door_of(self, server: str, doors: str = "streams") -> str:
        return self.doors.get(server, "")


class Place:
    """One server with streams, which ticks as fast as it can."""

    def __init__(self, system: System) -> None:
        self.world = EventStreams()
        self.population = Population(system, self.world)
        self.copies, self.home = Copies(), Home()
        environment = self.population.stage.environment
        object.__setattr__(environment, "keeps_copies", lambda: True)
        self.streams = HostedStreams(
            "alpha",
            self.world,
            environment,
            self.population.holdings,
            self.copies,  # type: ignore[arg-type]
            self.home,
            TrioClock(),
            self.population.stage._count,
        )
        self.ticks = True

    def open(self, entity: str = GAME) -> Holding:
        return self.population.holdings.spawn(
            entity, "stream", {"incarnation": INCARNATION}, Fence(1), Ownership("alpha.ada", 1)
        )

    async def next_reply(self, stream: str, client: str, known: int) -> StreamReply:
        await self.streams.changed(stream, known)
        (reply,) = await self.streams.replies_for(stream, [StreamRequest(client, known)])
        assert isinstance(reply, StreamReply)
        return reply

    async def serve_ticks(self) -> None:
        feed = self.population.stage.environment.feed
        number = 0
        while True:
            await trio.sleep(0.05)
            if self.ticks:
                number += 1
                feed.round_begins(number)
                await self.population.round()
                feed.round_is_over()


@pytest.fixture
def place(system: System) -> Place:
    return Place(system)


@asynccontextmanager
async def served(place: Place) -> AsyncIterator[None]:
    await place.population.start()
    async with trio.open_nursery() as nursery:
        await nursery.start(place.streams.serve)
        nursery.start_soon(place.serve_ticks)
        yield
        nursery.cancel_scope.cancel()


def asks(client: str, *events: str, known: int = 0, first: int = 1, **more: Any) -> StreamRequest:
    posted = tuple(PostedEvent("say", body, first + at) for at, body in enumerate(events))
    return StreamRequest(client, known, posted, incarnation=INCARNATION, **more)


def said(reply: StreamReply) -> list[tuple[str, str, str]]:
    return [(event.type, event.origin, event.body) for event in reply.events]


async def test_clients_are_connected_and_have_each_others_events_in_one_order(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        place.open()
        ada = await place.streams.request("game", asks("ada", "hello"))
        bob = await place.streams.request("game", asks("bob", "hi"))
        assert (ada.public_id, ada.acked, bob.public_id, bob.acked) == ("1", 1, "2", 1)
        later = await place.next_reply("game", "ada", bob.tick)
        ((entity, told, stream),) = place.streams.followed()
        assert (entity, stream.connected, stream.tick >= told >= bob.tick) == (GAME, 2, True)
        ada = await place.streams.request("game", asks("ada"))
        assert ada.tick >= later.tick > bob.tick
        assert said(ada) == [
            ("_a", "_", INCARNATION),
            ("_c", "_", "1"),
            ("say", "1", "hello"),
            ("_c", "_", "2"),
            ("say", "2", "hi"),
        ]


async def test_an_event_is_told_and_acknowledged_only_when_a_copy_has_it(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        place.open()
        before = await place.streams.request("game", asks("ada"))
        before = await place.next_reply("game", "ada", before.tick)
        place.copies.answer = False
        replies: list[StreamReply] = []

        async def post() -> None:
            replies.append(await place.streams.request("game", asks("ada", "x", known=before.tick)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(post)
            await trio.sleep(1.0)
            stale = await place.streams.request("game", asks("ada", known=before.tick))
            assert (replies, said(stale), stale.acked) == ([], [], 0)
            place.copies.confirm()
        assert said(replies[0]) == [("say", "1", "x")]
        assert replies[0].acked == 1


async def test_an_event_is_told_early_before_its_tick_and_no_event_that_the_stream_will_refuse(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        place.open()
        begun = await place.streams.request("game", asks("ada"))
        begun = await place.next_reply("game", "ada", begun.tick)
        early: list[tuple[float, list[str]]] = []

        async def listen() -> None:
            told = 0, 0
            while True:
                told, events = await place.streams.early("game", told)
                early.append((trio.current_time(), [event.body for event in events]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await trio.sleep(0.01)
            posted_s = trio.current_time()
            reply = await place.streams.request("game", asks("ada", "x", "y"))
            # The same again, of which the stream takes nothing; and more than the client may send.
            await place.streams.request("game", asks("ada", "x", "y"))
            many = [str(number) for number in range(21)]
            with pytest.raises(StreamRefusal):
                await place.streams.request("game", asks("ada", *many, first=3))
            await place.streams.request("game", asks("nobody", "z"))
            nursery.cancel_scope.cancel()
        assert early == [(posted_s, ["x", "y"])]
        assert [event.body for event in reply.events if event.type == "say"] == ["x", "y"]
        assert place.streams._early_bells == {}


async def test_a_question_that_changes_nothing_costs_no_copy(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        place.open()
        reply = await place.streams.request("game", asks("ada"))
        asked = place.copies.asked
        for _ in range(10):
            reply = await place.streams.request("game", asks("ada", known=reply.tick))
        assert place.copies.asked == asked


async def test_a_client_that_only_listens_stays_and_one_that_is_silent_goes(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        place.open()
        ada = await place.streams.request("game", asks("ada"))
        await place.streams.request("game", asks("bob"))
        heard: list[tuple[str, str, str]] = []
        while ("_d", "_", "2") not in heard:
            ada = await place.next_reply("game", "ada", ada.tick)
            heard += said(ada)
        assert ("_d", "_", "1") not in heard
        await trio.sleep(15)
        assert place.world.may_sleep(place.population.holdings.get(GAME).life.world)  # type: ignore[union-attr]


async def test_what_the_stream_refuses_the_client_is_told(place: Place, autojump_clock: trio.testing.MockClock) -> None:
    async with served(place):
        place.open()
        await place.streams.request("game", asks("ada"))
        with pytest.raises(StreamRefusal) as refused:
            await place.streams.request("game", asks("ada", *"x" * 21))
        assert refused.value.code is RefusalCode.TOO_MANY_EVENTS
        with pytest.raises(StreamRefusal, match="stream-other: create it first"):
            await place.streams.request("other", asks("ada"))
        with pytest.raises(StreamRefusal, match="names no stream"):
            await place.streams.request("no/name", asks("ada"))


async def test_where_a_stream_is_that_is_not_here_is_said(place: Place, autojump_clock: trio.testing.MockClock) -> None:
    async with served(place):
        place.home.authority = "alpha.s2"
        with pytest.raises(StreamRefusal, match=r"alpha\.s2 simulates") as refused:
            await place.streams.request("game", asks("ada"))
        assert (refused.value.status, refused.value.url) == (307, "http://s2/game")
        place.home.authority = "alpha.s3"
        place.home.doors.clear()
        with pytest.raises(StreamRefusal, match="no door that this server knows"):
            await place.streams.request("game", asks("ada"))
        place.home.authority = ""
        with pytest.raises(StreamRefusal, match="no server simulates"):
            await place.streams.request("other", asks("ada"))
        place.home.answers = False
        with pytest.raises(StreamRefusal, match="home does not say where"):
            await place.streams.request("other", asks("ada"))


async def test_where_a_stream_went_from_here_is_said_only_if_the_log_has_not_heard_of_it(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    """Two servers that passed it to each other, one after the other, would send clients in a circle for ever."""
    async with served(place):
        place.population.holdings.remember(GAME, Tombstone("alpha.s3", Fence(2)))
        for says, told in ("alpha.s2", r"alpha\.s2"), (place.population.stage.environment.server, r"alpha\.s3"):
            place.home.authority = says
            with pytest.raises(StreamRefusal, match=told):
                await place.next_reply("game", "ada", 0)


async def test_the_first_event_of_a_stream_is_acknowledged_when_a_copy_has_it(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        place.open()
        place.copies.answer = False
        answered = trio.Event()
        async with trio.open_nursery() as nursery:

            async def post() -> None:
                assert (await place.streams.request("game", asks("ada", "x"))).acked == 1
                answered.set()

            nursery.start_soon(post)
            await trio.sleep(0.5)
            assert not answered.is_set()
            place.copies.answer = True
            place.copies.confirm()


async def test_a_stream_that_has_never_ticked_has_no_snapshot_rather_than_no_answer(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        place.ticks = False
        place.open()
        with pytest.raises(StreamRefusal) as refused:
            await place.streams.snapshot("game")
        assert refused.value.code is RefusalCode.NO_SNAPSHOT


async def test_a_stream_that_leaves_while_a_request_waits_ends_the_request(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        holding = place.open()
        reply = await place.streams.request("game", asks("ada"))
        holding.life.freeze()
        async with trio.open_nursery() as nursery:

            async def post() -> None:
                with pytest.raises(StreamRefusal, match=r"alpha\.s2"):
                    await place.streams.request("game", asks("ada", "x", known=reply.tick))

            nursery.start_soon(post)
            await trio.sleep(0.5)
            place.home.authority = "alpha.s2"
            place.population.holdings.leave(GAME, "alpha.s2", Fence(2))


async def test_a_stream_that_does_not_tick_does_not_keep_its_clients_for_ever(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        place.open()
        place.ticks = False
        with pytest.raises(StreamRefusal, match="did not answer within 3 s"):
            await place.streams.request("game", asks("ada"))
        assert place.population.stage.counts["stream_requests_late"] == 1


@pytest.mark.parametrize(("stream", "says"), [("game", "ask again"), ("beta.game", "the only server of alpha")])
async def test_where_no_other_server_keeps_a_copy_of_a_stream_of_another_instance_its_clients_are_told_so(
    place: Place, autojump_clock: trio.testing.MockClock, stream: str, says: str
) -> None:
    async with served(place):
        place.open()
        place.open("beta.stream-game")
        place.copies.answer = place.copies.are_any = False
        with pytest.raises(StreamRefusal, match=says):
            await place.streams.request(stream, asks("ada"))


async def test_a_refused_hand_over_makes_nothing_durable(place: Place, autojump_clock: trio.testing.MockClock) -> None:
    async with served(place):
        holding = place.open()
        await place.streams.request("game", asks("ada"))
        known = await place.streams.changed("game", 0)
        place.copies.answer = False
        async with trio.open_nursery() as nursery:

            async def post() -> None:
                assert said(await place.streams.request("game", asks("ada", "x", known=known))) == [("say", "1", "x")]

            nursery.start_soon(post)
            await trio.sleep(0.3)
            holding.life.freeze()
            await trio.sleep(0.1)
            holding.life.resume(Fence(2))
            await trio.sleep(0.5)
            stale = await place.streams.request("game", asks("ada", known=known))
            assert (said(stale), stale.acked) == ([], 0)
            place.copies.confirm()


async def test_after_ticks_that_were_missed_nothing_is_told_before_a_copy_is_kept(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        place.open()
        await place.streams.request("game", asks("ada"))
        known = await place.streams.changed("game", 0)
        place.copies.answer = False
        feed = place.population.stage.environment.feed
        async with trio.open_nursery() as nursery:

            async def post() -> None:
                with pytest.raises(StreamRefusal):
                    await place.streams.request("game", asks("ada", "x", known=known))

            nursery.start_soon(post)
            await trio.sleep(0.3)
            for _ in range(MAX_QUEUED + 1):
                feed.changed("alpha.other", Fence(1), 1, EntityChange.ALTERED)
            await trio.sleep(1.0)
            assert place.population.stage.counts["stream_ticks_missed"] == 1
            with trio.move_on_after(1.0) as waited:
                await place.streams.changed("game", 0)
            assert waited.cancelled_caught
        place.copies.answer = True
        place.copies.confirm()
        assert ("say", "1", "x") in said(await place.streams.request("game", asks("ada", "x", known=known)))


async def test_an_event_of_a_tick_that_was_not_committed_is_not_acknowledged(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        holding = place.open()
        await place.streams.request("game", asks("ada"))
        known = await place.streams.changed("game", 0)
        environment = place.population.stage.environment
        object.__setattr__(environment, "may_act", lambda _now_ns: False)
        async with trio.open_nursery() as nursery:

            async def post() -> None:
                assert (await place.streams.request("game", asks("ada", "x", known=known))).acked == 1

            nursery.start_soon(post)
            await trio.sleep(0.5)
            assert place.population.stage.counts["ticks_without_lease"]
            assert holding.life.inbox.pending
            assert (await place.streams.request("game", asks("ada", known=known))).acked == 0
            object.__setattr__(environment, "may_act", always)


async def test_names_of_streams_that_do_not_exist_leave_nothing_behind(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        for number in range(100):
            with pytest.raises(StreamRefusal, match="create it first"):
                await place.streams.request(f"no-{number}", asks("ada"))
        assert len(place.streams._waiting) == 0


def test_a_stream_is_an_entity_of_its_instance() -> None:
    assert entity_of("alpha", "my-game_2") == "alpha.stream-my-game_2"
    assert entity_of("alpha", "beta.game") == "beta.stream-game"


async def test_of_one_client_one_thing_waits_in_the_inbox_at_a_time_so_it_cannot_fill_it(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(place):
        life = place.open().life
        replies: list[StreamReply] = []

        async def ask(client: str, number: int) -> None:
            replies.append(await place.streams.request("game", asks(client, f"{number}", first=number)))

        async with trio.open_nursery() as nursery:
            place.ticks = False
            for number in range(1, 6):
                nursery.start_soon(ask, "ada", number)
            nursery.start_soon(ask, "bob", 1)
            await trio.sleep(1)
            assert len(life.inbox.pending) == 2
            place.ticks = True
        assert len(replies) == 6, "the others waited for their turn"
