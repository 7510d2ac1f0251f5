"""Bodies of requests: what all of them take together, whose rights are looked at first, how many values are read."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from fastapi import Depends, FastAPI, Request
from fastapi.security import HTTPBearer
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from batonpass.actors.http import app as web
from batonpass.actors.http.app import ApiError, BodyBound, bearer_access, bearer_token, prepare_app
from batonpass.actors.http.body_budget import BodiesUnderWay
from batonpass.actors.http.callers import Caller
from batonpass.actors.http.server import HttpLimits, Room, converse
from batonpass.actors.http.strict_json import TooManyValues, count_values_untrusted, read_json_untrusted

# --- all of them together ----------------------------------------------------------------------------------------


def test_the_body_that_began_first_and_is_not_there_yet_makes_room() -> None:
    bodies = BodiesUnderWay(10)
    assert bodies.grows("slow", 4) == bodies.grows("quick", 6) == []
    assert bodies.grows("quick", 1) == ["slow"]
    assert bodies.bytes == 7


def test_a_body_that_is_complete_stays_and_whoever_has_no_room_beside_such_goes_itself() -> None:
    bodies = BodiesUnderWay(10)
    bodies.grows("there", 8)
    bodies.completes("there")
    assert bodies.grows("late", 3) == ["late"]
    bodies.end("there")
    assert bodies.grows("late", 3) == []


STEPS = st.lists(st.tuples(st.sampled_from(["grows", "completes", "end"]), st.integers(0, 5), st.integers(0, 9)))


@given(most=st.integers(1, 20), steps=STEPS)
def test_they_never_take_more_than_they_may_and_nothing_is_forgotten(
    most: int, steps: list[tuple[str, int, int]]
) -> None:
    bodies = BodiesUnderWay(most)
    coming: dict[int, int] = {}
    complete: dict[int, int] = {}
    for what, who, size in steps:
        if what == "grows" and who not in complete:
            coming[who] = coming.get(who, 0) + size
            order = list(coming)
            gone = bodies.grows(who, size)
            assert gone == order[: len(gone)], "the one that began first goes first"
            for one in gone:
                assert isinstance(one, int)
                del coming[one]
        elif what == "completes" and who in coming:
            bodies.completes(who)
            complete[who] = coming.pop(who)
        elif what == "end":
            bodies.end(who)
            coming.pop(who, None)
            complete.pop(who, None)
        assert bodies.bytes == sum(coming.values()) + sum(complete.values()) <= most


# --- how many values ---------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a,[]{}"\\:', max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(alphabet='a,["\\', max_size=3), inner),
    max_leaves=30,
)


def weight(value: Any) -> int:
    match value:
        case dict():
            return 5 + sum(weight(one) for one in value.values())
        case list():
            return 5 + sum(weight(one) for one in value)
        case _:
            return 1


@given(value=JSON, is_ascii=st.booleans())
def test_the_count_before_reading_is_no_less_than_what_is_read_and_text_hardly_counts(
    value: Any, is_ascii: bool
) -> None:
    written = json.dumps(value, ensure_ascii=is_ascii)
    count = count_values_untrusted(written, 1)
    assert count > 1 or weight(value) <= 1
    assert count <= 1 + 2 * weight(value), "what stands in strings is nothing"
    real = weight(value)
    assert read_json_untrusted(written, most=2 * real + 1) == value
    if real > 10:
        with pytest.raises(TooManyValues):
            read_json_untrusted(written, most=real // 5)


@pytest.mark.parametrize("hard", [b",", b'"', b"\\", b'\\"', b'",', b"[", b"{}", b"1,"], ids=repr)
def test_what_is_made_to_be_hard_is_counted_without_being_read(hard: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def reads(*_args: Any, **_more: Any) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr(json, "loads", reads)
    with pytest.raises((TooManyValues, AssertionError)) as caught:
        read_json_untrusted(b"[" + hard * (1_000_000 // len(hard)))
    assert caught.type is TooManyValues or hard in (b'"', b"\\", b'\\"'), "only text is left to be read"


# --- at a server -------------------------------------------------------------------------------------------------


GOOD = "good"


def guarded_app(seen: list[Any]) -> FastAPI:
    app = FastAPI()
    prepare_app(app, {"/big": BodyBound(1000, 200)}, bodies_bytes=1500)

    def check(request: Request) -> None:
        if bearer_token(request) != GOOD:
            raise ApiError(401, "no_token", "this needs the token")

    @app.post("/big/guarded", dependencies=[Depends(bearer_access(Caller.CLIENT, HTTPBearer(auto_error=False), check))])
    async def guarded(body: dict[str, Any]) -> dict[str, int]:
        seen.append(body)
        return {"got": len(body)}

    @app.post("/big/open")
    async def anybody(body: dict[str, Any]) -> dict[str, int]:
        seen.append(body)
        return {"got": len(body)}

    return app


class Connection:
    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream

    async def send(self, path: str, body: bytes, *headers: str, announced: int | None = None) -> None:
        size = len(body) if announced is None else announced
        head = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", f"content-length: {size}"]
        await self.stream.send_all("\r\n".join([*head, *headers, "", ""]).encode() + body)

    async def answer(self) -> tuple[int, Any]:
        data = b""
        while b"\r\n\r\n" not in data or not data.endswith(b"}"):
            piece = bytes(await self.stream.receive_some())
            assert piece, data
            data += piece
        return int(data[9:12]), json.loads(data.partition(b"\r\n\r\n")[2])


Connect = Callable[[], Connection]


@pytest.fixture
async def seen() -> list[Any]:
    return []


@pytest.fixture
async def connect(seen: list[Any], nursery: trio.Nursery, autojump_clock: MockClock) -> Connect:
    app, limits = guarded_app(seen), HttpLimits()
    room = Room(limits)

    def start() -> Connection:
        ours, theirs = memory_stream_pair()

        async def serve() -> None:
            with room.entered("10.0.0.1") as seat:
                await converse(theirs, app, error_json=lambda _c, _m: b"{}", limits=limits, seat=seat)

        nursery.start_soon(serve)
        return Connection(ours)

    return start


async def test_a_request_without_the_right_is_refused_by_its_head_before_its_body_has_come(connect: Connect) -> None:
    begun_s = trio.current_time()
    for headers in ((), ("authorization: Bearer wrong",), ("authorization: Basic good",)):
        stranger = connect()
        await stranger.send("/big/guarded", b"", *headers, announced=900)
        status, body = await stranger.answer()
        assert (status, body["code"]) == (401, "no_token")
    assert trio.current_time() - begun_s < HttpLimits().linger_s, "its body was not waited for"


async def test_nothing_of_a_body_is_parsed_without_the_right(
    connect: Connect, seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[bytes]()

    def reads(body: bytes, most: int) -> Any:
        read.append(body)
        return {"a": 1}

    monkeypatch.setattr(web, "read_json_untrusted", reads)
    stranger = connect()
    await stranger.send("/big/guarded", b"[[[[" * 100)
    assert (await stranger.answer())[0] == 401
    assert read == seen == []
    friend = connect()
    await friend.send("/big/guarded", b'{"a": 1}', "authorization: bearer good")
    assert (await friend.answer()) == (200, {"got": 1})
    assert read == [b'{"a": 1}']


async def test_a_body_of_more_values_than_its_route_takes_is_refused_unread(connect: Connect, seen: list[Any]) -> None:
    for path in ("/big/guarded", "/big/open"):
        peer = connect()
        await peer.send(path, json.dumps({"x": [1] * 210}).encode(), "authorization: Bearer good")
        status, body = await peer.answer()
        assert (status, body["code"], body["value"]) == (413, "too_many_values", 200)
    assert seen == []
    peer = connect()
    await peer.send("/big/open", json.dumps({"x": "," * 900}).encode())
    assert (await peer.answer())[0] == 200, "what stands in a text is no value"


async def test_slow_bodies_make_room_for_quick_ones(connect: Connect, seen: list[Any]) -> None:
    begun_s = trio.current_time()
    slow = [connect() for _ in range(3)]
    for peer in slow:
        await peer.send("/big/open", b'{"x": "' + b"y" * 400, announced=900)
        await wait_all_tasks_blocked()
    quick = connect()
    await quick.send("/big/open", b'{"x": "' + b"y" * 700 + b'"}')
    assert await quick.answer() == (200, {"got": 1})
    status, body = await slow[0].answer()
    assert (status, body["code"]) == (503, "too_many_bodies")
    assert trio.current_time() - begun_s < HttpLimits().body_s, "nobody's patience had to end for it"
    # The others had room, and have it still.
    await slow[2].stream.send_all(b"y" * (900 - 407 - 2) + b'"}')
    assert await slow[2].answer() == (200, {"got": 1})
    assert len(seen) == 2


async def test_a_body_that_does_not_come_to_its_end_costs_one_connection_and_no_error_of_ours(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        peer = connect()
        await peer.send("/big/open", b'{"x"', announced=900)
        await wait_all_tasks_blocked()
        await peer.stream.aclose()
        await wait_all_tasks_blocked()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    peer = connect()
    await peer.send("/big/open", b'{"x": 1}')
    assert (await peer.answer())[0] == 200
