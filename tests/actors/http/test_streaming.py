"""Answers that go on: sent as they are made, ended with their reader, never held in memory."""

from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
import trio
from fastapi import FastAPI
from trio.testing import MockClock, memory_stream_one_way_pair, memory_stream_pair, wait_all_tasks_blocked

from batonpass.actors.http.app import prepare_app
from batonpass.actors.http.server import App, ErrorJson, HttpLimits, Room, converse
from batonpass.actors.http.streaming import EventStream, JsonLines, Stream, server_sent_event

LIMITS = HttpLimits()
GET = b"GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Source:
    """Pieces, one for each `more`; tells whether it is still asked for them."""

    def __init__(self, *, kind: type[Stream] = EventStream) -> None:
        self.kind = kind
        self.give, self._take = trio.open_memory_channel[bytes](100)
        self.ended = trio.Event()
        self.taken = 0

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._take:
            self.taken += 1
            yield piece

    def app(self) -> FastAPI:
        app = FastAPI()
        prepare_app(app)

        @app.get("/stream")
        async def stream() -> Stream:
            return self.kind(self.pieces(), on_end=self.ended.set)

        return app


async def conversed(stream: trio.abc.HalfCloseableStream, app: App, error_json: ErrorJson, limits: HttpLimits) -> None:
    with Room(limits).entered("10.0.0.1") as seat:
        await converse(stream, app, error_json=error_json, limits=limits, seat=seat)


Serve = Callable[[Source], trio.abc.HalfCloseableStream]


@pytest.fixture
def serve(nursery: trio.Nursery) -> Serve:
    def start(source: Source) -> trio.abc.HalfCloseableStream:
        ours, theirs = memory_stream_pair()
        refuse = lambda code, message: f"{code}: {message}".encode()  # noqa: E731
        nursery.start_soon(partial(conversed, theirs, source.app(), error_json=refuse, limits=LIMITS))
        return ours

    return start


async def until_has(stream: trio.abc.ReceiveStream, expected: bytes) -> bytes:
    data = b""
    while expected not in data:
        piece = await stream.receive_some()
        assert piece, data
        data += bytes(piece)
    return data


async def test_pieces_arrive_as_they_are_made_and_another_request_may_follow(serve: Serve) -> None:
    source = Source(kind=JsonLines)
    peer = serve(source)
    await peer.send_all(GET)
    await source.give.send(b"first\n")
    head = await until_has(peer, b"first\n")
    assert b"200 OK" in head
    assert b"content-type: application/x-ndjson" in head
    assert b"content-length" not in head
    await peer.send_all(b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await source.give.send(b"second\n")
    await until_has(peer, b"second\n")
    assert not source.ended.is_set()
    await source.give.aclose()
    await source.ended.wait()
    await until_has(peer, b"404 Not Found")


@pytest.mark.parametrize("politely", [True, False])
async def test_it_ends_when_the_reader_hangs_up_though_there_is_nothing_to_send(serve: Serve, politely: bool) -> None:
    source = Source()
    peer = serve(source)
    await peer.send_all(GET)
    await until_has(peer, b"text/event-stream")
    if politely:
        await peer.send_eof()
    else:
        await peer.aclose()
    with trio.fail_after(90):
        await source.ended.wait()


async def test_a_reader_that_takes_nothing_is_given_up_and_costs_one_piece(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    source = Source()
    ours, theirs = memory_stream_pair()
    blocked, _ = memory_stream_one_way_pair()

    async def never() -> None:
        await trio.sleep_forever()

    blocked.send_all_hook = never
    half = trio.StapledStream(blocked, theirs.receive_stream)
    nursery.start_soon(partial(conversed, half, source.app(), error_json=lambda _c, _m: b"{}", limits=LIMITS))
    for _ in range(5):
        await source.give.send(b"piece")
    await ours.send_all(GET)
    await wait_all_tasks_blocked()
    assert source.taken <= 1
    await source.ended.wait()
    assert trio.current_time() == pytest.approx(LIMITS.send_s)


async def test_a_peer_that_never_stops_talking_is_not_listened_to_without_end(serve: Serve) -> None:
    source = Source()
    peer = serve(source)
    await peer.send_all(GET)
    await until_has(peer, b"text/event-stream")
    sent = 0
    with trio.move_on_after(0.2):
        for _ in range(100):
            await peer.send_all(b"x" * 65536)
            sent += 1
    await source.give.send(b"still here")
    await until_has(peer, b"still here")
    await peer.aclose()


async def test_a_request_that_asks_for_another_protocol_has_its_stream_until_it_hangs_up(serve: Serve) -> None:
    source = Source()
    peer = serve(source)
    await peer.send_all(b"GET /stream HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
    await until_has(peer, b"text/event-stream")
    await wait_all_tasks_blocked()
    await source.give.send(b"piece")
    await until_has(peer, b"piece")


def test_an_event_has_its_kind_its_data_in_one_line_and_its_id() -> None:
    assert server_sent_event('{"T":1}') == b'data: {"T":1}\n\n'
    assert server_sent_event("é", kind="cut", event_id=7) == "event: cut\ndata: é\nid: 7\n\n".encode()
