"""Clients and homeservers talk over the players' door, so that a client needs one connection for everything.

What either says to the other is passed on as it is, and not read here (`authority.wire.home_door`). A client proves to
the homeserver itself who it is. So this server vouches for no client, and may do nothing that the client may not.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Final

import trio

from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door_connection import DoorConnection
from batonpass.actors.http.websocket_client import CalledWebSocket, WebSocketFailed, open_websocket
from batonpass.authority.wire.door import HomeOver, HomeWord
from batonpass.authority.wire.home_door import HOME_DOOR_PATH, HOME_SUBPROTOCOL, MAX_FROM_HOME_BYTES

__all__ = ["MAX_CONVERSATIONS", "HomeConversations"]

MAX_CONVERSATIONS: Final = 256
"""Of one door; as many as a homeserver takes of one address."""
MAX_WAITING_BYTES: Final = 256 * 1024
"""That a client has said and a homeserver has not taken: a homeserver reads on when it has answered."""
_OPEN_S: Final = 5.0
_SILENCE_S: Final = 60.0


class _ClientsWords:
    """What one client says to a homeserver, until that has taken it."""

    def __init__(self) -> None:
        self.scope: Final = trio.CancelScope()
        self._words: Final[deque[bytes]] = deque()
        self._waiting_bytes = 0
        self._has_some = trio.Event()

    def add(self, word: bytes) -> None:
        """The client says this. Raises DoorRefused: it says more than a homeserver takes."""
        self._waiting_bytes += len(word)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            text = f"{self._waiting_bytes} bytes wait for a homeserver, and at most {MAX_WAITING_BYTES}"
            raise DoorRefused("too_many", text)
        self._words.append(word)
        self._has_some.set()

    async def pass_on(self, socket: CalledWebSocket) -> None:
        """Send what the client says, as long as the homeserver is there: who listens to it notices the end."""
        with suppress(WebSocketFailed):
            while True:
                while self._words:
                    word = self._words.popleft()
                    await socket.send(word)
                    self._waiting_bytes -= len(word)
                self._has_some = trio.Event()
                await self._has_some.wait()


class HomeConversations:
    """Of the clients of one door.

    Args:
        homeservers: the base URLs of the homeservers of this instance. Each conversation is with the next one.
    """

    def __init__(self, homeservers: Callable[[], Sequence[str]]) -> None:
        self._homeservers: Final = homeservers
        self._turns: Final = count()
        self._tasks: Final[dict[DoorConnection, trio.Nursery]] = {}
        self._present: Final[dict[DoorConnection, _ClientsWords]] = {}

    def __len__(self) -> int:
        return len(self._present)

    def join(self, connection: DoorConnection, tasks: trio.Nursery) -> None:
        """A client is in; `tasks` end with its connection."""
        self._tasks[connection] = tasks

    def leave(self, connection: DoorConnection) -> None:
        """Its connection has ended."""
        del self._tasks[connection]
        self._present.pop(connection, None)

    def take(self, word: bytes, connection: DoorConnection) -> None:
        """A client says something to a homeserver; empty: to the next one. Raises DoorRefused: it says too much."""
        if not word:
            self._begin(connection)
        elif (conversation := self._present.get(connection)) is not None:
            conversation.add(word)
        # Else it is over, and the client has been told so.

    def end(self, connection: DoorConnection) -> None:
        """A client has said all that it wanted to say to its homeserver."""
        if (former := self._present.pop(connection, None)) is not None:
            former.scope.cancel()

    def _begin(self, connection: DoorConnection) -> None:
        self.end(connection)
        if len(self._present) >= MAX_CONVERSATIONS:
            text = f"{MAX_CONVERSATIONS} clients talk to homeservers here: connect to a homeserver"
            connection.tell(HomeOver(code="too_many_connections", message=text))
            return
        conversation = self._present[connection] = _ClientsWords()
        self._tasks[connection].start_soon(self._hold, conversation, connection)

    async def _hold(self, conversation: _ClientsWords, connection: DoorConnection) -> None:
        """Pass on what both say, until either has ended it."""
        with conversation.scope:
            try:
                await self._talk(conversation, connection)
            except WebSocketFailed as failed:
                del self._present[connection]
                over = HomeOver(code=failed.reason[:64] or "home_unreachable", message=str(failed)[:512])
                connection.tell(over)

    async def _talk(self, conversation: _ClientsWords, connection: DoorConnection) -> None:
        """Raises WebSocketFailed."""
        urls = self._homeservers()
        if not urls:
            raise WebSocketFailed("no homeserver is known here now")
        url = urls[next(self._turns) % len(urls)].rstrip("/") + HOME_DOOR_PATH
        async with open_websocket(
            url, max_bytes=MAX_FROM_HOME_BYTES, open_s=_OPEN_S, silence_s=_SILENCE_S, subprotocol=HOME_SUBPROTOCOL
        ) as socket:
            connection.tell(HomeWord())
            ended: list[WebSocketFailed] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(conversation.pass_on, socket)
                try:
                    while True:
                        word = await socket.receive_any()
                        if isinstance(word, bytes):
                            connection.tell(HomeWord(data=word))
                except WebSocketFailed as failed:
                    ended.append(failed)
                nursery.cancel_scope.cancel()
        raise ended[0]
