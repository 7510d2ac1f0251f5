"""To send without a wait: what a peer does not take at once is sent later, whole and in order, and delays no other."""

from collections.abc import Callable, MutableMapping
from typing import Any

import h11
import pytest
import trio
from starlette.websockets import WebSocket
from trio.testing import memory_stream_pair

from batonpass.actors.http.prompt import SEND_NOW, PromptSender
from batonpass.actors.http.server import App, HttpLimits, Room, converse, serve_http
from batonpass.actors.http.websocket import WebSockets
from tests.actors.http.websocket_client import WebSocketClient

# More than the operating system keeps for a peer that does not read.
LARGE = "x" * 8_000_000


def refuse_json(code: str, message: str) -> bytes:
    return f"{code}: {message}".encode()


def holding(accepted: list[WebSocket]) -> App:
    """An application that accepts, lets the test send, and answers pings meanwhile."""

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        websocket = WebSocket(scope, receive, send)
        await websocket.accept()
        accepted.append(websocket)
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass

    return app


async def over_tcp(nursery: trio.Nursery, accepted: list[WebSocket]) -> WebSocketClient:
    serve: Callable[..., Any] = serve_http
    (url,) = await nursery.start(
        lambda task_status: serve(
            holding(accepted),
            "127.0.0.1",
            0,
            error_json=refuse_json,
            websockets=WebSockets(),
            task_status=task_status,
        )
    )
    stream = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
    client = await WebSocketClient.over(stream)
    while not accepted:  # noqa: ASYNC110 — the server tells nobody
        await trio.sleep(0.01)
    return client


def in_memory(nursery: trio.Nursery, app: App) -> trio.abc.HalfCloseableStream:
    ours, other = memory_stream_pair()

    async def serve() -> None:
        with Room(HttpLimits()).entered("10.0.0.1") as seat:
            await converse(other, app, error_json=refuse_json, limits=HttpLimits(), seat=seat, websockets=WebSockets())

    nursery.start_soon(serve)
    return ours


async def test_what_a_peer_takes_at_once_needs_no_task_and_no_wait(nursery: trio.Nursery) -> None:
    accepted: list[WebSocket] = []
    client = await over_tcp(nursery, accepted)
    sender: PromptSender = accepted[0].scope["extensions"][SEND_NOW]
    assert sender.send_now("one")
    assert sender.send_now("two")
    assert [await client.next(), await client.next()] == ["one", "two"]
    await client.stream.aclose()
    nursery.cancel_scope.cancel()


async def test_what_a_peer_does_not_take_at_once_is_kept_and_comes_whole_before_all_that_is_sent_later(
    nursery: trio.Nursery,
) -> None:
    accepted: list[WebSocket] = []
    client = await over_tcp(nursery, accepted)
    sender: PromptSender = accepted[0].scope["extensions"][SEND_NOW]
    assert not sender.send_now(LARGE)
    # One task waits for the peer, one other sends meanwhile: neither may break the frame of the other.
    nursery.start_soon(sender.flush)
    nursery.start_soon(accepted[0].send_text, "after")
    await trio.testing.wait_all_tasks_blocked()
    assert not sender.send_now("amid")
    heard = [await client.next() for _ in range(3)]
    assert heard[0] == LARGE
    assert sorted(map(str, heard[1:])) == ["after", "amid"]
    await sender.flush()
    assert sender.send_now("prompt")
    assert await client.next() == "prompt"
    await client.stream.aclose()
    nursery.cancel_scope.cancel()


async def test_a_peer_that_is_gone_is_told_of_by_name(nursery: trio.Nursery) -> None:
    accepted: list[WebSocket] = []
    client = await WebSocketClient.over(in_memory(nursery, holding(accepted)))
    await client.close()
    sender: PromptSender = accepted[0].scope["extensions"][SEND_NOW]
    with pytest.raises(trio.BrokenResourceError):
        sender.send_now("into the void")
    with pytest.raises(trio.BrokenResourceError):
        await sender.flush()
    nursery.cancel_scope.cancel()


async def test_pieces_of_a_body_may_be_sent_at_once_and_a_question_for_the_head_gets_none(
    nursery: trio.Nursery,
) -> None:
    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        sender: PromptSender = scope["extensions"][SEND_NOW]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first,", "more_body": True})
        sender.send_now("second,")
        await sender.flush()
        await send({"type": "http.response.body", "body": b"third", "more_body": False})

    stream = in_memory(nursery, app)
    for method, expected in (("GET", b"first,second,third"), ("HEAD", b"")):
        http, body = h11.Connection(h11.CLIENT), b""
        asked = http.send(h11.Request(method=method, target="/", headers=[("host", "localhost")])) or b""
        await stream.send_all(asked + (http.send(h11.EndOfMessage()) or b""))
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
        assert body == expected
    nursery.cancel_scope.cancel()
