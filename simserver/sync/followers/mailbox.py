"""Between the thread of an engine and the loop of its node: events one way, acts the other, both within bounds.

The node never waits for its engine: of what an engine is too slow to take, the oldest goes, by kind, and is counted.
The engine waits for events only. Nothing that decides how a show ends or looks is lost. Of QUIT and of the list of
streams the last one is kept. A RESET passes to the next frame. Frames that go are reported as dropped.
"""

import queue
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from batonpass.simserver.sync.followers.drops import ToldFrames
from batonpass.simserver.sync.followers.ports import (
    CamerasReceived,
    EngineAct,
    EngineDropped,
    EngineEvent,
    FrameBegins,
    FrameReady,
    FramesGone,
    InteractionReceived,
    QuitTold,
    StreamsChanged,
)
from batonpass.simserver.sync.followers.structs import FrameDataFlag, RenderStreamError, RsError

__all__ = ["MAX_ACTS", "EngineMailbox"]

MAX_ACTS: Final = 1_024
"""That a node has not taken. An engine has one state and one hash a frame; only interaction data can be more."""

MAX_WAITING: Final[dict[type, int]] = {
    FrameBegins: 64,
    FrameReady: 2,
    FramesGone: 1,
    CamerasReceived: 64,
    InteractionReceived: 1_024,
    StreamsChanged: 1,
    QuitTold: 1,
}
"""Events that an engine has not taken, by kind. An engine wants the newest frame: older data are worth nothing."""


class _Events(queue.Queue[EngineEvent]):
    """A queue that makes room instead of waiting; what goes is told to `gone`."""

    def __init__(self, gone: Callable[[EngineEvent], None]) -> None:
        super().__init__()
        self._gone = gone
        self._waiting: Counter[type] = Counter()

    def _init(self, maxsize: int) -> None:
        self._events: deque[EngineEvent] = deque()

    def _qsize(self) -> int:
        return len(self._events)

    def _put(self, item: Any) -> None:
        self._events.append(item)
        kind = type(item)
        self._waiting[kind] += 1
        if self._waiting[kind] > MAX_WAITING[kind]:
            self._drop_oldest(kind)

    def _get(self) -> EngineEvent:
        event = self._events.popleft()
        self._waiting[type(event)] -= 1
        return event

    def _drop_oldest(self, kind: type) -> None:
        at, *later = (index for index, event in enumerate(self._events) if type(event) is kind)
        oldest = self._events[at]
        if isinstance(oldest, FrameBegins) and oldest.data.flags & FrameDataFlag.RESET:
            following: Any = self._events[later[0]]
            data = replace(following.data, flags=following.data.flags | FrameDataFlag.RESET)
            self._events[later[0]] = replace(following, data=data)
        del self._events[at]
        self._waiting[kind] -= 1
        self._gone(oldest)


class EngineMailbox:
    """A bounded `EnginePort`. `put` and `take_acts` are for the node's loop, the methods of the port for the engine.

    Args:
        thread: a number of the thread that calls it, as `threading.get_ident`.
        now_ns: the monotonic time.
        wake: is called in the engine's thread after each act, to make the node's loop take it.

    Attributes:
        dropped: events that went unseen by the engine, by the name of their kind.
        busy_since_ns: when the engine asked for an event, or acted, last; None while it waits for one, and
            before it starts.
    """

    def __init__(self, thread: Callable[[], int], now_ns: Callable[[], int], wake: Callable[[], None]) -> None:
        self.dropped: Final[Counter[str]] = Counter()
        self.busy_since_ns: int | None = None
        self._thread: Final = thread
        self._now_ns: Final = now_ns
        self._wake: Final = wake
        self._events: Final = _Events(self._gone)
        self._acts: Final[queue.Queue[EngineAct]] = queue.Queue(MAX_ACTS)
        self._unseen = ToldFrames()

    def engine_starts(self) -> None:
        """The engine begins at this moment: until it asks for an event it is busy."""
        self.busy_since_ns = self._now_ns()

    def put(self, event: EngineEvent) -> None:
        """Hand an event to the engine; never waits. For the node's loop."""
        self._events.put_nowait(event)

    def take_acts(self) -> list[EngineAct]:
        """Return the acts of the engine since the last call, in order. For the node's loop."""
        unseen, self._unseen = self._unseen, ToldFrames()
        acts: list[EngineAct] = [EngineDropped(first, last) for first, last in unseen]
        with suppress(queue.Empty):
            while True:
                acts.append(self._acts.get_nowait())
        return acts

    def next_event(self, timeout_s: float) -> EngineEvent | None:
        """Wait for the next event, as `EnginePort`."""
        self.busy_since_ns = None
        try:
            return self._events.get(timeout=timeout_s) if timeout_s > 0 else self._events.get_nowait()
        except queue.Empty:
            return None
        finally:
            self.busy_since_ns = self._now_ns()

    def submit(self, act: EngineAct) -> None:
        """Hand an act to the node, as `EnginePort`."""
        self.busy_since_ns = self._now_ns()
        try:
            self._acts.put_nowait(act)
        except queue.Full:
            raise RenderStreamError(
                RsError.BUFFER_OVERFLOW, f"the node has not taken the last {MAX_ACTS} acts; wait for the next frame"
            ) from None
        self._wake()

    def now_ns(self) -> int:
        """Return the monotonic time."""
        return self._now_ns()

    def thread(self) -> int:
        """Return a number of the thread that calls."""
        return self._thread()

    def _gone(self, event: EngineEvent) -> None:
        self.dropped[type(event).__name__] += 1
        if isinstance(event, FrameBegins | FrameReady):
            # Without its data an engine cannot show a frame either.
            self._unseen.add(event.frame, event.frame)
