"""A game over HTTP: polls and long polls of a stream in memory, requests that fail, and a server that is lost."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from batonpass.actors.http.client import HttpClient
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from batonpass.simserver.sync.lockstep.offline import OfflineStream
from batonpass.simserver.sync.lockstep.recording import StreamRecording
from batonpass.simserver.sync.lockstep.schedule import Connection
from batonpass.simserver.sync.play.session import StreamLost, follow_stream
from tests.simserver.sync.lockstep.bouncers import Bouncers


class Serving:
    """A stream behind HTTP without a network. `fails` says, by the number of the request, with which status."""

    def __init__(self, fails: Callable[[int], int] = lambda number: 0) -> None:
        self.stream = OfflineStream("one")
        self.fails = fails
        self.asked: list[str] = []
        self.moved = trio.Event()

    async def answer(self, request: httpx.Request) -> httpx.Response:
        await trio.sleep(0.02)
        self.asked.append(f"{request.method} {request.url.path}")
        status = self.fails(len(self.asked))
        if status == 1:
            raise httpx.ConnectError("no connection")
        _, _, *names = request.url.path.split("/")
        if status or names == ["snapshot"]:
            return httpx.Response(status or 404, json={"code": "x", "message": "y"})
        body = json.loads(request.content)
        if body.get("Wait") and self.stream.tick <= int(names[1]):
            await self.moved.wait()
        return httpx.Response(200, json=self.stream.answer(names[0], int(names[1]), body))

    async def pass_time(self) -> None:
        while True:
            await trio.sleep(0.05)
            self.stream.advance()
            self.moved.set()
            self.moved = trio.Event()


async def played(serving: Serving, seconds: float, **options: Any) -> list[StreamFollower]:
    """Two clients that play for a time."""
    followers = [StreamFollower(Bouncers(), "game", name) for name in ("me", "you")]
    async with HttpClient(transport=httpx.MockTransport(serving.answer)) as http, trio.open_nursery() as nursery:
        nursery.start_soon(serving.pass_time)
        for follower in followers:
            nursery.start_soon(partial(follow_stream, follower, "http://x/", http=http, **options))
        await trio.sleep(seconds)
        for follower in followers:
            follower.driver.send_event("throw", "5")
        await trio.sleep(seconds)
        serving.fails = lambda number: 0
        nursery.cancel_scope.cancel()
    return followers


@pytest.mark.parametrize("long_poll", [False, True])
async def test_two_games_over_http_have_the_hashes_of_the_log_also_if_requests_fail(
    long_poll: bool, autojump_clock: trio.testing.MockClock
) -> None:
    serving = Serving(lambda number: (0, 0, 0, 1, 0, 503, 0)[number % 7])
    followers = await played(serving, 3.0, long_poll=long_poll)
    log = serving.stream.log
    expected = Bouncers()
    steps = list(StreamRecording("", "", 200, tuple(log)).steps())
    hashes = [expected.step(events) for events in steps]
    for follower in followers:
        assert follower.driver.tick > 80
        assert follower.driver.state_hash() == hashes[follower.driver.tick - 1]
        assert follower.unacknowledged == 0
    assert [event.type for event in log].count("throw") == 2
    assert [event.type for event in log].count("_d") == 2, "clients that end leave"


async def test_polls_come_five_times_a_second_and_one_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    serving = Serving()
    await played(serving, 2.0)
    syncs = [one for one in serving.asked if one.startswith("POST /game/me/")]
    assert 15 <= len(syncs) <= 22


async def test_a_server_that_fails_for_15_s_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    serving = Serving(lambda number: 503 if number > 20 else 0)
    follower, began = StreamFollower(Bouncers(), "game", "me"), trio.current_time()
    async with HttpClient(transport=httpx.MockTransport(serving.answer)) as http, trio.open_nursery() as nursery:
        nursery.start_soon(serving.pass_time)
        with pytest.raises(StreamLost, match=r"at http://x is lost: HTTP 503"):
            await follow_stream(follower, "http://x", http=http)
        nursery.cancel_scope.cancel()
    assert follower.connection is Connection.LOST
    # 20 requests took 4 s.
    assert 18.0 <= trio.current_time() - began <= 21.0


async def test_a_refusal_for_good_is_lost_at_once_with_what_the_server_said(
    autojump_clock: trio.testing.MockClock,
) -> None:
    serving = Serving(lambda number: 400 if number > 1 else 0)
    async with HttpClient(transport=httpx.MockTransport(serving.answer)) as http:
        with trio.fail_after(5), pytest.raises(StreamLost, match="HTTP 400"):
            await follow_stream(StreamFollower(Bouncers(), "game", "me"), "http://x", http=http)


async def test_a_client_goes_where_the_stream_is_and_to_the_next_server_when_one_is_gone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    serving = Serving()
    there, asked = "b", list[str]()

    async def answer(request: httpx.Request) -> httpx.Response:
        host = request.url.host
        asked.append(f"{host}{request.url.path}")
        if host == "a" and there == "c":
            raise httpx.ConnectError("no connection")
        if host == there:
            return await serving.answer(request)
        return httpx.Response(307, json={"code": "elsewhere", "message": "", "url": f"http://{there}/alpha.game"})

    follower = StreamFollower(Bouncers(), "game", "me")
    async with HttpClient(transport=httpx.MockTransport(answer)) as http, trio.open_nursery() as nursery:
        nursery.start_soon(serving.pass_time)
        nursery.start_soon(partial(follow_stream, follower, ["http://a", "http://d"], http=http))
        await trio.sleep(2)
        follower.driver.send_event("throw", "5")
        there = "c"
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert follower.connection is Connection.HEARD
    assert (follower.unacknowledged, follower.behind <= 4, follower.driver.tick > 60) == (0, True, True)
    assert [event.type for event in serving.stream.log] == ["_a", "_c", "throw", "_d"]
    assert sum(one.startswith("a/") for one in asked) == 1, "it is asked where the stream is, not what it has"
    assert "c/alpha.game/me/0" not in asked


@pytest.mark.parametrize("said", [{}, [], {"url": 7}, {"url": "file:///etc/passwd"}, {"url": "http://a/game"}])
async def test_a_server_that_sends_on_to_nowhere_is_lost_after_15_s(
    said: Any, autojump_clock: trio.testing.MockClock
) -> None:
    http = HttpClient(transport=httpx.MockTransport(lambda _: httpx.Response(307, json=said)))
    with trio.fail_after(17), pytest.raises(StreamLost, match="is lost: "):
        await follow_stream(StreamFollower(Bouncers(), "game", "me"), "http://a", http=http)
