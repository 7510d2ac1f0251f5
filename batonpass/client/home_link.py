"""The connection to a home instance: to any of its homeservers, and to another one when that is gone.

At first it is a WebSocket of its own. As soon as a door is open that leads home, it goes over that (`WayOverDoor`). The
former one is read on until nothing of what happened can be missing in between.

What is asked is asked again at the next homeserver until it is answered or its time is over. That is safe: a request
says by ids and revisions what it means, so the same again changes nothing more (docs/reference/rest.md). What happened
while there was no connection is told by the state of the moment when there is one again.
"""

import json
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import anyio

from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.authority.errors import MessageError
from batonpass.authority.names import instance_of
from batonpass.authority.wire.door import DoorChallenge, DoorRefusal
from batonpass.authority.wire.home_door import (
    HOME_DOOR_PATH,
    HOME_SUBPROTOCOL,
    EntityNews,
    FromHomeDoor,
    GoneNews,
    HomeAnswer,
    HomeAsk,
    HomeFollow,
    HomeRenew,
    HomeSession,
    HomeWelcome,
    QuestionNews,
    TransferNews,
    decode_from_home_door_untrusted,
    encode_home,
)
from batonpass.authority.wire.player import ImminentLoss
from batonpass.client.home_channel import HomeChannel, WayOverDoor
from batonpass.client.player_key import PlayerKey, PlayerSession
from batonpass.client.socket import DoorClosed, DoorSocket

__all__ = ["HomeFailure", "HomeLink", "News"]

_log = logging.getLogger("batonpass.client.home_link")

CONNECT_S: Final = 5.0
TRY_S: Final = 10.0
"""How long one homeserver may take for an answer, before another one is asked; a spawn takes up to 5 s."""
ASK_S: Final = 30.0
FIRST_RETRY_S: Final = 0.05
ELSEWHERE_S: Final = 0.25
"""Before another homeserver is asked, since this one cannot tell."""
MAX_RETRY_S: Final = 2.0
OVERLAP_S: Final = 1.0
"""How long the former connection is read on: the next homeserver may know less yet than the former one has told."""
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
# With these an homeserver says that another one may do it.
_ELSEWHERE: Final = frozenset({"no_quorum", "not_leader", "not_ready", "not_running", "outcome_unknown"})
# And with these that no homeserver lets this client in, so that no repetition helps.
_TURNED_AWAY: Final = frozenset(
    {
        "bad_invitation",
        "bad_keys",
        "bad_proof",
        "key_conflict",
        "no_observers",
        "not_invited",
        "other_version",
        "unknown_player",
        "wrong_home",
    }
)

News = EntityNews | TransferNews | QuestionNews | GoneNews | ImminentLoss


class HomeFailure(Exception):
    """Home refused, with a stable `code`, or did not answer: `unreachable`."""

    def __init__(self, code: str, message: str, answer: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code: Final = code
        self.answer: Final = answer or {}


class _PendingAsk:
    """A request whose answer is waited for, which was asked over this connection."""

    def __init__(self, socket: DoorSocket | HomeChannel) -> None:
        self.socket: Final = socket
        self.done: Final = anyio.Event()
        self.answer: HomeAnswer | None = None


class _Entered(NamedTuple):
    """A connection over which this client was let in; `way` is None for one of its own."""

    way: WayOverDoor | None
    socket: DoorSocket | HomeChannel
    server: str
    welcome: HomeWelcome


class HomeLink:
    """The way to one instance; `run` has to run.

    Args:
        url: of any of its homeservers, as `ws://127.0.0.1:8000`; `http` and `https` are taken for `ws` and `wss`.
        key: who this is.
        invitation: by which the player has itself enrolled, if it is not known yet.
        context: which authorities are trusted for TLS.
        told: takes what happens.
    """

    def __init__(
        self,
        url: str,
        key: PlayerKey,
        invitation: str = "",
        context: ssl.SSLContext | None = None,
        told: Callable[[News], None] | None = None,
    ) -> None:
        self._urls: Final = [_door_url(url)]
        self._key: Final = key
        self._invitation: Final = invitation
        self._context: Final = context
        self._told: Final = told
        self._socket: DoorSocket | HomeChannel | None = None
        self._wanted_way: WayOverDoor | None = None
        self._way_changed = anyio.Event()
        self._moved_to: _Entered | None = None
        # What the former connection has told since the next one was entered: its revision, by what it is about.
        self._overlap: dict[tuple[str, str], int] = {}
        self.way: WayOverDoor | None = None
        """The door over which there is a connection; None for one of its own."""
        self._opened = anyio.Event()
        self._failure: HomeFailure | None = None
        self._pending: Final[dict[int, _PendingAsk]] = {}
        self._next_id = 1
        self._is_enrolled = False
        self._refused_invitation = ""
        self._followed: Sequence[str] = ()
        self.session: Final = PlayerSession()
        """What spares this player proofs at all doors."""
        self.instance = ""
        """Which instance this is; empty until it was connected once."""
        self.server = ""
        """The homeserver to which there is a connection; empty while there is none."""
        self.welcome: HomeWelcome | None = None
        """What it said last: who this is, and what it may do."""
        self.reconnections = 0

    # --- asking -------------------------------------------------------------------------------------------------------

    async def ask(self, method: str, target: str, body: Mapping[str, Any] | None = None) -> Any:
        """What home answers to a request of REST.

        Raises:
            HomeFailure: it refuses, or no homeserver answers in time (`unreachable`).
        """
        data = b"" if body is None else json.dumps(body).encode()
        problem = HomeFailure("unreachable", f"no homeserver answers to {method} {target}")
        with anyio.move_on_after(ASK_S):
            while True:
                answer = await self._tried(method, target, data)
                if answer is None:
                    continue
                said = _json_untrusted(answer.body)
                if answer.status < 300:
                    return said
                said = said if isinstance(said, dict) else {}
                problem = HomeFailure(str(said.get("code", "")), str(said.get("message", "")), said)
                if problem.code == "too_often":
                    await anyio.sleep(_seconds(said.get("retry_after_s")))
                elif problem.code in _ELSEWHERE:
                    await self._leave_for_another()
                else:
                    raise problem
        raise problem

    async def _tried(self, method: str, target: str, body: bytes) -> HomeAnswer | None:
        """The answer of the present homeserver; None if it gives none."""
        socket = await self._connected()
        number, pending = self._next_id, _PendingAsk(socket)
        self._next_id = number % (2**31 - 1) + 1
        self._pending[number] = pending
        try:
            await socket.send(encode_home(HomeAsk(id=number, method=method, target=target, body=body)))
            with anyio.move_on_after(TRY_S):
                await pending.done.wait()
                return pending.answer
            await self._leave_for_another()
        except DoorClosed:
            # `run` has noticed, or is about to.
            await anyio.sleep(FIRST_RETRY_S)
        finally:
            del self._pending[number]
        return None

    async def _connected(self) -> DoorSocket | HomeChannel:
        """The connection, once there is one. Raises HomeFailure: no homeserver lets this client in."""
        while self._socket is None:
            if self._failure is not None:
                raise self._failure
            await self._opened.wait()
        return self._socket

    async def _leave_for_another(self) -> None:
        """Have `run` connect to the next homeserver."""
        await self.break_off()
        await anyio.sleep(ELSEWHERE_S)

    async def follow(self, entities: Sequence[str]) -> None:
        """Be told what happens to these, too, and to no others any more that are not the player's own."""
        self._followed = list(entities)
        coming = None if self._moved_to is None else self._moved_to.socket
        for socket in [each for each in (self._socket, coming) if each is not None]:
            try:
                await socket.send(encode_home(HomeFollow(entities=list(entities))))
            except DoorClosed as closed:
                _log.info("to follow is said to the next homeserver: %s", closed)

    async def break_off(self) -> None:
        """End the connection without a word, as networks do; for tests of what outlives that."""
        if self._socket is not None:
            await self._socket.break_off()

    def prefer(self, way: WayOverDoor | None) -> None:
        """Go over this door from now on, or by a connection of its own; soon, and nothing is lost by it."""
        if way is not self._wanted_way:
            self._wanted_way = way
            self._way_changed.set()

    # --- the connection -----------------------------------------------------------------------------------------------

    async def connected_once(self) -> None:
        """Wait until there is a connection. Raises HomeFailure: there is no homeserver, or none lets this client in."""
        with anyio.move_on_after(ASK_S):
            await self._connected()
            return
        raise HomeFailure("unreachable", f"there is no homeserver at {self._urls[0]}")

    async def run(self) -> None:
        """Keep a connection, until cancelled or turned away."""
        retry_s, failures = FIRST_RETRY_S, 0
        moved_to: _Entered | None = None
        while True:
            way = self._wanted_way if moved_to is None else moved_to.way
            try:
                await self._stay(moved_to or await self._entered(way))
            except (DoorClosed, MessageError) as error:
                _log.info("%s: %s", self._urls[0] if way is None else "over a door", error)
                reason = error.reason if isinstance(error, DoorClosed) else ""
                is_silent = isinstance(error, DoorClosed) and error.is_silent
                is_first = not self.instance and failures >= len(self._urls)
                if self._turned_away(reason, str(error), is_first=is_first, is_silent=is_silent):
                    return
            if (moved_to := self._next_connection()) is not None:
                self._ask_again(moved_to.socket)
                continue
            failures = 0 if self._was_open() else failures + 1
            if failures == 0:
                retry_s = FIRST_RETRY_S
            if way is not None:
                await anyio.sleep(FIRST_RETRY_S)
                continue
            self._urls.append(self._urls.pop(0))
            if failures >= len(self._urls):
                await anyio.sleep(retry_s)
                retry_s = min(2 * retry_s, MAX_RETRY_S)

    def _next_connection(self) -> _Entered | None:
        moved_to, self._moved_to = self._moved_to, None
        return moved_to

    def _was_open(self) -> bool:
        """Whether there was a connection; there is none from now on."""
        was_open, self._socket, self.server = self._socket is not None, None, ""
        if was_open:
            self.reconnections += 1
            self._opened = anyio.Event()
        self._ask_again()
        return was_open

    def _ask_again(self, present: DoorSocket | HomeChannel | None = None) -> None:
        """What was asked over another connection than this one is asked once more."""
        for pending in self._pending.values():
            if pending.socket is not present:
                pending.done.set()

    def _turned_away(self, reason: str, text: str, *, is_first: bool, is_silent: bool) -> bool:
        """Whether no repetition helps: then all who wait are told."""
        if reason not in _TURNED_AWAY and not is_first:
            return False
        if not reason and not self.instance:
            if is_silent:
                text += ": is it running, or busy?"
            else:
                text += ": give the URL of a homeserver, not that of a simulation server or its door"
        self._failure = HomeFailure(reason or "unreachable", text)
        self._was_open()
        self._opened.set()
        return True

    async def _entered(self, way: WayOverDoor | None) -> _Entered:
        """A connection over which a homeserver has let this client in. Raises DoorClosed, MessageError."""
        try:
            socket = await self._opened_over(way)
            try:
                with anyio.move_on_after(CONNECT_S):
                    server, welcome = await self._enter(socket)
                    if self._followed:
                        await socket.send(encode_home(HomeFollow(entities=list(self._followed))))
                    return _Entered(way, socket, server, welcome)
                raise DoorClosed(f"a homeserver said nothing for {CONNECT_S:.0f} s", is_silent=True)
            except BaseException:
                await socket.break_off()
                raise
        except (DoorClosed, MessageError):
            if way is not None:
                way.leads_nowhere()
            if way is self._wanted_way:
                self._wanted_way = None
            raise

    async def _opened_over(self, way: WayOverDoor | None) -> DoorSocket | HomeChannel:
        if way is not None:
            return way.open_home()
        return await DoorSocket.open(
            self._urls[0], HOME_SUBPROTOCOL, max_bytes=MAX_ANSWER_BYTES, timeout_s=CONNECT_S, context=self._context
        )

    async def _stay(self, entered: _Entered) -> None:
        """Take what comes, until the next connection is there (`_moved_to`). Raises DoorClosed, MessageError."""
        self.way, socket, self.server, self.welcome = entered
        problem: Exception | None = None
        async with socket:
            self._socket = socket
            self._opened.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._learn_others)
                tasks.start_soon(self._renew, socket, entered.welcome.token_s)
                tasks.start_soon(self._move, tasks.cancel_scope)
                try:
                    while True:
                        data = await socket.receive()
                        self._take(decode_from_home_door_untrusted(data))
                        if self._moved_to is None and not (isinstance(socket, HomeChannel) and socket.waiting):
                            self._overlap.clear()
                except (DoorClosed, MessageError) as error:
                    problem = error
                tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem

    async def _move(self, former: anyio.CancelScope) -> None:
        """Enter over the door that is preferred, and end the former connection when that one has told all."""
        while self._moved_to is None:
            if self._wanted_way in (None, self.way):
                self._way_changed = anyio.Event()
                await self._way_changed.wait()
                continue
            try:
                self._moved_to = await self._entered(self._wanted_way)
            except (DoorClosed, MessageError) as error:
                _log.info("no homeserver is reached over a door: %s", error)
        await anyio.sleep(OVERLAP_S)
        # What is asked from now on is answered there; of what was asked before, nothing is to be asked twice.
        former_socket, self._socket = self._socket, self._moved_to.socket
        with anyio.move_on_after(TRY_S):
            for pending in [each for each in self._pending.values() if each.socket is former_socket]:
                await pending.done.wait()
        former.cancel()

    async def _enter(self, socket: DoorSocket | HomeChannel) -> tuple[str, HomeWelcome]:
        """Which homeserver has let this client in, and what it says to it. Raises DoorClosed, MessageError."""
        challenge = decode_from_home_door_untrusted(await socket.receive())
        if not isinstance(challenge, DoorChallenge):
            raise DoorClosed("this is no homeserver's door")
        instance = instance_of(challenge.server)
        if self.instance not in ("", instance):
            raise DoorClosed(f"{challenge.server} is not of {self.instance}")
        if self._invitation and not self._is_enrolled:
            hello: Any = self._key.enrol(challenge, self._invitation)
        else:
            hello = self._key.prove(challenge, self.session.at(anyio.current_time()))
        await socket.send(encode_home(hello))
        match decode_from_home_door_untrusted(await socket.receive()):
            case HomeWelcome() as welcome:
                self.instance, self._is_enrolled = instance, True
                self.session.given(welcome.token, welcome.token_s, anyio.current_time())
                return challenge.server, welcome
            case DoorRefusal(code="bad_invitation", message=message) if self._invitation and not self._is_enrolled:
                # Its time is over, perhaps, and this player came by it before: then it is known.
                self._is_enrolled, self._refused_invitation = True, message
                raise DoorClosed(message, "")
            case DoorRefusal(code="unknown_player") if self._refused_invitation:
                raise DoorClosed(self._refused_invitation, "bad_invitation")
            case DoorRefusal(code=code, message=message):
                self._refused(code)
                raise DoorClosed(message, code)
            case _:
                raise DoorClosed("the door does not let this client in, and does not say why")

    def _refused(self, code: str) -> None:
        if code == "bad_token":
            # The key proves more than a session, which another homeserver gave, perhaps long ago.
            self.session.forget()

    async def _renew(self, socket: DoorSocket | HomeChannel, every_s: float) -> None:
        """Ask for another session while the one that there is lasts."""
        while self.session.at(anyio.current_time()):
            await anyio.sleep(every_s / 2)
            try:
                await socket.send(encode_home(HomeRenew()))
            except DoorClosed as closed:
                _log.info("no session is asked for any more: %s", closed)
                return

    async def _learn_others(self) -> None:
        """The other homeservers, for when this one is gone. What has been given at first stays among them."""
        try:
            rows = await self.ask("GET", "/v1/servers")
            others = [_door_url(str(row["rest_url"])) for row in rows if row["role"] == "homeserver"]
        except (HomeFailure, KeyError, TypeError) as error:
            _log.info("which other homeservers there are is not known now: %s", error)
            return
        self._urls.extend(url for url in others if url not in self._urls)

    def _take(self, message: FromHomeDoor) -> None:
        match message:
            case HomeAnswer():
                pending = self._pending.get(message.id)
                if pending is not None:
                    pending.answer = message
                    pending.done.set()
            case EntityNews() | TransferNews() | QuestionNews() | GoneNews():
                if self._told is not None and not self._is_repeated(message):
                    self._told(message)
            case HomeSession():
                self.session.given(message.token, message.token_s, anyio.current_time())
            case DoorRefusal(code=code, message=text):
                self._refused(code)
                raise DoorClosed(text, code)
            case _:
                raise MessageError("a message out of turn")

    def _is_repeated(self, news: EntityNews | TransferNews | QuestionNews | GoneNews) -> bool:
        """Whether the former connection has told it, or what came after it, since this one was entered."""
        subject = _subject(news)
        if self._moved_to is None:
            return self._overlap.get(subject, -1) >= news.revision
        self._overlap[subject] = news.revision
        return False


def _subject(news: EntityNews | TransferNews | QuestionNews | GoneNews) -> tuple[str, str]:
    """What it is about."""
    match news:
        case EntityNews(entity=entity):
            return "entity", str(entity.get("id"))
        case GoneNews(entity=name):
            return "entity", name
        case TransferNews(transfer=transfer):
            return "transfer", str(transfer.get("id"))
        case QuestionNews(question=question):
            return "question", str(question.get("transfer_id"))


def _door_url(url: str) -> str:
    """Where the door of the homeserver at this address is."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, HOME_DOOR_PATH, "", ""))


def _json_untrusted(data: bytes) -> Any:
    """The value of an answer. Raises MessageError: it is no JSON."""
    try:
        return read_json_untrusted(data, most=MAX_ANSWER_BYTES)
    except ValueError as error:
        raise MessageError("an answer that is no JSON") from error


def _seconds(value: object) -> float:
    return min(max(float(value), FIRST_RETRY_S), TRY_S) if isinstance(value, int | float) else 1.0
