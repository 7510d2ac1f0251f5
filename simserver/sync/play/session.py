"""A game that follows a stream's server over HTTP. What is asked, and what an answer does, is the follower's."""

import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import trio

from batonpass.actors.http.client import MAX_ANSWER_BYTES, HttpAnswer, HttpClient, HttpFailed
from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.actors.http.websocket_client import CalledWebSocket, WebSocketFailed, open_websocket
from batonpass.simserver.sync.lockstep.follower import AnswerRefused, StreamFollower, SyncPurpose, SyncRequest
from batonpass.simserver.sync.lockstep.schedule import TICK_MS, Connection
from batonpass.simserver.sync.play.doors import MAX_SENT_ON, KnownDoors

__all__ = ["SYNC_S", "StreamLost", "follow_stream"]

SYNC_S: Final = 0.2
"""Between two polls (seed document: about five times a second)."""
FRAME_S: Final = 0.01
LONG_POLL_S: Final = 20.0
# Beyond what the server was asked to wait.
PATIENCE_S: Final = 5.0
# A stream that has a client ticks twenty times a second; a WebSocket that does not tell so long is given up.
SILENCE_S: Final = 5.0
_MS: Final = 1000.0
_ELSEWHERE: Final = 307
_TOO_MANY_EVENTS: Final = "too_many_events"
_SERVER_ERROR: Final = 500


class StreamLost(Exception):
    """No door has answered within the follower's fault window, or one refuses for good; the sentence says how."""


async def follow_stream(
    follower: StreamFollower,
    urls: str | Sequence[str],
    http: HttpClient | None = None,
    *,
    sync_s: float = SYNC_S,
    long_poll: bool = False,
    push: bool = False,
    frame_s: float = FRAME_S,
    patience_s: float = PATIENCE_S,
    on_frame: Callable[[int], object] | None = None,
    on_early: Callable[[str, str, str], object] | None = None,
) -> None:
    """Follow a stream until this is cancelled. When it ends in any way, the server is told that the client leaves.

    A door that does not have the stream says where it is, and from then on the client asks there. When one does not
    answer, or cannot, the client asks the next one. So it follows a stream that is handed over or taken over.

    Args:
        follower: of the stream, with its driver.
        urls: of the server, as `http://127.0.0.1:9922`, or of several doors that know the stream.
        http: what asks; by default a client of its own.
        sync_s: between two polls.
        long_poll: whether the server answers when it has something new, instead. One request is under way at a time.
        push: whether the server tells each tick over a WebSocket, instead. The client polls where it cannot have one.
        frame_s: between two looks at how many ticks are due.
        patience_s: after which a request counts as one without an answer, beyond what the server was asked to wait.
        on_frame: called after each look with the number of ticks that were computed.
        on_early: with `push`, called with type, origin and body of an event before its tick is over, where the server
            tells that. It may show something; the game has the event when its tick is computed, as all clients do.

    Raises:
        StreamLost: the server is lost. What was computed is kept: `follower.driver`.
        ValueError: there is no URL.
    """
    doors = KnownDoors(urls)
    async with AsyncExitStack() as stack:
        if http is None:
            http = await stack.enter_async_context(HttpClient())
        session = _StreamSession(follower, doors, http, patience_s, on_early)
        try:
            async with trio.open_nursery() as nursery:
                waits = (LONG_POLL_S, 0.0) if long_poll else (0.0, sync_s)
                if push:
                    nursery.start_soon(session.listen_forever)
                else:
                    nursery.start_soon(session.sync_forever, *waits)
                await session.run_frames(frame_s, on_frame)
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(1.0, shield=True):
                await session.leave()
    raise StreamLost(f"the server of the stream at {doors.names} is lost: {session.last_said}")


class _StreamSession:
    def __init__(
        self,
        follower: StreamFollower,
        doors: KnownDoors,
        http: HttpClient,
        patience_s: float,
        on_early: Callable[[str, str, str], object] | None,
    ) -> None:
        self._follower: Final = follower
        self._on_early: Final = on_early
        self._patience_s: Final = patience_s
        self._doors: Final = doors
        self._http: Final = http
        self._asked_last: SyncRequest | None = None
        self.last_said = "it was not asked yet"

    async def sync_forever(self, wait_s: float, pause_s: float) -> None:
        """Ask, and take the answer, again and again."""
        while True:
            began = trio.current_time()
            was_answered = await self._sync(self._follower.next_request(wait_s=wait_s), wait_s)
            # Who failed is not asked at once again, and neither is a server that does not wait.
            least_s = pause_s if was_answered and pause_s else SYNC_S if not was_answered else FRAME_S
            await trio.sleep(max(0.0, began + least_s - trio.current_time()))

    async def listen_forever(self) -> None:
        """Be told over a WebSocket, and poll once after each: the poll finds the stream, and hears what was refused."""
        while True:
            began, request = trio.current_time(), self._follower.next_request()
            if await self._sync(request) and request.ask is SyncPurpose.SYNC:
                await self._be_told(self._follower.next_request())
            await trio.sleep(max(0.0, began + SYNC_S - trio.current_time()))

    async def _be_told(self, first: SyncRequest) -> None:
        """Ask for this over a WebSocket, and take what the door tells there until one of them gives up."""
        if first.ask is not SyncPurpose.SYNC:
            await self._sync(first)
            return
        try:
            url = self._doors.url_of(first.path)
            async with open_websocket(url, max_bytes=MAX_ANSWER_BYTES, open_s=PATIENCE_S) as socket:
                await socket.send(_message(first, early=self._on_early is not None))
                self._asked_last = first
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tell_forever, socket)
                    self.last_said = await self._hear(socket)
                    nursery.cancel_scope.cancel()
        except (WebSocketFailed, ValueError) as error:
            self.last_said = str(error)

    async def _hear(self, socket: CalledWebSocket) -> str:
        """Take replies until there is no other, or another than is expected; why."""
        while True:
            try:
                with trio.fail_after(SILENCE_S):
                    reply = read_json_untrusted((await socket.receive()).encode())
                early = _early_events(reply)
                if not early and (refused := self._take_told(reply)):
                    return refused
            except trio.TooSlowError:
                return f"the door said nothing for {SILENCE_S:g} s"
            except (WebSocketFailed, ValueError, TypeError, AttributeError, KeyError) as error:
                return str(error)
            # What the program does with them is not the door's fault.
            for event in early:
                if self._on_early is not None:
                    self._on_early(*event)

    def _take_told(self, reply: Any) -> str:
        """Take a reply; why there is no other, if so."""
        follower = self._follower
        if reply.get("code") == _TOO_MANY_EVENTS and self._asked_last is not None:
            follower.take_refusal(self._asked_last, 429, _now_ms())
            return ""
        if "code" in reply:
            return f"the door refuses: {reply!r:.200}"
        follower.take_push(reply, self._asked_last)
        return "" if reply["T"] == follower.known else "the door tells of another history"

    async def _tell_forever(self, socket: CalledWebSocket) -> None:
        """Say five times a second what there is to say, over the WebSocket if it is a sync."""
        try:
            while True:
                await trio.sleep(SYNC_S)
                request = self._follower.next_request()
                if request.ask is SyncPurpose.SYNC:
                    await socket.send(_message(request))
                    self._asked_last = request
                else:
                    await self._sync(request)
        except WebSocketFailed:
            return  # as the other task will notice

    async def _sync(self, request: SyncRequest, wait_s: float = 0.0) -> bool:
        follower = self._follower
        try:
            answer = await self._asked(request, wait_s + self._patience_s)
            if not answer.is_success:
                self.last_said = f"HTTP {answer.status} {answer.body[:200].decode(errors='replace')}"
                follower.take_refusal(request, answer.status, _now_ms())
                if answer.status >= _SERVER_ERROR:
                    self._doors.failed()
                return False
            follower.take_answer(request, _json_of(answer.body, answer.json))
        except (HttpFailed, AnswerRefused, ValueError) as error:
            self.last_said = str(error)
            follower.take_failure(_now_ms())
            self._doors.failed()
            return False
        return True

    async def _asked(self, request: SyncRequest, timeout_s: float) -> HttpAnswer:
        """The answer of the door that has the stream. Raises HttpFailed or ValueError: there is none."""
        for _ in range(1 + MAX_SENT_ON):
            url = self._doors.url_of(request.path)
            answer = await self._http.request(request.method, url, json=request.body, timeout_s=timeout_s)
            if answer.status != _ELSEWHERE:
                return answer
            self._doors.sent_on(answer.json())
        raise HttpFailed(f"the stream is always elsewhere; {self._doors.url_of(request.path)} would be next")

    async def run_frames(self, frame_s: float, on_frame: Callable[[int], object] | None) -> None:
        """Compute ticks as they are due, until the server is lost."""
        last_ms = _now_ms()
        while self._follower.connection is not Connection.LOST:
            now_ms = _now_ms()
            ran = self._follower.run(now_ms - last_ms)
            if ran:
                # What was left of the frame counts for the next tick, and no more than one tick of it.
                last_ms = min(now_ms, max(last_ms + TICK_MS, now_ms - TICK_MS))
            if on_frame is not None:
                on_frame(ran)
            await trio.sleep(frame_s)

    async def leave(self) -> None:
        """Say that the client leaves; the server finds out by itself otherwise."""
        request = self._follower.leave()
        try:
            await self._asked(request, PATIENCE_S)
        except (HttpFailed, ValueError) as error:
            self.last_said = str(error)


def _early_events(reply: Any) -> list[tuple[str, str, str]]:
    """Types, origins and bodies of what a door tells early; none if it tells something else.

    Raises TypeError, ValueError, KeyError: it is in no form that the protocol has.
    """
    rows = reply.get("Early", []) if isinstance(reply, dict) else []
    events = [(row["Type"], row["Origin"], row["Body"]) for row in rows]
    if not all(isinstance(text, str) for event in events for text in event):
        raise ValueError("the door tells early what is no event")
    return events


def _message(request: SyncRequest, *, early: bool = False) -> str:
    """The body as a message of a WebSocket: as short as that of an HTTP request, for both have the same bound."""
    body = {**(request.body or {}), "Early": True} if early else request.body
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _now_ms() -> float:
    return trio.current_time() * _MS


def _json_of(body: bytes, read: Callable[[], Any]) -> Any:
    """What is stored is answered with nothing."""
    return read() if body else None
