"""A request that came over the door, answered by the same application as one over HTTP (ASGI 3).

It says who asks by `PlayerAtDoor` in its scope, in place of the client token and of signatures.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, NamedTuple

import h11
import trio

from batonpass.actors.http.app import error_response
from batonpass.actors.http.request_scope import scope_of
from batonpass.authority.model.enrolment import DoorGrant
from batonpass.authority.wire.home_door import HomeAnswer, HomeAsk
from batonpass.homeserver.rest.access import AT_DOOR, PlayerAtDoor
from batonpass.homeserver.rest.allowed import NOT_ALLOWED, right_for

__all__ = ["MAX_ANSWER_BYTES", "Asker", "answered", "refused_answer"]

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024

_Message = MutableMapping[str, Any]
_App = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]]


class Asker(NamedTuple):
    """Who asks: a player, empty for an observer; what it may do; and from which address."""

    player: str
    grant: DoorGrant
    place: str


async def answered(app: _App, asker: Asker, ask: HomeAsk) -> HomeAnswer:
    """What the application answers to a request, or why it does not get there."""
    request = h11.Request(
        method=ask.method,
        target=ask.target,
        headers=[("host", "localhost"), ("content-type", "application/json"), ("content-length", str(len(ask.body)))],
    )
    scope = scope_of(request, asker.place)
    right = right_for(ask.method, scope["path"])
    if right == NOT_ALLOWED:
        return refused_answer(ask, 404, "unknown_route", f"{ask.method} {scope['path']} is no request of a player")
    if right is not None and not (asker.player and right in asker.grant.rights):
        text = f"{asker.player or 'an observer'} does not have the right to {right}"
        return refused_answer(ask, 403, "not_permitted", text)
    if asker.player:
        scope[AT_DOOR] = PlayerAtDoor(asker.player, asker.grant)
    return await _run(app, scope, ask)


async def _run(app: _App, scope: _Message, ask: HomeAsk) -> HomeAnswer:
    is_asked = False
    status, pieces, size = 500, list[bytes](), 0

    async def receive() -> _Message:
        nonlocal is_asked
        if is_asked:
            await trio.sleep_forever()
        is_asked = True
        return {"type": "http.request", "body": ask.body, "more_body": False}

    async def send(message: _Message) -> None:
        nonlocal status, size
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            body = message.get("body", b"")
            size += len(body)
            if size <= MAX_ANSWER_BYTES:
                pieces.append(body)

    await app(scope, receive, send)
    if size > MAX_ANSWER_BYTES:
        return refused_answer(
            ask, 413, "answer_too_long", f"the answer has {size} bytes, and at most {MAX_ANSWER_BYTES}"
        )
    return HomeAnswer(id=ask.id, status=status, body=b"".join(pieces))


def refused_answer(
    ask: HomeAsk, status: int, code: str, message: str, *, retry_after_s: float | None = None
) -> HomeAnswer:
    """An error as REST answers it."""
    answer = error_response(status, code, message, ask.target, retry_after_s=retry_after_s)
    return HomeAnswer(id=ask.id, status=status, body=bytes(answer.body))
