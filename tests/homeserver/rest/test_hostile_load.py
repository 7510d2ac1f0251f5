"""A live instance under hostile, bounded load of strangers: its leases hold, and whoever asks properly is answered.

What hypothesis draws is what the strangers send: half heads, half bodies, questions whose answers nobody takes, JSON of
many values, nested and not, with tokens that are none, and what is no HTTP. They hold more connections than the server
has places for them.
"""

import gzip
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batonpass.actors.http import server as http_server
from tests.homeserver.rest.test_http_server import reset
from tests.homeserver.served import Home, until

HEADS = (
    b"",
    b"GET /",
    b"GET /healthz HTTP/1.1\r\nx: ",
    b"POST /v1/entities HTTP/1.1\r\nhost: localhost\r\n",
    b"\x16\x03\x01",
)


def post(path: bytes, body: bytes, announced: int, *headers: bytes) -> bytes:
    head = (b"POST " + path + b" HTTP/1.1", b"host: localhost", b"content-type: application/json", *headers)
    return b"\r\n".join((*head, b"content-length: %d" % announced, b"", b"")) + body


JSONS = st.sampled_from(
    [
        b'{"parcel":{"x":[' + b",".join([b"[" * 60 + b"]" * 60] * 300) + b"]}}",
        b'{"parcel":{' + b",".join(b'"%06x":[]' % number for number in range(5_000)) + b"}}",
        b'{"data":[' + b"1," * 30_000 + b"1]}",
        b'{"then":' + b'"\\\\' * 20_000,
        b"[" * 60_000,
        b'"' * 60_000,
        gzip.compress(bytes(3_000_000)),
        b"{}\n" * 20_000,
    ]
)
PATHS = st.sampled_from([b"/v1/handoffs", b"/v1/federation", b"/v1/tx", b"/v1/entities", b"/v1/import", b"/nowhere"])
TOKENS = st.sampled_from([(), (b"authorization: Bearer wrong",), (b"authorization: Basic eDp4",)])
WHOLE = st.builds(lambda path, body, token: post(path, body, len(body), *token), PATHS, JSONS, TOKENS)
HALF = st.builds(lambda path, body, token: post(path, body[: len(body) // 2], len(body), *token), PATHS, JSONS, TOKENS)
UNREAD = st.just(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 12)
SENT = st.sampled_from(HEADS) | HALF | WHOLE | UNREAD

CONNECTIONS, STRANGERS = 48, 60
# Of a connection: so fewer come in the time that a request takes than there are places, however slow the machine is.
HOLDS_S = 3.0


class Crowd:
    """Strangers who hold connections, and come back whenever they are sent away. They read nothing."""

    def __init__(self, url: str, sent: list[bytes]) -> None:
        self.port = int(url.rpartition(":")[2])
        self.sent = sent
        self.connected = 0

    async def stay(self, number: int) -> None:
        dice = random.Random(number)
        while True:
            try:
                async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                    self.connected += 1
                    await stream.send_all(dice.choice(self.sent))
                    await trio.sleep(HOLDS_S * (0.5 + dice.random()))
            except (OSError, trio.BrokenResourceError):
                await trio.sleep(HOLDS_S)

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            for number in range(STRANGERS):
                nursery.start_soon(self.stay, number)
            await until(lambda: self.connected >= STRANGERS)
            yield
            nursery.cancel_scope.cancel()


@pytest.fixture
def few_places() -> Any:
    limits = http_server.HttpLimits(connections=CONNECTIONS, connections_of_a_place=CONNECTIONS, farewells=4)
    with patch.object(http_server, "HttpLimits", lambda: limits):
        yield


async def renewed(home: Home, server: str, times: int) -> None:
    """Return when the lease was renewed so often from now on, which the log has not ended meanwhile."""
    lease = home.simservers[server].lease
    incarnation = lease.incarnation
    for _ in range(times):
        done = trio.Event()
        lease.once_renewed(done.set)
        await done.wait()
    assert (lease.incarnation, lease.holder.phase.value) == (incarnation, "held")


async def test_leases_hold_and_proper_requests_are_answered_whatever_strangers_send(
    few_places: None, alpha: Home
) -> None:
    await alpha.simserver("alpha.s1")
    examples = list[list[bytes]]()

    @settings(max_examples=3, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(SENT, min_size=1, max_size=6))
    def draw(sent: list[bytes]) -> None:
        examples.append(sent)

    draw()
    examples.append([HEADS[2]])
    for sent in examples:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(Crowd(alpha.api.url, sent).around())
            await renewed(alpha, "alpha.s1", 2)
            answered = 0
            while answered < 3:
                try:
                    answer = await alpha.api.http.get("/healthz")
                except Exception:  # noqa: S112 - sent away: a client asks again
                    continue
                answered += answer.status_code == 200
    assert alpha.node.store.lease("alpha.s1").phase.value == "alive"  # type: ignore[union-attr]


async def test_a_homeserver_goes_on_when_clients_reset_their_connections_within_a_body_and_logs_no_traceback(
    alpha: Home, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    port = int(alpha.api.url.rpartition(":")[2])
    token = b"authorization: " + alpha.api._headers["authorization"].encode()
    for path, *headers in ((b"/v1/handoffs",), (b"/v1/federation",), (b"/v1/entities", token), (b"/v1/tx", token)):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(post(path, b'{"id": "', 1000, *headers))
        # It has read that, and waits for the rest of it.
        await alpha.api.get("/healthz")
        await reset(stream)
    assert (await alpha.api.get("/healthz"))["status"] == "ok"
    assert caplog.records == []
