"""WebSockets of the HTTP server: an application has them as ASGI says, and a peer can end its own and nothing else."""

import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect
from trio.testing import MockClock, memory_stream_one_way_pair, memory_stream_pair, wait_all_tasks_blocked
from websockets.frames import Opcode

from batonpass.actors.http.app import prepare_app
from batonpass.actors.http.server import App, HttpLimits, Room, converse, serve_http
from batonpass.actors.http.websocket import WebSocketLimits, WebSockets
from tests.actors.http.websocket_client import WebSocketClient

LIMITS = HttpLimits()
BOUNDS = WebSocketLimits(message_bytes=1000, message_frames=5, close_s=0.05)


def refuse_json(code: str, message: str) -> bytes:
    return f"{code}: {message}".encode()


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            message = await websocket.receive()
            websocket._raise_on_disconnect(message)
            await websocket.send({**message, "type": "websocket.send"})
    except WebSocketDisconnect as gone:
        websocket.app.state.gone = gone.code


async def dialect(websocket: WebSocket) -> None:
    await websocket.accept(subprotocol=websocket.scope["subprotocols"][-1])
    await websocket.close(4001, "enough")


async def denied(websocket: WebSocket) -> None:
    await websocket.send_denial_response(JSONResponse({"code": "no_such_game"}, 404))


async def fault(websocket: WebSocket) -> None:
    if "late" in websocket.query_params:
        await websocket.accept()
    raise ZeroDivisionError("the secret is in the text of this error")


async def never(_websocket: WebSocket) -> None:
    await trio.sleep_forever()


async def flood(websocket: WebSocket) -> None:
    await websocket.accept()
    while True:
        await websocket.send_bytes(b"x" * 100_000)


def app() -> FastAPI:
    """Made of routes of Starlette, as they are for any server."""
    made = FastAPI()
    prepare_app(made)
    for handler in (dialect, denied, fault, never, flood):
        made.router.add_websocket_route(f"/{handler.__name__}", handler)
    made.router.add_websocket_route("/", echo)

    @made.get("/")
    async def plain() -> str:
        return "plain"

    return made


async def until_true(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 — a counter tells nobody
        await trio.sleep(0.01)


HOSTS = ("game.example",)
Connect = Callable[..., trio.abc.HalfCloseableStream]


@pytest.fixture
def offer() -> WebSockets:
    return WebSockets(limits=BOUNDS)


@pytest.fixture
def connect(nursery: trio.Nursery, offer: WebSockets) -> Connect:
    def start(served: App | None = None, *, theirs: Any = None, room: Room | None = None) -> Any:
        ours, other = memory_stream_pair()

        async def serve() -> None:
            with (room or Room(LIMITS)).entered("10.0.0.1") as seat:
                stream = other if theirs is None else theirs(other)
                await converse(
                    stream,
                    served or app(),
                    error_json=refuse_json,
                    limits=LIMITS,
                    seat=seat,
                    websockets=offer,
                    hosts=HOSTS,
                )

        nursery.start_soon(serve)
        return ours

    return start


async def answered(stream: trio.abc.HalfCloseableStream, request: bytes) -> bytes:
    """All that the server sends for a request until it hangs up."""
    await stream.send_all(request)
    data = b""
    while piece := await stream.receive_some():
        data += bytes(piece)
    return data


# ---- what is right ----


async def test_messages_of_both_kinds_go_there_and_back_and_a_close_is_answered(
    connect: Connect, offer: WebSockets
) -> None:
    served = app()
    client = await WebSocketClient.over(connect(served))
    assert client.status == 101
    for message in ("zwölf", b"\x00\xff", ""):
        await client.send(message)
        assert await client.next() == message
    assert offer.counts.open == 1
    assert await client.close() == 1000
    await wait_all_tasks_blocked()
    assert served.state.gone == 1000
    assert (offer.counts.open, offer.counts.accepted, offer.counts.faulty) == (0, 1, 0)


async def until(stream: trio.abc.ReceiveStream, expected: bytes) -> bytes:
    data = b""
    while expected not in data:
        piece = await stream.receive_some()
        assert piece, data
        data += bytes(piece)
    return data


async def test_what_the_client_sends_with_its_request_is_not_lost_and_no_extension_is_agreed_on(
    connect: Connect,
) -> None:
    stream = connect()
    asked = handshake(upgrade="WebSocket", connection="keep-alive, Upgrade", sec_websocket_extensions=DEFLATE)
    await stream.send_all(asked + b"\x81\x85\0\0\0\0early")
    data = await until(stream, b"early")
    assert data.startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in data.lower()


async def test_the_application_chooses_the_dialect_and_the_code_of_its_close(connect: Connect) -> None:
    stream = connect()
    await stream.send_all(handshake("/dialect", sec_websocket_protocol="a, b"))
    data = await until(stream, b"enough")
    assert b"sec-websocket-protocol: b\r\n" in data
    assert data.endswith(b"\x88\x08" + (4001).to_bytes(2, "big") + b"enough")


async def test_a_connection_may_ask_for_a_websocket_after_other_requests(connect: Connect) -> None:
    stream = connect()
    await stream.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await until(stream, b'"plain"')
    client = await WebSocketClient.over(stream)
    await client.send("hello")
    assert await client.next() == "hello"


# ---- the handshake ----

GOOD = {
    "host": "game.example:8080",
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


DEFLATE = "permessage-deflate; client_max_window_bits"


def handshake(path: str = "/", **changed: str | None) -> bytes:
    headers = {**GOOD, **{name.replace("_", "-"): value for name, value in changed.items()}}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (handshake(sec_websocket_version="8"), b"426", b"websocket_version"),
        (handshake(sec_websocket_key=None), b"400", b"bad_handshake"),
        (handshake(sec_websocket_key="short"), b"400", b"bad_handshake"),
        (handshake(sec_websocket_key="AAAA"), b"400", b"bad_handshake"),
        (handshake(content_length="3"), b"400", b"bad_handshake"),
        (handshake("/nowhere"), b"403", b"websocket_refused"),
        (handshake("/fault"), b"500", b"internal_error"),
        (handshake("/denied"), b"404", b"no_such_game"),
    ],
)
async def test_a_handshake_that_is_not_taken_has_an_answer_that_says_why(
    connect: Connect, offer: WebSockets, request_: bytes, status: bytes, code: bytes
) -> None:
    answer = await answered(connect(), request_)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert code in answer
    assert b"secret" not in answer
    assert (offer.counts.accepted, offer.counts.refused) == (0, 1)


async def test_a_page_whose_own_name_points_here_opens_nothing(connect: Connect, offer: WebSockets) -> None:
    """To the browser it is one origin with this server."""
    answer = await answered(connect(), handshake(host="evil.example:8080", origin="http://evil.example:8080"))
    assert answer.startswith(b"HTTP/1.1 421")
    assert b"host_refused" in answer
    assert offer.counts.accepted == 0


@pytest.mark.parametrize(
    ("origin", "allowed", "is_let_in"),
    [
        ("http://game.example:8080", (), True),
        ("http://GAME.example:8080", (), True),
        ("http://game.example", (), False),
        ("https://game.example", (), False),
        ("http://evil.example", (), False),
        ("http://game.example:8080.evil.example", (), False),
        ("http://game.example:8080@evil.example", (), False),
        ("null", (), False),
        ("", (), False),
        ("http://[", (), False),
        ("https://friend.example", ("https://friend.example",), True),
        ("https://friend.example.evil", ("https://friend.example",), False),
        ("null", ("*",), True),
        (None, (), True),
    ],
)
async def test_a_page_of_another_origin_opens_nothing_unless_the_server_is_told_so(
    nursery: trio.Nursery, origin: str | None, allowed: tuple[str, ...], is_let_in: bool
) -> None:
    ours, theirs = memory_stream_pair()
    offer = WebSockets(frozenset(allowed), BOUNDS)

    async def serve() -> None:
        with Room(LIMITS).entered("10.0.0.1") as seat:
            await converse(
                theirs, app(), error_json=refuse_json, limits=LIMITS, seat=seat, websockets=offer, hosts=HOSTS
            )

    nursery.start_soon(serve)
    await ours.send_all(handshake(origin=origin))
    data = bytes(await ours.receive_some())
    assert data.startswith(b"HTTP/1.1 101 " if is_let_in else b"HTTP/1.1 403 ")
    assert is_let_in or b"origin_refused" in data


async def test_a_server_without_websockets_answers_as_if_none_were_asked_for(nursery: trio.Nursery) -> None:
    ours, theirs = memory_stream_pair()

    async def serve() -> None:
        with Room(LIMITS).entered("10.0.0.1") as seat:
            await converse(theirs, app(), error_json=refuse_json, limits=LIMITS, seat=seat, hosts=HOSTS)

    nursery.start_soon(serve)
    await ours.send_all(handshake())
    assert bytes(await ours.receive_some()).startswith(b"HTTP/1.1 200 ")


async def test_an_application_that_does_not_come_to_accept_is_given_up(
    connect: Connect, autojump_clock: MockClock
) -> None:
    answer = await answered(connect(), handshake("/never"))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert BOUNDS.accept_s <= trio.current_time() < BOUNDS.accept_s + 5


# ---- peers that do wrong ----


async def test_a_message_that_is_too_long_ends_its_connection_and_no_other(connect: Connect, offer: WebSockets) -> None:
    served = app()
    good, bad = [await WebSocketClient.over(connect(served)) for _ in range(2)]
    await bad.send("x" * (BOUNDS.message_bytes + 1))
    assert await bad.until_over() == 1009
    await good.send("x" * BOUNDS.message_bytes)
    assert await good.next() == "x" * BOUNDS.message_bytes
    assert (offer.counts.open, offer.counts.faulty) == (1, 1)


async def test_a_peer_that_gives_no_sign_of_life_is_asked_for_one_and_then_given_up(
    connect: Connect, offer: WebSockets, autojump_clock: MockClock
) -> None:
    stream = connect()
    await stream.send_all(handshake())
    data = b""
    while piece := await stream.receive_some():
        data += bytes(piece)
        assert trio.current_time() <= BOUNDS.ping_s
    assert data.count(b"\x89\x00") == 1
    assert offer.counts.silent == 1
    assert trio.current_time() < 2 * BOUNDS.ping_s + LIMITS.linger_s + BOUNDS.close_s + 1


async def test_a_quiet_peer_that_answers_pings_stays(connect: Connect, autojump_clock: MockClock) -> None:
    client = await WebSocketClient.over(connect())
    with trio.move_on_after(20 * BOUNDS.ping_s):
        while True:
            await client.read()
    assert not client.is_over
    assert len([frame for frame in client.frames if frame.opcode is Opcode.PING]) >= 10


async def test_a_peer_that_takes_nothing_is_dropped_alone_and_counted(
    connect: Connect, offer: WebSockets, autojump_clock: MockClock
) -> None:
    blocked, _ = memory_stream_one_way_pair()
    sent = 0

    async def only_the_head() -> None:
        nonlocal sent
        sent += 1
        if sent > 1:
            await trio.sleep_forever()

    blocked.send_all_hook = only_the_head
    served = app()
    good = await WebSocketClient.over(connect(served))
    slow = connect(served, theirs=lambda other: trio.StapledStream(blocked, other.receive_stream))
    await slow.send_all(handshake("/flood"))
    with trio.fail_after(BOUNDS.send_s + BOUNDS.close_s + LIMITS.linger_s + 1):
        await until_true(lambda: offer.counts.slow)
    await good.send("still here")
    assert await good.next() == "still here"
    assert offer.counts.slow == 1
    assert offer.counts.open == 1


async def test_a_fault_of_the_application_is_logged_and_closes_with_1011(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = await WebSocketClient.over(connect(), "ws://localhost/fault?late")
    assert await client.until_over() == 1011
    assert "ZeroDivisionError" in caplog.text


async def test_one_that_is_open_keeps_its_place_while_others_come(connect: Connect) -> None:
    room = Room(replace(LIMITS, connections=2))
    client = await WebSocketClient.over(connect(room=room))
    for _ in range(5):
        await connect(room=room).send_all(b"GET / HT")
        await wait_all_tasks_blocked()
    await client.send("still here")
    assert await client.next() == "still here"


async def test_one_that_does_not_take_its_message_makes_room(connect: Connect) -> None:
    blocked, _ = memory_stream_one_way_pair()
    room = Room(replace(LIMITS, connections=1))
    sent = 0

    async def only_the_head() -> None:
        nonlocal sent
        sent += 1
        if sent > 1:
            await trio.sleep_forever()

    blocked.send_all_hook = only_the_head
    slow = connect(room=room, theirs=lambda other: trio.StapledStream(blocked, other.receive_stream))
    await slow.send_all(handshake("/flood"))
    await wait_all_tasks_blocked()
    client = await WebSocketClient.over(connect(room=room))
    await client.send("hello")
    assert await client.next() == "hello"


garbage = st.lists(
    st.binary(max_size=40)
    | st.sampled_from(
        [b"\x81\x85\0\0\0\0hello", b"\x89\x80\0\0\0\0", b"\x01\x80\0\0\0\0", b"\x88\x80\0\0\0\0", b"\x80"]
    )
)


@given(sent=garbage)
def test_no_bytes_after_the_handshake_make_more_than_an_end(sent: list[bytes]) -> None:
    offer = WebSockets(limits=BOUNDS)

    async def main() -> None:
        ours, theirs = memory_stream_pair()
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                with Room(LIMITS).entered("10.0.0.1") as seat:
                    await converse(
                        theirs, SERVED, error_json=refuse_json, limits=LIMITS, seat=seat, websockets=offer, hosts=HOSTS
                    )

            nursery.start_soon(serve)
            try:
                await ours.send_all(handshake() + b"".join(sent))
                await ours.send_eof()
                while await ours.receive_some():
                    pass
            except trio.BrokenResourceError:
                pass

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert offer.counts.open == 0
    assert offer.counts.accepted == 1


SERVED = app()


# ---- over TCP ----


async def test_over_tcp_a_server_that_ends_says_1001_to_all_and_a_slow_reader_holds_nobody_up(
    nursery: trio.Nursery,
) -> None:
    offer = WebSockets(limits=replace(BOUNDS, send_s=0.2))
    stop = trio.CancelScope()

    async def serve(*, task_status: trio.TaskStatus[list[str]]) -> None:
        with stop:
            serve = partial(serve_http, app(), "127.0.0.1", 0, error_json=refuse_json, websockets=offer, hosts=HOSTS)
            await serve(task_status=task_status)

    (url,) = await nursery.start(serve)
    port = int(url.rpartition(":")[2])
    slow = await trio.open_tcp_stream("127.0.0.1", port)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await slow.send_all(handshake("/flood"))
    clients = [await WebSocketClient.over(await trio.open_tcp_stream("127.0.0.1", port)) for _ in range(5)]
    while not offer.counts.slow:
        for number, client in enumerate(clients):
            await client.send(f"{number}")
            assert await client.next() == f"{number}"
    stop.cancel()
    assert [await client.until_over() for client in clients] == [1001] * 5
    for client in clients:
        await client.stream.aclose()
    await slow.aclose()


async def test_who_is_reset_is_no_line_in_the_log_above_debug(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    offer = WebSockets(limits=BOUNDS)
    (url,) = await nursery.start(partial(serve_http, app(), "127.0.0.1", 0, error_json=refuse_json, websockets=offer))
    client = await WebSocketClient.over(await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])))
    client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # type: ignore[attr-defined]
    await client.stream.aclose()
    await until_true(lambda: not offer.counts.open)
    assert caplog.records == []
