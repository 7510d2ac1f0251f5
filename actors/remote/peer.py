"""One other node, as this one sees it: the connection to it, and who waits for what on it. Sans-IO.

Local requests go in by `call`, `cast` and so on, messages of the link by `receive_untrusted`, news of the link by
`lost`, time by `on_timer`; out come `messages_to_send` and `effects`, to be done in that order. Callers, watchers and
what is being served are opaque here.

**A connection** has a number at each end, drawn by that end, and every message carries the receiver's. So what was sent
on an earlier connection, whatever delayed it, is known by a number that is no connection's any more, and dropped:

=============  =============================  =====================================================================
state          on                             then
=============  =============================  =====================================================================
DOWN           a local request                draw a number, send Open: OPENING
DOWN           Open                           draw a number, send Open as the answer: UP
OPENING        Open for our number, or none   UP (none: both opened at once; answer), and what waited leaves
OPENING        `connect_timeout_s`, `lost`    Close, all are told: DOWN
UP             Open with another number       the peer has begun anew: all are told, then as DOWN
UP             Close of its number, `lost`    all are told: DOWN
any            a number that is not ours      dropped; Close, so that the peer learns that it is gone
=============  =============================  =====================================================================

"All are told" means: each call that waits fails, each monitor fires, once; and what was being done for the peer
is let go. There is no half-lost connection: if anything was lost between two `Open`s, the connection is.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import cbor2

from batonpass.actors.remote.errors import Undecodable
from batonpass.actors.remote.frames import (
    VERSION,
    CallFrame,
    CancelFrame,
    Cast,
    CloseFrame,
    Demonitor,
    EndedFrame,
    Fail,
    Frame,
    KillFrame,
    LinkBroke,
    LinkIt,
    MonitorIt,
    Open,
    ReplyFrame,
    RequestFault,
    Send,
    Signal,
    StopIt,
    Unlink,
    Whereis,
    read_message_untrusted,
    write_frame,
    write_message,
)
from batonpass.actors.remote.settings import BATCH_BYTES, DistributionSettings
from batonpass.crypto.bounded_tables import LruTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from batonpass.actors.remote.frames import Target

NEVER: Final = float("inf")
_NOBODY: Final = object()
_LIMIT_PAYLOAD: Final = cbor2.dumps("system_limit")
"""The reason of an `EndedFrame` for a monitor beyond the bound, by Erlang's name."""
_MAX_BATCH_FRAMES: Final = 4096
_FORGOTTEN_NUMBERS: Final = 8
_FORGOTTEN_AGAIN_S: Final = 1.0
"""Of numbers that the peer still writes to, remembered so that it is told once a second and not once per message."""


class PeerState(Enum):
    """See the table at the head of the module."""

    DOWN = "down"
    OPENING = "opening"
    UP = "up"


class RequestAnswered(NamedTuple):
    """The request of `caller` was answered."""

    caller: Any
    payload: bytes


class Failed(NamedTuple):
    """The request of `caller` failed; `fault` None: the connection is lost."""

    caller: Any
    fault: RequestFault | None
    payload: bytes


class WatchedDown(NamedTuple):
    """What `watcher` watches has ended; `payload` None: the connection is lost."""

    watcher: Any
    payload: bytes | None


class Broke(NamedTuple):
    """One end of `tie` is gone; `payload` is the reason of the peer's end, None: the connection is lost."""

    tie: Any
    payload: bytes | None


class Untied(NamedTuple):
    """The peer has taken the link back."""

    tie: Any


class Let(NamedTuple):
    """Let go of what was being done for the peer: `served` is what `serve` was given."""

    served: Any


class Arrived(NamedTuple):
    """Do what the peer asks."""

    frame: Frame


class WentUp(NamedTuple):
    """The connection is open."""


class WentDown(NamedTuple):
    """The connection is lost, or could not be opened."""

    why: str


Effect = RequestAnswered | Failed | WatchedDown | Broke | Untied | Let | Arrived | WentUp | WentDown


@final
class RemotePeer:
    """See the head of the module. `new_number` draws connection numbers, 1 to 2**64 - 1, each once."""

    def __init__(self, name: str, creation: int, new_number: Callable[[], int], settings: DistributionSettings) -> None:
        self.name: Final = name
        self.state = PeerState.DOWN
        self.creation: int | None = None
        """Which life of the peer's node the connection is with; None unless it is up."""
        self._our_creation = creation
        self._new_number = new_number
        self._settings = settings
        self._ours = 0
        self._theirs = 0
        self._forgotten_s: LruTable[int, float] = LruTable(_FORGOTTEN_NUMBERS)
        self._last_id = 0
        self._deadline_s = NEVER
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._messages: list[bytes] = []
        self._frames: list[bytes] = []
        self._frames_bytes = 0
        self._effects: deque[Effect] = deque()
        # What waits for the peer, and what the peer waits for, by the id of the side that asked.
        self._asked: dict[int, Any] = {}
        self._watching: dict[int, Any] = {}
        self._serving: dict[int, Any] = {}
        self._watched: dict[int, Any] = {}
        # By id, and whether this side has opened them.
        self._ties: dict[tuple[int, bool], Any] = {}
        self.dropped = 0
        self.violations = 0

    # What is there

    @property
    def is_idle(self) -> bool:
        """Down, and holding nothing: the object may be forgotten."""
        return self.state is PeerState.DOWN and not (self._messages or self._effects)

    @property
    def tables(self) -> tuple[int, int, int, int, int]:
        """How many calls and monitors wait for the peer, how many of the peer's are served here, and the links."""
        return len(self._asked), len(self._watching), len(self._serving), len(self._watched), len(self._ties)

    @property
    def has_messages(self) -> bool:
        """Whether `messages_to_send` has any."""
        return bool(self._messages or self._frames)

    @property
    def has_effects(self) -> bool:
        """Whether `effects` has any."""
        return bool(self._effects)

    @property
    def has_full_batch(self) -> bool:
        """Whether so much is ready that it should leave before more is added."""
        return bool(self._messages)

    # Local requests. Each opens a connection if there is none.

    def admits(self, size_bytes: int) -> bool:
        """Whether a request with a payload of this size can be taken: whether there is room to wait for `UP`."""
        return self.state is PeerState.UP or (
            self._waiting_bytes + size_bytes <= self._settings.max_waiting_bytes
            and len(self._waiting) < self._settings.max_waiting_frames
        )

    def call(self, target: Target, payload: bytes, caller: Any, now: float) -> int | None:
        """Ask; `RequestAnswered` or `Failed` with `caller` follows, once. The id for `cancel`; None: too many wait
        already."""
        return self._ask(caller, now, lambda id_: CallFrame(target, id_, payload))

    def stop(self, target: Target, payload: bytes, caller: Any, now: float) -> int | None:
        """Ask to end; as `call`."""
        return self._ask(caller, now, lambda id_: StopIt(target, id_, payload))

    def whereis(self, name: str, caller: Any, now: float) -> int | None:
        """Ask who has the name; as `call`."""
        return self._ask(caller, now, lambda id_: Whereis(name, id_))

    def _ask(self, caller: Any, now: float, frame: Callable[[int], Frame]) -> int | None:
        if len(self._asked) >= self._settings.max_calls_out:
            return None
        id_ = self._next_id()
        self._asked[id_] = caller
        self._emit(write_frame(frame(id_)), now)
        return id_

    def cancel(self, id_: int, now: float) -> None:
        """No caller waits for this answer any more. Harmless when it is there already."""
        if self._asked.pop(id_, None) is not None:
            self._emit(write_frame(CancelFrame(id_)), now)

    def cast(self, target: Target, payload: bytes, now: float) -> None:
        """Tell `handle_cast`."""
        self._emit(write_frame(Cast(target, payload)), now)

    def send(self, target: Target, payload: bytes, now: float) -> None:
        """Tell `handle_info`."""
        self._emit(write_frame(Send(target, payload)), now)

    def signal(self, target: Target, payload: bytes, now: float) -> None:
        """Send an exit signal."""
        self._emit(write_frame(Signal(target, payload)), now)

    def kill(self, target: Target, now: float) -> None:
        """Kill."""
        self._emit(write_frame(KillFrame(target)), now)

    def emit(self, frame: Frame, now: float) -> None:
        """Say something for which nothing is remembered."""
        self._emit(write_frame(frame), now)

    def watch(self, target: Target, watcher: Any, now: float) -> int | None:
        """`WatchedDown` with `watcher` follows, once, unless `unwatch` comes first. None: too many are watched
        already."""
        if len(self._watching) >= self._settings.max_monitors:
            return None
        id_ = self._next_id()
        self._watching[id_] = watcher
        self._emit(write_frame(MonitorIt(target, id_)), now)
        return id_

    def unwatch(self, id_: int, now: float) -> None:
        """Take back `watch`. Harmless when it is too late."""
        if self._watching.pop(id_, None) is not None:
            self._emit(write_frame(Demonitor(id_)), now)

    def link(self, target: Target, tie: Any, payload: bytes, now: float) -> tuple[int, bool] | None:
        """Link; `Broke` or `Untied` with `tie` follows, once, unless `untie` or `broke` comes first. None: too many."""
        if len(self._ties) >= self._settings.max_monitors:
            return None
        key = (self._next_id(), True)
        self._ties[key] = tie
        self._emit(write_frame(LinkIt(target, key[0], payload)), now)
        return key

    def accept_link(self, id_: int, tie: Any) -> tuple[int, bool]:
        """The peer's `LinkIt` is agreed to."""
        if (id_, False) in self._ties:
            self._ties[id_, False] = tie
        return id_, False

    def untie(self, key: tuple[int, bool], tie: Any, now: float) -> None:
        """Take back a link. Harmless when it is too late."""
        if self._ties.get(key, _NOBODY) is tie:
            del self._ties[key]
            self._emit(write_frame(Unlink(key[0], int(key[1]))), now)

    def broke(self, key: tuple[int, bool], tie: Any, payload: bytes, now: float) -> None:
        """This side of the link has ended. Harmless when it is too late. `tie` is None before `accept_link`."""
        if self._ties.get(key, _NOBODY) is tie:
            del self._ties[key]
            self._emit(write_frame(LinkBroke(key[0], int(key[1]), payload)), now)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # What is done for the peer

    def serve(self, id_: int, served: Any) -> None:
        """From here on `served` is what answers the request, and is let go of if the peer does not want it any more."""
        if id_ in self._serving:
            self._serving[id_] = served

    def reply(self, id_: int, served: Any, payload: bytes, now: float) -> None:
        """Answer the request that `served` serves. Vanishes when the peer does not wait any more.

        Ids begin anew with each life of the peer; `served`, compared by identity, cannot answer a later request.
        """
        if self._serving.get(id_, _NOBODY) is served:
            del self._serving[id_]
            self._emit(write_frame(ReplyFrame(id_, payload)), now)

    def fail(self, id_: int, served: Any, fault: RequestFault, payload: bytes, now: float) -> None:
        """Refuse the request; as `reply`. `served` is None before `serve`."""
        if self._serving.get(id_, _NOBODY) is served:
            del self._serving[id_]
            self._emit(write_frame(Fail(id_, fault, payload)), now)

    def serve_watch(self, id_: int, served: Any) -> None:
        """As `serve`, for what the peer monitors."""
        if id_ in self._watched:
            self._watched[id_] = served

    def ended(self, id_: int, served: Any, payload: bytes, now: float) -> None:
        """Tell the peer that what it monitors has ended; as `reply`."""
        if self._watched.get(id_, _NOBODY) is served:
            del self._watched[id_]
            self._emit(write_frame(EndedFrame(id_, payload)), now)

    # Out

    def _emit(self, frame: bytes, now: float) -> None:
        if self.state is PeerState.UP:
            self._frames.append(frame)
            self._frames_bytes += len(frame)
            if self._frames_bytes >= BATCH_BYTES or len(self._frames) >= _MAX_BATCH_FRAMES:
                self._close_batch()
            return
        if self.state is PeerState.DOWN:
            self._begin(now)
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)

    def _close_batch(self) -> None:
        if self._frames:
            self._messages.append(write_message(self._theirs, self._frames))
            self._frames = []
            self._frames_bytes = 0

    def messages_to_send(self, now: float) -> list[bytes]:
        """Everything that should leave, in order, on one channel of the link."""
        self._close_batch()
        messages, self._messages = self._messages, []
        if messages and self.state is PeerState.UP:
            self._deadline_s = now + self._settings.tick_s
        return messages

    def effects(self) -> Iterator[Effect]:
        """What is to be done now, in order."""
        while self._effects:
            yield self._effects.popleft()

    # Time

    def next_timer(self) -> float:
        """When to call `on_timer`."""
        return self._deadline_s

    def on_timer(self, now: float) -> None:
        """Give up opening, or show that we are there."""
        if now < self._deadline_s:
            return
        if self.state is PeerState.OPENING:
            self.lost("it did not answer in time", now)
        elif self.state is PeerState.UP:
            self._messages.append(write_message(self._theirs, ()))
            self._deadline_s = now + self._settings.tick_s

    # The connection

    def _begin(self, now: float) -> None:
        self.state = PeerState.OPENING
        self._ours = self._new_number()
        self._deadline_s = now + self._settings.connect_timeout_s
        self._say_open(0)

    def _say_open(self, to: int) -> None:
        self._messages.append(write_message(to, [write_frame(Open(VERSION, self._ours, self._our_creation))]))

    def _say_close(self, number: int) -> None:
        self._messages.append(write_message(0, [write_frame(CloseFrame(number))]))

    def _go_up(self, open_: Open, now: float) -> None:
        self.state = PeerState.UP
        self._theirs = open_.number
        self.creation = open_.creation
        self._deadline_s = now + self._settings.tick_s
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._effects.append(WentUp())
        for frame in waiting:
            self._emit(frame, now)

    def lost(self, why: str, now: float) -> None:
        """The link has lost the peer, or may have lost something. All are told; the peer too, if it hears it."""
        if self.state is not PeerState.DOWN:
            ours = self._ours
            self._go_down(why)
            self._say_close(ours)

    def _go_down(self, why: str) -> None:
        self.state = PeerState.DOWN
        self.creation = None
        self._ours = self._theirs = 0
        self._deadline_s = NEVER
        self.dropped += len(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._frames, self._frames_bytes = [], 0
        asked, self._asked = self._asked, {}
        watching, self._watching = self._watching, {}
        serving, self._serving = self._serving, {}
        watched, self._watched = self._watched, {}
        ties, self._ties = self._ties, {}
        self._effects.append(WentDown(why))
        self._effects.extend(Failed(caller, None, b"") for caller in asked.values())
        self._effects.extend(WatchedDown(watcher, None) for watcher in watching.values())
        self._effects.extend(Broke(tie, None) for tie in ties.values() if tie is not None)
        self._effects.extend(Let(served) for served in (*serving.values(), *watched.values()) if served is not None)

    # In

    def receive_untrusted(self, message: bytes, now: float) -> None:
        """Take one message of the link. Never raises: what breaks the protocol ends the connection, and is counted."""
        try:
            to, frames = read_message_untrusted(message)
        except Undecodable as error:
            self._violated(str(error), now)
            return
        if frames and isinstance(frames[0], Open | CloseFrame):
            self._on_control(to, frames, now)
        elif to != self._ours or not to or self.state is not PeerState.UP:
            self._on_stale(to, now)
        else:
            for frame in frames:
                # Each may end the connection.
                if to == self._ours:
                    self._on_frame(frame, now)

    def _violated(self, what: str, now: float) -> None:
        self.violations += 1
        self.lost(f"it broke the protocol: {what}", now)

    def _on_stale(self, to: int, now: float) -> None:
        if not to or now < self._forgotten_s.get(to, -NEVER) + _FORGOTTEN_AGAIN_S:
            return
        self._forgotten_s[to] = now
        self._say_close(to)

    def _on_control(self, to: int, frames: list[Frame], now: float) -> None:
        frame = frames[0]
        if len(frames) != 1:
            self._violated("frames beside an Open or Close", now)
        elif isinstance(frame, CloseFrame):
            if self._theirs and frame.number == self._theirs:
                self._go_down("it ended the connection")
        elif isinstance(frame, Open):
            if frame.version != VERSION or not frame.number or not frame.creation:
                self._violated(f"version {frame.version}", now)
            else:
                self._on_open(to, frame, now)

    def _on_open(self, to: int, open_: Open, now: float) -> None:
        if to and to != self._ours:
            # The answer to an attempt that was given up.
            self._on_stale(to, now)
            return
        if self.state is PeerState.UP:
            if open_.number == self._theirs:
                return
            self._go_down("it began a new connection")
        if self.state is PeerState.DOWN:
            if to:
                self._say_close(to)
                return
            self._ours = self._new_number()
        if not to:
            self._say_open(open_.number)
        self._go_up(open_, now)

    def _on_frame(self, frame: Frame, now: float) -> None:
        match frame:
            case ReplyFrame(id_, payload):
                self._complete(id_, None, payload)
            case Fail(id_, fault, payload):
                self._complete(id_, fault, payload)
            case CallFrame(_, id_, _) | StopIt(_, id_, _) | Whereis(_, id_):
                self._on_request(frame, id_, self._serving, self._settings.max_calls_in, now)
            case MonitorIt(_, id_):
                self._on_request(frame, id_, self._watched, self._settings.max_monitors, now)
            case LinkIt(_, id_, _):
                self._on_request(frame, (id_, False), self._ties, self._settings.max_monitors, now)
            case CancelFrame() | Demonitor() | EndedFrame() | LinkBroke() | Unlink():
                self._on_end(frame)
            case Open() | CloseFrame():
                self._violated("an Open or Close among other frames", now)
            case _:
                self._effects.append(Arrived(frame))

    def _on_end(self, frame: CancelFrame | Demonitor | EndedFrame | LinkBroke | Unlink) -> None:
        """Something that was going on is over. If it is not known, both sides have ended it at the same time."""
        match frame:
            case CancelFrame(id_):
                self._conclude(self._serving.pop(id_, None), Let)
            case Demonitor(id_):
                self._conclude(self._watched.pop(id_, None), Let)
            case EndedFrame(id_, payload):
                self._conclude(self._watching.pop(id_, None), lambda watcher: WatchedDown(watcher, payload))
            case LinkBroke(id_, opener, payload):
                self._conclude(self._ties.pop((id_, not opener), None), lambda tie: Broke(tie, payload))
            case Unlink(id_, opener):
                self._conclude(self._ties.pop((id_, not opener), None), Untied)

    def _conclude(self, who: Any, effect: Callable[[Any], Effect]) -> None:
        if who is not None:
            self._effects.append(effect(who))

    def _complete(self, id_: int, fault: RequestFault | None, payload: bytes) -> None:
        caller = self._asked.pop(id_, None)
        # None: the answer crossed the news that no caller waits for it; it vanishes.
        if caller is not None:
            self._effects.append(RequestAnswered(caller, payload) if fault is None else Failed(caller, fault, payload))

    def _on_request(self, frame: _Lasting, key: Any, table: dict[Any, Any], limit: int, now: float) -> None:
        """Something that stays until it is concluded: entered, refused, or a violation if it is there already."""
        if key in table:
            self._violated(f"request {key} twice", now)
        elif len(table) >= limit:
            self._emit(write_frame(_refusal_of(frame, limit)), now)
        else:
            table[key] = None
            self._effects.append(Arrived(frame))


_Lasting = CallFrame | StopIt | Whereis | MonitorIt | LinkIt


def _refusal_of(frame: _Lasting, limit: int) -> Frame:
    match frame:
        case MonitorIt(_, id_):
            return EndedFrame(id_, _LIMIT_PAYLOAD)
        case LinkIt(_, id_, _):
            return LinkBroke(id_, 0, _LIMIT_PAYLOAD)
        case CallFrame(_, id_, _) | StopIt(_, id_, _) | Whereis(_, id_):
            return Fail(id_, RequestFault.FULL, cbor2.dumps(limit))
