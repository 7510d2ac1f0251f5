"""No address has more than its share of what is under way, however many clients it has."""

import trio
from trio.testing import wait_all_tasks_blocked

from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.shares import AddressShares
from batonpass.simserver.sync.door.stream_door import StreamDoor
from batonpass.simserver.sync.events.messages import StreamReply, StreamRequest
from tests.simserver.ports import TrioClock
from tests.simserver.sync.door.doors import OpenDoor


class Users:
    """Requests that are under way until they are told to end."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.shares = AddressShares(100)
        self.under_way: list[str] = []
        self._ends: dict[str, trio.Event] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._nursery = nursery

    async def begin(self, name: str, size_bytes: int, place: str = "here") -> None:
        async def use() -> None:
            with self._scopes[name]:
                async with self.shares.taken(place, "game", size_bytes):
                    self.under_way.append(name)
                    try:
                        await self._ends[name].wait()
                    finally:
                        self.under_way.remove(name)

        self._ends[name], self._scopes[name] = trio.Event(), trio.CancelScope()
        self._nursery.start_soon(use)
        await wait_all_tasks_blocked()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await wait_all_tasks_blocked()

    async def cancel(self, name: str) -> None:
        self._scopes[name].cancel()
        await wait_all_tasks_blocked()


async def test_what_is_more_than_the_share_of_an_address_waits_in_order_and_other_addresses_do_not(
    nursery: trio.Nursery,
) -> None:
    users = Users(nursery)
    for name, size_bytes in (("a", 60), ("b", 40), ("c", 50), ("d", 1)):
        await users.begin(name, size_bytes)
    await users.begin("other", 100, "there")
    assert users.under_way == ["a", "b", "other"]
    await users.end("b")
    assert users.under_way == ["a", "other"], "d is small, and not before c"
    await users.end("a")
    assert sorted(users.under_way) == ["c", "d", "other"]
    for name in ("c", "d", "other"):
        await users.end(name)
    assert len(users.shares) == 0


async def test_what_is_more_than_a_share_in_itself_is_under_way_alone(nursery: trio.Nursery) -> None:
    users = Users(nursery)
    for name, size_bytes in (("small", 1), ("large", 1_000), ("late", 1)):
        await users.begin(name, size_bytes)
    assert users.under_way == ["small"]
    await users.end("small")
    assert users.under_way == ["large"]
    await users.end("large")
    assert users.under_way == ["late"]
    await users.end("late")


async def test_one_that_is_gone_before_or_in_its_turn_keeps_nothing(nursery: trio.Nursery) -> None:
    users = Users(nursery)
    for name in "abc":
        await users.begin(name, 100)
    await users.cancel("b")
    await users.cancel("a")
    assert users.under_way == ["c"]
    await users.cancel("c")
    assert len(users.shares) == 0


class BusyHost(PolledHost):
    """Answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = trio.Event()
        self.asked = 0

    async def request(self, stream: str, request: StreamRequest) -> StreamReply:
        self.asked += 1
        await self.may_answer.wait()
        return await super().request(stream, request)


async def test_one_address_with_many_clients_leaves_room_for_those_of_others(nursery: trio.Nursery) -> None:
    host = BusyHost()
    opened = OpenDoor(nursery, StreamDoor(host, TrioClock()))
    body = '{"State": {"x": "%s"}}' % ("x" * 15_000)
    for number in range(20):
        nursery.start_soon(opened.ask, "POST", f"/game/greedy-{number}/0", body)
    await wait_all_tasks_blocked()
    assert host.asked == 8, "128 KiB"
    nursery.start_soon(opened.ask, "POST", "/another/greedy/0", body)
    await wait_all_tasks_blocked()
    assert host.asked == 9, "another stream has an inbox of its own"
    async with trio.open_nursery() as others:
        for number in range(3):
            others.start_soon(lambda name: opened.ask("POST", f"/game/{name}/0", body, place="10.0.0.2"), f"b{number}")
        await wait_all_tasks_blocked()
        assert host.asked == 12
        host.may_answer.set()


async def test_snapshots_that_come_slowly_keep_nobody_at_their_address_from_asking(nursery: trio.Nursery) -> None:
    opened = OpenDoor(nursery, StreamDoor(PolledHost(), TrioClock()))
    assert (await opened.ask("POST", "/game/me/0")).status == 200
    for number in range(5):
        stream = opened.connect()
        head = f"PUT /game/slow-{number}/snapshot/20 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n"
        await stream.send_all(head.encode())
    await wait_all_tasks_blocked()
    assert (await opened.ask("POST", "/game/me/0")).status == 200
    elsewhere = await opened.ask("PUT", "/game/me/snapshot/20", "{", place="10.0.0.2")
    assert elsewhere.status == 400, "four of an address are read at one time, and others go on"
