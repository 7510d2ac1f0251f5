"""What clients and homeservers say to each other over a door: all of it, in order, of the present conversation."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import hypothesis.strategies as st
import pytest
import trio
import trio.testing
from hypothesis import given, settings

from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door_connection import DoorConnection, DoorWaiting
from batonpass.actors.http.websocket_client import WebSocketFailed
from batonpass.authority.wire.door import HomeOver, HomeWord, decode_from_door_untrusted, encode_door
from batonpass.authority.wire.home_door import HOME_DOOR_PATH, HOME_SUBPROTOCOL
from batonpass.simserver.players import home_words
from batonpass.simserver.players.home_words import HomeConversations
from tests.actors.http.test_door_connection import SlowPeer
from tests.budget import examples

URLS = ["http://alpha-h1:1", "http://alpha-h2:2/"]


class TalkingHome:
    """A homeserver's end of one conversation."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.heard: list[bytes] = []
        self.is_open = True
        self._say, self._said = trio.open_memory_channel[bytes | WebSocketFailed](math.inf)

    def say(self, word: bytes | WebSocketFailed) -> None:
        self._say.send_nowait(word)

    async def send(self, word: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.heard.append(word)

    async def receive_any(self) -> bytes:
        word = await self._said.receive()
        if isinstance(word, WebSocketFailed):
            raise word
        return word


class Desk:
    """A client at a door, and the homeservers to which it talks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bounds: DoorWaiting | None = None) -> None:
        self.homes: list[TalkingHome] = []
        self.peer = SlowPeer()
        self.connection = DoorConnection("alpha.ada", self.peer, encode_door, lambda: None, bounds)
        self.conversations = HomeConversations(lambda: URLS)
        monkeypatch.setattr(home_words, "open_websocket", self._open)

    @asynccontextmanager
    async def _open(self, url: str, **how: Any) -> AsyncIterator[TalkingHome]:
        assert how["subprotocol"] == HOME_SUBPROTOCOL
        home = TalkingHome(url)
        self.homes.append(home)
        try:
            yield home
        finally:
            home.is_open = False

    def told(self) -> list[Any]:
        return [decode_from_door_untrusted(data) for data in self.peer.taken]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            self.conversations.join(self.connection, nursery)
            nursery.start_soon(self.connection.serve)
            yield
            self.conversations.leave(self.connection)
            nursery.cancel_scope.cancel()


STEPS = st.lists(st.sampled_from(["begin", "client", "home", "fail", "end", "let it take some"]), max_size=30)


@given(STEPS)
@settings(max_examples=examples(100))
def test_all_that_is_said_arrives_in_order_and_nothing_of_a_conversation_of_before(steps: list[str]) -> None:
    async def run(monkeypatch: pytest.MonkeyPatch) -> None:
        desk = Desk(monkeypatch)
        said: list[tuple[TalkingHome, bytes]] = []
        told: list[Any] = []
        present: TalkingHome | None = None
        async with desk.client():
            for number, step in enumerate(steps):
                word = b"%d" % number
                match step:
                    case "begin":
                        desk.conversations.take(b"", desk.connection)
                        await trio.testing.wait_all_tasks_blocked()
                        present = desk.homes[-1]
                        told.append(HomeWord())
                    case "client":
                        desk.conversations.take(word, desk.connection)
                        if present is not None:
                            said.append((present, word))
                    case "home" if present is not None:
                        present.say(word)
                        told.append(HomeWord(data=word))
                    case "fail" if present is not None:
                        present.say(WebSocketFailed("it ends", "too_slow"))
                        told.append(HomeOver(code="too_slow", message="it ends"))
                        present = None
                    case "end":
                        desk.conversations.end(desk.connection)
                        present = None
                    case "let it take some":
                        desk.peer.allow(2)
                    case _:
                        pass
                await trio.testing.wait_all_tasks_blocked()
                assert [home for home in desk.homes if home.is_open] == ([] if present is None else [present])
                assert len(desk.conversations) == (present is not None)
            desk.peer.allow(len(told) + 1)
            await trio.testing.wait_all_tasks_blocked()
            assert desk.told() == told
            assert [(home, word) for home in desk.homes for word in home.heard] == said
        urls = [home.url for home in desk.homes]
        assert urls == [URLS[number % 2].rstrip("/") + HOME_DOOR_PATH for number in range(len(urls))]
        assert not len(desk.conversations)

    with pytest.MonkeyPatch.context() as monkeypatch:
        trio.run(run, monkeypatch)


async def test_nothing_of_what_a_homeserver_says_gives_way_to_states_and_who_takes_none_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch, DoorWaiting(messages=3))
    desk.peer.allow(1)
    with trio.fail_after(60), pytest.RaisesGroup(pytest.RaisesExc(DoorRefused, match="wait for this client")):
        async with desk.client():
            desk.conversations.take(b"", desk.connection)
            await trio.testing.wait_all_tasks_blocked()
            for number in range(4):
                desk.homes[0].say(b"%d" % number)
            await trio.testing.wait_all_tasks_blocked()
            assert not desk.connection.tell_frame(b"a state, which is told later, and once")
            desk.peer.allow(1)
            await trio.testing.wait_all_tasks_blocked()
            assert desk.told() == [HomeWord(), HomeWord(data=b"0")]
            for number in range(4, 9):
                desk.homes[0].say(b"%d" % number)
            await trio.testing.wait_all_tasks_blocked()
            # What was on its way has been taken: it is told nothing more.
            desk.peer.allow(1)
            await trio.sleep_forever()


async def test_a_client_that_says_more_than_a_homeserver_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch)
    monkeypatch.setattr(home_words, "MAX_WAITING_BYTES", 100)
    async with desk.client():
        desk.conversations.take(b"", desk.connection)
        for _ in range(2):
            desk.conversations.take(bytes(50), desk.connection)
        with pytest.raises(DoorRefused) as refused:
            desk.conversations.take(b"1", desk.connection)
        assert refused.value.code == "too_many"
        await trio.testing.wait_all_tasks_blocked()
        # What has gone counts no more.
        assert len(desk.homes[0].heard) == 2


async def test_where_no_homeserver_is_known_or_none_answers_it_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch)
    desk.peer.allow(9)

    @asynccontextmanager
    async def fails(url: str, **how: Any) -> AsyncIterator[None]:
        if how:
            raise WebSocketFailed(f"{url} cannot be reached")
        yield

    monkeypatch.setattr(home_words, "open_websocket", fails)
    for urls in ([], URLS):
        conversations = HomeConversations(lambda known=urls: known)  # type: ignore[misc]
        async with trio.open_nursery() as nursery:
            conversations.join(desk.connection, nursery)
            conversations.take(b"", desk.connection)
        assert not len(conversations)
    assert [(over.type, over.code) for over in desk.told()] == 2 * [("home_over", "home_unreachable")]
