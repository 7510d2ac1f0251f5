"""A client of a homeserver's door that does what a test says."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from batonpass.authority.wire.door import DoorChallenge, DoorHello, DoorRefusal, proof_statement
from batonpass.authority.wire.home_door import (
    HOME_DOOR_PATH,
    HOME_DOOR_VERSION,
    HOME_SUBPROTOCOL,
    DoorEnrol,
    HomeAnswer,
    HomeAsk,
    HomeWelcome,
    decode_from_home_door_untrusted,
    encode_home,
)
from batonpass.client.socket import DoorClosed, DoorSocket
from batonpass.crypto import jose
from tests.homeserver.served import Player


class Visitor:
    """One connection."""

    def __init__(self, socket: DoorSocket, challenge: DoorChallenge) -> None:
        self.socket = socket
        self.challenge = challenge
        self.news: list[Any] = []
        self._asked = 0

    async def say(self, message: Any) -> None:
        await self.socket.send(message if isinstance(message, bytes) else encode_home(message))

    async def next(self) -> Any:
        return decode_from_home_door_untrusted(await self.socket.receive())

    async def hear(self, kind: type, fits: Callable[[Any], object] = lambda _: True) -> Any:
        """The next message of this kind that fits; others are kept among the news."""
        for place, message in enumerate(self.news):
            if isinstance(message, kind) and fits(message):
                return self.news.pop(place)
        while True:
            message = await self.next()
            if isinstance(message, kind) and fits(message):
                return message
            self.news.append(message)

    def proof(self, who: Player, *, lifetime_s: float = 60.0, **changed: Any) -> str:
        """What `who` signs of this connection's challenge, or of another one."""
        statement = proof_statement(self.challenge) | changed | {"expires_at_s": time.time_ns() / 1e9 + lifetime_s}
        return jose.sign(statement, sender=who.identity, sender_id=who.name)

    async def enter(self, who: Player | None = None, token: bytes = b"") -> HomeWelcome:
        hello = DoorHello(version=HOME_DOOR_VERSION)
        if who is not None and token:
            hello = DoorHello(version=HOME_DOOR_VERSION, player=who.name, token=token)
        elif who is not None:
            hello = DoorHello(version=HOME_DOOR_VERSION, player=who.name, proof=self.proof(who))
        await self.say(hello)
        welcome: HomeWelcome = await self.hear(HomeWelcome)
        return welcome

    def enrolling(self, who: Player, invitation: str = "", **changed: Any) -> DoorEnrol:
        fields = {"player": who.name, "keys": who.keys, "invitation": invitation, "proof": self.proof(who)} | changed
        return DoorEnrol(version=HOME_DOOR_VERSION, **fields)

    async def enrol(self, who: Player, invitation: str = "") -> HomeWelcome:
        await self.say(self.enrolling(who, invitation))
        welcome: HomeWelcome = await self.hear(HomeWelcome)
        return welcome

    async def ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        """The status and the body of the answer."""
        self._asked += 1
        text = b"" if body is None else json.dumps(body).encode()
        await self.say(HomeAsk(id=self._asked, method=method, target=target, body=text))
        number = self._asked
        answer: HomeAnswer = await self.hear(HomeAnswer, lambda one: one.id == number)
        return answer.status, json.loads(answer.body)

    async def do(self, method: str, target: str, body: Any = None) -> Any:
        """The body of an answer that is no error."""
        status, answer = await self.ask(method, target, body)
        assert status < 300, answer
        return answer

    async def refused(self, status: int, code: str, method: str, target: str, body: Any = None) -> None:
        got, answer = await self.ask(method, target, body)
        assert (got, answer["code"]) == (status, code), answer

    async def turned_away(self, message: Any) -> str:
        """The code with which the door refuses the connection after this message; its reason for closing, too."""
        await self.say(message)
        refusal = await self.hear(object)
        while not isinstance(refusal, DoorRefusal):
            assert not isinstance(refusal, HomeWelcome), "it is let in"
            refusal = await self.hear(object)
        assert await self.closed() == refusal.code
        return refusal.code

    async def closed(self) -> str:
        """The code with which the door ends the connection."""
        try:
            while True:
                await self.socket.receive()
        except DoorClosed as ended:
            return ended.reason


@asynccontextmanager
async def visiting(url: str) -> AsyncIterator[Visitor]:
    """A connection to the door of the homeserver at this address."""
    opened = await DoorSocket.open(url + HOME_DOOR_PATH, HOME_SUBPROTOCOL, max_bytes=2**24, timeout_s=60)
    async with opened as socket:
        challenge = decode_from_home_door_untrusted(await socket.receive())
        assert isinstance(challenge, DoorChallenge)
        yield Visitor(socket, challenge)
