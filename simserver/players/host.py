"""What this server shows to the clients of its players' door, tick by tick, and what they are told besides.

The commit feed says what has changed. With every round, each topic that is due tells its watchers; none is waited for.
Without a watcher, the feed is not followed, and the tick costs what it did.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from batonpass.actors.base.clock import Clock, Tasks
from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door_connection import DoorConnection
from batonpass.authority.wire.door import (
    MAX_HELD_TOPICS,
    MAX_SUBSCRIPTIONS,
    DoorHave,
    DoorRefusal,
    DoorSubscribe,
    EntityElsewhere,
    SubscriptionTopics,
)
from batonpass.authority.wire.transfer import ImminentLoss, InputAck, LinkMessage, NotHere, NotOwner
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import Committed, EntityChange, FeedBatch
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.net.door_players import DoorPlayers
from batonpass.simserver.net.ports import EntityWhereabouts
from batonpass.simserver.players.cells import Cell, a_position
from batonpass.simserver.players.sights import Sights
from batonpass.simserver.players.topics import KEPT_S, Topic, TopicKey, Topics, TopicWatcher

__all__ = ["DOOR", "HostedPlayers"]

DOOR: Final = "door"
"""Of what kind the players' door is among the doors of a server (`EntityWhereabouts.door_of`)."""

STEP_NS: Final = 2_000_000
"""For so long at a time the table of entities is read, before everything else has its turn."""
_IDLE_ROUNDS: Final = 4
"""After this number of rounds without news, topics that are not due with every round are looked at all the same."""


@dataclass(slots=True)
class _Subscription:
    """What a client asked for, and the topics that show it."""

    asked: DoorSubscribe
    topics: dict[TopicKey, tuple[Topic, TopicWatcher]] = field(default_factory=dict)
    cells: frozenset[Cell] = frozenset()
    follows: Cell | None = None


@dataclass(slots=True, eq=False)
class _Client:
    connection: DoorConnection
    tell: Callable[[LinkMessage], object]
    subscriptions: dict[int, _Subscription] = field(default_factory=dict)
    held: dict[int, tuple[int, int]] = field(default_factory=dict)
    """What it has of topics by an earlier connection (`DoorHave`)."""


class HostedPlayers:
    """The clients of one server's door; `serve` has to run.

    Args:
        environment: of the entities.
        holdings: of this server.
        players: who is told what over the door.
        whereabouts: where the doors of other servers are.
        clock: by which is waited.
        count: notes what went wrong.
    """

    def __init__(
        self,
        environment: EntityEnvironment,
        holdings: Holdings,
        players: DoorPlayers,
        whereabouts: EntityWhereabouts,
        clock: Clock,
        count: Callable[[str], None],
    ) -> None:
        self._environment: Final = environment
        self._holdings: Final = holdings
        self._players: Final = players
        self._whereabouts: Final = whereabouts
        self._asking: Final[set[tuple[DoorConnection, str]]] = set()
        self._tasks: Tasks | None = None
        self._clock: Final = clock
        self._count: Final = count
        self._clients: Final[dict[DoorConnection, _Client]] = {}
        self._bell: Final = clock.bell()
        self._scans: Final = trio.Lock()
        self._axes: frozenset[int] = frozenset()
        self._are_followed = False
        """Some area is around an entity."""
        self.topics = Topics(Sights(environment.world, count), round(KEPT_S / environment.period_s))

    @property
    def server(self) -> str:
        """The name of this server."""
        return self._environment.server

    @property
    def tick_hz(self) -> float:
        """How often entities tick in a second."""
        return 1.0 / self._environment.period_s

    @property
    def round(self) -> int:
        """The number of the present round of ticks."""
        return self._environment.rounds.count

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def behind(self) -> int:
        """How many clients have not taken the last that they were told, so that they are told no more for now."""
        return sum(not connection.is_ready for connection in self._clients)

    # --- connections -----------------------------------------------------------------------------------------------

    def join(self, connection: DoorConnection) -> None:
        """A client was let in."""

        def tell(message: LinkMessage) -> None:
            self._told(connection, message)

        self._clients[connection] = _Client(connection, tell)
        if connection.player:
            self._players.attach(connection.player, tell)
        self._bell.ring()

    def leave(self, connection: DoorConnection) -> None:
        """Its connection has ended."""
        client = self._clients.pop(connection)
        if connection.player:
            self._players.detach(connection.player, client.tell)
        for subscription in client.subscriptions.values():
            for topic, watcher in subscription.topics.values():
                self.topics.lose(topic, watcher, self.round)

    def caught_up(self, connection: DoorConnection) -> None:
        """Its client has taken what it had not: tell it what it missed."""
        client = self._clients.get(connection)
        if client is None:
            return
        for subscription in client.subscriptions.values():
            for topic, watcher in subscription.topics.values():
                if not connection.is_ready:
                    return
                topic.catch_up(watcher, self.round)

    def hold(self, connection: DoorConnection, have: DoorHave) -> None:
        """A client says what it has by an earlier connection. Raises DoorRefused (`too_many`)."""
        held = self._clients[connection].held
        held.update((topic, (frame, base)) for topic, frame, base in have.topics)
        if len(held) > MAX_HELD_TOPICS:
            raise DoorRefused("too_many", f"a client has at most {MAX_HELD_TOPICS} topics of before")

    def subscribe(self, connection: DoorConnection, asked: DoorSubscribe) -> None:
        """Show a client what it asked for, from now on; nothing under this number, if it is refused.

        Raises:
            DoorRefused: `bad_subscription`, `too_many`, `no_positions`, `area_too_large`, `wrong_axes`.
        """
        try:
            self._subscribe(connection, asked)
        except DoorRefused:
            self.unsubscribe(connection, asked.id)
            raise

    def _subscribe(self, connection: DoorConnection, asked: DoorSubscribe) -> None:
        client = self._clients[connection]
        if asked.id not in client.subscriptions and len(client.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise DoorRefused("too_many", f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")
        wanted = [name for name in ("entity", "owner", "pattern", "area") if getattr(asked, name)]
        if len(wanted) != 1:
            raise DoorRefused("bad_subscription", "ask for one of: entity, owner, pattern, area")
        subscription = _Subscription(asked)
        if asked.area is not None:
            subscription.cells, subscription.follows = self._cells(subscription)
        self._watch(client, subscription, client.subscriptions.get(asked.id))
        if asked.entity and self._holdings.get(asked.entity) is None:
            self._tell_where(connection, asked.entity)

    def unsubscribe(self, connection: DoorConnection, number: int) -> None:
        """Show a client no more of it; nothing if there is no such subscription."""
        client = self._clients[connection]
        subscription = client.subscriptions.pop(number, None)
        if subscription is not None:
            self._unwatch(client, subscription, list(subscription.topics))
            self._tell_topics(client, subscription)

    @asynccontextmanager
    async def scanning(self, asked: DoorSubscribe) -> AsyncIterator[None]:
        """Where a pattern is asked for, all names are looked through: for all clients together a tenth of the time."""
        if not asked.pattern:
            yield
            return
        async with self._scans:
            begun_ns = self._clock.monotonic_ns()
            yield
            took_ns = self._clock.monotonic_ns() - begun_ns
            await self._clock.sleep_s(9 * took_ns / 1e9)

    # --- subscriptions ---------------------------------------------------------------------------------------------

    def _keys(self, client: _Client, subscription: _Subscription) -> list[TopicKey]:
        asked, sights = subscription.asked, self.topics.sights
        every = max(1, round(self.tick_hz / asked.rate_hz))
        viewer = client.connection.player if sights.has_views else ""
        if asked.area is not None:
            return [TopicKey("cell", cell, every, viewer) for cell in sorted(subscription.cells)]
        if asked.entity:
            return [TopicKey("entity", asked.entity, every, viewer)]
        if asked.owner:
            return [TopicKey("owner", asked.owner, every, viewer)]
        return [TopicKey("pattern", asked.pattern, every, viewer)]

    def _watch(self, client: _Client, subscription: _Subscription, former: _Subscription | None) -> None:
        """Have it shown by the topics that it needs now; those that it has had already continue.

        Raises:
            DoorRefused: (`too_many`) nothing is as if it had been asked for; the former one continues.
        """
        keys = self._keys(client, subscription)
        had = {} if former is None else former.topics
        subscription.topics = {key: had[key] for key in keys if key in had}
        new = [key for key in keys if key not in had]
        gone = [key for key in had if key not in subscription.topics]
        others = sum(len(one.topics) for one in client.subscriptions.values() if one is not former)
        if others + len(keys) > MAX_HELD_TOPICS:
            text = f"a connection is shown at most {MAX_HELD_TOPICS} topics: ask for smaller areas"
            raise DoorRefused("too_many", text)
        try:
            for key in new:
                subscription.topics[key] = self._shared(client, key) or self._watched(client, key)
        except ValueError as error:
            self._unwatch(client, subscription, [key for key in subscription.topics if key not in had])
            raise DoorRefused("too_many", str(error)) from error
        client.subscriptions[subscription.asked.id] = subscription
        if former is not None:
            self._unwatch(client, former, gone)
        # The numbers of topics go ahead of their first frames.
        if new or gone or former is None:
            self._tell_topics(client, subscription)
        for key in new:
            self.topics.begin(*subscription.topics[key], self.round)

    def _watched(self, client: _Client, key: TopicKey) -> tuple[Topic, TopicWatcher]:
        watcher = TopicWatcher(client.connection.tell_frame, client.connection)
        topic = self.topics.watch(key, watcher)
        watcher.held = client.held.pop(topic.number, (0, 0))
        return topic, watcher

    def _shared(self, client: _Client, key: TopicKey) -> tuple[Topic, TopicWatcher] | None:
        """A topic that this client is shown already by another subscription: it is told once, and now anew in full."""
        for other in client.subscriptions.values():
            if (found := other.topics.get(key)) is not None:
                found[1].frame, found[1].held = 0, (0, 0)
                return found
        return None

    def _unwatch(self, client: _Client, subscription: _Subscription, keys: list[TopicKey]) -> None:
        for key in keys:
            topic, watcher = subscription.topics.pop(key)
            if not any(key in other.topics for other in client.subscriptions.values()):
                self.topics.unwatch(topic, watcher)

    def _tell_topics(self, client: _Client, subscription: _Subscription) -> None:
        numbers = [topic.number for topic, _ in subscription.topics.values()]
        client.connection.tell(
            SubscriptionTopics(id=subscription.asked.id, topics=numbers), ("topics", subscription.asked.id)
        )

    def _cells(self, subscription: _Subscription) -> tuple[frozenset[Cell], Cell | None]:
        """The cells of an area, and that of the entity around which it is. Raises DoorRefused."""
        area, grid = subscription.asked.area, self.topics.sights.grid
        if area is None or not self.topics.sights.has_positions:
            raise DoorRefused("no_positions", "the world of this server does not say where entities are (`position`)")
        self.topics.sights.need_cells()
        if (area.centre is None) == (not area.around):
            raise DoorRefused("bad_subscription", "an area has a centre, or an entity around which it is")
        try:
            centre = None if area.centre is None else a_position(area.centre)
        except ValueError as error:
            raise DoorRefused("bad_subscription", str(error)) from error
        if centre is not None:
            self._check_axes(len(centre))
        try:
            if centre is not None:
                return frozenset(grid.area(centre, area.radius, subscription.cells)), None
            self._are_followed = True
            sight = self.topics.sights.get(area.around)
            if sight is None or sight.cell is None:
                # It is not known yet along how many axes there are positions: along one at least.
                grid.around((0,), area.radius)
                return subscription.cells, None
            return frozenset(grid.around(sight.cell, area.radius)), sight.cell
        except ValueError as error:
            raise DoorRefused("area_too_large", str(error)) from error

    def _check_axes(self, axes: int) -> None:
        """Nothing could ever be seen in an area along other axes. While nothing has a position, none are known."""
        known = self.topics.sights.axes
        if known and axes not in known:
            there = " or ".join(map(str, sorted(known)))
            text = f"positions have {there} numbers in this world: a centre of {axes} shows nothing"
            raise DoorRefused("wrong_axes", text)

    def _end_wrong_areas(self) -> None:
        """Areas that were asked for before the axes of the world were known end, if they have others."""
        axes = frozenset(self.topics.sights.axes)
        if axes == self._axes:
            return
        self._axes = axes
        for client in self._clients.values():
            for subscription in list(client.subscriptions.values()):
                area = subscription.asked.area
                try:
                    if area is not None and area.centre is not None:
                        self._check_axes(len(area.centre))
                except DoorRefused as refused:
                    self._end(client, subscription, refused)

    def _end(self, client: _Client, subscription: _Subscription, refused: DoorRefused) -> None:
        self.unsubscribe(client.connection, subscription.asked.id)
        client.connection.tell(DoorRefusal.of(refused, subscription.asked.id))

    def _follow_areas(self) -> None:
        """Areas around entities go where these go."""
        if not self._are_followed:
            return
        for client in self._clients.values():
            for subscription in list(client.subscriptions.values()):
                area = subscription.asked.area
                sight = None if area is None or not area.around else self.topics.sights.get(area.around)
                if sight is not None and sight.cell != subscription.follows:
                    self._follow(client, subscription)

    def _follow(self, client: _Client, subscription: _Subscription) -> None:
        """Have an area be around the cell where its entity is now; it ends if that is too large, and nothing else."""
        moved = _Subscription(subscription.asked, cells=subscription.cells)
        try:
            moved.cells, moved.follows = self._cells(moved)
            self._watch(client, moved, subscription)
        except DoorRefused as refused:
            self._end(client, subscription, refused)

    # --- what happens ----------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Show what happens, until cancelled."""
        async with self._clock.tasks() as self._tasks:
            task_status.started()
            await self._show_all()

    async def _show_all(self) -> None:
        while True:
            while not self._clients:
                await self._bell.wait()
            with self._environment.feed.follow("players' door", self._bell.ring) as follower:
                await self._read_all()
                # What topics showed is kept for a while for clients that come again.
                while (self._clients or self.topics.resting) and follower.error is None:
                    await self._bell.wait(_IDLE_ROUNDS * self._environment.period_s)
                    while (batch := follower.take()) is not None:
                        if batch.missed:
                            self._count("door_missed")
                            await self._read_all()
                        self._take(batch)
                    self._end_wrong_areas()
                    self._follow_areas()
                    self.topics.tell(self.round)
            if not self._clients:
                self._are_followed = False
                self.topics.forget()

    async def _read_all(self) -> None:
        """Show what is here, and nothing else; in steps, for the server ticks meanwhile."""
        here = [holding.id for holding in self._holdings]
        for sight in [one for one in self.topics.sights if self._holdings.get(one.name) is None]:
            self.topics.remove(sight.name)
        begun_ns = self._clock.monotonic_ns()
        for name in here:
            self._show(name)
            if self._clock.monotonic_ns() - begun_ns > STEP_NS:
                await self._clock.sleep_s(0)
                begun_ns = self._clock.monotonic_ns()

    def _show(self, name: str) -> None:
        holding = self._holdings.get(name)
        if holding is None:
            self.topics.remove(name)
            return
        life = holding.life
        seen = (None, life.look) if life.passive is not None else (life.look(), None)
        self.topics.show(name, life.kind, life.acceptance.ownership.owner, life.fence, life.tick, *seen)

    def _take(self, batch: FeedBatch) -> None:
        for event in batch.events:
            if isinstance(event, Committed):
                sight = self.topics.sights.get(event.entity)
                if sight is None or sight.fence != event.fence:
                    self._show(event.entity)
                elif event.tick > sight.tick:
                    # Else it was read from the table since.
                    self.topics.stepped(event.entity, event.tick, event.after)
            elif event.change is EntityChange.ENDED:
                self.topics.remove(event.entity)
                self._left(event.entity)
            else:
                self._show(event.entity)

    def _left(self, entity: str) -> None:
        """An entity is here no more: clients that watch it by name are told where it is."""
        for topic in self.topics.by_name(entity):
            for watcher in topic.watchers:
                if isinstance(watcher.who, DoorConnection):
                    self._tell_where(watcher.who, entity)

    def _tell_where(self, connection: DoorConnection, entity: str) -> None:
        gone = self._holdings.gone(entity)
        if gone is None:
            self._told(connection, NotHere(entity=entity))
        else:
            self._told(
                connection,
                NotHere(entity=entity, moved_to=gone.moved_to, epoch=gone.fence.epoch, sub=gone.fence.sub),
            )

    async def _say_where(self, connection: DoorConnection, elsewhere: EntityElsewhere) -> None:
        """Tell a client the door of the server that has its entity, which may take a moment to find out."""
        try:
            url = await self._whereabouts.door_of(elsewhere.server, DOOR)
        finally:
            self._asking.discard((connection, elsewhere.entity))
        if url and connection in self._clients:
            connection.tell(elsewhere.model_copy(update={"url": url}), ("elsewhere", elsewhere.entity))

    def _told(self, connection: DoorConnection, message: LinkMessage) -> None:
        match message:
            case NotHere():
                elsewhere = EntityElsewhere(
                    entity=message.entity, server=message.moved_to, epoch=message.epoch, sub=message.sub
                )
                connection.tell(elsewhere, ("elsewhere", message.entity))
                if message.moved_to and self._tasks is not None and (connection, message.entity) not in self._asking:
                    self._asking.add((connection, message.entity))
                    self._tasks.start_soon(self._say_where, connection, elsewhere)
            case InputAck() | NotOwner() | ImminentLoss():
                connection.tell(message, (message.type, message.entity))
            case _:
                self._count("unsent_door")
