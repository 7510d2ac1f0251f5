"""A door for peers whose names the link proves: each is the client that he has proved to be, and nobody else is."""

import json
from collections import Counter
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors.http.link_frames import LinkAsk
from batonpass.actors.http.link_server import LinkHttpServer
from batonpass.actors.link import Address
from batonpass.actors.net.endpoint import LinkInbox
from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.stream_door import StreamDoor
from batonpass.simserver.sync.events.messages import StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.play.doors import BadDoor, KnownDoors
from tests.simserver.ports import TrioClock
from tests.simserver.sync.door.doors import OpenDoor


class GoneHost(PolledHost):
    """Its streams are at another server."""

    async def request(self, stream: str, request: StreamRequest) -> StreamReply:
        url = "http://10.0.0.2:9/beta.game"
        raise StreamRefusal(RefusalCode.ELSEWHERE, f"ask {url}", url, "alpha.S2")


class NoLink:
    """What is asked here does not come over one."""

    def claim(self, channel: int) -> LinkInbox:
        raise AssertionError

    async def send(self, peer: str, address: Address, message: bytes, *, channel: int = 0) -> None:
        raise AssertionError


async def ask(door: StreamDoor, peer: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    server = LinkHttpServer(door, NoLink(), Counter())
    status, answer = await server._asked(LinkAsk(1, method, path, json.dumps(body or {}).encode()), peer)
    return status, json.loads(answer)


async def told(door: StreamDoor, peer: str, *bodies: str, known: int = 0) -> Any:
    events = [{"Type": "say", "Body": body, "Id": number} for number, body in enumerate(bodies, 1)]
    status, answer = await ask(door, peer, "POST", f"/game/-/{known}", {"Events": events})
    assert status == 200, answer
    return answer


async def test_a_peer_is_one_client_wherever_he_asks_and_however_often(autojump_clock: MockClock) -> None:
    host = PolledHost()
    door, other = StreamDoor(host, TrioClock()), StreamDoor(host, TrioClock())
    ada, bob = await told(door, "alpha.ada", "a"), await told(door, "alpha.bob", "b")
    await trio.sleep(0.2)
    again = await told(other, "alpha.ada", "a")
    assert ada["ProxyId"] == again["ProxyId"] != bob["ProxyId"]
    said = [(row["Origin"], row["Body"]) for row in again["Events"] if row["Type"] == "say"]
    assert said == [(ada["ProxyId"], "a"), (bob["ProxyId"], "b")]


@pytest.mark.parametrize("private_id", ["alpha.ada", "peer%20of%20the%20link%20alpha.ada", "%2D-", "me"])
async def test_a_peer_asks_as_nobody_else(private_id: str) -> None:
    door = StreamDoor(PolledHost(), TrioClock())
    for method, path in (("POST", "0"), ("GET", "0"), ("DELETE", ""), ("PUT", "snapshot/1"), ("PUT", "desync/1")):
        status, answer = await ask(door, "alpha.bob", method, f"/game/{private_id}/{path}".rstrip("/"))
        assert (status, answer["code"]) == (404, "bad_path"), (method, path, answer)


@pytest.mark.parametrize("private_id", ["peer of the link alpha.ada", "peer%20of%20the%20link%20alpha.ada"])
@pytest.mark.parametrize(("method", "path"), [("POST", "/0"), ("DELETE", ""), ("PUT", "/snapshot/1")])
async def test_nobody_is_such_a_peer_over_http(
    autojump_clock: MockClock, nursery: trio.Nursery, private_id: str, method: str, path: str
) -> None:
    door = StreamDoor(PolledHost(), TrioClock())
    await told(door, "alpha.ada", "a")
    opened = OpenDoor(nursery, door)
    answer = await opened.ask(method, f"/game/{private_id.replace(' ', '%20')}{path}")
    assert (answer.status, answer.json["code"]) == (404, "bad_path")
    await trio.sleep(0.2)
    again = await told(door, "alpha.ada", "a", "b")
    assert again["ProxyId"] == "1"
    assert {row["Origin"] for row in again["Events"]} == {"_", "1"}
    assert [row["Type"] for row in again["Events"]][:2] == ["_a", "_c"]
    assert "_d" not in {row["Type"] for row in again["Events"]}


async def test_beamables_form_is_not_for_the_link() -> None:
    door = StreamDoor(PolledHost(), TrioClock(), relay=True)
    status, answer = await ask(door, "alpha.ada", "POST", "/object/gamerelay/game/sync", {"t": 0})
    assert (status, answer["code"]) == (404, "bad_path")


async def test_a_peer_is_sent_on_over_the_link_and_others_over_http(nursery: trio.Nursery) -> None:
    door = StreamDoor(GoneHost(), TrioClock())
    status, answer = await ask(door, "alpha.ada", "POST", "/game/-/0")
    assert (status, answer["url"]) == (307, "link://to/alpha.S2/beta.game")
    there = await OpenDoor(nursery, door).ask("POST", "/game/me/0")
    assert (there.status, there.json["url"]) == (307, "http://10.0.0.2:9/beta.game")


def test_a_client_follows_from_link_to_link_and_never_from_one_kind_to_the_other() -> None:
    doors = KnownDoors(["link://to/alpha.s1", "link://to/alpha.S2"])
    assert doors.url_of("/game/-/7") == "link://to/alpha.s1/game/-/7"
    doors.sent_on({"url": "link://to/alpha.S2/beta.game"})
    assert doors.url_of("/game/-/7") == "link://to/alpha.S2/beta.game/-/7"
    for url in ("http://10.0.0.2:9/game", "https://10.0.0.2:9/game", "link:/alpha.s2/game"):
        with pytest.raises(BadDoor):
            doors.sent_on({"url": url})
    with pytest.raises(BadDoor):
        KnownDoors("http://10.0.0.1:9").sent_on({"url": "link://to/alpha.S2/game"})
