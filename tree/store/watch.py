"""Watching: the events of the last commits, and watchers that are told of those they asked for.

A `History` is fed every commit and keeps a window of events, bounded by number and by bytes. A watcher names a pattern
and, to resume, the last revision it knows; it gets every later event that matches, in order, each commit whole. When
the window no longer holds what it asks for, the answer is `Compacted`: read the tree, and watch from the revision it
was read at (etcd's contract, https://etcd.io/docs/v3.5/learning/api/#watch-api).

Nothing here waits. A watcher that does not take its events is *cut* when too many are pending: the log never waits for
it, and it can watch again from the last revision it took. Watchers are found by the names that their pattern begins
with, so a commit does not pay for watchers of other parts of the tree. How many watch is each member's own affair, so
it is no reason to refuse a command: where many are to be told of much, they are told in slices, by `History.tell`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple

from batonpass.tree.data.errors import Compacted, WatcherCut
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path
from batonpass.tree.data.work_budget import MAX_STEPS, WorkBudget
from batonpass.tree.store.changes import Commit, Kind
from batonpass.tree.store.matching import ByPrefix, EventPattern
from batonpass.tree.store.pattern import Pattern
from batonpass.tree.store.store import Store

__all__ = ["Event", "History", "Watcher", "WatcherState"]

# What an event costs besides its payloads, about: for the bounds in bytes.
_EVENT_BYTES: Final = 200
# How much is told, in steps of `tree.data.work_budget`, before others have their turn.
TOLD_STEPS: Final = 25_000
# How often the window may wait to be told; then every watcher is cut.
_UNTOLD_WINDOWS: Final = 4


class Event(NamedTuple):
    """What happened to one node in one commit; `before` is None of a created node, `after` of a deleted one."""

    revision: int
    kind: Kind
    path: Path
    before: NodeView | None
    after: NodeView | None

    @property
    def data(self) -> Any:
        """The data after the event; None if there is none."""
        return None if self.after is None else self.after.data

    @property
    def previous(self) -> Any:
        """The data before the event; None if there was none."""
        return None if self.before is None else self.before.data

    @property
    def payload_version(self) -> int:
        """The payload's version after the event; of a deleted node, the last one."""
        return self._node().payload_version

    def size_bytes(self) -> int:
        """About what the event occupies in memory. On the path of every write."""
        before, after = self.before, self.after
        size = _EVENT_BYTES
        if before is not None and before[0] is not None:
            size += len(before[0])
        if after is not None and after[0] is not None:
            size += len(after[0])
        return size

    def matches(self, pattern: EventPattern) -> bool:
        """Whether the pattern means this event."""
        return pattern.matches(self.path, self._node())

    def to_data(self, *, previous: bool = False) -> dict[str, Any]:
        """As plain data: revision, kind, path, payload_version, `data` if there is some, `previous` if asked for."""
        data: dict[str, Any] = {
            "revision": self.revision,
            "kind": str(self.kind),
            "path": list(self.path),
            "payload_version": self.payload_version,
        }
        if self.after is not None and self.after.has_data:
            data["data"] = self.after.data
        elif self.after is not None and self.after.has_payload:
            data["procedure"] = self.after.procedure
        if previous and self.before is not None and self.before.has_data:
            data["previous"] = self.before.data
        return data

    def steps_of(self, pattern: EventPattern) -> int:
        """What `matches` takes, at most."""
        return pattern.steps_on(self.path, self._node().encoded)

    def _node(self) -> NodeView:
        node = self.before if self.after is None else self.after
        assert node is not None  # noqa: S101  # an event is about a node that was or is
        return node


class WatcherState(Enum):
    """Whether a watcher will be told more."""

    OPEN = "open"
    CUT = "cut"
    CLOSED = "closed"


class Watcher:
    """The events of one pattern that its watcher has not taken yet. Made by `History.watch`; close it when done.

    `on_events`, if set, is called (without waiting) when there is something to take or the state has changed.
    """

    def __init__(
        self, history: "History", pattern: EventPattern, since: int, max_pending_events: int, max_pending_bytes: int
    ) -> None:
        self._history: Final = history
        self.pattern: Final = pattern
        self._since = since
        self._begun_at: Final = history.revision  # what was committed until then is there, or not wanted
        self._pending: deque[Event] = deque()
        self._pending_bytes = 0
        # Events from the window at the start are there anyway; only what comes later counts as being slow.
        self._backlog_events = self._backlog_bytes = 0
        self._max_pending_events: Final = max_pending_events
        self._max_pending_bytes: Final = max_pending_bytes
        self.state = WatcherState.OPEN
        self._cut_because = ""
        self.on_events: Callable[[], None] | None = None

    @property
    def last_revision(self) -> int:
        """Every matching event up to this revision has been taken, or there was none: what to resume from."""
        if self.state is WatcherState.OPEN and not self._pending:
            return max(self._since, self._history.told_revision)
        return self._since

    @property
    def pending(self) -> int:
        """How many events wait to be taken."""
        return len(self._pending)

    @property
    def last_pending(self) -> int:
        """The revision of the newest event that waits; 0 if there is none."""
        return self._pending[-1].revision if self._pending else 0

    def take(self, max_events: int = 1024) -> list[Event]:
        """The next events, oldest first, without waiting; whole commits, so perhaps somewhat more than `max_events`.

        Empty when there are none yet, and after `close`. Raises `WatcherCut` when the watcher was cut; what was
        pending then is gone, and comes again after watching from `last_revision`.
        """
        if self.state is WatcherState.CUT:
            raise WatcherCut(self._since, self._cut_because)
        taken: list[Event] = []
        whole = self._history.told_revision
        while (
            self._pending
            and self._pending[0].revision <= whole
            and (len(taken) < max_events or self._pending[0].revision == taken[-1].revision)
        ):
            event = self._pending.popleft()
            self._pending_bytes -= event.size_bytes()
            taken.append(event)
        if taken:
            self._since = taken[-1].revision
            self._backlog_events = min(self._backlog_events, len(self._pending))
            self._backlog_bytes = min(self._backlog_bytes, self._pending_bytes)
        return taken

    def close(self) -> None:
        """Be told no more."""
        if self.state is WatcherState.OPEN:
            self._end(WatcherState.CLOSED, "")

    def cut(self, reason: str) -> None:
        """Be told no more, and say so to the taker; the history does this."""
        if self.state is WatcherState.OPEN:
            self._end(WatcherState.CUT, reason)

    def begin_with(self, events: Iterable[Event]) -> None:
        """Start with these events from the window; for the history."""
        for event in events:
            self._pending.append(event)
            self._pending_bytes += event.size_bytes()
        self._backlog_events, self._backlog_bytes = len(self._pending), self._pending_bytes

    def offer(self, event: Event) -> bool:
        """A new event that matches; whether it was taken in. For the history."""
        if self.state is not WatcherState.OPEN or event.revision <= max(self._since, self._begun_at):
            return False
        self._pending.append(event)
        self._pending_bytes += event.size_bytes()
        if (
            len(self._pending) > self._max_pending_events + self._backlog_events
            or self._pending_bytes > self._max_pending_bytes + self._backlog_bytes
        ):
            self.cut("it did not take its events in time")
            return False
        return True

    def _end(self, state: WatcherState, reason: str) -> None:
        self.state, self._cut_because = state, reason
        self._pending.clear()
        self._pending_bytes = 0
        self._history.forget(self)
        if self.on_events is not None:
            self.on_events()


class History:
    """The events of the last commits, and who watches.

    The window holds at most `max_events` events of at most `max_bytes` together (payloads and about 200 bytes each);
    the oldest go first.
    """

    def __init__(self, *, revision: int = 0, max_events: int = 16_384, max_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_events: Final = max_events
        self._max_bytes: Final = max_bytes
        self._events: deque[Event] = deque()
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._oldest = revision
        self.revision = revision
        self._untold = 0  # how many of the last events the watchers were not told of yet
        self._allowance = TOLD_STEPS
        # Told of events, and perhaps not of all of their commit.
        self._news: dict[Watcher, None] = {}
        # Called when there is more to tell than one turn allows: `tell` is to be called then. Without it, all is told
        # at once.
        self.on_untold: Callable[[], None] | None = None
        # Watchers by the names that their pattern begins with, in the order in which they came.
        self._watchers: Final[ByPrefix[Watcher]] = ByPrefix()

    @property
    def oldest(self) -> int:
        """The lowest revision that a watcher can resume from."""
        return self._oldest

    @property
    def watcher_count(self) -> int:
        """How many watchers there are."""
        return len(self._watchers)

    def attach(self, store: Store) -> None:
        """Be fed by this store from now on."""
        self.reset(store.revision)
        store.on_commit, store.on_restore = self.record, self.reset

    def record(self, commit: Commit) -> None:
        """Take in a commit: keep its events, and tell those who watch, or as many as there is time for."""
        revision = commit.revision
        for path, kind, before, after in commit.changes:
            if kind is not Kind.CHILDREN:
                event = Event(revision, kind, path, before, after)
                size = event.size_bytes()
                self._events.append(event)
                self._sizes.append(size)
                self._bytes += size
                self._untold += 1
        self.revision = revision
        self._tell()
        if self._untold and self.on_untold is not None:
            self.on_untold()

    def tell(self) -> bool:
        """Tell those who watch more of what they were not told yet, `TOLD_STEPS` of it; whether something is left."""
        self._allowance = TOLD_STEPS
        self._tell()
        return self._untold > 0

    @property
    def told_revision(self) -> int:
        """All watchers were told of all events up to here."""
        return self._events[len(self._events) - self._untold].revision - 1 if self._untold else self.revision

    def _tell(self) -> None:
        if not self._watchers:
            self._untold = 0
        if self._untold:
            for event in islice(self._events, len(self._events) - self._untold, None):
                if self._allowance <= 0 and self.on_untold is not None:
                    break
                for watcher in self._watchers.about(event.path):
                    self._allowance -= 1 + event.steps_of(watcher.pattern)
                    if event.matches(watcher.pattern) and watcher.offer(event):
                        self._news[watcher] = None
                self._untold -= 1
        if len(self._events) > self._max_events or self._bytes > self._max_bytes:
            self._trim()
        if self._news:
            self._spread_news()

    def _spread_news(self) -> None:
        told, whole = self._news, self.told_revision
        self._news = {watcher: None for watcher in told if watcher.last_pending > whole}
        for watcher in told:
            if watcher.on_events is not None and watcher.state is WatcherState.OPEN:
                watcher.on_events()

    def reset(self, revision: int) -> None:
        """The tree was replaced as a whole, by a snapshot: what happened in between is not known, all are cut."""
        self._events.clear()
        self._sizes.clear()
        self._bytes = self._untold = 0
        self._news.clear()
        self._oldest = self.revision = revision
        self.cut_all("the tree was replaced by a snapshot")

    def cut_all(self, reason: str) -> None:
        """Cut every watcher."""
        for watcher in list(self._watchers):
            watcher.cut(reason)

    def watch(
        self,
        pattern: Pattern,
        since_revision: int | None = None,
        *,
        max_pending_events: int = 4096,
        max_pending_bytes: int = 4 * 1024 * 1024,
    ) -> Watcher:
        """Watch for events after `since_revision` (default: from now on).

        A revision that is still to come is waited for. Raises `Compacted` when events after it are not kept any more,
        `BadPattern` (see `EventPattern` and its `check_parts`), `BadPath`, and `TooMuch` when it takes too long to find
        in what is kept what matches.
        """
        since = self.revision if since_revision is None else since_revision
        watched = EventPattern(pattern)
        watched.check_parts()
        if since < self._oldest:
            raise Compacted(since, self._oldest)
        watcher = Watcher(self, watched, since, max_pending_events, max_pending_bytes)
        if since < self.revision:
            effort = WorkBudget(MAX_STEPS)
            events = [event for event in self._events if event.revision > since]
            for event in events:
                effort.take(event.steps_of(watched))
            watcher.begin_with(event for event in events if event.matches(watched))
        self._watchers.add(watched.prefix, watcher)
        if self._untold:
            self._news[watcher] = None
        return watcher

    def forget(self, watcher: Watcher) -> None:
        """The watcher is cut or closed."""
        self._watchers.discard(watcher.pattern.prefix, watcher)

    def _trim(self) -> None:
        if self._untold > _UNTOLD_WINDOWS * self._max_events:
            self._untold = 0
            self.cut_all("there was more to tell than there was time for")
        while len(self._events) > self._untold and (
            len(self._events) > self._max_events or self._bytes > self._max_bytes
        ):
            self._bytes -= self._sizes.popleft()
            self._oldest = self._events.popleft().revision
