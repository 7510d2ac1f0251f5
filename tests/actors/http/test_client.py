"""Answers of other servers are bounded: in bytes, in what a few of them unfold to, in time, and all of them at once."""

import gzip
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial

import httpx
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.http.client import MAX_ANSWER_BYTES, BlockingClient, HttpAnswer, HttpClient, HttpFailed

PIECE = b" " * 65_536


class Liar:
    """A server that answers every request with what it is told to, as fast as it is taken; counts what it has sent."""

    def __init__(self) -> None:
        self.sent = 0
        self.url = ""
        self.headers: list[bytes] = []

    async def serve(
        self, head: bytes, pieces: Callable[[], AsyncGenerator[bytes, None]], *, task_status: trio.TaskStatus[None]
    ) -> None:
        async def answer(stream: trio.SocketStream) -> None:
            request = b""
            while b"\r\n\r\n" not in request:
                request += bytes(await stream.receive_some())
            self.headers.append(request.lower())
            try:
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + head + b"\r\n")
                async with aclosing(pieces()) as them:
                    async for piece in them:
                        await stream.send_all(piece)
                        self.sent += len(piece)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, answer, listeners)
            task_status.started()


async def endless() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"%x\r\n%s\r\n" % (len(PIECE), PIECE)


async def silent() -> AsyncGenerator[bytes, None]:
    yield b"1\r\n \r\n"
    await trio.sleep_forever()


@pytest.fixture
async def liar(nursery: trio.Nursery) -> Liar:
    return Liar()


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    async with HttpClient() as made:
        yield made


CHUNKED = b"transfer-encoding: chunked\r\n"


async def test_an_answer_without_end_is_given_up_at_the_bound(
    liar: Liar, client: HttpClient, nursery: trio.Nursery
) -> None:
    await nursery.start(partial(liar.serve, CHUNKED, endless))
    with pytest.raises(HttpFailed, match=f"longer than {MAX_ANSWER_BYTES} bytes"):
        await client.request("GET", liar.url)
    # What the kernel holds on both sides comes on top.
    assert liar.sent < MAX_ANSWER_BYTES + 32 * 1024 * 1024


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP", "gzip, identity", "whatever"])
async def test_an_answer_that_is_compressed_was_not_asked_for_and_is_not_unfolded(
    encoding: str, liar: Liar, client: HttpClient, nursery: trio.Nursery
) -> None:
    bomb = gzip.compress(bytes(50_000_000))

    async def once() -> AsyncGenerator[bytes, None]:
        yield bomb

    head = b"content-encoding: %s\r\ncontent-length: %d\r\n" % (encoding.encode(), len(bomb))
    await nursery.start(partial(liar.serve, head, once))
    with pytest.raises(HttpFailed, match="encoded as"):
        await client.request("GET", liar.url)
    assert b"accept-encoding: identity" in liar.headers[0]


async def test_an_answer_that_does_not_come_to_its_end_is_given_up_in_time(
    liar: Liar, client: HttpClient, nursery: trio.Nursery
) -> None:
    await nursery.start(partial(liar.serve, CHUNKED, silent))
    with pytest.raises(HttpFailed, match=r"no answer within 0\.2 s"):
        await client.request("GET", liar.url, timeout_s=0.2)


async def test_all_answers_together_are_bounded_and_the_slowest_is_given_up(liar: Liar, nursery: trio.Nursery) -> None:
    first_is_there = trio.Event()

    async def slow() -> AsyncGenerator[bytes, None]:
        yield b"8\r\n" + b"x" * 8 + b"\r\n"
        first_is_there.set()
        await trio.sleep_forever()

    quick, failed = Liar(), trio.Event()

    async def at_once() -> AsyncGenerator[bytes, None]:
        yield b"9\r\n" + b"y" * 9 + b"\r\n0\r\n\r\n"

    await nursery.start(partial(liar.serve, CHUNKED, slow))
    await nursery.start(partial(quick.serve, CHUNKED, at_once))
    async with HttpClient(all_bytes=16) as client:

        async def ask_slowly() -> None:
            with pytest.raises(HttpFailed, match="the slowest"):
                await client.request("GET", liar.url)
            failed.set()

        nursery.start_soon(ask_slowly)
        await first_is_there.wait()
        while not client._under_way.bytes:  # noqa: ASYNC110 - until the client has read it
            await trio.sleep(0.005)
        assert (await client.request("GET", quick.url)).body == b"y" * 9
        await failed.wait()
        assert client._under_way.bytes == 0, "nothing is under way any more"


async def test_json_of_too_many_values_and_what_is_none_is_refused(client: HttpClient) -> None:
    assert HttpAnswer(200, b'{"a": 1}').json() == {"a": 1}
    for body in (b"[" * 60_000, json.dumps([[]] * 30_000).encode(), b"<html>", b"", b'{"a": NaN}'):
        with pytest.raises(ValueError, match=r"."):
            HttpAnswer(200, body).json()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://[", "ftp://127.0.0.1", "http://127.0.0.1:x"])
async def test_whatever_goes_wrong_on_the_way_is_one_error(url: str, client: HttpClient) -> None:
    with pytest.raises(HttpFailed, match=r"."):
        await client.request("GET", url, timeout_s=5.0)


@given(
    body=st.binary(max_size=300),
    status=st.integers(200, 599),
    headers=st.dictionaries(
        st.sampled_from(["content-encoding", "content-type", "location", "retry-after"]),
        st.sampled_from(["gzip", "identity", "", "x", "http://127.0.0.1:1/"]),
    ),
    most=st.integers(1, 200),
)
def test_whatever_a_server_answers_is_its_status_and_body_or_the_one_error(
    body: bytes, status: int, headers: dict[str, str], most: int
) -> None:
    """No redirect is followed, nothing is unfolded, nothing is longer than the bound."""
    asked = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))

    async def main() -> HttpAnswer | None:
        async with HttpClient(max_bytes=most, transport=httpx.MockTransport(answer)) as client:
            try:
                return await client.request("POST", "http://liar.invalid/", json={"a": 1})
            except HttpFailed:
                return None

    got = trio.run(main)
    fits = len(body) <= most and headers.get("content-encoding", "") in ("", "identity")
    assert got == (HttpAnswer(status, body) if fits else None)
    assert asked == ["http://liar.invalid/"]


async def test_commands_believe_no_answer_to_be_short_either(liar: Liar, nursery: trio.Nursery) -> None:
    await nursery.start(partial(liar.serve, CHUNKED, endless))

    def ask() -> None:
        with (
            BlockingClient(liar.url, {}, timeout_s=30.0, max_bytes=100_000) as client,
            pytest.raises(HttpFailed, match="longer than 100000 bytes"),
        ):
            client.request("GET", "/")

    await trio.to_thread.run_sync(ask)
