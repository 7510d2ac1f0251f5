"""Members of hosted scenes in a simulated cluster, and the door at which they connect.

The members' side, the host, the rules of the scene and its entity are real. In place of WebSockets there are simulated
connections (`connections`), and a member's key is a name that the door believes: no member proves anything here.

A member writes into an entity of its own, makes and removes others, and now and then writes to what is not its own.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from batonpass.actors.base.clock import Bell, Clock
from batonpass.authority.names import instance_of
from batonpass.crypto.jws import fits_bytes
from batonpass.crypto.key_forms import encode_point
from batonpass.scenarios.simulation.servers.connections import ConnectionEnd, Segment
from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.tasks import SimulatedProcess
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.hydration import NONCE_BYTES
from batonpass.simserver.sync.scene.membership import SceneMember, SceneTrust, identity_of
from batonpass.simserver.sync.scene.network_ids import NetworkId
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scenes.host import HostedScenes

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["COUNTER", "Knock", "SceneVisitor", "SimulatedSceneDoor", "Turned", "counter_of"]

COUNTER: Final = 2_001
"""The component that all write: in a member's own entity, how often that has written; in others, what is drawn."""

_COUNT: Final = b"count"
_MARK: Final = b"\xff"
"""What begins a message that the door sends of itself: up to which message of the member all has been told of."""
_KEY_BYTES: Final = 32
_ACTS_EVERY_S: Final = (0.05, 0.3)
_COMES_AGAIN_S: Final = (0.02, 0.3)
_PATIENCE_S: Final = 1.5
_COUNTS_SHARE: Final = 0.5
_MAKES_SHARE: Final = 0.15
_REMOVES_SHARE: Final = 0.1
_MEDDLES_SHARE: Final = 0.15
_TAKES_AWAY_SHARE: Final = 0.15
"""Of what it does to entities of others."""
_MOST: Final = 6
"""Entities of one member, beside the one with its counter."""


@dataclass(frozen=True, slots=True)
class Knock:
    """A member asks to be let in, by a connection of this number."""

    connection: int
    entity: str
    public: bytes


@dataclass(frozen=True, slots=True)
class Turned:
    """A connection is over, or was never there; and where the scene is, if the door knows."""

    connection: int
    url: str = ""


class _MarkedPort:
    """A member's connection, where each tick that is told says up to which message of the member it has heard."""

    waiting_bytes = 0
    """A simulated connection takes everything."""

    def __init__(self, bell: Bell) -> None:
        self.say: Callable[[bytes], object] = _to_nobody
        self.heard = 0
        self.is_hearing = False
        self.is_over = False
        self._bell: Final = bell
        self._marked = 0

    def put(self, messages: list[bytes]) -> None:
        """As `ScenePort.put`."""
        if self.is_over:
            return
        for message in messages:
            self.say(message)
        if not self.is_hearing and self._marked != self.heard:
            self._marked = self.heard
            self.say(_MARK + self.heard.to_bytes(4, "big"))

    def end(self) -> None:
        """As `ScenePort.end`."""
        self.is_over = True
        self._bell.ring()

    async def until_over(self) -> None:
        """Wait until the member has to come again."""
        while not self.is_over:
            await self._bell.wait()


def _to_nobody(_message: bytes) -> None:
    """There is no connection yet."""


class SimulatedSceneDoor:
    """The door of one server, in one life; as `SceneDoor`."""

    def __init__(self, scenes: HostedScenes, process: SimulatedProcess, mail: SimulatedMail, clock: Clock) -> None:
        self._scenes: Final = scenes
        self._process: Final = process
        self._mail: Final = mail
        self._clock: Final = clock
        self._ends: Final[dict[int, ConnectionEnd]] = {}
        self._over: Final[set[int]] = set()

    def knocked(self, member: str, knock: Knock) -> None:
        """A member asks to be let in; its question may come twice."""
        if knock.connection in self._ends or knock.connection in self._over:
            return
        port = _MarkedPort(self._clock.bell())
        try:
            name = self._scenes.join(knock.entity, knock.public, port)
        except SceneRefusal:
            self._turn_away(member, knock)
            return

        come, bell = deque[bytes](), self._clock.bell()

        def took(message: bytes) -> None:
            come.append(message)
            bell.ring()

        async def hear() -> None:
            while not port.is_over:
                await bell.wait()
                while come and not port.is_over:
                    await self._scenes.told(knock.entity)
                    try:
                        port.is_hearing = True
                        port.heard += 1
                        self._scenes.receive(knock.entity, name, port, come.popleft())
                    except SceneRefusal:
                        leave()
                    finally:
                        port.is_hearing = False

        def leave() -> None:
            self._scenes.leave(knock.entity, name, port)
            bell.ring()

        end = self._ends[knock.connection] = ConnectionEnd(
            knock.connection,
            lambda segment: self._mail.send(self._process.name, member, segment),
            took,
            leave,
            self._process.after,
            lambda: self._clock.monotonic_ns() / 1e9,
            is_of_member=False,
        )

        port.say = end.say

        async def see_off() -> None:
            await port.until_over()
            leave()
            end.end()
            del self._ends[knock.connection]
            self._turn_away(member, knock)

        self._process.start_soon(see_off)
        self._process.start_soon(hear)

    def arrived(self, member: str, segment: Segment) -> None:
        """Something has come over a connection."""
        if (end := self._ends.get(segment.connection)) is not None:
            end.arrived(segment)
        else:
            self._mail.send(self._process.name, member, Turned(segment.connection))

    def _turn_away(self, member: str, knock: Knock) -> None:
        self._over.add(knock.connection)

        async def turn() -> None:
            url = await self._scenes.elsewhere(knock.entity)
            self._mail.send(self._process.name, member, Turned(knock.connection, url))

        self._process.start_soon(turn)


class SceneVisitor:
    """One member of one scene, which follows it."""

    def __init__(self, cluster: "ServersCluster", entity: str, name: str) -> None:
        self.entity: Final = entity
        self.name: Final = name
        self.scene: Final = SceneReplica(name, keep_unknown=True)
        self._cluster: Final = cluster
        self._watch: Final = cluster.scene_watch
        public = cluster.dice.randbytes(_KEY_BYTES)
        self._public: Final = public
        self._trust: Final = SceneTrust(entity)
        self.member: Final = SceneMember(self.scene, identity_of(public), self._trust, self._verifies)
        self._end: ConnectionEnd | None = None
        self._number = 0
        self._server = ""
        self._sent_to = ""
        self._knocked_s = 0.0
        self._counted = 0
        self._own: NetworkId | None = None
        self._others: list[NetworkId] = []
        # What was written to the entities of others, by the number of the message: entity and value.
        self._meddled: Final[list[tuple[int, NetworkId, bytes]]] = []
        # The same of what it has written to its own: the count.
        self._written: Final[list[tuple[int, int]]] = []
        self.network: Final = identity_of(public).network
        # For the judge: what it saw last, and under which generation. What it was told under this one. And what it has
        # removed of others, which it may not.
        self.seen: set[NetworkId] = set()
        self.seen_generation = 0
        self.told: Final[dict[int, int]] = {}
        self.gone: Final[set[NetworkId]] = set()
        self.removed: Final[set[NetworkId]] = set()
        cluster.mail.join(name, self._take)
        self._later(_COMES_AGAIN_S, self._come)
        self._later(_ACTS_EVERY_S, self._act)

    def _later(self, between_s: tuple[float, float], act: Any) -> None:
        self._cluster.schedule.after(self._cluster.dice.uniform(*between_s), act)

    def _verifies(self, public: bytes, message: bytes, signature: bytes) -> bool:
        key = self._cluster.key_of(public)
        return key is not None and fits_bytes(message, signature, key)

    # --- connections -----------------------------------------------------------------------------------------------

    def _come(self) -> None:
        """Ask home who has the scene, and that one, or where it has sent this member, to let it in."""
        self._later(_COMES_AGAIN_S, self._come)
        now_s = self._cluster.schedule.now_s
        if self._end is not None and (self.member.is_in_step or now_s - self._knocked_s < _PATIENCE_S):
            return
        self._hang_up()
        record = self._cluster.told(instance_of(self.entity), self.entity)
        if record is None or not record.authority:
            return
        try:
            self._trust.learn(record.fence, encode_point(self._cluster.signing_key(record.authority)))
        except SceneRefusal:
            return
        self._server, self._sent_to = self._sent_to or record.authority, ""
        self._number = self._cluster.next_connection()
        self._knocked_s = now_s
        self._end = ConnectionEnd(
            self._number,
            partial(self._cluster.mail.send, self.name, self._server),
            self._took,
            self._hang_up,
            self._cluster.schedule.after,
            lambda: self._cluster.schedule.now_s,
            is_of_member=True,
        )
        self._cluster.mail.send(self.name, self._server, Knock(self._number, self.entity, self._public))
        self._say(self.member.ask(self._cluster.dice.randbytes(NONCE_BYTES)))

    def _hang_up(self) -> None:
        if self._end is not None:
            self._end.end()
            self._end = None
        self.member.pause()
        self._forget_written()

    def _forget_written(self) -> None:
        self._meddled.clear()
        self._written.clear()

    def _say(self, message: bytes) -> int:
        return 0 if self._end is None else self._end.say(message)

    def _take(self, _sender: str, message: Any) -> None:
        # Members are asked and told other things, as players are; and what comes late is of earlier connections.
        if isinstance(message, Segment) and message.connection == self._number and self._end is not None:
            self._end.arrived(message)
        elif isinstance(message, Turned) and message.connection == self._number:
            self._sent_to = message.url.partition("/")[0]
            self._hang_up()

    def _took(self, message: bytes) -> None:
        try:
            if message[:1] == _MARK:
                self._told_up_to(int.from_bytes(message[1:], "big"))
                return
            answer = self.member.receive_untrusted(message)
        except SceneRefusal:
            self._hang_up()
            return
        if answer is not None:
            self._say(answer)
            self.removed.clear()
            self._watch.has_state(self)
            own = self._own
            self._own = own if own is not None and self.scene.entity_named(own) in self.scene.numbers.used else None
        elif self.member.has_to_ask:
            self._forget_written()
            self._say(self.member.ask(self._cluster.dice.randbytes(NONCE_BYTES)))
        if self.member.is_in_step:
            self.scene.apply()
            self._watch.is_told(self)

    def _told_up_to(self, number: int) -> None:
        """All ticks that have heard messages up to this one are told: what was meddled with is as it was.

        And what this member wrote to its own is there, however others have meddled with that.
        """
        if not self.member.is_in_step:
            return
        for at, name, value in [row for row in self._meddled if row[0] <= number]:
            self._meddled.remove((at, name, value))
            entity = self.scene.entity_named(name)
            if entity is not None and self.scene.value(entity, COUNTER) == value:
                self._watch.not_corrected(self, name)
        for at, count in [row for row in self._written if row[0] <= number]:
            self._written.remove((at, count))
            if self._own is not None and counter_of(self.scene.value(self._here(self._own), COUNTER)) < count:
                self._watch.lost_own(self, count)

    # --- what it does ----------------------------------------------------------------------------------------------

    def _act(self) -> None:
        self._later(_ACTS_EVERY_S, self._act)
        if not self.member.is_in_step or self._end is None:
            return
        counted, meddled = self._counted, None
        if not self._cluster.players[0].resting:
            meddled = self._change()
        number = 0
        for message in self.member.tick():
            number = self._say(message)
        if self._counted > counted:
            self._written.append((number, self._counted))
        if meddled is not None:
            self._meddled.append((number, *meddled))

    def _change(self) -> tuple[NetworkId, bytes] | None:
        """Write something; the entity of another and what was written there, if that was it."""
        scene, dice = self.scene, self._cluster.dice
        scene.define(COUNTER)
        if self._own is None:
            self._counted += 1
            self._own = self._made(_count_of(self._counted))
        elif dice.random() < _COUNTS_SHARE:
            self._counted += 1
            scene.put(self._here(self._own), COUNTER, _count_of(self._counted))
        self._others = [name for name in self._others if scene.entity_named(name) in scene.numbers.used]
        if len(self._others) < _MOST and dice.random() < _MAKES_SHARE:
            self._others.append(self._made(dice.randbytes(dice.randrange(40))))
        if self._others and dice.random() < _REMOVES_SHARE:
            scene.remove_entity(self._here(self._others.pop(dice.randrange(len(self._others)))))
        if dice.random() >= _MEDDLES_SHARE:
            return None
        names = [scene.name_of(entity) for entity in scene.numbers.used]
        others = [name for name in names if name is not None and name.network != self.network]
        if not others:
            return None
        name, value = dice.choice(others), b"meddled" + dice.randbytes(8)
        self._watch.meddled += 1
        if dice.random() < _TAKES_AWAY_SHARE:
            self.removed.add(name)
            scene.remove_entity(self._here(name))
            return None
        scene.put(self._here(name), COUNTER, value)
        return name, value

    def _made(self, value: bytes) -> NetworkId:
        entity = self.member.create_entity()
        self.scene.put(entity, COUNTER, value)
        name = self.scene.name_of(entity)
        assert name is not None  # noqa: S101 -- it was given one
        return name

    def _here(self, name: NetworkId) -> int:
        entity = self.scene.entity_named(name)
        assert entity is not None  # noqa: S101 -- it is in use
        return entity

    @property
    def generation(self) -> int:
        """Of the state that it has; 0 before the first."""
        return self.member.generation or 0


def _count_of(count: int) -> bytes:
    return _COUNT + count.to_bytes(8, "big")


def counter_of(value: bytes | None) -> int:
    """What a counter says; 0 if it is none."""
    return int.from_bytes(value.removeprefix(_COUNT), "big") if value is not None and value.startswith(_COUNT) else 0
