"""The routes of event streams: GoEventStream's answers, and four ways of being told the same."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trio.testing import MockClock, memory_stream_one_way_pair

from batonpass.actors import http
from batonpass.actors.http.websocket import WebSocketLimits
from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.stream_door import StaticPage, StreamDoor
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.snapshots import signed_text
from tests.actors.http.websocket_client import WebSocketClient
from tests.simserver.ports import TrioClock
from tests.simserver.sync.door.doors import OpenDoor, open_door

TICK_S = 0.05
TRANSCRIPT = Path(__file__).parent.parent / "events" / "vectors" / "http_transcript.json"


@pytest.fixture
async def door(nursery: trio.Nursery) -> OpenDoor:
    return await open_door(nursery)


async def ticks(count: int) -> None:
    await trio.sleep(count * TICK_S + 0.002)


def told(replies: list[Any]) -> list[Any]:
    return [event for reply in replies for event in reply["Events"]]


# ---- as the original ----


async def test_e2_the_recorded_transcript_passes_with_members_added_and_refusals_instead_of_broken_connections(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    began_s: dict[str, float] = {}
    for row in json.loads(TRANSCRIPT.read_text(encoding="utf-8")):
        name = row["path"].split("/")[1]
        recorded = json.loads(row["responseBody"]) if row.get("responseBody") else None
        if recorded is not None:
            due_s = began_s.setdefault(name, trio.current_time()) + recorded["T"] * TICK_S
            await trio.sleep_until(due_s + (0.002 if recorded["T"] else 0))
        answer = await door.ask(row["method"], row["path"], row["requestBody"] or "")
        if "error" in row:
            expected = (404, "bad_path") if row["path"] == "/foo" else (400, "bad_body")
            assert (answer.status, answer.json["code"]) == expected
            continue
        assert answer.status == row["status"] == 200
        for header, value in row["responseHeaders"].items():
            if header.startswith("Access-Control"):
                assert set(value.split(", ")) <= set(answer.headers[header.lower()].split(", "))
            if header == "Content-Type":
                assert answer.headers["content-type"] == value
        if recorded is None:
            assert answer.text == ""
            continue
        seeds = {event["Body"] for event in recorded["Events"] if event["Type"] == "_a"}
        text = row["responseBody"]
        for seed in seeds:
            text = text.replace(seed, answer.json["Incarnation"])
        assert answer.text.startswith(text[:-1] + ",")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/game/me/0", "not json", 400, "bad_body"),
        ("POST", "/game/me/0", '{"Events":[{"Type":"_c"}]}', 400, "reserved_type"),
        ("POST", "/game/me/0", '{"Events":[{"Type":"$connect"}]}', 400, "reserved_type"),
        ("POST", "/game/me/99999999999999999999", "{}", 400, "bad_number"),
        ("POST", "/game/me", "{}", 404, "bad_path"),
        ("POST", "/game", "{}", 404, "bad_path"),
        ("POST", "/game/me/0/more", "{}", 404, "bad_path"),
        ("PATCH", "/game/me/0", "{}", 404, "bad_path"),
        ("POST", "/game/me/0", '"' + "x" * 16384 + '"', 413, "body_too_large"),
        ("POST", "/game/me/0", json.dumps({"Events": [{"Type": "e"}] * 21}), 429, "too_many_events"),
        ("GET", "/nothing/snapshot", "", 404, "unknown_stream"),
        ("GET", "/game/snapshot", "", 404, "no_snapshot"),
        ("GET", "/game/desync", "", 404, "no_desync"),
        ("DELETE", "/nothing/me", "", 404, "unknown_stream"),
        ("PUT", "/game/other/snapshot/1", '{"Hash":"' + "0" * 64 + '"}', 404, "unknown_client"),
        ("PUT", "/game/other/desync/1", "dump", 404, "unknown_client"),
        ("PUT", "/game/me/desync/1", "x" * (1024 * 1024 + 1), 413, "body_too_large"),
    ],
)
async def test_e6_a_bad_request_is_refused_by_name_and_affects_nobody(
    autojump_clock: MockClock, door: OpenDoor, method: str, path: str, body: str, status: int, code: str
) -> None:
    await door.poll("/game/friend/0")
    await ticks(2)
    before = await door.poll("/game/friend/0")
    answer = await door.ask(method, path, body)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert (await door.poll("/game/friend/0"))["Events"] == before["Events"]


async def test_head_begins_no_stream_and_connects_nobody(autojump_clock: MockClock, door: OpenDoor) -> None:
    assert (await door.ask("HEAD", "/game/me/0")).status == 404
    assert (await door.ask("HEAD", "/game/snapshot")).status == 404
    assert (await door.ask("GET", "/game/snapshot")).json["code"] == "unknown_stream"
    assert told([await door.poll("/game/friend/0"), await door.poll("/game/friend/0")]) == []
    await ticks(1)
    reply = await door.poll("/game/friend/0")
    assert [event["Type"] for event in reply["Events"]] == ["_a", "_c"]


@pytest.mark.parametrize("page", ["event-stream.md", "rest.md"])
def test_every_code_of_the_http_server_is_documented(page: str) -> None:
    """Those are refused before there is a request, so their codes stand in no list of an application."""
    text = (Path(__file__).parents[4] / "docs" / "reference" / page).read_text(encoding="utf-8")
    folder = Path(http.__path__[0])
    sources = (folder / f"{name}.py" for name in ("server", "request_scope", "websocket", "websocket_handshake"))
    code = re.compile(r"\b[45]\d\d[,:] \"([a-z_]+)\"")
    codes = {found for source in sources for found in code.findall(source.read_text(encoding="utf-8"))}
    assert {"bad_request", "headers_too_long", "not_implemented", "too_many_connections"} <= codes
    assert [found for found in sorted(codes) if f"`{found}`" not in text] == []


async def test_pages_of_named_origins_only_may_ask_where_the_door_is_told_so(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    door = await open_door(nursery, origins=["https://game.example"])
    mine = await door.ask("POST", "/game/me/0", origin="https://game.example")
    theirs = await door.ask("POST", "/game/me/0", origin="https://evil.example")
    assert mine.headers["access-control-allow-origin"] == "https://game.example"
    assert "access-control-allow-origin" not in theirs.headers
    assert (theirs.status, theirs.json["code"]) == (403, "origin_refused")
    own = await door.ask("POST", "/game/me/0", origin="http://localhost")
    assert own.status == 200, "the page that the door itself serves"
    said = json.dumps({"Events": [{"Type": "forged"}]})
    for origin in ("https://evil.example", "null"):
        # Simple, so no browser asks before it sends it.
        forged = await door.ask("POST", "/game/me/0", said, origin=origin, content_type="text/plain")
        assert forged.status == 403
    await ticks(2)
    events = (await door.poll("/game/me/0"))["Events"]
    assert [event["Type"] for event in events] == ["_a", "_c"], "nothing was taken"
    stream = door.connect()
    await stream.send_all(
        b"GET /game/me/0 HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\nupgrade: websocket\r\n"
        b"connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert bytes(await stream.receive_some()).startswith(b"HTTP/1.1 403 ")


async def test_a_page_of_the_game_is_given_out_beside_the_streams(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    door = await open_door(nursery, pages={"/game.html": StaticPage("text/html", b"<p>play")})
    answer = await door.ask("GET", "/game.html")
    assert (answer.status, answer.text) == (200, "<p>play")
    assert answer.headers["content-type"].startswith("text/html")


# ---- told without asking ----


async def test_a_long_poll_is_answered_with_the_next_tick(autojump_clock: MockClock, door: OpenDoor) -> None:
    first = await door.poll("/game/me/0")
    began_s = trio.current_time()
    second = await door.poll(f"/game/me/{first['T']}", Incarnation=first["Incarnation"], Wait=20)
    assert second["T"] == first["T"] + 1
    assert trio.current_time() - began_s < 2 * TICK_S
    assert [event["Type"] for event in second["Events"]] == ["_a", "_c"]


async def test_a_long_poll_that_leaves_or_has_to_begin_anew_does_not_wait(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    await door.poll("/game/friend/0")
    began_s = trio.current_time()
    reply = await door.poll("/game/me/500", Incarnation="0" * 32, Wait=20)
    assert reply["Reset"]
    assert reply["T"] == 0
    await door.poll("/game/me/0", Leave=True, Wait=20)
    assert trio.current_time() == began_s


async def test_every_way_of_being_told_gives_the_same_events_in_the_same_order(
    autojump_clock: MockClock, door: OpenDoor, nursery: trio.Nursery
) -> None:
    """Polls, long polls, server-sent events and a WebSocket, while two clients send."""
    last = 60
    heard: dict[str, list[Any]] = {"poll": [], "long": [], "events": [], "socket": []}

    async def polling(name: str, **members: Any) -> None:
        known = 0
        while known < last:
            reply = await door.poll(f"/game/{name}/{known}", **members)
            known = reply["T"]
            heard[name].append(reply)
            if not members:
                await trio.sleep(0.173)

    async def reading() -> None:
        reader = await door.events("/game/events/0")
        while not heard["events"] or heard["events"][-1]["T"] < last:
            heard["events"].append(json.loads((await reader.next())["data"]))
        await reader.stream.aclose()

    async def holding() -> None:
        client = await door.websocket("/game/socket/0")
        await client.send("{}")
        number = 0
        while not heard["socket"] or heard["socket"][-1]["T"] < last:
            heard["socket"].append(json.loads(str(await client.next())))
            number += 1
            await client.send(json.dumps({"Events": [{"Type": "go", "Body": f"s{number}", "Id": number}]}))
        await client.close()

    async def sending() -> None:
        for number in range(20):
            await door.poll("/game/sender/0", Events=[{"Type": "move", "Body": f"{number}"}])
            await trio.sleep(0.11)

    with trio.fail_after(60):
        async with trio.open_nursery() as inner:
            for work in (reading, holding, sending):
                inner.start_soon(work)
            inner.start_soon(polling, "poll")
            inner.start_soon(lambda: polling("long", Wait=20))
    logs = {name: [event for event in told(replies) if event["T"] <= last] for name, replies in heard.items()}
    assert logs["poll"] == logs["long"] == logs["events"] == logs["socket"]
    assert len([event for event in logs["poll"] if event["Type"] == "move"]) == 20
    assert len([event for event in logs["poll"] if event["Type"] == "go"]) >= 20
    for name in ("long", "events", "socket"):
        known = [reply["T"] for reply in heard[name]]
        assert known == sorted(set(known))
        assert len(known) >= last, "one for each tick"


async def test_server_sent_events_go_on_where_the_client_was(autojump_clock: MockClock, door: OpenDoor) -> None:
    reader = await door.events("/game/me/0")
    seen = [await reader.next() for _ in range(5)]
    assert reader.status == 200
    await reader.stream.aclose()
    await door.poll("/game/friend/0", Events=[{"Type": "missed"}])
    await ticks(4)
    known = json.loads(seen[-1]["data"])["T"]
    again = await door.events("/game/me/0", last_event_id=seen[-1]["id"])
    reply = json.loads((await again.next())["data"])
    assert "Reset" not in reply
    assert [event["Type"] for event in reply["Events"]] == ["_c", "missed"]
    assert all(event["T"] > known for event in reply["Events"])


async def test_server_sent_events_of_a_stream_that_was_lost_begin_anew(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    await door.poll("/game/friend/0")
    await ticks(3)
    reader = await door.events("/game/me/0", last_event_id="900." + "0" * 32)
    reply = json.loads((await reader.next())["data"])
    assert reply["Reset"]
    assert reply["Events"][0]["Type"] == "_a"
    resumed = await door.events(f"/game/me/900?incarnation={'0' * 32}")
    assert json.loads((await resumed.next())["data"])["Reset"]


async def test_a_websocket_that_comes_back_says_first_of_which_incarnation_it_knows(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    client = await door.websocket("/game/me/0")
    await client.send("{}")
    first = json.loads(str(await client.next()))
    while first["T"] < 3:
        first = json.loads(str(await client.next()))
    await client.close()
    await ticks(5)
    again = await door.websocket(f"/game/me/{first['T']}")
    await again.send(json.dumps({"Incarnation": first["Incarnation"]}))
    reply = json.loads(str(await again.next()))
    assert (reply["Events"], reply["ProxyId"]) == ([], "1")
    assert reply["T"] > first["T"]
    lost = await door.websocket("/game/me/4000")
    await lost.send(json.dumps({"Incarnation": "0" * 32}))
    assert json.loads(str(await lost.next()))["Reset"]


async def test_who_is_reset_while_a_connection_is_open_is_told_so_though_the_tick_goes_back(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    begun = await door.poll("/s/other/0")
    client = await door.websocket("/s/me/500")
    await client.send("{}")
    old = json.loads(str(await client.next()))
    assert old["T"] >= 500
    # From now on it speaks as a new client, and so has a tick that the stream has not reached.
    await client.send(json.dumps({"Incarnation": begun["Incarnation"]}))
    with trio.fail_after(5):
        while "Reset" not in (reply := json.loads(str(await client.next()))):
            assert reply["T"] > 500
    assert (reply["T"] < 500, [event["Type"] for event in reply["Events"]]) == (True, ["_a", "_c", "_c"])
    assert (json.loads(str(await client.next())))["T"] == reply["T"] + 1


async def test_a_refused_message_over_a_websocket_ends_nothing(autojump_clock: MockClock, door: OpenDoor) -> None:
    client = await door.websocket("/game/me/0")
    await client.send("{}")
    await client.send('{"Events":[{"Type":"_d"}]}')
    await client.send('{"Events":[{"Type":"good","Id":1}]}')
    replies = [json.loads(str(await client.next())) for _ in range(5)]
    refused = [reply for reply in replies if "code" in reply]
    assert [reply["code"] for reply in refused] == ["reserved_type"]
    good = [reply for reply in replies if "code" not in reply]
    assert [event["Type"] for event in told(good)] == ["_a", "_c", "good"]
    assert good[-1]["Acked"] == 1


@pytest.mark.parametrize("path", ["/game/me", "/game/snapshot", "/game/me/99999999999999999999"])
async def test_a_websocket_elsewhere_is_refused_by_name(autojump_clock: MockClock, door: OpenDoor, path: str) -> None:
    client = await door.websocket(path)
    assert client.status in {400, 404}
    assert client.response is not None
    assert json.loads(bytes(client.response.body or b""))["code"] in {"bad_path", "bad_number"}


async def test_a_first_message_that_is_refused_ends_with_the_refusal(autojump_clock: MockClock, door: OpenDoor) -> None:
    client = await door.websocket("/game/me/0")
    await client.send("nonsense")
    assert json.loads(str(await client.next()))["code"] == "bad_body"
    assert await client.until_over() == 1008
    assert len(door.door._host.streams) == 0  # type: ignore[attr-defined]


async def test_who_leaves_is_gone_at_once_whichever_way_it_says_so(autojump_clock: MockClock, door: OpenDoor) -> None:
    await door.poll("/game/friend/0")
    client = await door.websocket("/game/socket/0")
    await client.send("{}")
    await client.next()
    await door.poll("/game/poller/0")
    await door.poll("/game/deleter/0")
    await ticks(2)
    await client.send('{"Leave":true}')
    assert await client.until_over() == 1000
    await door.poll("/game/poller/0", Leave=True)
    assert (await door.ask("DELETE", "/game/deleter")).status == 200
    await ticks(2)
    log = (await door.poll("/game/friend/0"))["Events"]
    assert [event["Body"] for event in log if event["Type"] == "_d"] == ["2", "3", "4"]


# ---- Beamable's form ----

SYNC = "/object/gamerelay/game/sync"


async def relay(door: OpenDoor, token: str, tick: int, *bodies: str) -> Any:
    events = [{"t": 0, "type": "move", "origin": 0, "body": body} for body in bodies]
    answer = await door.ask("POST", SYNC, json.dumps({"t": tick, "events": events}), authorization=f"Bearer {token}")
    assert answer.status == 200, answer.text
    return answer.json


async def test_a_simclient_is_told_in_its_form_what_others_are_told(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    door = await open_door(nursery, relay=True)
    first = await relay(door, "one", -1)
    assert first == {"t": 0, "events": [], "clientId": "1"}
    await door.poll("/game/two/0", Events=[{"Type": "greet", "Body": "<é>"}])
    await ticks(1)
    second = await relay(door, "one", first["t"], "left", "right")
    assert second["t"] == 1
    incarnation = (await door.poll("/game/two/0"))["Incarnation"]
    assert second["events"] == [
        {"t": 1, "type": "_a", "origin": -1, "body": incarnation},
        {"t": 1, "type": "_c", "origin": -1, "body": "1"},
        {"t": 1, "type": "_c", "origin": -1, "body": "2"},
        {"t": 1, "type": "greet", "origin": 2, "body": "<é>"},
        {"t": 1, "type": "move", "origin": 1, "body": "left"},
        {"t": 1, "type": "move", "origin": 1, "body": "right"},
    ]
    plain = (await door.poll("/game/two/0"))["Events"]
    assert [(event["T"], event["Type"], event["Body"]) for event in plain] == [
        (event["t"], event["type"], event["body"]) for event in second["events"]
    ]


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({}, "{}", 401, "unauthorized"),
        ({"authorization": "Basic one"}, "{}", 401, "unauthorized"),
        ({"authorization": "Bearer"}, "{}", 401, "unauthorized"),
        ({"authorization": "Bearer one"}, "[]", 400, "bad_body"),
        ({"authorization": "Bearer one"}, '{"t":1.5}', 400, "bad_body"),
        ({"authorization": "Bearer one"}, '{"t":99999999999999999999}', 400, "bad_body"),
        ({"authorization": "Bearer one"}, '{"t":0,"events":[{"type":"$connect"}]}', 400, "reserved_type"),
        ({"authorization": "Bearer one"}, '{"t":0,"events":[{"type":"_c"}]}', 400, "reserved_type"),
        ({"authorization": "Bearer one"}, '{"events":[' + "0," * 9000 + "0]}", 413, "body_too_large"),
    ],
)
async def test_what_is_wrong_in_that_form_is_refused_by_name(
    nursery: trio.Nursery, autojump_clock: MockClock, headers: dict[str, str], body: str, status: int, code: str
) -> None:
    door = await open_door(nursery, relay=True)
    answer = await door.ask("POST", SYNC, body, **headers)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert (await door.ask("GET", "/game/snapshot")).json["code"] == "unknown_stream"


class Elsewhere(PolledHost):
    """Has no stream; another server has."""

    async def request(self, stream: str, request: StreamRequest) -> StreamReply:
        raise StreamRefusal(RefusalCode.ELSEWHERE, "it is there", f"http://s2/beta.{stream}")


@pytest.mark.parametrize(
    ("path", "there"),
    [
        (SYNC, "http://s2/object/gamerelay/beta.game/sync"),
        ("/game/me/0", "http://s2/beta.game/me/0"),
        ("/game/m%20e/0?incarnation=5", "http://s2/beta.game/m%20e/0?incarnation=5"),
    ],
)
async def test_who_asks_at_another_door_is_sent_on_in_the_form_in_which_it_asks(
    nursery: trio.Nursery, path: str, there: str
) -> None:
    door = OpenDoor(nursery, StreamDoor(Elsewhere(), TrioClock(), relay=True))
    answer = await door.ask("POST", path, "{}", authorization="Bearer one")
    assert (answer.status, answer.json["code"], answer.headers["location"]) == (307, "elsewhere", there)


async def test_that_form_is_an_option(autojump_clock: MockClock, door: OpenDoor) -> None:
    answer = await door.ask("POST", SYNC, "{}", authorization="Bearer one")
    assert (answer.status, answer.json["code"]) == (404, "bad_path")


# ---- peers that are slow, or gone ----


async def test_a_client_that_is_gone_frees_its_place_and_is_disconnected_after_its_silence(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    await door.poll("/game/friend/0")
    client = await door.websocket("/game/me/0")
    await client.send("{}")
    await client.next()
    reader = await door.events("/game/other/0")
    await reader.next()
    await client.stream.aclose()
    await reader.stream.aclose()
    await ticks(2)
    assert len(door.room.crowd) == 0
    assert door.door.site.websockets.counts.open == 0
    for _ in range(12):
        await ticks(20)
        await door.poll("/game/friend/0")
    reply = await door.poll("/game/friend/0")
    assert sorted(event["Body"] for event in reply["Events"] if event["Type"] == "_d") == ["2", "3"]


async def test_a_client_that_says_nothing_at_first_loses_its_websocket_and_is_told_why(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    client = await door.websocket("/game/me/0")
    assert json.loads(str(await client.next()))["code"] == "no_hello"
    assert trio.current_time() >= 10
    assert door.door.lobby.refused == {"no_hello": 1}
    talker = await door.websocket("/game/me/0")
    await talker.send("{}")
    await talker.next()
    await ticks(400)
    assert door.door.lobby.entered == 1
    assert door.door.site.websockets.counts.open == 1


async def test_an_open_connection_is_a_sign_of_life_for_longer_than_the_silence_that_disconnects(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    client = await door.websocket("/game/me/0")
    await client.send("{}")
    while json.loads(str(await client.next()))["T"] < 250:
        pass
    log = (await door.poll("/game/friend/0"))["Events"]
    assert "_d" not in [event["Type"] for event in log]


async def test_a_slow_subscriber_is_dropped_alone(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    door = await open_door(nursery, websocket_limits=WebSocketLimits(send_s=2.0))
    blocked, _ = memory_stream_one_way_pair()
    sent = 0

    async def a_few() -> None:
        nonlocal sent
        sent += 1
        if sent > 4:
            await trio.sleep_forever()

    blocked.send_all_hook = a_few
    slow = door.connect(lambda other: trio.StapledStream(blocked, other.receive_stream))
    await slow.send_all(
        b"GET /game/slow/0 HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n\x81\x82\0\0\0\0{}"
    )
    client = await door.websocket("/game/me/0")
    await client.send("{}")
    known: list[int] = []
    while not known or known[-1] < 100:
        known.append(json.loads(str(await client.next()))["T"])
    assert known[1:] == list(range(known[1], 101)), "the other missed no tick"
    assert door.door.site.websockets.counts.slow == 1
    assert door.door.site.websockets.counts.open == 1


async def test_what_many_are_told_is_written_once(autojump_clock: MockClock, door: OpenDoor) -> None:
    clients = [await door.websocket(f"/game/client-{number}/0") for number in range(10)]
    for client in clients:
        await client.send("{}")
    texts = door.door.pushes.texts
    for client in clients:
        while json.loads(str(await client.next()))["T"] < 20:
            pass
    before = texts.written
    for client in clients:
        while json.loads(str(await client.next()))["T"] < 40:
            pass
    assert texts.written - before <= 25


# ---- snapshots and dumps ----


async def test_a_snapshot_that_a_quorum_had_is_given_to_those_who_come_late_and_a_desync_is_told(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    door = await open_door(nursery, StreamLimits(pause=False))
    first = [await door.poll(f"/game/{name}/0") for name in "ab"]
    incarnation = first[0]["Incarnation"]
    await ticks(10)
    await door.poll("/game/a/0")
    state = b"the state"
    good, other = hashlib.sha256(state).hexdigest(), hashlib.sha256(b"another").hexdigest()
    for name in "ab":
        await door.poll(
            f"/game/{name}/8", Incarnation=incarnation, Hashes=[[5, good], [6, good if name == "a" else other]]
        )
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    offer = {
        "Incarnation": incarnation,
        "State": base64.b64encode(state).decode(),
        "Hash": good,
        "Key": base64.b64encode(public).decode(),
        "Signature": base64.b64encode(key.sign(signed_text(incarnation, 5, good))).decode(),
    }
    assert (await door.ask("PUT", "/game/a/snapshot/5", json.dumps(offer))).text == "{}"
    snapshot = (await door.ask("GET", "/game/snapshot")).json
    assert (snapshot["T"], snapshot["State"], snapshot["Incarnation"]) == (5, offer["State"], incarnation)
    assert [vote["ProxyId"] for vote in snapshot["Votes"]] == ["1", "2"]
    late = await door.poll("/game/late/0")
    assert late["Snapshot"] == 5
    assert late["Desync"] == {"T": 6, "Hashes": {good: ["1"], other: ["2"]}}
    for name in "ab":
        assert (await door.ask("PUT", f"/game/{name}/desync/6", f"dump of {name}")).status == 200
    dumps = (await door.ask("GET", "/game/desync")).json["Dumps"]
    assert sorted(row["Dump"] for row in dumps) == ["dump of a", "dump of b"]


# ---- over TCP ----


async def test_over_tcp_it_is_served_with_websockets_and_ends_them_with_1001(nursery: trio.Nursery) -> None:
    door = StreamDoor(PolledHost(), TrioClock())
    stop = trio.CancelScope()

    async def serve(*, task_status: trio.TaskStatus[list[str]]) -> None:
        with stop:
            await door.serve("127.0.0.1", 0, task_status=task_status)

    (url,) = await nursery.start(serve)
    stream = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
    client = await WebSocketClient.over(stream, "ws://localhost/game/me/0")
    await client.send("{}")
    while not told([json.loads(str(await client.next()))]):
        pass
    stop.cancel()
    assert await client.until_over() == 1001
    await stream.aclose()
