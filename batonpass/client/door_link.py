"""The connection to one door, kept for as long as something is wanted there: opened, proved, and opened again.

What a program wants outlives the connection. Subscriptions are asked for again and inputs are repeated
(`input_stream`), so a connection that ends costs time and nothing else.
"""

import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import anyio

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.door import (
    HAVE_SINCE,
    HOME_SINCE,
    MAX_HAVE,
    SUBPROTOCOL,
    DoorChallenge,
    DoorHave,
    DoorRefusal,
    DoorUnsubscribe,
    DoorWelcome,
    EntityElsewhere,
    FromClient,
    HomeOver,
    HomeWord,
    SubscriptionTopics,
    decode_from_door_untrusted,
    encode_door,
    version_for,
)
from batonpass.authority.wire.transfer import ImminentLoss, InputAck, NotOwner
from batonpass.client.home_channel import HomeChannel
from batonpass.client.home_link import HomeFailure
from batonpass.client.mirror import DoorMirror
from batonpass.client.player_key import PlayerKey, PlayerSession
from batonpass.client.socket import DoorClosed, DoorSocket
from batonpass.client.tick_clock import TickClock
from batonpass.client.watch import EntityWatch

__all__ = ["DoorLink", "DoorNews", "PlayerKey"]

_log = logging.getLogger("batonpass.client.door_link")

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
CONNECT_S: Final = 5.0
FIRST_RETRY_S: Final = 0.1
MAX_RETRY_S: Final = 3.0
# A link that no entity needs any more is kept open for so long: entities come back.
IDLE_S: Final = 10.0
NO_HOME_S: Final = 10.0
MAX_QUEUED: Final = 4096
DEFAULT_TICK_HZ: Final = 20.0


class DoorNews(NamedTuple):
    """What is called with what a door says, and with the name of its server, by the client whose door it is."""

    answered: Callable[[str, InputAck | NotOwner | EntityElsewhere | ImminentLoss], None]
    """It says something of an entity."""
    opened: Callable[[str], None]
    """It is open: what waits may be sent."""
    closed: Callable[[str, bool], None]
    """It is not open any more; or it did not open, if it was not."""


class DoorLink:
    """One door; `run` has to run.

    Args:
        server: whose door it is.
        key: who enters.
        session: what spares it a proof, if there is one.
        find: where the door is; empty if that is not known now. Raises HomeFailure.
        news: what is told.
        context: which authorities are trusted for TLS.
    """

    def __init__(
        self,
        server: str,
        key: PlayerKey,
        session: PlayerSession,
        find: Callable[[str], Awaitable[str]],
        news: DoorNews,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.server: Final = server
        self._key: Final = key
        self._session: Final = session
        self._refuses_session = False
        self._find: Final = find
        self._news: Final = news
        self._context: Final = context
        self._watches: Final[dict[int, EntityWatch]] = {}
        self._topics: Final[dict[int, list[int]]] = {}
        self._next = 1
        self._mirror = DoorMirror()
        self._queue: Final[deque[FromClient]] = deque()
        self._queued = anyio.Event()
        self._wanted_at_s = anyio.current_time()
        self._socket: DoorSocket | None = None
        self.clock = TickClock(DEFAULT_TICK_HZ)
        """When its server's rounds are."""
        self.is_open = False
        """Whether what is sent now goes out at once."""
        self.last_refusal: DoorRefusal | None = None
        self._version = 0
        self._run = b""
        self._home: HomeChannel | None = None
        self._no_home_until_s = 0.0

    # --- what is wanted here ---------------------------------------------------------------------------------------

    @property
    def watches(self) -> list[EntityWatch]:
        """What is watched here."""
        return list(self._watches.values())

    def add(self, watch: EntityWatch) -> None:
        """Watch something here."""
        if watch not in self._watches.values():
            self._watches[self._next] = watch
            self._ask(self._next, watch)
            self._next += 1

    def remove(self, watch: EntityWatch) -> None:
        """Watch it here no more."""
        for number, each in list(self._watches.items()):
            if each is watch:
                del self._watches[number]
                self.send(DoorUnsubscribe(id=number))
                topics = self._topics.pop(number, [])
                wanted = {topic for each in self._topics.values() for topic in each}
                for topic in topics:
                    if topic not in wanted:
                        self._mirror.close(topic)
                watch.lose_all(self.server)
        self._wanted_at_s = anyio.current_time()

    def send(self, message: FromClient) -> bool:
        """Send a message, if the door is open and there is room; what matters is repeated by the client."""
        if not self.is_open or len(self._queue) >= MAX_QUEUED:
            return False
        self._queue.append(message)
        self._queued.set()
        return True

    def _ask(self, number: int, watch: EntityWatch) -> None:
        self.send(watch.asked.model_copy(update={"id": number}))

    @property
    def leads_home(self) -> bool:
        """Whether a homeserver may be reached over this door now."""
        return self.is_open and self._version >= HOME_SINCE and anyio.current_time() >= self._no_home_until_s

    def open_home(self) -> HomeChannel:
        """As `WayOverDoor.open_home`."""
        if self._home is not None:
            self._home.end(DoorClosed("another conversation was begun"))
        self._home = HomeChannel(self.send)
        return self._home

    def leads_nowhere(self) -> None:
        """No homeserver was reached over this door: it is not tried for a while."""
        self._no_home_until_s = anyio.current_time() + NO_HOME_S

    async def break_off(self) -> None:
        """End the connection without a word, as networks do; for tests of what outlives that."""
        if self._socket is not None:
            await self._socket.break_off()

    # --- the connection --------------------------------------------------------------------------------------------

    async def run(self, is_wanted: Callable[[], bool]) -> None:
        """Keep it open while something is watched here, or `is_wanted` says so, and for a while after."""
        retry_s = FIRST_RETRY_S
        while self._is_wanted(is_wanted):
            try:
                await self._once(is_wanted)
                retry_s = FIRST_RETRY_S
            except (DoorClosed, HomeFailure, MessageError) as error:
                _log.info("the door of %s: %s", self.server, error)
                if self.is_open:
                    retry_s = FIRST_RETRY_S
            finally:
                self._end()
            await anyio.sleep(retry_s)
            retry_s = min(2 * retry_s, MAX_RETRY_S)

    def _is_wanted(self, is_wanted: Callable[[], bool]) -> bool:
        if self._watches or is_wanted():
            self._wanted_at_s = anyio.current_time()
        return anyio.current_time() - self._wanted_at_s < IDLE_S

    async def _once(self, is_wanted: Callable[[], bool]) -> None:
        url = await self._find(self.server)
        if not url:
            raise DoorClosed(f"it is not known where the door of {self.server} is")
        socket = await DoorSocket.open(
            url, SUBPROTOCOL, max_bytes=MAX_FRAME_BYTES, timeout_s=CONNECT_S, context=self._context
        )
        problem: Exception = DoorClosed("the door is not wanted any more, or the connection has ended")
        async with socket:
            self._socket = socket
            await self._enter(socket)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, socket, tasks.cancel_scope)
                tasks.start_soon(self._see_whether_wanted, is_wanted, tasks.cancel_scope)
                try:
                    while True:
                        self._take(decode_from_door_untrusted(await socket.receive()))
                except (DoorClosed, MessageError) as error:
                    problem = error
                tasks.cancel_scope.cancel()
            raise problem

    async def _enter(self, socket: DoorSocket) -> None:
        with anyio.move_on_after(CONNECT_S):
            challenge = decode_from_door_untrusted(await socket.receive())
            if not isinstance(challenge, DoorChallenge) or challenge.server != self.server:
                raise DoorClosed(f"this is not the door of {self.server}")
            if not challenge.tick_hz > 0:
                raise DoorClosed(f"the door of {self.server} says that it ticks {challenge.tick_hz} times a second")
            self.clock = TickClock(challenge.tick_hz)
            self._version = version_for(challenge)
            session = b"" if self._refuses_session else self._session.at(anyio.current_time())
            await socket.send(encode_door(self._key.prove(challenge, session)))
            match decode_from_door_untrusted(await socket.receive()):
                case DoorWelcome(run=run):
                    self._refuses_session = False
                case DoorRefusal(code=code, message=message) as refusal:
                    self.last_refusal = refusal
                    # Which another door may take: here the key proves more.
                    self._refuses_session = code == "bad_token"
                    raise DoorClosed(message, code)
                case _:
                    raise DoorClosed("the door does not let this client in, and does not say why")
            self.is_open = True
            self._say_what_is_held(run)
            for number, watch in self._watches.items():
                self._ask(number, watch)
            self._news.opened(self.server)
            return
        raise DoorClosed(f"the door of {self.server} said nothing for {CONNECT_S:.0f} s")

    def _say_what_is_held(self, run: bytes) -> None:
        """Have the door go on from what it showed by the connection before, unless its server has started anew."""
        if self._version < HAVE_SINCE or not run or run != self._run:
            self._mirror = DoorMirror()
        self._run = run
        held = self._mirror.held
        for at in range(0, len(held), MAX_HAVE):
            self.send(DoorHave(topics=held[at : at + MAX_HAVE]))

    async def _write(self, socket: DoorSocket, scope: anyio.CancelScope) -> None:
        try:
            while True:
                while self._queue:
                    await socket.send(encode_door(self._queue.popleft()))
                self._queued = anyio.Event()
                await self._queued.wait()
        except DoorClosed:
            scope.cancel()

    async def _see_whether_wanted(self, is_wanted: Callable[[], bool], scope: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(1.0)
            if not self._is_wanted(is_wanted):
                scope.cancel()

    def _end(self) -> None:
        was_open, self.is_open = self.is_open, False
        self._queue.clear()
        self._topics.clear()
        self._mirror = self._mirror.successor()
        if self._home is not None:
            self._home.end(DoorClosed(f"the connection to {self.server} has ended"))
            self._home = None
        if was_open:
            for watch in self._watches.values():
                watch.lose_all(self.server)
        self._news.closed(self.server, was_open)

    # --- what the door says ----------------------------------------------------------------------------------------

    def _take(self, message: Any) -> None:
        if isinstance(message, list):
            self._take_frame(message)
            return
        match message:
            case SubscriptionTopics():
                self._take_topics(message)
            case InputAck() | NotOwner() | EntityElsewhere() | ImminentLoss():
                self._news.answered(self.server, message)
            case HomeWord() | HomeOver():
                if self._home is not None:
                    self._home.take(message)
            case DoorRefusal():
                self.last_refusal = message
                _log.info("the door of %s refuses: %s", self.server, message.message)
                if (watch := self._watches.get(message.id)) is not None:
                    watch.refuse(self.server, message)
            case _:
                raise MessageError("a message out of turn")

    def _take_frame(self, frame: list[Any]) -> None:
        if not any(frame[1:2] == [topic] for topics in self._topics.values() for topic in topics):
            # It was under way when its last watch was closed.
            return
        changed, left = self._mirror.take_untrusted(frame)
        if frame[2] or not self.clock.is_set:
            # What is told to begin with may have been so for long.
            self.clock.heard(frame[4], anyio.current_time())
        for number, topics in self._topics.items():
            if frame[1] in topics:
                self._watches[number].show(self.server, changed, self.clock)
        self._left(left)

    def _take_topics(self, message: SubscriptionTopics) -> None:
        if message.id not in self._watches:
            return
        before, self._topics[message.id] = self._topics.get(message.id, []), message.topics
        wanted = {topic for topics in self._topics.values() for topic in topics}
        left = [name for topic in before if topic not in wanted for name in self._mirror.close(topic)]
        # What other watches show on has left this one all the same.
        left += [entity.name for entity in self._mirror]
        self._left(left)

    def _left(self, names: list[str]) -> None:
        """These were shown by a topic that shows them no more."""
        if not names:
            return
        for number, topics in self._topics.items():
            lost = [name for name in names if not self._mirror.is_shown(name, topics)]
            self._watches[number].no_longer(self.server, lost)
