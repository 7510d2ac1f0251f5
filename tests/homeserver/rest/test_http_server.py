"""The HTTP server under its applications: what it takes, what it refuses, and that no peer can do more than annoy it.

Both ends are in memory and time jumps, so that a patience of minutes costs nothing and nothing depends on speed.
"""

import json
import logging
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import h11
import pytest
import trio
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from batonpass.actors.http.app import prepare_app
from batonpass.actors.http.server import App, HttpLimits, Room, converse, serve_http
from batonpass.actors.http.web_service import WebService, serve_app

LIMITS = HttpLimits(head_bytes=2048, target_bytes=256, linger_bytes=4096)
BODY_LIMIT = 64 * 1024


def echo_app() -> FastAPI:
    app = FastAPI()
    prepare_app(app)

    @app.get("/thing")
    async def thing(plus: int = 0) -> dict[str, int]:
        return {"answer": 42 + plus}

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        return body

    @app.get("/fault")
    async def fault() -> None:
        raise ZeroDivisionError("the secret is in the text of this error")

    return app


def error_json(code: str, message: str) -> bytes:
    return json.dumps({"code": code, "message": message, "value": None}).encode()


class Peer:
    """A client in memory that sends bytes as they are and reads answers with h11."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def answer(self, method: str = "GET") -> tuple[int, dict[str, str], Any]:
        """The next answer: status, headers, and its JSON (None without a body)."""
        asked = [("host", "localhost"), ("content-length", "0")]
        self._http.send(h11.Request(method=method, target="/", headers=asked))
        self._http.send(h11.EndOfMessage())
        status, headers, body = 0, {}, b""
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self._http.receive_data(bytes(await self.stream.receive_some()))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            assert not isinstance(event, h11.ConnectionClosed), "the connection ended before the answer"
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return status, headers, json.loads(body) if body else None

    async def rest(self) -> bytes:
        """Everything until the server hangs up."""
        data = self._http.trailing_data[0]
        try:
            while piece := await self.stream.receive_some():
                data += piece
        except trio.BrokenResourceError:
            pass
        return data


@pytest.fixture
def connect(nursery: trio.Nursery) -> Callable[..., Peer]:
    def start(
        app: App | None = None, limits: HttpLimits = LIMITS, *, room: Room | None = None, place: str = "10.0.0.1"
    ) -> Peer:
        ours, theirs = memory_stream_pair()

        async def serve() -> None:
            with (room or Room(limits)).entered(place) as seat:
                await converse(theirs, app or echo_app(), error_json=error_json, limits=limits, seat=seat)

        nursery.start_soon(serve)
        return Peer(ours)

    return start


GET = b"GET /thing HTTP/1.1\r\nhost: localhost\r\n\r\n"


def post(body: bytes, *headers: bytes, path: bytes = b"/echo") -> bytes:
    head = (b"POST " + path + b" HTTP/1.1", b"host: localhost", b"content-type: application/json", *headers)
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def sized(body: bytes) -> bytes:
    return b"content-length: %d" % len(body)


# ---- what is right ----


async def test_requests_of_a_connection_are_answered_one_after_the_other(connect: Callable[..., Peer]) -> None:
    peer = connect()
    await peer.send(GET + post(b'{"a": 1}', sized(b'{"a": 1}')) + GET)
    assert [(await peer.answer())[::2] for _ in range(3)] == [
        (200, {"answer": 42}),
        (200, {"a": 1}),
        (200, {"answer": 42}),
    ]


async def test_head_is_get_without_the_body(connect: Callable[..., Peer]) -> None:
    peer = connect()
    await peer.send(b"HEAD /thing HTTP/1.1\r\nhost: localhost\r\n\r\n" + GET)
    status, headers, body = await peer.answer("HEAD")
    assert (status, headers["content-length"], body) == (200, "13", None)
    assert (await peer.answer())[2] == {"answer": 42}


async def test_the_absolute_form_of_a_target_is_taken(connect: Callable[..., Peer]) -> None:
    peer = connect()
    await peer.send(b"GET http://127.0.0.1:80/thing?plus=1 HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (await peer.answer())[2] == {"answer": 43}


async def test_a_body_may_come_in_chunks_and_after_100_continue(connect: Callable[..., Peer]) -> None:
    peer = connect()
    await peer.send(post(b"", b"transfer-encoding: chunked", b"expect: 100-continue"))
    assert b" 100 " in await peer.stream.receive_some()
    for chunk in (b'5\r\n{"a":\r\n', b"2\r\n1}\r\n", b"0\r\n\r\n"):
        await peer.send(chunk)
    assert (await peer.answer())[2] == {"a": 1}


async def test_http_1_0_is_answered_and_hung_up(connect: Callable[..., Peer]) -> None:
    peer = connect()
    await peer.send(b"GET /thing HTTP/1.0\r\n\r\n")
    assert (await peer.answer())[2] == {"answer": 42}
    assert await peer.rest() == b""


async def test_an_upgrade_is_ignored(connect: Callable[..., Peer]) -> None:
    peer = connect()
    for protocol in (b"websocket", b"h2c"):
        await peer.send(
            b"GET /thing HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: " + protocol + b"\r\n\r\n"
        )
        assert (await peer.answer())[2] == {"answer": 42}


# ---- what is wrong ----

WRONG = [
    (b"GET /thing\r\n\r\n", 400, "bad_request"),
    (b"GET /thing HTTP/1.1\r\n\r\n", 400, "bad_request"),
    (b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "bad_request"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), 400, "bad_request"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported"),
    (b"GET /thing HTTP/3.0\r\nhost: localhost\r\n\r\n", 505, "http_version_not_supported"),
    (b"GET /" + b"a" * 300 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 414, "uri_too_long"),
    (b"GET /thing HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 40_000 + b"\r\n\r\n", 431, "headers_too_long"),
    (b"GET /thing HTTP/1.1\r\n" + b"x: a\r\n" * 10_000, 431, "headers_too_long"),
    (b"A" * 64 + b" /thing HTTP/1.1\r\nhost: localhost\r\n\r\n", 501, "not_implemented"),
    (post(b"", b"transfer-encoding: gzip"), 501, "not_implemented"),
    (post(b"zz\r\n", b"transfer-encoding: chunked"), 400, "bad_request"),
    (post(b"ab", b"content-length: 1", b"content-length: 2"), 400, "bad_request"),
    (post(b"", b"content-length: -1"), 400, "bad_request"),
    (b"GET /thing HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421, "host_refused"),
    # The host of an absolute target counts, whatever `Host` says.
    (b"GET http://evil.example/thing HTTP/1.1\r\nhost: localhost\r\n\r\n", 421, "host_refused"),
    (b"GET http://evil.example?thing HTTP/1.1\r\nhost: localhost\r\n\r\n", 421, "host_refused"),
    (post(b"", sized(b""), b"content-type: text/plain"), 400, "bad_request"),
    (post(b"", sized(b""), b"authorization: Bearer a", b"Authorization: Bearer b"), 400, "bad_request"),
    (b"GET /thing%zz HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "bad_request"),
    (b"GET /thing?plus=%1 HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "bad_request"),
    (post(b"0\r\n\r\n", b"content-length: 5", b"transfer-encoding: chunked"), 400, "bad_request"),
]


@pytest.mark.parametrize(("sent", "status", "code"), WRONG, ids=[f"{w[2]}-{n}" for n, w in enumerate(WRONG)])
async def test_what_is_not_http_1_1_is_refused_in_json_and_hung_up(
    connect: Callable[..., Peer], autojump_clock: MockClock, sent: bytes, status: int, code: str
) -> None:
    peer = connect()
    await peer.send(sent)
    got, headers, body = await peer.answer()
    assert (got, body["code"], headers["connection"]) == (status, code, "close")
    assert set(body) == {"code", "message", "value"}
    await peer.rest()


async def test_a_body_that_says_it_is_too_long_is_not_even_read(connect: Callable[..., Peer]) -> None:
    peer = connect()
    await peer.send(post(b"", b"content-length: 99999999999999999999"))
    status, headers, body = await peer.answer()
    assert (status, body["code"], body["value"]) == (413, "body_too_long", BODY_LIMIT)
    assert headers["connection"] == "close"


async def test_a_body_that_grows_too_long_is_refused_where_it_does(connect: Callable[..., Peer]) -> None:
    peer = connect()
    await peer.send(post(b"", b"transfer-encoding: chunked"))
    for _ in range(BODY_LIMIT // 1024 + 1):
        await peer.send(b"400\r\n" + b" " * 1024 + b"\r\n")
    assert (await peer.answer())[2]["code"] == "body_too_long"


async def test_a_body_that_is_a_little_too_long_does_not_cost_the_connection(connect: Callable[..., Peer]) -> None:
    peer = connect(limits=replace(LIMITS, linger_bytes=2 * BODY_LIMIT))
    body = b" " * (BODY_LIMIT + 1)
    await peer.send(post(body, sized(body)) + GET)
    status, headers, _ = await peer.answer()
    assert (status, "connection" in headers) == (413, False)
    assert (await peer.answer())[0] == 200


async def test_a_body_that_is_far_too_long_does(connect: Callable[..., Peer], autojump_clock: MockClock) -> None:
    peer = connect()
    body = b" " * (3 * BODY_LIMIT)
    await peer.send(post(body, sized(body)) + GET)
    assert (await peer.answer())[0] == 413
    assert await peer.rest() == b""


async def test_a_body_that_ends_early_is_a_bad_request(connect: Callable[..., Peer]) -> None:
    peer = connect()
    await peer.send(post(b"abc", b"content-length: 100"))
    await peer.stream.send_eof()
    assert (await peer.answer())[::2][0] == 400


async def test_a_fault_is_logged_and_told_without_its_text(
    connect: Callable[..., Peer], caplog: pytest.LogCaptureFixture
) -> None:
    peer = connect()
    await peer.send(b"GET /fault HTTP/1.1\r\nhost: localhost\r\n\r\n" + GET)
    status, _, body = await peer.answer()
    assert (status, body["code"]) == (500, "internal_error")
    assert "secret" not in json.dumps(body)
    assert "ZeroDivisionError" in caplog.text
    assert (await peer.answer())[0] == 200


async def test_a_fault_outside_of_the_application_costs_one_connection(
    connect: Callable[..., Peer], caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    peer = connect(broken)
    await peer.send(GET)
    assert await peer.rest() == b""
    assert "ZeroDivisionError" in caplog.text


async def test_an_application_without_an_answer_is_an_internal_error(connect: Callable[..., Peer]) -> None:
    async def silent(*_: Any) -> None:
        pass

    peer = connect(silent)
    await peer.send(GET)
    assert (await peer.answer())[2]["code"] == "internal_error"


# ---- time and numbers ----


async def test_a_silent_connection_is_closed_after_its_time(
    connect: Callable[..., Peer], autojump_clock: MockClock
) -> None:
    peer = connect()
    await peer.send(GET)
    await peer.answer()
    assert await peer.rest() == b""
    assert LIMITS.idle_s <= trio.current_time() <= LIMITS.idle_s + LIMITS.linger_s


async def test_a_head_that_trickles_is_given_up(connect: Callable[..., Peer], autojump_clock: MockClock) -> None:
    peer = connect()
    await trio.sleep(100)
    began_s = trio.current_time()
    await peer.send(b"GET /thing HTTP/1.1\r\n")
    with trio.move_on_after(LIMITS.head_s - 1):
        while True:
            await peer.send(b"x: a\r\n")
            await trio.sleep(1)
    status, _, body = await peer.answer()
    assert (status, body["code"]) == (408, "request_too_slow")
    assert trio.current_time() - began_s == pytest.approx(LIMITS.head_s)


async def test_a_body_that_trickles_is_given_up(connect: Callable[..., Peer], autojump_clock: MockClock) -> None:
    peer = connect()
    await peer.send(post(b"", b"content-length: 1000"))
    with trio.move_on_after(LIMITS.body_s - 1):
        while True:
            await peer.send(b" ")
            await trio.sleep(1)
    status, _, body = await peer.answer()
    assert (status, body["code"]) == (408, "request_too_slow")
    assert trio.current_time() == pytest.approx(LIMITS.body_s)


async def test_one_connection_too_many_is_told_so(connect: Callable[..., Peer], autojump_clock: MockClock) -> None:
    """If all others work: who waits for its peer would have made room."""
    room = Room(replace(LIMITS, connections=2))
    for who in "ab":
        room.crowd.enter(who, "10.0.0.2")
        room.crowd.works(who)
    peer = connect(room=room)
    status, _, body = await peer.answer()
    assert (status, body["code"]) == (503, "too_many_connections")
    await peer.rest()


HALF_HEAD = b"GET /thing HTTP/1.1\r\nx: "
HALF_BODY = post(b"{", b"content-length: 1000")


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY, post(b"", b"content-length: 2", b"expect: 100-continue")])
async def test_however_many_connect_and_send_no_whole_request_whoever_sends_one_is_answered(
    sent: bytes, connect: Callable[..., Peer], autojump_clock: MockClock
) -> None:
    """From the same address, too."""
    room = Room(replace(LIMITS, connections=20, connections_of_a_place=10))
    for _ in range(3):
        for number in range(40):
            stranger = connect(room=room, place=f"10.0.0.{number % 4}")
            await stranger.send(sent)
            await wait_all_tasks_blocked()
        for place in ("10.0.0.1", "10.9.9.9"):
            peer = connect(room=room, place=place)
            await peer.send(GET)
            assert (await peer.answer())[0] == 200
            await peer.stream.aclose()
    assert trio.current_time() == pytest.approx(0.0), "nobody had to wait until somebody's patience was over"


async def test_whoever_makes_room_in_the_middle_of_a_request_is_told_so(
    connect: Callable[..., Peer], autojump_clock: MockClock
) -> None:
    for sent in (HALF_HEAD, HALF_BODY):
        room = Room(replace(LIMITS, connections=1))
        slow = connect(room=room)
        await slow.send(sent)
        await wait_all_tasks_blocked()
        other = connect(room=room)
        await other.send(GET)
        assert (await other.answer())[0] == 200
        status, headers, body = await slow.answer()
        assert (status, body["code"], headers["connection"]) == (503, "too_many_connections", "close")


async def test_while_many_are_told_that_they_have_to_go_others_are_cut(
    connect: Callable[..., Peer], autojump_clock: MockClock
) -> None:
    """Or those who are sent away would be another crowd."""
    room = Room(replace(LIMITS, connections=4, farewells=2))
    slow = [connect(room=room) for _ in range(4)]
    for peer in slow:
        await peer.send(HALF_HEAD)
    await wait_all_tasks_blocked()
    for _ in range(4):
        await connect(room=room).send(GET)
    told = [await peer.rest() for peer in slow]
    assert sum(b" 503 " in answer for answer in told) == 2
    for peer in slow:
        await peer.stream.aclose()
    await wait_all_tasks_blocked()
    assert room.farewells == 0


async def test_whoever_does_not_take_its_answer_makes_room(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b" " * 2**20, "more_body": True})

    room = Room(replace(LIMITS, connections=1))
    ours, theirs = memory_stream_pair()
    theirs.send_stream.send_all_hook = trio.sleep_forever

    async def never_read() -> None:
        with room.entered("10.0.0.1") as seat:
            await converse(theirs, app, error_json=error_json, limits=LIMITS, seat=seat)
        gone.set()

    gone = trio.Event()
    nursery.start_soon(never_read)
    await ours.send_all(GET)
    await wait_all_tasks_blocked()
    assert not gone.is_set()
    with room.entered("10.0.0.2") as seat:
        assert not seat.is_lost
        await gone.wait()
    assert caplog.records == []


async def test_a_request_that_is_being_worked_on_keeps_its_place(
    connect: Callable[..., Peer], autojump_clock: MockClock
) -> None:
    working, go_on = trio.Event(), trio.Event()
    app = echo_app()

    @app.post("/slow")
    async def slow(body: dict[str, Any]) -> dict[str, Any]:
        working.set()
        await go_on.wait()
        return body

    room = Room(replace(LIMITS, connections=2))
    worker = connect(app, room=room)
    await worker.send(post(b"{}", b"content-length: 2", path=b"/slow"))
    await working.wait()
    for _ in range(5):
        await connect(room=room).send(HALF_HEAD)
        await wait_all_tasks_blocked()
    go_on.set()
    assert (await worker.answer())[::2] == (200, {})


async def test_when_connections_are_too_many_the_longest_idle_one_makes_room(nursery: trio.Nursery) -> None:
    limits = replace(LIMITS, connections=2)
    (url,) = await nursery.start(partial(serve_http, echo_app(), "127.0.0.1", 0, error_json=error_json, limits=limits))

    async def connected() -> Peer:
        peer = Peer(await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])))
        await peer.send(GET)
        assert (await peer.answer())[0] == 200
        return peer

    peers = [await connected() for _ in range(4)]
    assert [await peer.rest() for peer in peers[:2]] == [b"", b""]
    for peer in peers[2:]:
        await peer.send(GET)
        assert (await peer.answer())[0] == 200
    for peer in peers:
        await peer.stream.aclose()


@given(sent=st.lists(st.binary(max_size=64) | st.sampled_from([GET, GET[:-2], b"POST /echo HTTP/1.1\r\n", b"\r\n"])))
def test_no_bytes_make_more_than_answers_and_an_end(sent: list[bytes]) -> None:
    async def main() -> bytes:
        ours, theirs = memory_stream_pair()
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                with Room(LIMITS).entered("10.0.0.1") as seat:
                    await converse(theirs, echo_app(), error_json=error_json, limits=LIMITS, seat=seat)

            nursery.start_soon(serve)
            peer = Peer(ours)
            try:
                await peer.send(b"".join(sent))
                await peer.stream.send_eof()
            except trio.BrokenResourceError:
                pass
            return await peer.rest()

    logging.disable(logging.CRITICAL)
    try:
        answered = trio.run(main, clock=MockClock(autojump_threshold=0))
    finally:
        logging.disable(logging.NOTSET)
    assert answered == b"" or answered.startswith(b"HTTP/1.1 ")
    assert b" 500 " not in answered


# ---- over TCP ----

# Each of these, sent by anybody, has ended a whole server of another make: they reach faults in its HTTP/2 and
# WebSocket code, from where the error takes down every task.
DEADLY = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + bytes(9)
    + bytes.fromhex("00000f 01 05 00000001 82 84 86 41 01 61 44 03 2ffffe"),
    b"GET /thing HTTP/1.1\r\nhost: localhost\r\nupgrade: h2c\r\nhttp2-settings: AAAA\r\n\r\n",
    b"GET /thing HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-protocol: \xff\xfe\r\n\r\n",
]


async def test_a_server_that_is_restarted_comes_back_where_it_was() -> None:
    service = WebService(echo_app(), "127.0.0.1")
    assert service.urls == []
    seen = []
    for _ in range(3):
        async with trio.open_nursery() as nursery:
            (url,) = await nursery.start(service.serve)
            seen.append(url)
            # A connection that is open when it ends does not keep its address.
            peer = Peer(await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])))
            await peer.send(GET)
            assert (await peer.answer())[2] == {"answer": 42}
            nursery.cancel_scope.cancel()
        await peer.stream.aclose()
    assert seen == [*service.urls] * 3


async def test_no_connection_takes_the_server_with_it(nursery: trio.Nursery) -> None:
    (url,) = await nursery.start(serve_app, echo_app(), "127.0.0.1", 0)
    port = int(url.rpartition(":")[2])
    for sent in DEADLY:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(sent)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 ")
        await stream.aclose()
    peer = Peer(await trio.open_tcp_stream("127.0.0.1", port))
    await peer.send(GET)
    assert (await peer.answer())[2] == {"answer": 42}
    await peer.stream.aclose()


async def reset(stream: trio.SocketStream) -> None:
    """End the connection with RST and not with FIN, as a client that is killed, or whose machine is, may do."""
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


CUT_SHORT = {
    "before anything": b"",
    "within the head": b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-",
    "before the body": post(b"", b"content-length: 1000"),
    "within the body": post(b'{"a": "', b"content-length: 1000"),
    "within a chunk": post(b'20\r\n{"a": "', b"transfer-encoding: chunked"),
    "between two chunks": post(b'7\r\n{"a": "\r\n', b"transfer-encoding: chunked"),
    "within what is too long": post(b"x" * 1000, b"content-length: 100000000"),
    "while it is worked on": b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "before the answer is read": b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("sent", CUT_SHORT.values(), ids=CUT_SHORT)
async def test_a_client_that_resets_its_connection_leaves_no_traceback_and_others_are_answered(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    caplog.set_level("INFO")
    app, goes_on = echo_app(), trio.Event()

    @app.get("/slow")
    async def slow() -> str:
        await goes_on.wait()
        return "at last"

    @app.get("/large")
    async def large() -> str:
        return "x" * 50_000_000

    (url,) = await nursery.start(serve_app, app, "127.0.0.1", 0)
    port = int(url.rpartition(":")[2])
    for _ in range(3):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(sent)
        await wait_all_tasks_blocked()
        await reset(stream)
        await wait_all_tasks_blocked()
    goes_on.set()
    await wait_all_tasks_blocked()
    assert caplog.records == []
    peer = Peer(await trio.open_tcp_stream("127.0.0.1", port))
    await peer.send(GET)
    assert (await peer.answer())[2] == {"answer": 42}
    await peer.stream.aclose()
