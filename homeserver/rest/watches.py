"""/v1/watch: the events of a pattern as server-sent events, resumable from any revision that is still kept.

Every event of a commit but the last comes without an `id`. A client that comes back with the last id it saw begins
after a whole commit, and never in the middle of one. A heartbeat carries the id too, so that a client of a quiet
pattern does not fall behind the history that is kept. It is sent only by a member that hears of the leader, or of a
majority: one that does not for two of them ends the stream, and another member knows more.
"""

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Final

import trio
from fastapi import Depends, Header, Query

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.routes import Routes
from batonpass.actors.http.streaming import EventStream, server_sent_event, stream_responses
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.access import viewer_access
from batonpass.homeserver.rest.errors import refusing
from batonpass.homeserver.rest.tree_inputs import MAX_PATTERN_CHARACTERS, pattern_untrusted
from batonpass.tree.data.errors import WatcherCut
from batonpass.tree.data.json_form import to_json
from batonpass.tree.data.work_budget import STEPS_PER_ROW, steps_of_data
from batonpass.tree.member.watching import Watch
from batonpass.tree.store.watch import Event

__all__ = ["MAX_WATCHERS", "WatchSeats", "event_block", "watch_routes"]

# Every one holds a connection, of which the server has 512; the others are for requests.
MAX_WATCHERS: Final = 128
# How many events may wait for a reader; their bytes are bounded by `tree.store.watch`.
MAX_PENDING_EVENTS: Final = 4096
_EVENTS_A_PIECE: Final = 64
# What is written out at a time, about, in steps of `tree.data.work_budget`: some 5 ms.
_STEPS_A_PIECE: Final = 4096

PatternText = Annotated[
    str, Query(max_length=MAX_PATTERN_CHARACTERS, description="which nodes, for example jobs/* or jobs/**")
]
Since = Annotated[
    int | None, Query(ge=0, lt=2**63, description="a revision: tell what came after it; without, what comes from now")
]
LastEventId = Annotated[int | None, Header(ge=0, lt=2**63, description="as `since`, which it overrides")]
Heartbeat = Annotated[float, Query(ge=1, le=60, description="seconds of silence before a comment is sent")]
Previous = Annotated[bool, Query(description="tell the data before the change too")]

_STREAM: Final = stream_responses(
    EventStream, "Events `created`, `updated` and `deleted`; at the end perhaps `compacted` or `cut`."
)


class WatchSeats:
    """How many watch. A place is taken before the answer begins and given back when it ends."""

    def __init__(self, count: int) -> None:
        self._free = count

    def take(self) -> None:
        """Take a place; raises `ApiError` when there is none."""
        if self._free == 0:
            text = f"{MAX_WATCHERS} watch here already: try another member"
            raise ApiError(503, "too_many_watchers", text, MAX_WATCHERS)
        self._free -= 1

    def give_back(self) -> None:
        """The client that took a place is gone."""
        self._free += 1


def watch_routes(node: HomeserverNode) -> Routes:
    """The one route."""
    routes = Routes(tags=["tree"], dependencies=[Depends(viewer_access(node.tokens))])
    seats = WatchSeats(MAX_WATCHERS)

    @routes.get("/v1/watch", responses=_STREAM, response_class=EventStream)
    async def watch(
        pattern: PatternText,
        since: Since = None,
        last_event_id: LastEventId = None,
        heartbeat_s: Heartbeat = 15.0,
        previous: Previous = False,
    ) -> EventStream:
        """What happens to nodes that match, as server-sent events, in order, until the client hangs up."""
        with refusing():
            wanted = pattern_untrusted(pattern)
            revision = since if last_event_id is None else last_event_id
            if revision is not None and revision > node.replica.store.revision:
                await _require_past(node, revision)
            seats.take()
            try:
                watching = node.replica.watch(wanted, revision, max_pending_events=MAX_PENDING_EVENTS)
            except BaseException:
                seats.give_back()
                raise

        def end() -> None:
            watching.close()
            seats.give_back()

        return EventStream(
            _pieces(node, watching, heartbeat_s, previous), on_end=end, headers={"cache-control": "no-store"}
        )

    return routes


async def _require_past(node: HomeserverNode, revision: int) -> None:
    """Raise `ApiError` unless the instance has come to this revision; this member may be behind, and catches up.

    A mistaken one, or one of a log that is no more, would be waited for in silence, however much happened meanwhile.
    """
    await node.store.fresh()
    present = node.replica.store.revision
    if revision > present:
        text = f"revision {revision} is still to come: the tree has {present}; read it, and watch from its revision"
        raise ApiError(409, "future_revision", text, present)


async def _pieces(node: HomeserverNode, watch: Watch, heartbeat_s: float, previous: bool) -> AsyncIterator[bytes]:
    """The text of the stream. It begins with an id, so that a client can resume that saw no event yet."""
    yield f": watching\nid: {watch.last_revision}\n\n".encode()
    was_led = True
    while True:
        events: list[Event] = []
        try:
            with trio.move_on_after(heartbeat_s):
                events = await watch.take(_EVENTS_A_PIECE)
        except WatcherCut as cut:
            yield _last_word(node, cut)
            return
        following = pairwise([*events, None])
        while piece := await node.in_turn(partial(_piece, following, previous)):
            yield piece
        if not events:
            is_led = node.replica.status.leader is not None
            if not is_led and not was_led:
                yield _last_word(node, WatcherCut(watch.last_revision, node.why_no_leader()))
                return
            if is_led:
                # It says that nothing happened, which only a member knows that hears of the others.
                yield f": heartbeat\nid: {watch.last_revision}\n\n".encode()
            was_led = is_led


def _piece(following: Iterator[tuple[Event | None, Event | None]], previous: bool) -> bytes:
    """The text of the next events, each with the one after it; empty after the last."""
    piece, left = bytearray(), _STEPS_A_PIECE
    for event, after in following:
        if event is None:
            break
        is_last = after is None or after.revision != event.revision
        piece += event_block(event, last=is_last, previous=previous)
        left -= STEPS_PER_ROW + sum(steps_of_data(view.encoded) for view in (event.before, event.after) if view)
        if left <= 0:
            break
    return bytes(piece)


def event_block(event: Event, *, last: bool, previous: bool) -> bytes:
    """One event as text; `last` of its commit, and so with an id."""
    after = event.after
    shown = {
        "revision": event.revision,
        "kind": str(event.kind),
        "path": list(event.path),
        "payload_version": event.payload_version,
        "has_data": after is not None and after.has_data,
        "data": to_json(event.data),
        "procedure": None if after is None else after.procedure,
    }
    if previous:
        shown["previous"] = to_json(event.previous)
    return _block(str(event.kind), shown, event.revision if last else None)


def _last_word(node: HomeserverNode, cut: WatcherCut) -> bytes:
    """Why the stream ends: `cut` if the client can resume, `compacted` if it has to read the tree again."""
    try:
        with refusing():
            node.replica.watch((), cut.last_revision).close()
    except ApiError as error:
        return _block("compacted", {"code": error.code, "message": error.message, **(error.details or {})}, None)
    return _block("cut", {"code": cut.code, "message": cut.message, "last_revision": cut.last_revision}, None)


def _block(kind: str, data: dict[str, Any], revision: int | None) -> bytes:
    return server_sent_event(json.dumps(data, ensure_ascii=False), kind=kind, event_id=revision)
