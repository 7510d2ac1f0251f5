"""The commit feed: everything that changes an entity of this server is told here, once, to all that subscribe.

There are two ways to hear of it. A *listener* is called at once with the name of the entity that has changed, and reads
in the entity table what there is of it. The feed keeps nothing for it. A *follower* is given every change as a value,
in order, in batches. It gets `Committed` for a tick, with the states before and after it, and `Changed` for everything
else. docs/reference/commit-feed.md has a subscriber to copy.

Order: of one entity `(fence, tick)` never decreases, and it is higher with every `Committed`. It need not be the next
one: ticks that were slept through count, and nothing is told of them. A batch holds what happened in one round of the
server's ticks. A change outside of a round (an entity arrives, its late tick) is a batch of its own.

Every change that is told has happened on this server under its lease. It is not durable yet: after a failure the entity
may resume from an earlier tick elsewhere, under a higher fence. A change under a lower fence than the last one is of
the past then.

A follower that does not take its batches in time loses them, and is told how many changes it has missed. The server
never waits for it. A subscriber that fails is dropped, and nothing else is.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from batonpass.authority.fence import Fence
from batonpass.simserver.world.pending_input import PendingInput

__all__ = [
    "MAX_QUEUED",
    "Changed",
    "CommitFeed",
    "Committed",
    "EntityChange",
    "Event",
    "FeedBatch",
    "FeedFollower",
    "FeedSubscription",
]

_log = logging.getLogger("batonpass.simserver.entity.feed")

# Changes that wait for one follower. Each holds the states before and after it, so this bounds the old states in
# memory. Of 1,000 entities, those of the last 16 ticks (0.8 s) stay.
MAX_QUEUED: Final = 16_384


class EntityChange(StrEnum):
    """What may happen to an entity on this server."""

    BEGUN = "begun"
    """It is simulated here under a new fence: spawned, arrived, taken over, restarted, or resumed after a freeze."""
    STEPPED = "stepped"
    """A tick was committed."""
    ALTERED = "altered"
    """What stands beside its state has changed without a tick: its owner, or the inputs that wait while it has none."""
    QUARANTINED = "quarantined"
    """It is not simulated any more, because its world or this server failed on it."""
    RELEASED = "released"
    """It is simulated again after that."""
    ENDED = "ended"
    """It is not here any more: it left, was deleted or given up. The entity table says where it went, if it left."""


class Committed(NamedTuple):
    """One tick of an entity.

    `before` and `after` are the world's states, by reference: they must not be changed. They are the same object if the
    world gave back what it was given. `before` is in an earlier form of the world if this is the first tick after an
    upgrade. It is None of an entity of a batch world, of which it is not kept. `inputs` are those that were applied, in
    their order.
    """

    entity: str
    fence: Fence
    tick: int
    before: Any
    after: Any
    inputs: Sequence[PendingInput]


class Changed(NamedTuple):
    """Anything else that has happened to an entity; never `EntityChange.STEPPED`."""

    entity: str
    fence: Fence
    tick: int
    change: EntityChange


Event = Committed | Changed


class FeedBatch(NamedTuple):
    """What has happened in one round, in order.

    `missed` is how many changes before these are lost to this follower. If it is not 0 there are no events, and the
    follower has to read the entity table again.
    """

    round: int
    events: tuple[Event, ...]
    missed: int = 0


class FeedSubscription:
    """What ends a subscription; as a context manager it ends with the block."""

    def __init__(self, feed: "CommitFeed", name: str) -> None:
        self._feed: Final = feed
        self.name: Final = name
        self.error: Exception | None = None
        """What the subscriber raised when it was dropped for that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hear nothing any more; does nothing the second time."""
        self._feed.drop(self)


class FeedFollower(FeedSubscription):
    """The batches that wait for one subscriber: at most `bound` changes, and none that it has missed in between."""

    def __init__(self, feed: "CommitFeed", name: str, bound: int, wake: Callable[[], None]) -> None:
        super().__init__(feed, name)
        self._bound: Final = bound
        self._wake: Final = wake
        self._batches: deque[FeedBatch] = deque()
        self._queued = 0
        self._missed = 0

    def take(self) -> FeedBatch | None:
        """The next batch; None if there is none yet."""
        if self._missed:
            missed, self._missed = self._missed, 0
            return FeedBatch(self._feed.round, (), missed)
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._queued -= len(batch.events)
        return batch

    def put(self, batch: FeedBatch) -> None:
        """Called by the feed. If there is no room, all that waits is lost: to read the table makes up for all of it."""
        count = len(batch.events)
        if self._missed or self._queued + count > self._bound:
            self._missed += self._queued + count
            self._batches.clear()
            self._queued = 0
        else:
            self._batches.append(batch)
            self._queued += count
        self._wake()


class _Listener(FeedSubscription):
    def __init__(
        self, feed: "CommitFeed", name: str, changes: frozenset[EntityChange], listener: Callable[[str], object]
    ) -> None:
        super().__init__(feed, name)
        self.changes: Final = changes
        self.listener: Final = listener


class CommitFeed:
    """The feed of one server. `hears_commits` says whether a tick has to be told at all, `is_followed` if to followers.

    Of the ticks of a batch (`simserver.entity.batch`) listeners are not told: `Life.changed_at` says as much.
    """

    def __init__(self) -> None:
        self.hears_commits = False
        self.round = 0
        """The round that is under way, or was the last."""
        self._listeners: dict[EntityChange, tuple[_Listener, ...]] = dict.fromkeys(EntityChange, ())
        self.is_followed = False
        # Those of ticks once more, where they are found without a look-up.
        self._step_listeners: tuple[_Listener, ...] = ()
        self._followers: tuple[FeedFollower, ...] = ()
        self._open: list[Event] = []
        self._is_round = False

    # --- for subscribers -------------------------------------------------------------------------------------------

    def listen(self, name: str, changes: Iterable[EntityChange], listener: Callable[[str], object]) -> FeedSubscription:
        """Have `listener` called with the name of each entity to which one of these changes happens, at once.

        It is called in the middle of what changes the entity, which may not be in the entity table yet. It should note
        the name, or ring a bell. `name` is for the log.
        """
        subscription = _Listener(self, name, frozenset(changes), listener)
        for change in subscription.changes:
            self._listeners[change] += (subscription,)
        self._subscribed()
        return subscription

    def follow(self, name: str, wake: Callable[[], None], bound: int = MAX_QUEUED) -> FeedFollower:
        """Have every change from here on kept in order, until it is taken.

        `wake` is called whenever there is something to take, such as `Bell.ring`; it should not do more than that.
        `bound` is how many changes may wait. It has to be above the number of entities that tick here.
        """
        follower = FeedFollower(self, name, bound, wake)
        self._followers += (follower,)
        self._subscribed()
        return follower

    def drop(self, subscription: FeedSubscription) -> None:
        """End a subscription."""
        for change, listeners in self._listeners.items():
            self._listeners[change] = tuple(one for one in listeners if one is not subscription)
        self._followers = tuple(one for one in self._followers if one is not subscription)
        if not self._followers:
            self._open.clear()
        self._subscribed()

    def _subscribed(self) -> None:
        self._step_listeners = self._listeners[EntityChange.STEPPED]
        self.is_followed = bool(self._followers)
        self.hears_commits = bool(self._followers or self._step_listeners)

    @property
    def is_round(self) -> bool:
        """Whether a round is under way: some entities may have had its tick, and others not."""
        return self._is_round

    # --- for the server --------------------------------------------------------------------------------------------

    def round_begins(self, number: int) -> None:
        """Every entity is about to tick: what happens until `round_is_over` is one batch."""
        self.round_is_over()
        self.round, self._is_round = number, True

    def round_is_over(self) -> None:
        """Every entity has had its tick; does nothing if no round is under way."""
        self._is_round = False
        self._seal()

    def committed(
        self, entity: str, fence: Fence, tick: int, before: Any, after: Any, inputs: Sequence[PendingInput]
    ) -> None:
        """A tick was committed; called by the entity if `hears_commits`."""
        if self._followers:
            self.told(Committed(entity, fence, tick, before, after, inputs))
        for one in self._step_listeners:
            try:
                one.listener(entity)
            except Exception as error:
                self._failed(one, error)

    def told(self, event: Event) -> None:
        """Tell the followers alone, of whom there are some."""
        self._open.append(event)
        if not self._is_round:
            self._seal()

    def changed(self, entity: str, fence: Fence, tick: int, change: EntityChange) -> None:
        """Anything else has happened; called by the entity."""
        if self._followers:
            self.told(Changed(entity, fence, tick, change))
        self._tell(change, entity)

    def _tell(self, change: EntityChange, entity: str) -> None:
        for one in self._listeners[change]:
            try:
                one.listener(entity)
            except Exception as error:
                self._failed(one, error)

    def _seal(self) -> None:
        if not self._open:
            return
        batch = FeedBatch(self.round, tuple(self._open))
        self._open.clear()
        for follower in self._followers:
            try:
                follower.put(batch)
            except Exception as error:
                self._failed(follower, error)

    def _failed(self, subscription: FeedSubscription, error: Exception) -> None:
        subscription.error = error
        self.drop(subscription)
        _log.error("%s is told of no change any more: it failed on one", subscription.name, exc_info=error)
