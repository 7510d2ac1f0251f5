"""A game that follows its stream from door to door: sent on, refused and taken over, without a network."""

import json
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
from batonpass.simserver.sync.play.doors import MAX_SENT_ON, BadDoor, KnownDoors
from batonpass.simserver.sync.play.session import StreamLost, follow_stream
from tests.simserver.sync.lockstep.bouncers import Bouncers

DOORS = ["http://a:1", "http://b:1", "http://c:1/"]
PATH = "/game/me/7"


def test_the_first_door_is_asked_until_it_fails_and_then_the_next_one_in_turn() -> None:
    doors = KnownDoors(DOORS)
    asked = []
    for _ in range(4):
        asked.append(doors.url_of(PATH))
        doors.failed()
    assert asked == ["http://a:1/game/me/7", "http://b:1/game/me/7", "http://c:1/game/me/7", "http://a:1/game/me/7"]


def test_who_is_sent_on_asks_there_with_the_name_that_the_stream_has_there() -> None:
    doors = KnownDoors("http://a:1/")
    doors.sent_on({"code": "elsewhere", "message": "", "url": "http://z:1/alpha.game"})
    assert doors.url_of(PATH) == "http://z:1/alpha.game/me/7"
    assert doors.url_of("/game/snapshot") == "http://z:1/alpha.game/snapshot"
    doors.failed()
    assert doors.url_of(PATH) == "http://a:1/game/me/7"


def test_after_a_known_door_that_it_was_sent_on_to_the_one_behind_it_is_asked() -> None:
    doors = KnownDoors(DOORS)
    doors.sent_on({"url": "http://b:1/game"})
    doors.failed()
    assert doors.url_of(PATH) == "http://c:1/game/me/7"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"url": 5},
        {"url": "x" * 3000},
        {"url": "game"},
        {"url": "ftp://z/game"},
        {"url": "http:///game"},
        {"url": "http://[/game"},
    ],
)
def test_a_client_is_not_sent_on_to_what_is_no_url(answer: Any) -> None:
    doors = KnownDoors(DOORS)
    with pytest.raises(BadDoor, match="sends this client on"):
        doors.sent_on(answer)
    assert doors.url_of(PATH) == "http://a:1/game/me/7"


def test_a_client_of_https_is_not_sent_on_to_http_where_its_private_id_would_be_seen() -> None:
    doors = KnownDoors("https://a")
    with pytest.raises(BadDoor, match="without encryption"):
        doors.sent_on({"url": "http://a/game"})
    doors.sent_on({"url": "https://b/game"})


def test_without_a_door_there_is_nothing_to_follow() -> None:
    with pytest.raises(ValueError, match="one door at least"):
        KnownDoors([])


class Doors:
    """One stream that is at one door, or at none; other doors know at which."""

    def __init__(self, at: str = "a") -> None:
        self.stream = OfflineStream("one")
        self.at = at
        self.dead: set[str] = set()
        self.asked: list[str] = []

    async def answer(self, request: httpx.Request) -> httpx.Response:
        await trio.sleep(0.01)
        host, (_, name, *rest) = request.url.host, request.url.path.split("/")
        self.asked.append(f"{host} {name}")
        if host in self.dead:
            raise httpx.ConnectError("no connection")
        if not self.at:
            return httpx.Response(503, json={"code": "unavailable", "message": "no server simulates it: ask again"})
        if host != self.at:
            url = f"http://{self.at}:1/{'game' if self.at in 'ab' else 'home.game'}"
            return httpx.Response(307, json={"code": "elsewhere", "message": f"ask {url}", "url": url})
        if rest == ["snapshot"]:
            return httpx.Response(404, json={"code": "no_snapshot", "message": "none"})
        return httpx.Response(200, json=self.stream.answer(rest[0], int(rest[1]), json.loads(request.content)))

    async def pass_time(self) -> None:
        while True:
            await trio.sleep(0.05)
            if self.at:
                self.stream.advance()

    async def hand_over(self, to: str) -> None:
        await trio.sleep(2.0)
        self.at = to

    async def take_over(self, to: str, after_s: float) -> None:
        await trio.sleep(2.0)
        self.dead, self.at = {self.at}, ""
        await trio.sleep(after_s)
        self.at = to


async def test_games_follow_a_hand_over_and_a_takeover_without_losing_or_doubling_an_event(
    autojump_clock: trio.testing.MockClock,
) -> None:
    doors = Doors()
    followers = [StreamFollower(Bouncers(), "game", name) for name in ("me", "you")]

    async def throw(follower: StreamFollower) -> None:
        for at in range(60):
            follower.driver.send_event("throw", str(at))
            await trio.sleep(0.25)

    async with HttpClient(transport=httpx.MockTransport(doors.answer)) as http, trio.open_nursery() as nursery:
        nursery.start_soon(doors.pass_time)
        for follower, urls in zip(followers, (DOORS, DOORS[::-1]), strict=True):
            nursery.start_soon(partial(follow_stream, follower, urls, http=http))
            nursery.start_soon(throw, follower)
        await doors.hand_over("b")
        await doors.take_over("c", after_s=10.0)
        await trio.sleep(4.0)
        nursery.cancel_scope.cancel()
    log = doors.stream.log
    for follower in followers:
        thrown = [event.body for event in log if event.type == "throw" and event.origin == follower.public_id]
        assert thrown == [str(at) for at in range(60)], "none lost, none twice, in order"
    expected = Bouncers()
    hashes = [expected.step(events) for events in StreamRecording("", "", 200, tuple(log)).steps()]
    for follower in followers:
        assert follower.driver.tick > 150
        assert follower.driver.state_hash() == hashes[follower.driver.tick - 1]
    assert [event.type for event in log].count("_d") == 2, "they leave where the stream is at the end"


async def test_who_was_sent_on_asks_there_from_then_on(autojump_clock: trio.testing.MockClock) -> None:
    doors = Doors(at="c")
    async with HttpClient(transport=httpx.MockTransport(doors.answer)) as http:
        with trio.move_on_after(3.0):
            await follow_stream(StreamFollower(Bouncers(), "game", "me"), "http://a:1", http=http)
    assert doors.asked[:2] == ["a game", "c home.game"]
    assert set(doors.asked[1:]) == {"c home.game"}


async def test_doors_that_send_one_on_for_ever_are_asked_within_bounds_and_lost_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        there = "a" if request.url.host == "b" else "b"
        return httpx.Response(307, json={"code": "elsewhere", "message": "", "url": f"http://{there}:1/game"})

    began = trio.current_time()
    follower = StreamFollower(Bouncers(), "game", "me")
    async with HttpClient(transport=httpx.MockTransport(answer)) as http:
        with pytest.raises(StreamLost, match="the stream is always elsewhere; http://"):
            await follow_stream(follower, DOORS, http=http)
    assert follower.connection is Connection.LOST
    # Five times a second, for 15 s; then it says that it leaves.
    assert trio.current_time() - began < 16.0
    assert asked <= (16 * 5 + 1) * (1 + MAX_SENT_ON)
