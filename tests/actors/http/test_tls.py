"""HTTP and WebSockets by TLS: who speaks it is served as ever, and who does not costs a connection and nothing else."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from websockets.sync.client import connect as connect_websocket

from batonpass.actors.http.client import HttpClient, HttpFailed, believe, trusted_authorities
from batonpass.actors.http.server import App, HttpLimits, serve_http
from batonpass.actors.http.tls import server_context
from batonpass.actors.http.websocket import WebSocketLimits, WebSockets
from batonpass.crypto.errors import KeyFileError
from batonpass.scenarios.cluster.certificates import authority_in
from tests.certified import certified

LIMITS = HttpLimits(head_s=0.2)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    certified(tmp_path, "alpha.s1")
    return authority_in(tmp_path)


@pytest.fixture
def believed(authority: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process believes the authority, until the test is over."""
    monkeypatch.setattr("batonpass.actors.http.client._Believed.context", None)
    believe(authority)
    return authority


async def app(scope: object, receive: object, send: object) -> None:
    assert isinstance(scope, dict)
    assert callable(receive)
    assert callable(send)
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


SERVED: App = app


@asynccontextmanager
async def serving(directory: Path, host: str = "127.0.0.1") -> AsyncIterator[str]:
    context = server_context(directory / "alpha.s1" / "tls.pem", directory / "alpha.s1" / "tls.key")
    offer = WebSockets(limits=WebSocketLimits(message_bytes=1024))
    serve = partial(
        serve_http,
        SERVED,
        host,
        0,
        error_json=lambda code, text: f"{code} {text}".encode(),
        limits=LIMITS,
        websockets=offer,
        tls=context,
    )
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(serve)
        yield urls[0]
        nursery.cancel_scope.cancel()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def test_a_client_that_believes_the_authority_is_answered(believed: Path, tmp_path: Path) -> None:
    async with serving(tmp_path) as url, HttpClient() as client:
        assert url.startswith("https://127.0.0.1:")
        assert (await client.request("GET", f"{url}/one")).body == b"/one"
        assert (await client.request("POST", f"{url}/two", json={"a": "b" * 100_000})).body == b"/two"


async def test_a_client_that_does_not_believe_it_asks_nothing(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonpass.actors.http.client._Believed.context", None)
    async with serving(tmp_path) as url, HttpClient() as client:
        with pytest.raises(HttpFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await client.request("GET", url)


async def test_a_server_by_another_address_is_not_believed(believed: Path, tmp_path: Path) -> None:
    async with serving(tmp_path, "127.0.0.2") as url, HttpClient() as client:
        with pytest.raises(HttpFailed, match="not valid for"):
            await client.request("GET", url)


async def test_peers_that_speak_no_tls_or_an_old_one_or_nothing_are_let_go_and_others_served(
    believed: Path, tmp_path: Path
) -> None:
    old = ssl.create_default_context(cafile=str(believed))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(tmp_path) as url, AsyncExitStack() as stack:
        plain, silent, outdated = [
            await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port_of(url))) for _ in range(3)
        ]
        await plain.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        with pytest.raises(trio.BrokenResourceError):
            await trio.SSLStream(outdated, old, server_hostname="127.0.0.1").do_handshake()
        async with HttpClient() as client:
            assert (await client.request("GET", url)).is_success
        for stream in (plain, silent):
            # An alert of TLS perhaps, and then the end.
            with trio.fail_after(20), suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass


async def test_websockets_go_both_ways(believed: Path, tmp_path: Path) -> None:
    def talk(url: str) -> list[str | bytes]:
        with connect_websocket(url.replace("https", "wss"), ssl=trusted_authorities(), proxy=None) as ws:
            heard = []
            for word in ("one", "two" * 300):
                ws.send(word)
                heard.append(ws.recv())
            return heard

    async with serving(tmp_path) as url:
        assert await trio.to_thread.run_sync(talk, url) == ["one", "two" * 300]


async def test_an_answer_to_what_is_refused_unread_arrives(believed: Path, tmp_path: Path) -> None:
    """The server has no more to say, and reads for a while: else the answer is lost with what was not read."""
    async with serving(tmp_path) as url, httpx.AsyncClient(verify=trusted_authorities(), trust_env=False) as client:
        answer = await client.get(f"{url}/" + "x" * (LIMITS.target_bytes + 1))
        assert answer.status_code == 414


def test_a_key_that_others_can_read_is_not_used(authority: Path, tmp_path: Path) -> None:
    key = tmp_path / "alpha.s1" / "tls.key"
    key.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        server_context(tmp_path / "alpha.s1" / "tls.pem", key)
