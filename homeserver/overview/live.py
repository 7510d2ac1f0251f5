"""What happens in an instance, read once for all who look on: the map, and which entities and transfers have changed.

The log is followed only while somebody looks on. What has changed within a quarter of a second is told in one piece,
made once however many look on. A piece names at most the last `MAX_ENTITIES` and `MAX_TRANSFERS`, and says how many
more there were: a thousand transfers a second cost as much as eighty.

Who does not take its pieces is sent away, and comes again: the beginning of a stream is how everything stands.
"""

import json
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any, Final, Generic, TypeVar

import trio

from batonpass.actors.base.clock import Bell
from batonpass.actors.http.app import ApiError
from batonpass.actors.http.streaming import server_sent_event
from batonpass.authority.model.records import TransferRecord
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.overview.acts import RecordedAct
from batonpass.homeserver.overview.cluster_map import MapView, map_of
from batonpass.homeserver.overview.lists import listed_transfer
from batonpass.homeserver.overview.samples import SampleRing
from batonpass.tree.data.errors import WatcherCut
from batonpass.tree.member.watching import Watch
from batonpass.tree.store.pattern import ANY_NAME

__all__ = ["HEARTBEAT_S", "LOOK_S", "MAX_LOOKERS", "LiveOverview", "Recent"]

Value = TypeVar("Value")

LOOK_S: Final = 0.25
"""How often there is a piece, if anything has changed."""
FIGURES_S: Final = 1.0
"""How often figures alone are worth a new map; what changes the health of a server is told at once."""
HEARTBEAT_S: Final = 15.0
MAX_LOOKERS: Final = 64
"""Who looks on at one member; each holds a connection."""
MAX_TRANSFERS: Final = 20
MAX_ENTITIES: Final = 200
_MAX_WAITING: Final = 64
_MAX_TAKEN: Final = 16_384
_FIGURES: Final = frozenset(
    {"entities", "leaving", "asleep", "tick_fraction", "inputs_per_s", "bytes_per_s", "not_running", "recovering"}
)


class Recent(Generic[Value]):
    """The last changes by name, each name once, and how many more there were."""

    def __init__(self, at_most: int) -> None:
        self._at_most: Final = at_most
        self._changed: dict[str, Value] = {}
        self._more = 0

    def add(self, name: str, value: Value) -> None:
        """It has changed; of a name the last value counts."""
        self._changed.pop(name, None)
        self._changed[name] = value
        if len(self._changed) > self._at_most:
            del self._changed[next(iter(self._changed))]
            self._more += 1

    def take(self) -> tuple[dict[str, Value], int]:
        """All of them, oldest first; from now on there are none."""
        taken = self._changed, self._more
        self._changed, self._more = {}, 0
        return taken


class LiveOverview:
    """One member's; `serve` has to run."""

    def __init__(self, node: HomeserverNode) -> None:
        self._node: Final = node
        self.samples: Final = SampleRing(node)
        """What charts show; it has to be served beside this."""
        self._bell: Final = Bell()
        self._lookers: Final[set[trio.MemorySendChannel[bytes]]] = set()
        self._entities: Final[Recent[Any]] = Recent(MAX_ENTITIES)
        self._transfers: Final[Recent[Any]] = Recent(MAX_TRANSFERS)
        # The map as everybody who looks on has it, while the log is followed.
        self._shown: MapView | None = None
        self._following = trio.Event()

    # --- who looks on -------------------------------------------------------------------------------------------------

    def join(self) -> tuple[AsyncIterator[bytes], "trio.MemorySendChannel[bytes]"]:
        """The text of a stream that begins with how everything stands, and what to `leave` by when it ends.

        Raises:
            ApiError: `too_many_lookers`.
        """
        if len(self._lookers) >= MAX_LOOKERS:
            raise ApiError(503, "too_many_lookers", f"{MAX_LOOKERS} look on here already: try another member")
        sender, receiver = trio.open_memory_channel[bytes](_MAX_WAITING)
        self._lookers.add(sender)
        self._bell.ring()
        return self._pieces(receiver), sender

    def leave(self, looker: "trio.MemorySendChannel[bytes]") -> None:
        """Its stream has ended; may be said twice."""
        self._lookers.discard(looker)
        looker.close()
        self._bell.ring()

    async def _pieces(self, receiver: "trio.MemoryReceiveChannel[bytes]") -> AsyncIterator[bytes]:
        # What changes from now on is told: who reads the lists after this piece misses nothing.
        while self._shown is None:
            await self._following.wait()
        yield b"retry: 1000\n\n" + _map_event(self._shown)
        while True:
            piece = b": nothing new\n\n"
            try:
                with trio.move_on_after(HEARTBEAT_S):
                    piece = await receiver.receive()
            except trio.EndOfChannel:
                return
            yield piece

    def _tell(self, piece: bytes) -> None:
        for looker in list(self._lookers):
            try:
                looker.send_nowait(piece)
            except trio.WouldBlock:
                self.leave(looker)

    def tell_act(self, act: RecordedAct) -> None:
        """An operator has done something."""
        self._tell(_event("acts", act.model_dump_json()))

    # --- what happens -------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tell those who look on, until cancelled."""
        task_status.started()
        was_cut = False
        while True:
            while not self._lookers:
                await self._bell.wait()
            try:
                await self._follow(was_cut)
                was_cut = False
            except* WatcherCut:
                was_cut = True
            finally:
                self._shown, self._following = None, trio.Event()

    async def _follow(self, was_cut: bool) -> None:
        """Until nobody looks on. Raises WatcherCut: there was more at once than is kept."""
        backend = self._node.replica
        entities, transfers = backend.watch(("entities", ANY_NAME)), backend.watch(("transfers", ANY_NAME))
        with closing(entities), closing(transfers):
            self._shown = map_of(self._node)
            self._following.set()
            if was_cut:
                # What was not told is to be read.
                self._tell(_event("reset", "{}"))
                self._tell(_map_event(self._shown))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._collect, entities, self._entities)
                nursery.start_soon(self._collect, transfers, self._transfers)
                await self._publish(self._shown)
                nursery.cancel_scope.cancel()

    async def _collect(self, watch: Watch, into: Recent[Any]) -> None:
        while True:
            for event in await watch.take(_MAX_TAKEN):
                into.add(event.path[-1], event)
            # Not with each commit: a busy log has hundreds in this time, and pieces go out no more often.
            await self._node.clock.sleep_s(LOOK_S)

    async def _publish(self, shown: MapView) -> None:
        shown_ns = self._node.clock.monotonic_ns()
        while self._lookers:
            now, now_ns = map_of(self._node), self._node.clock.monotonic_ns()
            is_due = (now_ns - shown_ns) / 1e9 >= FIGURES_S
            if now != shown and (is_due or _without_figures(now) != _without_figures(shown)):
                self._shown = shown = now
                shown_ns = now_ns
                self._tell(_map_event(now))
            self._tell_changes()
            await self._node.clock.sleep_s(LOOK_S)

    def _tell_changes(self) -> None:
        entities, more_entities = self._entities.take()
        if entities:
            self._tell(_event("entities", json.dumps({"entities": list(entities), "more": more_entities})))
        transfers, more_transfers = self._transfers.take()
        rows = [event.data for event in transfers.values() if event.data]
        if rows or more_transfers:
            listed = [listed_transfer(TransferRecord.from_data(row)).model_dump(mode="json") for row in rows]
            self._tell(_event("transfers", json.dumps({"transfers": listed, "more": more_transfers})))


def _event(kind: str, data: str) -> bytes:
    return server_sent_event(data, kind=kind)


def _map_event(view: MapView) -> bytes:
    return _event("map", view.model_dump_json())


def _without_figures(view: MapView) -> dict[str, Any]:
    return view.model_dump(exclude={"entities": True, "recovering": True, "servers": {"__all__": set(_FIGURES)}})
