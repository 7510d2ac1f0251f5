"""Scenes as entities: what members write is in the entity's state, and a server that may not act fails closed."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Final

import cbor2
import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from batonpass.actors import System
from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door_connection import DoorConnection
from batonpass.authority.fence import Fence
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.model.ownership import Ownership
from batonpass.simserver.entity.inputs import MAX_PENDING_BYTES
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.sync.scene.codec import MessageKind, write_message, write_run
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.hydration import NONCE_BYTES
from batonpass.simserver.sync.scene.limits import VALUE_COST_BYTES
from batonpass.simserver.sync.scene.membership import SceneMember, SceneTrust, identity_of, proof_text
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scenes import host, world
from batonpass.simserver.sync.scenes.door import MAX_OUTBOX_BYTES, MemberPort, SceneDoor, SceneRules
from batonpass.simserver.sync.scenes.host import AGAIN_TICKS, TICK_S, HostedScenes
from batonpass.simserver.sync.scenes.world import HOSTED_SCENE_LIMITS, SceneEntities, held_scene
from batonpass.tree.data.data import encode
from tests.simserver.entity.test_passivation import Population
from tests.simserver.ports import TrioClock
from tests.simserver.stage import always
from tests.simserver.sync.scene.test_membership import certificate, named, verifies

PLAZA: Final = "alpha.scene-plaza"
OTHER: Final = 1_017
KEY: Final = Ed25519PrivateKey.generate()
PUBLIC: Final = KEY.public_key().public_bytes_raw()
NONCES: Final = count(1)


class Whereabouts:
    """What the home says, and the other server."""

    def __init__(self) -> None:
        self.server: str | None = ""
        self.error: Exception | None = None
        self.asked: list[str] = []

    async def authority_of(self, entity: str) -> str | None:
        self.asked.append(entity)
        if self.error is not None:
            raise self.error
        return self.server

    async def door_of(self, server: str, doors: str = "streams") -> str:
        return f"http://{server}.invalid:1" if doors == "scenes" and server == "alpha.s2" else ""


class Place:
    """One server with scenes, which ticks as fast as it can."""

    def __init__(self, system: System) -> None:
        self.population = Population(system, SceneEntities())
        self.environment = self.population.stage.environment
        self.whereabouts = Whereabouts()
        self.scenes = HostedScenes(
            self.environment,
            self.population.holdings,
            self.whereabouts,
            TrioClock(),
            self.population.stage._count,
            KEY.sign,
        )
        self.ticks = True

    def open(self, fence: Fence = Fence(1), **params: Any) -> Holding:  # noqa: B008 -- immutable
        return self.population.holdings.spawn(PLAZA, "scene", params, fence, Ownership("alpha.ada", 1))

    async def serve_ticks(self) -> None:
        while True:
            await trio.sleep(0.05)
            if self.ticks:
                await self.population.round()

    def may_act(self, answer: Callable[[int], bool]) -> None:
        object.__setattr__(self.environment, "may_act", answer)


class WaitingPort:
    """A connection that keeps what a member is told until that reads it."""

    def __init__(self) -> None:
        self._tell, self._told = trio.open_memory_channel[bytes](10_000)
        self.is_over = False
        self.waiting_bytes = 0

    def put(self, messages: list[bytes]) -> None:
        if not self.is_over:
            self.waiting_bytes += sum(map(len, messages))
            for message in messages:
                self._tell.send_nowait(message)

    def end(self) -> None:
        self.is_over = True
        self._tell.close()

    async def get(self) -> bytes | None:
        try:
            message = await self._told.receive()
        except trio.EndOfChannel:
            return None
        self.waiting_bytes -= len(message)
        return None if self.is_over else message


class Client:
    """A member, which is told what its port has."""

    def __init__(self, place: Place, fence: Fence = Fence(1)) -> None:  # noqa: B008 -- immutable
        self.place = place
        self.public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
        self.scene = SceneReplica("member", [OTHER])
        self.trust = SceneTrust(PLAZA)
        self.trust.take(certificate(fence, "alpha.s1"), "alpha.s1", PUBLIC)
        self.member = SceneMember(self.scene, identity_of(self.public), self.trust, verifies)
        self.name, self.port = "", WaitingPort()

    def join(self) -> None:
        self.port = WaitingPort()
        self.name = self.place.scenes.join(PLAZA, self.public, self.port)
        self.say(self.member.ask(next(NONCES).to_bytes(NONCE_BYTES, "little")))

    def say(self, message: bytes) -> None:
        self.place.scenes.receive(PLAZA, self.name, self.port, message)

    async def listen(self) -> None:
        while (message := await self.port.get()) is not None:
            answer = self.member.receive_untrusted(message)
            if answer is not None:
                self.say(answer)
            self.scene.apply()

    def write(self, value: bytes) -> None:
        self.scene.put(self.member.create_entity(), OTHER, value)
        for message in self.member.tick():
            self.say(message)


@pytest.fixture
def place(system: System) -> Place:
    return Place(system)


@asynccontextmanager
async def served(place: Place, *clients: Client) -> AsyncIterator[Holding]:
    await place.population.start()
    async with trio.open_nursery() as nursery:
        await nursery.start(place.scenes.serve)
        nursery.start_soon(place.serve_ticks)
        holding = place.open()
        for client in clients:
            client.join()
            nursery.start_soon(client.listen)
        await trio.sleep(1.0)
        yield holding
        nursery.cancel_scope.cancel()


def kept(holding: Holding) -> dict[object, bytes]:
    scene = held_scene(holding.life.seen).scene
    return named(scene) if OTHER in scene.component_numbers else {}


async def test_what_a_member_writes_is_in_the_entity_and_all_members_have_it(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    ada, bob = Client(place), Client(place)
    async with served(place, ada, bob) as holding:
        ada.write(b"hello")
        await trio.sleep(1.0)
        assert named(bob.scene) == named(ada.scene) == kept(holding)
        assert list(kept(holding).values()) == [b"hello"]
        held = held_scene(holding.life.seen)
        assert set(held.rights.owners.values()) == {ada.name}
        assert place.scenes.members() == {PLAZA: 2}
        tick, merged = place.scenes.merges(PLAZA)
        assert tick > 0
        assert (merged["taken"] > 0, merged["denied"], merged["outdated"]) == (True, 0, 0)
        (entity,) = (each for each in place.scenes.graph(PLAZA)["entities"] if each["owner"] == ada.name)
        assert {component["writer"] for component in entity["components"]} == {ada.name, "server"}


async def test_a_write_of_somebody_else_is_corrected_and_the_owner_is_known_after_all_have_left(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    ada, bob = Client(place), Client(place)
    async with served(place, ada, bob) as holding:
        ada.write(b"good")
        await trio.sleep(1.0)
        for client in (ada, bob):
            place.scenes.leave(PLAZA, client.name, client.port)
        await trio.sleep(1.0)
        assert place.scenes.members() == {}
        bob.join()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bob.listen)
            await trio.sleep(1.0)
            (entity,) = bob.scene.elements(OTHER).values
            bob.scene.put(entity, OTHER, b"bad")
            for message in bob.member.tick():
                bob.say(message)
            await trio.sleep(1.0)
            assert list(kept(holding).values()) == list(named(bob.scene).values()) == [b"good"]
            assert place.scenes.merges(PLAZA)[1]["denied"] == 1
            nursery.cancel_scope.cancel()


async def test_without_a_lease_nothing_is_taken_and_nothing_told(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    ada, bob = Client(place), Client(place)
    async with served(place, ada, bob) as holding:
        ada.write(b"before")
        place.may_act(lambda _now_ns: False)
        with pytest.raises(SceneRefusal, match="no authority"):
            ada.write(b"after")
        with pytest.raises(SceneRefusal, match="no authority"):
            Client(place).join()
        await trio.sleep(1.0)
        assert named(bob.scene) == kept(holding) == {}
        place.may_act(always)
        await trio.sleep(1.0)
        assert list(named(bob.scene).values()) == list(kept(holding).values()) == [b"before"]


async def test_another_fence_ends_all_connections_and_members_take_the_state_of_it(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    ada = Client(place)
    async with served(place, ada) as holding:
        ada.write(b"kept")
        await trio.sleep(1.0)
        holding.life.fence = Fence(2)
        await trio.sleep(1.0)
        assert ada.port.is_over
        with pytest.raises(SceneRefusal, match="come again"):
            ada.say(b"\5")
        ada.trust.take(certificate(Fence(2), "alpha.s1"), "alpha.s1", PUBLIC)
        ada.join()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ada.listen)
            await trio.sleep(1.0)
            assert list(named(ada.scene).values()) == [b"kept"]
            nursery.cancel_scope.cancel()


async def test_a_scene_begins_from_no_state_that_is_older_than_what_it_was_given(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    ada = Client(place)
    async with served(place, ada) as holding:
        place.ticks = False
        ada.write(b"waits")
        await trio.sleep(1.0)
        holding.life.fence = Fence(2)
        await trio.sleep(1.0)
        with pytest.raises(SceneRefusal, match="ask again"):
            ada.join()
        place.ticks = True
        await trio.sleep(1.0)
        ada.join()
        assert list(kept(holding).values()) == [b"waits"]


async def test_nobody_is_told_of_a_tick_that_the_entity_does_not_take(
    place: Place, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = Client(place), Client(place)
    async with served(place, ada, bob) as holding:
        with monkeypatch.context() as patch:
            patch.setattr(type(holding.life), "take_own_input", lambda _life, _data: 0)
            ada.write(b"value")
            await trio.sleep(1.0)
            assert named(bob.scene) == {}
            with pytest.raises(SceneRefusal, match="no authority"):
                ada.write(b"more")
        await trio.sleep(1.0)
        assert list(named(bob.scene).values()) == [b"value"]


async def test_a_scene_of_three_thousand_entities_is_hosted_and_who_comes_late_has_all_of_it(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    ada, bob = Client(place), Client(place)
    async with served(place, ada) as holding:
        for number in range(30):
            for _ in range(100):
                ada.scene.put(ada.member.create_entity(), OTHER, bytes([number]) * 44)
            for message in ada.member.tick():
                ada.say(message)
            await trio.sleep(0.2)
        await trio.sleep(1.0)
        assert len(kept(holding)) == 3_000
        parts = holding.life.seen["parts"]
        assert sum(map(len, parts[1:])) < len(parts[0]) // 2, "what has changed is put to the rest now and then"
        assert holding.life.snapshot().encode()
        async with trio.open_nursery() as nursery:
            bob.join()
            nursery.start_soon(bob.listen)
            await trio.sleep(1.0)
            assert named(bob.scene) == named(ada.scene) == kept(holding)
            nursery.cancel_scope.cancel()


async def test_who_writes_beyond_what_is_hosted_hears_it_and_has_what_is_there(
    place: Place, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "HOSTED_SCENE_LIMITS", replace(HOSTED_SCENE_LIMITS, max_state_bytes=20_000))
    ada = Client(place)
    async with served(place, ada) as holding:
        for number in range(10):
            for _ in range(20):
                ada.scene.put(ada.member.create_entity(), OTHER, bytes(number))
            for message in ada.member.tick():
                ada.say(message)
            await trio.sleep(0.2)
            if ada.member.has_to_ask:
                assert "the scene is full: 20000 bytes" in ada.member.why_again
                ada.say(ada.member.ask(next(NONCES).to_bytes(NONCE_BYTES, "little")))
                await trio.sleep(TICK_S * (AGAIN_TICKS + 2))
        assert 20 <= len(kept(holding)) < 200
        assert "full" in ada.member.why_again
        assert named(ada.scene) == kept(holding)
        (entity, *_) = ada.scene.elements(OTHER).values
        ada.scene.put(entity, OTHER, b"")
        for message in ada.member.tick():
            ada.say(message)
        await trio.sleep(1.0)
        assert named(ada.scene) == kept(holding)
        assert not ada.port.is_over


async def test_what_has_not_room_in_the_inbox_at_once_is_taken_bit_by_bit_and_then_told(
    place: Place, autojump_clock: trio.testing.MockClock
) -> None:
    ada, bob, cy = Client(place), Client(place), Client(place)
    async with served(place, ada, bob, cy) as holding:
        place.ticks = False
        for writer in (ada, cy):
            for number in range(25):
                writer.scene.put(writer.member.create_entity(), OTHER, bytes([number]) * 9_000)
            for message in writer.member.tick():
                writer.say(message)
        await trio.sleep(1.0)
        assert named(bob.scene) == {}, "the inbox of the entity has not room for all of it"
        assert not ada.port.is_over
        place.ticks = True
        await trio.sleep(2.0)
        assert len(kept(holding)) == 50
        assert named(bob.scene) == named(ada.scene) == named(cy.scene) == kept(holding)


async def test_a_door_says_where_a_scene_is_that_it_has_not(place: Place) -> None:
    await place.population.start()
    scenes, where = place.scenes, place.whereabouts
    where.server = "alpha.s2"
    assert await scenes.elsewhere(PLAZA) == f"http://alpha.s2.invalid:1/{PLAZA}"
    assert await scenes.elsewhere("no name") == ""
    assert where.asked == [PLAZA], "nothing is asked of what is no name"
    for server in ("", None, "alpha.s1", "alpha.s3"):
        where.server = server
        assert await scenes.elsewhere(PLAZA) == ""
    where.error = HomeUnreachable("not now")
    assert await scenes.elsewhere(PLAZA) == ""

    def told(url: str) -> tuple[dict[str, str], str]:
        with connect(f"{url}/{PLAZA}") as websocket:
            said = websocket.recv(timeout=60)
            try:
                websocket.recv(timeout=60)
            except ConnectionClosed as closed:
                return json.loads(said), closed.rcvd.reason if closed.rcvd else ""
        pytest.fail("the connection goes on")

    async with trio.open_nursery() as nursery:
        await nursery.start(scenes.serve)
        (url,) = await nursery.start(SceneDoor(scenes, TrioClock()).serve, "127.0.0.1", 0)
        where.error, where.server = None, "alpha.s2"
        said, why = await trio.to_thread.run_sync(told, url.replace("http://", "ws://"))
        assert (said["code"], said["url"]) == ("elsewhere", f"http://alpha.s2.invalid:1/{PLAZA}")
        assert "no authority" in why
        place.open()
        where.server = "alpha.s1"
        assert await scenes.elsewhere(PLAZA) == ""
        nursery.cancel_scope.cancel()


async def test_of_all_that_waits_for_members_there_is_no_more_than_a_bound(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "MAX_OUTBOXES_BYTES", 1_000)
    place.open()
    ports = [Client(place) for _ in range(3)]
    for client, size in zip(ports, (600, 300, 200), strict=True):
        client.name = place.scenes.join(PLAZA, client.public, client.port)
        client.port.put([bytes(size)])
    place.scenes._shed()
    assert [client.port.is_over for client in ports] == [True, False, False]


class DeafPeer:
    """The end of a connection that takes nothing of what it is sent, until it is told to go on."""

    def __init__(self) -> None:
        self.goes_on = trio.Event()
        self.taken: list[bytes] = []

    def send_now(self, data: str | bytes) -> bool:
        assert isinstance(data, bytes)
        self.taken.append(data)
        return False

    async def flush(self) -> None:
        await self.goes_on.wait()


async def test_who_does_not_read_has_to_come_again_and_nothing_is_kept_for_it() -> None:
    peer = DeafPeer()
    connection = DoorConnection("", peer, bytes, bounds=SceneRules.waiting)
    port = MemberPort(connection, PLAZA)
    port.put([b"under way"])
    port.put([bytes(MAX_OUTBOX_BYTES)])
    assert (port.waiting_bytes, port.is_over) == (MAX_OUTBOX_BYTES, False)
    port.put([b"more"])
    port.put([b"and more"])
    assert (port.waiting_bytes, port.is_over) == (0, True)
    peer.goes_on.set()
    with pytest.raises(DoorRefused):
        await connection.serve()
    assert peer.taken == [b"under way"]


def test_a_scene_begins_with_what_its_main_crdt_has_or_not_at_all() -> None:
    began = SceneReplica("main.crdt", [OTHER])
    began.put(began.create_entity(), OTHER, b"at first")
    began.flush()
    state = SceneEntities().spawn("scene", {"main": began.snapshot().hex()})
    assert held_scene(state).scene.value(512, OTHER) == b"at first"
    long = write_message(MessageKind.PUT, (512, OTHER, 1, bytes(100_000))).hex()
    many = b"".join(write_message(MessageKind.PUT, (number, OTHER, 1, b"")) for number in range(600, 9_000))
    with pytest.raises(ValueError, match="2097152 at most are hosted"):
        SceneEntities().spawn("scene", {"main": many.hex()})
    for bad in ("zz", 7, "0300000001000000", long):
        with pytest.raises(ValueError, match=r"main|hexadecimal"):
            SceneEntities().spawn("scene", {"main": bad})
    with pytest.raises(ValueError, match="no 'ball'"):
        SceneEntities().spawn("ball", {})


async def test_a_member_connects_by_the_proof_of_its_key_and_by_nothing_else(place: Place) -> None:
    await place.population.start()
    place.open()
    mine = Ed25519PrivateKey.generate()
    public = mine.public_key().public_bytes_raw()

    def talk(url: str, entity: str, signed: str, server: str = "alpha.s1") -> tuple[bytes, str]:
        """The first bytes of the answer with the state, or why the connection was closed."""
        with connect(f"{url}/{entity}") as websocket:
            try:
                challenge = websocket.recv(timeout=60)
                assert isinstance(challenge, bytes)
                websocket.send(public + mine.sign(proof_text(challenge, signed, server)))
                websocket.send(b"\1" + bytes(NONCE_BYTES))
                answer = websocket.recv(timeout=60)
            except ConnectionClosed as closed:
                return b"", closed.rcvd.reason if closed.rcvd else ""
            assert isinstance(answer, bytes)
            return answer[:1], ""

    async with trio.open_nursery() as nursery:
        await nursery.start(place.scenes.serve)
        (url,) = await nursery.start(SceneDoor(place.scenes, TrioClock()).serve, "127.0.0.1", 0)
        url = url.replace("http://", "ws://")
        assert await trio.to_thread.run_sync(talk, url, PLAZA, PLAZA) == (b"\2", "")
        _, why = await trio.to_thread.run_sync(talk, url, PLAZA, "alpha.scene-other")
        assert "does not fit the challenge" in why
        _, why = await trio.to_thread.run_sync(talk, url, PLAZA, PLAZA, "alpha.s2")
        assert "does not fit the challenge" in why, "a proof for another server is none here"
        _, why = await trio.to_thread.run_sync(talk, url, "alpha.scene-none", "alpha.scene-none")
        assert "no authority over alpha.scene-none" in why
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("parts", [[b"x"], [7], 7, [b"\x82\x41x\x80"], [b"\x82\x40\x81\x00"]])
async def test_a_state_that_is_no_scene_is_refused_to_members_and_stops_nothing(place: Place, parts: Any) -> None:
    await place.population.start()
    holding = place.open()
    holding.life.world = {"parts": parts}
    with pytest.raises(SceneRefusal, match=r"no scene|no message"):
        place.scenes.join(PLAZA, PUBLIC, WaitingPort())
    with pytest.raises(SceneRefusal):
        place.scenes.graph(PLAZA)


@pytest.mark.parametrize("size", [0, 12_256])
def test_a_scene_that_members_have_filled_fits_a_copy(size: int) -> None:
    limits = HOSTED_SCENE_LIMITS
    entities = limits.max_state_bytes // (size + VALUE_COST_BYTES)
    messages = b"".join(
        write_message(MessageKind.PUT, (512 + number, OTHER, 1, bytes(size))) for number in range(entities)
    )
    owners = [[512 + number, "0" * 64] for number in range(entities)]
    # As many numbers again that were used before, and changes that are not put together with the rest yet.
    gone = write_run(MessageKind.DELETE_ENTITY, [[20_000 + number for number in range(entities)]])
    first = encode([messages + gone, owners])
    state = {"parts": [first, bytes(len(first) // 4)]}
    assert len(cbor2.dumps(state)) + 2 * MAX_PENDING_BYTES < MAX_STATE_BYTES
    assert held_scene({"parts": [first]}).scene.cost_bytes() <= limits.max_state_bytes
