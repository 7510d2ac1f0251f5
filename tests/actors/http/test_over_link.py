"""HTTP over the link: who asks has a proved name, each is answered, and nobody's messages stop the others."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.actors.http.link_client import LinkTransport
from batonpass.actors.http.link_frames import (
    HTTP_CHANNEL,
    BadLinkFrame,
    LinkAnswer,
    LinkAsk,
    read_link_answer_untrusted,
    read_link_ask_untrusted,
    write_link_answer,
    write_link_ask,
)
from batonpass.actors.http.link_server import MAX_UNDER_WAY, PROVED_PEER, LinkHttpServer
from batonpass.actors.link import Address
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.crypto.keys import Identity, PublicIdentity
from tests.budget import examples

SERVER, ADA, BOB = "alpha.s1", "alpha.ada", "alpha.bob"
KEYS = {name: Identity.generate() for name in (SERVER, ADA, BOB)}
NUMBERS = st.integers(0, 2**64 - 1)
LIMIT_S = 60.0


class Names:
    async def keys_of(self, name: str) -> PublicIdentity | None:
        await trio.lowlevel.checkpoint()
        found = KEYS.get(name)
        return None if found is None else found.public


@dataclass
class Echo:
    """Says who has asked for what; `/wait` waits, and `/fail` fails."""

    go_on: trio.Event = field(default_factory=trio.Event)
    under_way: int = 0
    most: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        if scope["path"] == "/fail":
            raise ZeroDivisionError
        if scope["path"] == "/wait":
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await self.go_on.wait()
            self.under_way -= 1
        who = f"{scope['extensions'][PROVED_PEER]} {scope['client'][0]} {scope['method']} {scope['raw_path'].decode()}"
        await send({"type": "http.response.start", "status": 201, "headers": [(b"x", b"y")]})
        await send({"type": "http.response.body", "body": who.encode() + b" ", "more_body": True})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Served:
    app: Echo
    stop: trio.CancelScope
    link: LinkEndpoint
    counts: Counter[str]
    nursery: trio.Nursery

    async def client(self, name: str, *, unreachable_after_s: float = 5.0) -> tuple[LinkEndpoint, HttpClient]:
        link = LinkEndpoint(name, KEYS[name], Names(), unreachable_after_s=unreachable_after_s)
        await self.nursery.start(link.serve)

        async def address_of(server: str) -> Address:
            await trio.lowlevel.checkpoint()
            if server != SERVER:
                raise OSError(f"nobody knows {server}")
            return self.link.address

        transport = LinkTransport(link, address_of)
        await self.nursery.start(transport.serve)
        return link, HttpClient(transport=transport, timeout_s=LIMIT_S)


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            link, app, counts = LinkEndpoint(SERVER, KEYS[SERVER], Names()), Echo(), Counter[str]()
            stop = trio.CancelScope()

            async def serve(*, task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED) -> None:
                with stop:
                    await link.serve(task_status=task_status)

            await nursery.start(serve)
            await nursery.start(LinkHttpServer(app, link, counts).serve)
            yield Served(app, stop, link, counts, nursery)
            nursery.cancel_scope.cancel()


@settings(max_examples=examples(60))
@given(NUMBERS, st.sampled_from(["GET", "POST", "DELETE"]), st.from_regex(r"/[!-~]{0,60}", fullmatch=True), st.binary())
def test_a_request_is_read_as_it_was_written(number: int, method: str, path: str, body: bytes) -> None:
    ask = LinkAsk(number, method, path, body)
    assert read_link_ask_untrusted(write_link_ask(ask)) == ask
    with pytest.raises(BadLinkFrame):
        read_link_answer_untrusted(write_link_ask(ask))


@settings(max_examples=examples(60))
@given(NUMBERS, st.integers(200, 599), st.binary())
def test_an_answer_is_read_as_it_was_written(number: int, status: int, body: bytes) -> None:
    answer = LinkAnswer(number, status, body)
    assert read_link_answer_untrusted(write_link_answer(answer)) == answer
    with pytest.raises(BadLinkFrame):
        read_link_ask_untrusted(write_link_answer(answer))


@pytest.mark.parametrize("path", ["no-slash", "/with space", "/umlaut-ä", "/line\nfeed", "/" + "x" * 3_000])
def test_what_is_no_path_is_not_sent(path: str) -> None:
    with pytest.raises(BadLinkFrame):
        write_link_ask(LinkAsk(1, "GET", path, b""))


@pytest.mark.parametrize("data", [b"", b"\1", b"\1" + bytes(10), b"\1" + bytes(8) + b"\x09\x00GET /", b"\3" * 40])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(BadLinkFrame):
        read_link_ask_untrusted(data)


async def test_each_peer_is_asked_for_by_its_proved_name_and_has_its_own_answer() -> None:
    async with served() as server:
        (_, ada), (_, bob) = await server.client(ADA), await server.client(BOB)
        async with ada, bob:
            for name, client in ((ADA, ada), (BOB, bob), (ADA, ada)):
                answer = await client.request("POST", f"link://to/{SERVER}/a%20b/7?c=1", json={"d": 2})
                assert (answer.status, answer.body) == (201, f'{name} {name} POST /a%20b/7 {{"d":2}}'.encode())


async def test_more_requests_than_may_be_under_way_wait_and_other_peers_do_not() -> None:
    async with served() as server:
        (_, ada), (_, bob) = await server.client(ADA), await server.client(BOB)
        statuses: list[int] = []

        async def ask() -> None:
            statuses.append((await ada.request("GET", f"link://to/{SERVER}/wait")).status)

        async with ada, bob:
            async with trio.open_nursery() as nursery:
                for _ in range(3 * MAX_UNDER_WAY):
                    nursery.start_soon(ask)
                while server.app.under_way < MAX_UNDER_WAY:  # noqa: ASYNC110 -- a counter, which has no event
                    await trio.sleep(0.002)
                assert (await bob.request("GET", f"link://to/{SERVER}/here")).status == 201
                assert statuses == []
                server.app.go_on.set()
            assert (statuses, server.app.most) == ([201] * 3 * MAX_UNDER_WAY, MAX_UNDER_WAY)


async def test_an_application_that_fails_and_messages_that_are_no_requests_harm_nobody() -> None:
    async with served() as server:
        (link, ada), (_, bob) = await server.client(ADA), await server.client(BOB)
        async with ada, bob:
            for junk in (b"", b"junk", write_link_answer(LinkAnswer(1, 200, b""))):
                await link.send(SERVER, server.link.address, junk, channel=HTTP_CHANNEL)
            assert (await ada.request("GET", f"link://to/{SERVER}/fail")).status == 500
            assert (await bob.request("GET", f"link://to/{SERVER}/here")).status == 201
            assert server.counts == {"link_requests": 2, "link_requests_malformed": 3, "link_requests_failed": 1}


async def test_an_answer_counts_only_from_the_server_that_was_asked() -> None:
    async with served() as server:
        bob = LinkEndpoint(BOB, KEYS[BOB], Names())
        await server.nursery.start(bob.serve)
        link, ada = await server.client(ADA)
        answers: list[bytes] = []

        async def ask() -> None:
            answers.append((await ada.request("GET", f"link://to/{SERVER}/wait")).body)

        async with ada, trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while not server.app.under_way:  # noqa: ASYNC110 -- a counter, which has no event
                await trio.sleep(0.002)
            # Numbers are drawn, and not known to others. What if they were?
            (transport,) = [one for one in (ada._http._transport,) if isinstance(one, LinkTransport)]
            (number,) = transport._asked
            await bob.send(ADA, link.address, write_link_answer(LinkAnswer(number, 200, b"lie")), channel=HTTP_CHANNEL)
            while bob.backlog(ADA).messages:  # noqa: ASYNC110 -- as above
                await trio.sleep(0.002)
            assert answers == []
            server.app.go_on.set()
        assert answers == [f"{ADA} {ADA} GET /wait ".encode()]


async def test_a_server_that_dies_without_a_word_after_it_was_asked_is_noticed() -> None:
    async with served() as server:
        link, ada = await server.client(ADA, unreachable_after_s=0.5)
        async with ada, trio.open_nursery() as nursery:
            failures: list[str] = []

            async def ask() -> None:
                try:
                    await ada.request("GET", f"link://to/{SERVER}/wait")
                except HttpFailed as failed:
                    failures.append(str(failed))

            nursery.start_soon(ask)
            while not server.app.under_way or link.backlog(SERVER).messages:  # noqa: ASYNC110 -- no event of it
                await trio.sleep(0.002)
            # Its request is acknowledged, so the link expects nothing any more.
            server.link._say_goodbye = lambda udp: None  # type: ignore[method-assign]
            server.stop.cancel()
        assert "PeerUnreachable" in failures[0]


async def test_a_server_that_ends_has_its_clients_told_and_one_that_is_unknown_is_an_error() -> None:
    async with served() as server:
        link, ada = await server.client(ADA)
        async with ada:
            for url in ("link://to/alpha.s9/here", "link://to/", "link://elsewhere/alpha.s1/here", "http://a/b/c"):
                with pytest.raises(HttpFailed):
                    await ada.request("GET", url)
            failures: list[HttpFailed] = []

            async def ask() -> None:
                try:
                    await ada.request("GET", f"link://to/{SERVER}/wait")
                except HttpFailed as failed:
                    failures.append(failed)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                while not server.app.under_way:  # noqa: ASYNC110 -- a counter, which has no event
                    await trio.sleep(0.002)
                server.stop.cancel()
            assert "does not answer" in str(failures[0])
            assert link.is_serving
