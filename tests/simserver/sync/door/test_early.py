"""Events that are told before their tick is over, to clients that ask for it: once, in order, and again with it."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.actors.http.websocket_client import WebSocketClient
from tests.simserver.sync.door.doors import OpenDoor, open_door

TICK_S = 0.05


@pytest.fixture
async def door(nursery: trio.Nursery) -> OpenDoor:
    return await open_door(nursery)


async def connected(door: OpenDoor, name: str, **members: Any) -> WebSocketClient:
    client = await door.websocket(f"/game/{name}/0")
    await client.send(json.dumps(members))
    ticks = 0
    while ticks < 3:
        ticks += "T" in json.loads(str(await client.next()))
    return client


async def told(client: WebSocketClient, wanted: int) -> tuple[list[Any], list[Any]]:
    """What is told until so many events have come with their ticks: early, and then."""
    early, events = list[Any](), list[Any]()
    while len(events) < wanted:
        message = json.loads(str(await client.next()))
        early += message.get("Early", [])
        events += message.get("Events", [])
    return early, events


async def test_an_event_is_told_before_its_tick_is_over_and_again_with_it(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    client = await connected(door, "me", Early=True)
    await door.poll("/game/friend/0")
    began_s = trio.current_time()
    early = json.loads(str(await client.next()))
    assert early == {"Early": [{"Type": "_c", "Origin": "_", "Body": "2"}]}
    assert trio.current_time() - began_s < TICK_S / 2
    await trio.sleep(0.01)
    await door.poll("/game/friend/0", Events=[{"Type": "a", "Body": "<1>"}, {"Type": "b"}])
    early_rows, events = await told(client, 3)
    assert early_rows == [
        {"Type": "a", "Origin": "2", "Body": "<1>"},
        {"Type": "b", "Origin": "2", "Body": ""},
    ]
    assert [event["Type"] for event in events] == ["_c", "a", "b"]


async def test_each_event_of_many_is_told_early_at_most_once_and_in_order(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    client = await connected(door, "me", Early=True)
    for number in range(40):
        await door.poll(f"/game/friend-{number % 4}/0", Events=[{"Type": "e", "Body": f"{number}", "Id": number + 1}])
        await trio.sleep(0.013)
    early, events = await told(client, 44)
    bodies = [[event["Body"] for event in rows if event["Type"] == "e"] for rows in (early, events)]
    assert bodies[1] == [str(number) for number in range(40)]
    assert len(bodies[0]) > 30
    assert bodies[0] == sorted(set(bodies[0]), key=int)


async def test_who_does_not_ask_is_told_nothing_early(autojump_clock: MockClock, door: OpenDoor) -> None:
    plain, early = await connected(door, "plain"), await connected(door, "early", Early=True)
    await door.poll("/game/friend/0", Events=[{"Type": "a"}])
    assert (await told(plain, 2))[0] == []
    assert [event["Type"] for event in (await told(early, 2))[0]] == ["_c", "a"]


async def test_server_sent_events_are_told_early_by_a_name_and_without_an_id(
    autojump_clock: MockClock, door: OpenDoor
) -> None:
    reader = await door.events("/game/me/0?early=1")
    for _ in range(3):
        await reader.next()
    await door.poll("/game/friend/0", Events=[{"Type": "a"}])
    early = await reader.next()
    assert early.keys() == {"event", "data"}
    assert early["event"] == "early"
    assert [event["Type"] for event in json.loads(early["data"])["Early"]] == ["_c", "a"]
    last = await reader.next()
    assert [event["Type"] for event in json.loads(last["data"])["Events"]] == ["_c", "a"]
    assert last["id"].startswith(f"{json.loads(last['data'])['T']}.")


async def test_nobody_is_waited_for_when_the_last_who_asked_is_gone(autojump_clock: MockClock, door: OpenDoor) -> None:
    client = await connected(door, "me", Early=True)
    await client.close()
    await trio.sleep(2 * TICK_S)
    assert door.door.pushes._walks == {}
    assert door.door._host._requests == {}  # type: ignore[attr-defined]
