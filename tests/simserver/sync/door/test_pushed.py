"""What clients are told unasked: one walk over those of a stream, in which none of them can hold up or end another."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from batonpass.actors.http.door_connection import DoorConnection
from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.ports import OpenClient
from batonpass.simserver.sync.door.pushed import PushedClient, StreamPushes
from batonpass.simserver.sync.events.messages import PostedEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal

TICK_S = 0.05


class OpenOne(NamedTuple):
    private_id: str
    known: int


class CountedHost(PolledHost):
    """Counts walks, and can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.walks = 0
        self.fails = ""
        self.refuses = ""

    async def replies_for(self, stream: str, clients: Sequence[OpenClient]) -> Sequence[StreamReply | StreamRefusal]:
        self.walks += 1
        if stream == self.fails:
            raise ZeroDivisionError
        refusal = StreamRefusal(RefusalCode.HISTORY_DROPPED, "it is gone")
        told = await super().replies_for(stream, clients)
        return [refusal if one.private_id == self.refuses else reply for one, reply in zip(clients, told, strict=True)]


class Told:
    """A connection: the ticks that it was told. While it is `slow`, it takes nothing at once."""

    def __init__(self) -> None:
        self.ticks: list[int] = []
        self.slow: trio.Event | None = None
        self.refusal: StreamRefusal | None = None
        self.scope = trio.CancelScope()

    def send_now(self, data: str | bytes) -> bool:
        self.ticks.append(int(data))
        return self.slow is None

    async def flush(self) -> None:
        if self.slow is not None:
            await self.slow.wait()


class Place:
    """A door's pushes in mock time."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.host = CountedHost()
        self.pushes = StreamPushes(self.host)

    async def enter(self, name: str, stream: str = "game") -> Told:
        told = Told()
        reply = await self.host.request(stream, StreamRequest(name, 0))
        connection = DoorConnection(name, told, str)
        client = PushedClient(stream, name, reply.tick, connection, lambda _text, reply: str(reply.tick))

        async def serve() -> None:
            try:
                with told.scope:
                    self.pushes.enter(client)
                    try:
                        await connection.serve()
                    finally:
                        self.pushes.leave(client)
            except StreamRefusal as refusal:
                told.refusal = refusal

        self.nursery.start_soon(serve)
        return told

    async def pass_ticks(self, count: int) -> None:
        await trio.sleep(count * TICK_S + 0.002)
        await wait_all_tasks_blocked()


@pytest.fixture
async def place(nursery: trio.Nursery) -> Place:
    place = Place(nursery)
    await nursery.start(place.pushes.serve)
    return place


async def test_one_walk_a_tick_tells_all_clients_of_a_stream(autojump_clock: MockClock, place: Place) -> None:
    clients = [await place.enter(f"client-{number}") for number in range(20)]
    await place.pass_ticks(10)
    assert place.host.walks == 10
    for told in clients:
        assert told.ticks == list(range(1, told.ticks[-1] + 1))
        assert told.ticks[-1] == 10


async def test_a_client_that_does_not_take_a_reply_is_passed_over_until_it_has_and_delays_no_other(
    autojump_clock: MockClock,
    place: Place,
) -> None:
    slow, quick = await place.enter("slow"), await place.enter("quick")
    await place.pass_ticks(3)
    slow.slow = trio.Event()
    await place.pass_ticks(5)
    assert slow.ticks == quick.ticks[: len(slow.ticks)]
    assert len(quick.ticks) - len(slow.ticks) == 4
    slow.slow.set()
    slow.slow = None
    await place.pass_ticks(2)
    assert slow.ticks[-1] == quick.ticks[-1]
    assert quick.ticks == list(range(1, quick.ticks[-1] + 1)), "it missed no tick"


async def test_a_client_that_is_refused_ends_alone(autojump_clock: MockClock, place: Place) -> None:
    one, other = await place.enter("one"), await place.enter("other")
    await place.pass_ticks(2)
    place.host.refuses = "one"
    await place.pass_ticks(3)
    assert one.refusal is not None
    assert one.refusal.code is RefusalCode.HISTORY_DROPPED
    assert other.refusal is None
    assert other.ticks[-1] - one.ticks[-1] >= 2


async def test_a_fault_ends_the_clients_of_one_stream_and_a_client_that_comes_again_is_told(
    autojump_clock: MockClock, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = await place.enter("me"), await place.enter("me", "another")
    await place.pass_ticks(2)
    place.host.fails = "game"
    with caplog.at_level(logging.CRITICAL, "batonpass.simserver.sync.door.pushed"):
        await place.pass_ticks(2)
    place.host.fails = ""
    assert here.refusal is not None
    assert here.refusal.code is RefusalCode.UNAVAILABLE
    again = await place.enter("me")
    await place.pass_ticks(3)
    assert again.ticks
    assert there.refusal is None
    assert len(there.ticks) > len(here.ticks) + len(again.ticks) - 1


async def test_a_walk_ends_with_the_last_client_of_its_stream(autojump_clock: MockClock, place: Place) -> None:
    told = [await place.enter("one"), await place.enter("two")]
    await place.pass_ticks(2)
    told[0].scope.cancel()
    await place.pass_ticks(2)
    assert told[1].ticks[-1] > told[0].ticks[-1]
    told[1].scope.cancel()
    await place.pass_ticks(1)
    walks = place.host.walks
    await place.pass_ticks(10)
    assert place.host.walks == walks


async def test_streams_that_tick_at_one_moment_share_an_alarm_which_outlives_that_it_is_not_wanted(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    host, told = PolledHost(), list[str]()
    for stream in ("one", "two", "three"):
        await host.request(stream, StreamRequest("me", 0))

    async def wait(stream: str, scope: trio.CancelScope) -> None:
        with scope:
            assert await host.changed(stream, 0) == 1
            told.append(stream)

    scopes = [trio.CancelScope() for _ in range(3)]
    for stream, scope in zip(("one", "two", "three"), scopes, strict=True):
        nursery.start_soon(partial(wait, stream, scope))
        await wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().seconds_to_next_deadline < TICK_S + 0.002
    # The task that has the alarm of all three.
    scopes[0].cancel()
    await trio.sleep(TICK_S + 0.002)
    assert sorted(told) == ["three", "two"]


async def test_what_has_come_when_a_tick_ends_is_told_with_it(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    host, told = PolledHost(), list[list[str]]()
    await host.request("game", StreamRequest("me", 0))

    async def post(at_s: float) -> None:
        await trio.sleep_until(at_s)
        await host.request("game", StreamRequest("me", 0, events=(PostedEvent("shot", ""),)))

    async def tell(known: int) -> None:
        await host.changed("game", known)
        (reply,) = await host.replies_for("game", [OpenOne("me", known)])
        assert isinstance(reply, StreamReply)
        told.append([event.type for event in reply.events if event.origin != "_"])

    # Trio lets tasks that are ready at one moment run in any order.
    for tick in range(20):
        _, due_ns = host.streams.present_tick("game", round(trio.current_time() * 1e9))
        nursery.start_soon(tell, tick)
        nursery.start_soon(post, due_ns / 1e9)
        await wait_all_tasks_blocked()
        mock_clock.jump(due_ns / 1e9 - trio.current_time())
        await wait_all_tasks_blocked()
    assert told == [["shot"]] * 20


async def test_ticks_that_are_late_let_others_have_their_turn(mock_clock: MockClock) -> None:
    host = PolledHost()
    await host.request("game", StreamRequest("me", 0))
    mock_clock.jump(1.0)
    with assert_checkpoints():
        assert await host.changed("game", 0) > 1


async def test_ticks_that_are_told_only_with_a_later_one_are_counted(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    place = Place(nursery)
    await nursery.start(place.pushes.serve)
    told = await place.enter("me")
    await wait_all_tasks_blocked()
    for jump_s in (0.051, 0.05, 0.2, 0.05):
        mock_clock.jump(jump_s)
        await wait_all_tasks_blocked()
    assert told.ticks == [1, 2, 6, 7]
    assert place.pushes.late_ticks == 3


async def test_without_its_task_it_says_so(nursery: trio.Nursery) -> None:
    client = PushedClient("game", "me", 0, DoorConnection("me", Told(), str), lambda text, _reply: text)
    with pytest.raises(RuntimeError, match=r"StreamPushes\.serve"):
        StreamPushes(PolledHost()).enter(client)
