"""What may have happened when a request to etcd fails: each failure has its class, and another endpoint is tried."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import h11
import pytest
import trio

from batonpass.tree import NoQuorum
from batonpass.tree.etcd import EtcdConfig, EtcdReplica, RefusedByEtcd
from batonpass.tree.etcd.client import EtcdClient, EtcdForbids, FateUnknown, NotSent, RevisionCompacted
from batonpass.tree.etcd.http import AnswerTooBig, Broken, HttpServer, NotConnected
from batonpass.tree.etcd.wire import EtcdCompare, EtcdPut, MalformedAnswer
from tests.tree.instances import PROCEDURES, free_ports, until

HEADER = {"cluster_id": "1", "member_id": "2", "revision": "3", "raft_term": "4"}
EMPTY = json.dumps({"header": HEADER}).encode()

LED = json.dumps({"header": HEADER, "leader": "2", "raftTerm": "4"}).encode()

Answer = tuple[int, bytes]
Script = Callable[[str], Answer | None]


def failure(status: int, code: int, message: str) -> Answer:
    return status, json.dumps({"error": message, "message": message, "code": code}).encode()


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[str]:
    """A server whose answer to a path is the script's; None closes the connection. Its URL."""

    async def serve(stream: trio.SocketStream) -> None:
        http, path = h11.Connection(h11.SERVER), ""
        with suppress(trio.BrokenResourceError):
            async with stream:
                while True:
                    event = http.next_event()
                    if event is h11.NEED_DATA:
                        http.receive_data(bytes(await stream.receive_some()))
                    elif isinstance(event, h11.Request):
                        path = event.target.decode()
                    elif isinstance(event, h11.EndOfMessage):
                        answer = script(path)
                        if answer is None:
                            return
                        await stream.send_all(encoded(http, *answer))
                        http.start_next_cycle()
                    elif isinstance(event, h11.ConnectionClosed):
                        return

    def encoded(http: h11.Connection, status: int, body: bytes) -> bytes:
        head = h11.Response(status_code=status, headers=[("content-length", str(len(body)))])
        return b"".join(http.send(event) or b"" for event in (head, h11.Data(data=body), h11.EndOfMessage()))

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def config(*endpoints: str, **changes: Any) -> EtcdConfig:
    fields: dict[str, Any] = {"request_timeout_s": 5.0, "pulse_s": 0.05} | changes
    return EtcdConfig("homeserver", "alpha", "a", endpoints, **fields)


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (failure(503, 14, "etcdserver: leader changed"), FateUnknown),
        (failure(504, 4, "context deadline exceeded"), FateUnknown),
        (failure(500, 2, "who knows"), FateUnknown),
        ((502, b"<html>a proxy"), FateUnknown),
        ((200, b"<html>a proxy"), FateUnknown),
        (None, FateUnknown),
        (failure(429, 8, "etcdserver: mvcc: database space exceeded"), NotSent),
        (failure(400, 11, "etcdserver: mvcc: required revision has been compacted"), RevisionCompacted),
        (failure(403, 7, "etcdserver: permission denied"), EtcdForbids),
        (failure(400, 3, "etcdserver: request is too large"), RefusedByEtcd),
        ((404, b"Not Found"), RefusedByEtcd),
    ],
    ids=str,
)
async def test_a_failure_says_what_may_have_happened(answer: Answer | None, trouble: type[Exception]) -> None:
    async with scripted(lambda _path: answer) as url, EtcdClient(config(url)) as client:
        with pytest.raises(trouble, match=r"127\.0\.0\.1"):
            await client.range(b"k")
        with pytest.raises(trouble):
            await client.txn(EtcdCompare(b"g", 0), [EtcdPut(b"k", b"v")])


async def test_where_nobody_listens_nothing_is_sent_and_the_next_endpoint_is_used() -> None:
    (port,) = free_ports(1)
    dead = f"http://127.0.0.1:{port}"
    async with scripted(lambda _path: (200, EMPTY)) as url, EtcdClient(config(dead, url)) as client:
        with pytest.raises(NotSent):
            await client.range(b"k")
        assert client.endpoint == url
        assert (await client.range(b"k")).header.revision == 3


async def test_an_answer_that_does_not_come_leaves_the_fate_unknown() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        async with stream:
            await trio.sleep_forever()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, silent, [listener])
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with EtcdClient(config(url, request_timeout_s=0.05)) as client:
            with pytest.raises(FateUnknown, match="no answer within"):
                await client.range(b"k")
        nursery.cancel_scope.cancel()


async def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.tree.etcd.client.MAX_ANSWER_BYTES", 10)
    async with scripted(lambda _path: (200, b"x" * 100_000)) as url, EtcdClient(config(url)) as client:
        with pytest.raises(AnswerTooBig):
            await client.range(b"k")


async def test_a_connection_is_used_again_and_what_is_no_http_is_said_to_be_so() -> None:
    connections: list[trio.SocketStream] = []

    async def garbage(stream: trio.SocketStream) -> None:
        connections.append(stream)
        await stream.receive_some()
        await stream.send_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, garbage, [listener])
        server = HttpServer(f"http://127.0.0.1:{listener.socket.getsockname()[1]}", None, 1.0)
        with pytest.raises(Broken, match="not HTTP"):
            await server.post("/", [], b"", timeout_s=5, max_bytes=100)
        nursery.cancel_scope.cancel()
    (port,) = free_ports(1)
    with pytest.raises(NotConnected):
        await HttpServer(f"http://127.0.0.1:{port}", None, 1.0).post("/", [], b"", timeout_s=5, max_bytes=100)


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (failure(503, 14, "no leader"), FateUnknown),
        (failure(403, 7, "etcdserver: permission denied"), EtcdForbids),
        (None, NotSent),
        ((200, b"not a watch\n"), MalformedAnswer),
    ],
    ids=str,
)
async def test_a_watch_that_cannot_be_had_says_why(answer: Answer | None, trouble: type[Exception]) -> None:
    async with scripted(lambda _path: answer) as url, EtcdClient(config(url)) as client:
        with pytest.raises(trouble):
            async with client.watch(b"a", b"b", 1) as messages:
                await anext(messages)


async def test_a_watch_ends_with_its_connection() -> None:
    line = json.dumps({"result": {"header": HEADER, "created": True}}).encode()
    async with (
        scripted(lambda _path: (200, 2 * (line + b"\n"))) as url,
        EtcdClient(config(url)) as client,
        client.watch(b"a", b"b", 1) as messages,
    ):
        assert [message.created async for message in messages] == [True, True]


ENDED = json.dumps({"result": {"header": {}, "canceled": True, "cancel_reason": "etcdserver: no leader"}}).encode()


@pytest.mark.parametrize("watch", [b"not a watch\n", ENDED + b"\n", b""])
async def test_a_watch_that_ends_is_begun_again(watch: bytes) -> None:
    begun: list[str] = []

    def script(path: str) -> Answer:
        if path == "/v3/watch":
            begun.append(path)
            return 200, watch
        return 200, EMPTY

    async with scripted(script) as url, trio.open_nursery() as nursery:
        replica = EtcdReplica(config(url, url.replace("127.0.0.1", "localhost")), PROCEDURES)
        await nursery.start(replica.serve)
        with trio.fail_after(90):
            await until(lambda: len(begun) >= 3)
            await replica.read_barrier()
        nursery.cancel_scope.cancel()


async def test_an_etcd_without_room_is_said_to_have_none_and_reads_go_on() -> None:
    def script(path: str) -> Answer:
        return failure(429, 8, "database space exceeded") if path == "/v3/kv/txn" else (200, EMPTY)

    async with scripted(script) as url, trio.open_nursery() as nursery:
        replica = EtcdReplica(config(url), PROCEDURES)
        await nursery.start(replica.serve)
        assert replica.status.cannot_write == ""
        with trio.fail_after(30), pytest.raises(NoQuorum, match=r"refused by etcd: .*database space exceeded"):
            # Nothing was done, and that is known long before the caller's time is over.
            await replica.submit("count_once", "x", timeout_s=3600)
        await replica.read_barrier(timeout_s=20)
        assert "database space exceeded" in replica.status.cannot_write
        nursery.cancel_scope.cancel()


FORBIDDEN = [
    (400, 3, "etcdserver: authentication failed, invalid user ID or password"),
    (400, 3, "etcdserver: user name is empty"),
    (403, 7, "etcdserver: permission denied"),
    (401, 16, "etcdserver: invalid auth token"),
    (400, 9, "etcdserver: authentication is not enabled"),
]


@pytest.mark.parametrize(("status", "code", "sentence"), FORBIDDEN)
async def test_an_etcd_that_forbids_it_later_is_passed_on_and_waited_for(status: int, code: int, sentence: str) -> None:
    """People change passwords and roles while homeservers run."""
    forbidden: set[str] = set()

    def script(path: str) -> Answer:
        if path in forbidden:
            return failure(status, code, sentence)
        return 200, LED if path == "/v3/maintenance/status" else EMPTY

    async with scripted(script) as url, trio.open_nursery() as nursery:
        replica = EtcdReplica(config(url, pulse_s=0.01), PROCEDURES)
        await nursery.start(replica.serve)
        with trio.fail_after(60):
            await replica.read_barrier(timeout_s=20)
            forbidden |= {"/v3/kv/txn"}
            with pytest.raises(NoQuorum, match=rf"refused by etcd: .*{sentence}"):
                await replica.submit("count_once", "x", timeout_s=3600)
            await replica.read_barrier(timeout_s=20)
            assert sentence in replica.status.cannot_write
            forbidden |= {"/v3/kv/range", "/v3/maintenance/status"}
            await until(lambda: replica.status.leader is None)
            assert sentence in replica.status.cannot_write
            with pytest.raises(NoQuorum, match=rf"refused by etcd: .*{sentence}"):
                await replica.read_barrier(timeout_s=3600)
            forbidden.clear()
            await replica.read_barrier(timeout_s=50)
            await until(lambda: replica.status.leader is not None)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("status", "code", "sentence"), FORBIDDEN)
async def test_an_etcd_that_forbids_it_from_the_first_is_a_mistake(status: int, code: int, sentence: str) -> None:
    async with scripted(lambda _path: failure(status, code, sentence)) as url:
        with trio.fail_after(30), pytest.raises(RefusedByEtcd, match=sentence):
            await EtcdReplica(config(url), PROCEDURES).serve()


async def test_serving_twice_is_a_mistake() -> None:
    async with scripted(lambda _path: (200, EMPTY)) as url, trio.open_nursery() as nursery:
        replica = EtcdReplica(config(url), PROCEDURES)
        await nursery.start(replica.serve)
        with pytest.raises(RuntimeError, match="once"):
            await replica.serve()
        nursery.cancel_scope.cancel()


async def test_several_whose_token_is_refused_at_one_time_go_on_with_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a restart of etcd, which keeps tokens in memory."""
    keeper: dict[str, Any] = {"user": "homeserver", "password": "secret"}
    good, refused = 1, 0
    both_refused = trio.Event()

    async def exchange(
        _client: EtcdClient, _endpoint: str, path: str, _request: object, headers: list[tuple[str, str]]
    ) -> Answer:
        nonlocal refused
        await trio.lowlevel.checkpoint()
        if path.endswith("authenticate"):
            return 200, json.dumps({"header": HEADER, "token": f"token {good}"}).encode()
        if headers == [("authorization", f"token {good}")]:
            return 200, EMPTY
        refused += 1
        if refused == 2:
            both_refused.set()
        await both_refused.wait()
        return failure(401, 16, "etcdserver: invalid auth token")

    monkeypatch.setattr(EtcdClient, "_exchange", exchange)
    async with EtcdClient(config("http://127.0.0.1:1", **keeper)) as client:
        await client.range(b"a")
        good = 2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.range, b"a")
            nursery.start_soon(client.range, b"b")
    assert refused == 2


async def test_a_watch_whose_token_is_refused_may_be_had_with_a_new_one() -> None:
    keeper: dict[str, Any] = {"user": "homeserver", "password": "secret"}
    tokens, watched = 0, 0

    def script(path: str) -> Answer:
        nonlocal tokens, watched
        if path.endswith("authenticate"):
            tokens += 1
            return 200, json.dumps({"header": HEADER, "token": f"token {tokens}"}).encode()
        watched += 1
        return failure(401, 16, "etcdserver: invalid auth token") if watched == 1 else (200, EMPTY)

    async with scripted(script) as url, EtcdClient(config(url, **keeper)) as client:
        with pytest.raises(NotSent, match="invalid auth token"):
            async with client.watch(b"a", b"b", 1):
                pass
        async with client.watch(b"a", b"b", 1):
            pass
    assert (tokens, watched) == (2, 2)


@pytest.mark.parametrize("reason", ["etcdserver: invalid auth token", "revision of auth store is old"])
async def test_a_watch_that_is_cancelled_for_its_token_is_begun_again_with_a_new_one(reason: str) -> None:
    """So etcd 3.4 and 3.5 do it."""
    keeper: dict[str, Any] = {"user": "homeserver", "password": "secret"}
    cancelled = json.dumps({"result": {"header": HEADER, "canceled": True, "cancel_reason": reason}}).encode()
    tokens = 0

    def script(path: str) -> Answer:
        nonlocal tokens
        if path.endswith("authenticate"):
            tokens += 1
            return 200, json.dumps({"header": HEADER, "token": f"token {tokens}"}).encode()
        return 200, cancelled + b"\n"

    async with scripted(script) as url, EtcdClient(config(url, **keeper)) as client:
        for _ in range(2):
            async with client.watch(b"a", b"b", 1) as messages:
                assert [message.cancelled async for message in messages] == [True]
    assert tokens == 2
