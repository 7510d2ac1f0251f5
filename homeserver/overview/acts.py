"""What operators have done here, and what was done through the dashboard: a list that outlives the process.

An act is a request of a REST route like any other, let in by the guards of that route. Requests of routes that take the
operator token are acts, and so is whatever comes from the dashboard, which says so in a header (`ACT_HEADER`). Each is
written down, with its answer, before the answer is sent; one that was not let in is none. A homeserver keeps its own
last `MAX_ACTS`. Of the body only those fields are kept that say what was done: no proof, key or state is.
"""

import logging
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import trio
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.app import App, Receive, Scope, Send, error_response
from batonpass.actors.http.callers import Caller, RouteCallers
from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.actors.http.tokens import ACCESS, Access
from batonpass.crypto import key_files
from batonpass.crypto.errors import KeyFileError

__all__ = ["ACT_HEADER", "MAX_ACTS", "ActsList", "ActsView", "RecordedAct", "RecordsActs", "said_untrusted"]

_log = logging.getLogger("batonpass.homeserver.acts")

ACT_HEADER: Final = b"baton-act"
"""What the dashboard sends with whatever changes something."""
MAX_ACTS: Final = 1000
_MAX_BODY_BYTES: Final = 16 * 1024
_MAX_CHARACTERS: Final = 200
_MAX_FILE_BYTES: Final = 16 * 1024 * 1024
# Fields that say what was done. All others may be long, or secret.
_SAID: Final = ("by", "to", "rule", "owner", "master", "on_leave", "heir", "allow", "reason", "name", "server", "mode")
_REFUSED: Final = (401, 403)


class RecordedAct(BaseModel):
    """A request that changed something, or should have."""

    at_s: float = Field(description="Unix seconds")
    right: str = Field(description="by which role of a token it was let in: operator, server or player")
    by: str = Field(default="", description="who has that token, as it says")
    dashboard: bool = Field(description="whether it came from the dashboard")
    method: str
    path: str
    said: dict[str, str | int | bool] = Field(description="what of its body says what was done, such as `to` or `rule`")
    status: int = Field(description="of the answer: from 400 on it was refused")


class ActsView(BaseModel):
    """The acts that this homeserver has seen, newest first."""

    acts: list[RecordedAct]
    dashboard_acts: bool = Field(description="whether the dashboard of this homeserver may change anything")


_ACTS: Final = TypeAdapter(list[RecordedAct])


class ActsList:
    """The last acts, oldest first, also on the disk if there is a `path`."""

    def __init__(self, path: Path | None, tell: Callable[[RecordedAct], None], clock: Clock) -> None:
        self._path: Final = path
        self._tell: Final = tell
        self._clock: Final = clock
        self._lock: Final = trio.Lock()
        self._acts: Final = deque(() if path is None else _read(path), maxlen=MAX_ACTS)

    def newest(self, limit: int) -> list[RecordedAct]:
        """The last ones, newest first."""
        return list(self._acts)[::-1][:limit]

    async def add(self, **act: Any) -> None:
        """Write an act down, with the time. One that cannot be written is told and kept in memory all the same."""
        one = RecordedAct(at_s=round(self._clock.unix_s(), 3), **act)
        self._acts.append(one)
        self._tell(one)
        if self._path is None:
            return
        async with self._lock:
            try:
                await trio.to_thread.run_sync(key_files.replace, self._path, _ACTS.dump_json(list(self._acts)))
            except (KeyFileError, OSError) as error:
                _log.warning("an act is not on the disk: %s", error)


def _read(path: Path) -> list[RecordedAct]:
    key_files.remove_drafts(path.parent, path.name)
    try:
        return _ACTS.validate_json(key_files.read_private(path, max_bytes=_MAX_FILE_BYTES))
    except FileNotFoundError:
        return []
    except (KeyFileError, ValidationError) as error:
        # Not overwritten by the next act: who looks for what was done finds it beside.
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        _log.warning("what was done here before cannot be read (%s): it is in %s", error, aside)
        return []


class RecordsActs:
    """ASGI middleware: acts are written down, and the dashboard changes nothing where it may only be read."""

    def __init__(self, app: App, acts: ActsList, callers: RouteCallers, *, dashboard_acts: bool) -> None:
        self._app: Final = app
        self._acts: Final = acts
        self._callers: Final = callers
        self._dashboard_acts: Final = dashboard_acts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        dashboard = any(name == ACT_HEADER for name, _ in scope["headers"])
        if dashboard and not self._dashboard_acts:
            text = "this homeserver lets its dashboard only look (dashboard_acts in its configuration)"
            await error_response(403, "dashboard_reads_only", text)(scope, receive, send)
            return
        body = bytearray()

        async def hears() -> Any:
            message = await receive()
            body.extend(message.get("body", b"")[: _MAX_BODY_BYTES + 1 - len(body)])
            return message

        async def sends(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] not in _REFUSED:
                caller = self._callers.get((scope["method"], getattr(scope.get("route"), "path_format", "")))
                access = scope.get(ACCESS)
                if caller is Caller.OPERATOR or (dashboard and caller is not None):
                    await self._acts.add(
                        right=access.role.value if isinstance(access, Access) else "",
                        by=access.subject if isinstance(access, Access) else "",
                        dashboard=dashboard,
                        method=scope["method"],
                        path=scope["path"][:_MAX_CHARACTERS],
                        said=said_untrusted(bytes(body)),
                        status=message["status"],
                    )
            await send(message)

        await self._app(scope, hears, sends)


def said_untrusted(body: bytes) -> dict[str, str | int | bool]:
    """What of the body of a request says what was done; nothing of one that is too long, or no JSON object."""
    if not body or len(body) > _MAX_BODY_BYTES:
        return {}
    try:
        read = read_json_untrusted(body)
    except ValueError:
        return {}
    found = read if isinstance(read, dict) else {}
    kept = {name: found[name] for name in _SAID if isinstance(found.get(name), str | int)}
    return {name: _shortened(value) if isinstance(value, str) else value for name, value in kept.items()}


def _shortened(text: str) -> str:
    """A line that can be shown and kept, whatever a stranger has put into it."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "?", text[:_MAX_CHARACTERS])
