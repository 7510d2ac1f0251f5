"""Who reads the socket: the task that waits, one at a time, and somebody always when it is needed."""

import math
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from batonpass.actors.net.poller import YIELDS_IN_A_ROW, Parked, Poller


class Post:
    """A letter box at a socket: the first byte of a datagram says for whom it is."""

    def __init__(self) -> None:
        self.pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.pair[0].setblocking(False)
        self.letters: dict[str, deque[bytes]] = {"a": deque(), "b": deque()}
        self.parked: dict[str, Parked] = {"a": deque(), "b": deque()}
        self.readers: list[str] = []
        self.settled = 0
        self.poller = Poller(self.drain, self.settle)

    def drain(self) -> bool:
        self.readers.append("stand_in" if "stand_in" in trio.lowlevel.current_task().name else "receiver")
        has_come = False
        while True:
            try:
                letter = self.pair[0].recv(100)
            except BlockingIOError:
                return has_come
            has_come = True
            whom = letter[:1].decode()
            self.letters[whom].append(letter)
            self.poller.wake(self.parked[whom])

    def settle(self) -> None:
        self.settled += 1

    def write(self, letter: bytes) -> None:
        self.pair[1].send(letter)

    async def read(self, whom: str) -> bytes:
        with trio.fail_after(90):
            while not self.letters[whom]:
                await self.poller.wait(self.parked[whom])
        return self.letters[whom].popleft()


@asynccontextmanager
async def serving() -> AsyncIterator[Post]:
    post = Post()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(post.poller.stand_in, post.pair[0])
        await trio.testing.wait_all_tasks_blocked()
        try:
            yield post
        finally:
            nursery.cancel_scope.cancel()
            for end in post.pair:
                trio.lowlevel.notify_closing(end)
                end.close()


async def test_whoever_comes_back_reads_for_itself() -> None:
    async with serving() as post:
        for number in range(5):
            post.write(b"a%d" % number)
            assert await post.read("a") == b"a%d" % number
        assert post.readers[0] == "stand_in"
        assert set(post.readers[1:]) == {"receiver"}
        assert post.settled >= 5


async def test_when_nobody_waits_the_stand_in_reads() -> None:
    async with serving() as post:
        for _ in range(2):
            post.write(b"a")
            await post.read("a")
        post.write(b"b")
        with trio.fail_after(90):
            while not post.letters["b"]:  # noqa: ASYNC110 -- nothing here that waits may be known to the lookout
                await trio.sleep(0.001)
        assert post.readers[-1] == "stand_in"


async def test_one_reads_for_all() -> None:
    async with serving() as post, trio.open_nursery() as nursery:
        got: list[bytes] = []

        async def reader(whom: str, count: int) -> None:
            for _ in range(count):
                got.append(await post.read(whom))

        nursery.start_soon(reader, "a", 50)
        nursery.start_soon(reader, "b", 50)
        for number in range(50):
            post.write(b"a%d" % number)
            post.write(b"b%d" % number)
            if number % 7 == 0:
                await trio.testing.wait_all_tasks_blocked()
    assert sorted(got) == sorted([b"a%d" % number for number in range(50)] + [b"b%d" % number for number in range(50)])
    assert not any(post.parked.values())


async def test_a_reader_that_gives_up_leaves_nobody_waiting() -> None:
    async with serving() as post, trio.open_nursery() as nursery:
        post.write(b"a")
        await post.read("a")
        scope = trio.CancelScope()

        async def give_up() -> None:
            with scope:
                await post.read("a")

        nursery.start_soon(give_up)
        await trio.testing.wait_all_tasks_blocked()
        got: list[bytes] = []

        async def other() -> None:
            got.append(await post.read("b"))

        nursery.start_soon(other)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()  # it was the one that read
        await trio.testing.wait_all_tasks_blocked()
        post.write(b"b")
    assert got == [b"b"]


@pytest.mark.parametrize("is_parked", [True, False])
async def test_everything_may_be_cancelled_in_one_turn(is_parked: bool) -> None:
    """The stand-in and who reads, in either order: nobody is woken twice."""
    for _ in range(20):
        post = Post()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post.poller.stand_in, post.pair[0])
            await trio.testing.wait_all_tasks_blocked()
            post.write(b"a")
            await post.read("a")
            nursery.start_soon(post.read, "a")
            if is_parked:
                nursery.start_soon(post.read, "b")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        for end in post.pair:
            end.close()


async def test_who_waits_before_there_is_a_socket_is_served_when_there_is() -> None:
    post = Post()
    async with trio.open_nursery() as nursery:
        got: list[bytes] = []

        async def early() -> None:
            got.append(await post.read("a"))
            nursery.cancel_scope.cancel()

        nursery.start_soon(early)
        await trio.testing.wait_all_tasks_blocked()
        post.write(b"a")
        nursery.start_soon(post.poller.stand_in, post.pair[0])
    assert got == [b"a"]
    for end in post.pair:
        end.close()


async def test_an_answer_that_is_there_already_takes_no_turn_of_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """But others get theirs now and then."""
    monkeypatch.setattr("batonpass.actors.net.poller._MAX_YIELD_S", math.inf)  # on a core that others use, too
    async with serving() as post, trio.open_nursery() as nursery:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        post.write(b"a")
        await post.read("a")
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        turns_before = []
        # In which order trio resumes two tasks is chance, so one turn is not always one of the other's: many are.
        for number in range(30 * YIELDS_IN_A_ROW):
            turns_before.append(turns)
            post.write(b"a%d" % number)
            post.poller.has_asked = True
            assert await post.read("a") == b"a%d" % number
        assert len(set(turns_before[:YIELDS_IN_A_ROW])) == 1
        assert len(set(turns_before)) > 2
        nursery.cancel_scope.cancel()


async def test_where_yielding_does_not_help_it_is_hardly_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as post, trio.open_nursery() as nursery:
        yields = 0

        def counted() -> None:
            nonlocal yields
            yields += 1

        monkeypatch.setattr("os.sched_yield", counted)

        async def answer() -> None:
            for _ in range(1000):
                await trio.testing.wait_all_tasks_blocked()
                post.write(b"a")

        nursery.start_soon(answer)
        for _ in range(1000):
            post.poller.has_asked = True
            await post.read("a")
        assert 5 <= yields <= 15


async def test_one_that_waits_for_something_else_is_not_kept_waiting_by_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who takes one answer after the other without a turn lets the stand-in look for the others."""
    monkeypatch.setattr("batonpass.actors.net.poller._MAX_YIELD_S", math.inf)
    async with serving() as post, trio.open_nursery() as nursery:
        got: list[bytes] = []

        async def reader() -> None:
            got.append(await post.read("b"))

        post.write(b"a")
        await post.read("a")
        nursery.start_soon(reader)
        await trio.testing.wait_all_tasks_blocked()
        post.write(b"a1")
        post.write(b"b1")
        post.poller.has_asked = True
        assert await post.read("a") == b"a1"
        with trio.fail_after(90):
            while not got:  # noqa: ASYNC110 -- nothing here that waits may be known to the lookout
                await trio.sleep(0.001)
        assert got == [b"b1"]
