"""A client of an instance: it watches entities and steers those that its player owns, wherever they are simulated.

One address of a homeserver is enough. Where an entity is, its home says at first. Then the door that has it says where
it went, and its home again if that door is gone. Connections that end are opened anew, by themselves; what is watched
and what was given and is not acknowledged outlives them.

Written on anyio, so it runs under trio and asyncio alike.
"""

import logging
import secrets
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import TaskGroup

from batonpass.authority.names import check_name, instance_of
from batonpass.authority.wire.door import EntityElsewhere
from batonpass.authority.wire.transfer import ImminentLoss, InputAck, LetGo, NotHere, NotOwner, Present
from batonpass.client.door_link import DoorLink, DoorNews
from batonpass.client.home import HomeDirectory, HomeFailure
from batonpass.client.input_stream import PRESENT_S, RESEND_S, InputStream
from batonpass.client.player_key import PlayerKey
from batonpass.client.steering import Steering
from batonpass.client.subscription import subscription
from batonpass.client.tick_clock import TickClock
from batonpass.client.watch import EntityWatch
from batonpass.crypto.keys import Identity

__all__ = ["PlayerClient", "connect"]

_log = logging.getLogger("batonpass.client")

# How often home is asked where an entity is, while no door shows it; and which servers there are, for areas and owners.
ASK_HOME_S: Final = 0.25
SERVERS_S: Final = 3.0
# Two programs of one player that begin at once begin with other numbers, each with one of this number.
APART: Final = 2**20


class PlayerClient:
    """Made by `connect`."""

    def __init__(
        self, home: HomeDirectory, key: PlayerKey, tasks: TaskGroup, context: ssl.SSLContext | None = None
    ) -> None:
        self._home: Final = home
        self._key: Final = key
        self._tasks: Final = tasks
        self._context: Final = context
        self._doors: Final[dict[str, DoorLink]] = {}
        self._steered: Final[dict[str, Steering]] = {}
        self._watched: Final[dict[EntityWatch, None]] = {}
        # Where each entity that is watched by name is, as far as it is known.
        self._place: Final[dict[EntityWatch, str]] = {}
        self._asking: Final[set[str]] = set()
        self._news: Final = DoorNews(self._answered, self._opened, self._closed)
        self.reconnections = 0
        """How many connections were lost while something was wanted of them."""

    @property
    def home(self) -> HomeDirectory:
        """What is asked of the home instance: to spawn, own, move, answer; and what happens there."""
        return self._home

    @property
    def player(self) -> str:
        """Whose client this is; empty for an observer."""
        return self._key.name

    def clock(self, server: str) -> TickClock | None:
        """When the rounds of a server's ticks are, in seconds of `anyio.current_time`; None: its door is not open."""
        door = self._doors.get(server)
        return door.clock if door is not None and door.clock.is_set else None

    async def break_off(self) -> int:
        """End all connections without a word, as networks do; how many there were. For tests of what outlives that."""
        open_doors = [door for door in self._doors.values() if door.is_open]
        for door in open_doors:
            await door.break_off()
        return len(open_doors)

    # --- watching --------------------------------------------------------------------------------------------------

    async def watch(
        self,
        *,
        entity: str = "",
        owner: str = "",
        pattern: str = "",
        centre: Sequence[float] | None = None,
        around: str = "",
        radius: float | None = None,
        rate_hz: float = 1000.0,
    ) -> EntityWatch:
        """Watch one entity; all of an owner; those whose names match a pattern; or those in an area.

        Args:
            entity: its name.
            owner: a player's name.
            pattern: of names, as `alpha.robot-*`.
            centre: the middle of an area, of as many numbers as the world's positions have.
            around: an entity around which the area is; it goes where the entity goes.
            radius: how far the area reaches from there, in each direction; an area needs one.
            rate_hz: how often states are wanted; at most as often as entities tick.

        Raises:
            ValueError: it is not one of the four, or an argument is wrong; the sentence names it.
            HomeFailure: home does not know the entity, or does not answer.
        """
        asked = subscription(entity, owner, pattern, centre, around, radius, rate_hz)
        watch = EntityWatch(asked, anyio.current_time, self._close)
        if around:
            # An area around nothing would show nothing, for ever.
            await self._home.entity(around)
        if entity:
            record = await self._home.entity(entity)
            self._watched[watch] = None
            self._put(watch, str(record["authority"]))
        else:
            servers = await self._simservers()
            self._watched[watch] = None
            for server in servers:
                self._door(server).add(watch)
        return watch

    def _close(self, watch: EntityWatch) -> None:
        self._watched.pop(watch, None)
        self._place.pop(watch, None)
        for door in self._doors.values():
            door.remove(watch)

    def _put(self, watch: EntityWatch, server: str) -> None:
        """Watch an entity at the door of this server, and at no other."""
        if not server:
            return
        self._place[watch] = server
        self._door(server).add(watch)
        for name, door in self._doors.items():
            if name != server:
                door.remove(watch)

    async def _simservers(self) -> list[str]:
        return [name for instance in self._home.instances for name in await self._home.simservers(instance)]

    # --- steering --------------------------------------------------------------------------------------------------

    async def steer(self, entity: str) -> Steering:
        """Give inputs to an entity that this player owns. Waits until its authority has said how far it is.

        Raises:
            ValueError: this is an observer, or `entity` is no name.
            HomeFailure: home does not know the entity, or does not answer.
        """
        if not self._key.name:
            raise ValueError("an observer steers nothing: connect as a player")
        steering = self._steered.get(check_name(entity))
        if steering is None or steering.is_taken_over:
            record = await self._home.entity(entity)
            stream = InputStream(entity, str(record["authority"]), progressed_at_s=anyio.current_time())
            stream.learn_owner(str(record["owner"]), int(record["owner_rev"]), self._key.name)
            # Another task may have asked for the same meanwhile.
            steering = self._steered.get(entity)
            if steering is None or steering.is_taken_over:
                steering = self._steered[entity] = Steering(stream, anyio.current_time, self._send)
                self._send(steering)
        await steering.begun()
        return steering

    def let_go(self, entity: str) -> bool:
        """Say that this player has finished: an entity that is about to leave may go at once. Whether it was sent."""
        steering = self._steered.get(entity)
        target = "" if steering is None else steering.stream.target
        return bool(target) and self._door(target).send(LetGo(entity=entity))

    def _send(self, steering: Steering) -> None:
        stream = steering.stream
        if not stream.target or (stream.owner and steering.has_begun) or steering.is_taken_over:
            return
        door = self._door(stream.target)
        if not steering.has_begun:
            door.send(stream.as_question())
        elif door.is_open:
            for seq, data in stream.next_to_send():
                door.send(stream.as_input(seq, data))

    def _retarget(self, steering: Steering, server: str) -> None:
        stream = steering.stream
        if server and server != stream.target:
            stream.retarget(server)
            self._send(steering)

    # --- doors -----------------------------------------------------------------------------------------------------

    def _door(self, server: str) -> DoorLink:
        door = self._doors.get(server)
        if door is None:
            door = self._doors[server] = DoorLink(
                server, self._key, self._home.link.session, self._home.door_of, self._news, self._context
            )
            self._tasks.start_soon(self._keep, door)
        return door

    async def _keep(self, door: DoorLink) -> None:
        try:
            await door.run(lambda: self._is_steered_at(door) or self._home.link.way is door)
        finally:
            self._doors.pop(door.server, None)

    def _is_steered_at(self, door: DoorLink) -> bool:
        return any(one.stream.target == door.server for one in self._steered.values())

    def _find_way_home(self) -> None:
        """Have home be reached over a door that is open anyhow; the present one while something is wanted there."""
        link = self._home.link
        ways = [each for each in self._doors.values() if each.leads_home and instance_of(each.server) == link.instance]
        wanted = [each for each in ways if each.watches or self._is_steered_at(each)] or ways
        link.prefer(next((each for each in wanted if each is link.way), wanted[0] if wanted else None))

    def _opened(self, server: str) -> None:
        self._find_way_home()
        for steering in self._steered.values():
            if steering.stream.target == server:
                # What was under way by the last connection may be lost.
                steering.stream.in_flight = 0
                self._send(steering)

    def _closed(self, server: str, was_open: bool) -> None:
        self._home.doubt(server)
        self._find_way_home()
        self.reconnections += was_open
        for entity in self._entities_at(server):
            self._ask_home(entity)

    def _entities_at(self, server: str) -> set[str]:
        steered = {name for name, one in self._steered.items() if one.stream.target == server}
        return steered | {watch.asked.entity for watch, place in self._place.items() if place == server}

    def _answered(self, server: str, message: InputAck | NotOwner | EntityElsewhere | ImminentLoss) -> None:
        steering = self._steered.get(message.entity)
        target = "" if steering is None else steering.stream.target
        match message:
            case EntityElsewhere():
                self._elsewhere(server, message, steering)
            case ImminentLoss():
                self._home.told(message)
            case InputAck() if steering is not None and self._is_ours(steering, message):
                steering.stream.acknowledged_as(message, anyio.current_time())
                if (message.epoch, message.sub) == steering.stream.fence:
                    steering.tick = message.tick
                if steering.stream.target != server and steering.stream.fence == (message.epoch, message.sub):
                    self._retarget(steering, server)
            case NotOwner() if steering is not None and self._is_ours(steering, message):
                steering.stream.corrected(message, self._key.name, anyio.current_time())
        if steering is not None:
            steering.has_news()
            # A question that was in vain is not repeated at once.
            if steering.has_begun or steering.stream.target != target:
                self._send(steering)

    def _is_ours(self, steering: Steering, message: InputAck | NotOwner) -> bool:
        """Whether what an authority says is about inputs that were given here."""
        steering.hears(message.applied, (message.epoch, message.sub), secrets.randbelow(APART))
        return not steering.is_taken_over

    def _elsewhere(self, server: str, message: EntityElsewhere, steering: Steering | None) -> None:
        if message.url:
            self._home.hint(message.server, message.url)
        for watch, place in list(self._place.items()):
            if watch.asked.entity == message.entity and place == server:
                if message.server and message.server != server:
                    self._put(watch, message.server)
                else:
                    self._ask_home(message.entity)
        if steering is not None and steering.stream.target == server:
            notice = NotHere(entity=message.entity, moved_to=message.server, epoch=message.epoch, sub=message.sub)
            if not steering.stream.follow(notice):
                self._ask_home(message.entity)

    # --- home ------------------------------------------------------------------------------------------------------

    def _ask_home(self, entity: str) -> None:
        """Ask where an entity is, once at a time."""
        if entity and entity not in self._asking:
            self._asking.add(entity)
            self._tasks.start_soon(self._asked_home, entity)

    async def _asked_home(self, entity: str) -> None:
        try:
            await anyio.sleep(ASK_HOME_S)
            record = await self._home.entity(entity)
        except HomeFailure as failure:
            if failure.code == "not_found":
                self._gone(entity)
            else:
                _log.info("%s: %s", entity, failure)
            return
        finally:
            self._asking.discard(entity)
        authority = str(record["authority"])
        for watch in [one for one in self._place if one.asked.entity == entity]:
            self._put(watch, authority)
        for watch in self._watched:
            if watch.asked.owner and watch.asked.owner != record["owner"] and watch.is_lost(entity):
                watch.deleted(entity)
        steering = self._steered.get(entity)
        if steering is not None:
            steering.stream.learn_owner(str(record["owner"]), int(record["owner_rev"]), self._key.name)
            self._retarget(steering, authority)
            steering.has_news()

    def _gone(self, entity: str) -> None:
        for watch in self._watched:
            if watch.asked.entity == entity or watch.is_lost(entity):
                watch.deleted(entity)
        if (steering := self._steered.get(entity)) is not None:
            steering.stream.ended()
            steering.has_news()

    # --- what has to be done again and again -----------------------------------------------------------------------

    async def _serve(self) -> None:
        """Repeat what is not acknowledged, and look for what no door shows, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._repeat)
            tasks.start_soon(self._stay_known)
            tasks.start_soon(self._find_servers)

    async def _repeat(self) -> None:
        while True:
            await anyio.sleep(RESEND_S / 2)
            now_s = anyio.current_time()
            self._find_way_home()
            for steering in self._steered.values():
                stream = steering.stream
                if steering.is_taken_over:
                    continue
                if not steering.has_begun:
                    self._send(steering)
                    self._ask_home(stream.entity)
                elif stream.overdue(now_s):
                    stream.start_over(now_s)
                    self._send(steering)
                    self._ask_home(stream.entity)
                elif (asked := stream.to_ask_with(now_s)) is not None and stream.target:
                    if not self._door(stream.target).send(stream.as_input(*asked)) or stream.asked_in_vain:
                        self._ask_home(stream.entity)
                    stream.asked_in_vain = True
            for watch in self._watched:
                self._look(watch)

    def _look(self, watch: EntityWatch) -> None:
        if entity := watch.asked.entity:
            is_shown = entity in watch.entities and not watch.is_lost(entity)
            if not is_shown and (door := self._doors.get(self._place.get(watch, ""))) is not None and door.is_open:
                self._ask_home(entity)
            # That it is deleted, its home says; until then it is on its way.
            return
        for name in watch.look(is_complete=all(door.is_open for door in self._doors.values() if watch in door.watches)):
            self._ask_home(name)

    async def _stay_known(self) -> None:
        """Say now and then to the servers that have the entities that this player is there."""
        turn = 0
        while True:
            await anyio.sleep(PRESENT_S)
            turn += 1
            by_server: dict[str, list[str]] = {}
            for steering in self._steered.values():
                by_server.setdefault(steering.stream.target, []).append(steering.entity)
            for server, entities in by_server.items():
                if server:
                    self._door(server).send(Present(entity=entities[turn % len(entities)]))

    async def _find_servers(self) -> None:
        """Servers come and go: what is watched by owner, pattern or area is watched at all of them."""
        while True:
            await anyio.sleep(SERVERS_S)
            wide = [watch for watch in self._watched if not watch.asked.entity]
            if not wide:
                continue
            try:
                servers = await self._simservers()
            except HomeFailure as failure:
                _log.info("which servers there are is not known now: %s", failure)
                continue
            for watch in wide:
                for server in servers:
                    self._door(server).add(watch)
                for name, door in self._doors.items():
                    if name not in servers:
                        door.remove(watch)


@asynccontextmanager
async def connect(
    url: str,
    key: PlayerKey | None = None,
    *,
    player: str = "",
    identity: Identity | None = None,
    invitation: str = "",
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[PlayerClient]:
    """A client of the instance that has a homeserver at this address.

    Args:
        url: of any of its homeservers, as `ws://127.0.0.1:8000`, or `http` for it.
        key: who this is; an observer if it is not said.
        player: the same, by its name
        identity: and its keys.
        invitation: by which the player has itself enrolled, if the instance does not know it yet.
        context: which authorities are trusted for TLS; those of the system if it is not said.

    Raises:
        ValueError: a player without keys, keys without a player, or an invitation without both.
        HomeFailure: there is no homeserver, or it does not let this client in.
    """
    who = key or PlayerKey(player, identity)
    if invitation and not who.name:
        raise ValueError("an invitation is for a player: give a name and keys")
    home = HomeDirectory(url, who, invitation, context)
    problem: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(home.run)
        try:
            await home.link.connected_once()
        except HomeFailure as failure:
            problem = failure
        else:
            client = PlayerClient(home, who, tasks, context)
            tasks.start_soon(client._serve)
            try:
                yield client
            except Exception as error:
                # Raised as it is when the tasks are over, and in no group.
                problem = error
            finally:
                tasks.cancel_scope.cancel()
        tasks.cancel_scope.cancel()
    if problem is not None:
        raise problem
