"""The players' door of a server, over real sockets: who comes in, what is refused by name, what a client is told."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cbor2
import pytest
import trio

from batonpass.authority.wire.door import (
    DOOR_VERSION,
    DOOR_VERSIONS,
    HAVE_SINCE,
    MAX_DOOR_MESSAGE_BYTES,
    MAX_HAVE,
    MAX_HELD_TOPICS,
    MAX_HOME_WORD_BYTES,
    MAX_SUBSCRIPTIONS,
    SUBPROTOCOL,
    DoorChallenge,
    DoorHave,
    DoorHello,
    DoorRefusal,
    DoorSubscribe,
    DoorUnsubscribe,
    DoorWelcome,
    EntityElsewhere,
    SubscriptionTopics,
    WatchedArea,
    decode_from_door_untrusted,
    encode_door,
    proof_statement,
)
from batonpass.authority.wire.transfer import Input, InputAck, NotOwner
from batonpass.client import door_link
from batonpass.client.client import PlayerClient, connect
from batonpass.client.door_link import PlayerKey
from batonpass.client.mirror import DoorMirror, WatchedEntity
from batonpass.client.socket import DoorClosed, DoorSocket
from batonpass.client.steering import InputRefused, Steering
from batonpass.client.watch import EntityWatch
from batonpass.crypto import jose
from batonpass.simserver.server.dispatch import SimserverNode
from tests.homeserver.served import Home, Player, homeserver_config, new_ports, served, until

ROBOTS = "tests.client.walled_world:Robots"


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[Home]:
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            yield home


async def server(home: Home, name: str = "alpha.s1", **options: Any) -> SimserverNode:
    node = await home.simserver(name, world=ROBOTS, **options)
    await until(lambda: node.player_url)
    return node


class Raw:
    """A client that does what a test says."""

    def __init__(self, socket: DoorSocket, challenge: DoorChallenge) -> None:
        self.socket = socket
        self.challenge = challenge
        self.mirror = DoorMirror()

    async def say(self, message: Any) -> None:
        await self.socket.send(message if isinstance(message, bytes) else encode_door(message))

    async def hear(self, kind: type) -> Any:
        """The next message of this kind; frames on the way are taken."""
        while True:
            message = decode_from_door_untrusted(await self.socket.receive())
            if isinstance(message, list):
                self.mirror.take_untrusted(message)
            if isinstance(message, kind):
                return message

    async def enter(self, player: Player | None = None) -> DoorWelcome:
        key = PlayerKey() if player is None else PlayerKey(player.name, player.identity)
        await self.say(key.prove(self.challenge))
        welcome: DoorWelcome = await self.hear(DoorWelcome)
        return welcome

    async def closed(self) -> str:
        """The code with which the door ends the connection."""
        try:
            while True:
                await self.socket.receive()
        except DoorClosed as ended:
            return ended.reason

    async def sees(self, fits: Callable[[dict[str, WatchedEntity]], object]) -> dict[str, WatchedEntity]:
        """What is shown, once it is like that."""
        while not fits(dict(self.mirror.entities)):
            await self.hear(list)
        return dict(self.mirror.entities)


@asynccontextmanager
async def raw(node: SimserverNode) -> AsyncIterator[Raw]:
    opened = await DoorSocket.open(node.player_url, SUBPROTOCOL, max_bytes=2**24, timeout_s=60)
    async with opened as socket:
        challenge = decode_from_door_untrusted(await socket.receive())
        assert isinstance(challenge, DoorChallenge)
        yield Raw(socket, challenge)


async def test_who_comes_in_has_proved_a_key_and_for_this_very_connection(alpha: Home) -> None:
    node, ada, bob = await server(alpha), await alpha.player("alpha.ada"), Player("alpha.bob")
    async with raw(node) as first:
        assert first.challenge.server == "alpha.s1"
        assert (await first.enter(ada)).player == "alpha.ada"
        former = first.challenge

    def proved(statement: dict[str, Any], who: Player = ada, *, lifetime_s: float = 60) -> DoorHello:
        claims = statement | {"expires_at_s": time.time_ns() / 1e9 + lifetime_s}
        proof = jose.sign(claims, sender=who.identity, sender_id=who.name)
        return DoorHello(version=DOOR_VERSION, player=who.name, proof=proof)

    async def refused(code: str, hello: Callable[[DoorChallenge], Any]) -> None:
        async with raw(node) as client:
            await client.say(hello(client.challenge))
            assert (await client.hear(DoorRefusal)).code == code
            assert await client.closed() == code

    await refused("unknown_player", lambda challenge: proved(proof_statement(challenge), bob))
    await refused("bad_proof", lambda challenge: proved(proof_statement(former)))
    await refused("bad_proof", lambda challenge: proved(proof_statement(challenge) | {"server": "alpha.s2"}))
    await refused("proof_expired", lambda challenge: proved(proof_statement(challenge), lifetime_s=-1))
    await refused("proof_expired", lambda challenge: proved(proof_statement(challenge), lifetime_s=3600))
    stolen = Player("alpha.ada")
    await refused("bad_proof", lambda challenge: proved(proof_statement(challenge), stolen))
    await refused("bad_proof", lambda challenge: DoorHello(version=1, player="alpha.ada", proof="no proof"))
    await refused("bad_proof", lambda challenge: DoorHello(version=1, player="alpha.ada"))
    await refused("bad_token", lambda challenge: DoorHello(version=1, player="alpha.ada", token=b"guessed"))
    await refused("unknown_player", lambda challenge: DoorHello(version=1, player="alpha.h1", proof="a.b.c"))
    await refused("other_version", lambda challenge: DoorHello(version=4))
    await refused("no_hello", lambda challenge: DoorSubscribe(id=1, entity="alpha.robot"))
    await refused("bad_message", lambda challenge: b"\xff")
    assert len(node.players) == 0
    traffic = node.door_traffic["players"]()
    assert (traffic.entered, traffic.refused) == (
        1,
        {"bad_message": 1, "bad_proof": 5, "bad_token": 1, "no_hello": 1, "other_version": 1}
        | {"proof_expired": 2, "unknown_player": 2},
    )


async def test_no_token_is_given_here_and_observers_come_in_where_they_may(alpha: Home) -> None:
    """Sessions are given by homeservers: tests/homeserver/door."""
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    async with raw(node) as first:
        assert (await first.enter(ada)).token == b""
    async with raw(node) as observer:
        assert (await observer.enter()).player == ""
        await observer.say(Input(entity="alpha.robot", owner_rev=1, seq=1, data=b""))
        assert await observer.closed() == "not_a_player"
    closed = await server(alpha, "alpha.s2", player_observers=False)
    async with raw(closed) as stranger:
        await stranger.say(DoorHello(version=DOOR_VERSION))
        assert (await stranger.hear(DoorRefusal)).code == "no_observers"


async def test_what_is_watched_is_shown_and_what_makes_no_sense_is_refused_by_name(alpha: Home) -> None:
    node, ada, bob = await server(alpha), await alpha.player("alpha.ada"), await alpha.player("alpha.bob")
    for name, owner, at in (("one", ada, [5, 5]), ("two", bob, [15, 5]), ("three", bob, [95, 5])):
        params = {"at": at, "owner": owner.name}
        await alpha.entity(f"alpha.{name}", owner, "alpha.s1", kind="robot", params=params)
    async with raw(node) as client:
        await client.enter(ada)
        await client.say(DoorSubscribe(id=1, pattern="alpha.t*"))
        seen = await client.sees(lambda seen: len(seen) == 2)
        assert {name: entity.state for name, entity in seen.items()} == {
            "alpha.two": {"at": [15, 5], "inputs": 0},
            "alpha.three": {"at": [95, 5], "inputs": 0},
        }
        assert {entity.owner for entity in seen.values()} == {"alpha.bob"}
        await client.say(DoorSubscribe(id=1, owner="alpha.ada"))
        topics = (await client.hear(SubscriptionTopics)).topics
        seen = await client.sees(lambda seen: "alpha.one" in seen)
        assert seen["alpha.one"].state["secret"] == "robot"  # noqa: S105
        assert len(topics) == 1
        await client.say(DoorSubscribe(id=2, area=WatchedArea(centre=[5, 5], radius=10)))
        assert len((await client.hear(SubscriptionTopics)).topics) == 9
        await client.sees(lambda seen: "alpha.two" in seen)
        await client.say(DoorUnsubscribe(id=2))
        assert (await client.hear(SubscriptionTopics)).topics == []

        async def refused(code: str, **fields: Any) -> None:
            await client.say(DoorSubscribe(id=9, **fields))
            refusal = await client.hear(DoorRefusal)
            assert (refusal.id, refusal.code) == (9, code)

        await refused("bad_subscription")
        await refused("bad_subscription", entity="alpha.one", owner="alpha.ada")
        await refused("bad_subscription", area=WatchedArea(radius=1))
        await refused("bad_subscription", area=WatchedArea(radius=1, centre=[0], around="alpha.one"))
        await refused("area_too_large", area=WatchedArea(centre=[0, 0], radius=1e6))
        await refused("area_too_large", area=WatchedArea(centre=[0, 0], radius=100))
        await refused("wrong_axes", area=WatchedArea(centre=[5], radius=10))
        await refused("wrong_axes", area=WatchedArea(centre=[5, 5, 5], radius=10))
        await client.say(DoorSubscribe(id=10, entity="alpha.nowhere"))
        assert (await client.hear(EntityElsewhere)).entity == "alpha.nowhere"
        for number in range(100, 100 + MAX_SUBSCRIPTIONS):
            await client.say(DoorSubscribe(id=number, pattern=f"alpha.{number}"))
        refusal = await client.hear(DoorRefusal)
        assert refusal.code == "too_many"
    long = {"type": "input", "entity": "alpha.one", "owner_rev": 1, "seq": 1, "data": bytes(MAX_DOOR_MESSAGE_BYTES)}
    for wrong, code in (
        (bytes(MAX_HOME_WORD_BYTES + 1), f"a message has at most {MAX_HOME_WORD_BYTES} bytes in 8 frames"),
        (cbor2.dumps(long), "bad_message"),
        (b"\x80", "bad_message"),
        (encode_door(DoorHello(version=1)), "bad_message"),
    ):
        async with raw(node) as client:
            await client.enter(ada)
            await client.say(wrong)
            assert await client.closed() == code
    async with raw(node) as client:
        await client.enter(ada)
        for begin in range(0, MAX_HELD_TOPICS + 1, MAX_HAVE):
            await client.say(DoorHave(topics=[[begin + number, 1, 0] for number in range(MAX_HAVE)]))
        assert await client.closed() == "too_many"
    await until(lambda: len(node.players) == 0 and len(node.players.topics) == 0)


async def test_inputs_are_those_of_the_player_that_came_in(alpha: Home) -> None:
    node, ada, bob = await server(alpha), await alpha.player("alpha.ada"), await alpha.player("alpha.bob")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"owner": "alpha.ada"})
    given = Input(entity="alpha.one", owner_rev=1, seq=1, data=bytes((3, 0)))
    async with raw(node) as theirs, raw(node) as mine:
        await theirs.enter(bob)
        await theirs.say(given)
        assert (await theirs.hear(NotOwner)).owner == "alpha.ada"
        await mine.enter(ada)
        await mine.say(given)
        assert (await mine.hear(InputAck)).applied == 1
        await mine.say(given)
        assert (await mine.hear(InputAck)).applied == 1
        await mine.say(given.model_copy(update={"entity": "alpha.nowhere"}))
        assert (await mine.hear(EntityElsewhere)).entity == "alpha.nowhere"
    holding = node.holdings.get("alpha.one")
    assert holding is not None
    assert holding.life.look()["inputs"] == 1


async def test_an_area_goes_where_its_entity_goes(alpha: Home) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"at": [5, 5], "speed": [2, 0]})
    await alpha.entity("alpha.far", ada, "alpha.s1", kind="robot", params={"at": [205, 5]})
    async with raw(node) as client:
        await client.enter()
        await client.say(DoorSubscribe(id=1, area=WatchedArea(around="alpha.one", radius=10)))
        await client.sees(lambda seen: "alpha.one" in seen and "alpha.far" not in seen)
        await client.sees(lambda seen: "alpha.far" in seen)
    await until(lambda: len(node.players.topics) == 0)


async def test_a_client_that_does_not_read_is_told_later_what_is_so_then(alpha: Home) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    for number in range(30):
        params = {"at": [number, 0], "speed": [1, 0], "loud": 4000}
        await alpha.entity(f"alpha.r-{number}", ada, "alpha.s1", kind="robot", params=params)
    async with raw(node) as slow, raw(node) as quick:
        await slow.enter()
        await slow.say(DoorSubscribe(id=1, pattern="alpha.r-*"))
        # A second's states are 15 MB, which is more than the kernel keeps for anybody.
        await until(lambda: node.players.behind)
        await quick.enter()
        await quick.say(DoorSubscribe(id=1, pattern="alpha.r-*", rate_hz=2))
        first = await quick.sees(lambda seen: len(seen) == 30)
        await quick.sees(lambda seen: all(seen[name].tick > first[name].tick + 20 for name in first))
        latest = max(entity.tick for entity in quick.mirror)
        await slow.sees(lambda seen: len(seen) == 30 and min(one.tick for one in seen.values()) >= latest)


@pytest.mark.parametrize("version", DOOR_VERSIONS)
async def test_a_client_that_comes_again_goes_on_from_what_it_has(alpha: Home, version: int) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    for number in range(3):
        params = {"at": [number, 0], "speed": [1, 0]}
        await alpha.entity(f"alpha.r-{number}", ada, "alpha.s1", kind="robot", params=params)
    first: list[Any] = []
    runs: list[bytes] = []
    mirror = DoorMirror()
    for _ in range(2):
        async with raw(node) as client:
            await client.say(DoorHello(version=version))
            welcome = cbor2.loads(await client.socket.receive())
            assert ("run" in welcome) == (version >= HAVE_SINCE), "earlier clients take no other members than theirs"
            runs.append(welcome.get("run", b""))
            client.mirror = mirror
            if version >= HAVE_SINCE:
                await client.say(DoorHave(topics=mirror.held))
            await client.say(DoorSubscribe(id=1, pattern="alpha.r-*"))
            first.append(await client.hear(list))
            seen = await client.sees(lambda seen: len(seen) == 3)
            await client.sees(lambda now: all(now[name].tick > seen[name].tick for name in seen))  # noqa: B023 — is awaited
            mirror = client.mirror.successor()
        await until(lambda: len(node.players) == 0)
    assert first[0][2] == 0
    assert (first[1][2] > 0) == (version >= HAVE_SINCE)
    assert runs[0] == runs[1]


async def test_the_client_for_python_goes_on_after_its_connection_was_lost(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"at": [0, 0], "speed": [1, 0]})
    bases: list[int] = []

    def heard(data: bytes) -> Any:
        message = decode_from_door_untrusted(data)
        if isinstance(message, list):
            bases.append(message[2])
        return message

    monkeypatch.setattr(door_link, "decode_from_door_untrusted", heard)
    async with connect(alpha.api.url) as client:
        watch = await client.watch(entity="alpha.one")
        await until(lambda: "alpha.one" in watch.entities)
        await until(lambda: len(bases) > 3)
        assert await client.break_off()
        await until(lambda: len(node.players) == 0)
        known = len(bases)
        tick = watch.entities["alpha.one"].tick
        await until(lambda: watch.entities["alpha.one"].tick > tick + 3)
        assert not watch.is_lost("alpha.one")
    # All of it was told once, by the first connection.
    assert bases.count(0) == 1
    assert len(bases) > known


async def test_passivated_entities_are_shown_and_stay_so_until_they_are_steered(alpha: Home) -> None:
    options = {"world": "tests.client.walled_world:SleepyRobots", "passivate_after_s": 0.1}
    node, ada = await alpha.simserver("alpha.s1", **options), await alpha.player("alpha.ada")
    for number in range(5):
        params = {"at": [number, 0], "owner": "alpha.ada"}
        await alpha.entity(f"alpha.r-{number}", ada, "alpha.s1", kind="robot", params=params)
    await until(lambda: node.holdings.passive == 5 and node.player_url)
    async with raw(node) as client:
        await client.enter(ada)
        await client.say(DoorSubscribe(id=1, owner="alpha.ada"))
        await client.say(DoorSubscribe(id=2, area=WatchedArea(centre=[0, 0], radius=20)))
        seen = await client.sees(lambda seen: len(seen) == 5)
        assert seen["alpha.r-3"].state["at"] == [3, 0]
        assert node.holdings.passive == 5
        assert node.counts["brought_back"] == 0
        await client.say(Input(entity="alpha.r-3", owner_rev=1, seq=1, data=bytes((2, 0))))
        await client.sees(lambda seen: seen["alpha.r-3"].state["at"][0] > 10)
        assert node.holdings.passive == 4


async def test_an_area_that_turns_out_too_large_ends_by_itself_and_the_others_go_on(alpha: Home) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    async with raw(node) as observer, raw(node) as other:
        await observer.enter()
        await other.enter()
        await other.say(DoorSubscribe(id=1, pattern="alpha.*"))
        # Too large along one axis; then along one not, but along two, which shows when the entity comes.
        await observer.say(DoorSubscribe(id=1, area=WatchedArea(around="alpha.one", radius=1e9)))
        assert (await observer.hear(DoorRefusal)).code == "area_too_large"
        await observer.say(DoorSubscribe(id=2, area=WatchedArea(around="alpha.one", radius=600)))
        await observer.hear(SubscriptionTopics)
        await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"at": [5, 5]})
        refusal = await observer.hear(DoorRefusal)
        assert (refusal.id, refusal.code) == (2, "area_too_large")
        await other.sees(lambda seen: "alpha.one" in seen)
        await observer.say(DoorSubscribe(id=3, area=WatchedArea(around="alpha.one", radius=20)))
        await observer.sees(lambda seen: "alpha.one" in seen)


async def test_an_area_along_other_axes_than_the_world_has_ends_with_a_code_once_these_are_known(alpha: Home) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    async with raw(node) as observer:
        await observer.enter()
        # Nothing has a position yet.
        await observer.say(DoorSubscribe(id=1, area=WatchedArea(centre=[5], radius=20)))
        await observer.hear(SubscriptionTopics)
        await observer.say(DoorSubscribe(id=2, area=WatchedArea(centre=[5, 5], radius=20)))
        await observer.hear(SubscriptionTopics)
        await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"at": [5, 5]})
        refusal = await observer.hear(DoorRefusal)
        assert (refusal.id, refusal.code) == (1, "wrong_axes")
        assert "2 numbers" in refusal.message
        await observer.sees(lambda seen: "alpha.one" in seen)


async def test_a_subscription_that_is_refused_shows_nothing_any_more_and_nothing_of_it_is_left(alpha: Home) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"at": [5, 5]})
    async with raw(node) as client:
        await client.enter()
        await client.say(DoorSubscribe(id=1, area=WatchedArea(centre=[5, 5], radius=10)))
        await client.sees(lambda seen: "alpha.one" in seen)
        await client.say(DoorSubscribe(id=2, pattern="alpha.*"))
        await client.hear(SubscriptionTopics)
        for number, (code, asked) in enumerate(
            (
                ("area_too_large", DoorSubscribe(id=1, area=WatchedArea(centre=[5, 5], radius=1e6))),
                ("bad_subscription", DoorSubscribe(id=1, area=WatchedArea(centre=[5, float("nan")], radius=1))),
                ("bad_subscription", DoorSubscribe(id=1, owner="alpha.ada", pattern="alpha.*")),
            )
        ):
            if number:
                await client.say(DoorSubscribe(id=1, area=WatchedArea(centre=[5, 5], radius=10)))
                await client.hear(SubscriptionTopics)
            await client.say(asked)
            assert (await client.hear(SubscriptionTopics)).topics == []
            refusal = await client.hear(DoorRefusal)
            assert (refusal.id, refusal.code) == (1, code)
        # Only the pattern is watched.
        assert len(node.players.topics) == 1
    await until(lambda: len(node.players.topics) == 0)


def _is_told(after: int, seen: dict[str, WatchedEntity]) -> bool:
    """It is told of a later tick of the robot, or that the robot has gone out of the area on its way."""
    return "alpha.r-1" not in seen or seen["alpha.r-1"].tick > after


async def follow(watch: EntityWatch, until_: Callable[[dict[str, WatchedEntity]], object]) -> None:
    async for _ in watch:
        if until_(dict(watch.entities)):
            return


@asynccontextmanager
async def client_of(home: Home, player: Player) -> AsyncIterator[PlayerClient]:
    async with connect(home.api.url, player=player.name, identity=player.identity) as client:
        yield client


async def test_a_client_follows_an_entity_and_its_inputs_are_applied_once(alpha: Home) -> None:
    one, two = await server(alpha), await server(alpha, "alpha.s2")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"owner": "alpha.ada"})
    given: list[int] = []
    async with client_of(alpha, ada) as client:
        watch, steering = await client.watch(entity="alpha.one"), await client.steer("alpha.one")
        for number, to in enumerate(("alpha.s2", "alpha.s1", "alpha.s2")):
            given = [await steering.give(bytes((1, 0))) for _ in range(5)]
            body = {"to": to, "transfer_id": f"transfer-{number}"}
            await alpha.api.do("POST", "/v1/entities/alpha.one/transfers", body)
            given += [await steering.give(bytes((0, 1))) for _ in range(5)]
            assert (await alpha.finished(f"transfer-{number}"))["result"] == "done"
            await steering.applied(given[-1])
            await follow(watch, lambda seen, to=to: watch.server_of("alpha.one") == to)  # type: ignore[misc]
        await steering.durable(given[-1])
        await follow(watch, lambda seen: seen["alpha.one"].state["inputs"] == 30)
        watch.close()
        assert [change async for change in watch] == []
    await until(lambda: not (len(one.players) or len(two.players)))


async def test_a_hundred_lost_connections_and_twenty_hand_overs_lose_no_input_and_no_listener(alpha: Home) -> None:
    one, two = await server(alpha), await server(alpha, "alpha.s2")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"owner": "alpha.ada"})
    heard = trio.Event()
    async with client_of(alpha, ada) as client:
        watch, steering = await client.watch(entity="alpha.one"), await client.steer("alpha.one")

        async def listen() -> None:
            before = (0, 0), 0
            async for change in watch:
                now = change.entity.fence, change.entity.tick
                assert now >= before
                before = now
                heard.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            number = 0
            for turn in range(20):
                to = f"alpha.s{2 - turn % 2}"
                body = {"to": to, "transfer_id": f"transfer-{turn}"}
                await alpha.api.do("POST", "/v1/entities/alpha.one/transfers", body)
                for _ in range(5):
                    number = await steering.give(bytes((1, 0)))
                    before = client.reconnections
                    while client.reconnections == before:
                        await client.break_off()
                        await trio.sleep(0.005)
                assert (await alpha.finished(f"transfer-{turn}"))["result"] == "done"
            await steering.applied(number)
            heard = trio.Event()
            await heard.wait()
            nursery.cancel_scope.cancel()
        assert client.reconnections >= 100
        place = one if one.holdings.get("alpha.one") is not None else two
        holding = place.holdings.get("alpha.one")
        assert holding is not None
        cursor = holding.life.inbox.cursors["alpha.ada"]
        assert (cursor.applied, cursor.digest) == (number, steering.stream.digest)
        assert holding.life.look()["inputs"] == number - steering.stream.floor == 100


async def test_a_program_that_is_started_again_goes_on_with_numbers_that_were_never_used(alpha: Home) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"owner": "alpha.ada"})
    floors = []
    for _ in range(3):
        async with client_of(alpha, ada) as client:
            steering = await client.steer("alpha.one")
            assert await client.steer("alpha.one") is steering
            for _ in range(5):
                await steering.applied(await steering.give(bytes((1, 0))))
            floors.append(steering.stream.floor)
    holding = node.holdings.get("alpha.one")
    assert holding is not None
    assert holding.life.look()["inputs"] == 15
    assert floors == sorted(set(floors))


async def test_of_two_programs_that_steer_one_entity_neither_is_told_that_inputs_were_applied_which_were_not(
    alpha: Home,
) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"owner": "alpha.ada"})
    applied, refused = [0, 0], list[str]()

    async def drive(which: int, steering: Steering) -> None:
        try:
            for _ in range(20):
                await steering.applied(await steering.give(bytes((1, 0))))
                applied[which] += 1
        except InputRefused as error:
            refused.append(error.code)

    async with client_of(alpha, ada) as one, client_of(alpha, ada) as two:
        first, second = await one.steer("alpha.one"), await two.steer("alpha.one")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive, 0, first)
            nursery.start_soon(drive, 1, second)
        holding = node.holdings.get("alpha.one")
        assert holding is not None
        assert refused == ["steered_elsewhere"]
        # Of the one that was cut off, one input may have been applied that it does not know of.
        assert sum(applied) <= holding.life.look()["inputs"] <= sum(applied) + 1
        assert max(applied) == 20
        lost = one if first.is_taken_over else two
        again = await lost.steer("alpha.one")
        await again.applied(await again.give(bytes((1, 0))))


async def test_watches_that_share_what_they_show_are_both_told(alpha: Home) -> None:
    """Two areas that overlap, and one pattern twice: each frame comes for each, and the connection stays."""
    await server(alpha)
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"at": [1, 1], "speed": [1, 0]})
    async with connect(alpha.api.url) as client:
        asked: list[dict[str, Any]] = [{"centre": (0, 0), "radius": 25}, {"centre": (5, 0), "radius": 25}]
        watches = [await client.watch(**each) for each in [*asked, {"pattern": "alpha.*"}, {"pattern": "alpha.*"}]]
        for watch in watches:
            for _ in range(8):
                assert (await anext(watch)).entity.name == "alpha.one"
        watches[3].close()
        ticks = watches[2].entities["alpha.one"].tick
        await until(lambda: watches[2].entities["alpha.one"].tick > ticks + 10)
        assert client.reconnections == 0


async def test_watches_that_share_topics_and_come_and_go_cost_no_connection(alpha: Home) -> None:
    await server(alpha)
    ada = await alpha.player("alpha.ada")
    for number in range(3):
        params = {"at": [number, 0], "speed": [1, 0]}
        await alpha.entity(f"alpha.r-{number}", ada, "alpha.s1", kind="robot", params=params)
    async with client_of(alpha, ada) as client:
        asked: list[dict[str, Any]] = [
            {"pattern": "alpha.r-*"},
            {"pattern": "alpha.r-*"},
            {"centre": (0, 0), "radius": 40.0},
            {"centre": (10, 0), "radius": 40.0},
            {"entity": "alpha.r-1"},
            {"entity": "alpha.r-1"},
        ]
        kept = [await client.watch(**one) for one in asked]
        for _ in range(5):
            for one in asked:
                passing = await client.watch(**one)
                await follow(passing, lambda seen: "alpha.r-1" in seen)
                passing.close()
        ticks = [seen.tick if (seen := watch.entities.get("alpha.r-1")) else 0 for watch in kept]
        for watch, tick in zip(kept, ticks, strict=True):
            await follow(watch, partial(_is_told, tick))
        assert client.reconnections == 0
